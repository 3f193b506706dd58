//! The web page: all text and tables are written here, so they work without scripts, in print and
//! with a screen reader; the numbers of charts are embedded as JSON, and `page/page.js` draws them.

pub(crate) mod markup;
mod sections;
pub(crate) mod steps;

use crate::PAGE_BYTES_MAX;
use crate::chart::{Band, COLUMNS_MAX, Chart, Mark};
use crate::compare::Comparison;
use crate::directory::Directory;
use crate::facts::{Depth, Facts, StepFacts};
use crate::{driven, filled, timeline};
use markup::escape;
use record::event;
use record::model::{PHASE_DRAIN, PHASE_MEASURE, PHASE_WARMUP};
use record::plan::Plan;
use serde::Serialize;

const STYLE: &str = include_str!("../page/page.css");
const STYLE_DARK: &str = include_str!("../page/dark.css");
const SCRIPT: &str = include_str!("../page/page.js");
const FLAME_SCRIPT: &str = include_str!("../page/flame.js");
const UPLOT_SCRIPT: &str = include_str!("../vendor/uplot/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("../vendor/uplot/uPlot.min.css");
/// uPlot's licence, kept with every copy of it, as the licence asks.
const UPLOT_LICENCE: &str = include_str!("../vendor/uplot/LICENSE");

/// Fewest columns a chart is cut to when a page of many steps gets too big.
const COLUMNS_MIN: usize = 60;
/// The first limit of columns over all steps of a page.
const COLUMNS_ALL_STEPS: usize = 6000;
/// Most events marked on a step's charts; more would hide them. All are in `events.ndjson`.
const MARKS_MAX: usize = 40;

/// The data of one step for the page's script.
#[derive(Serialize)]
struct StepData {
    key: String,
    charts: Vec<Chart>,
    bands: Vec<Band>,
    marks: Vec<Mark>,
}

#[derive(Serialize)]
struct PageData<'a> {
    steps: &'a [StepData],
}

/// The page. Runs with many steps get coarser charts until the page fits [`PAGE_BYTES_MAX`]; if that is not enough, the last
/// steps have no charts, and a note instead.
pub(crate) fn page(directory: &Directory, comparison: Option<&Comparison>) -> String {
    let steps = directory.reader.run.steps.len().max(1);
    let mut columns = (COLUMNS_ALL_STEPS / steps).clamp(COLUMNS_MIN, COLUMNS_MAX);
    loop {
        let facts = Facts::of(directory, Depth::Charts(columns));
        let mut parts = Parts { with_charts: facts.steps.len(), with_stacks: true, comparison };
        loop {
            let page = page_with(&facts, &parts);
            if page.len() <= PAGE_BYTES_MAX || parts.with_charts == 0 {
                return page;
            }
            if columns > COLUMNS_MIN {
                break;
            }
            if parts.with_stacks {
                parts.with_stacks = false;
            } else {
                parts.with_charts = parts.with_charts * 3 / 4;
            }
        }
        columns = (columns / 2).max(COLUMNS_MIN);
    }
}

/// The optional parts of a page.
struct Parts<'a> {
    /// The number of steps, from the first, with charts.
    with_charts: usize,
    with_stacks: bool,
    /// Requested by the user; else the worst finding's seconds are compared.
    comparison: Option<&'a Comparison>,
}

