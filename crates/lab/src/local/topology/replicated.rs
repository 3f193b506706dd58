//! One server that takes writes, and standbys that follow it by streaming replication.
//!
//! Every standby has the addresses of all other nodes (`primary_conninfo` with several hosts and `target_session_attrs=read-write`) and has a slot on each of
//! them, so after a promotion the remaining standbys follow the new primary automatically, unless they had received more than it had.
//! The slots of nodes that are not followed hold no WAL: they reserve nothing until a standby uses them.

use connect::poll;
use std::fmt;
use std::time::Duration;

use super::{Link, LocalError, Peer, Statement, literal};
use connect::conninfo::quoted;
use connect::control;
use connect::waiting::{self, NO_STANDBY, WaitError};

/// The time limit until a new standby streams.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(120);
/// How often that is looked at.
/// WAL that a slot keeps for a standby that is down; without a limit a dead standby fills the disk of its primary.
pub(super) const SLOT_WAL_MAX: &str = "4GB";

/// The number of standbys, and those that a commit waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replication {
    /// Standbys, named `s1`, `s2`, ...
    pub standbys: u32,
    /// Which of them a commit waits for.
    pub sync: SyncStandbys,
    /// How far it waits; `None`: the preset's, else `on`.
    pub commit: Option<CommitLevel>,
}

/// `synchronous_commit`, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommitLevel {
    /// Waits for nothing; a crash loses the last commits.
    Off,
    /// Waits for this server's disk.
    Local,
    /// And until the standbys have the WAL in their operating system.
    RemoteWrite,
    /// And until it is on their disks.
    On,
    /// And until they have applied it, so that a read there sees it.
    RemoteApply,
}

impl CommitLevel {
    /// All levels by PostgreSQL's names.
    pub const ALL: [(&'static str, CommitLevel); 5] = [
        ("off", CommitLevel::Off),
        ("local", CommitLevel::Local),
        ("remote_write", CommitLevel::RemoteWrite),
        ("on", CommitLevel::On),
        ("remote_apply", CommitLevel::RemoteApply),
    ];

    /// PostgreSQL's name.
    pub fn name(self) -> &'static str {
        CommitLevel::ALL[self as usize].0
    }

    /// By PostgreSQL's name.
    pub fn parse(name: &str) -> Option<CommitLevel> {
        CommitLevel::ALL.iter().find(|(known, _)| *known == name).map(|(_, level)| *level)
    }
}

/// `synchronous_standby_names`, checked against the standbys there are: an unknown name, or one standby too many, would let every commit wait for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncStandbys {
    /// `FIRST` or `ANY`; `None`: asynchronous.
    method: Option<&'static str>,
    count: u32,
    names: Vec<String>,
}

impl SyncStandbys {
    /// Commits wait for no standby.
    pub const ASYNC: SyncStandbys = SyncStandbys { method: None, count: 0, names: Vec::new() };
    /// The default number of standbys that a commit waits for.
    const COUNT_DEFAULT: u32 = 2;

    /// The first two of all standbys.
    pub fn default_for(standbys: u32) -> SyncStandbys {
        SyncStandbys {
            method: Some("FIRST"),
            count: standbys.min(SyncStandbys::COUNT_DEFAULT),
            names: (1..=standbys).map(standby_name).collect(),
        }
    }

