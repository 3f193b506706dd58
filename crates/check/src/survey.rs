//! The whole preflight of hosts: all hosts in parallel, pairs of hosts in turn, in one or several rounds.

use crate::hosts::Host;
use crate::link::{Link, LinkError, Ways};
use crate::network::schedule;
use crate::probe::message::{DiskPlan, Reply, Request};
use crate::probe::network::Listening;
use crate::{contrast, fallback, host, network, spread};
use record::Clock;
use record::check::{Checks, Disk, Host as Checked, Pair, WallClock};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the tests of a directory may take beside their own time: a disk that is stuck must not hold up the other hosts forever.
const DISK_PATIENCE: Duration = Duration::from_secs(120);
/// The same for every other request.
const PATIENCE: Duration = Duration::from_secs(60);
/// Exchanges of time stamps, of which the fastest counts.
const CLOCK_EXCHANGES: usize = 20;
/// The interval at which a stop is noticed between two rounds.
const BEAT: Duration = Duration::from_millis(100);

/// What is unknown after a test that was not answered.
const NOT_MEASURED: &str = "what this test measures";

/// What is checked.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The hosts.
    pub hosts: Vec<Host>,
    /// How they are reached.
    pub ways: Ways,
    /// Directories to measure on every host.
    pub disks: Vec<String>,
    /// Directories of databases: their mounts are judged more strictly. Host and directory.
    pub data: Vec<(String, String)>,
    /// Databases are checked as well.
    pub has_nodes: bool,
    /// How a directory is measured; its `directory` is not used.
    pub disk: DiskPlan,
    /// What else is measured.
    pub tests: Tests,
    /// Measure a pair of hosts only while no other is measured.
    pub one_pair_at_a_time: bool,
    /// Measure with fio and iperf3 where they are installed, also where pgfathom runs.
    pub prefers_tools: bool,
    /// Repeat the disks and the network: the time from one round to the next, and of all.
    pub repeat: Option<(Duration, Duration)>,
    /// Where the output of foreign tools is kept.
    pub outputs: PathBuf,
}

/// What is measured beside disks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tests {
    /// Every pair of hosts.
    pub network: bool,
    /// Memory.
    pub memory: bool,
    /// Processors.
    pub processor: bool,
}

/// A host at work.
struct Subject<'a> {
    host: &'a Host,
    link: Option<Link>,
    checked: Checked,
    listening: Option<Listening>,
}

/// Checks them all. `keep` gets what is known after each round that is not the last: days of rounds must not be lost with the process.
pub fn run(
    plan: &Plan,
    clock: Clock,
    say: &(dyn Fn(&str) + Sync),
    keep: &dyn Fn(&Checks),
    stop: &AtomicBool,
) -> Checks {
    let work = Work { plan, clock, say, stop };
    let mut checks = Checks::default();
    let subjects: Vec<Mutex<Subject>> = on_each(
        &plan.hosts,
        |host| Mutex::new(work.first_look(host)),
        |host, why| Mutex::new(unseen(host, why)),
    );
    let begun = Instant::now();
    let mut slot = 0_u128;
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if round > 0 {
            let _: Vec<()> = on_each(&subjects, |subject| work.revive(subject), |_, _| ());
        }
        let of_host = |subject| work.disks(subject, round);
        let lost = |subject, why: &str| work.unmeasured(subject, round, why);
        checks.disks.extend(on_each(&subjects, of_host, lost).into_iter().flatten());
        if plan.tests.network {
            checks.pairs.extend(work.pairs(&subjects, round));
        }
        let Some((every, all)) = plan.repeat else { break };
        // A round that took longer than the interval skips the starts that it missed: the end is a time, not a number of rounds.
        slot = (slot + 1).max(begun.elapsed().as_micros().div_ceil(every.as_micros().max(1)));
        let next = every.saturating_mul(u32::try_from(slot).unwrap_or(u32::MAX));
        if next >= all {
            break;
        }
        let hosts = subjects.iter().map(|subject| locked(subject).checked.clone()).collect();
        let mut known = Checks { hosts, ..checks.clone() };
        judge(&mut known, plan);
        keep(&known);
        while begun.elapsed() < next && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(BEAT);
        }
    }
    checks.hosts = subjects
        .into_iter()
        .map(|subject| subject.into_inner().unwrap_or_else(PoisonError::into_inner).checked)
        .collect();
    judge(&mut checks, plan);
    checks
}

