//! Statements of a long text: what sessions compute with them, and no execution takes, is mostly the parsing, analysis and planning of that text. Pairs of keys
//! in an OR, thousands of VALUES, generated conditions: each form of them, beside lists, which have a rule of their own.

use super::{CALLS_MIN, PLAN_SHARE_MIN, Unplanned, is_failing};
use crate::case::{Case, Thing};
use crate::rules::costly::lowered;
use record::finding::NodeTime;
use std::collections::BTreeMap;

/// Characters of a text from which on it is long. The recorder keeps some more than that.
const LONG_CHARS: usize = 3_000;
/// So many characters at the begin of a text show of which form it is: their numbers of pairs differ, and with them their ids.
const SAME_CHARS: usize = 1_000;
/// Milliseconds that sessions compute and no execution takes.
const HIDDEN_MS_MIN: f64 = 5.0;
/// By how much that is longer than an execution.
const LONGER: f64 = 1.0;
/// Standard deviations of a number of samples that are no chance.
const NO_CHANCE: f64 = 3.0;

/// What is counted of the statements of one form.
#[derive(Default)]
struct Form<'a> {
    /// The one of them with the most executions.
    id: &'a str,
    most: f64,
    calls: f64,
    total_ms: f64,
    calls_per_s: f64,
    /// Sessions that computed with it, summed over the looks.
    seen: f64,
}

impl<'a> Form<'a> {
    fn add(&mut self, case: &'a Case, time: &NodeTime, one: &Thing<'a>) -> Option<()> {
        let id = one.lines.word("query_id");
        let (calls, total_ms, calls_per_s) =
            (one.lines.sum("calls")?, one.lines.sum("total_ms")?, one.lines.rate("calls")?);
        if calls > self.most {
            (self.id, self.most) = (id, calls);
        }
        self.calls += calls;
        self.total_ms += total_ms;
        self.calls_per_s += calls_per_s;
        self.seen += case.waits(&time.node)?.computing_with(id);
        Some(())
    }
}

/// A read with a long text that is parsed and planned for longer than it runs.
pub(super) fn wordy<'a>(case: &'a Case, time: &'a NodeTime) -> Option<Unplanned<'a>> {
    let looks = case.looks(&time.node, &[case.span]).max(1.0);
    let mut forms: BTreeMap<(&str, &str), Form<'a>> = BTreeMap::new();
    for one in case.at("statement", &time.node) {
        let id = one.lines.word("query_id");
        let text = case.query(id).unwrap_or_default();
        if text.len() >= LONG_CHARS && is_read(text) && !case.is_own_statement(id) {
            let end = (0..=SAME_CHARS).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            forms.entry((one.lines.word("database"), &text[..end])).or_default().add(case, time, &one);
        }
    }
    let found = forms.into_values().filter_map(|form| {
        let mean_ms = form.total_ms / form.calls.max(1.0);
        let running = form.calls_per_s * mean_ms / 1e3;
        let hidden = form.seen / looks - running;
        let hidden_ms = hidden / form.calls_per_s.max(f64::MIN_POSITIVE) * 1e3;
        let share = (hidden / time.active).min(1.0);
        let is_no_chance = hidden * looks > NO_CHANCE * form.seen.sqrt();
        let is_long = hidden_ms >= HIDDEN_MS_MIN.max(mean_ms * LONGER) && share >= PLAN_SHARE_MIN;
        let is_it = is_long && is_no_chance && form.calls >= CALLS_MIN;
        (is_it && !is_failing(case, time, form.seen)).then_some(Unplanned {
            id: form.id,
            plan: None,
            planning_ms: hidden_ms,
            mean_ms,
            calls_per_s: form.calls_per_s,
            share,
            is_wordy: true,
        })
    });
    found.max_by(|left, right| left.share.total_cmp(&right.share))
}

/// Whether it only reads, as far as a text shows that is cut off, and so cannot be parsed: what a write does at its commit is no planning.
fn is_read(text: &str) -> bool {
    let lowered = lowered(text);
    let writes = ["insert into ", "update ", "delete from ", "merge into "];
    let begins = ["select ", "with ", "(select "].iter().any(|word| lowered.trim_start().starts_with(word));
    begins && !writes.iter().any(|word| lowered.contains(word))
}
