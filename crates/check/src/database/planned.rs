//! The node against a plan: the settings that the plan was computed with, its tablespaces, the space on their disks, and the size of its partitions.

use super::draft::{Draft, fail, note, pass, unknown, warn};
use super::given::Storage;
use super::node::{Node, PlannedSpace};
use super::rule::{Check, Judged, Need};
use record::check::{Area, Unit};
use record::number;
use std::collections::BTreeMap;
use std::path::PathBuf;
use watch::sql::json;

/// Blocks of a relation at most (`MaxBlockNumber` in `storage/block.h`).
const BLOCKS_MAX: f64 = 4_294_967_294.0;
/// A partition above this share of the limit has no room for updates.
const PARTITION_SHARE_MAX: f64 = 0.8;

/// The name of the check of free space.
pub(super) const SPACE: &str = "state.planned_space";

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "settings.planned",
        area: Area::Settings,
        title: "the settings that the plan was computed with",
        limits: "another block_size: warning; another max_wal_size or cost of autovacuum: a note",
        units: &[Unit::Bytes, Unit::Count],
        needs: &[Need::Plan],
        why: "sizes, checkpoints and the time of vacuum in the plan are those of other settings than this server has",
        judge: settings,
    },
    Check {
        id: "schema.planned_partitions",
        area: Area::Schema,
        title: "the partitions of the plan against the size limit of this server",
        limits: "80 % of 2^32 - 2 blocks of this server: warning; all of it: fail",
        units: &[Unit::Bytes],
        needs: &[Need::Plan],
        why: "at the limit every insert fails (seen: 70 partitions, so that none reaches it)",
        judge: partitions,
    },
    Check {
        id: "state.planned_tablespaces",
        area: Area::State,
        title: "the tablespaces of the plan",
        limits: "a named one is missing: fail; fewer than the plan has volumes: warning",
        units: &[Unit::Count],
        needs: &[Need::Plan],
        why: "the load stops when it creates a partition in a tablespace that is missing, or fills one disk while the others stay empty",
        judge: tablespaces,
    },
    Check {
        id: SPACE,
        area: Area::State,
        title: "free space of the tablespaces' disks against the plan",
        limits: "less than the planned rows, indexes and sorting, or rows and reserve: fail; data that is there already counts as used",
        units: &[Unit::Bytes],
        needs: &[Need::Plan],
        why: "the load ends when the disk is full, after days",
        judge: space,
    },
];

/// What the plan needs; the checks run only with one.
fn storage(node: &Node<'_>) -> Storage {
    node.expected.storage.clone().unwrap_or_default()
}

fn settings(node: &mut Node<'_>) -> Judged {
    let assumed = storage(node).server;
    let mut drafts = Vec::new();
    let pairs = [
        ("block_size", assumed.block_bytes as f64, Unit::Bytes),
        ("max_wal_size", assumed.max_wal_bytes as f64, Unit::Bytes),
        ("autovacuum_max_workers", assumed.vacuum_workers as f64, Unit::Count),
        ("autovacuum_vacuum_cost_limit", assumed.vacuum_cost_limit, Unit::Count),
        ("autovacuum_vacuum_cost_delay", assumed.vacuum_cost_delay_ms, Unit::Count),
    ];
    for (name, planned, unit) in pairs {
        let mut setting = node.setting(name)?;
        // -1 is the value of the general setting.
        if setting.number().is_some_and(|value| value < 0.0) {
            setting = node.setting(name.trim_start_matches("autovacuum_"))?;
        }
        let actual = match unit {
            Unit::Bytes => setting.bytes().or_else(|| setting.number()),
            _ => setting.number(),
        };
        let Some(actual) = actual.filter(|actual| (actual - planned).abs() > planned.abs() * 1e-6) else {
            continue;
        };
        let shown = if unit == Unit::Bytes { number::bytes(planned) } else { number::three(planned) };
        let claim = format!("{}; the plan was computed with {shown}", setting.words());
        let make = if name == "block_size" { warn } else { note };
        drafts.push(
            make(name.to_string(), claim)
                .figure(actual, unit)
                .advice("make the plan again with the server as its target: pgfathom plan load ... -d DBNAME -o plan.json"),
        );
    }
    if drafts.is_empty() {
        drafts.push(pass("the plan was computed with the settings of this server"));
    }
    Ok(drafts)
}

fn partitions(node: &mut Node<'_>) -> Judged {
    let planned = storage(node).partition_bytes;
    let most = BLOCKS_MAX * node.block_bytes();
    let claim = format!(
        "the largest partition of the plan has {}, a relation of this server at most {}",
        number::bytes(planned),
        number::bytes(most)
    );
    let make: fn(String) -> Draft = match planned / most {
        share if share >= 1.0 => |claim| fail("", claim),
        share if share >= PARTITION_SHARE_MAX => |claim| warn("", claim),
        _ => return Ok(vec![pass(claim).figure(planned, Unit::Bytes).at_most(most * PARTITION_SHARE_MAX)]),
    };
    let draft = make(claim).figure(planned, Unit::Bytes).at_most(most * PARTITION_SHARE_MAX);
    Ok(vec![draft.advice("plan more partitions: --partitions")])
}

