//! The answer of a run as text: one sentence, the main numbers, a line per step. Terminal page and web page show the
//! same because both take it from here.

use crate::facts::{Badge, Facts, StepFacts, total};
use crate::tile::Tile;
use record::State;
use record::model::CheckResult;
use record::number;
use record::promise::Standing;
use record::totals::{ConditionTotals, LoadTotals, RunTotals, VerifyTotals};

/// Most workloads that the sentence names.
const NAMES_MAX: usize = 4;
/// Most numbers at the top of a page.
const TILES_MAX: usize = 3;

/// The run in one sentence. For several steps it gives what was done and the outcome; the numbers are in the tiles.
///
/// The answer of an invalid run is the reason. Its measurements are listed among the reasons.
pub(crate) fn sentence(facts: &Facts) -> String {
    let mut text = leading(facts).unwrap_or_else(|| measured(facts));
    text.push('.');
    capital(&text)
}

/// Replaces the answer: why the run is invalid, or what a verification found.
fn leading(facts: &Facts) -> Option<String> {
    match facts.badge() {
        Badge::Invalid | Badge::CannotTell => facts.reader.run.verdict.reasons.first().cloned(),
        Badge::Difference => {
            facts.steps.iter().find(|step| step.badge() == Badge::Difference).map(step_clause)
        }
        _ => None,
    }
}

/// The work and its outcome, as a clause.
fn measured(facts: &Facts) -> String {
    let clauses = match facts.steps.as_slice() {
        _ if facts.checked().is_some() => facts.checked().map(crate::checks::clause).into_iter().collect(),
        _ if facts.matrix.is_some() => {
            let is_valid = facts.reader.run.verdict.valid;
            facts.matrix.iter().flat_map(|matrix| crate::matrix::clauses(matrix, is_valid)).collect()
        }
        _ if facts.sweep.is_some() => facts.sweep.iter().flat_map(crate::sweep::clauses).collect(),
        [] => vec!["nothing was measured".to_string()],
        [only] => vec![step_clause(only)],
        steps if steps.iter().any(|step| !step.step.promises.is_empty()) => {
            vec![crate::prove::clause(steps.iter().flat_map(|step| &step.step.promises))]
        }
        steps => several_steps(steps),
    };
    match clauses.as_slice() {
        [first, .., last] => {
            let inner = &clauses[1..clauses.len() - 1];
            let inner: String = inner.iter().map(|clause| format!(", {clause}")).collect();
            format!("{first}{inner} and {last}")
        }
        only => only.concat(),
    }
}

/// "loaded 1,000,000 rows", "verified every row", "drove ycsb-c and ycsb-a without an error".
fn several_steps(steps: &[StepFacts]) -> Vec<String> {
    let of = |verb: &str| steps.iter().filter(|step| step.step.verb == verb).collect::<Vec<_>>();
    let (loads, proofs) = (of("load"), of("verify"));
    let driven: Vec<&StepFacts> =
        steps.iter().filter(|step| !["load", "verify", "prove"].contains(&step.step.verb.as_str())).collect();
    let mut clauses = vec![];
    let rows = loads.iter().filter_map(|step| step.step.summary.rows).fold(0, u64::saturating_add);
    if !loads.is_empty() {
        clauses.push(format!("loaded {}", number::counted(rows, "row")));
    }
    let proven = |step: &&&StepFacts| matches!(step.badge(), Badge::Valid | Badge::Notes);
    match proofs.iter().filter(proven).count() {
        0 => {}
        some if some < proofs.len() => clauses.push(format!("verified it {some} of {} times", proofs.len())),
        1 => clauses.push("verified every row".to_string()),
        2 => clauses.push("verified every row twice".to_string()),
        many => clauses.push(format!("verified every row {many} times")),
    }
    clauses.extend(of("prove").into_iter().map(step_clause));
    if !driven.is_empty() {
        let name =
            |step: &&StepFacts| if step.step.name.is_empty() { step.title() } else { step.step.name.clone() };
        let names: Vec<String> = driven.iter().map(name).collect();
        let names = match names.as_slice() {
            [first, second] => format!("{first} and {second}"),
            names if names.len() > NAMES_MAX => format!("{} workloads", names.len()),
            names => names.join(", "),
        };
        let errors = total(driven.iter().map(|step| step.step.summary.errors));
        let outcome = match errors {
            _ if !driven.iter().all(|step| step.knows_errors()) => String::new(),
            0 => " without an error".to_string(),
            some => format!(" with {}", number::counted(some, "error")),
        };
        clauses.push(format!("drove {names}{outcome}"));
    }
    clauses
}

