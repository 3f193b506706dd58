//! "Did the run reach the hardware?": what the disks and the network of a run did, beside what a check measured on them.
//!
//! The run directory holds both: its own samples of the hosts, and the `check.json` of a check of the same hosts.

use crate::directory::{Directory, Line};
use crate::html::markup::{Cell, Row, escape, table};
use crate::layout::{columns, push};
use record::check::{Checks, Disk, Pattern};
use record::number;
use record::statistics::quantile;
use record::watched::Sampled;
use std::collections::BTreeMap;

/// The figure of a run is this quantile of its seconds: one second of a burst is not what it reached.
const QUANTILE: f64 = 0.95;
/// Seconds that make a figure.
const SECONDS_MIN: usize = 3;

/// One resource: what the run used of it, and what it gave.
#[derive(Clone, PartialEq, Debug)]
struct Reached {
    resource: String,
    used: f64,
    given: f64,
    is_bytes: bool,
}

impl Reached {
    fn share(&self) -> f64 {
        self.used / self.given.max(f64::MIN_POSITIVE)
    }

    fn text(&self, value: f64) -> String {
        if self.is_bytes {
            format!("{}/s", number::bytes(value))
        } else {
            format!("{}/s", number::short(value))
        }
    }
}

/// The best figure of a directory for a pattern, over all depths and rounds.
fn best(checks: &Checks, disk: &Disk, pattern: Pattern, of: fn(&record::check::DiskTest) -> f64) -> f64 {
    let same = checks.disks.iter().filter(|other| (&other.host, &other.device) == (&disk.host, &disk.device));
    same.flat_map(|disk| &disk.tests).filter(|test| test.pattern == pattern).map(of).fold(0.0, f64::max)
}

/// Sums of the devices of one disk in each second, then the quantile of the seconds.
fn usual(lines: &[Line], of: impl Fn(&Line) -> Option<f64>) -> Option<f64> {
    let mut seconds: BTreeMap<u64, f64> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.interval_us > 0) {
        if let Some(value) = of(line) {
            *seconds.entry(line.t_us / 1_000_000).or_default() += value / line.seconds();
        }
    }
    if seconds.len() < SECONDS_MIN { None } else { quantile(seconds.into_values(), QUANTILE) }
}

fn reached(directory: &Directory, checks: &Checks) -> Vec<Reached> {
    let lines = directory.watched.all();
    let mut found: Vec<Reached> = vec![];
    for disk in checks.disks.iter().filter(|disk| !disk.tests.is_empty()) {
        let on_disk = |line: &Line, of: fn(&record::watched::Disk) -> Option<u64>| match &line.what {
            Sampled::Disk(one) if one.host == disk.host && disk.members.contains(&one.device) => {
                of(one).map(|value| value as f64)
            }
            _ => None,
        };
        let mut push = |what: &str, of: fn(&record::watched::Disk) -> Option<u64>, given: f64, is_bytes| {
            let resource = format!("{} {} {what}", disk.host, disk.device);
            if let Some(used) = usual(lines, |line| on_disk(line, of))
                && given > 0.0
                && found.iter().all(|one| one.resource != resource)
            {
                found.push(Reached { resource, used, given, is_bytes });
            }
        };
        let bytes = |pattern| best(checks, disk, pattern, |test| test.bytes_per_s);
        let operations = |pattern| best(checks, disk, pattern, |test| test.per_s);
        push("write", |one| one.write_bytes, bytes(Pattern::SequentialWrite), true);
        push("read", |one| one.read_bytes, bytes(Pattern::SequentialRead), true);
        push("writes", |one| one.writes, operations(Pattern::RandomWrite), false);
        push("reads", |one| one.reads, operations(Pattern::RandomRead), false);
    }
    for host in &checks.hosts {
        let of_host = |line: &Line, of: fn(&record::watched::Net) -> Option<u64>| match &line.what {
            Sampled::Net(one) if one.host == host.host && one.interface != "lo" => {
                of(one).map(|value| value as f64)
            }
            _ => None,
        };
        let given = |is_from: bool| {
            let ends =
                |pair: &&record::check::Pair| *(if is_from { &pair.from } else { &pair.to }) == host.host;
            checks.pairs.iter().filter(ends).map(|pair| pair.bytes_per_s).fold(0.0, f64::max)
        };
        for (what, of, given) in [
            ("network sent", (|one| one.tx_bytes) as fn(&record::watched::Net) -> Option<u64>, given(true)),
            ("network received", |one| one.rx_bytes, given(false)),
        ] {
            if let Some(used) = usual(lines, |line| of_host(line, of)).filter(|_| given > 0.0) {
                found.push(Reached {
                    resource: format!("{} {what}", host.host),
                    used,
                    given,
                    is_bytes: true,
                });
            }
        }
    }
    // The resource that was used most comes first: it may be the limit.
    found.sort_by(|left, right| right.share().total_cmp(&left.share()));
    found
}

