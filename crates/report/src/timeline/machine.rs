//! The hosts of the database: CPU, disks by member, network.

use super::cells::{Cells, Draw, peers};
use super::{MULTIPLES_MAX, Scene, in_unit};
use crate::chart::{Chart, ChartKind, Dash, Series, Tone, Unit};
use crate::directory::Line;
use record::number;
use record::watched::{Disk, Host, Sampled};
use std::collections::{BTreeMap, BTreeSet};

/// The use of CPU, with the colour of its layer.
type Part = (&'static str, usize, fn(&Host) -> Option<f64>);
const PARTS: [Part; 5] = [
    ("user", 0, |host| host.cpu_user_pct),
    ("system", 2, |host| host.cpu_system_pct),
    ("iowait", 1, |host| host.cpu_iowait_pct),
    ("softirq", 4, |host| host.cpu_softirq_pct),
    ("steal", 3, |host| host.cpu_steal_pct),
];

/// Requests per second below which a device counts as idle: the mean of a handful of requests proves nothing.
const REQUESTS_MIN: f64 = 1.0;
/// Bytes per second below which a network interface or disk counts as idle.
const BYTES_MIN: f64 = 1024.0;

/// Devices above others, in the chart of those.
const ARRAYS_MAX: usize = 1;

/// All of them.
pub(super) fn charts(scene: &Scene) -> Vec<Chart> {
    let mut charts = cpu(scene);
    charts.extend(disks(scene));
    charts.extend(network(scene));
    charts
}

fn cpu(scene: &Scene) -> Vec<Chart> {
    let mut busy = Cells::new(scene.columns.count);
    for line in scene.lines {
        if let Sampled::Host(host) = &line.what {
            let parts = PARTS.iter().filter(|(name, ..)| *name != "iowait");
            let percent: f64 = parts.filter_map(|(_, _, part)| part(host)).sum();
            busy.add(&host.host, scene.column(line), percent * line.seconds(), line.seconds());
        }
    }
    let hosts: Vec<String> = busy.things().into_iter().map(str::to_string).collect();
    let busiest = hosts.iter().max_by(|left, right| busy.mean(left).total_cmp(&busy.mean(right)));
    match hosts.as_slice() {
        [] => vec![],
        [only] => vec![pile(scene, "host-cpu", "Host CPU".to_string(), only)],
        few if few.len() <= MULTIPLES_MAX => few
            .iter()
            .enumerate()
            .map(|(at, host)| pile(scene, &format!("host-cpu-{at}"), format!("Host CPU, {host}"), host))
            .collect(),
        _ => {
            let mut chart = scene.chart("host-cpu", "Host CPU, busy", ChartKind::Time, Unit::Percent);
            chart.sentence = format!("{}.", peers(&mut chart, &busy, Draw::Means, "hosts"));
            let mut charts = vec![chart];
            charts.extend(busiest.map(|host| {
                pile(scene, "host-cpu-busiest", format!("Host CPU, {host} (the busiest)"), host)
            }));
            charts
        }
    }
}

fn pile(scene: &Scene, name: &str, title: String, host: &str) -> Chart {
    let mut chart = scene.chart(name, &title, ChartKind::Stack, Unit::Percent);
    let mut cells = Cells::new(scene.columns.count);
    let mut cores = None;
    for line in scene.lines {
        let Sampled::Host(sample) = &line.what else { continue };
        if sample.host != host {
            continue;
        }
        cores = sample.cores.or(cores);
        for (name, _, part) in PARTS {
            if let Some(percent) = part(sample) {
                cells.add(name, scene.column(line), percent * line.seconds(), line.seconds());
            }
        }
    }
    let mut detail = vec![];
    for (name, area, _) in PARTS {
        // A layer without data needs no colour.
        if cells.peak(name).0 < 0.05 {
            continue;
        }
        chart.series.push(Series::area(name, area, cells.means(name)));
        detail.push(format!("{name} {}", in_unit(Unit::Percent, cells.mean(name))));
    }
    if chart.series.is_empty() {
        chart.series.push(Series::area("user", 0, cells.means("user")));
    }
    let all = cores.map(|cores| format!(" of {}", number::counted(cores, "core"))).unwrap_or_default();
    chart.sentence = match detail.is_empty() {
        true => format!("Idle{all}."),
        false => format!("On average {}{all}.", detail.join(", ")),
    };
    chart
}

/// The name of a device in a chart.
fn device_name(disk: &Disk, hosts: usize) -> String {
    let mut name = disk.device.clone();
    if hosts > 1 {
        name = format!("{} {name}", disk.host);
    }
    if !disk.used_for.is_empty() {
        name = format!("{name} ({})", disk.used_for);
    } else if !disk.member_of.is_empty() {
        name = format!("{name} in {}", disk.member_of);
    }
    name
}

fn disks(scene: &Scene) -> Vec<Chart> {
    let disks = || {
        scene.lines.iter().filter_map(|line| match &line.what {
            Sampled::Disk(disk) if line.interval_us > 0 => Some((line, disk)),
            _ => None,
        })
    };
    let hosts: BTreeSet<&str> = disks().map(|(_, disk)| disk.host.as_str()).collect();
    let carriers: BTreeSet<(&str, &str)> =
        disks().map(|(_, disk)| (disk.host.as_str(), disk.member_of.as_str())).collect();
    // Bytes are counted at the lowest devices: a device above others would count them twice.
    let is_leaf = |disk: &Disk| !carriers.contains(&(disk.host.as_str(), disk.device.as_str()));
    let count = scene.columns.count;
    let (mut waits, mut arrays, mut flushes) = (Cells::new(count), Cells::new(count), Cells::new(count));
    let (mut flows, mut requests) = (Flows::default(), BTreeMap::<String, (f64, f64)>::new());
    for (line, disk) in disks() {
        let (column, name) = (scene.column(line), device_name(disk, hosts.len()));
        let pairs = [(disk.reads, disk.read_await_ms), (disk.writes, disk.write_await_ms)];
        let known = pairs.into_iter().filter_map(|(count, wait)| Some((count? as f64, wait?)));
        let (done, waited) =
            known.fold((0.0, 0.0), |(done, waited), (count, wait)| (done + count, waited + count * wait));
        // A device above others is not their peer.
        let place = if is_leaf(disk) { &mut waits } else { &mut arrays };
        if done > 0.0 {
            place.add(&name, column, waited * 1e3, done);
        }
        let (all, seconds) = requests.entry(name.clone()).or_default();
        *all += done;
        *seconds += line.seconds();
        if let (Some(count), Some(wait)) = (disk.flushes.filter(|count| *count > 0), disk.flush_await_ms) {
            flushes.add(&name, column, wait * 1e3 * count as f64, count as f64);
        }
        if is_leaf(disk) {
            let (read, written) = (disk.read_bytes.unwrap_or(0), disk.write_bytes.unwrap_or(0));
            flows.add(&disk.host, line, [read, written]);
        }
    }
    let idle: BTreeSet<&str> = requests
        .iter()
        .filter(|(_, (all, seconds))| *all / seconds.max(1e-9) < REQUESTS_MIN)
        .map(|(name, _)| name.as_str())
        .collect();
    waits.keep(|name| !idle.contains(name));
    arrays.keep(|name| !idle.contains(name));
    flushes.drop_below(0.0);
    let mut charts = vec![];
    for (name, title, unit, cells) in [
        ("disk-await", "Disk: mean time of a read or write", Unit::Us, &waits),
        ("disk-flush", "Disk: mean time of a flush", Unit::Us, &flushes),
    ] {
        if cells.is_empty() {
            continue;
        }
        let mut chart = scene.chart(name, title, ChartKind::Time, unit);
        chart.sentence = format!("{}.", peers(&mut chart, cells, Draw::Means, "devices"));
        for array in arrays.things().into_iter().filter(|_| name == "disk-await").take(ARRAYS_MAX) {
            chart.series.push(Series::new(array, Tone::Ink, Dash::Dashed, arrays.means(array)));
            chart.sentence += &format!(" {array}: {} on average.", in_unit(unit, arrays.mean(array)));
        }
        charts.push(chart);
    }
    charts.extend(flows.chart(scene, "disk-bytes", "Disk throughput", ["read", "written"]));
    charts
}

/// Bytes in two directions, summed over the devices of each host at each tick.
#[derive(Debug, Default)]
struct Flows<'a>(BTreeMap<(&'a str, u64), ([f64; 2], u64)>);

