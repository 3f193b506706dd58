//! The figures of both sides.

use super::{Figure, Group, Side};
use crate::chart::tidy;
use crate::directory::Line;
use crate::facts::{Facts, StepFacts};
use crate::statements::{costs, texts};
use crate::timeline::waits::Active;
use record::escape::one_line;
use record::finding::Window;
use record::watched::{Sampled, Server};
use std::collections::{BTreeMap, BTreeSet};

/// Events, statements and devices of each kind that are shown.
const ROWS_MAX: usize = 12;
/// Characters of a statement.
const TEXT_MAX: usize = 90;
/// Sessions on average below which an event is not worth a line.
const SESSIONS_MIN: f64 = 0.01;

/// A counter of a node, and the name of its rate.
type Counter = (&'static str, fn(&Server) -> Option<f64>);

/// A count as a number.
fn f(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

const COUNTERS: [Counter; 20] = [
    ("commits_per_s", |line| f(line.xact_commit)),
    ("rollbacks_per_s", |line| f(line.xact_rollback)),
    ("rows_inserted_per_s", |line| f(line.tup_inserted)),
    ("rows_updated_per_s", |line| f(line.tup_updated)),
    ("rows_deleted_per_s", |line| f(line.tup_deleted)),
    ("rows_scanned_per_s", |line| f(line.tup_returned)),
    ("rows_fetched_per_s", |line| f(line.tup_fetched)),
    ("blocks_read_per_s", |line| f(line.blks_read)),
    ("blocks_hit_per_s", |line| f(line.blks_hit)),
    ("temporary_bytes_per_s", |line| f(line.temp_bytes)),
    ("wal_bytes_per_s", |line| f(line.wal_bytes)),
    ("wal_records_per_s", |line| f(line.wal_records)),
    ("full_page_images_per_s", |line| f(line.wal_fpi)),
    ("wal_buffers_full_per_s", |line| f(line.wal_buffers_full)),
    ("checkpoint_buffers_per_s", |line| f(line.checkpoint_buffers)),
    ("checkpoints_requested_per_s", |line| f(line.checkpoints_requested)),
    ("checkpoints_timed_per_s", |line| f(line.checkpoints_timed)),
    ("fsync_by_backends_per_s", |line| f(line.backend_fsync)),
    ("deadlocks_per_s", |line| f(line.deadlocks)),
    ("archiving_failed_per_s", |line| f(line.archived_failed)),
];

/// Lines of one side. Counters with an interval of ten seconds or more belong to the side with most of that interval.
fn lines<'a>(step: &StepFacts<'a>, side: &Side) -> Vec<&'a Line> {
    let holds = |line: &&Line| match line.what {
        Sampled::Statement(_) => {
            let interval = Window::new(line.t_us.saturating_sub(line.interval_us), line.t_us);
            let within =
                side.windows.iter().map(|window| window.overlap_us(interval)).fold(0, u64::saturating_add);
            within.saturating_mul(2) > line.interval_us
        }
        _ => side.windows.iter().any(|window| window.holds(line.t_us)),
    };
    step.watched.iter().filter(holds).collect()
}

/// All groups that have a figure.
pub(super) fn groups(facts: &Facts, step: &StepFacts, first: &Side, second: &Side) -> Vec<Group> {
    let (left, right) = (lines(step, first), lines(step, second));
    let groups = [
        ("Clients", clients(step, first, second)),
        ("Active sessions by wait event", waits(&left, &right)),
        ("Server", server(&left, &right)),
        ("Statements", statements(facts, &left, &right)),
        ("Hosts", machines(&left, &right)),
    ];
    let groups = groups.into_iter().map(|(name, figures)| Group { name, figures });
    groups.filter(|group| !group.figures.is_empty()).collect()
}

