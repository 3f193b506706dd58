//! Acceptance: what hosts must give, as a file of requirements. Each is judged against every figure of its check.

use crate::names;
use crate::probe::disk::{BLOCK_BYTES, DEPTH_MAX};
use record::check::{Area, Checks, Disk, Figure, Host, Item, Limit, Unit, Verdict};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Checks that compare hosts, and how many they need.
const OF_CONTRAST: &str = "contrast.";
const CONTRAST_MIN: usize = 2;
/// Tests of disks, and what every host has.
const OF_DISK: &str = "disk.";
const OF_EACH_HOST: [&str; 4] = ["cpu.thread", "memory.read", "memory.copy", "memory.latency"];

/// An acceptance file.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acceptance {
    /// What it is, for people.
    #[serde(default)]
    pub title: String,
    /// How disks are measured, in place of the flags.
    #[serde(default)]
    pub probe: Probe,
    /// The requirements, in the order of the file.
    #[serde(default, rename = "require")]
    pub requirements: Vec<Requirement>,
}

/// How disks are measured: the figures of a contract are of a block size and a depth.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Bytes of one random operation.
    pub block_bytes: Option<u64>,
    /// Operations in flight.
    pub depths: Option<Vec<u64>>,
}

/// One requirement.
#[derive(Clone, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// The check whose figure is judged: `disk.sequential_write.q1`, `network.bandwidth`, `contrast.fact` ...
    pub check: String,
    /// Only this directory, device or pair; all by default.
    pub subject: Option<String>,
    /// Only this host; all by default.
    pub host: Option<String>,
    /// The figure must not be below it: a number with a unit, `"800 MB/s"`.
    pub at_least: Option<Quantity>,
    /// The figure must not be above it.
    pub at_most: Option<Quantity>,
    /// Not below it without a warning.
    pub warn_below: Option<Quantity>,
    /// Not above it without a warning.
    pub warn_above: Option<Quantity>,
    /// For a check without figures: there must be no item of it that is a warning or a failure.
    #[serde(default)]
    pub none: bool,
    /// Where the requirement is from.
    #[serde(default)]
    pub why: String,
}

/// A number with its unit.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Quantity {
    value: f64,
    unit: Unit,
}

/// Units as people write them, in the units of figures. Bits count one eighth of a byte.
const UNITS: [(&str, f64, Unit); 27] = [
    ("", 1.0, Unit::Count),
    ("%", 0.01, Unit::Share),
    ("B", 1.0, Unit::Bytes),
    ("kB", 1e3, Unit::Bytes),
    ("MB", 1e6, Unit::Bytes),
    ("GB", 1e9, Unit::Bytes),
    ("TB", 1e12, Unit::Bytes),
    ("GiB", 1_073_741_824.0, Unit::Bytes),
    ("B/s", 1.0, Unit::BytesPerSecond),
    ("kB/s", 1e3, Unit::BytesPerSecond),
    ("MB/s", 1e6, Unit::BytesPerSecond),
    ("GB/s", 1e9, Unit::BytesPerSecond),
    ("MiB/s", 1_048_576.0, Unit::BytesPerSecond),
    ("kbit/s", 125.0, Unit::BytesPerSecond),
    ("Mbit/s", 125e3, Unit::BytesPerSecond),
    ("Gbit/s", 125e6, Unit::BytesPerSecond),
    ("/s", 1.0, Unit::PerSecond),
    ("IOPS", 1.0, Unit::PerSecond),
    ("k/s", 1e3, Unit::PerSecond),
    ("M/s", 1e6, Unit::PerSecond),
    ("ns", 1.0, Unit::Nanoseconds),
    ("us", 1.0, Unit::Microseconds),
    ("ms", 1e3, Unit::Microseconds),
    ("s", 1e6, Unit::Microseconds),
    ("MHz", 1.0, Unit::Megahertz),
    ("GHz", 1e3, Unit::Megahertz),
    ("transactions", 1.0, Unit::Transactions),
];

