//! What an engine makes for itself: names of transactions, sessions, slots and locks, as a session that writes shows them to others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use connect::sql::identifier;
use engines::placement::Parts;
use engines::profile::{Layout, Own};

use super::{NEEDS_LOSS, Outcome, Stage};
use crate::client::{Client, ClientError, text};
use crate::live::tables::SCHEMA;

/// How long a session writes while others look at it.
const WRITING: Duration = Duration::from_secs(3);
/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(10);
/// Looks at a working session after which a wait that was never seen is none of its waits.
const LOOKS_MIN: u64 = 20;
/// Advisory locks of users have these, or less.
const SUBIDS_OF_USERS: i64 = 2;
/// Why the statement behind a lock is not checked.
const NOT_KEPT: &str = "other nodes run it for a moment, and no view keeps it";
/// Why the build of a server is not checked.
const NOT_BUILT: &str = "no view shows how a server was built";
/// Names in a line.
const NAMES_MAX: usize = 3;

/// Checks or names everything that it makes. `slots`: how the names of slots begin that every node has at any time.
pub(super) fn check(stage: &mut Stage<'_>, made: &'static Own, slots: &[&str]) {
    let Own {
        prepared,
        resolves,
        resolve,
        advisory,
        locks_while,
        lock_statement,
        shards,
        parts,
        pools,
        slots: all_slots,
        // The line `subscriptions`.
        subscriptions: _,
        enable,
        anew,
        sessions,
        daemons,
        away,
        isolated,
        origin,
        commit_waits,
        is_patched,
        shows_parts,
        plain_schemas,
        libraries,
        node_waits,
    } = *made;
    if !libraries.is_empty() {
        let outcome = Outcome::tried(loaded(stage, libraries));
        stage.add("libraries", format!("the server loads {}", libraries.join(", ")), outcome);
    }
    for (check, sql) in [("origin", origin), ("shards", Some(shards)), ("resolve", resolve)] {
        if let Some(sql) = sql.filter(|sql| !sql.is_empty()) {
            stage.plan(check, sql);
        }
    }
    if let Some(sql) = enable {
        stage.plan("enable", &sql.replace("{subscription}", "'name'"));
    }
    if !all_slots.is_empty() {
        let outcome = Outcome::tried(slots_of(stage, all_slots, slots));
        stage.add("slots", format!("its slots begin with {}", all_slots.join(", ")), outcome);
    }
    if parts.is_some() || shows_parts.is_some() {
        let outcome = Outcome::tried(counted(stage, parts, shows_parts));
        stage.add(
            "parts: shown",
            "a session on the node of a part sees it, and how many its table has",
            outcome,
        );
    }
    schemas(stage, plain_schemas);
    let waits = commit_waits.is_some() || node_waits.is_some();
    at_work(stage, made, [prepared, sessions, daemons], advisory.is_some() || waits);
    let not_shown = [
        ("resolves", resolves.to_owned(), None),
        ("locks", locks_while.to_owned(), None),
        ("pools", pools.to_owned(), None),
        ("anew", anew.to_owned(), None),
        ("locks: statement", lock_statement.map_or("", |(part, _)| part).to_owned(), Some(NOT_KEPT)),
        ("log: lost node", away.join("; "), Some(NEEDS_LOSS)),
        ("isolated", isolated.join("; "), Some(NEEDS_LOSS)),
        ("build", if is_patched { "PostgreSQL itself is changed" } else { "" }.to_owned(), Some(NOT_BUILT)),
    ];
    for (check, claimed, why) in not_shown.into_iter().filter(|(_, claimed, _)| !claimed.is_empty()) {
        let outcome = why.map_or(Outcome::Note, |why| Outcome::NotChecked(why.to_owned()));
        stage.add(check, claimed, outcome);
    }
}

/// The setting for schemas whose tables may be on several nodes.
fn schemas(stage: &mut Stage<'_>, plain: Option<(&str, &str)>) {
    if let Some((name, value)) = plain {
        let outcome = Outcome::tried(leaves_plain(stage, name, value));
        stage.add(
            "schemas",
            format!("{name} = {value} leaves it to the client how a table of a new schema is placed"),
            outcome,
        );
    }
}

