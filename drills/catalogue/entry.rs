//! The catalogue: conditions and healthy controls as data, read from `drills/conditions/*.toml`. An entry states the cause in words, the rules that name
//! it, and how an application, a setting or the host causes it.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// What one file holds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Chapter {
    #[serde(default)]
    condition: Vec<Entry>,
    #[serde(default)]
    control: Vec<Entry>,
}

/// One condition, or one healthy control.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// The cause in words; for a control, what the server does.
    pub(crate) cause: String,
    /// The area: name of the file without its extension.
    #[serde(skip)]
    pub(crate) area: String,
    /// Whether it is a control: nothing may be claimed.
    #[serde(skip)]
    pub(crate) healthy: bool,
    /// Rules that name the cause. `*`: any rule whose claim contains one of `names`.
    #[serde(default)]
    pub(crate) rules: Vec<String>,
    /// Words of which the finding must contain one to count as naming the cause.
    #[serde(default)]
    pub(crate) names: Vec<String>,
    /// Rules that name only a consequence.
    #[serde(default)]
    pub(crate) symptoms: Vec<String>,
    /// Rules whose claims are also true here.
    #[serde(default)]
    pub(crate) also: Vec<String>,
    /// A release of PostgreSQL; the newest by default.
    pub(crate) postgres: Option<u32>,
    /// With `pg_stat_statements`.
    #[serde(default)]
    pub(crate) statements: bool,
    #[serde(default)]
    pub(crate) settings: BTreeMap<String, String>,
    /// Further files of the data directory's `pg_hba.conf`: its content.
    pub(crate) hba: Option<String>,
    /// Listen on TCP, too: loads then connect through loopback.
    #[serde(default)]
    pub(crate) tcp: bool,
    /// SQL, one batch after another in one session.
    #[serde(default)]
    pub(crate) prepare: Vec<String>,
    /// A query that returns true once the condition is really there; evaluated at the end of the load.
    pub(crate) provoked: Option<String>,
    /// How long it is watched, in seconds.
    #[serde(default = "seconds")]
    pub(crate) seconds: u64,
    /// A limit of the server's control group, in percent of one CPU.
    pub(crate) cpu_quota_pct: Option<u64>,
    /// The same for its memory, page cache included.
    pub(crate) memory_mib: Option<u64>,
    /// The data directory is on a disk with a limit.
    pub(crate) disk: Option<Disk>,
    /// `async`, or as for `pgfathom up replicated --sync`: a primary (node 0) and one standby (node 1).
    pub(crate) standby: Option<String>,
    /// Restart the server after the preparation, as after maintenance.
    #[serde(default)]
    pub(crate) restart: bool,
    /// Shell words of the server's user after the preparation, while the server is stopped; then it is started again. PGDATA leads to its files.
    pub(crate) offline: Option<String>,
    /// The size of /dev/shm, as in a container, for the server and all that the entry starts.
    pub(crate) shm_mib: Option<u64>,
    /// The role that watches; the superuser by default.
    pub(crate) watch_user: Option<String>,
    /// A pgbouncer in front of the server.
    pub(crate) pooler: Option<Pooler>,
    /// Apply what the finding prints, drive again, and compare.
    #[serde(default)]
    pub(crate) remedy: bool,
    #[serde(default)]
    pub(crate) load: Vec<Load>,
}

/// What a disk may do at most.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Disk {
    pub(crate) writes_per_s: Option<u64>,
    pub(crate) write_bytes_per_s: Option<u64>,
    pub(crate) mib: u64,
}

/// How a pgbouncer is configured.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pooler {
    /// transaction, session, statement.
    pub(crate) mode: String,
    /// Server connections for each role.
    pub(crate) size: usize,
    /// Further lines of its section in `pgbouncer.ini`.
    #[serde(default)]
    pub(crate) settings: BTreeMap<String, String>,
}

