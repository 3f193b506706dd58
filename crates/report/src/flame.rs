//! Flame graphs of the bad seconds against the good ones, from the slices of stacks in the directory.
//!
//! Drawn here and not by a crate: a graph is a few hundred nested rectangles, and the library for it would add five packages
//! and a second licence. Positions are percent, so that the text keeps its size on every screen; nothing in it is a script. In the graph
//! of the bad seconds the colour shows what changed: orange frames take a larger share than in the good ones, blue frames a smaller one.

use crate::directory::Line;
use crate::facts::{Facts, StepFacts};
use crate::html::markup::{Cell, Row, escape, table};
use record::finding::{Severity, Window};
use record::number;
use record::stacks::{self, Slice, Stack};
use record::watched::Sampled;
use std::collections::BTreeMap;

/// The most rectangles of one graph; the narrowest are dropped.
const FRAMES_MAX: usize = 900;
/// Frames narrower than this share are not drawn.
const SHARE_MIN: f64 = 0.002;
/// Frames from the root that are drawn.
const DEPTH_MAX: usize = 64;
/// Height of a frame.
const ROW_PX: usize = 18;
/// Functions in the table.
const FUNCTIONS_MAX: usize = 12;
/// Smaller changes of a share are ignored.
const CHANGE_MIN: f64 = 0.01;
/// Samples below which a graph proves nothing.
const SAMPLES_MIN: u64 = 20;

/// A node of the tree: its number of samples, and its child frames.
#[derive(Clone, Debug, Default)]
struct Node {
    count: u64,
    below: BTreeMap<String, Node>,
}

impl Node {
    fn add(&mut self, frames: &[String]) {
        let mut node = self;
        node.count += 1;
        for frame in frames.iter().take(DEPTH_MAX) {
            node = node.below.entry(frame.clone()).or_default();
            node.count += 1;
        }
    }
}

/// A rectangle: position and width as shares, depth from the root.
struct Frame<'a> {
    name: &'a str,
    from: f64,
    share: f64,
    depth: usize,
    /// Its share on the other side.
    other: Option<f64>,
}

fn lay_out<'a>(
    node: &'a Node,
    other: Option<(&'a Node, u64)>,
    all: u64,
    from: f64,
    depth: usize,
    out: &mut Vec<Frame<'a>>,
) {
    let mut at = from;
    for (name, below) in &node.below {
        let share = below.count as f64 / all.max(1) as f64;
        let match_ = other.and_then(|(node, all)| Some((node.below.get(name)?, all)));
        if share >= SHARE_MIN {
            let other_share =
                other.map(|_| match_.map_or(0.0, |(node, all)| node.count as f64 / all.max(1) as f64));
            out.push(Frame { name, from: at, share, depth, other: other_share });
            // If the other side lacks a frame, it also lacks everything below it.
            static NOTHING: Node = Node { count: 0, below: BTreeMap::new() };
            let next = other.map(|(_, all)| (match_.map_or(&NOTHING, |(node, _)| node), all));
            lay_out(below, next, all, at, depth + 1, out);
        }
        at += share;
    }
}

/// Both sides as trees.
#[derive(Debug, Default)]
struct Sides {
    bad: Node,
    good: Node,
    /// Why those are the bad ones.
    why: String,
}

/// Writes the section; nothing without stacks.
pub(crate) fn section(out: &mut String, facts: &Facts) {
    let (slices, problems) =
        stacks::read(facts.directory.reader.path(), facts.directory.reader.run.started.monotonic_us);
    let sides = split(facts, &slices);
    if sides.bad.count.max(sides.good.count) < SAMPLES_MIN {
        return;
    }
    out.push_str("<section id=\"stacks\"><h2>Where CPU time went</h2>\n");
    let samples = |node: &Node| number::counted(node.count, "sample");
    match (sides.bad.count >= SAMPLES_MIN, sides.good.count >= SAMPLES_MIN) {
        (true, true) => {
            out.push_str(&format!(
                "<p class=\"under\">{}. Width is the share of samples; callers are above. <span class=\"swatch slow2\">more</span> <span \
                 class=\"swatch fast2\">less</span> than in the good seconds, with ▲ and ▼.</p>\n",
                escape(&sides.why)
            ));
            graph(out, &format!("Bad seconds, {}", samples(&sides.bad)), &sides.bad, Some(&sides.good));
            graph(out, &format!("Good seconds, {}", samples(&sides.good)), &sides.good, None);
            functions(out, &sides);
        }
        (bad, _) => {
            let (name, node) = if bad { ("Bad seconds", &sides.bad) } else { ("All samples", &sides.good) };
            let why = if bad { "no slice is from good seconds" } else { "no slice is from bad seconds" };
            out.push_str(&format!("<p class=\"under\">Width is the share of samples; callers are above. There is no comparison: {why}.</p>\n"));
            graph(out, &format!("{name}, {}", samples(node)), node, None);
        }
    }
    for problem in problems {
        out.push_str(&format!("<p class=\"under\">{}</p>\n", escape(&problem)));
    }
    out.push_str("</section>\n");
}