    /// `async`, or the syntax of PostgreSQL: `FIRST 2 (s1, s2)`, `ANY 1 (s1, s2)`, `1 (s1, s2)`, `s1, s2`, `*`.
    pub fn parse(text: &str, standbys: u32) -> Result<SyncStandbys, LocalError> {
        let example = format!(
            "write \"FIRST 1 ({0})\", \"ANY 1 ({0})\" or async; the standbys are called {0}",
            (1..=standbys.max(1)).map(standby_name).collect::<Vec<_>>().join(", ")
        );
        let wrong = |problem: String| LocalError::Topology {
            problem: format!("--sync {text:?}: {problem}"),
            hint: example.clone(),
        };
        let trimmed = text.trim();
        if trimmed.is_empty() || trimmed.eq_ignore_ascii_case("async") {
            return Ok(SyncStandbys::ASYNC);
        }
        let (head, list) = match trimmed.split_once('(') {
            Some((head, rest)) => {
                let list = rest.trim_end().strip_suffix(')');
                (head.trim(), list.ok_or_else(|| wrong("the closing parenthesis is missing".to_owned()))?)
            }
            None => ("1", trimmed),
        };
        let words: Vec<&str> = head.split_whitespace().collect();
        let (method, number) = match words.as_slice() {
            [number] => ("FIRST", *number),
            [word, number] if word.eq_ignore_ascii_case("first") => ("FIRST", *number),
            [word, number] if word.eq_ignore_ascii_case("any") => ("ANY", *number),
            _ => return Err(wrong("it begins neither with FIRST n nor with ANY n".to_owned())),
        };
        let count: u32 = match number.parse() {
            Ok(count) if count > 0 => count,
            _ => return Err(wrong(format!("{number:?} is not a number of standbys"))),
        };
        let names: Vec<String> =
            list.split(',').map(|name| name.trim().trim_matches('"').to_owned()).collect();
        let known = |name: &String| name == "*" || (1..=standbys).any(|number| *name == standby_name(number));
        if let Some(unknown) = names.iter().find(|name| !known(name)) {
            return Err(wrong(format!(
                "no standby is called {unknown:?}, so every commit would wait forever"
            )));
        }
        let named = if names.iter().any(|name| name == "*") { standbys as usize } else { names.len() };
        if count as usize > named {
            return Err(wrong(format!("it waits for {count} of {named} standbys, so it would wait forever")));
        }
        Ok(SyncStandbys { method: Some(method), count, names })
    }

    /// The value of `synchronous_standby_names`; empty when asynchronous.
    pub fn setting(&self) -> String {
        match self.method {
            None => String::new(),
            Some(method) => format!("{method} {} ({})", self.count, self.names.join(", ")),
        }
    }
}

impl fmt::Display for SyncStandbys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.method.is_none() { "async" } else { "" })?;
        f.write_str(&self.setting())
    }
}

/// The name of the standby with this number, counted from 1.
pub(super) fn standby_name(number: u32) -> String {
    format!("s{number}")
}

/// Settings of every node: any of them may become the primary.
pub(super) fn settings(replication: &Replication, major: u32) -> Vec<(&'static str, String)> {
    /// Senders and slots beside one for each standby: for `pg_basebackup`, `pg_receivewal` and the like.
    const SPARE: u32 = 10;
    let senders = (replication.standbys + SPARE).to_string();
    let mut settings = vec![
        ("wal_level", "replica".to_owned()),
        ("max_wal_senders", senders.clone()),
        ("max_replication_slots", senders),
        ("hot_standby", "on".to_owned()),
        // The default of 5 s is what the other standbys would need to find a new primary.
        ("wal_retrieve_retry_interval", "500ms".to_owned()),
    ];
    if major >= 13 {
        settings.push(("max_slot_wal_keep_size", SLOT_WAL_MAX.to_owned()));
    }
    settings.extend(replication.commit.map(|level| ("synchronous_commit", level.name().to_owned())));
    settings
}

/// Settings of the node `me` while it follows another one.
pub(crate) fn standby_settings(me: usize, peers: &[(String, Link)]) -> Vec<(String, String)> {
    let others: Vec<&Link> =
        peers.iter().enumerate().filter(|(number, _)| *number != me).map(|(_, (_, link))| link).collect();
    let list = |each: fn(&Link) -> String| others.iter().map(|link| each(link)).collect::<Vec<_>>().join(",");
    let mut conninfo = format!(
        "host={} port={}",
        quoted(&list(|link| link.host.clone())),
        quoted(&list(|link| link.port.to_string()))
    );
    if let Some(link) = others.first() {
        conninfo.push_str(&format!(" user={}", quoted(&link.user)));
        if let Some(password) = &link.password {
            conninfo.push_str(&format!(" password={}", quoted(password.reveal())));
        }
    }
    let name = &peers[me].0;
    conninfo.push_str(&format!(" application_name={name} target_session_attrs=read-write"));
    vec![("primary_conninfo".to_owned(), conninfo), ("primary_slot_name".to_owned(), name.clone())]
}

