//! Findings for a terminal, plain ASCII: where the time of all sessions went, what was found, worst first, with what to try; then where the time of
//! our own clients went.

use crate::units;
use record::Findings;
use record::escape::{ascii, one_line};
use record::finding::{CheckState, ClientTime, Finding, NodeTime, Severity, StatementTime, Window};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Lines are folded at this width.
const WIDTH: usize = 110;
/// The most windows shown of one finding; the rest is counted.
const WINDOWS_MAX: usize = 3;
/// With data for less than one rule in so many, that nothing was found is no answer.
const HEALTHY_OF_RULES: usize = 4;
/// The indentation of everything that belongs to a finding.
const INDENT: &str = "          ";

/// How much is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Detail {
    /// Claims, what to try, where the time went.
    Short,
    /// Also evidence, what was ruled out, what is missing, and the rules that found nothing.
    Full,
}

/// The page; ends with a line feed. Names, statements and messages of others are in it: none of them can steer the terminal.
pub fn text(findings: &Findings, detail: Detail) -> String {
    raw(findings, detail).split_terminator('\n').map(|line| ascii(line) + "\n").collect()
}

fn raw(findings: &Findings, detail: Detail) -> String {
    let mut out = String::new();
    for time in &findings.node_time {
        node_time(&mut out, time, detail);
        out.push('\n');
    }
    if findings.findings.is_empty() {
        nothing(&mut out, findings);
    }
    // A symptom has no number of its own: it stands with its cause.
    let mut number = 0;
    for finding in &findings.findings {
        number += usize::from(finding.symptom_of.is_none());
        finding_text(&mut out, number, finding, detail);
    }
    for left in &findings.uncovered {
        fold(&mut out, "not covered by any rule: ", &left.sentence());
        for command in left.commands.iter().filter(|_| detail == Detail::Full) {
            out.push_str(&format!("{INDENT}     {}\n", ascii(command)));
        }
    }
    for reason in &findings.blind {
        fold(&mut out, "blind: ", reason);
    }
    for time in &findings.client_time {
        out.push('\n');
        client_time(&mut out, time);
    }
    if !findings.validity.is_empty() {
        out.push('\n');
    }
    for sentence in &findings.validity {
        fold(&mut out, "validity: ", sentence);
    }
    out.push('\n');
    let of = |state_wanted: CheckState| {
        findings.checked.iter().filter(move |checked| checked.state == state_wanted)
    };
    let (clean, unknown) = (of(CheckState::Clean).count(), of(CheckState::CannotTell).count());
    let more = if detail == Detail::Short && clean + unknown > 0 { " (-v lists them)" } else { "" };
    fold(&mut out, "", &format!("checked, nothing found: {clean} rules; cannot tell: {unknown} rules{more}"));
    if detail == Detail::Full {
        for (title, state_wanted) in
            [("nothing found", CheckState::Clean), ("cannot tell", CheckState::CannotTell)]
        {
            if of(state_wanted).next().is_some() {
                out.push_str(&format!("\n{title}\n"));
            }
            for checked in of(state_wanted) {
                fold(
                    &mut out,
                    &format!("  {:<8}", checked.rule),
                    &format!("{}: {}", checked.title, checked.why),
                );
            }
        }
        if !findings.missing.is_empty() {
            out.push_str("\nmissing from the directory\n");
            for sentence in &findings.missing {
                fold(&mut out, "  ", sentence);
            }
        }
    }
    out
}

/// What stands in place of findings.
fn nothing(out: &mut String, findings: &Findings) {
    let all = findings.checked.len();
    let clean = findings.checked.iter().filter(|checked| checked.state == CheckState::Clean).count();
    if clean * HEALTHY_OF_RULES < all {
        let why = format!(
            "only {clean} of {all} rules had their data, and they found nothing (-v lists what is missing)"
        );
        fold(out, "cannot tell: ", &why);
    } else if findings.blind.is_empty() {
        fold(out, "", findings.no_findings());
    } else {
        fold(
            out,
            "cannot tell: ",
            &format!("{clean} rules found nothing, but the view has gaps (\"blind\" below)"),
        );
    }
}

/// Findings in the short form.
const BRIEF_MAX: usize = 3;

/// Whether something is sampled beside the work of a verb.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sampling {
    /// This verb never samples: its findings come from its results alone.
    Never,
    /// It could, and does not.
    Off,
    /// It does.
    On,
}