/// The tablespaces of the server with their folders: an absent one may not be read. The database's own is the first.
fn places(node: &mut Node<'_>) -> Result<Vec<(String, Option<PathBuf>)>, watch::sql::session::Failed> {
    let folder = node.setting("data_directory").ok().map(|setting| PathBuf::from(&setting.value));
    let found = node.list(
        "",
        "select t.spcname as name, pg_catalog.pg_tablespace_location(t.oid) as folder, t.oid = d.dattablespace as is_own
           from pg_catalog.pg_tablespace t, pg_catalog.pg_database d
          where d.datname = pg_catalog.current_database() and t.spcname <> 'pg_global'",
        "is_own desc, 1",
    )?;
    let place = |row: &serde_json::Value| {
        let own = json::text(row, "folder");
        let at = match (own.is_empty(), &folder) {
            (true, data) => data.clone(),
            // A tablespace of the data directory has a relative path.
            (false, Some(data)) => Some(data.join(&own)),
            (false, None) => own.starts_with('/').then(|| PathBuf::from(&own)),
        };
        (json::text(row, "name"), at)
    };
    Ok(found.rows.iter().map(place).collect())
}

fn tablespaces(node: &mut Node<'_>) -> Judged {
    let planned = storage(node);
    let places = places(node)?;
    let is_there = |name: &String| places.iter().any(|(known, _)| known == name);
    let mut missing: Vec<Draft> = Vec::new();
    for name in planned.tablespaces.iter().filter(|name| !is_there(name)) {
        missing.push(
            fail(
                name.clone(),
                format!("the plan puts partitions into tablespace {name}, which this server does not have"),
            )
            .advice("create it on its disk before the load: CREATE TABLESPACE ... LOCATION ..."),
        );
    }
    let own = places.iter().filter(|(name, _)| name != "pg_default").count() as u64;
    if planned.tablespaces.is_empty() && planned.volumes > 1 && own < planned.volumes {
        let claim = format!(
            "the plan has {} volumes for each node; this server has {}",
            planned.volumes,
            number::counted(own, "tablespace")
        );
        missing.push(
            warn("", claim)
                .figure(own as f64, Unit::Count)
                .at_least(planned.volumes as f64)
                .advice("create one on each disk, and name them in the plan: --tablespaces; or plan with --raid, if the disks are one volume"),
        );
    }
    if missing.is_empty() {
        missing.push(pass(match planned.tablespaces.len() {
            0 => "the plan names no tablespace that is missing".to_string(),
            count => format!("{} of the plan are there", number::counted(count as u64, "tablespace")),
        }));
    }
    Ok(missing)
}

fn space(node: &mut Node<'_>) -> Judged {
    let planned = storage(node);
    let all = places(node)?;
    let used: Vec<&(String, Option<PathBuf>)> = if !planned.tablespaces.is_empty() {
        all.iter().filter(|(name, _)| planned.tablespaces.contains(name)).collect()
    } else if planned.volumes <= 1 {
        all.iter().take(1).collect()
    } else {
        all.iter().filter(|(name, _)| name != "pg_default").collect()
    };
    if used.is_empty() {
        return Ok(vec![unknown(
            "not checked: free space",
            "this server has none of the tablespaces of the plan",
        )]);
    }
    // Tablespaces on one file system share its space.
    let mut needs: BTreeMap<String, (Vec<&str>, f64, f64)> = BTreeMap::new();
    let mut drafts = Vec::new();
    for (name, folder) in used {
        let Some((system, free)) = folder.as_deref().and_then(|folder| node.free_space(folder)) else {
            let why = match folder {
                Some(folder) => {
                    format!("{} is on a host that was not checked, or may not be read", folder.display())
                }
                None => "the role may not read data_directory".to_string(),
            };
            drafts.push(unknown(format!("not checked: free space of tablespace {name}"), why));
            continue;
        };
        let entry = needs.entry(system).or_insert((vec![], 0.0, free as f64));
        entry.0.push(name);
        entry.1 += planned.volume_bytes;
    }
    for (system, (names, needed, free)) in needs {
        node.planned_space.push(PlannedSpace { system, free_bytes: free, needed_bytes: needed });
        let names = names.join(", ");
        let claim =
            format!("{} are free for {names}; the plan needs {}", number::bytes(free), number::bytes(needed));
        let is_enough = free >= needed;
        let draft = if is_enough { pass(claim) } else { fail(names, claim) };
        let draft = draft.figure(free, Unit::Bytes).at_least(needed);
        drafts.push(if is_enough {
            draft
        } else {
            draft.advice("load fewer rows, or give each tablespace a disk that is large enough")
        });
    }
    Ok(drafts)
}