fn page_with(facts: &Facts, parts: &Parts) -> String {
    let with_charts = parts.with_charts;
    let all = facts.steps.iter().enumerate();
    let mut data: Vec<StepData> = all.map(|(at, step)| step_data(facts, step, at < with_charts)).collect();
    let mut body = String::with_capacity(64 * 1024);
    sections::top(&mut body, facts);
    body.push_str("<main id=\"main\">\n");
    sections::answer(&mut body, facts);
    crate::node_time::section(&mut body, facts);
    crate::findings::section(&mut body, facts);
    if let Some(comparison) = parts.comparison {
        crate::compare::section(&mut body, comparison);
    }
    crate::planned::section(&mut body, facts);
    sections::tested(&mut body, facts);
    crate::prove::section(&mut body, &facts.reader.run);
    let over = facts.sweep.as_ref().map(|sweep| (sweep, crate::sweep::charts(sweep)));
    if let Some((sweep, charts)) = &over {
        crate::sweep::section(&mut body, facts, sweep, charts);
    }
    if let Some(matrix) = &facts.matrix {
        crate::matrix::section(&mut body, facts, matrix);
    }
    match facts.checked() {
        Some(checks) => crate::checks::section(&mut body, checks),
        None => {
            if let Some(checks) = &facts.directory.checks {
                crate::checks::hardware_section(&mut body, facts.directory, checks);
            }
        }
    }
    for (at, (step, data)) in facts.steps.iter().zip(&data).enumerate() {
        // A cell shows its own errors; the matrix has everything else. A check has its own sections.
        if step.is_plain_cell() || step.step.verb == crate::checks::VERB {
            steps::benchmarks(&mut body, step);
            continue;
        }
        steps::section(&mut body, facts, step, &data.charts, at < with_charts);
    }
    if let Some((_, charts)) = over {
        data.push(StepData { key: crate::sweep::KEY.to_string(), charts, bands: vec![], marks: vec![] });
    }
    data.extend(facts.directory.planned.as_ref().and_then(plan_data));
    if parts.comparison.is_none()
        && let Some(comparison) = Comparison::of_worst(facts)
    {
        crate::compare::section(&mut body, &comparison);
    }
    if parts.with_stacks {
        crate::flame::section(&mut body, facts);
    } else if crate::flame::has_stacks(facts) {
        body.push_str("<p class=\"under\">Flame graphs are omitted to keep the page small; stacks/ has every sample.</p>\n");
    }
    crate::unseen::section(&mut body, facts);
    sections::method(&mut body, facts);
    body.push_str("</main>\n");
    frame(&sections::title(facts), &body, &script_json(&PageData { steps: &data }))
}

/// The page of a plan; `text` is what the terminal shows of it.
pub(crate) fn plan_page(plan: &Plan, text: &str) -> String {
    let data: Vec<StepData> = plan_data(plan).into_iter().collect();
    let title = format!("plan {} · pgfathom", plan.input.dataset);
    frame(&title, &crate::planned::alone(plan, text), &script_json(&PageData { steps: &data }))
}

/// The forecast of a plan.
fn plan_data(plan: &Plan) -> Option<StepData> {
    let (chart, marks) = (crate::planned::forecast(plan)?, crate::planned::marks(plan));
    Some(StepData { key: crate::planned::KEY.to_string(), charts: vec![chart], bands: vec![], marks })
}

fn frame(title: &str, body: &str, data: &str) -> String {
    let style = STYLE.replace("/*DARK*/", STYLE_DARK);
    format!(
        r##"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none';
form-action 'none'">
<meta name="generator" content="pgfathom">
<title>{title}</title>
<style>
{UPLOT_STYLE}
{style}</style>
<noscript><style>.plot, .legend .at, figure header output, figcaption details, #theme, .zoomed {{ display: none }}</style></noscript>
</head>
<body>
<a class="skip" href="#main">Skip to the answer</a>
<div class="wrap">
<noscript><p>The page draws its charts with a script, which this browser does not run. All text and tables are here.</p></noscript>
{body}</div>
<p class="sr" id="announce" aria-live="polite"></p>
<script type="application/json" id="data">{data}</script>
<script>
{UPLOT_SCRIPT}
/*! uPlot licence:
{UPLOT_LICENCE}*/
</script>
<script>
{FLAME_SCRIPT}{SCRIPT}</script>
</body>
</html>
"##,
        title = escape(title),
    )
}