/// What a verb prints at its end: the worst findings, or that there are none and why.
pub fn brief(findings: &Findings, sampling: Sampling) -> Vec<String> {
    let clean = findings.checked.iter().filter(|checked| checked.state == CheckState::Clean).count();
    let untold = findings.checked.len() - clean;
    let mut lines: Vec<String> = findings.node_time.iter().filter_map(NodeTime::in_a_line).collect();
    // Of equal severity, one of each rule comes first: what is wrong with many tables alike must not hide what is wrong besides.
    let mut rules = BTreeSet::new();
    let mut worst: Vec<(&Finding, bool)> =
        findings.causes().map(|finding| (finding, !rules.insert(&finding.rule))).collect();
    worst.sort_by_key(|(finding, is_repeated)| (Reverse(finding.severity), *is_repeated));
    lines.extend(worst.iter().take(BRIEF_MAX).map(|(finding, _)| {
        format!("finding: {} {}: {}", severity(finding.severity), finding.id, finding.claim)
    }));
    match worst.len() {
        0 if sampling == Sampling::Never => {}
        0 => lines.push(format!("findings: none; {clean} rules found nothing, {untold} had no data")),
        count if count > BRIEF_MAX => lines.push(format!("findings: {} more", count - BRIEF_MAX)),
        _ => {}
    }
    if sampling == Sampling::Off {
        lines.push(
            "findings: nothing was sampled during the run, so most rules had no data (--watch on)"
                .to_string(),
        );
    }
    lines.iter().map(|line| ascii(line)).collect()
}

/// Statements shown in the short form.
const STATEMENTS_MAX: usize = 5;
/// Characters of a statement that are shown.
const STATEMENT_CHARS: usize = 120;

fn node_time(out: &mut String, time: &NodeTime, detail: Detail) {
    let head = format!(
        "time of all sessions at {}: {:.2} active on average over {:.0} s, and {:.2} idle in a transaction",
        time.node, time.active, time.seconds, time.idle_in_transaction
    );
    fold(out, "", &head);
    if time.is_idle() && detail == Detail::Short {
        out.push_str("  the server is idle\n");
        return;
    }
    let last = time.parts.len().saturating_sub(1);
    for (at, part) in time.parts.iter().enumerate() {
        if !part.is_worth_a_line() && detail == Detail::Short && at != last {
            continue;
        }
        let events: Vec<String> =
            part.events.iter().map(|(name, share)| format!("{name} {}", units::percent(*share))).collect();
        let how = if part.is_counted { "counted" } else { "" };
        let line = format!(
            "  {:<24} {:>8} {:>8.2}  {:<8} {}",
            part.name,
            units::percent(part.share),
            part.sessions,
            how,
            events.join(", ")
        );
        out.push_str(ascii(&line).trim_end());
        out.push('\n');
    }
    let most = if detail == Detail::Short { STATEMENTS_MAX } else { usize::MAX };
    for statement in time.statements.iter().take(most) {
        statement_time(out, statement);
    }
    for by in time.by.iter().filter(|by| detail == Detail::Full || by.shares.len() > 1) {
        fold(out, "  ", &by.in_a_line());
    }
    if detail == Detail::Full {
        for note in &time.notes {
            fold(out, "  note: ", note);
        }
    }
}

fn statement_time(out: &mut String, statement: &StatementTime) {
    let mut figures = vec![format!("statement {}", statement.query_id)];
    let mut add = |value: Option<f64>, words: &dyn Fn(f64) -> String| {
        figures.extend(value.filter(|value| *value > 0.0).map(words));
    };
    add(statement.calls_per_s, &|calls| format!("{} calls/s", units::count(calls)));
    add(statement.mean_ms, &|ms| units::us(ms * 1e3));
    add(statement.plan_ms, &|ms| format!("{} of planning", units::us(ms * 1e3)));
    add(statement.jit_ms, &|ms| format!("{} of compilation", units::us(ms * 1e3)));
    add(statement.rows, &|rows| {
        format!("{} {}", units::short(rows), if rows == 1.0 { "row" } else { "rows" })
    });
    add(statement.blocks, &|blocks| format!("{} blocks", units::short(blocks)));
    add(statement.blocks_read, &|blocks| format!("{} of them read", units::short(blocks)));
    add(statement.temp_bytes, &|bytes| format!("{} temporary", units::bytes(bytes)));
    add(statement.wal_bytes, &|bytes| format!("{} WAL", units::bytes(bytes)));
    let label = format!("  {:>6}  ", units::percent(statement.share));
    fold(out, &label, &figures.join(", "));
    let below = " ".repeat(label.len());
    if !statement.text.is_empty() {
        fold(out, &below, &one_line(&statement.text, STATEMENT_CHARS));
    }
    if !statement.outer.is_empty() {
        fold(out, &below, &format!("inside of: {}", one_line(&statement.outer, STATEMENT_CHARS)));
    }
    for (words, shares) in [("seen in", &statement.events), ("computes in", &statement.functions)] {
        if !shares.is_empty() {
            let each = shares.iter().map(|(name, share)| format!("{name} {}", units::percent(*share)));
            fold(out, &below, &format!("{words} {}", each.collect::<Vec<_>>().join(", ")));
        }
    }
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::High => "HIGH",
        Severity::Medium => "MED",
        Severity::Low => "LOW",
        Severity::Note => "NOTE",
    }
}

