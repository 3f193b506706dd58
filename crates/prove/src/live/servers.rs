//! The state of the servers during a proof: which one takes writes, since when it runs, and which standbys its commits wait for.
//!
//! The promise of a setting depends on all of this. A standby outside of the synchronous set may be stale, and may lack acknowledged writes when it is
//! promoted; a cluster manager changes that set, and promotes, without notice. So the state is queried repeatedly during the load.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use connect::cluster_file::Role;
use connect::hot::TextRow;
use engines::profile::NodeLinks;
use record::clock::monotonic_ns;

use super::{Lasting, Watch};
use crate::client::{Client, text};
use crate::fault::Site;

/// How often the primary is queried.
const BEAT: Duration = Duration::from_millis(100);
/// How long it may be silent.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most different states that are kept: a set that flaps more often is judged by the first ones, and by the flapping.
const PERIODS_MAX: usize = 10_000;

/// Distinguishes a server before and after a restart. After a crash in which the first process goes on, the checkpointer is another one; after a promotion the
/// timeline is.
const IDENTITY: &str = "select pg_catalog.pg_postmaster_start_time()::text, \
     (select min(backend_start)::text from pg_catalog.pg_stat_activity where backend_type = 'checkpointer'), \
     case when pg_catalog.pg_is_in_recovery() then null \
     else pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8) end";
/// What commits wait for.
const SETTINGS: &str = "select pg_catalog.current_setting('synchronous_standby_names'), pg_catalog.current_setting('synchronous_commit')";
/// The state of the standbys. Without `pg_read_all_stats` it is null.
const STANDBYS: &str =
    "select application_name, coalesce(sync_state, '') from pg_catalog.pg_stat_replication order by 1, 2";
/// Between two attempts to learn a standby's name.
const NAMES_PAUSE: Duration = Duration::from_secs(1);
/// The name under which a standby follows its primary, also after its promotion; null if it is hidden, or if the server has no `primary_conninfo`: a failover
/// manager removes it from a primary, and gives all members one `cluster_name`.
const STANDBY_NAME: &str = "select case when pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'usage') \
     and pg_catalog.pg_has_role(current_user, 'pg_read_all_settings', 'usage') then coalesce(\
     (select pg_catalog.substring(conninfo, '(?:^|\\s)application_name=''?([^''\\s]+)') from pg_catalog.pg_stat_wal_receiver), \
     (select pg_catalog.substring(setting, '(?:^|\\s)application_name\\s*=\\s*''?([^''\\s]+)') from pg_catalog.pg_settings where name = 'primary_conninfo'), \
     (select coalesce(nullif(own.setting, ''), 'walreceiver') from pg_catalog.pg_settings own, pg_catalog.pg_settings up \
     where own.name = 'cluster_name' and up.name = 'primary_conninfo' and up.setting <> '')) end";

/// One incarnation of a server: from its start, a crash or a promotion to the next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Incarnation {
    /// When its first process was started.
    start: String,
    /// The start of its checkpointer; empty: not started yet, or hidden.
    checkpointer: String,
    /// The timeline that it writes.
    pub timeline: u32,
    /// When it was first met.
    pub met_ns: u64,
}

/// A period in which commits waited for the same standbys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Period {
    /// The index in [`Observed::incarnations`].
    pub incarnation: usize,
    /// `synchronous_standby_names`.
    pub names: String,
    /// `synchronous_commit`, unless a session has its own.
    pub commit: String,
    /// Standbys by name, with `sync_state`.
    pub standbys: Vec<(String, String)>,
}

/// What was seen.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Observed {
    /// Servers that took writes, in the order of their discovery.
    pub incarnations: Vec<Incarnation>,
    /// What they waited for.
    pub periods: Vec<Period>,
    /// The names under which the standbys of the site follow, by node; `None`: unknown.
    pub names: Vec<Option<String>>,
    /// The name of the one that takes writes at the end.
    pub taker: Option<String>,
    /// The node that took writes at the beginning.
    pub first_primary: usize,
    /// The server that takes writes at the end, by its index in `incarnations`; `None`: unknown.
    pub last: Option<usize>,
    /// The node that does at the end is the same, one timeline later: it was restarted, and promoted itself. It has its own data.
    pub has_retaken: bool,
    /// The other nodes that take writes, as they were before the load: rows that a session writes through one node may be on another one.
    pub others: Others,
    /// How many of these have another identity at the end.
    pub others_restarted: usize,
}