/// The reasons for the badge, worst first; empty for a valid run.
pub(crate) fn reasons(facts: &Facts) -> Vec<String> {
    let run = &facts.reader.run;
    let mut reasons: Vec<String> = run.verdict.reasons.clone();
    match facts.badge() {
        // The first reason is already the answer.
        Badge::Invalid if !reasons.is_empty() && run.summary.transactions == Some(0) => {
            reasons.remove(0);
        }
        Badge::Invalid if !reasons.is_empty() => {
            reasons[0] = format!("measured nevertheless: {}", measured(facts));
        }
        Badge::CannotTell if reasons.is_empty() => {}
        Badge::CannotTell if facts.steps.len() == 1 => {
            reasons.remove(0);
        }
        Badge::CannotTell => reasons[0] = format!("also: {}", measured(facts)),
        // What the sentence contains is not repeated.
        Badge::Difference if facts.steps.len() == 1 => {
            let reported = leading(facts).unwrap_or_default();
            reasons.retain(|reason| !reported.ends_with(reason.as_str()));
        }
        Badge::Difference => reasons.push(format!("also: {}", measured(facts))),
        _ => {}
    }
    match run.state {
        _ if !facts.reader.has_run => {}
        State::Interrupted => {
            reasons.push("interrupted by the user: the figures cover the part that ran".to_string())
        }
        // A reason that the sentence has is one, too.
        State::Failed if run.verdict.reasons.is_empty() => {
            reasons.push("the run ended with an error".to_string())
        }
        State::Running => {}
        _ if !run.verdict.valid && run.verdict.reasons.is_empty() => {
            reasons.push("the run records neither that it is valid nor a reason".to_string());
        }
        _ => {}
    }
    reasons.extend(run.verdict.notes.iter().cloned());
    reasons.extend(facts.missing.iter().cloned());
    reasons
}

/// The work of a step, as part of a sentence.
fn step_clause(step: &StepFacts) -> String {
    let summary = &step.step.summary;
    let name = if step.step.name.is_empty() { &step.step.verb } else { &step.step.name };
    match step.step.verb.as_str() {
        "load" => match (summary.rows, summary.rows_per_s) {
            (Some(rows), Some(rate)) => {
                format!("loaded {} at {} rows/s", number::counted(rows, "row"), number::three(rate))
            }
            _ => format!("loading {name} recorded no totals"),
        },
        "verify" => match (step.badge(), summary.rows) {
            (Badge::Difference, _) => format!("verification found a difference: {}", failed_checks(step)),
            (Badge::Invalid | Badge::CannotTell, _) => step
                .step
                .verdict
                .reasons
                .first()
                .cloned()
                .unwrap_or_else(|| "verification reached no verdict".to_string()),
            (_, Some(rows)) => format!("verified {}", number::counted(rows, "row")),
            (_, None) => "verification recorded no totals".to_string(),
        },
        "prove" if !step.step.promises.is_empty() => crate::prove::clause(&step.step.promises),
        "prove" => match (step.badge(), kept(step)) {
            (Badge::Difference, _) => format!("promises broken: {}", named(step, CheckResult::Fail)),
            (Badge::Invalid | Badge::CannotTell, _) => {
                format!("prove is incomplete: {} not judged", named(step, CheckResult::Skipped))
            }
            (_, 0) => "prove recorded no totals".to_string(),
            (_, kept) => format!("proved {} of {name}", number::counted(kept, "condition")),
        },
        _ => match (summary.tps, summary.latency_us) {
            (Some(tps), Some(latency)) => format!(
                "ran {name} at {} transactions/s; 99 % of responses took at most {}{}",
                number::three(tps),
                number::latency(latency.p99 as f64),
                beyond_limit(step).iter().map(|part| format!(", {part}")).collect::<String>()
            ),
            (None, None) if summary.bytes_per_s.is_some() => {
                format!("{name} measured {}/s", number::bytes(summary.bytes_per_s.unwrap_or(0.0)))
            }
            (Some(tps), None) => format!("ran {name} at {} transactions/s", number::three(tps)),
            _ => format!("{name} recorded no totals"),
        },
    }
}