/// What only a session that writes shows: these names, or others of its values.
fn at_work(stage: &mut Stage<'_>, made: &'static Own, names: [&[&str]; 3], has_others: bool) {
    if names.iter().all(|names| names.is_empty()) && !has_others {
        return;
    }
    match watched(stage) {
        Ok(seen) => judge(stage, made, &seen),
        Err(error) => stage.add("sessions", "what a writing session shows", Outcome::tried(Err(error))),
    }
}

fn loaded(stage: &Stage<'_>, libraries: &[&str]) -> Result<Outcome, ClientError> {
    let reply = stage.client(stage.entry)?.execute("show shared_preload_libraries")?;
    let setting = reply.value().unwrap_or_default();
    let known = engines::cluster::libraries(&setting);
    let has = libraries.iter().any(|library| known.iter().any(|name| name == library));
    Ok(Outcome::of(has, format!("it loads {}", if setting.is_empty() { "nothing" } else { &setting })))
}

/// Whether tables of a schema that a session with this setting makes are still to be placed by their rows. Nothing of it remains.
fn leaves_plain(stage: &Stage<'_>, name: &str, value: &str) -> Result<Outcome, ClientError> {
    let Layout::Spread(spread) = stage.site.engine.layout else {
        return Ok(Outcome::NotChecked("the engine places no rows".to_owned()));
    };
    let mut client = stage.client(stage.entry)?;
    let name = connect::sql::literal(name);
    let known = client.execute(&format!("select 1 from pg_catalog.pg_settings where name = {name}"))?;
    if known.rows().is_empty() {
        return Ok(Outcome::NotChecked("this release has no such setting".to_owned()));
    }
    let schema = format!("{SCHEMA}_plain");
    client.execute(&format!(
        "begin; select pg_catalog.set_config({name}, {}, true); create schema {schema}; create table {schema}.plain (k int primary key)",
        connect::sql::literal(value)
    ))?;
    let Some(place) = spread.statement(&format!("{schema}.plain"), Some("k")) else {
        return Ok(Outcome::NotChecked("the engine places each table by itself".to_owned()));
    };
    let is_open = !client.execute(&place)?.rows().is_empty();
    client.execute("rollback")?;
    let shown = if is_open { "places its rows by their key" } else { "keeps it on one node" };
    Ok(Outcome::of(is_open, format!("the engine {shown}")))
}

/// Names of logical slots on all nodes. `always`: those that each node has while others follow it.
fn slots_of(stage: &Stage<'_>, prefixes: &[&str], always: &[&str]) -> Result<Outcome, ClientError> {
    let mut found = BTreeSet::new();
    for node in 0..stage.site.nodes.len() {
        let reply = stage.client(node)?.execute(
            "select slot_name from pg_catalog.pg_replication_slots where database = pg_catalog.current_database()",
        )?;
        let names: Vec<String> = reply.rows().iter().filter_map(|row| text(row.first()?)).collect();
        let begins = |name: &&String| prefixes.iter().any(|begin| name.starts_with(begin));
        let own: Vec<&String> = names.iter().filter(begins).collect();
        if own.is_empty() && !always.is_empty() {
            return Ok(Outcome::Differs(format!("node {} has the slots {}", node + 1, listed(&names))));
        }
        found.extend(own.into_iter().cloned());
    }
    match found.is_empty() {
        true => Ok(Outcome::NotChecked("there is none now".to_owned())),
        false => Ok(Outcome::Agrees(listed(&found))),
    }
}

/// The first names, or that there are none.
fn listed<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
    match names.len() {
        0 => "none".to_owned(),
        many if many > NAMES_MAX => {
            format!("{} and {} more", names[..NAMES_MAX].join(", "), many - NAMES_MAX)
        }
        _ => names.join(", "),
    }
}

