//! The findings of `explain`, at the top of the page and of the terminal output: first the claim with its proof, then the commands, then the
//! seconds. Rules that found nothing and rules without data are folded below: these are different answers.

use crate::facts::{Facts, StepFacts};
use crate::html::markup::{Cell, Row, escape, table};
use crate::layout::{fold, push};
use record::escape::ascii;
use record::finding::{CheckState, Checked, ClientTime, Finding, Findings, Level, Severity, Window};
use record::number;

/// Findings shown on the terminal; the page has all.
const TEXT_MAX: usize = 8;
/// Windows of one finding that get a link.
const WINDOWS_MAX: usize = 6;
/// The share of a window's length that is shown before and after it, to make the change visible.
const MARGIN: f64 = 0.5;
/// At least so many seconds.
const MARGIN_S_MIN: f64 = 2.0;

/// A severity's sign, so that colour is not the only difference.
fn sign(severity: Severity) -> &'static str {
    match severity {
        Severity::High => "▲",
        Severity::Medium => "◆",
        Severity::Low => "●",
        Severity::Note => "○",
    }
}

/// The meaning of a level.
fn level_text(level: Level) -> &'static str {
    match level {
        Level::Symptom => "the condition was observed; several causes can explain it",
        Level::WhatIf => "the planner was shown the change by EXPLAIN; nothing was run",
        Level::CoOccurrence => "cause and effect occur at the same times",
        Level::DiscriminatingCounter => "a counter changed that has no other explanation",
        Level::PeerContrast => "its peers are healthy under the same load",
        Level::Intervention => "it disappeared or appeared when a setting that acts on it was changed",
    }
}

/// Writes the section; nothing if the run was not explained.
pub(crate) fn section(out: &mut String, facts: &Facts) {
    let Some(findings) = &facts.directory.findings else { return };
    out.push_str("<section id=\"findings\"><h2>Findings</h2>\n");
    if findings.findings.is_empty() {
        let (clean, untold) = counts(findings);
        out.push_str(&format!(
            "<p>{}. {} found nothing; {untold} had no data.</p>\n",
            escape(&capital(findings.no_findings())),
            number::counted(clean, "rule")
        ));
    }
    out.push_str("<ol class=\"findings\">\n");
    for finding in &findings.findings {
        one(out, facts, finding);
    }
    out.push_str("</ol>\n");
    uncovered(out, findings);
    client_time(out, facts, findings);
    folded(out, findings, CheckState::Clean, "checked, nothing found", "data that was checked");
    folded(out, findings, CheckState::CannotTell, "cannot tell", "missing data");
    if !findings.missing.is_empty() {
        out.push_str("<details><summary>What the directory lacks</summary>");
        list(out, &findings.missing);
        out.push_str("</details>\n");
    }
    out.push_str("</section>\n");
}

/// Large slices of the time without a finding, and why "nothing found" may mean little.
fn uncovered(out: &mut String, findings: &Findings) {
    if !findings.uncovered.is_empty() {
        out.push_str("<h3 class=\"apart\">Not covered by any rule</h3><ul class=\"sentences\">");
        for left in &findings.uncovered {
            out.push_str(&format!("<li>{}", escape(&left.sentence())));
            for command in &left.commands {
                out.push_str(&format!(
                    "<div class=\"command\"><code>{}</code><button type=\"button\" class=\"copy\">Copy</button></div>",
                    escape(command)
                ));
            }
            out.push_str("</li>");
        }
        out.push_str("</ul>\n");
    }
    if !findings.blind.is_empty() {
        out.push_str("<h3 class=\"apart\">What the recording could not see</h3>");
        list(out, &findings.blind);
    }
}

fn counts(findings: &Findings) -> (u64, u64) {
    let clean = findings.checked.iter().filter(|checked| checked.state == CheckState::Clean).count() as u64;
    (clean, findings.checked.len() as u64 - clean)
}

