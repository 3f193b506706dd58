//! The terminal page: plain ASCII without colour, at most as wide as a usual terminal.

use crate::answer;
use crate::facts::{Facts, StepFacts};
use crate::layout::{columns, fold, push};
use crate::timeline::waits::Active;
use record::LatencySummary;
use record::model::{CheckResult, ErrorStatistics};
use record::number;

/// The most counterexamples, errors and types printed; the rest is only counted, and is in `run.json`.
const LIST_MAX: usize = 10;
/// Classes of waits, and single events, in a line.
const CLASSES_MAX: usize = 6;
const EVENTS_MAX: usize = 3;

/// The page.
pub(crate) fn page(facts: &Facts) -> String {
    let mut out = String::new();
    heading(&mut out, facts);
    if let Some(checks) = facts.checked() {
        out.push_str(&crate::checks::text(checks));
        return out;
    }
    match (&facts.sweep, &facts.matrix) {
        (Some(sweep), _) => crate::sweep::print(&mut out, facts, sweep),
        (None, Some(matrix)) => {
            crate::matrix::print(&mut out, matrix);
            // Those of a cell that has a section of its own are there.
            for step in facts.steps.iter().filter(|step| step.is_plain_cell()) {
                step.step.summary.benchmarks.iter().for_each(|it| crate::benchmark::print(&mut out, it));
            }
        }
        (None, None) => {
            let width = facts.steps.iter().map(|step| step.title().len()).max().unwrap_or(0);
            for step in &facts.steps {
                push(&mut out, &step_line(step, width));
            }
        }
    }
    crate::prove::print(&mut out, &facts.reader.run);
    crate::planned::print(&mut out, facts);
    let search = crate::search::steps(facts);
    if let Some(steps) = &search {
        fold(&mut out, "search ", &crate::search::sentence(steps));
    }
    let reasons = answer::reasons(facts);
    if !reasons.is_empty() {
        out.push('\n');
        for reason in reasons {
            fold(&mut out, "note   ", &reason);
        }
    }
    crate::node_time::print(&mut out, facts);
    crate::findings::print(&mut out, facts);
    waits(&mut out, facts);
    if let Some(checks) = &facts.directory.checks {
        crate::checks::print_hardware(&mut out, facts.directory, checks);
    }
    crate::unseen::print(&mut out, facts);
    // For a search only the resulting step is reported in full.
    let is_shown =
        |step: &&StepFacts| search.as_ref().is_none_or(|steps| crate::search::is_answer(steps, step));
    let steps = facts.steps.iter().filter(|step| !step.is_plain_cell());
    for step in steps.filter(is_shown) {
        details(&mut out, step);
    }
    out
}

/// Waits of sessions in each step with samples: average active sessions by class, and the largest events.
fn waits(out: &mut String, facts: &Facts) {
    for step in facts.steps.iter().filter(|step| !step.watched.is_empty() && !step.is_cell()) {
        let active = Active::of(step.watched);
        if active.by_class.is_empty() {
            continue;
        }
        let mut events: Vec<(&String, &f64)> =
            active.by_event.iter().filter(|(event, _)| *event != record::watched::WAIT_CPU).collect();
        events.sort_by(|left, right| right.1.total_cmp(left.1));
        let events: Vec<String> = events
            .iter()
            .take(EVENTS_MAX)
            .map(|(event, sessions)| format!("{event} {}", number::three(**sessions)))
            .collect();
        let most = if events.is_empty() { String::new() } else { format!("; most: {}", events.join(", ")) };
        let title = if facts.steps.len() > 1 { format!("{}: ", step.title()) } else { String::new() };
        fold(
            out,
            "waits   ",
            &record::escape::ascii(&format!(
                "{title}{} active sessions and server processes on average: {}{most}",
                number::three(active.sessions()),
                active.words(CLASSES_MAX)
            )),
        );
    }
}

/// A step in one line; the title takes at least `width` characters.
pub(crate) fn step_line(step: &StepFacts, width: usize) -> String {
    let badge = step.word();
    let fields = answer::step_fields(step).join("   ");
    format!("{:width$}   {fields}   {badge}", step.title())
}

fn heading(out: &mut String, facts: &Facts) {
    let run = &facts.reader.run;
    let mut fields =
        vec![format!("pgfathom {}", if run.verb.is_empty() { "run directory" } else { &run.verb })];
    if !run.name.is_empty() && run.name != run.verb {
        fields[0] = format!("{} {}", fields[0], run.name);
    }
    fields.push(facts.badge().word().to_string());
    fields.extend(facts.health().map(|health| format!("database: {}", health.words())));
    if let Some(target) = &run.target {
        fields.push(server(&target.engine, &target.server_version));
    }
    if run.client.cpus > 0 {
        let memory = run.client.memory_bytes.map(|bytes| format!(", {}", number::bytes(bytes as f64)));
        fields.push(format!("{}{}", number::counted(run.client.cpus, "core"), memory.unwrap_or_default()));
    }
    if let Some(day) = run.started.wall_time.get(..16) {
        fields.push(format!("{} UTC", day.replace('T', " ")));
    }
    push(out, &fields.join("   "));
    fold(out, "", &answer::sentence(facts));
    out.push('\n');
}