fn finding_text(out: &mut String, number: usize, finding: &Finding, detail: Detail) {
    if let Some(cause) = finding.symptom_of.as_ref().filter(|_| detail == Detail::Short) {
        // A symptom goes with its cause; its own remedy is not the first thing to try.
        fold(out, &format!("{INDENT}symptom of {cause}: "), &format!("{} ({})", finding.claim, finding.rule));
        return;
    }
    let number = if finding.symptom_of.is_some() { "-".to_string() } else { number.to_string() };
    let label = format!("{number:>3} {:<5} ", severity(finding.severity));
    fold(out, &label, &finding.claim);
    let mut about = format!("{}, proof: {}", finding.rule, finding.level.words());
    for words in finding.costs() {
        about.push_str(&format!(", {words}"));
    }
    let times = times(&finding.windows);
    if !times.is_empty() {
        about.push_str(&format!("   evidence {times}"));
    }
    fold(out, INDENT, &about);
    if !finding.remedy.text.is_empty() {
        fold(out, &format!("{INDENT}try: "), &finding.remedy.text);
    }
    for command in &finding.remedy.commands {
        out.push_str(&format!("{INDENT}     {}\n", ascii(command)));
    }
    if detail == Detail::Full {
        for (label, sentences) in
            [("because", &finding.evidence), ("not", &finding.ruled_out), ("missing", &finding.missing)]
        {
            for sentence in sentences {
                fold(out, &format!("{INDENT}{label}: "), sentence);
            }
        }
        for link in &finding.links {
            out.push_str(&format!("{INDENT}see: {}\n", ascii(link)));
        }
    }
}

/// `#t=35-48, 61-64, and 2 more`: seconds of the run, the form that the page's links use.
fn times(windows: &[Window]) -> String {
    let second = |t_us: u64, up: u64| (t_us + up) / 1_000_000;
    let mut wording: Vec<String> = windows
        .iter()
        .take(WINDOWS_MAX)
        .map(|window| format!("{}-{}", second(window.from_us, 0), second(window.to_us, 999_999)))
        .collect();
    if windows.len() > WINDOWS_MAX {
        wording.push(format!("and {} more", windows.len() - WINDOWS_MAX));
    }
    if wording.is_empty() { String::new() } else { format!("#t={}", wording.join(", ")) }
}

fn client_time(out: &mut String, time: &ClientTime) {
    let head = format!(
        "client time of {}: {} per transaction, {} transactions",
        time.step,
        units::us(time.response_us_mean),
        units::count(time.transactions as f64)
    );
    fold(out, "", &head);
    for part in &time.parts {
        let events: Vec<String> =
            part.events.iter().map(|(name, share)| format!("{name} {}", units::percent(*share))).collect();
        let line = format!(
            "  {:<20} {:>8} {:>10}  {}",
            part.name,
            units::percent(part.share),
            units::us(part.us),
            events.join(", ")
        );
        out.push_str(ascii(&line).trim_end());
        out.push('\n');
    }
    for note in &time.notes {
        fold(out, "  note: ", note);
    }
}

/// A line with a label, continued under its text.
pub(crate) fn fold(out: &mut String, label: &str, text: &str) {
    let mut line = label.to_string();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            out.push_str(line.trim_end());
            out.push('\n');
            line = " ".repeat(label.chars().count());
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    out.push_str(line.trim_end());
    out.push('\n');
}