/// Something that uses the server. Exactly one of `script`, `hold`, `repeat`, `connections` and `shell` is given.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Load {
    /// A script of pgbench.
    pub(crate) script: Option<String>,
    /// SQL of a session that then stays as it is.
    pub(crate) hold: Option<String>,
    /// SQL that a session repeats.
    pub(crate) repeat: Option<String>,
    /// So many idle connections.
    pub(crate) connections: Option<usize>,
    /// A program, through `sh -c`; libpq's variables lead to the server, PATH to its programs. It is killed at the end.
    pub(crate) shell: Option<String>,
    /// Sessions of a script, or copies of the others.
    #[serde(default = "one")]
    pub(crate) clients: usize,
    /// simple, extended, prepared.
    pub(crate) protocol: Option<String>,
    /// Transactions per second of a script; as many as possible by default.
    pub(crate) rate: Option<u64>,
    /// A connection for each transaction.
    #[serde(default)]
    pub(crate) connect: bool,
    /// `pgfathom` instead of pgbench.
    pub(crate) driver: Option<String>,
    /// Through the pooler of the entry.
    #[serde(default)]
    pub(crate) pooled: bool,
    /// Which node of a cluster.
    #[serde(default)]
    pub(crate) node: usize,
    /// When it begins, in seconds after the watch; 0 is before it.
    #[serde(default)]
    pub(crate) at_s: f64,
    #[serde(default)]
    pub(crate) pause_ms: u64,
    /// Another user than the superuser.
    pub(crate) user: Option<String>,
    /// Statements that may fail: they wait in vain, or are refused.
    #[serde(default)]
    pub(crate) may_fail: bool,
    /// The same pause for the sessions of a `hold` or `repeat`: they begin one after another.
    #[serde(default)]
    pub(crate) stagger_ms: u64,
}

fn seconds() -> u64 {
    10
}

fn one() -> usize {
    1
}

impl Load {
    fn kinds(&self) -> usize {
        let words = [&self.script, &self.hold, &self.repeat, &self.shell];
        words.iter().filter(|word| word.is_some()).count() + usize::from(self.connections.is_some())
    }
}

/// Reads every file of a folder; entries are in the order of the files' names. Errors name the file.
pub(crate) fn read(folder: &Path) -> Result<Vec<Entry>, String> {
    let listed = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files: Vec<_> = listed.flatten().map(|file| file.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    let mut all = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let area = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        all.extend(chapter(&area, &text).map_err(|error| format!("{}: {error}", path.display()))?);
    }
    let mut names = BTreeSet::new();
    match all.iter().find(|entry| !names.insert(entry.name.clone())) {
        Some(twice) => Err(format!("{} is there twice", twice.name)),
        None => Ok(all),
    }
}

/// The entries of one file.
pub(crate) fn chapter(area: &str, text: &str) -> Result<Vec<Entry>, String> {
    let chapter: Chapter = toml::from_str(text).map_err(|error| error.to_string())?;
    let conditions = chapter.condition.into_iter().map(|entry| (false, entry));
    let controls = chapter.control.into_iter().map(|entry| (true, entry));
    conditions
        .chain(controls)
        .map(|(healthy, entry)| checked(Entry { healthy, area: area.into(), ..entry }))
        .collect()
}

fn checked(entry: Entry) -> Result<Entry, String> {
    let wrong = |what: &str| Err(format!("{}: {what}", entry.name));
    if entry.cause.split(' ').count() < 3 {
        return wrong("the cause must be a sentence");
    }
    if entry.healthy && !(entry.rules.is_empty() && entry.symptoms.is_empty()) {
        return wrong("a control names no rules");
    }
    if !entry.healthy && entry.rules.is_empty() {
        return wrong("which rule names the cause?");
    }
    if entry.rules.iter().any(|rule| rule == super::score::ANY_RULE) && entry.names.is_empty() {
        return wrong("any rule can name the cause, so the words are needed by which it does");
    }
    if let Some(load) = entry.load.iter().find(|load| load.kinds() != 1) {
        return wrong(&format!("one of script, hold, repeat, connections, shell: {load:?}"));
    }
    if entry.pooler.is_none() && entry.load.iter().any(|load| load.pooled) {
        return wrong("a load goes through a pooler that is not described");
    }
    if entry.standby.is_some() {
        let is_for_one = entry.pooler.is_some() || entry.offline.is_some() || entry.watch_user.is_some();
        if is_for_one {
            return wrong("pooler, offline and watch_user are for a single server");
        }
    }
    if entry.seconds > 40 {
        return wrong("at most 40 s");
    }
    Ok(entry)
}
