//! The values of a profile that no other check is about. Every structure is taken apart without a rest: a value that is added to it has to be checked here,
//! or named with the reason why it cannot be.

use connect::cluster_file::Role;
use engines::placement::Parts;
use engines::profile::{
    Catalog, Commit, Discovery, EntryPoints, Layout, Levels, Profile, Replication, Sets, Statements,
};

use super::own;
use super::{Line, NEEDS_LOSS, Outcome, Stage};
use crate::client::{ClientError, text};
use crate::live::tables::{SCHEMA, replications};
use record::number::counted;

/// The table of the routing checks that is looked into.
const TABLE: &str = "routing_text";

/// Checks or names what is left of the profile. The tables of the checks have rows.
pub(super) fn check(stage: &mut Stage<'_>) {
    let Profile {
        // Which engine it is: `discovery`.
        name: _,
        aliases: _,
        title: _,
        tried: _,
        discovery,
        // Tables are made by it: `routing`, `ddl`.
        layout,
        // `sizes`, `copy`, `links` and `wal`; no query shows how rows are stored.
        storage: _,
        sizes: _,
        load: _,
        links: _,
        has_wal: _,
        entry,
        keyed_trips,
        node_lost,
        commit: Commit { protocol: _, error_undoes },
        levels,
        statements,
        // `isolation`, and a line for each; the reasons are words of verdicts.
        promises: _,
        expectations: _,
        limits: _,
        reasons: _,
    } = *stage.site.engine;
    if !matches!(layout, Layout::Spread(_)) {
        entries(stage, entry);
    }
    match discovery {
        // PostgreSQL's own catalog: `routing` reads it.
        Discovery::Native => {}
        Discovery::None(reason) => stage.add("catalog", "none", Outcome::NotChecked(reason.to_owned())),
        Discovery::Catalog(catalog) => of_catalog(stage, &catalog),
        Discovery::Copies(systems) => of_copies(stage, systems),
    }
    if let Some(trips) = keyed_trips {
        let claimed = format!("a statement by key takes {} and {} round trips", trips.select, trips.update);
        let why = "matrix measures it on a cluster with distances (up --delay)".to_owned();
        stage.add("trips", claimed, Outcome::NotChecked(why));
    }
    if !node_lost.is_empty() {
        stage.add("lost nodes", node_lost.join("; "), Outcome::NotChecked(NEEDS_LOSS.to_owned()));
    }
    let claimed = match error_undoes {
        true => "an error at COMMIT means that nothing was committed",
        false => "an error at COMMIT does not show whether it was committed",
    };
    let why = "no error at COMMIT is provoked: prove ack --fault kill:NODE@3s,heal@6s meets some".to_owned();
    stage.add("commit: error", claimed, Outcome::NotChecked(why));
    let claimed = match levels {
        Levels::Postgres => "the isolation levels are those of PostgreSQL",
        Levels::Derived => "the isolation levels are those of PostgreSQL below another layer",
        Levels::Equivalent | Levels::Own => "the isolation levels are its own",
    };
    // The lines about isolation show what each level does.
    stage.add("levels", claimed, Outcome::Note);
    let claimed = match statements {
        Statements::Fresh => "at READ COMMITTED each statement has a new snapshot",
        Statements::FirstUse => "on another node the snapshot is that of the first statement",
        Statements::Unknown => "no claim about the snapshots of statements",
    };
    let outcome = match statements {
        Statements::Unknown => Outcome::Note,
        _ => Outcome::NotChecked("prove verreg and bank measure it under load".to_owned()),
    };
    stage.add("statements", claimed, outcome);
}

/// A case that was not played here: it needs other nodes, or a setting.
pub(super) fn cases(stage: &mut Stage<'_>) {
    for expectation in stage.site.engine.expectations {
        let check = format!("isolation: {}", expectation.case.code());
        // Some are played at several levels, which stand behind the code.
        let at_a_level = format!("{check} ");
        let is_it = |line: &Line| line.check == check || line.check.starts_with(&at_a_level);
        if !stage.lines.iter().any(is_it) {
            let why = "no script of prove hermitage plays it with these nodes".to_owned();
            stage.add(check, expectation.case.to_string(), Outcome::NotChecked(why));
        }
    }
}

