//! What the terminal shows of a plan: plain ASCII, one topic per line, and the forecast as bars.

use record::number;
use record::plan::input::OtherStorage;
use record::plan::{Formula, Plan};
use std::fmt::Write as _;

/// The widest line.
const WIDTH: usize = 110;
/// The width of the names in front of the lines.
const LABEL: usize = 10;
/// The widest bar, and the number of bars.
const BAR: usize = 50;
const BARS: usize = 14;
/// Events of the simulation that are listed.
const HAPPENED_MAX: usize = 12;

/// The plan for people; ends with a line feed.
pub fn report(plan: &Plan) -> String {
    let mut out = String::new();
    match &plan.input.other_storage {
        None => {
            data(&mut out, plan);
            layout(&mut out, plan);
            time(&mut out, plan);
            wal(&mut out, plan);
            upkeep(&mut out, plan);
        }
        Some(other) => {
            values(&mut out, plan, other);
            time(&mut out, plan);
        }
    }
    clients(&mut out, plan);
    commits(&mut out, plan);
    money(&mut out, plan);
    forecast(&mut out, plan);
    for problem in &plan.problems {
        line(&mut out, "problem", problem);
    }
    for note in &plan.notes {
        line(&mut out, "note", note);
    }
    let result = match (plan.fits, plan.space.is_known) {
        (false, _) if plan.input.other_storage.is_some() => {
            "the problems above; whether it fits is not known, because what rows take on disk is unknown"
        }
        (true, _) if plan.input.other_storage.is_some() => {
            "whether it fits is not known, because what rows take on disk is unknown; nothing else speaks against it"
        }
        (false, _) => "it does not fit",
        (true, true) => "it fits",
        (true, false) => "whether it fits is not known: no capacity is given; nothing else speaks against it",
    };
    line(&mut out, "result", result);
    out
}

/// Every formula with its inputs and its result.
pub fn explain(plan: &Plan) -> String {
    let mut out = String::new();
    for Formula { name, expression, inputs, result, unit } in &plan.formulas {
        let _ = writeln!(out, "{name} = {expression} = {}", unit.text(*result));
        for input in inputs {
            let _ = writeln!(out, "    {} = {}", input.name, input.unit.text(input.value));
        }
    }
    out
}