/// What `--latency-limit` left out, which no latency shows, and what took longer than that.
fn beyond_limit(step: &StepFacts) -> Vec<String> {
    let totals: RunTotals = step.step.totals_as();
    let part = |count: u64, of: u64, word: &str| {
        let share = number::percent_of(count as f64, of as f64);
        (count > 0).then(|| format!("{} {word} ({share})", number::count(count)))
    };
    // Late are those of the measured time; the schedule counts the warm-up as well.
    let measured = step.step.summary.transactions.unwrap_or_default();
    let skipped = part(totals.skipped, totals.scheduled, "skipped as too late");
    let late = totals.late.and_then(|late| part(late, measured, "late"));
    skipped.into_iter().chain(late).collect()
}

/// Conditions of a proof that hold.
fn kept(step: &StepFacts) -> u64 {
    step.step.checks.iter().filter(|check| check.result == CheckResult::Ok).count() as u64
}

/// The names of the checks with this result: "C1, C8".
fn named(step: &StepFacts, result: CheckResult) -> String {
    let names = step.step.checks.iter().filter(|check| check.result == result);
    names.map(|check| check.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn failed_checks(step: &StepFacts) -> String {
    let failed = step.step.checks.iter().filter(|check| check.result == CheckResult::Fail);
    let details: Vec<String> = failed.map(|check| check.detail.clone()).take(3).collect();
    details.join(", ")
}

/// With a capital at its beginning.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::new(),
    }
}

/// The numbers at the top: three for a single step, one each for several steps, loads and workloads first.
pub(crate) fn tiles(facts: &Facts) -> Vec<Tile> {
    if let Some(checks) = facts.checked() {
        return crate::checks::tiles(checks);
    }
    if let Some(sweep) = &facts.sweep {
        return crate::sweep::tiles(sweep);
    }
    if let Some(matrix) = &facts.matrix {
        return crate::matrix::tiles(matrix);
    }
    match facts.steps.as_slice() {
        [only] => own_tiles(only, true),
        steps => {
            let telling = |step: &&StepFacts| step.step.verb != "verify" && step.step.verb != "prove";
            let first: Vec<&StepFacts> = steps.iter().filter(telling).take(TILES_MAX).collect();
            let rest = steps.iter().filter(|step| !telling(step)).take(TILES_MAX - first.len());
            let mut chosen: Vec<&StepFacts> = first.into_iter().chain(rest).collect();
            chosen.sort_by_key(|step| step.step.start_us);
            chosen.into_iter().filter_map(|step| own_tiles(step, false).into_iter().next()).collect()
        }
    }
}

/// Up to three numbers of a step, the most important first; `alone` if all of them will be shown.
fn own_tiles(step: &StepFacts, alone: bool) -> Vec<Tile> {
    match step.step.verb.as_str() {
        "load" => load_tiles(step, alone),
        "verify" => verify_tiles(step),
        "prove" => prove_tiles(step),
        _ => driven_tiles(step, alone),
    }
}