/// The start of each node's server and of its checkpointer; `None`: another kind of node, or unknown.
pub type Others = Vec<Option<(String, String)>>;

/// Whether every commit waited for one standby.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Waited {
    /// All the time.
    Yes,
    /// Not always: why.
    No(String),
    /// It could not be seen: why.
    Unknown(&'static str),
}

/// A view's column is null without the right to see it.
const HIDDEN: &str = "pg_stat_replication needs pg_read_all_stats";
/// The standby answered nothing as long as it was one, or hides it.
const NAMELESS: &str = "the name under which it followed could not be read";
/// No commit waits.
const NO_STANDBYS: &str = "synchronous_standby_names was empty";
/// No session of ours saw the primary.
const UNSEEN: &str = "the primary's settings could not be read";

impl Observed {
    /// Another server took over.
    pub fn has_failed_over(&self) -> bool {
        self.timelines() > 0 && !self.has_retaken
    }

    /// How many timelines later the last server wrote than the first.
    fn timelines(&self) -> u32 {
        let all = || self.incarnations.iter().map(|incarnation| incarnation.timeline);
        let first = all().next().unwrap_or_default();
        all().max().unwrap_or_default().saturating_sub(first)
    }

    /// A server of an older timeline takes writes at the end: it was stopped while another one was promoted, and took its role back when it went on. What
    /// the other one had acknowledged is discarded.
    pub(crate) fn has_returned(&self) -> bool {
        let last = self.last.and_then(|at| self.incarnations.get(at));
        last.is_some_and(|last| self.incarnations.iter().any(|other| other.timeline > last.timeline))
    }

    /// All incarnations of the newest timeline are one server, the last one.
    fn is_alone_on_newest(&self) -> bool {
        let newest = self.incarnations.iter().map(|incarnation| incarnation.timeline).max();
        let last = self.last.and_then(|at| self.incarnations.get(at)).or(self.incarnations.last());
        let Some(last) = last else { return false };
        let of_newest = |other: &&Incarnation| Some(other.timeline) == newest;
        self.incarnations.iter().filter(of_newest).all(|other| other.start == last.start)
    }

    /// How often a server was restarted, or crashed, and went on with its own data.
    pub fn restarts(&self) -> usize {
        let same = |pair: &&[Incarnation]| self.has_retaken || pair[0].timeline == pair[1].timeline;
        self.incarnations.windows(2).filter(same).count() + self.others_restarted
    }

    /// Looks at the other nodes again, after the load.
    pub(super) fn meet_others(&mut self, site: &Site) {
        let now = others(site);
        let is_new =
            |(before, now): &(&Option<_>, &Option<_>)| before.is_some() && now.is_some() && before != now;
        self.others_restarted = self.others.iter().zip(&now).filter(is_new).count();
    }

    /// Whether the commits waited for this standby until its primary was replaced, if it was.
    pub(crate) fn waited_for(&self, name: Option<&str>) -> Waited {
        let last = self.incarnations.iter().map(|incarnation| incarnation.timeline).max();
        let before = |period: &&Period| {
            !self.has_failed_over()
                || self.incarnations.get(period.incarnation).map(|incarnation| incarnation.timeline) < last
        };
        waited(name, self.periods.iter().filter(before))
    }

    /// Whether they always waited for it, on every primary.
    pub(crate) fn always_waited_for(&self, name: Option<&str>) -> Waited {
        waited(name, self.periods.iter())
    }

    /// Adds the server that takes writes at the end, to which perhaps no session has connected; `primary` is its node, if that is known.
    pub(super) fn meet_last(&mut self, client: &mut Client, primary: Option<usize>) {
        let registry = Registry(Mutex::new(std::mem::take(&mut self.incarnations)));
        self.last = registry.meet(client);
        self.incarnations = registry.into_incarnations();
        self.has_retaken =
            self.timelines() == 1 && primary == Some(self.first_primary) && self.is_alone_on_newest();
        if self.has_failed_over() {
            // The name under which it followed before: a failover manager removes that setting from a primary.
            let before = primary.and_then(|at| self.names.get(at)?.clone());
            self.taker = before.or_else(|| standby_name(client));
        }
    }
}

