//! Waits of sessions and server processes: average active sessions stacked by class, CPU at the bottom.

use super::{MULTIPLES_MAX, Scene};
use crate::chart::{AREAS_MAX, Chart, ChartKind, Dash, Series, Tone, Unit, tidy};
use crate::directory::Line;
use record::number;
use record::watched::{Sampled, WAIT_CPU, Wait};
use std::collections::{BTreeMap, BTreeSet};

/// Classes of activity and waits. The order is that of the stack, from the bottom.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Class {
    /// It computes, or wants to.
    Cpu,
    /// Data files.
    Io,
    /// The write-ahead log: its locks, its files, its buffers.
    Wal,
    /// Heavyweight locks: rows, relations, transactions.
    Lock,
    /// Locks of shared memory, without those of the WAL.
    LwLock,
    /// Other processes, mainly a synchronous standby.
    Ipc,
    /// The client, within a transaction or a reply.
    Client,
    /// Sleeps: the cost limit of vacuum, `pg_sleep`.
    Timeout,
    /// Everything else.
    Other,
}

impl Class {
    pub(crate) const ALL: [Class; 9] = [
        Class::Cpu,
        Class::Io,
        Class::Wal,
        Class::Lock,
        Class::LwLock,
        Class::Ipc,
        Class::Client,
        Class::Timeout,
        Class::Other,
    ];

    pub(crate) fn of(wait: &Wait) -> Class {
        let is_wal = wait.wait_event.to_ascii_lowercase().contains("wal");
        match wait.wait_type.as_str() {
            WAIT_CPU => Class::Cpu,
            "IO" | "LWLock" if is_wal => Class::Wal,
            "IO" => Class::Io,
            "LWLock" => Class::LwLock,
            "Lock" => Class::Lock,
            "IPC" => Class::Ipc,
            "Client" => Class::Client,
            "Timeout" => Class::Timeout,
            _ => Class::Other,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Class::Cpu => "CPU",
            Class::Io => "IO",
            Class::Wal => "WAL",
            Class::Lock => "Lock",
            Class::LwLock => "LWLock",
            Class::Ipc => "IPC",
            Class::Client => "Client",
            Class::Timeout => "Timeout",
            Class::Other => "other",
        }
    }

    /// Its colour, the same on every page. The two rarest share one.
    fn area(self) -> usize {
        Class::ALL.iter().position(|class| *class == self).unwrap_or(0).min(AREAS_MAX - 1)
    }
}

/// Average active sessions of some lines: by class and by event, and the number of samples.
#[derive(Clone, Debug, Default)]
pub(crate) struct Active {
    pub(crate) by_class: BTreeMap<Class, f64>,
    /// `LWLock:WALWrite`.
    pub(crate) by_event: BTreeMap<String, f64>,
    ticks: BTreeMap<String, BTreeSet<u64>>,
}

impl Active {
    /// Adds up some lines.
    pub(crate) fn of<'a>(lines: impl IntoIterator<Item = &'a Line>) -> Active {
        let mut active = Active::default();
        for line in lines {
            active.take(line);
        }
        let looks = active.looks();
        active
            .by_class
            .values_mut()
            .chain(active.by_event.values_mut())
            .for_each(|sessions| *sessions /= looks);
        active
    }

    fn take(&mut self, line: &Line) {
        match &line.what {
            Sampled::Server(server) => {
                self.ticks.entry(server.node.clone()).or_default().insert(line.t_us);
            }
            Sampled::Wait(wait) if is_at_work(wait) => {
                let sessions = wait.sessions as f64;
                *self.by_class.entry(Class::of(wait)).or_default() += sessions;
                *self.by_event.entry(event_name(wait)).or_default() += sessions;
            }
            _ => {}
        }
    }

    /// Ticks of the node with the most samples: nodes are sampled together.
    fn looks(&self) -> f64 {
        self.ticks.values().map(BTreeSet::len).max().unwrap_or(0).max(1) as f64
    }

    pub(crate) fn sessions(&self) -> f64 {
        self.by_class.values().sum()
    }

    /// `CPU 3.1, IO 1.2`, largest first.
    pub(crate) fn words(&self, most: usize) -> String {
        let mut classes: Vec<(Class, f64)> =
            self.by_class.iter().map(|(class, sum)| (*class, *sum)).collect();
        classes.sort_by(|left, right| right.1.total_cmp(&left.1));
        let word = |(class, sum): &(Class, f64)| format!("{} {}", class.name(), number::three(*sum));
        classes.iter().filter(|(_, sum)| *sum >= 0.005).take(most).map(word).collect::<Vec<_>>().join(", ")
    }
}

/// Whether a session is active: the server's own processes that sleep until there is something to do, or until a standby's next try, are not.
fn is_at_work(wait: &Wait) -> bool {
    let is_of_server =
        !matches!(wait.backend.as_str(), "" | "client backend" | "parallel worker" | "autovacuum worker");
    !(is_of_server && matches!(wait.wait_type.as_str(), "Activity" | "Timeout" | "Client" | "Extension"))
}