pub(crate) fn one(out: &mut String, facts: &Facts, finding: &Finding) {
    let word = finding.severity.word();
    out.push_str(&format!(
        "<li class=\"{word}\"><h3><span class=\"severity\"><i aria-hidden=\"true\">{}</i>{word}</span> {} <small>{}{}</small></h3>\n<p \
         class=\"claim\">{}</p>\n",
        sign(finding.severity),
        escape(&finding.title),
        escape(&finding.id),
        escape(&place(finding)),
        escape(&finding.claim),
    ));
    let mut about = vec![format!(
        "<span title=\"{}\">proof: {}</span>",
        level_text(finding.level),
        finding.level.words()
    )];
    about.extend(finding.symptom_of.iter().map(|cause| format!("<span>symptom of {}</span>", escape(cause))));
    about.extend(finding.costs().iter().map(|words| format!("<span>{}</span>", escape(words))));
    about.extend(windows(facts, finding));
    out.push_str(&format!("<p class=\"facts-line\">{}</p>\n", about.join("")));
    if !finding.remedy.text.is_empty() || !finding.remedy.commands.is_empty() {
        out.push_str(&format!(
            "<p class=\"remedy\"><b>What to do:</b> {}</p>\n",
            escape(&finding.remedy.text)
        ));
        for command in &finding.remedy.commands {
            out.push_str(&format!(
                "<div class=\"command\"><code>{}</code><button type=\"button\" class=\"copy\">Copy</button></div>\n",
                escape(command)
            ));
        }
    }
    let numbers: Vec<String> = finding
        .numbers
        .iter()
        .map(|(name, value)| {
            let (label, text) = number::named(name, *value);
            format!("{label}: {text}")
        })
        .collect();
    let parts = [
        ("Evidence", &finding.evidence),
        ("Numbers", &numbers),
        ("Ruled out", &finding.ruled_out),
        ("What would prove more", &finding.missing),
    ];
    if parts.iter().any(|(_, sentences)| !sentences.is_empty()) || !finding.links.is_empty() {
        out.push_str("<details><summary>Evidence</summary><dl class=\"tested\">");
        for (name, sentences) in parts.iter().filter(|(_, sentences)| !sentences.is_empty()) {
            out.push_str(&format!("<dt>{name}</dt><dd>"));
            list(out, sentences);
            out.push_str("</dd>");
        }
        if !finding.links.is_empty() {
            let links: Vec<String> = finding.links.iter().map(|link| linked(link)).collect();
            out.push_str(&format!("<dt>Read more</dt><dd>{}</dd>", links.join("<br>")));
        }
        out.push_str("</dl></details>\n");
    }
    out.push_str("</li>\n");
}

/// A link only for web addresses; everything else stays text.
fn linked(link: &str) -> String {
    let text = escape(link);
    match link.starts_with("https://") {
        true => format!("<a href=\"{text}\" rel=\"noreferrer\">{text}</a>"),
        false => text,
    }
}

fn place(finding: &Finding) -> String {
    let node = finding.node.iter().map(|node| format!(", node {node}"));
    node.chain(finding.host.iter().map(|host| format!(", host {host}"))).collect()
}

fn list(out: &mut String, sentences: &[String]) {
    out.push_str("<ul class=\"sentences\">");
    for sentence in sentences {
        out.push_str(&format!("<li>{}</li>", escape(sentence)));
    }
    out.push_str("</ul>");
}

/// The finding's seconds as links that zoom the charts of the step they fall into.
fn windows(facts: &Facts, finding: &Finding) -> Vec<String> {
    let mut links = vec![];
    for window in finding.windows.iter().take(WINDOWS_MAX) {
        let Some(step) = step_of(facts, *window) else { continue };
        let second = |t_us: u64| t_us.saturating_sub(step.step.start_us) as f64 / 1e6;
        let end_s = step.end_us.saturating_sub(step.step.start_us) as f64 / 1e6;
        let (from, to) = (second(window.from_us), second(window.to_us).min(end_s));
        let margin = ((to - from) * MARGIN).max(MARGIN_S_MIN);
        let (left, right) = ((from - margin).max(0.0), (to + margin).min(end_s));
        let named = if facts.steps.len() > 1 { format!(" of {}", step.title()) } else { String::new() };
        links.push(format!(
            "<span><a class=\"window\" href=\"#step={}&amp;t={left:.3}-{right:.3}\">{} to {}{}</a></span>",
            escape(&encoded(&step.step.key)),
            number::duration(from),
            number::duration(to),
            escape(&named),
        ));
    }
    if finding.windows.len() > WINDOWS_MAX {
        links.push(format!("<span>and {} more</span>", finding.windows.len() - WINDOWS_MAX));
    }
    links
}

/// The step that a window overlaps most.
pub(crate) fn step_of<'f, 'a>(facts: &'f Facts<'a>, window: Window) -> Option<&'f StepFacts<'a>> {
    let overlap = |step: &StepFacts| window.overlap_us(Window::new(step.step.start_us, step.end_us));
    facts.steps.iter().filter(|step| overlap(step) > 0).max_by_key(|step| overlap(step))
}