/// The section of the page; nothing without samples of a checked host.
pub(crate) fn section(out: &mut String, directory: &Directory, checks: &Checks) {
    let found = reached(directory, checks);
    out.push_str(
        "<section class=\"step\" id=\"check=hardware\" tabindex=\"-1\"><h2>Did it reach the hardware?</h2>\n",
    );
    if found.is_empty() {
        let hosts: Vec<&str> = checks.hosts.iter().map(|host| host.host.as_str()).collect();
        out.push_str(&format!(
            "<p class=\"under\">Cannot tell: the run has no samples of the disks and networks of the checked hosts ({}).</p>\n</section>\n",
            escape(&hosts.join(", "))
        ));
        return;
    }
    let row = |one: &Reached| {
        let width = (one.share() * 100.0).clamp(0.0, 100.0);
        let bar = format!("<span class=\"reach\"><i style=\"width:{width:.1}%\"></i></span>");
        Row::new(vec![
            Cell::words(&one.resource),
            Cell::number(one.text(one.used)),
            Cell::number(one.text(one.given)),
            Cell::number(number::percent(one.share())),
            Cell::html(bar).class("text"),
        ])
    };
    let rows: Vec<Row> = found.iter().map(row).collect();
    let head = [("resource", true), ("this run", false), ("the check", false), ("share", false), ("", true)];
    table(out, "Use of disks and network beside what the check measured on them", &head, &rows);
    out.push_str(
        "<p class=\"under\">This run: the 95th percentile of its seconds. The check: the best of its tests, with large blocks for bytes and small ones \
         for operations. Above 100 % the page cache or larger requests helped.",
    );
    if let Some(name) = &directory.checked_in {
        out.push_str(&format!(" The check is {}, beside this run.", escape(name)));
    }
    out.push_str("</p>\n</section>\n");
}

/// The same on the terminal.
pub(crate) fn print(out: &mut String, directory: &Directory, checks: &Checks) {
    let found = reached(directory, checks);
    if found.is_empty() {
        return;
    }
    let name = directory.checked_in.as_deref().map(record::escape::ascii);
    let from = name.map(|name| format!(" of {name}")).unwrap_or_default();
    push(out, &format!("\nuse of the hardware (p95 of the seconds; what the check{from} gave; share)"));
    let row = |one: &Reached| {
        vec![one.resource.clone(), one.text(one.used), one.text(one.given), number::percent(one.share())]
    };
    let rows: Vec<Vec<String>> = found.iter().map(row).collect();
    columns(out, &rows, |column| column == 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Watched;
    use record::check::{DiskTest, Host, Pair};

    fn directory(lines: Vec<Line>) -> Directory {
        let path = std::env::temp_dir().join(format!("pgfathom-reached-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        std::fs::write(path.join("run.json"), "{\"schema_version\":1}").expect("a run");
        let mut directory = Directory::open(&path).expect("a run directory");
        directory.watched = Watched::of(lines);
        std::fs::remove_dir_all(&path).expect("ours");
        directory
    }

    #[test]
    fn the_newest_check_of_the_same_hosts_beside_a_run_is_found() {
        let parent = std::env::temp_dir().join(format!("pgfathom-beside-{}", std::process::id()));
        let write = |name: &str, host: &str| {
            let dir = parent.join(name);
            std::fs::create_dir_all(&dir).expect("a folder");
            let hosts = vec![Host { host: host.into(), ..Host::default() }];
            Checks { hosts, ..Checks::default() }.write(&dir).expect("writes");
        };
        write("1-check", "db1");
        write("2-check", "elsewhere");
        let run = parent.join("run");
        std::fs::create_dir_all(&run).expect("a folder");
        std::fs::write(run.join("run.json"), "{\"schema_version\":1,\"verb\":\"run\"}").expect("a run");
        let found = || Directory::open(run.as_path()).expect("a run directory").checked_in;
        assert_eq!(found(), None, "no host is sampled");
        let sample = r#"{"t_us":1000000,"interval_us":1000000,"source":"disk","host":"db1","device":"sda"}"#;
        std::fs::write(run.join("samples.ndjson"), format!("{sample}\n")).expect("samples");
        assert_eq!(found().as_deref(), Some("1-check"));
        std::fs::write(parent.join("1-check/check.json"), "not json").expect("damaged");
        assert_eq!(found(), None);
        write("run", "db1");
        assert_eq!(found(), None, "its own comes first");
        std::fs::remove_dir_all(&parent).expect("ours");
    }

    #[test]
    fn the_disk_that_is_the_limit_stands_first() {
        let second = |t: u64| {
            let disk = |device: &str, write_bytes| Line {
                t_us: t * 1_000_000,
                interval_us: 1_000_000,
                what: Sampled::Disk(record::watched::Disk {
                    host: "db1".into(),
                    device: device.into(),
                    write_bytes: Some(write_bytes),
                    ..Default::default()
                }),
            };
            let net = Line {
                t_us: t * 1_000_000,
                interval_us: 1_000_000,
                what: Sampled::Net(record::watched::Net {
                    host: "db1".into(),
                    interface: "eth0".into(),
                    tx_bytes: Some(100_000_000),
                    ..Default::default()
                }),
            };
            // The second disk is not of the checked array.
            [disk("nvme0n1", 300_000_000), disk("nvme1n1", 300_000_000), disk("sda", 900_000_000), net]
        };
        let directory = directory((1..6).flat_map(second).collect());
        let write = DiskTest { pattern: Pattern::SequentialWrite, bytes_per_s: 8e8, ..DiskTest::default() };
        let disk = Disk {
            host: "db1".into(),
            device: "md0".into(),
            members: vec!["nvme0n1".into(), "nvme1n1".into()],
            tests: vec![write],
            ..Disk::default()
        };
        let pair = Pair { from: "db1".into(), to: "db2".into(), bytes_per_s: 1e9, ..Pair::default() };
        let hosts = vec![Host { host: "db1".into(), ..Host::default() }];
        let checks = Checks { disks: vec![disk], pairs: vec![pair], hosts, ..Checks::default() };
        let found = reached(&directory, &checks);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0].resource, "db1 md0 write");
        assert!((found[0].share() - 0.75).abs() < 1e-9 && (found[1].share() - 0.1).abs() < 1e-9, "{found:?}");
        let mut out = String::new();
        section(&mut out, &directory, &checks);
        assert!(out.contains("width:75.0%"), "{out}");
        section(&mut out, &directory, &Checks::default());
        assert!(out.contains("Cannot tell"), "{out}");
    }
}