/// A line with its name in front, folded.
fn line(out: &mut String, label: &str, text: &str) {
    let mut column = 0;
    let _ = write!(out, "{label:LABEL$}");
    for word in text.split(' ') {
        if column > 0 && LABEL + column + 1 + word.len() > WIDTH {
            let _ = write!(out, "\n{:LABEL$}", "");
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += word.len();
    }
    out.push('\n');
}

fn bytes(value: u64) -> String {
    number::bytes(value as f64)
}

fn data(out: &mut String, plan: &Plan) {
    let size = &plan.size;
    let mut parts =
        vec![format!("heap {}", bytes(size.heap_bytes)), format!("indexes {}", bytes(size.index_bytes))];
    if size.toast_bytes > 0 {
        parts.push(format!("TOAST {}", bytes(size.toast_bytes)));
    }
    line(
        out,
        "data",
        &format!(
            "{}: {}, {} of values, {} on disk ({}), {} B a row, WAL {}",
            plan.input.dataset,
            number::counted(size.rows, "row"),
            bytes(size.value_bytes),
            bytes(size.disk_bytes),
            parts.join(", "),
            number::three(size.disk_bytes_per_row),
            bytes(size.wal_bytes)
        ),
    );
    line(out, "sizes", &plan.input.sizes_from);
}

/// What is known, and what is not, of an engine that stores rows otherwise than PostgreSQL.
fn values(out: &mut String, plan: &Plan, other: &OtherStorage) {
    let size = &plan.size;
    let data = format!(
        "{}: {}, {} of values",
        plan.input.dataset,
        number::counted(size.rows, "row"),
        bytes(size.value_bytes)
    );
    line(out, "data", &data);
    line(out, "nodes", &number::counted(plan.input.hardware.nodes, "node"));
    let unknown = format!(
        "bytes on disk, partitions, log and checkpoints, transaction ids, vacuum: they do not follow from PostgreSQL's pages, because {} {}",
        other.engine, other.how
    );
    line(out, "unknown", &unknown);
}

fn layout(out: &mut String, plan: &Plan) {
    let (layout, space, hardware) = (&plan.layout, &plan.space, &plan.input.hardware);
    let disks = if layout.volumes_per_node > 1 { "a tablespace for each disk" } else { "one volume" };
    line(
        out,
        "nodes",
        &format!(
            "{} with {} of {}, {disks}{}",
            number::counted(hardware.nodes, "node"),
            number::counted(hardware.disks, "disk"),
            if hardware.disk_bytes > 0 { bytes(hardware.disk_bytes) } else { "unknown capacity".into() },
            if hardware.standbys > 0 {
                format!(", each with {}", number::counted(hardware.standbys, "standby"))
            } else {
                String::new()
            }
        ),
    );
    line(
        out,
        "layout",
        &format!(
            "{} of {} each (limit {}); {} for each node by the limit alone",
            number::counted(layout.partitions, "partition"),
            bytes(layout.partition_bytes),
            bytes(layout.relation_bytes_max),
            layout.partitions_per_node_min
        ),
    );
    if layout.volumes_per_node > 1 {
        let map: Vec<String> = layout
            .tablespaces
            .iter()
            .map(|one| {
                format!("{} {} x {}", one.name, one.partitions, bytes(one.bytes / one.partitions.max(1)))
            })
            .collect();
        line(out, "map", &format!("on each node, index beside its table: {}", map.join(", ")));
    }
    let needed = format!("{} at the end, {} at most", bytes(space.final_bytes), bytes(space.peak_bytes));
    let text = match space.is_known {
        false => format!("the fullest volume takes {needed}"),
        true => format!(
            "{} on a volume: {needed}; {} must be free when the rows are copied (--keep-free), {} at the end; {} rows fit",
            bytes(space.volume_bytes),
            bytes(space.keep_free_while_copying_bytes),
            bytes(space.keep_free_bytes),
            number::count(space.rows_max)
        ),
    };
    line(out, "space", &text);
}

fn time(out: &mut String, plan: &Plan) {
    let (time, loading) = (&plan.time, &plan.input.loading);
    let per_s = |rate: f64| format!("{}/s", number::bytes(rate));
    let mut rates = vec![];
    if let (Some(needed), Some(deadline)) = (time.needed_bytes_per_s, loading.deadline_s) {
        rates.push(format!("{} needed for {}", per_s(needed), number::duration(deadline)));
    }
    if let Some(rate) = &loading.rate {
        rates.push(format!("{} ({})", per_s(rate.bytes_per_s), rate.source));
    }
    if !rates.is_empty() {
        line(out, "rate", &rates.join("; "));
    }
    if let Some(total) = time.total_s {
        let range = [time.total_s_low, time.total_s_high].map(|end| number::duration(end.unwrap_or(total)));
        let spare = time
            .spare_s
            .filter(|spare| *spare >= 0.0)
            .map(|spare| format!(", {} to spare", number::duration(spare)));
        let parts = time.copy_s.zip(time.index_s).map_or_else(String::new, |(copy, index)| {
            format!(": copy {}, indexes {}", number::duration(copy), number::duration(index))
        });
        let rows = if time.rows < plan.size.rows {
            format!(" for {} rows", number::count(time.rows))
        } else {
            String::new()
        };
        line(
            out,
            "time",
            &format!(
                "{}{rows} ({} to {}){parts}{}",
                number::duration(total),
                range[0],
                range[1],
                spare.unwrap_or_default()
            ),
        );
    }
}

fn wal(out: &mut String, plan: &Plan) {
    let wal = &plan.wal;
    let mut parts = vec![format!("{} of WAL between checkpoints", bytes(wal.checkpoint_bytes))];
    if let (Some(rate), Some(seconds), Some(wanted)) =
        (wal.bytes_per_s, wal.checkpoint_s, wal.max_wal_size_wanted)
    {
        let rate = number::bytes(rate);
        parts.push(format!("{rate}/s on a node, a checkpoint every {}", number::duration(seconds)));
        parts.push(format!("max_wal_size for one in checkpoint_timeout: {}", bytes(wanted)));
    }
    line(out, "wal", &parts.join("; "));
}

fn upkeep(out: &mut String, plan: &Plan) {
    let (ids, vacuum) = (&plan.transactions, &plan.vacuum);
    let left = ids.left_s.map(|seconds| format!(", in {} at the planned rate", number::duration(seconds)));
    line(
        out,
        "ids",
        &format!(
            "the load takes {} transaction ids on a node; {} are left until a vacuum against wraparound{}, which reads {} ({} if the rows are frozen)",
            number::count(ids.load),
            number::count(ids.left),
            left.unwrap_or_default(),
            bytes(ids.vacuum_bytes),
            bytes(ids.vacuum_bytes_frozen)
        ),
    );
    let duration = |seconds: Option<f64>| seconds.map_or_else(|| "unknown".to_string(), number::duration);
    let rate = vacuum
        .delayed_bytes_per_s
        .map(|rate| format!(" ({}/d by each worker)", number::bytes(rate * 86_400.0)));
    let limited = match vacuum.duration_s {
        Some(seconds) => format!("{}, limited by {}", number::duration(seconds), vacuum.limited_by),
        None => "of unknown duration: give --disk-read and --wal-rate".into(),
    };
    line(
        out,
        "vacuum",
        &format!(
            "of everything, {limited}; {}: by cost delay {}{}, by reading {}, by WAL {} ({} on a node)",
            number::counted(vacuum.workers, "worker"),
            duration(vacuum.by_delay_s),
            rate.unwrap_or_default(),
            duration(vacuum.by_read_s),
            duration(vacuum.by_wal_s),
            bytes(vacuum.wal_bytes)
        ),
    );
}

fn clients(out: &mut String, plan: &Plan) {
    let (clients, loading) = (&plan.clients, &plan.input.loading);
    let mut parts = vec![format!(
        "{}, {} to each node",
        number::counted(loading.streams, "stream"),
        number::counted(clients.connections_per_node, "connection")
    )];
    if let Some(cores) = clients.load_cores {
        parts.push(format!("{} cores for the load", number::three(cores)));
    }
    if let Some(cores) = clients.run_cores {
        parts.push(format!("{} cores for the run", number::three(cores)));
    }
    if let Some(hosts) = clients.hosts {
        parts.push(number::counted(hosts, "client host"));
    }
    if plan.input.hardware.standbys > 0 {
        parts.push(format!(
            "standbys leave {} of the cores for writes",
            number::percent(clients.replica_utilisation)
        ));
    }
    line(out, "client", &parts.join("; "));
}

fn commits(out: &mut String, plan: &Plan) {
    let pings = &plan.input.pings;
    if pings.is_empty() || plan.commits.is_empty() {
        return;
    }
    let names: Vec<String> =
        pings.iter().map(|ping| format!("{} {}", ping.name, number::latency(ping.us))).collect();
    line(out, "commit", &format!("at least, in sequential round trips, for {}", names.join(", ")));
    let width = plan.commits.iter().map(|commit| commit.topology.len()).max().unwrap_or(0);
    for commit in &plan.commits {
        let latencies: Vec<String> =
            commit.latency_us.iter().map(|us| format!("{:>9}", number::latency(*us))).collect();
        let topology = plan.input.topologies.iter().find(|topology| topology.name == commit.topology);
        let planning = topology.map(|topology| topology.fixed_us).filter(|us| *us > 0.0);
        let _ = writeln!(
            out,
            "{:LABEL$}{:width$}  {:>4} RTT {}{}",
            "",
            commit.topology,
            number::three(commit.round_trips),
            latencies.join(" "),
            planning.map_or(String::new(), |us| format!("  with {} for planning", number::latency(us)))
        );
    }
}

fn money(out: &mut String, plan: &Plan) {
    let Some(money) = &plan.money else { return };
    let mut parts = vec![format!("{} an hour", number::three(money.per_hour))];
    parts.extend(money.load.map(|load| format!("{} for the load", number::three(load))));
    let million = money.per_million_transactions;
    parts.extend(million.map(|price| format!("{} for a million transactions", number::three(price))));
    line(out, "money", &parts.join("; "));
}

fn forecast(out: &mut String, plan: &Plan) {
    let forecast = &plan.forecast;
    if forecast.events == 0 {
        return;
    }
    line(
        out,
        "forecast",
        &format!(
            "{}: {} rows copied after {}, end after {}; {} simulated events, seed {}",
            forecast.outcome,
            number::count(forecast.rows),
            number::duration(forecast.copied_s),
            number::duration(forecast.end_s),
            number::count(forecast.events),
            plan.input.seed
        ),
    );
    let is_disk = plan.space.is_known;
    let all = plan.size.rows.max(1) as f64;
    let step = forecast.points.len().div_ceil(BARS).max(1);
    let last = forecast.points.len().saturating_sub(1);
    let shown = forecast.points.iter().enumerate().filter(|(at, _)| at % step == 0 || *at == last);
    let what = if is_disk { "fullest volume" } else { "rows" };
    let _ = writeln!(out, "{:LABEL$}{:>11}  {:>8}  {:>9}  {what}", "", "after", "rows", "on disk");
    for (_, point) in shown {
        let share = if is_disk { point.fullest } else { point.rows as f64 / all };
        let full = ((share * BAR as f64).round() as usize).min(BAR);
        let slow = if point.slowest < 0.9 * point.rows as f64 / all {
            format!("  slowest node {}", number::percent(point.slowest))
        } else {
            String::new()
        };
        let _ = writeln!(
            out,
            "{:LABEL$}{:>11}  {:>8}  {:>9}  |{}{}| {}{slow}",
            "",
            number::duration(point.t_s),
            number::short(point.rows as f64),
            bytes(point.disk_bytes),
            "#".repeat(full),
            " ".repeat(BAR - full),
            number::percent(share)
        );
    }
    for happened in forecast.happened.iter().take(HAPPENED_MAX) {
        let _ = writeln!(out, "{:LABEL$}{:>11}  {}", "", number::duration(happened.t_s), happened.what);
    }
    if forecast.happened.len() > HAPPENED_MAX {
        let _ = writeln!(out, "{:LABEL$}and {} more in the plan", "", forecast.happened.len() - HAPPENED_MAX);
    }
}