/// What a unit counts, with an example.
fn kind(unit: Unit) -> &'static str {
    match unit {
        Unit::Count => "a number (\"4\")",
        Unit::Share => "a share (\"5 %\")",
        Unit::Bytes => "a size (\"10 GB\")",
        Unit::BytesPerSecond => "a rate in bytes (\"800 MB/s\", \"10 Gbit/s\")",
        Unit::PerSecond => "a rate (\"5,000 IOPS\", \"5 k/s\")",
        Unit::Microseconds => "a time (\"500 us\", \"2 ms\")",
        Unit::Nanoseconds => "a time in nanoseconds (\"120 ns\")",
        Unit::Megahertz => "a frequency (\"2 GHz\")",
        Unit::Transactions => "a number of transactions (\"1000 transactions\")",
    }
}

impl Quantity {
    fn text(self) -> String {
        Figure { value: self.value, unit: self.unit }.text()
    }
}

impl TryFrom<String> for Quantity {
    type Error = String;

    fn try_from(text: String) -> Result<Quantity, String> {
        let text = text.trim();
        let end =
            text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | ',' | '_')).unwrap_or(text.len());
        let (number, unit) = (text[..end].replace([',', '_'], ""), text[end..].trim());
        let value: f64 = number.parse().map_err(|_| format!("{text:?} does not begin with a number"))?;
        let known = UNITS.iter().find(|(name, _, _)| *name == unit);
        let (_, factor, unit) = known.ok_or_else(|| {
            let names: Vec<&str> =
                UNITS.iter().map(|(name, _, _)| *name).filter(|name| !name.is_empty()).collect();
            format!("{text:?}: the unit {unit:?} is none of {}", names.join(", "))
        })?;
        Ok(Quantity { value: value * factor, unit: *unit })
    }
}

/// Why an acceptance file was refused.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// It cannot be read.
    #[error("cannot read the acceptance file {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// It is not understood.
    #[error("the acceptance file {path} is wrong: {why}")]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong, with its line.
        why: String,
    },
}

impl AcceptError {
    /// What the user can type next.
    pub fn hint(&self) -> Option<String> {
        Some("docs/accept.md describes the file, docs/accept-r2.toml is one".to_string())
    }
}

impl Acceptance {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read or understood.
    pub fn read(path: &Path) -> Result<Acceptance, AcceptError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| AcceptError::Io { path: path.into(), source })?;
        Acceptance::parse(&text).map_err(|why| AcceptError::Wrong { path: path.into(), why })
    }

    /// Reads its text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Acceptance, String> {
        let read: Acceptance = toml::from_str(text).map_err(|error| error.to_string().trim().to_string())?;
        read.probe.is_sound()?;
        for requirement in &read.requirements {
            requirement.is_sound()?;
        }
        if read.requirements.is_empty() {
            return Err("it has no [[require]]".to_string());
        }
        Ok(read)
    }

    /// The items of all requirements; one that could not be measured fails.
    pub fn items(&self, checks: &Checks) -> Vec<Item> {
        self.requirements.iter().flat_map(|requirement| requirement.items(checks)).collect()
    }
}

impl Probe {
    fn is_sound(&self) -> Result<(), String> {
        if let Some(bytes) = self.block_bytes
            && (bytes == 0 || bytes % BLOCK_BYTES.0 != 0 || bytes > BLOCK_BYTES.1)
        {
            let (step, most) = BLOCK_BYTES;
            return Err(format!("block_bytes is {bytes}, no multiple of {step} up to {most}"));
        }
        let depths = self.depths.as_deref().unwrap_or(&[1]);
        if depths.is_empty() || !depths.iter().all(|depth| (1..=DEPTH_MAX).contains(depth)) {
            return Err(format!("depths are one or more numbers from 1 to {DEPTH_MAX}"));
        }
        Ok(())
    }
}

impl Requirement {
    /// The limits with their keys.
    fn limits(&self) -> impl Iterator<Item = (&'static str, Quantity)> {
        [
            ("at_least", self.at_least),
            ("at_most", self.at_most),
            ("warn_below", self.warn_below),
            ("warn_above", self.warn_above),
        ]
        .into_iter()
        .filter_map(|(key, limit)| Some((key, limit?)))
    }