fn clients(step: &StepFacts, first: &Side, second: &Side) -> Vec<Figure> {
    if step.client.is_empty() {
        return vec![];
    }
    let of = |side: &Side| {
        let holds = |t_us: u64| side.windows.iter().any(|window| window.holds(t_us));
        let mine: Vec<_> = step.client.iter().filter(|(sample, _)| holds(sample.t_us)).collect();
        let seconds: f64 = mine.iter().map(|(sample, _)| sample.interval_us as f64 / 1e6).sum();
        let sum = |value: fn(&record::sample::ClientSample) -> f64| {
            mine.iter().map(|(_, body)| value(body)).sum::<f64>()
        };
        let rate = |amount: f64| (seconds > 0.0).then(|| tidy(amount / seconds));
        let transactions = sum(|body| body.transactions as f64);
        let time = sum(|body| body.response_us_mean.unwrap_or(0.0) * body.transactions as f64);
        [
            rate(transactions),
            (transactions > 0.0).then(|| tidy(time / transactions)),
            mine.iter().filter_map(|(_, body)| body.response_us_p99).max().map(|us| us as f64),
            mine.iter().filter_map(|(_, body)| body.response_us_max).max().map(|us| us as f64),
            rate(sum(|body| body.errors as f64)),
            rate(sum(|body| body.retries as f64)),
            mine.iter().map(|(_, body)| body.backlog).max().map(|count| count as f64),
        ]
    };
    let names = [
        "transactions_per_s",
        "response_us_mean",
        "response_us_p99_of_the_worst_second",
        "response_us_longest",
        "errors_per_s",
        "retries_per_s",
        "backlog_at_most",
    ];
    let figures = names.into_iter().zip(of(first).into_iter().zip(of(second)));
    let figures = figures.map(|(name, (first, second))| Figure::new(name, "", first, second));
    figures.filter(|figure| figure.first.or(figure.second).is_some() && !is_nothing(figure)).collect()
}

/// Zero on both sides.
fn is_nothing(figure: &Figure) -> bool {
    figure.first.unwrap_or(0.0) == 0.0 && figure.second.unwrap_or(0.0) == 0.0
}

fn waits(left: &[&Line], right: &[&Line]) -> Vec<Figure> {
    let (left, right) = (Active::of(left.iter().copied()), Active::of(right.iter().copied()));
    if left.by_class.is_empty() && right.by_class.is_empty() {
        return vec![];
    }
    let events: BTreeSet<&String> = left.by_event.keys().chain(right.by_event.keys()).collect();
    let value =
        |active: &Active, event: &String| Some(tidy(active.by_event.get(event).copied().unwrap_or(0.0)));
    let mut figures: Vec<Figure> = events
        .into_iter()
        .map(|event| Figure::new("sessions", event, value(&left, event), value(&right, event)))
        .collect();
    figures.retain(|figure| figure.first.unwrap_or(0.0).max(figure.second.unwrap_or(0.0)) >= SESSIONS_MIN);
    figures.sort_by(|left, right| {
        right.difference.map(f64::abs).unwrap_or(0.0).total_cmp(&left.difference.map(f64::abs).unwrap_or(0.0))
    });
    figures.truncate(ROWS_MAX);
    let all = Figure::new("sessions", "all", Some(tidy(left.sessions())), Some(tidy(right.sessions())));
    figures.insert(0, all);
    figures
}

/// Sum and weight by name and object.
struct Sums<T>(BTreeMap<(usize, T), (f64, f64)>);

impl<T: Ord> Sums<T> {
    fn new() -> Sums<T> {
        Sums(BTreeMap::new())
    }

    fn add(&mut self, name: usize, of: T, amount: f64, weight: f64) {
        let (sum, weights) = self.0.entry((name, of)).or_default();
        *sum += amount;
        *weights += weight;
    }

    fn mean(&self, key: &(usize, T)) -> Option<f64> {
        self.0.get(key).filter(|(_, weight)| *weight > 0.0).map(|(sum, weight)| tidy(sum / weight))
    }
}

/// Figures of both sides from their sums, in the order of the names.
fn figures<'a>(
    left: &Sums<&'a str>,
    right: &Sums<&'a str>,
    name: impl Fn(usize) -> &'static str,
) -> Vec<Figure> {
    let keys: BTreeSet<&(usize, &str)> = left.0.keys().chain(right.0.keys()).collect();
    let things: BTreeSet<&str> = keys.iter().map(|(_, of)| *of).collect();
    let of = |thing: &'a str| if things.len() > 1 { thing } else { "" };
    let made = keys.iter().map(|key| Figure::new(name(key.0), of(key.1), left.mean(key), right.mean(key)));
    made.filter(|figure| !is_nothing(figure)).collect()
}

fn server(left: &[&Line], right: &[&Line]) -> Vec<Figure> {
    fn sums<'a>(lines: &[&'a Line]) -> Sums<&'a str> {
        let mut sums = Sums::new();
        for line in lines {
            let Sampled::Server(server) = &line.what else { continue };
            for (at, (_, counter)) in COUNTERS.iter().enumerate() {
                if let Some(value) = counter(server).filter(|_| line.interval_us > 0) {
                    sums.add(at, server.node.as_str(), value, line.seconds());
                }
            }
        }
        sums
    }
    figures(&sums(left), &sums(right), |at| COUNTERS[at].0)
}

