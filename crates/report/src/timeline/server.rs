//! Counters of a node: transactions, WAL and checkpoints, standbys, blocked sessions, the xmin horizon.

use super::Scene;
use super::cells::{Cells, Draw, peers};
use crate::chart::{Chart, ChartKind, Dash, Series, Tone, Unit};
use record::number;
use record::watched::{Sampled, Server};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a block, and so of a full page image at most.
const BLOCK_BYTES: f64 = 8192.0;
/// Kinds of horizon holders, in the order they are drawn.
const HOLDERS: [(&str, Tone, Dash); 4] = [
    ("session", Tone::Main, Dash::Solid),
    ("slot", Tone::Second, Dash::Dashed),
    ("standby", Tone::Ink, Dash::Dotted),
    ("prepared", Tone::Bad, Dash::Solid),
];

/// Adds up one counter of each node.
fn counted(scene: &Scene, value: impl Fn(&Server) -> Option<f64>) -> Cells {
    let mut cells = Cells::new(scene.columns.count);
    for line in scene.lines {
        if let Sampled::Server(server) = &line.what
            && let Some(value) = value(server).filter(|_| line.interval_us > 0)
        {
            cells.add(&server.node, scene.column(line), value, line.seconds());
        }
    }
    cells
}

/// Transactions as the servers count them, for steps without a driver.
pub(super) fn transactions(scene: &Scene) -> Option<Chart> {
    let commits = counted(scene, |server| Some(server.xact_commit? as f64));
    if commits.is_empty() {
        return None;
    }
    let mut chart = scene.chart("commits", "Commits", ChartKind::Time, Unit::TransactionsPerSecond);
    let clause = peers(&mut chart, &commits, Draw::Means, "nodes");
    let rollbacks = counted(scene, |server| Some(server.xact_rollback? as f64));
    if let [only] = rollbacks.things().as_slice() {
        chart.series[0].name = "commits".to_string();
        if rollbacks.peak(only).0 > 0.0 {
            chart.series.push(Series::new("rollbacks", Tone::Bad, Dash::Dashed, rollbacks.means(only)));
        }
    }
    chart.sentence = format!("Counted by the server: {clause}.");
    Some(chart)
}

/// WAL, its full page images, and the writes of checkpoints.
pub(super) fn wal(scene: &Scene) -> Vec<Chart> {
    let bytes = counted(scene, |server| Some(server.wal_bytes? as f64));
    let images =
        counted(scene, |server| Some((server.wal_fpi? as f64 * BLOCK_BYTES).min(server.wal_bytes? as f64)));
    let mut buffers = counted(scene, |server| Some(server.checkpoint_buffers? as f64 * BLOCK_BYTES));
    buffers.drop_below(0.0);
    let mut charts = vec![];
    let things = bytes.things();
    if let [node] = things.as_slice() {
        let mut chart = scene.chart("wal", "WAL and checkpoints", ChartKind::Time, Unit::BytesPerSecond);
        chart.series.push(Series::new("WAL", Tone::Main, Dash::Solid, bytes.means(node)).filled());
        let mean = bytes.mean(node);
        let (peak, column) = bytes.peak(node);
        let at = number::duration(column as f64 * chart.column_s);
        chart.sentence = format!("{} of WAL on average, at most {} at {at}", in_unit(mean), in_unit(peak));
        if !images.is_empty() {
            let name = "of it full page images, at most";
            chart.series.push(Series::new(name, Tone::Second, Dash::Dotted, images.means(node)));
            chart.sentence += &format!(
                "; full page images are at most {} of it",
                number::percent_of(images.mean(node), mean)
            );
        }
        if !buffers.is_empty() {
            chart.series.push(Series::new(
                "written by checkpoints",
                Tone::Ink,
                Dash::Dashed,
                buffers.means(node),
            ));
            chart.sentence += &format!("; checkpoints wrote {} on average", in_unit(buffers.mean(node)));
        }
        chart.sentence += ".";
        charts.push(chart);
        return charts;
    }
    for (name, title, cells) in [("wal", "WAL", &bytes), ("checkpoints", "Written by checkpoints", &buffers)]
    {
        if cells.is_empty() {
            continue;
        }
        let mut chart = scene.chart(name, title, ChartKind::Time, Unit::BytesPerSecond);
        chart.sentence = format!("{}.", peers(&mut chart, cells, Draw::Means, "nodes"));
        charts.push(chart);
    }
    charts
}

fn in_unit(value: f64) -> String {
    super::in_unit(Unit::BytesPerSecond, value)
}