/// A key, escaped for an address.
fn encoded(key: &str) -> String {
    key.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

fn client_time(out: &mut String, facts: &Facts, findings: &Findings) {
    for time in findings.client_time.iter().filter(|time| !time.parts.is_empty()) {
        let step = facts.steps.iter().find(|step| step.step.key == time.step);
        let title = step.map_or(time.step.clone(), StepFacts::title);
        let rows: Vec<Row> = time
            .parts
            .iter()
            .map(|part| {
                let bar = format!(
                    "<span class=\"balance\"><i style=\"width:{:.1}%\"></i></span>",
                    part.share.clamp(0.0, 1.0) * 100.0
                );
                let events: Vec<String> = part
                    .events
                    .iter()
                    .map(|(event, share)| format!("{event} {}", number::percent_of(*share, 1.0)))
                    .collect();
                Row::new(vec![
                    Cell::word(&part.name),
                    Cell::number(number::percent(part.share)),
                    Cell::html(bar).class("word"),
                    Cell::number(number::latency(part.us.round())),
                    Cell::words(events.join(", ")),
                ])
            })
            .collect();
        let head = [("part", false), ("share", false), ("", true), ("of each", false), ("most of it", true)];
        out.push_str("<div class=\"block\">");
        let caption = format!(
            "Where the clients' time went, {title}: {} per transaction",
            number::latency(time.response_us_mean.round())
        );
        table(out, &caption, &head, &rows);
        for note in &time.notes {
            out.push_str(&format!("<p class=\"under\">{}</p>", escape(note)));
        }
        out.push_str("</div>\n");
    }
}

fn folded(out: &mut String, findings: &Findings, of_state: CheckState, name: &str, why: &str) {
    let checked: Vec<&Checked> =
        findings.checked.iter().filter(|checked| checked.state == of_state).collect();
    if checked.is_empty() {
        return;
    }
    let count = number::counted(checked.len() as u64, "condition");
    out.push_str(&format!("<details><summary>{count}: {name}</summary>"));
    let rows: Vec<Row> = checked
        .iter()
        .map(|checked| {
            Row::new(vec![Cell::word(&checked.rule), Cell::words(&checked.title), Cell::words(&checked.why)])
        })
        .collect();
    table(out, &capital(name), &[("rule", false), ("condition", true), (why, true)], &rows);
    out.push_str("</details>\n");
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().collect::<String>() + letters.as_str())
        .unwrap_or_default()
}

/// Prints the findings in a few lines.
pub(crate) fn print(out: &mut String, facts: &Facts) {
    let Some(findings) = &facts.directory.findings else { return };
    out.push('\n');
    for finding in findings.causes().take(TEXT_MAX) {
        let label = format!("{:<7}", finding.severity.word());
        let claim = ascii(&finding.claim);
        fold(
            out,
            &label,
            &format!(
                "{}{}: {claim} ({})",
                finding.id,
                ascii(&place(finding)),
                [vec![finding.level.words().to_string()], finding.costs()].concat().join(", ")
            ),
        );
        if !finding.remedy.text.is_empty() {
            fold(out, "       ", &format!("to do: {}", ascii(&finding.remedy.text)));
        }
        for command in &finding.remedy.commands {
            push(out, &format!("         {}", ascii(command)));
        }
    }
    let causes = findings.causes().count();
    if causes > TEXT_MAX {
        push(out, &format!("       and {} more findings on the page", causes - TEXT_MAX));
    }
    for left in &findings.uncovered {
        fold(out, "not covered  ", &ascii(&left.sentence()));
    }
    for reason in &findings.blind {
        fold(out, "blind  ", &ascii(reason));
    }
    let (clean, untold) = counts(findings);
    let none =
        if findings.findings.is_empty() { format!("{}; ", findings.no_findings()) } else { String::new() };
    fold(
        out,
        "checked ",
        &format!("{none}{} found nothing, {untold} had no data", number::counted(clean, "condition")),
    );
    for time in &findings.client_time {
        fold(out, "time    ", &client_time_line(time));
    }
}

fn client_time_line(time: &ClientTime) -> String {
    let parts: Vec<String> =
        time.parts.iter().map(|part| format!("{} {}", part.name, number::percent(part.share))).collect();
    let mean = number::latency(time.response_us_mean.round());
    format!("{}: {mean} a transaction: {}", time.step, parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_texts_are_made_fit_for_their_places() {
        assert_eq!(encoded("run-a b&t=1"), "run-a%20b%26t%3D1");
        assert_eq!(linked("javascript:alert(1)"), "javascript:alert(1)");
    }
}
