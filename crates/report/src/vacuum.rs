//! Vacuum and the xmin horizon: the distance of each database from a forced freeze, the runs, the holders of the horizon, and the tables
//! with the most dead rows.

use crate::facts::StepFacts;
use crate::html::markup::{Cell, Row, table};
use record::escape::one_line;
use record::number;
use record::watched::{Horizon, Progress, Sampled, Server, Session, Table};
use std::collections::BTreeMap;

/// Lines of each table.
const SHOWN_MAX: usize = 12;
/// Characters of a statement.
const QUERY_MAX: usize = 80;

/// Writes the section; nothing if there are no samples for it.
pub(crate) fn section(out: &mut String, step: &StepFacts) {
    let mut text = String::new();
    ages(&mut text, step);
    progress(&mut text, step);
    holders(&mut text, step);
    tables(&mut text, step);
    if !text.is_empty() {
        out.push_str("<div class=\"block vacuum\"><h3>Vacuum and horizon</h3>\n");
        out.push_str(&text);
        out.push_str("</div>\n");
    }
}

/// The distance of each node from a vacuum against wraparound.
fn ages(out: &mut String, step: &StepFacts) {
    let mut last: BTreeMap<&str, (&Server, f64)> = BTreeMap::new();
    for line in step.watched {
        if let Sampled::Server(server) = &line.what
            && server.database_age_xids.is_some()
        {
            last.insert(&server.node, (server, line.t_us as f64 / 1e6));
        }
    }
    let rows: Vec<Row> = last
        .values()
        .filter_map(|(server, _)| {
            let age = server.database_age_xids? as f64;
            let max = server.freeze_max_age_xids.filter(|max| *max > 0)? as f64;
            let workers = match (server.autovacuum_workers, server.autovacuum_workers_max) {
                (Some(now), Some(max)) => format!("{now} of {max}"),
                _ => String::new(),
            };
            let bar = format!(
                "<span class=\"balance\"><i style=\"width:{:.1}%\"></i></span>",
                (age / max).clamp(0.0, 1.0) * 100.0
            );
            Some(Row::new(vec![
                Cell::word(&server.node),
                Cell::number(number::count(age as u64)),
                Cell::html(bar).class("word"),
                Cell::number(number::percent_of(age, max)),
                Cell::number(number::count(max as u64)),
                Cell::number(workers),
            ]))
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    let head = [
        ("node", false),
        ("oldest xid, age", false),
        ("", true),
        ("of the limit", false),
        ("autovacuum_freeze_max_age", false),
        ("busy workers", false),
    ];
    table(out, "Age of the oldest database at the end", &head, &rows);
}

/// A vacuum as it was seen.
struct Seen<'a> {
    first_us: u64,
    last: &'a Progress,
    last_us: u64,
    phases: Vec<&'a str>,
}

fn progress(out: &mut String, step: &StepFacts) {
    let mut seen: BTreeMap<(&str, u64, &str, &str), Seen> = BTreeMap::new();
    for line in step.watched {
        let Sampled::Progress(progress) = &line.what else { continue };
        let key =
            (progress.node.as_str(), progress.pid, progress.command.as_str(), progress.relation.as_str());
        let one = seen.entry(key).or_insert(Seen {
            first_us: line.t_us,
            last: progress,
            last_us: line.t_us,
            phases: vec![],
        });
        (one.last, one.last_us) = (progress, line.t_us);
        if !progress.phase.is_empty() && one.phases.last() != Some(&progress.phase.as_str()) {
            one.phases.push(&progress.phase);
        }
    }
    let mut all: Vec<Seen> = seen.into_values().collect();
    all.sort_by_key(|one| std::cmp::Reverse(one.last_us - one.first_us));
    let second = |t_us: u64| number::duration(t_us.saturating_sub(step.step.start_us) as f64 / 1e6);
    let rows: Vec<Row> = all
        .iter()
        .take(SHOWN_MAX)
        .map(|one| {
            let kind = match (one.last.wraparound, one.last.auto) {
                (Some(true), _) => "vacuum against wraparound".to_string(),
                (_, Some(true)) => format!("automatic {}", one.last.command),
                _ => one.last.command.replace('_', " "),
            };
            let done = match (one.last.done, one.last.total) {
                (Some(done), Some(total)) if total > 0 => {
                    format!(
                        "{} of {} {}",
                        number::percent_of(done as f64, total as f64),
                        number::count(total),
                        one.last.unit
                    )
                }
                (Some(done), _) => format!("{} {}", number::count(done), one.last.unit),
                _ => String::new(),
            };
            let slept = one.last.delay_ms.map(|ms| number::duration(ms / 1e3)).unwrap_or_default();
            Row::new(vec![
                Cell::word(&one.last.relation),
                Cell::word(&one.last.node),
                Cell::words(kind),
                Cell::number(format!("{} to {}", second(one.first_us), second(one.last_us))),
                Cell::words(one.phases.join(", ")),
                Cell::number(done),
                Cell::number(one.last.index_passes.map(number::count).unwrap_or_default()),
                Cell::number(slept),
            ])
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    let head = [
        ("relation", false),
        ("node", true),
        ("command", true),
        ("seen", false),
        ("phases", true),
        ("done in the last", false),
        ("index passes", false),
        ("slept", false),
    ];
    table(out, "Vacuums, index builds and copies", &head, &rows);
}

fn holders(out: &mut String, step: &StepFacts) {
    let mut worst: BTreeMap<(&str, &str, &str, Option<u64>), &Horizon> = BTreeMap::new();
    let mut sessions: BTreeMap<(&str, u64), &Session> = BTreeMap::new();
    for line in step.watched {
        match &line.what {
            Sampled::Horizon(holder) => {
                let key = (holder.node.as_str(), holder.kind.as_str(), holder.name.as_str(), holder.pid);
                let known = worst.entry(key).or_insert(holder);
                if holder.age_xids >= known.age_xids {
                    *known = holder;
                }
            }
            Sampled::Session(session) => {
                sessions.insert((&session.node, session.pid), session);
            }
            _ => {}
        }
    }
    let mut all: Vec<&Horizon> = worst.into_values().collect();
    all.sort_by_key(|holder| std::cmp::Reverse(holder.age_xids));
    let rows: Vec<Row> = all
        .iter()
        .take(SHOWN_MAX)
        .map(|holder| {
            let session = holder.pid.and_then(|pid| sessions.get(&(holder.node.as_str(), pid)));
            Row::new(vec![
                Cell::words(if holder.name.is_empty() { "-" } else { &holder.name }),
                Cell::word(&holder.node),
                Cell::word(&holder.kind),
                Cell::number(holder.pid.map(|pid| pid.to_string()).unwrap_or_default()),
                Cell::number(holder.age_xids.map(number::count).unwrap_or_default()),
                Cell::number(holder.age_s.map(number::duration).unwrap_or_default()),
                Cell::words(session.map(|session| session.state.as_str()).unwrap_or("")),
                Cell::words(session.map(|session| one_line(&session.query, QUERY_MAX)).unwrap_or_default()),
            ])
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    let head = [
        ("holder", false),
        ("node", true),
        ("kind", true),
        ("process", false),
        ("transactions", false),
        ("for", false),
        ("state", true),
        ("last statement", true),
    ];
    table(out, "What held back the horizon", &head, &rows);
}

fn tables(out: &mut String, step: &StepFacts) {
    let mut last: BTreeMap<(&str, &str, &str), (&Table, u64)> = BTreeMap::new();
    for line in step.watched {
        if let Sampled::Table(one) = &line.what {
            let known = last.entry((&one.node, &one.database, &one.relation)).or_insert((one, 0));
            known.0 = one;
            known.1 += one.autovacuums.unwrap_or(0) + one.vacuums.unwrap_or(0);
        }
    }
    let mut all: Vec<(&Table, u64)> =
        last.into_values().filter(|(one, _)| one.dead_rows.unwrap_or(0) > 0).collect();
    all.sort_by_key(|(one, _)| std::cmp::Reverse(one.dead_rows));
    let rows: Vec<Row> = all
        .iter()
        .take(SHOWN_MAX)
        .map(|(one, vacuums)| {
            let (dead, live) = (one.dead_rows.unwrap_or(0), one.live_rows.unwrap_or(0));
            Row::new(vec![
                Cell::word(&one.relation),
                Cell::word(&one.node),
                Cell::number(number::count(dead)),
                Cell::number(number::percent_of(dead as f64, dead.saturating_add(live) as f64)),
                Cell::number(number::count(live)),
                Cell::number(one.bytes.map(|bytes| number::bytes(bytes as f64)).unwrap_or_default()),
                Cell::number(number::count(*vacuums)),
                Cell::number(one.frozen_age_xids.map(number::count).unwrap_or_default()),
            ])
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    let head = [
        ("table", false),
        ("node", true),
        ("dead rows", false),
        ("share", false),
        ("live rows", false),
        ("size", false),
        ("vacuums", false),
        ("oldest xid, age", false),
    ];
    table(out, "Tables with most dead rows", &head, &rows);
}