/// The lag of each standby: bytes, and time if known.
pub(super) fn replication(scene: &Scene) -> Vec<Chart> {
    let (mut bytes, mut delays) = (Cells::new(scene.columns.count), Cells::new(scene.columns.count));
    let senders: BTreeSet<&str> = scene
        .lines
        .iter()
        .filter_map(|line| match &line.what {
            Sampled::Replication(standby) => Some(standby.node.as_str()),
            _ => None,
        })
        .collect();
    for line in scene.lines {
        let Sampled::Replication(standby) = &line.what else { continue };
        let name = match senders.len() {
            0 | 1 => standby.standby.clone(),
            _ => format!("{} of {}", standby.standby, standby.node),
        };
        let column = scene.column(line);
        if let Some(lag) = standby.replay_lag_bytes.or(standby.flush_lag_bytes) {
            bytes.add(&name, column, lag as f64, 1.0);
        }
        if let Some(lag) = standby.replay_lag_us.or(standby.flush_lag_us) {
            delays.add(&name, column, lag as f64, 1.0);
        }
    }
    let mut charts = vec![];
    for (name, title, unit, cells) in [
        ("lag-bytes", "Standbys: WAL not replayed yet", Unit::Bytes, &bytes),
        ("lag-time", "Standbys: time until replayed", Unit::Us, &delays),
    ] {
        if cells.is_empty() {
            continue;
        }
        let mut chart = scene.chart(name, title, ChartKind::Time, unit);
        chart.sentence = format!("{}.", peers(&mut chart, cells, Draw::Peaks, "standbys"));
        charts.push(chart);
    }
    charts
}

/// Sessions that wait for others.
pub(super) fn blocked(scene: &Scene) -> Option<Chart> {
    let mut ticks: BTreeMap<(&str, u64), f64> = BTreeMap::new();
    let mut longest: Option<(f64, &record::watched::Block)> = None;
    for line in scene.lines {
        match &line.what {
            Sampled::Server(server) => {
                ticks.entry((&server.node, line.t_us)).or_default();
            }
            Sampled::Block(block) => {
                *ticks.entry((&block.node, line.t_us)).or_default() += 1.0;
                let waited = block.wait_s.unwrap_or(0.0);
                if longest.is_none_or(|(so_far, _)| waited > so_far) {
                    longest = Some((waited, block));
                }
            }
            _ => {}
        }
    }
    let (waited, worst) = longest?;
    let mut cells = Cells::new(scene.columns.count);
    for ((node, t_us), count) in ticks {
        cells.add(node, scene.column_at(t_us), count, 1.0);
    }
    let mut chart = scene.chart("blocked", "Blocked sessions", ChartKind::Time, Unit::Sessions);
    let clause = peers(&mut chart, &cells, Draw::Peaks, "nodes");
    let kind = if worst.lock_type.is_empty() { "lock" } else { &worst.lock_type };
    let root = match (worst.root, worst.root_state.as_str()) {
        (Some(pid), "") => format!(", behind process {pid}"),
        (Some(pid), state) => format!(", behind process {pid} ({state})"),
        _ => String::new(),
    };
    chart.sentence =
        format!("{clause}; the longest sampled wait was {} for a {kind}{root}.", number::duration(waited));
    Some(chart)
}

/// The age of the oldest holder of each kind.
pub(super) fn horizon(scene: &Scene) -> Option<Chart> {
    let mut cells = Cells::new(scene.columns.count);
    let mut oldest: Option<(u64, &record::watched::Horizon)> = None;
    // Of several holders at one tick the oldest counts.
    let mut ticks: BTreeMap<(&str, u64), u64> = BTreeMap::new();
    for line in scene.lines {
        let Sampled::Horizon(holder) = &line.what else { continue };
        let Some(age) = holder.age_xids else { continue };
        let most = ticks.entry((&holder.kind, line.t_us)).or_default();
        *most = (*most).max(age);
        if oldest.is_none_or(|(so_far, _)| age > so_far) {
            oldest = Some((age, holder));
        }
    }
    for ((kind, t_us), age) in ticks {
        cells.add(kind, scene.column_at(t_us), age as f64, 1.0);
    }
    let (age, holder) = oldest.filter(|(age, _)| *age > 0)?;
    let mut chart = scene.chart("horizon", "Xmin horizon", ChartKind::Time, Unit::Transactions);
    for (kind, tone, dash) in HOLDERS {
        if cells.things().contains(&kind) {
            chart.series.push(Series::new(kind, tone, dash, cells.peaks(kind)));
        }
    }
    if chart.series.is_empty() {
        return None;
    }
    let name = if holder.name.is_empty() { String::new() } else { format!(" {}", holder.name) };
    chart.sentence = format!(
        "Age in transactions of the oldest rows that vacuum cannot remove: at most {}, held back by {}{name}{}.",
        number::count(age),
        holder.kind,
        holder.age_s.map(|age| format!(" for {}", number::duration(age))).unwrap_or_default(),
    );
    Some(chart)
}