/// True if [`section`] has content.
pub(crate) fn has_stacks(facts: &Facts) -> bool {
    facts.directory.reader.path().join(record::files::STACKS).is_dir()
}

/// Sorts the samples: bad are those in the windows of findings; without such windows, those of slices kept for an anomaly.
fn split(facts: &Facts, slices: &[Slice]) -> Sides {
    let kinds = process_kinds(facts.directory.watched.all());
    let windows = bad_windows(facts);
    let in_window = |t_us: u64| windows.iter().any(|window| window.holds(t_us));
    let all = || slices.iter().flat_map(|slice| slice.stacks.iter().map(move |stack| (slice, stack)));
    let by_window = all().any(|(_, stack)| in_window(stack.t_us));
    let mut sides = Sides {
        why: if by_window {
            "Bad seconds are those of the findings"
        } else {
            "Bad seconds are slices kept because of an anomaly"
        }
        .to_string(),
        ..Sides::default()
    };
    for (slice, stack) in all() {
        let bad = if by_window { in_window(stack.t_us) } else { !slice.is_baseline() };
        let side = if bad { &mut sides.bad } else { &mut sides.good };
        side.add(&named(stack, &kinds));
    }
    sides
}

/// The windows of findings that are about a part of their step, not about all of it.
fn bad_windows(facts: &Facts) -> Vec<Window> {
    let findings = facts.directory.findings.iter().flat_map(|findings| &findings.findings);
    let detail = findings.filter(|finding| finding.severity > Severity::Note);
    let partial = |window: &Window| {
        let step: Option<&StepFacts> = crate::findings::step_of(facts, *window);
        step.is_some_and(|step| window.length_us() * 2 < step.end_us.saturating_sub(step.step.start_us))
    };
    detail.flat_map(|finding| finding.windows.iter().copied()).filter(partial).collect()
}

/// The kind of each process, as far as the server reported it.
fn process_kinds(lines: &[Line]) -> BTreeMap<u64, &str> {
    let mut kinds = BTreeMap::new();
    for line in lines {
        if let Sampled::Backend(backend) = &line.what
            && !backend.backend.is_empty()
        {
            kinds.insert(backend.pid, backend.backend.as_str());
        }
    }
    kinds
}

/// The frames of a stack from the root, the kind of process first.
fn named(stack: &Stack, kinds: &BTreeMap<u64, &str>) -> Vec<String> {
    let kind = kinds.get(&stack.pid).map_or(stack.command.as_str(), |kind| kind);
    std::iter::once(kind.to_string()).chain(stack.frames.iter().rev().cloned()).collect()
}

fn graph(out: &mut String, title: &str, node: &Node, other: Option<&Node>) {
    let mut frames = vec![];
    lay_out(node, other.map(|other| (other, other.count)), node.count, 0.0, 0, &mut frames);
    let mut left_out = 0;
    if frames.len() > FRAMES_MAX {
        let mut shares: Vec<f64> = frames.iter().map(|frame| frame.share).collect();
        shares.sort_by(|left, right| right.total_cmp(left));
        let least = shares[FRAMES_MAX - 1];
        left_out = frames.len() - FRAMES_MAX;
        frames.retain(|frame| frame.share > least);
    }
    let depth = frames.iter().map(|frame| frame.depth + 1).max().unwrap_or(1);
    let title = escape(title);
    out.push_str(&format!(
        "<div class=\"block\"><h3>{title}</h3><svg class=\"flame\" role=\"img\" aria-label=\"Flame graph: {title}\" width=\"100%\" height=\"{}\">",
        depth * ROW_PX
    ));
    for frame in &frames {
        let (class, sign, more) = compared(frame);
        let name = escape(frame.name);
        let share = number::percent_of(frame.share, 1.0);
        out.push_str(&format!(
            "<svg x=\"{:.2}%\" y=\"{}\" width=\"{:.2}%\" height=\"{ROW_PX}\"><title>{name}: {share}{more}</title><rect width=\"100%\" height=\"{}\" \
             class=\"{class}\"/>{}</svg>",
            frame.from * 100.0,
            frame.depth * ROW_PX,
            frame.share * 100.0,
            ROW_PX - 1,
            // A text that would be too small to read is left out.
            if frame.share > 0.012 { format!("<text x=\"4\" y=\"13\">{sign}{name}</text>") } else { String::new() },
        ));
    }
    out.push_str("</svg>");
    if left_out > 0 {
        out.push_str(&format!(
            "<p class=\"under\">{} are too narrow to draw.</p>",
            number::counted(left_out as u64, "frame")
        ));
    }
    out.push_str("</div>\n");
}