/// `PostgreSQL 18.4`, and the engine if it is not PostgreSQL: every engine reports some version of PostgreSQL.
pub(crate) fn server(engine: &str, version: &str) -> String {
    match engine {
        "postgres" => format!("PostgreSQL {version}"),
        _ => format!("PostgreSQL {version}, {engine}"),
    }
}

fn details(out: &mut String, step: &StepFacts) {
    let types = &step.step.types;
    let failed: Vec<_> = step.step.checks.iter().filter(|check| check.result != CheckResult::Ok).collect();
    if types.is_empty()
        && step.step.errors.is_empty()
        && failed.is_empty()
        && step.step.summary.latency_us.is_none()
    {
        return;
    }
    // A sweep already has a line for each step.
    let is_in_sweep = step.step.sweep.is_some();
    if is_in_sweep && step.step.errors.is_empty() {
        return;
    }
    out.push('\n');
    push(out, &step.title());
    if !is_in_sweep {
        latency_table(out, step);
        crate::nodes::print(out, &step.step.nodes);
    }
    for benchmark in &step.step.summary.benchmarks {
        crate::benchmark::print(out, benchmark);
    }
    for error in step.step.errors.iter().take(LIST_MAX) {
        error_line(out, error);
    }
    more(out, step.step.errors.len(), "SQLSTATEs");
    for check in failed.iter().take(LIST_MAX) {
        let word = if check.result == CheckResult::Fail { "FAIL" } else { "skipped" };
        fold(out, "  ", &format!("{} {} {}: {}", check.name, check.scope, word, check.detail));
        for key in check.counterexamples.iter().take(LIST_MAX) {
            push(out, &format!("    {key}"));
        }
        more(out, check.counterexamples.len(), "rows");
    }
    more(out, failed.len(), "checks");
}

fn more(out: &mut String, all: usize, what: &str) {
    if all > LIST_MAX {
        push(out, &format!("    and {} more {what} in run.json", all - LIST_MAX));
    }
}

fn error_line(out: &mut String, error: &ErrorStatistics) {
    let retried = match error.retried {
        0 => String::new(),
        all if all == error.count => ", all retried".to_string(),
        some => format!(", {} retried", number::count(some)),
    };
    fold(
        out,
        "  ",
        &format!(
            "{} x {}{retried}, first: {}",
            number::count(error.count),
            error.sqlstate,
            first_line(&error.first_message)
        ),
    );
}

/// The first line of an error, for tables: the other lines of a script's error give the place in it, and are in `run.json`.
pub(crate) fn first_line(message: &str) -> &str {
    message.lines().next().unwrap_or_default().trim_end()
}

fn latency_table(out: &mut String, step: &StepFacts) {
    let mut rows: Vec<[String; 9]> = vec![];
    let mut row = |name: &str, count: Option<u64>, kind: &str, latency: Option<LatencySummary>| {
        let Some(latency) = latency else { return };
        let time = |us: u64| number::latency(us as f64);
        rows.push([
            name.to_string(),
            count.map(number::count).unwrap_or_default(),
            kind.to_string(),
            number::latency((latency.mean * 10.0).round() / 10.0),
            time(latency.p50),
            time(latency.p90),
            time(latency.p99),
            time(latency.p999),
            time(latency.max),
        ]);
    };
    let mut pair = |name: &str,
                    count: Option<u64>,
                    response: Option<LatencySummary>,
                    service: Option<LatencySummary>| {
        // In a closed loop nothing waits for a session, so response and service time are equal and shown once.
        let (kind, service) = if response == service { ("both", None) } else { ("response", service) };
        row(name, count, kind, response);
        row("", None, "service", service);
    };
    let (summary, types) = (&step.step.summary, &step.step.types);
    if types.len() != 1 {
        pair("all", summary.transactions, summary.latency_us, summary.service_us);
    }
    for kind in types.iter().take(LIST_MAX) {
        pair(&kind.name, Some(kind.transactions), kind.latency_us, kind.service_us);
    }
    if rows.is_empty() {
        return;
    }
    let head = ["", "count", "", "mean", "p50", "p90", "p99", "p99.9", "max"].map(str::to_string);
    rows.insert(0, head);
    // Names and kinds are left-aligned, numbers right-aligned.
    columns(out, &rows, |column| column == 0 || column == 2);
    more(out, step.step.types.len(), "transaction types");
}