    fn is_sound(&self) -> Result<(), String> {
        let check = &self.check;
        let Some(units) = names::units_of(check) else {
            return Err(format!("{check:?} is not the name of a check"));
        };
        let limits: Vec<(&str, Quantity)> = self.limits().collect();
        if limits.is_empty() != self.none {
            return Err(format!(
                "{check}: it needs limits (at_least, at_most, warn_below, warn_above), or none = true"
            ));
        }
        if let Some((key, _)) = limits.first().filter(|_| units.is_empty()) {
            return Err(format!(
                "{check}: {key} has nothing to limit, this check has no figures; require none = true"
            ));
        }
        if let Some((key, limit)) = limits.iter().find(|(_, limit)| !units.contains(&limit.unit)) {
            let possible: Vec<&str> = units.iter().map(|unit| kind(*unit)).collect();
            return Err(format!(
                "{check}: {key} = {:?} is {}, and the figures of this check are {}",
                limit.text(),
                kind(limit.unit),
                possible.join(" or ")
            ));
        }
        if let Some((key, _)) = limits.iter().find(|(_, limit)| limit.unit != limits[0].1.unit) {
            return Err(format!("{check}: {} and {key} have different units", limits[0].0));
        }
        if let (Some(fail), Some(warn)) = (self.at_least, self.warn_below)
            && warn.value < fail.value
        {
            return Err(format!("{check}: warn_below is less than at_least"));
        }
        if let (Some(fail), Some(warn)) = (self.at_most, self.warn_above)
            && warn.value > fail.value
        {
            return Err(format!("{check}: warn_above is more than at_most"));
        }
        Ok(())
    }