/// Class, sign and text of a frame's difference from the other side.
fn compared(frame: &Frame) -> (&'static str, &'static str, String) {
    let Some(other) = frame.other else { return ("", "", String::new()) };
    let change = frame.share - other;
    let words = format!(", good seconds {}", number::percent_of(other, 1.0));
    match change {
        more if more >= 0.10 => ("slow3", "▲ ", words),
        more if more >= 0.04 => ("slow2", "▲ ", words),
        more if more >= CHANGE_MIN => ("slow1", "", words),
        less if less <= -0.10 => ("fast3", "▼ ", words),
        less if less <= -0.04 => ("fast2", "▼ ", words),
        less if less <= -CHANGE_MIN => ("fast1", "", words),
        _ => ("", "", words),
    }
}

/// The shares of samples with each function anywhere in their stack, and at its end.
fn shares(node: &Node) -> BTreeMap<&str, (f64, f64)> {
    fn walk<'a>(
        node: &'a Node,
        above: &mut Vec<&'a str>,
        all: f64,
        shares: &mut BTreeMap<&'a str, (f64, f64)>,
    ) {
        for (name, below) in &node.below {
            let entry = shares.entry(name).or_default();
            // A function that calls itself counts once.
            if !above.contains(&name.as_str()) {
                entry.0 += below.count as f64 / all;
            }
            let deeper = below.below.values().map(|node| node.count).fold(0, u64::saturating_add);
            entry.1 += below.count.saturating_sub(deeper) as f64 / all;
            above.push(name);
            walk(below, above, all, shares);
            above.pop();
        }
    }
    let mut found = BTreeMap::new();
    // The kind of process is no function.
    for below in node.below.values() {
        walk(below, &mut vec![], node.count.max(1) as f64, &mut found);
    }
    found
}

fn functions(out: &mut String, sides: &Sides) {
    let (bad, good) = (shares(&sides.bad), shares(&sides.good));
    let names: std::collections::BTreeSet<&str> = bad.keys().chain(good.keys()).copied().collect();
    let of = |side: &BTreeMap<&str, (f64, f64)>, name: &str| side.get(name).copied().unwrap_or_default();
    let change = |name: &str| of(&bad, name).1 - of(&good, name).1;
    let mut names: Vec<&str> = names.into_iter().filter(|name| change(name).abs() >= CHANGE_MIN).collect();
    names.sort_by(|left, right| change(right).abs().total_cmp(&change(left).abs()));
    let rows: Vec<Row> = names
        .iter()
        .take(FUNCTIONS_MAX)
        .map(|name| {
            let ((bad_all, bad_own), (good_all, good_own)) = (of(&bad, name), of(&good, name));
            let percent = |share: f64| Cell::number(number::percent_of(share, 1.0));
            let sign = if change(name) > 0.0 { "▲" } else { "▼" };
            Row::new(vec![
                Cell::html(format!("<code>{}</code>", escape(name))).class("text"),
                percent(bad_own),
                percent(good_own),
                Cell::number(format!("{sign} {:.1} points", change(name).abs() * 100.0)),
                percent(bad_all),
                percent(good_all),
            ])
        })
        .collect();
    if rows.is_empty() {
        return;
    }
    let head = [
        ("function", false),
        ("self, bad", false),
        ("good", false),
        ("change", false),
        ("with callees, bad", false),
        ("good", false),
    ];
    out.push_str("<div class=\"block\">");
    table(out, "Functions that changed most", &head, &rows);
    out.push_str("</div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(stacks: &[(&str, u64)]) -> Node {
        let mut node = Node::default();
        for (stack, count) in stacks {
            let frames: Vec<String> = stack.split(';').map(str::to_string).collect();
            (0..*count).for_each(|_| node.add(&frames));
        }
        node
    }

    #[test]
    fn frames_are_as_wide_as_their_share_and_stand_below_their_callers() {
        let (bad, good) = (tree(&[("p;a;b", 30), ("p;a;c", 70)]), tree(&[("p;a;b", 90), ("p;a;d", 10)]));
        let mut frames = vec![];
        lay_out(&bad, Some((&good, good.count)), bad.count, 0.0, 0, &mut frames);
        let detail: Vec<(&str, f64, f64, usize, Option<f64>)> =
            frames.iter().map(|one| (one.name, one.from, one.share, one.depth, one.other)).collect();
        assert_eq!(
            detail,
            [
                ("p", 0.0, 1.0, 0, Some(1.0)),
                ("a", 0.0, 1.0, 1, Some(1.0)),
                ("b", 0.0, 0.3, 2, Some(0.9)),
                ("c", 0.3, 0.7, 2, Some(0.0))
            ]
        );
        assert_eq!(
            (compared(&frames[3]).0, compared(&frames[2]).0, compared(&frames[1]).0),
            ("slow3", "fast3", "")
        );
    }

    #[test]
    fn a_function_that_calls_itself_counts_once() {
        let node = tree(&[("p;a;a;b", 1), ("p;a", 1)]);
        assert_eq!(shares(&node)["a"], (1.0, 0.5));
        assert_eq!(shares(&node)["b"], (0.5, 0.5));
        assert!(!shares(&node).contains_key("p"));
    }
}