fn prove_tiles(step: &StepFacts) -> Vec<Tile> {
    let promises = &step.step.promises;
    if !promises.is_empty() {
        // Workloads count different observations, so their sum has no meaning.
        let kept = promises.iter().filter(|promise| promise.standing == Standing::Kept).count() as u64;
        return vec![tile(step, "promises kept", &number::count(kept), "", crate::prove::clause(promises))];
    }
    let totals: ConditionTotals = step.step.totals_as();
    let mut tiles = Vec::new();
    if let Some(kept) = totals.conditions_kept {
        let detail =
            format!("{} broken, {} not judged", totals.conditions_broken, totals.conditions_not_judged);
        tiles.push(tile(step, "conditions kept", &number::count(kept), "", detail));
    }
    if let Some(warehouses) = totals.warehouses {
        let detail = format!("{} since the load", number::counted(totals.orders_since_load, "order"));
        tiles.push(tile(step, "warehouses", &number::count(warehouses), "", detail));
    }
    if let Some(looked_at) = step.step.summary.rows {
        let how = match totals.snapshots {
            Some(1) => "in one snapshot".to_string(),
            Some(nodes) => format!("in {nodes} snapshots, one per node; none spans them"),
            // A history, and directories of versions that did not record it.
            None => String::new(),
        };
        tiles.push(tile(step, "looked at", &number::count(looked_at), "", how));
    }
    tiles
}

fn tile(step: &StepFacts, label: &str, value: &str, unit: &str, detail: String) -> Tile {
    Tile {
        label: label.to_string(),
        value: value.to_string(),
        unit: unit.to_string(),
        detail,
        key: step.step.key.clone(),
    }
}

/// Splits a text into number and unit.
fn parts(text: &str) -> (&str, &str) {
    text.split_once(' ').unwrap_or((text, ""))
}

fn rate_tile(step: &StepFacts, label: &str, detail: String) -> Option<Tile> {
    let rate = format!("{}/s", number::bytes(step.step.summary.bytes_per_s?));
    let (value, unit) = parts(&rate);
    Some(tile(step, label, value, unit, detail))
}

fn load_tiles(step: &StepFacts, alone: bool) -> Vec<Tile> {
    let summary = &step.step.summary;
    let Some(rows) = summary.rows else { return vec![] };
    let took = format!("in {}", number::duration(summary.duration_s));
    let size = step.bytes().map(number::bytes);
    let mut tiles = vec![];
    if let Some(rate) = summary.rows_per_s {
        let size = size.as_ref().map(|size| format!(" · {size}")).unwrap_or_default();
        let detail =
            if alone { took.clone() } else { format!("{}{size} {took}", number::counted(rows, "row")) };
        tiles.push(tile(step, &step.title(), &number::three(rate), "rows/s", detail));
    }
    tiles.extend(rate_tile(step, "throughput", size.map(|size| format!("{size} sent")).unwrap_or_default()));
    let chunks = step.step.totals_as::<LoadTotals>().chunks;
    let detail = chunks.map(|chunks| format!("in {}", number::counted(chunks, "chunk"))).unwrap_or_default();
    tiles.push(tile(step, "rows", &number::count(rows), "", detail));
    tiles
}

fn verify_tiles(step: &StepFacts) -> Vec<Tile> {
    let summary = &step.step.summary;
    let Some(rows) = summary.rows else { return vec![] };
    let outcome = match step.badge() {
        Badge::Difference => "not all exact",
        Badge::Valid | Badge::Notes => "exact",
        Badge::Invalid | Badge::CannotTell | Badge::Unknown => "not proven",
    };
    let detail = format!("{outcome}, in {}", number::duration(summary.duration_s));
    let mut tiles = vec![tile(step, &step.title(), &number::count(rows), "rows", detail)];
    if let Some(rate) = summary.rows_per_s {
        tiles.push(tile(step, "rate", &number::three(rate), "rows/s", String::new()));
    }
    let failed = step.step.checks.iter().filter(|check| check.result == CheckResult::Fail).count() as u64;
    let of = format!("of {}", number::counted(step.step.checks.len() as u64, "check"));
    tiles.push(tile(step, "failed", &number::count(failed), "", of));
    tiles
}