/// JSON that is safe inside a script element: no `<` can end the element or open a comment, and no line separator of
/// JavaScript that JSON allows.
fn script_json(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).expect("charts are plain numbers and words");
    // Control characters that affect the surrounding text are shown by number: the backslash is an ordinary character.
    let detail = |c: char| format!("\\\\u{:04x}", u32::from(c));
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c if record::escape::is_active(c) => out.push_str(&detail(c)),
            c => out.push(c),
        }
    }
    out
}

fn step_data(facts: &Facts, step: &StepFacts, with_charts: bool) -> StepData {
    let watched = || timeline::charts(step, facts.directory.findings.as_ref());
    let charts = match (with_charts && !step.is_cell(), step.progress.is_empty()) {
        (false, _) => vec![],
        (true, true) => driven::charts(step, watched()),
        (true, false) => filled::charts(step).into_iter().chain(watched()).collect(),
    };
    StepData { key: step.step.key.clone(), bands: bands(step), marks: marks(step), charts }
}

/// Seconds since the start of the step.
fn seconds(step: &StepFacts, t_us: u64) -> f64 {
    crate::chart::tidy(t_us.saturating_sub(step.step.start_us) as f64 / 1e6)
}

fn bands(step: &StepFacts) -> Vec<Band> {
    let phases = step.step.phases.iter().filter(|phase| phase.name != PHASE_MEASURE);
    phases
        .map(|phase| {
            let aside = phase.name == PHASE_WARMUP || phase.name == PHASE_DRAIN;
            Band {
                from: seconds(step, phase.start_us),
                to: seconds(step, phase.end_us.unwrap_or(step.end_us)),
                label: phase.name.clone(),
                kind: if aside { "aside" } else { "phase" },
            }
        })
        .chain(outages(step))
        .collect()
}

fn outages<'a>(step: &'a StepFacts) -> impl Iterator<Item = Band> + 'a {
    step.events.iter().filter(|event| event.kind == event::OUTAGE).map(|event| Band {
        from: seconds(step, event.t_us),
        to: seconds(step, event.t_us.saturating_add(event.duration_us.unwrap_or(0))),
        label: if event.more.get("cause").is_some_and(|cause| cause == "partial") {
            "failures"
        } else {
            "outage"
        }
        .to_string(),
        kind: "outage",
    })
}

/// Events worth a mark: those of the step, and checkpoints and the like that belong to no step but fell into it.
fn marks(step: &StepFacts) -> Vec<Mark> {
    let events = step.events.iter().filter(|event| timeline::lanes::is_marked(&event.kind));
    let label = |kind: &str, more: &serde_json::Map<String, serde_json::Value>| match more.get("sqlstate") {
        Some(serde_json::Value::String(sqlstate)) => format!("{kind} {sqlstate}"),
        _ => kind.to_string(),
    };
    events
        .map(|event| Mark { at: seconds(step, event.t_us), label: label(&event.kind, &event.more) })
        .take(MARKS_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_cannot_leave_its_script_element() {
        let wicked = "</script><!--\u{2028}\u{2029}<script>";
        let text = script_json(&serde_json::json!({ "text": wicked }));
        assert!(!text.contains('<') && !text.contains('\u{2028}') && !text.contains('\u{2029}'), "{text}");
        let back: serde_json::Value = serde_json::from_str(&text).expect("still JSON");
        assert_eq!(back["text"], wicked);
    }

    #[test]
    fn the_vendored_script_keeps_its_banner_and_ends_no_element() {
        assert!(UPLOT_SCRIPT.starts_with("/*! https://github.com/leeoniya/uPlot (v1.6.32) */"));
        for text in [UPLOT_SCRIPT, FLAME_SCRIPT, SCRIPT, UPLOT_LICENCE] {
            assert!(!text.to_lowercase().contains("</script"));
        }
        assert!(!UPLOT_LICENCE.contains("*/"), "the licence stands in a comment");
    }
}