/// Which nodes take writes.
fn entries(stage: &mut Stage<'_>, entry: EntryPoints) {
    // One server with its standbys is no cluster whose every node takes writes, whatever the roles of the nodes are.
    let has_readers = entry == EntryPoints::Primary || stage.site.engine.layout != Layout::OneServer;
    for node in 0..stage.site.nodes.len() {
        let only_reads = has_readers && stage.site.nodes[node].role == Role::Standby;
        let read_only = || -> Result<bool, ClientError> {
            let reply = stage.client(node)?.execute("show transaction_read_only")?;
            Ok(reply.value().as_deref() == Some("on"))
        };
        let outcome = read_only().map(|is_so| {
            Outcome::of(is_so == only_reads, if is_so { "it only reads" } else { "it takes writes" })
        });
        stage.add(format!("entry: node {}", node + 1), entry.to_string(), Outcome::tried(outcome));
    }
}

fn of_catalog(stage: &mut Stage<'_>, catalog: &Catalog) {
    let Catalog {
        // `discovery` and `routing`.
        sign: _,
        nodes: _,
        reach_nodes: _,
        table: _,
        leaves: _,
        oracle: _,
        coordinator,
        is_blind,
        places,
        part_hash,
        own: made,
    } = *catalog;
    if let Some(key) = coordinator {
        let outcome = Outcome::tried(named(stage, catalog.nodes, key));
        stage.add("coordinator", format!("the node {key} of the catalog makes the tables"), outcome);
    }
    if let Some(sql) = is_blind {
        let outcome = Outcome::tried(blind(stage, sql));
        stage.add(
            "entry: tables",
            "the catalog of a node shows whether it has the tables of the cluster",
            outcome,
        );
    }
    if let Some(sql) = places {
        let outcome = Outcome::tried(placed(stage, sql));
        stage.add("places", "the catalog names the node of each part", outcome);
    }
    if part_hash.is_some() {
        let outcome = Outcome::tried(parts(stage));
        stage.add(
            "parts",
            "each row is in the part of its hash, and each part can be read on its node",
            outcome,
        );
    }
    own::check(stage, made, &[]);
}

/// The name of the node with this key.
fn named(stage: &Stage<'_>, nodes: &str, key: &str) -> Result<Outcome, ClientError> {
    let reply = stage.client(stage.entry)?.execute(nodes)?;
    let mut rows = reply.rows().iter().map(|row| (row.first().and_then(text), row.get(1).and_then(text)));
    let name = rows.find(|(own, _)| own.as_deref() == Some(key)).and_then(|(_, name)| name);
    Ok(Outcome::of(name.is_some(), name.unwrap_or_else(|| "no node has that key".to_owned())))
}

/// Nodes without metadata refuse to read a distributed table, and the others have its rows.
fn blind(stage: &Stage<'_>, sql: &str) -> Result<Outcome, ClientError> {
    let mut without = 0;
    for node in (0..stage.site.nodes.len()).filter(|node| *node != stage.entry) {
        let mut client = stage.client(node)?;
        let reply = client.execute(sql)?;
        let is_blind = match reply.value().as_deref() {
            Some("t") => true,
            Some("f") => false,
            other => return Ok(Outcome::Differs(format!("node {} answers {other:?}", node + 1))),
        };
        let rows = client.request(&format!("select count(*) from {SCHEMA}.{TABLE}"))?;
        let sees = rows.error.is_none() && rows.number() > Some(0);
        if is_blind == sees {
            let words = if sees {
                "has all rows, and counts as without"
            } else {
                "lacks the tables, and counts as with"
            };
            return Ok(Outcome::Differs(format!("node {} {words} them", node + 1)));
        }
        without += u64::from(is_blind);
    }
    Ok(Outcome::Agrees(format!(
        "{}, {without} without the tables",
        counted(stage.site.nodes.len() as u64, "node")
    )))
}

/// Every part is somewhere, and there are at least those of the tables of the checks.
fn placed(stage: &Stage<'_>, sql: &str) -> Result<Outcome, ClientError> {
    let reply = stage.client(stage.entry)?.execute(sql)?;
    let named = |row: &&connect::hot::TextRow| row.len() == 2 && row.iter().all(Option::is_some);
    let (rows, whole) = (reply.rows().len(), reply.rows().iter().filter(named).count());
    Ok(Outcome::of(rows > 0 && rows == whole, format!("{whole} of {rows} parts have a node")))
}