/// Makes the items of what was measured.
fn judge(checks: &mut Checks, plan: &Plan) {
    let mut items = vec![];
    for host in &checks.hosts {
        let subjects: Vec<&str> = plan
            .data
            .iter()
            .filter(|(name, _)| *name == host.host)
            .map(|(_, directory)| directory.as_str())
            .chain(checks.disks.iter().filter(|disk| disk.host == host.host).map(real))
            .collect();
        // The mount of a symbolic link is that of its target.
        let resolved = |data: &'_ str| {
            checks.disks.iter().find(|disk| disk.host == host.host && disk.directory == data).map(real)
        };
        let data: Vec<&str> = plan
            .data
            .iter()
            .filter(|(name, _)| *name == host.host)
            .map(|(_, data)| resolved(data).unwrap_or(data.as_str()))
            .collect();
        let listed = plan.hosts.iter().find(|listed| listed.name == host.host);
        let command = listed.map(Host::ssh_command).unwrap_or_default();
        items.extend(host::items(host, &subjects, &data, &command));
    }
    let last = checks.disks.iter().map(|disk| disk.round).max().unwrap_or(0);
    let is_named = |disk: &Disk| {
        let of_host = plan.hosts.iter().filter(|host| host.name == disk.host).flat_map(|host| &host.disks);
        plan.disks.iter().chain(of_host).any(|named| *named == disk.directory)
    };
    let of_last = checks.disks.iter().filter(|disk| disk.round == last);
    items.extend(of_last.flat_map(|disk| host::disk::items(disk, is_named(disk))));
    items.extend(network::items(checks));
    items.extend(contrast::items(checks));
    items.extend(spread::items(checks));
    if plan.disks.is_empty() && plan.data.is_empty() && plan.hosts.iter().all(|host| host.disks.is_empty()) {
        items.push(host::no_disk(None, plan.has_nodes));
    } else {
        // One host of several that has neither a directory of its own nor a database.
        let has_own = |name: &str| plan.hosts.iter().any(|host| host.name == name && !host.disks.is_empty());
        let has_data = |name: &str| plan.data.iter().any(|(host, _)| host == name);
        let is_bare = |host: &&Checked| {
            host.lost.is_none() && plan.disks.is_empty() && !has_own(&host.host) && !has_data(&host.host)
        };
        items.extend(
            checks.hosts.iter().filter(is_bare).map(|host| host::no_disk(Some(&host.host), plan.has_nodes)),
        );
    }
    items.sort_by_key(|item| item.area);
    checks.items = items;
}

/// The directory of a disk without symbolic links, where that is known.
fn real(disk: &Disk) -> &str {
    if disk.real_directory.is_empty() { &disk.directory } else { &disk.real_directory }
}

#[derive(Clone, Copy)]
struct Work<'a> {
    plan: &'a Plan,
    clock: Clock,
    say: &'a (dyn Fn(&str) + Sync),
    stop: &'a AtomicBool,
}

fn locked<'g, 'a>(subject: &'g Mutex<Subject<'a>>) -> std::sync::MutexGuard<'g, Subject<'a>> {
    subject.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Works on all at once; the results are in their order. Work that ended without a result has that of `lost`, which gets the reason.
fn on_each<'t, T: Sync, R: Send>(
    all: &'t [T],
    work: impl Fn(&'t T) -> R + Sync,
    lost: impl Fn(&'t T, &str) -> R,
) -> Vec<R> {
    std::thread::scope(|scope| {
        let work = &work;
        let start = |one| std::thread::Builder::new().spawn_scoped(scope, move || work(one));
        let threads: Vec<_> = all.iter().map(|one| (one, start(one))).collect();
        let ended =
            |(one, thread): (&'t T, std::io::Result<std::thread::ScopedJoinHandle<'_, R>>)| match thread {
                Err(error) => lost(one, &format!("cannot start a thread for it: {error}")),
                Ok(thread) => thread.join().unwrap_or_else(|panic| {
                    let text = panic.downcast_ref::<String>().map(String::as_str);
                    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
                    lost(one, &format!("pgfathom has a defect, its thread for this host panicked: {text}"))
                }),
            };
        threads.into_iter().map(ended).collect()
    })
}

fn new_subject(host: &Host) -> Subject<'_> {
    let checked = Checked { host: host.name.clone(), address: host.address.clone(), ..Checked::default() };
    Subject { host, link: None, checked, listening: None }
}

/// A host whose thread ended without a result.
fn unseen<'a>(host: &'a Host, why: &str) -> Subject<'a> {
    let mut subject = new_subject(host);
    subject.checked.lost = Some(why.to_string());
    subject
}