fn statements(facts: &Facts, left: &[&Line], right: &[&Line]) -> Vec<Figure> {
    let texts = texts(facts);
    let (left, right) = (costs(left.iter().copied()), costs(right.iter().copied()));
    let keys: BTreeSet<_> = left.keys().chain(right.keys()).collect();
    let total = |key: &(&str, &str)| {
        [&left, &right].iter().filter_map(|side| side.get(key)).map(|cost| cost.total_ms).sum::<f64>()
    };
    let mut keys: Vec<_> = keys.into_iter().collect();
    keys.sort_by(|one, other| total(other).total_cmp(&total(one)));
    keys.into_iter()
        .take(ROWS_MAX)
        .map(|key| {
            let mean = |side: &BTreeMap<(&str, &str), crate::statements::Cost>| {
                side.get(key).filter(|cost| cost.calls > 0.0).map(|cost| tidy(cost.mean_ms()))
            };
            let of = match texts.get(key.1) {
                Some(text) => one_line(text, TEXT_MAX),
                None => format!("query {}", key.1),
            };
            Figure::new("ms_a_call", &of, mean(&left), mean(&right))
        })
        .filter(|figure| figure.first.or(figure.second).is_some())
        .collect()
}

/// Figures of a host, in the order of output.
const MACHINE: [&str; 12] = [
    "cpu_user_percent",
    "cpu_system_percent",
    "cpu_iowait_percent",
    "cpu_softirq_percent",
    "cpu_steal_percent",
    "read_or_write_ms",
    "flush_ms",
    "read_bytes_per_s",
    "written_bytes_per_s",
    "received_bytes_per_s",
    "sent_bytes_per_s",
    "segments_sent_again_per_s",
];

/// Host, disks and network interfaces; names are places in [`MACHINE`].
fn machine_sums(lines: &[&Line]) -> Sums<String> {
    let mut sums = Sums::new();
    for line in lines.iter().filter(|line| line.interval_us > 0) {
        let seconds = line.seconds();
        match &line.what {
            Sampled::Host(host) => {
                let parts = [
                    host.cpu_user_pct,
                    host.cpu_system_pct,
                    host.cpu_iowait_pct,
                    host.cpu_softirq_pct,
                    host.cpu_steal_pct,
                ];
                for (name, part) in parts.into_iter().enumerate() {
                    if let Some(percent) = part {
                        sums.add(name, host.host.clone(), percent * seconds, seconds);
                    }
                }
                if let Some(again) = host.tcp_retransmits {
                    sums.add(11, host.host.clone(), again as f64, seconds);
                }
            }
            Sampled::Disk(disk) => {
                let of = format!("{} {}", disk.host, disk.device);
                for (count, wait) in [(disk.reads, disk.read_await_ms), (disk.writes, disk.write_await_ms)] {
                    if let (Some(count), Some(wait)) = (count, wait) {
                        sums.add(5, of.clone(), wait * count as f64, count as f64);
                    }
                }
                if let (Some(count), Some(wait)) = (disk.flushes, disk.flush_await_ms) {
                    sums.add(6, of.clone(), wait * count as f64, count as f64);
                }
                for (name, bytes) in [(7, disk.read_bytes), (8, disk.write_bytes)] {
                    if let Some(bytes) = bytes {
                        sums.add(name, of.clone(), bytes as f64, seconds);
                    }
                }
            }
            Sampled::Net(net) if net.interface != "lo" => {
                let of = format!("{} {}", net.host, net.interface);
                for (name, bytes) in [(9, net.rx_bytes), (10, net.tx_bytes)] {
                    if let Some(bytes) = bytes {
                        sums.add(name, of.clone(), bytes as f64, seconds);
                    }
                }
            }
            _ => {}
        }
    }
    sums
}

fn machines(left: &[&Line], right: &[&Line]) -> Vec<Figure> {
    let (left, right) = (machine_sums(left), machine_sums(right));
    let keys: BTreeSet<&(usize, String)> = left.0.keys().chain(right.0.keys()).collect();
    let mut found: Vec<Vec<Figure>> = vec![vec![]; MACHINE.len()];
    for key in keys {
        let figure = Figure::new(MACHINE[key.0], &key.1, left.mean(key), right.mean(key));
        if !is_nothing(&figure) {
            found[key.0].push(figure);
        }
    }
    // Of many devices, those that differ most are shown.
    for figures in &mut found {
        figures.sort_by(|one, other| other.contrast().total_cmp(&one.contrast()));
        figures.truncate(ROWS_MAX);
    }
    found.concat()
}