/// Reads each part on each of its nodes.
fn parts(stage: &Stage<'_>) -> Result<Outcome, ClientError> {
    let mut control = stage.control()?;
    let parts = match Parts::read(stage.cluster, &mut *control, stage.entry, SCHEMA, TABLE) {
        Ok(Some(parts)) => parts,
        Ok(None) => return Ok(Outcome::Differs("the catalog has no parts of a table".to_owned())),
        Err(error) => return Ok(Outcome::Differs(error.to_string())),
    };
    let mut rows = 0;
    for part in &parts.parts {
        for (copy, node) in part.nodes.iter().enumerate() {
            let Ok(node) = node else {
                return Ok(Outcome::Differs(format!("{} is on no known node", part.name)));
            };
            let strange = parts.misplaced(part).unwrap_or_else(|| "false".to_owned());
            let reply = stage.client(*node)?.execute(&format!(
                "select count(*), count(*) filter (where {strange}) from {}.{}",
                connect::sql::identifier(&part.schema),
                connect::sql::identifier(&part.name)
            ))?;
            let row = reply.rows().first().cloned().unwrap_or_default();
            let counts: Vec<i64> = row.iter().filter_map(crate::client::number).collect();
            if counts.get(1) != Some(&0) {
                return Ok(Outcome::Differs(format!(
                    "{} has {:?} rows of other parts",
                    part.name,
                    counts.get(1)
                )));
            }
            rows += counts.first().filter(|_| copy == 0).copied().unwrap_or(0);
        }
    }
    let all = stage.client(stage.entry)?.execute(&format!("select count(*) from {SCHEMA}.{TABLE}"))?.number();
    Ok(Outcome::of(
        all == Some(rows),
        format!("{rows} of {} rows in {} parts", all.unwrap_or(0), parts.parts.len()),
    ))
}

fn of_copies(stage: &mut Stage<'_>, systems: &'static [Replication]) {
    let installed = stage.client(stage.entry).and_then(|mut client| replications(&mut client, |_| true));
    let installed: Vec<&str> = match installed {
        Ok(found) => found.iter().map(|system| system.name).collect(),
        Err(error) => return stage.add("replication", "its systems", Outcome::tried(Err(error))),
    };
    for system in systems {
        match installed.contains(&system.name) {
            true => of_system(stage, system),
            false => {
                let why = "it is not installed in this database".to_owned();
                stage.add(
                    format!("replication: {}", system.name),
                    "its catalog and functions",
                    Outcome::NotChecked(why),
                );
            }
        }
    }
}

fn of_system(stage: &mut Stage<'_>, system: &'static Replication) {
    let Replication {
        name,
        // `discovery`; what it subscribes to is counted by `links`.
        sign: _,
        probe: _,
        nodes: _,
        own: made,
        subscriptions: _,
        sets,
        add_table,
        remove_table,
        local_writes,
        needs_key,
        conflicts,
    } = *system;
    let check = |what: &str| format!("{name}: {what}");
    if let Some(&Sets { word, subscribed, sent, taken }) = sets {
        for (what, sql) in [("subscribed", Some(subscribed)), ("sent", Some(sent)), ("taken", taken)] {
            let Some(sql) = sql else { continue };
            let claimed = format!("its catalog shows each {word} that is {what}");
            let read = stage.client(stage.entry).and_then(|mut client| {
                Ok(Outcome::Agrees(format!("{} rows", client.execute(sql)?.rows().len())))
            });
            stage.add(check(what), claimed, Outcome::tried(read));
        }
    }
    for (what, sql) in [("add table", add_table), ("remove table", remove_table)] {
        let Some(sql) = sql else { continue };
        let table = format!("'{SCHEMA}.wire'::pg_catalog.regclass");
        stage.plan(&check(what), &sql.replace("{table}", &table));
    }
    if let Some((setting, value)) = local_writes {
        let outcome = Outcome::tried(kept(stage, setting, value));
        stage.add(check("local writes"), format!("a session may begin with {setting} = {value}"), outcome);
    }
    if needs_key {
        let why = "it is not tried: a table without a primary key would be made on every node, and could stop replication".to_owned();
        stage.add(check("keys"), "updates need a primary key", Outcome::NotChecked(why));
    }
    if let Some(conflicts) = conflicts {
        stage.add(
            check("conflicts"),
            conflicts,
            Outcome::NotChecked("prove conflict measures it".to_owned()),
        );
    }
    let is_following = stage.site.nodes.len() > 1;
    own::check(stage, made, if is_following { made.slots } else { &[] });
}

/// The sessions of the checks begin with it.
fn kept(stage: &Stage<'_>, setting: &str, value: &str) -> Result<Outcome, ClientError> {
    let reply = stage.client(stage.entry)?.execute(&format!("show {setting}"))?;
    let shown = reply.value().unwrap_or_default();
    Ok(Outcome::of(shown == value, format!("it is {shown}")))
}