impl Work<'_> {
    /// Reaches a host, reads what it is, and measures what is measured once.
    fn first_look(self, host: &Host) -> Subject<'_> {
        let mut subject = new_subject(host);
        match Link::open(host, &self.plan.ways, self.stop) {
            Ok(link) => {
                subject.checked.measured_by = link.measured_by.to_string();
                subject.link = Some(link);
            }
            Err(LinkError::NoProgram(why)) => {
                subject.checked.no_program = Some(why);
                if !fallback::facts(host, &self.plan.ways, &mut subject.checked, self.stop) {
                    subject.checked.lost = subject.checked.no_program.take();
                }
                return subject;
            }
            Err(error) => {
                subject.checked.lost = Some(error.to_string());
                return subject;
            }
        }
        self.facts(&mut subject);
        subject.checked.clock = self.wall_clock(&mut subject);
        if subject.link.as_ref().is_some_and(Link::is_lost) && !self.stop.load(Ordering::Relaxed) {
            self.replace_probe(&mut subject);
        }
        subject
    }

    /// The probe was lost: what it did not measure is a failure, and a new one measures the rest.
    fn replace_probe(self, subject: &mut Subject<'_>) {
        for lack in subject.checked.missing.iter_mut().filter(|lack| lack.lost == NOT_MEASURED) {
            lack.lost = host::PROBE_LOST.to_string();
        }
        match Link::open(subject.host, &self.plan.ways, self.stop) {
            Ok(link) => subject.link = Some(link),
            Err(error) => subject.checked.lost = Some(format!("its probe was lost, and then: {error}")),
        }
    }

    /// The directories of a host whose thread ended without a result.
    fn unmeasured(self, subject: &Mutex<Subject<'_>>, round: u64, why: &str) -> Vec<Disk> {
        let host = locked(subject).host;
        let of = |(directory, _): (String, bool)| Disk {
            host: host.name.clone(),
            round,
            t_us: self.clock.now_us(),
            ..refused(&directory, why)
        };
        self.directories(host).into_iter().map(of).collect()
    }

    fn facts(self, subject: &mut Subject<'_>) {
        let time_ms = self.plan.disk.time_ms;
        if let Some(Reply::Facts(found)) = self.call(subject, &Request::Facts, PATIENCE) {
            let checked = &mut subject.checked;
            checked.mounts = found.mounts;
            checked.facts = found.facts;
            checked.counters = found.counters;
            checked.missing = found.missing;
            let online = checked.facts.iter().find(|fact| fact.topic == "cpu" && fact.name == "online");
            checked.cpus = online.map_or(0, |fact| host::cpus(&fact.value));
        }
        if self.plan.tests.processor {
            (self.say)(&format!("{}: measuring the processor", subject.host.name));
            if let Some(Reply::Processor(found)) =
                self.call(subject, &Request::Processor { time_ms }, PATIENCE)
            {
                subject.checked.processor = Some(found);
            }
        }
        if self.plan.tests.memory {
            (self.say)(&format!("{}: measuring memory", subject.host.name));
            // Every node takes four tests, and some hosts have eight nodes.
            let patience = PATIENCE + Duration::from_millis(time_ms) * 64;
            if let Some(Reply::Memory(found)) = self.call(subject, &Request::Memory { time_ms }, patience) {
                subject.checked.memory = found;
            }
        }
    }

    /// Sends a request to the probe; a failure is kept among what could not be read.
    fn call(self, subject: &mut Subject<'_>, request: &Request, patience: Duration) -> Option<Reply> {
        let link = subject.link.as_mut()?;
        match link.call(request, patience, self.stop) {
            Ok(reply) => Some(reply),
            Err(LinkError::Stopped) => None,
            Err(error) => {
                let what = format!("{request:?}")
                    .chars()
                    .take_while(char::is_ascii_alphanumeric)
                    .collect::<String>();
                let lack = record::check::Lack {
                    what: what.to_lowercase(),
                    why: error.to_string(),
                    lost: NOT_MEASURED.to_string(),
                };
                // Rounds repeat a request.
                if !subject.checked.missing.contains(&lack) {
                    subject.checked.missing.push(lack);
                }
                None
            }
        }
    }

    /// Reaches a host again whose probe was lost in an earlier round: a connection that broke once must not end a day of rounds.
    fn revive(self, subject: &Mutex<Subject<'_>>) {
        let mut subject = locked(subject);
        if subject.link.as_ref().is_some_and(Link::is_lost)
            && let Ok(link) = Link::open(subject.host, &self.plan.ways, self.stop)
        {
            (subject.link, subject.listening) = (Some(link), None);
        }
    }

    /// The offset of the host's clock: that of the fastest exchange of time stamps.
    fn wall_clock(self, subject: &mut Subject<'_>) -> Option<WallClock> {
        if subject.host.is_local {
            return None;
        }
        let mut best: Option<WallClock> = None;
        for _ in 0..CLOCK_EXCHANGES {
            let (before, begun) = (record::clock::wall_us(), Instant::now());
            let Some(Reply::Clock { wall_us }) = self.call(subject, &Request::Clock, PATIENCE) else { break };
            let error_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX) / 2;
            let offset_us = wall_us.cast_signed() - (before + error_us).cast_signed();
            if best.is_none_or(|best| error_us < best.error_us) {
                best = Some(WallClock { offset_us, error_us });
            }
        }
        best
    }

    /// Measures the directories of a host, one after another.
    fn disks(self, subject: &Mutex<Subject<'_>>, round: u64) -> Vec<Disk> {
        let mut subject = locked(subject);
        let mut found: Vec<Disk> = vec![];
        let has_figures = |disk: &&Disk| !disk.tests.is_empty() && !disk.mount.is_empty();
        if subject.checked.lost.is_some() {
            return found;
        }
        for (directory, is_data) in self.directories(subject.host) {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            (self.say)(&format!("{}: measuring {directory}", subject.host.name));
            let measured_mounts = found.iter().filter(has_figures).map(|disk| disk.mount.clone()).collect();
            let request =
                DiskPlan { directory: directory.clone(), is_data, measured_mounts, ..self.plan.disk.clone() };
            let tests = 5 + 2 * u32::try_from(request.depths.len()).unwrap_or(u32::MAX);
            let patience = DISK_PATIENCE + Duration::from_millis(request.time_ms) * tests * 3;
            let host = subject.host;
            let uses_fio = self.plan.prefers_tools && fallback::has(host, &self.plan.ways, "fio", self.stop);
            let reply = match subject.link.as_mut().filter(|_| !uses_fio) {
                Some(link) => link.call(&Request::Disk(request), patience, self.stop),
                None => Ok(Reply::Disk(Box::new(fallback::disk(
                    host,
                    &self.plan.ways,
                    &request,
                    &self.plan.outputs,
                    self.stop,
                )))),
            };
            let mut disk = match reply {
                Ok(Reply::Disk(disk)) => *disk,
                Ok(_) => refused(&directory, "the probe gave another reply"),
                Err(LinkError::Stopped) => break,
                Err(error) => refused(&directory, &error.to_string()),
            };
            if disk.refused.is_none() && disk.tests.is_empty() {
                let same = found.iter().filter(has_figures).find(|other| other.mount == disk.mount);
                disk.same_as = same.map(|same| same.directory.clone());
            }
            (disk.host, disk.round, disk.t_us) = (host.name.clone(), round, self.clock.now_us());
            found.push(disk);
        }
        found
    }

    /// The directories of a host: those that were named, else those of the databases on it.
    fn directories(self, host: &Host) -> Vec<(String, bool)> {
        let mut named: Vec<(String, bool)> = vec![];
        for directory in self.plan.disks.iter().chain(&host.disks) {
            // What is named twice, for all hosts and for this one, is measured once.
            if named.iter().all(|(other, _)| other != directory) {
                named.push((directory.clone(), false));
            }
        }
        if !named.is_empty() {
            return named;
        }
        let of_host = self.plan.data.iter().filter(|(name, _)| *name == host.name);
        of_host.map(|(_, directory)| (directory.clone(), true)).collect()
    }

    /// Measures every pair of hosts in both directions; no host takes part in two measurements at once.
    fn pairs(self, subjects: &[Mutex<Subject<'_>>], round: u64) -> Vec<Pair> {
        let listen = |subject: &Mutex<Subject<'_>>| {
            let mut subject = locked(subject);
            if subject.listening.is_none()
                && let Some(Reply::Listening(listening)) = self.call(&mut subject, &Request::Listen, PATIENCE)
            {
                subject.listening = Some(listening);
            }
        };
        let _: Vec<()> = on_each(subjects, listen, |_, _| ());
        let mut found = vec![];
        for slot in schedule(subjects.len(), self.plan.one_pair_at_a_time) {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let both = |(from, to): &(usize, usize)| {
                [self.pair(&subjects[*from], &subjects[*to]), self.pair(&subjects[*to], &subjects[*from])]
            };
            let lost = |(from, to): &(usize, usize), why: &str| {
                [(from, to), (to, from)].map(|(from, to)| Pair {
                    from: self.plan.hosts[*from].name.clone(),
                    to: self.plan.hosts[*to].name.clone(),
                    lost: Some(why.to_string()),
                    ..Pair::default()
                })
            };
            let measured = on_each(&slot, both, lost);
            found.extend(measured.into_iter().flatten().map(|pair| Pair {
                round,
                t_us: self.clock.now_us(),
                ..pair
            }));
        }
        found
    }

    fn pair(self, from: &Mutex<Subject<'_>>, to: &Mutex<Subject<'_>>) -> Pair {
        let (to_host, listening, to_lost, to_bare) = {
            let to = locked(to);
            (to.host, to.listening.clone(), to.checked.lost.clone(), to.checked.no_program.clone())
        };
        let mut from = locked(from);
        let named = Pair { from: from.host.name.clone(), to: to_host.name.clone(), ..Pair::default() };
        // No tool measures the way to a host that cannot be reached.
        if let Some(lost) = from.checked.lost.clone().or(to_lost) {
            return Pair { lost: Some(lost), ..named };
        }
        let bare = from.checked.no_program.clone().or(to_bare);
        let by_iperf3 = |from| {
            let time = Duration::from_millis(self.plan.disk.time_ms);
            fallback::pair(from, to_host, &self.plan.ways, time, &self.plan.outputs, self.stop)
        };
        if self.plan.prefers_tools
            && let Some(pair) = by_iperf3(from.host)
        {
            return Pair { from: named.from, to: named.to, ..pair };
        }
        if let Some(lost) = bare {
            return match by_iperf3(from.host) {
                Some(pair) => Pair { from: named.from, to: named.to, ..pair },
                None => Pair { lost: Some(lost), ..named },
            };
        }
        let (Some(link), Some(listening)) = (from.link.as_mut(), listening) else {
            return Pair { lost: Some("it does not listen".to_string()), ..named };
        };
        (self.say)(&format!("{} -> {}: measuring the network", named.from, named.to));
        let time_ms = self.plan.disk.time_ms;
        let request = Request::Network { address: to_host.address.clone(), listening, time_ms };
        match link.call(&request, PATIENCE + Duration::from_millis(time_ms) * 2, self.stop) {
            Ok(Reply::Network(pair)) => Pair { from: named.from, to: named.to, ..*pair },
            Ok(_) => Pair { lost: Some("the probe gave another reply".to_string()), ..named },
            Err(error) => Pair { lost: Some(error.to_string()), ..named },
        }
    }
}