/// Slots on node `me` for all the others. On the primary they reserve WAL from now on, for the copies that are made next.
pub(crate) fn slots(me: usize, names: &[String], reserve: bool) -> Vec<Statement> {
    let other = names.iter().enumerate().filter(|(number, _)| *number != me);
    other
        .map(|(_, name)| {
            Statement::new(
                format!("create the replication slot {name}"),
                format!(
                    "select pg_catalog.pg_create_physical_replication_slot({}, {reserve})",
                    literal(name)
                ),
            )
        })
        .collect()
}

/// After the start of the standbys: waits until all of them stream, and creates on each a slot for every other node, for its use as a
/// primary.
pub(super) fn connect(peers: &[Peer]) -> Result<(), LocalError> {
    let names: Vec<String> = peers.iter().map(|peer| peer.name.clone()).collect();
    let Some((primary, standbys)) = peers.split_first() else { return Ok(()) };
    await_streaming(primary, &names[1..])?;
    super::on_each(standbys, |number| {
        super::execute_all(&standbys[number], &slots(number + 1, &names, false))
    })?;
    Ok(())
}

/// Waits until each of the named standbys (or subscriptions) streams from `primary`.
pub(super) fn await_streaming(primary: &Peer, standbys: &[String]) -> Result<(), LocalError> {
    let streaming =
        "select application_name::text from pg_catalog.pg_stat_replication where state = 'streaming'";
    await_names(primary, streaming, |found| standbys.iter().find(|name| !found.contains(name)).cloned())
}

/// Lets commits wait for standbys: `configure` writes the setting and reloads the server. Returns when every commit waits for them; the next
/// one may already need that.
pub(crate) fn wait_for_standbys(
    primary: &Peer,
    sync: &SyncStandbys,
    configure: impl FnOnce() -> Result<(), LocalError>,
) -> Result<(), LocalError> {
    if sync.method.is_none() {
        return configure();
    }
    // First a name that no standby has, and a commit that waits for it: this shows that the server lets commits wait at all.
    let reload = || {
        Statement::new("read the settings again".to_owned(), "select pg_catalog.pg_reload_conf()".to_owned())
    };
    let set = |value: String| {
        Statement::new("change synchronous_standby_names".to_owned(), format!("alter system {value}"))
    };
    super::execute_all(primary, &[set(format!("set synchronous_standby_names = '{NO_STANDBY}'")), reload()])?;
    waiting::until_commits_wait(&primary.spec, FOLLOW_TIMEOUT).map_err(|error| match error {
        WaitError::Connect(error) => LocalError::from(error),
        WaitError::Sql(source) => LocalError::Sql { what: "look whether commits wait".to_owned(), source },
        WaitError::Late(limit) => {
            LocalError::NotFollowing { node: sync.names.join(", "), waited_s: limit.as_secs() }
        }
    })?;
    configure()?;
    super::execute_all(primary, &[set("reset synchronous_standby_names".to_owned()), reload()])?;
    let synchronous = format!(
        "select application_name::text from pg_catalog.pg_stat_replication where sync_state in ('sync', 'quorum') \
         and pg_catalog.current_setting('synchronous_standby_names') = {}",
        literal(&sync.setting())
    );
    await_names(primary, &synchronous, |found| {
        (found.len() < sync.count as usize).then(|| sync.names.join(", "))
    })
}