impl Period {
    /// Whether a commit of this period waits for the standby of this name, whatever happens to the others.
    pub(crate) fn waits_for(&self, name: &str) -> Waited {
        let Some(set) = Set::parse(&self.names) else {
            return Waited::No(NO_STANDBYS.to_owned());
        };
        let is_it = |other: &str| other.eq_ignore_ascii_case(name);
        // Every standby in the list has to confirm: one that is down blocks commits.
        if set.count >= set.members.len() && !set.has_wildcard() {
            return match set.members.iter().any(|member| is_it(member)) {
                true => Waited::Yes,
                false => Waited::No(format!("{name} is not in synchronous_standby_names ({})", self.names)),
            };
        }
        let states: Vec<&str> =
            self.standbys.iter().filter(|(other, _)| is_it(other)).map(|(_, state)| state.as_str()).collect();
        match states.as_slice() {
            [] => Waited::No(format!("{name} was down for a time, and others replaced it ({})", self.names)),
            states if states.contains(&"") => Waited::Unknown(HIDDEN),
            states if states.iter().all(|state| *state == "sync") => Waited::Yes,
            states => {
                let state = states.iter().find(|state| **state != "sync").unwrap_or(&"");
                Waited::No(match *state {
                    "quorum" => {
                        format!("another standby may have confirmed in place of {name} ({})", self.names)
                    }
                    state => format!("{name} was {state}, so commits did not wait for it ({})", self.names),
                })
            }
        }
    }
}

fn waited<'a>(name: Option<&str>, mut periods: impl Iterator<Item = &'a Period>) -> Waited {
    let Some(name) = name else {
        // Whatever its name is, commits that wait for no standby did not wait for it.
        return match periods.any(|period| Set::parse(&period.names).is_none()) {
            true => Waited::No(NO_STANDBYS.to_owned()),
            false => Waited::Unknown(NAMELESS),
        };
    };
    let mut all = Waited::Unknown(UNSEEN);
    for period in periods {
        match period.waits_for(name) {
            Waited::Yes => all = Waited::Yes,
            other => return other,
        }
    }
    all
}

/// `synchronous_standby_names`, taken apart.
#[derive(PartialEq, Eq, Debug)]
struct Set {
    count: usize,
    members: Vec<String>,
}

impl Set {
    fn parse(text: &str) -> Option<Set> {
        let text = text.trim();
        let (head, list) = match text.split_once('(') {
            Some((head, list)) => (head.trim(), list.trim_end().trim_end_matches(')')),
            None => ("1", text),
        };
        let number = head.split_whitespace().next_back().and_then(|word| word.parse().ok());
        let members: Vec<String> = list
            .split(',')
            .map(|member| member.trim().trim_matches('"').to_owned())
            .filter(|member| !member.is_empty())
            .collect();
        (!members.is_empty()).then_some(Set { count: number.unwrap_or(1), members })
    }

    fn has_wildcard(&self) -> bool {
        self.members.iter().any(|member| member == "*")
    }
}

/// The servers that sessions have connected to; a number for each incarnation.
#[derive(Debug, Default)]
pub(super) struct Registry(Mutex<Vec<Incarnation>>);

impl Registry {
    /// Which server the session is connected to, and its start; `None`: unknown.
    pub(super) fn meet(&self, client: &mut Client) -> Option<usize> {
        let reply = client.request(IDENTITY).ok()?;
        self.enter(reply.rows().first()?)
    }

    /// A row of [`IDENTITY`].
    fn enter(&self, row: &TextRow) -> Option<usize> {
        let column = |at: usize| row.get(at).and_then(text);
        let (start, checkpointer) = (column(0)?, column(1).unwrap_or_default());
        let timeline = u32::from_str_radix(&column(2)?, 16).ok()?;
        let mut incarnations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = incarnations.iter_mut().position(|incarnation| {
            let is_same = incarnation.checkpointer == checkpointer
                || incarnation.checkpointer.is_empty()
                || checkpointer.is_empty();
            incarnation.start == start && incarnation.timeline == timeline && is_same
        });
        Some(match known {
            Some(known) => {
                if incarnations[known].checkpointer.is_empty() {
                    incarnations[known].checkpointer = checkpointer;
                }
                known
            }
            None => {
                incarnations.push(Incarnation { start, checkpointer, timeline, met_ns: monotonic_ns() });
                incarnations.len() - 1
            }
        })
    }