    /// What this judges.
    fn of<'a>(&'a self, checks: &'a Checks) -> impl Iterator<Item = &'a Item> {
        let is_of = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|name| found == Some(name))
        };
        checks.items.iter().filter(move |item| {
            item.check == self.check
                && is_of(&self.subject, Some(&item.subject))
                && is_of(&self.host, item.host.as_deref().or(item.node.as_deref()))
        })
    }

    fn items(&self, checks: &Checks) -> Vec<Item> {
        let name = format!("accept.{}", self.check);
        let bare =
            Item { check: name.clone(), area: self.area(checks), why: self.why.clone(), ..Item::default() };
        if self.none {
            return self.absence(checks, &bare);
        }
        let found: Vec<Item> = self.of(checks).filter_map(|item| self.judged(item, &name)).collect();
        if found.is_empty() {
            let claim = format!("{} is required, and was not measured", self.check);
            let subject = self.subject.clone().unwrap_or_default();
            return vec![Item { host: self.host.clone(), subject, ..bare }.judged(Verdict::Fail, claim)];
        }
        let missing = self.missing(checks).into_iter().map(|(host, subject, why)| {
            let claim = format!("{} is required, and was not measured: {why}", self.check);
            Item { host: Some(host), subject, ..bare.clone() }.judged(Verdict::Fail, claim)
        });
        found.into_iter().chain(missing).collect()
    }

    /// Where others have the figure and it is missing: host, subject and reason.
    fn missing(&self, checks: &Checks) -> Vec<(String, String, String)> {
        let is_wanted = |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|one| one == name);
        let is_of_disk = self.check.starts_with(OF_DISK);
        let has = |host: &str| self.of(checks).any(|item| item.host.as_deref() == Some(host));
        let hosts = checks.hosts.iter().filter(|host| {
            let is_due = OF_EACH_HOST.contains(&self.check.as_str()) || is_of_disk && host.lost.is_some();
            is_due && self.subject.is_none() && is_wanted(&self.host, &host.host) && !has(&host.host)
        });
        let of_host = |host: &Host| {
            let why = host.lost.as_ref().or(host.no_program.as_ref());
            let why = why.cloned().unwrap_or_else(|| format!("{} gave no figure", host.host));
            (host.host.clone(), String::new(), why)
        };
        let last = checks.disks.iter().map(|disk| disk.round).max().unwrap_or(0);
        let disks = checks.disks.iter().filter(|disk| {
            let is_due = is_of_disk && disk.round == last && disk.refused.is_some();
            is_due && is_wanted(&self.host, &disk.host) && is_wanted(&self.subject, &disk.directory)
        });
        let of_disk = |disk: &Disk| {
            (disk.host.clone(), disk.directory.clone(), disk.refused.clone().unwrap_or_default())
        };
        hosts.map(of_host).chain(disks.map(of_disk)).collect()
    }

    /// The area of an item that has no measurement to take it from.
    fn area(&self, checks: &Checks) -> Area {
        let like = |item: &&Item| item.check.split('.').next() == self.check.split('.').next();
        checks.items.iter().find(like).map_or(Area::System, |item| item.area)
    }

    /// Why the absence of warnings would not be evidence.
    fn lacks(&self, checks: &Checks) -> Option<String> {
        let is_subject = |host: &String| {
            let is_host = checks.hosts.iter().any(|one| one.host == *host && one.lost.is_none());
            is_host || checks.items.iter().any(|item| item.node.as_ref() == Some(host))
        };
        if let Some(host) = self.host.as_ref().filter(|host| !is_subject(host)) {
            return Some(format!("{host} was not checked"));
        }
        let reached = checks.hosts.iter().filter(|host| host.lost.is_none()).count();
        if self.check.starts_with(OF_CONTRAST) && reached < CONTRAST_MIN {
            return Some("it needs two hosts to compare".to_string());
        }
        self.of(checks).find(|item| item.verdict == Verdict::Unknown).map(|item| item.claim.clone())
    }

    fn absence(&self, checks: &Checks, bare: &Item) -> Vec<Item> {
        let bad: Vec<&Item> = self.of(checks).filter(|item| item.verdict >= Verdict::Warn).collect();
        if let Some(lack) = self.lacks(checks).filter(|_| bad.is_empty()) {
            let claim = format!("no warning of {} is required, and it was not checked: {lack}", self.check);
            return vec![Item { host: self.host.clone(), ..bare.clone() }.judged(Verdict::Fail, claim)];
        }
        if bad.is_empty() {
            return vec![
                bare.clone().judged(Verdict::Pass, format!("there is no warning of {}", self.check)),
            ];
        }
        let failed = |item: &&Item| Item {
            host: item.host.clone(),
            node: item.node.clone(),
            subject: item.subject.clone(),
            area: item.area,
            ..bare.clone().judged(Verdict::Fail, item.claim.clone())
        };
        bad.iter().map(failed).collect()
    }

    /// The judgement of one figure; `None`: the item has none, and was not to have one.
    fn judged(&self, item: &Item, name: &str) -> Option<Item> {
        let Some(figure) = item.figure else {
            let claim = format!("{} is required, and was not measured: {}", self.check, item.claim);
            let lost = Item { check: name.to_string(), why: self.why.clone(), ..item.clone() };
            return (item.verdict == Verdict::Unknown).then(|| lost.judged(Verdict::Fail, claim));
        };
        let unit = self.limits().next()?.1.unit;
        let base = Item {
            check: name.to_string(),
            why: self.why.clone(),
            remedy: Default::default(),
            ..item.clone()
        };
        if unit != figure.unit {
            let claim =
                format!("{}: its limit is in another unit than the figure ({})", self.check, figure.text());
            return Some(Item { limit: None, ..base.judged(Verdict::Fail, claim) });
        }
        let limit =
            |quantity: Option<Quantity>, of: fn(f64) -> Limit| quantity.map(|quantity| of(quantity.value));
        let hard = [limit(self.at_least, Limit::AtLeast), limit(self.at_most, Limit::AtMost)];
        let soft = [limit(self.warn_below, Limit::AtLeast), limit(self.warn_above, Limit::AtMost)];
        let broken = |limits: [Option<Limit>; 2]| {
            limits.into_iter().flatten().find(|one| !one.is_kept_by(figure.value))
        };
        let (verdict, limit) = match (broken(hard), broken(soft)) {
            (Some(limit), _) => (Verdict::Fail, Some(limit)),
            (None, Some(limit)) => (Verdict::Warn, Some(limit)),
            (None, None) => (Verdict::Pass, hard.into_iter().chain(soft).flatten().next()),
        };
        let claim = format!(
            "{} is {}, required {}",
            self.check,
            Figure { ..figure }.text(),
            limit.map_or(String::new(), |limit| limit.text(unit))
        );
        Some(Item { limit, ..base.judged(verdict, claim) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::check::Host;

    fn checks() -> Checks {
        let item = |host: &str, value| {
            Item::of_host("disk.sequential_write.q1", Area::Disk, host, "/data")
                .figure(value, Unit::BytesPerSecond)
        };
        let odd = Item::of_host("contrast.fact", Area::Contrast, "c", "mount /data")
            .judged(Verdict::Warn, "c differs");
        let hosts = ["a", "b", "c"].map(|host| Host { host: host.into(), ..Host::default() }).to_vec();
        let unread =
            Item::of_host("cpu.governor", Area::Cpu, "b", "").judged(Verdict::Unknown, "no such file");
        let items = vec![item("a", 1.1e9), item("b", 0.7e9), item("c", 0.9e9), odd, unread];
        Checks { items, hosts, ..Checks::default() }
    }

    fn verdicts(text: &str) -> Vec<(String, Verdict)> {
        let items = Acceptance::parse(text).expect(text).items(&checks());
        items.into_iter().map(|item| (item.host.unwrap_or_default(), item.verdict)).collect()
    }

    #[test]
    fn each_host_passes_warns_or_fails() {
        let text = "[[require]]\ncheck = \"disk.sequential_write.q1\"\nat_least = \"800 MB/s\"\nwarn_below = \"1 GB/s\"\nwhy = \"contract\"\n";
        let expected = [("a", Verdict::Pass), ("b", Verdict::Fail), ("c", Verdict::Warn)];
        assert_eq!(verdicts(text), expected.map(|(host, verdict)| (host.to_string(), verdict)));
        let items = Acceptance::parse(text).expect(text).items(&checks());
        assert_eq!(items[1].claim, "disk.sequential_write.q1 is 700 MB/s, required >= 800 MB/s");
        assert_eq!(items[1].why, "contract");
    }

    #[test]
    fn what_was_not_measured_fails_and_so_does_a_wrong_unit() {
        let absent = "[[require]]\ncheck = \"network.bandwidth\"\nat_least = \"1 Gbit/s\"\n";
        assert_eq!(verdicts(absent), [(String::new(), Verdict::Fail)]);
        let mut checks = checks();
        checks.items.push(
            Item::of_host("contrast.figure", Area::Contrast, "a", "memory size").figure(9e9, Unit::Bytes),
        );
        let unit = "[[require]]\ncheck = \"contrast.figure\"\nhost = \"a\"\nat_least = \"800 ms\"\n";
        let judged = Acceptance::parse(unit).expect(unit).items(&checks);
        assert_eq!(judged.iter().map(|item| item.verdict).collect::<Vec<_>>(), [Verdict::Fail]);
    }

    #[test]
    fn a_host_a_disk_or_a_pair_without_the_figure_fails_beside_others_that_have_it() {
        let mut checks = checks();
        checks.hosts[1].no_program = Some("pgfathom is not installed there".into());
        let memory = |host: &str| {
            Item::of_host("memory.read", Area::Memory, host, "0").figure(9e9, Unit::BytesPerSecond)
        };
        let pair = |to: &str| Item::of_host("network.bandwidth", Area::Network, "a", format!("-> {to}"));
        checks.items.extend([memory("a"), memory("c"), pair("b").figure(1e9, Unit::BytesPerSecond)]);
        checks.items.push(pair("c").judged(Verdict::Unknown, "a -> c was not measured: no route"));
        let refused = Some("no space".to_string());
        checks.disks = vec![Disk { host: "c".into(), directory: "/more".into(), refused, ..Disk::default() }];
        let failed = |check: &str, more: &str| -> Vec<(String, String, String)> {
            let text = format!("[[require]]\ncheck = \"{check}\"\nat_least = \"1 MB/s\"\n{more}");
            let items = Acceptance::parse(&text).expect("a requirement").items(&checks);
            let failed = items.into_iter().filter(|item| item.verdict == Verdict::Fail);
            failed.map(|item| (item.host.unwrap_or_default(), item.subject, item.claim)).collect()
        };
        let one = |host: &str, subject: &str, why: &str| vec![(host.into(), subject.into(), why.to_string())];
        let lost = |check: &str, why: &str| format!("{check} is required, and was not measured: {why}");
        let bare = lost("memory.read", "pgfathom is not installed there");
        assert_eq!(failed("memory.read", ""), one("b", "", &bare));
        assert!(failed("memory.read", "host = \"a\"\n").is_empty());
        let away = lost("network.bandwidth", "a -> c was not measured: no route");
        assert_eq!(failed("network.bandwidth", ""), one("a", "-> c", &away));
        let full = lost("disk.sequential_write.q1", "no space");
        assert_eq!(failed("disk.sequential_write.q1", ""), one("c", "/more", &full));
        assert!(failed("disk.sequential_write.q1", "subject = \"/data\"\n").is_empty());
    }

    #[test]
    fn hosts_must_be_equal() {
        let text = "[[require]]\ncheck = \"contrast.fact\"\nnone = true\n";
        assert_eq!(verdicts(text), [("c".to_string(), Verdict::Fail)]);
        let text = "[[require]]\ncheck = \"contrast.figure\"\nnone = true\n";
        assert_eq!(verdicts(text), [(String::new(), Verdict::Pass)]);
        let alone = Checks { hosts: vec![Host::default()], ..Checks::default() };
        let items = Acceptance::parse(text).expect(text).items(&alone);
        assert!(items[0].verdict == Verdict::Fail && items[0].claim.contains("two hosts"), "{items:?}");
    }

    #[test]
    fn nothing_is_accepted_because_it_was_not_looked_at() {
        let none = |more: &str| format!("[[require]]\ncheck = \"cpu.governor\"\nnone = true\n{more}");
        for (more, verdict) in [
            ("host = \"a\"\n", Verdict::Pass),
            ("host = \"b\"\n", Verdict::Fail),
            ("host = \"elsewhere\"\n", Verdict::Fail),
            ("", Verdict::Fail),
        ] {
            let found = verdicts(&none(more));
            assert_eq!(found.iter().map(|(_, verdict)| *verdict).collect::<Vec<_>>(), [verdict], "{more}");
        }
    }

    #[test]
    fn mistakes_are_refused() {
        for (text, part) in [
            ("", "no [[require]]"),
            ("[probe]\nblock_bytes = 0\n", "block_bytes is 0, no multiple of 4096"),
            ("[probe]\nblock_bytes = 1000\n", "no multiple of 4096"),
            ("[probe]\ndepths = []\n", "depths are one or more"),
            ("[probe]\ndepths = [8, 1000000000]\n", "from 1 to 256"),
            ("[[require]]\ncheck = \"disk.syncc\"\nat_most = \"1 ms\"\n", "not the name of a check"),
            ("[[require]]\ncheck = \"disk.sync\"\n", "needs limits"),
            ("[[require]]\ncheck = \"disk.sync\"\nat_least = \"5 parsec\"\n", "parsec"),
            ("[[require]]\ncheck = \"disk.sync\"\nat_least = \"much\"\n", "begin with a number"),
            (
                "[[require]]\ncheck = \"disk.sync\"\nat_most = \"200 MB/s\"\n",
                "disk.sync: at_most = \"200 MB/s\" is a rate in bytes (\"800 MB/s\", \"10 Gbit/s\"), and the figures of this check are a time (\"500 \
                 us\", \"2 ms\")",
            ),
            (
                "[[require]]\ncheck = \"disk.random_read.q8\"\nat_least = \"800 MB/s\"\n",
                "are a rate (\"5,000 IOPS\"",
            ),
            ("[[require]]\ncheck = \"disk.random_read.q8.p99\"\nat_most = \"5\"\n", "are a time"),
            ("[[require]]\ncheck = \"network.retransmits\"\nwarn_above = \"5\"\n", "are a share"),
            (
                "[[require]]\ncheck = \"memory.read\"\nat_least = \"2 MB/s\"\nwarn_below = \"1 MB/s\"\n",
                "warn_below is less",
            ),
            (
                "[[require]]\ncheck = \"settings.max_connections\"\nat_least = \"200\"\nwarn_above = \"90 %\"\n",
                "at_least and warn_above have different units",
            ),
            (
                "[[require]]\ncheck = \"disk.sync\"\nat_most = \"1 ms\"\nwarn_above = \"1 MB/s\"\n",
                "disk.sync: warn_above = \"1 MB/s\" is a rate in bytes",
            ),
            (
                "[[require]]\ncheck = \"state.table_age\"\nat_most = \"150 GB\"\n",
                "the figures of this check are a number of transactions (\"1000 transactions\")",
            ),
            (
                "[[require]]\ncheck = \"settings.fsync\"\nat_least = \"1\"\n",
                "settings.fsync: at_least has nothing to limit, this check has no figures; require none = true",
            ),
            ("[[require]]\ncheck = \"disk.sync\"\nnone = true\nspeling = 1\n", "speling"),
        ] {
            let error = Acceptance::parse(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(
            Quantity::try_from("1,500 IOPS".to_string()),
            Ok(Quantity { value: 1500.0, unit: Unit::PerSecond })
        );
        assert_eq!(
            Quantity::try_from("8 Gbit/s".to_string()),
            Ok(Quantity { value: 1e9, unit: Unit::BytesPerSecond })
        );
    }
}
