//! What a plan reads of a live target: nodes, settings, free space, ages, round trips. Everything here only reads.

use crate::connection::Address;
use crate::context::Context;
use crate::failure::Failure;
use connect::cluster_file::Role;
use connect::control::{self, Control};
use engines::profile::Storage;
use engines::{Cluster, ClusterNode, Engine};
use record::plan::input::{Hardware, OtherStorage, Ping, Server, Topology};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// Round trips of a node that are measured; the shortest one counts.
const ROUND_TRIPS: usize = 20;
/// What settings are read; their values are in their units of `pg_settings`.
const SETTINGS: &str = "select name, setting, coalesce(unit, '') from pg_catalog.pg_settings where name in ('block_size', \
     'max_wal_size', 'checkpoint_timeout', 'checkpoint_completion_target', 'full_page_writes', 'autovacuum_max_workers', \
     'autovacuum_vacuum_cost_limit', 'vacuum_cost_limit', 'autovacuum_vacuum_cost_delay', 'vacuum_cost_page_miss', \
     'vacuum_cost_page_dirty', 'autovacuum_freeze_max_age', 'max_connections', 'synchronous_standby_names')";

/// A live target.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Live {
    pub(super) server: Server,
    pub(super) hardware: Hardware,
    pub(super) pings: Vec<Ping>,
    /// How the target commits, in round trips.
    pub(super) topology: Option<Topology>,
    pub(super) engine: Engine,
    /// If the engine stores rows otherwise than PostgreSQL does.
    pub(super) other_storage: Option<OtherStorage>,
}

/// Reads a target.
pub(super) fn read(address: &Address, context: &Context) -> Result<Live, Failure> {
    let survey = address.survey(context)?;
    let cluster = &survey.cluster;
    for absent in &survey.absent {
        context.terminal.warn(&format!("{} is not counted: {}", absent.name, absent.why));
    }
    let mut first = control::connect(&cluster.nodes[0].spec)?;
    let (nodes, standbys) = shape(cluster);
    let engine = cluster.engine;
    if let Storage::Other(how) = engine.storage {
        // Of its settings only this one means what it means on PostgreSQL, and not every engine has it.
        let settings = settings(&mut first).unwrap_or_default();
        let most = value(&settings, "max_connections").filter(|most| *most > 0.0).unwrap_or(0.0);
        let source = format!("not read: PostgreSQL's settings do not apply to {}", engine.title);
        return Ok(Live {
            server: Server { source, max_connections: most as u64, ..Server::default() },
            hardware: Hardware { nodes, standbys, ..Hardware::default() },
            pings: pings(cluster, context),
            topology: topology(cluster, &settings, nodes),
            engine,
            other_storage: Some(OtherStorage { engine: engine.title.to_owned(), how: how.to_owned() }),
        });
    }
    let settings = settings(&mut first)?;
    let server = server_of(&settings, &mut first)?;
    let volumes = volumes(&mut first, context);
    let hardware = Hardware {
        nodes,
        standbys,
        disks: volumes.len().max(1) as u64,
        // A volume that is smaller than the others decides.
        disk_bytes: volumes.values().copied().min().unwrap_or(0),
        ..Hardware::default()
    };
    let topology = topology(cluster, &settings, nodes);
    Ok(Live { server, hardware, pings: pings(cluster, context), topology, engine, other_storage: None })
}

/// Nodes that share the rows, and full copies of each.
pub(super) fn shape(cluster: &Cluster) -> (u64, u64) {
    let count = |of: &dyn Fn(Role) -> bool| cluster.nodes.iter().filter(|node| of(node.role)).count() as u64;
    let peers = count(&|role| role == Role::Peer);
    if peers > 0 {
        return (1, peers - 1);
    }
    let standbys = count(&|role| role == Role::Standby);
    // A coordinator has no rows of sharded tables.
    let nodes = count(&|role| !matches!(role, Role::Standby | Role::Coordinator)).max(1);
    (nodes, standbys / nodes)
}

type Settings = BTreeMap<String, (String, String)>;

fn settings(control: &mut Control) -> Result<Settings, Failure> {
    let rows =
        control.query(SETTINGS, &[]).map_err(|error| Failure::caused("cannot read the settings", error))?;
    Ok(rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2)))).collect())
}

/// A setting as a number in bytes, seconds or milliseconds, by its unit.
fn value(settings: &Settings, name: &str) -> Option<f64> {
    let (value, unit) = settings.get(name)?;
    let unit = match unit.as_str() {
        "kB" => 1_024.0,
        "8kB" => 8_192.0,
        "MB" => 1_048_576.0,
        "GB" => 1_073_741_824.0,
        _ => 1.0,
    };
    Some(value.parse::<f64>().ok()? * unit)
}