/// `LWLock:WALWrite`; `CPU` alone.
pub(crate) fn event_name(wait: &Wait) -> String {
    match wait.wait_type.as_str() {
        WAIT_CPU => WAIT_CPU.to_string(),
        kind if wait.wait_event.is_empty() => kind.to_string(),
        kind => format!("{kind}:{}", wait.wait_event),
    }
}

/// The charts: one per node if they are few, else the total and the busiest node.
pub(super) fn charts(scene: &Scene) -> Vec<Chart> {
    let mut by_node: BTreeMap<&str, f64> = BTreeMap::new();
    for line in scene.lines {
        if let Sampled::Wait(wait) = &line.what
            && is_at_work(wait)
        {
            *by_node.entry(&wait.node).or_default() += wait.sessions as f64;
        }
    }
    let title = "Active sessions by wait event";
    let busiest = by_node.iter().max_by(|left, right| left.1.total_cmp(right.1)).map(|(node, _)| *node);
    match by_node.len() {
        0 => vec![],
        1 => vec![pile(scene, "waits", title.to_string(), None)],
        few if few <= MULTIPLES_MAX => by_node
            .keys()
            .enumerate()
            .map(|(at, node)| {
                pile(scene, &format!("waits-{at}"), format!("{title}, node {node}"), Some(node))
            })
            .collect(),
        many => vec![
            pile(scene, "waits", format!("{title}, {many} nodes together"), None),
            pile(
                scene,
                "waits-busiest",
                format!("{title}, {} (the busiest)", busiest.unwrap_or_default()),
                busiest,
            ),
        ],
    }
}

/// The cores that the chart's sessions share: those of one node's host, or of all hosts if every node has its own.
fn cores_of(node: Option<&str>, nodes: usize, cores: &BTreeMap<&str, u64>) -> Option<u64> {
    match (node, cores.len()) {
        (None, hosts) if nodes > 1 && hosts == nodes => {
            Some(cores.values().copied().fold(0, u64::saturating_add))
        }
        (Some(node), _) if cores.contains_key(node) => cores.get(node).copied(),
        (_, 1) => cores.values().next().copied(),
        _ => None,
    }
}

fn pile(scene: &Scene, name: &str, title: String, node: Option<&str>) -> Chart {
    let mut chart = scene.chart(name, &title, ChartKind::Stack, Unit::Sessions);
    let count = scene.columns.count;
    let mut sums: BTreeMap<Class, Vec<f64>> = BTreeMap::new();
    let mut looks: Vec<BTreeSet<(&str, u64)>> = vec![BTreeSet::new(); count];
    let mine = |other: &str| node.is_none_or(|node| node == other);
    let mut cores: BTreeMap<&str, u64> = BTreeMap::new();
    let mut nodes: BTreeSet<&str> = BTreeSet::new();
    let mut active = Active::default();
    for line in scene.lines {
        match &line.what {
            Sampled::Server(server) if mine(&server.node) => {
                looks[scene.column_at(line.t_us)].insert((&server.node, line.t_us));
                nodes.insert(&server.node);
                active.take(line);
            }
            Sampled::Wait(wait) if mine(&wait.node) && is_at_work(wait) => {
                let column = scene.column_at(line.t_us);
                looks[column].insert((&wait.node, line.t_us));
                let sums = sums.entry(Class::of(wait)).or_insert_with(|| vec![0.0; count]);
                sums[column] += wait.sessions as f64;
                active.take(line);
            }
            Sampled::Host(host) => {
                cores.extend(host.cores.map(|cores| (host.host.as_str(), cores)));
            }
            _ => {}
        }
    }
    let all_looks: usize = looks.iter().map(BTreeSet::len).sum();
    // Each node is sampled separately: one sample of every node is one sample of the total.
    let together = nodes.len().max(1) as f64;
    let per_look = |column: usize| {
        let looks = looks[column].len() as f64 / together;
        (looks > 0.0).then_some(looks)
    };
    if sums.len() > AREAS_MAX {
        let timeout = sums.remove(&Class::Timeout).unwrap_or_default();
        let other = sums.entry(Class::Other).or_insert_with(|| vec![0.0; count]);
        other.iter_mut().zip(timeout).for_each(|(other, timeout)| *other += timeout);
    }
    for (class, sums) in &sums {
        let values =
            (0..count).map(|column| per_look(column).map(|looks| tidy(sums[column] / looks))).collect();
        chart.series.push(Series::area(class.name(), class.area(), values));
    }
    let machine = cores_of(node, nodes.len(), &cores);
    if let Some(cores) = machine {
        let line = vec![Some(cores as f64); count];
        chart.series.push(Series::new("cores", Tone::Ink, Dash::Dashed, line));
    }
    let looks = (all_looks as f64 / together).max(1.0);
    active.by_class.values_mut().for_each(|sessions| *sessions /= looks);
    chart.sentence = format!(
        "On average {} active sessions and server processes: {}. Sampled every {}{}.",
        number::three(active.sessions()),
        active.words(AREAS_MAX),
        number::duration(super::period_s(scene.lines)),
        machine
            .map(|cores| format!("; the line is at {}", number::counted(cores, "core")))
            .unwrap_or_default(),
    );
    chart
}