impl<'a> Flows<'a> {
    fn add(&mut self, host: &'a str, line: &Line, bytes: [u64; 2]) {
        let (sums, interval_us) = self.0.entry((host, line.t_us)).or_default();
        sums.iter_mut().zip(bytes).for_each(|(sum, bytes)| *sum += bytes as f64);
        *interval_us = (*interval_us).max(line.interval_us);
    }

    /// Two lines for one host, one line for each of several.
    fn chart(&self, scene: &Scene, name: &str, title: &str, directions: [&str; 2]) -> Option<Chart> {
        let hosts: BTreeSet<&str> = self.0.keys().map(|(host, _)| *host).collect();
        let mut cells = Cells::new(scene.columns.count);
        for ((host, t_us), (sums, interval_us)) in &self.0 {
            let column = scene.columns.of(t_us.saturating_sub(*interval_us), *t_us);
            let seconds = *interval_us as f64 / 1e6;
            if hosts.len() == 1 {
                directions.iter().zip(sums).for_each(|(name, sum)| cells.add(name, column, *sum, seconds));
            } else {
                cells.add(host, column, sums.iter().sum(), seconds);
            }
        }
        cells.drop_below(BYTES_MIN);
        if cells.is_empty() {
            return None;
        }
        let mut chart = scene.chart(name, title, ChartKind::Time, Unit::BytesPerSecond);
        if hosts.len() > 1 {
            chart.sentence = format!("{}.", peers(&mut chart, &cells, Draw::Means, "hosts"));
            return Some(chart);
        }
        let tones = [(Tone::Main, Dash::Solid), (Tone::Second, Dash::Dashed)];
        let mut detail = vec![];
        for (direction, (tone, dash)) in directions.iter().zip(tones) {
            if cells.things().contains(direction) {
                chart.series.push(Series::new(direction, tone, dash, cells.means(direction)));
                detail.push(format!("{direction} {}", in_unit(chart.unit, cells.mean(direction))));
            }
        }
        chart.sentence = format!("On average {}.", detail.join(", "));
        Some(chart)
    }
}

fn network(scene: &Scene) -> Option<Chart> {
    let mut flows = Flows::default();
    for line in scene.lines {
        if let Sampled::Net(net) = &line.what
            && line.interval_us > 0
            && net.interface != "lo"
        {
            flows.add(&net.host, line, [net.rx_bytes.unwrap_or(0), net.tx_bytes.unwrap_or(0)]);
        }
    }
    flows.chart(scene, "network", "Network", ["received", "sent"])
}