/// Polls until no node is missing.
fn await_names(
    primary: &Peer,
    query: &str,
    missing: impl Fn(&[String]) -> Option<String>,
) -> Result<(), LocalError> {
    let mut client = control::connect(&primary.spec)?;
    let mut name = String::new();
    let mut look = || -> Result<Option<()>, LocalError> {
        let rows = client
            .query(query, &[])
            .map_err(|source| LocalError::Sql { what: "look at pg_stat_replication".to_owned(), source })?;
        let found: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        Ok(match missing(&found) {
            Some(one) => {
                name = one;
                None
            }
            None => Some(()),
        })
    };
    let all = poll::until(FOLLOW_TIMEOUT, || look().transpose()).transpose()?;
    all.ok_or(LocalError::NotFollowing { node: name, waited_s: FOLLOW_TIMEOUT.as_secs() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use connect::Secret;

    #[test]
    fn what_a_commit_waits_for_is_read_as_postgresql_reads_it() {
        for (text, setting) in [
            ("FIRST 2 (s1, s2)", "FIRST 2 (s1, s2)"),
            ("first 1(s2,s1)", "FIRST 1 (s2, s1)"),
            (" any 1 ( s1 , s2 ) ", "ANY 1 (s1, s2)"),
            ("2 (s1, s2)", "FIRST 2 (s1, s2)"),
            ("s2", "FIRST 1 (s2)"),
            ("\"s1\", s2", "FIRST 1 (s1, s2)"),
            ("ANY 2 (*)", "ANY 2 (*)"),
            ("async", ""),
            ("ASYNC", ""),
            ("", ""),
        ] {
            assert_eq!(SyncStandbys::parse(text, 2).unwrap().setting(), setting, "{text:?}");
        }
        assert_eq!(SyncStandbys::ASYNC.to_string(), "async");
        assert_eq!(SyncStandbys::default_for(1).to_string(), "FIRST 1 (s1)");
        assert_eq!(SyncStandbys::default_for(3).to_string(), "FIRST 2 (s1, s2, s3)");
    }

    #[test]
    fn what_would_wait_for_ever_is_refused() {
        for (text, words) in [
            ("FIRST 2 (s1, s3)", "no standby is called \"s3\""),
            ("FIRST 3 (s1, s2)", "it waits for 3 of 2 standbys"),
            ("ANY 3 (*)", "it waits for 3 of 2"),
            ("FIRST 0 (s1)", "\"0\" is not a number"),
            ("FIRST (s1)", "\"FIRST\" is not a number"),
            ("LAST 1 (s1)", "neither with FIRST n nor with ANY n"),
            ("FIRST 1 (s1", "closing parenthesis"),
            ("FIRST 1 ()", "no standby is called \"\""),
        ] {
            let error = SyncStandbys::parse(text, 2).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert!(error.hint().unwrap().contains("FIRST 1 (s1, s2)"), "{:?}", error.hint());
        }
    }

    #[test]
    fn a_standby_knows_every_node_but_itself() {
        let link = |port| Link {
            host: "/run/a b".to_owned(),
            port,
            user: "postgres".to_owned(),
            password: (port == 5433).then(|| Secret::new("x y")),
            dbname: "postgres".to_owned(),
            detours: Vec::new(),
        };
        let peers = [
            ("primary".to_owned(), link(5433)),
            ("s1".to_owned(), link(5434)),
            ("s2".to_owned(), link(5435)),
        ];
        let settings = standby_settings(1, &peers);
        assert_eq!(
            settings[0].1,
            "host='/run/a b,/run/a b' port=5433,5435 user=postgres password='x y' application_name=s1 target_session_attrs=read-write"
        );
        assert_eq!(settings[1], ("primary_slot_name".to_owned(), "s1".to_owned()));
        let names: Vec<String> = peers.iter().map(|(name, _)| name.clone()).collect();
        let sql: Vec<String> = slots(1, &names, false).into_iter().map(|statement| statement.sql).collect();
        assert_eq!(sql.len(), 2);
        assert!(sql[0].contains("'primary', false") && sql[1].contains("'s2', false"), "{sql:?}");
    }
}