fn refused(directory: &str, why: &str) -> Disk {
    Disk { directory: directory.to_string(), refused: Some(why.to_string()), ..Disk::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::check::Verdict;

    fn plan(hosts: Vec<Host>, disks: &[&str]) -> Plan {
        Plan {
            hosts,
            ways: Ways::default(),
            disks: disks.iter().map(ToString::to_string).collect(),
            data: vec![],
            has_nodes: false,
            disk: DiskPlan {
                directory: String::new(),
                is_data: false,
                measured_mounts: vec![],
                size_bytes: 0,
                time_ms: 0,
                block_bytes: 0,
                depths: vec![],
            },
            tests: Tests { network: false, memory: false, processor: false },
            one_pair_at_a_time: false,
            prefers_tools: false,
            repeat: None,
            outputs: PathBuf::new(),
        }
    }

    /// The hosts of which no disk was measured because none was named; `None` in it: no host at all has one.
    fn bare(plan: &Plan) -> Vec<Option<String>> {
        let of = |host: &Host| Checked { host: host.name.clone(), ..Checked::default() };
        let mut checks = Checks { hosts: plan.hosts.iter().map(of).collect(), ..Checks::default() };
        judge(&mut checks, plan);
        let items = checks.items.into_iter().filter(|item| item.check == "disk.probe");
        items.inspect(|item| assert_eq!(item.verdict, Verdict::Unknown)).map(|item| item.host).collect()
    }

    #[test]
    fn a_thread_that_panics_costs_its_host_and_no_other() {
        let hosts = ["a", "b", "c"].map(|name| Host { name: name.into(), ..Host::default() });
        let look = |host: &Host| {
            assert!(host.name != "b", "injected into {}", host.name);
            Checked { host: host.name.clone(), ..Checked::default() }
        };
        let found = on_each(&hosts, look, |host, why| unseen(host, why).checked);
        let mut checks = Checks { hosts: found, ..Checks::default() };
        judge(&mut checks, &plan(hosts.to_vec(), &["/data"]));
        let names: Vec<&str> = checks.hosts.iter().map(|host| host.host.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        // The exit code of check follows the worst item.
        assert_eq!(checks.worst(), Some(Verdict::Fail));
        let failed: Vec<_> = checks.items.iter().filter(|item| item.verdict == Verdict::Fail).collect();
        assert_eq!(failed.len(), 1, "{failed:#?}");
        assert_eq!((failed[0].check.as_str(), failed[0].host.as_deref()), ("host.reached", Some("b")));
        assert!(failed[0].claim.ends_with("panicked: injected into b"), "{}", failed[0].claim);
    }

    #[test]
    fn a_probe_that_was_lost_in_the_first_look_fails_the_check() {
        let lack = |lost: &str| record::check::Lack {
            what: "memory".into(),
            why: "ended".into(),
            lost: lost.into(),
        };
        let host = |lost| Checked { host: "a".into(), missing: vec![lack(lost)], ..Checked::default() };
        let worst = |lost| {
            let mut checks = Checks { hosts: vec![host(lost)], ..Checks::default() };
            judge(&mut checks, &plan(vec![Host { name: "a".into(), ..Host::default() }], &["/data"]));
            checks.worst()
        };
        assert_eq!(worst(host::PROBE_LOST), Some(Verdict::Fail));
        assert_ne!(worst(NOT_MEASURED), Some(Verdict::Fail));
    }

    #[test]
    fn a_host_without_a_directory_is_not_passed_over() {
        let host = |name: &str, disks: &[&str]| Host {
            name: name.into(),
            disks: disks.iter().map(ToString::to_string).collect(),
            ..Host::default()
        };
        assert_eq!(bare(&plan(vec![host("a", &[]), host("b", &[])], &[])), [None]);
        assert_eq!(bare(&plan(vec![host("a", &["/x"]), host("b", &[])], &[])), [Some("b".to_string())]);
        assert_eq!(bare(&plan(vec![host("a", &["/x"]), host("b", &[])], &["/data"])), []);
        let data = vec![("a".to_string(), "/pg".to_string())];
        let of_node = Plan { data, ..plan(vec![host("a", &[]), host("b", &[])], &[]) };
        assert_eq!(bare(&of_node), [Some("b".to_string())]);
    }
}