/// One part of a table, by its own node.
fn counted(
    stage: &Stage<'_>,
    parts: Option<&str>,
    shows: Option<(&str, &str)>,
) -> Result<Outcome, ClientError> {
    let mut control = stage.control()?;
    let read = Parts::read(stage.cluster, &mut *control, stage.entry, SCHEMA, "routing_text");
    let known = match read {
        Ok(Some(known)) => known,
        Ok(None) => return Ok(Outcome::NotChecked("no catalog names the parts".to_owned())),
        Err(error) => return Ok(Outcome::Differs(error.to_string())),
    };
    let Some((part, Ok(node))) =
        known.parts.first().and_then(|part| Some((part, part.nodes.first()?.as_ref())))
    else {
        return Ok(Outcome::NotChecked("the table has no part on a known node".to_owned()));
    };
    let mut client = stage.client(*node)?;
    if let Some((setting, value)) = shows {
        client.execute(&format!("set {setting} = {}", connect::sql::literal(value)))?;
    }
    let count = parts.unwrap_or("0");
    let reply = client.execute(&format!(
        "select ({count})::text from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
         where n.nspname = {} and c.relname = {}",
        connect::sql::literal(&part.schema),
        connect::sql::literal(&part.name)
    ))?;
    let Some(row) = reply.rows().first() else {
        return Ok(Outcome::Differs(format!("{} is not in the catalog of its node", part.name)));
    };
    let shown = row.first().and_then(text).unwrap_or_default();
    if parts.is_none() {
        return Ok(Outcome::of(true, format!("{} is in the catalog of its node", part.name)));
    }
    let agrees = shown == known.parts.len().to_string();
    Ok(Outcome::of(agrees, format!("{} is one of {shown}, of {} in all", part.name, known.parts.len())))
}

/// What others see of an engine while a session writes.
#[derive(Default)]
struct Seen {
    /// Names of prepared transactions.
    prepared: BTreeSet<String>,
    /// Names of programs.
    applications: BTreeSet<String>,
    /// The second number of advisory locks.
    advisory: BTreeSet<i64>,
    /// What the writing session waited for, and how often.
    waits: BTreeMap<String, u64>,
    /// How often it was looked at.
    looks: u64,
}

impl Seen {
    /// What the node of `client` shows. `writer`: the session that writes, if it is there.
    fn look(&mut self, client: &mut Client, writer: Option<i64>) -> Result<(), ClientError> {
        let reply = client.execute(&format!(
            "select 'prepared', gid::text from pg_catalog.pg_prepared_xacts where database = pg_catalog.current_database() \
             union all select 'application', application_name from pg_catalog.pg_stat_activity where application_name <> '' \
             union all select 'advisory', objsubid::text from pg_catalog.pg_locks \
                       where locktype = 'advisory' and objsubid > {SUBIDS_OF_USERS} \
                         and database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database()) \
             union all select 'wait', coalesce(wait_event_type || ' ' || wait_event, 'nothing') from pg_catalog.pg_stat_activity \
                       where pid = {} and state = 'active'",
            writer.unwrap_or(0)
        ))?;
        for row in reply.rows() {
            let Some((what, value)) = row.first().and_then(text).zip(row.get(1).and_then(text)) else {
                continue;
            };
            match what.as_str() {
                "prepared" => self.prepared.extend([value]),
                "application" => self.applications.extend([value]),
                "advisory" => self.advisory.extend(value.parse::<i64>()),
                _ => {
                    self.looks += 1;
                    *self.waits.entry(value).or_default() += 1;
                }
            }
        }
        Ok(())
    }

    fn has_waited(&self, kind: &str, event: &str) -> Outcome {
        let seen = self.waits.get(&format!("{kind} {event}")).copied().unwrap_or(0);
        let names: Vec<String> = self.waits.keys().cloned().collect();
        match (seen, self.looks) {
            (1.., looks) => Outcome::Agrees(format!("in {seen} of {looks} looks")),
            (0, LOOKS_MIN..) => {
                Outcome::Differs(format!("in none of {} looks: {}", self.looks, listed(&names)))
            }
            (0, looks) => Outcome::NotChecked(format!("a session that writes was seen {looks} times only")),
        }
    }
}