    pub(super) fn into_incarnations(self) -> Vec<Incarnation> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The nodes beside the entry that take writes themselves.
pub(super) fn others(site: &Site) -> Others {
    let entry = site.primary();
    let start = |(index, node): (usize, &crate::fault::Node)| {
        if index == entry || node.role == Role::Standby {
            return None;
        }
        let reply = Client::connect(&node.spec, PATIENCE).ok()?.request(IDENTITY).ok()?;
        let column = |at: usize| reply.rows().first()?.get(at).and_then(text);
        Some((column(0)?, column(1).unwrap_or_default()))
    };
    site.nodes.iter().enumerate().map(start).collect()
}

/// The name under which a node follows, if it does.
fn standby_name(client: &mut Client) -> Option<String> {
    let reply = client.request(STANDBY_NAME).ok()?;
    reply.value()
}

/// Adds the names of standbys that did not answer before, such as one that a failover manager is still making of an old primary. Once a second until the
/// end, as any of them may be promoted.
pub(super) fn learn_names(
    site: &Site,
    mut known: Vec<Option<String>>,
    watch: &Watch<'_>,
) -> Vec<Option<String>> {
    let mut next = Instant::now() + NAMES_PAUSE;
    while watch.goes_on() && known.iter().filter(|name| name.is_none()).count() > 1 {
        std::thread::sleep(BEAT);
        if Instant::now() >= next {
            for (known, found) in known.iter_mut().zip(names(site)) {
                *known = known.take().or(found);
            }
            next = Instant::now() + NAMES_PAUSE;
        }
    }
    known
}

/// The names of all standbys of a site, by node.
pub(super) fn names(site: &Site) -> Vec<Option<String>> {
    let has_standbys = site.nodes.iter().any(|node| node.role == Role::Standby);
    // Roles change: the primary of the cluster file may be a standby by now.
    let name = |spec| match site.engine.links {
        NodeLinks::Streaming if has_standbys => {
            let mut client = Client::connect(spec, PATIENCE).ok()?;
            let follows = client.request("select pg_catalog.pg_is_in_recovery()::int").ok()?;
            if follows.number() == Some(1) { standby_name(&mut client) } else { None }
        }
        _ => None,
    };
    site.nodes.iter().map(|node| name(&node.spec)).collect()
}

/// Polls until the end.
pub(super) fn observe(site: &Site, registry: &Registry, watch: &Watch<'_>) -> Vec<Period> {
    let mut periods: Vec<Period> = Vec::new();
    if !site.engine.has_wal {
        return periods;
    }
    let mut session = Lasting::new(site.entry(), PATIENCE);
    let question = format!("{IDENTITY}; {SETTINGS}; {STANDBYS}");
    while watch.goes_on() {
        if let Some(client) = session.get() {
            match client.request(&question).ok().filter(|reply| reply.error.is_none()) {
                Some(reply) => {
                    if let Some(period) = period(&reply.done, registry)
                        && periods.last() != Some(&period)
                        && periods.len() < PERIODS_MAX
                    {
                        periods.push(period);
                    }
                }
                None => session.lose(),
            }
        }
        std::thread::sleep(BEAT);
    }
    periods
}

fn period(done: &[crate::client::Done], registry: &Registry) -> Option<Period> {
    let [identity, settings, standbys] = done else { return None };
    let (identity, settings) = (identity.rows.first()?, settings.rows.first()?);
    let column = |row: &TextRow, at: usize| row.get(at).and_then(text).unwrap_or_default();
    Some(Period {
        incarnation: registry.enter(identity)?,
        names: column(settings, 0),
        commit: column(settings, 1),
        standbys: standbys.rows.iter().map(|row| (column(row, 0), column(row, 1))).collect(),
    })
}

#[cfg(test)]
impl Observed {
    /// Servers of these timelines, of which the one at this index takes writes at the end.
    pub(crate) fn of_timelines(timelines: &[u32], last: usize) -> Observed {
        let incarnation = |timeline: &u32| Incarnation {
            start: timeline.to_string(),
            checkpointer: String::new(),
            timeline: *timeline,
            met_ns: 0,
        };
        let incarnations = timelines.iter().map(incarnation).collect();
        Observed { incarnations, last: Some(last), ..Observed::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn period(incarnation: usize, names: &str, standbys: &[(&str, &str)]) -> Period {
        Period {
            incarnation,
            names: names.to_owned(),
            commit: "on".to_owned(),
            standbys: standbys
                .iter()
                .map(|(name, state)| ((*name).to_owned(), (*state).to_owned()))
                .collect(),
        }
    }

    #[test]
    fn only_a_standby_that_every_commit_waits_for_is_waited_for() {
        let both = [("s1", "sync"), ("s2", "potential")];
        let quorum = [("s1", "quorum"), ("s2", "quorum")];
        for (names, standbys, name, waits) in [
            ("", &[("s1", "async")][..], "s1", false),
            ("FIRST 1 (s1)", &[("s1", "sync")], "s1", true),
            ("s1", &[("s1", "sync")], "s1", true),
            ("\"S1\"", &[("s1", "sync")], "s1", true),
            // It is down: commits wait for it nevertheless.
            ("FIRST 1 (s1)", &[], "s1", true),
            ("FIRST 1 (s1)", &[("s1", "sync"), ("s2", "async")], "s2", false),
            ("FIRST 1 (s1, s2)", &both, "s1", true),
            ("FIRST 1 (s1, s2)", &both, "s2", false),
            ("s1, s2", &both, "s2", false),
            ("FIRST 1 (s1, s2)", &[("s2", "sync")], "s1", false),
            ("FIRST 2 (s1, s2)", &[("s1", "sync"), ("s2", "sync")], "s2", true),
            ("2 (s1, s2, s3)", &[("s1", "sync"), ("s2", "sync"), ("s3", "potential")], "s3", false),
            ("ANY 1 (s1, s2)", &quorum, "s1", false),
            ("ANY 2 (s1, s2)", &quorum, "s1", true),
            ("ANY 1 (*)", &[("s1", "quorum")], "s1", false),
            ("*", &[("s1", "sync"), ("s2", "potential")], "s1", true),
            ("*", &[("s1", "sync"), ("s2", "potential")], "s2", false),
            // Two of one name.
            ("*", &[("w", "sync"), ("w", "potential")], "w", false),
        ] {
            let found = period(0, names, standbys).waits_for(name);
            assert_eq!(found == Waited::Yes, waits, "{names} {standbys:?} {name}: {found:?}");
            assert!(!matches!(found, Waited::Unknown(_)));
        }
        assert_eq!(period(0, "FIRST 1 (s1, s2)", &[("s1", "")]).waits_for("s1"), Waited::Unknown(HIDDEN));
    }

    #[test]
    fn one_moment_without_it_is_enough_and_what_came_after_a_failover_does_not_count() {
        let incarnation = |timeline: u32| Incarnation {
            start: timeline.to_string(),
            checkpointer: String::new(),
            timeline,
            met_ns: 0,
        };
        let sync = || period(0, "FIRST 1 (s1)", &[("s1", "sync")]);
        let mut seen =
            Observed { incarnations: vec![incarnation(1)], periods: vec![sync()], ..Observed::default() };
        assert_eq!(seen.waited_for(Some("s1")), Waited::Yes);
        assert_eq!(seen.waited_for(None), Waited::Unknown(NAMELESS));
        seen.periods.extend([period(0, "", &[]), sync()]);
        for name in [Some("s1"), None] {
            assert!(matches!(seen.waited_for(name), Waited::No(why) if why.contains("empty")));
        }
        // The new primary waits for no standby, which proves nothing about the commits it has taken over.
        seen.incarnations.push(incarnation(2));
        seen.periods = vec![sync(), period(1, "", &[])];
        assert!(seen.has_failed_over() && seen.restarts() == 0);
        assert_eq!(seen.waited_for(Some("s1")), Waited::Yes);
        assert_eq!(Observed::default().waited_for(Some("s1")), Waited::Unknown(UNSEEN));
        seen.incarnations = vec![incarnation(1), Incarnation { start: "again".to_owned(), ..incarnation(1) }];
        assert!(!seen.has_failed_over() && seen.restarts() == 1);
        // A failover manager that restarts the old primary promotes it as well.
        seen.incarnations = vec![incarnation(1), incarnation(2)];
        seen.has_retaken = true;
        assert!(!seen.has_failed_over() && seen.restarts() == 1);
        // Or it was only stopped, and takes its role back from the server that was promoted in its place: what that one acknowledged is discarded.
        let mut seen = Observed::of_timelines(&[1, 2], 0);
        assert!(seen.has_failed_over() && seen.has_returned() && !seen.is_alone_on_newest());
        seen.last = Some(1);
        assert!(!seen.has_returned() && seen.is_alone_on_newest());
        // Both wrote the same newer timeline: the stopped one was restarted before it saw that of the other.
        seen.incarnations.push(Incarnation { start: "again".to_owned(), ..incarnation(2) });
        seen.last = Some(2);
        assert!(!seen.is_alone_on_newest());
        // Another node with rows that was killed loses what it had acknowledged, too.
        let seen =
            Observed { incarnations: vec![incarnation(1)], others_restarted: 1, ..Observed::default() };
        assert!(!seen.has_failed_over() && seen.restarts() == 1);
    }
}