fn driven_tiles(step: &StepFacts, alone: bool) -> Vec<Tile> {
    let summary = &step.step.summary;
    let time = |us: u64| number::latency(us as f64);
    let mut tiles = vec![];
    if let Some(tps) = summary.tps {
        // For a single step, the percentiles have their own tile.
        let detail = match (summary.latency_us, summary.transactions) {
            (_, Some(transactions)) if alone => {
                format!("{} in {}", number::count(transactions), number::duration(summary.duration_s))
            }
            (Some(latency), _) => format!("p50 {} · p99 {}", time(latency.p50), time(latency.p99)),
            _ => String::new(),
        };
        tiles.push(tile(step, &step.title(), &number::three(tps), "transactions/s", detail));
    } else {
        tiles.extend(rate_tile(step, &step.title(), String::new()));
    }
    if let Some(latency) = summary.latency_us {
        let p99 = time(latency.p99);
        let (value, unit) = parts(&p99);
        let detail = format!("p50 {} · longest {}", time(latency.p50), time(latency.max));
        tiles.push(tile(step, "response p99", value, unit, detail));
    }
    if let Some(transactions) = summary.transactions.filter(|_| step.knows_errors()) {
        let all = transactions as f64 + summary.errors as f64;
        let share = number::percent_of(summary.errors as f64, all);
        let retries = format!("{share} · {} retries", number::count(summary.retries));
        tiles.push(tile(step, "errors", &number::count(summary.errors), "", retries));
    }
    tiles
}

/// What a verification shows of the rows that it read, behind their number.
fn word_of_rows(step: &StepFacts) -> &'static str {
    let totals = step.step.totals_as::<VerifyTotals>();
    match step.badge() {
        _ if step.step.verb != "verify" => "",
        Badge::Valid | Badge::Notes => " exact",
        Badge::CannotTell if totals.differences == 0 && totals.problems.unwrap_or_default() == 0 => {
            ", none damaged"
        }
        _ => "",
    }
}

/// The fields of one line about a step: the work and its outcome.
pub(crate) fn step_fields(step: &StepFacts) -> Vec<String> {
    let summary = &step.step.summary;
    let mut fields = vec![];
    if !step.step.promises.is_empty() {
        fields.push(crate::prove::clause(&step.step.promises));
    } else if step.step.verb == "prove" {
        fields.extend(
            step.step
                .totals_as::<ConditionTotals>()
                .warehouses
                .map(|count| number::counted(count, "warehouse")),
        );
        fields.push(format!("{} kept", number::counted(kept(step), "condition")));
        let broken = named(step, CheckResult::Fail);
        fields.extend(Some(broken).filter(|names| !names.is_empty()).map(|names| format!("{names} broken")));
    } else if let Some(rows) = summary.rows {
        fields.push(format!("{}{}", number::counted(rows, "row"), word_of_rows(step)));
    }
    if step.step.verb == "load" {
        fields.extend(step.bytes().map(number::bytes));
    }
    if step.step.verb == "verify" {
        let updates = step.step.totals_as::<VerifyTotals>().updates_accepted;
        fields.extend(
            updates
                .filter(|count| *count > 0)
                .map(|count| format!("{} accepted", number::counted(count, "update"))),
        );
        let deep = step.step.parameters.get("deep").and_then(serde_json::Value::as_bool);
        fields.extend(deep.filter(|deep| *deep).map(|_| "deep".to_string()));
    }
    if step.step.verb != "verify" {
        fields.extend(summary.rows_per_s.map(|rate| format!("{} rows/s", number::three(rate))));
        fields.extend(summary.bytes_per_s.map(|rate| format!("{}/s", number::bytes(rate))));
    }
    let sessions = step.parameter_u64("sessions").filter(|_| step.step.sweep.is_none());
    fields.extend(sessions.map(|sessions| number::counted(sessions, "session")));
    fields.extend(summary.tps.map(|tps| format!("{} tps", number::three(tps))));
    if let Some(latency) = summary.latency_us {
        fields.push(format!("p50 {}", number::latency(latency.p50 as f64)));
        fields.push(format!("p99 {}", number::latency(latency.p99 as f64)));
    }
    fields.extend(beyond_limit(step));
    if let Some(us) = summary.client_cpu_us_per_transaction {
        fields.push(format!("client {}/tx", number::latency(us)));
    }
    if let Some(chunks) = step.step.totals_as::<LoadTotals>().chunks {
        fields.push(number::counted(chunks, "chunk"));
    }
    if summary.duration_s > 0.0 {
        fields.push(number::duration(summary.duration_s));
    }
    if summary.errors > 0 {
        fields.push(number::counted(summary.errors, "error"));
    }
    fields
}