/// Writes to every part of a table for a while, and looks at all nodes in that time.
fn watched(stage: &Stage<'_>) -> Result<Seen, ClientError> {
    let mut writer = stage.client(stage.entry)?;
    let pid = writer.execute("select pg_catalog.pg_backend_pid()")?.number();
    let mut nodes =
        (0..stage.site.nodes.len()).map(|node| stage.client(node)).collect::<Result<Vec<Client>, _>>()?;
    let mut before = Seen::default();
    for node in &mut nodes {
        before.look(node, None)?;
    }
    let (over, entry) = (AtomicBool::new(false), stage.entry);
    let update = format!("update {}.{} set v = v + 1", identifier(SCHEMA), identifier("wire"));
    let mut seen = Seen::default();
    let written = std::thread::scope(|scope| {
        let writing = scope.spawn(|| -> Result<(), ClientError> {
            while !over.load(Ordering::Relaxed) {
                match writer.execute(&update) {
                    // Others may write, too.
                    Err(ClientError::Refused { error, .. }) if error.sqlstate.as_str().starts_with("40") => {}
                    written => drop(written?),
                }
            }
            Ok(())
        });
        let begin = Instant::now();
        let mut looked = Ok(());
        while begin.elapsed() < WRITING && looked.is_ok() && !writing.is_finished() && !stage.is_stopped() {
            for (number, node) in nodes.iter_mut().enumerate() {
                looked = looked.and_then(|()| seen.look(node, pid.filter(|_| number == entry)));
            }
            std::thread::sleep(PAUSE);
        }
        over.store(true, Ordering::Relaxed);
        let written = writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        looked.and(written)
    });
    written?;
    seen.prepared = seen.prepared.difference(&before.prepared).cloned().collect();
    Ok(seen)
}

/// Compares what was seen with what the engine should make.
fn judge(stage: &mut Stage<'_>, made: &'static Own, seen: &Seen) {
    let several = stage.site.nodes.len() > 1;
    if !made.prepared.is_empty() {
        let (own, others): (Vec<&String>, Vec<&String>) =
            seen.prepared.iter().partition(|name| made.prepares(name));
        let outcome = match (own.is_empty(), others.is_empty()) {
            (false, _) => Outcome::Agrees(listed(own)),
            (true, false) => Outcome::Differs(format!("names of other kinds: {}", listed(others))),
            (true, true) => {
                Outcome::NotChecked(format!("none was seen in {} s of writes", WRITING.as_secs()))
            }
        };
        stage.add("prepared", format!("its transactions begin with {}", made.prepared.join(", ")), outcome);
    }
    if !made.sessions.is_empty() {
        let own: BTreeSet<String> =
            seen.applications.iter().filter(|name| made.has_session(name)).cloned().collect();
        let outcome = match own.is_empty() {
            false => Outcome::Agrees(listed(&own)),
            true if several => Outcome::Differs(format!("sessions there are {}", listed(&seen.applications))),
            true => Outcome::NotChecked("there is one node".to_owned()),
        };
        stage.add("sessions", format!("its sessions begin with {}", made.sessions.join(", ")), outcome);
    }
    for daemon in made.daemons {
        let is_there = seen.applications.iter().any(|name| name.starts_with(daemon));
        let found = if is_there { "they are there" } else { "there is none" };
        stage.add("daemons", format!("sessions {daemon}... are always there"), Outcome::of(is_there, found));
    }
    if let Some((first, last)) = made.advisory {
        let range = i64::from(first)..=i64::from(last);
        let strange: Vec<String> =
            seen.advisory.iter().filter(|sub| !range.contains(sub)).map(ToString::to_string).collect();
        let outcome = match (seen.advisory.len(), strange.is_empty()) {
            (0, _) => Outcome::NotChecked("no session held one".to_owned()),
            (_, true) => Outcome::Agrees(format!("{} kinds in that range", seen.advisory.len())),
            (_, false) => Outcome::Differs(format!("kinds outside of it: {}", listed(&strange))),
        };
        stage.add("advisory locks", format!("its kinds are {first} to {last}"), outcome);
    }
    for (check, wait) in [("waits: commit", made.commit_waits), ("waits: other nodes", made.node_waits)] {
        let Some((kind, event)) = wait.filter(|_| several) else { continue };
        stage.add(check, format!("a session waits in {kind} {event}"), seen.has_waited(kind, event));
    }
}