fn server_of(settings: &Settings, control: &mut Control) -> Result<Server, Failure> {
    let default = Server::default();
    let number =
        |name: &str, default: f64| value(settings, name).filter(|value| *value >= 0.0).unwrap_or(default);
    let whole = |name: &str, default: u64| number(name, default as f64) as u64;
    let sql = "select pg_catalog.max(pg_catalog.age(datfrozenxid))::int8, pg_catalog.current_setting('server_version') \
               from pg_catalog.pg_database";
    let row = control
        .query_one(sql, &[])
        .map_err(|error| Failure::caused("cannot read the age of the databases", error))?;
    let version: String = row.get(1);
    Ok(Server {
        source: format!("PostgreSQL {}, live", version.split(' ').next().unwrap_or_default()),
        block_bytes: whole("block_size", default.block_bytes),
        max_wal_bytes: whole("max_wal_size", default.max_wal_bytes),
        checkpoint_timeout_s: number("checkpoint_timeout", default.checkpoint_timeout_s),
        checkpoint_completion_target: number(
            "checkpoint_completion_target",
            default.checkpoint_completion_target,
        ),
        is_full_page_writes_on: settings.get("full_page_writes").is_none_or(|(value, _)| value == "on"),
        vacuum_workers: whole("autovacuum_max_workers", default.vacuum_workers),
        // -1 is the value of the general setting.
        vacuum_cost_limit: number(
            "autovacuum_vacuum_cost_limit",
            number("vacuum_cost_limit", default.vacuum_cost_limit),
        ),
        vacuum_cost_delay_ms: number("autovacuum_vacuum_cost_delay", default.vacuum_cost_delay_ms),
        vacuum_cost_page_miss: number("vacuum_cost_page_miss", default.vacuum_cost_page_miss),
        vacuum_cost_page_dirty: number("vacuum_cost_page_dirty", default.vacuum_cost_page_dirty),
        freeze_max_age: whole("autovacuum_freeze_max_age", default.freeze_max_age),
        age: row.get::<_, Option<i64>>(0).unwrap_or(0).unsigned_abs(),
        max_connections: whole("max_connections", default.max_connections),
    })
}

/// Bytes that are free on each volume of the first node, by its file system: the tablespaces, or without any the data directory. Only of a server
/// on this host.
fn volumes(control: &mut Control, context: &Context) -> BTreeMap<u64, u64> {
    let sql = "select pg_catalog.pg_tablespace_location(oid) from pg_catalog.pg_tablespace \
               where pg_catalog.pg_tablespace_location(oid) operator(pg_catalog.<>) '' \
               union all select pg_catalog.current_setting('data_directory')";
    let mut paths: Vec<String> = match control.query(sql, &[]) {
        Ok(rows) => rows.iter().map(|row| row.get(0)).collect(),
        Err(_) => {
            context.terminal.warn("the role may not read data_directory: give --disk for the capacity");
            return BTreeMap::new();
        }
    };
    if paths.len() > 1 {
        paths.pop();
    }
    let mut volumes = BTreeMap::new();
    for path in paths {
        let device = std::fs::metadata(&path).map(|there| std::os::unix::fs::MetadataExt::dev(&there));
        match (device, rustix::fs::statvfs(Path::new(&path))) {
            (Ok(device), Ok(found)) => {
                volumes.insert(device, found.f_bavail.saturating_mul(found.f_frsize));
            }
            _ => {
                context.terminal.warn(&format!("{path} is not on this host: give --disk for the capacity"));
                return BTreeMap::new();
            }
        }
    }
    volumes
}

/// The shortest round trip from this client to each node.
/// A node that does not answer counts all the same, with a warning.
fn pings(cluster: &Cluster, context: &Context) -> Vec<Ping> {
    let ping = |node: &ClusterNode| {
        let connected = control::connect(&node.spec);
        if let Err(error) = &connected {
            context
                .terminal
                .warn(&format!("{} is counted, and its round trip is not known: {error}", node.name));
        }
        let mut control = connected.ok()?;
        let mut shortest = f64::INFINITY;
        for _ in 0..ROUND_TRIPS {
            let begun = Instant::now();
            control.query_one("select 1", &[]).ok()?;
            shortest = shortest.min(begun.elapsed().as_secs_f64() * 1e6);
        }
        Some(Ping { name: format!("this client to {}", node.name), us: shortest })
    };
    cluster.nodes.iter().filter_map(ping).collect()
}

fn topology(cluster: &Cluster, settings: &Settings, nodes: u64) -> Option<Topology> {
    let waits = settings.get("synchronous_standby_names").is_some_and(|(names, _)| !names.is_empty());
    let others = usize::try_from(nodes.saturating_sub(1)).ok()?;
    // The widest transaction: it writes on the node that it enters at, and on every other one.
    let cost = cluster.engine.commit.protocol.cost((true, others), waits, false);
    Some(Topology {
        name: format!("the target: {}", cost.words),
        round_trips: cost.round_trips,
        fixed_us: 0.0,
    })
}
