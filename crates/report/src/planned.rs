//! What `plan` expected beside what was measured, on the terminal and on the page.

mod page;

pub(crate) use page::{KEY, alone, forecast, marks, section};

use crate::facts::Facts;
use crate::layout::{columns, fold, push};
use record::number;
use record::plan::{Compared, Plan};

/// The figures that both have, step by step.
pub(crate) fn compared(facts: &Facts) -> Vec<Compared> {
    let Some(plan) = &facts.directory.planned else { return vec![] };
    facts.steps.iter().flat_map(|step| plan.compared(&step.step)).collect()
}

/// `-12 %`; nothing where the plan has no value to divide by.
fn difference(one: &Compared) -> String {
    one.difference.map_or_else(
        || "-".to_string(),
        |share| format!("{}{}", if share > 0.0 { "+" } else { "" }, number::percent(share)),
    )
}

fn cells(one: &Compared) -> [String; 4] {
    [one.name.clone(), one.unit.text(one.planned), one.unit.text(one.measured), difference(one)]
}

/// What the plan was for, and what of the run cannot be compared with it.
fn sentence(plan: &Plan, facts: &Facts, has_figures: bool) -> String {
    let mut lacking: Vec<String> =
        facts.steps.iter().flat_map(|step| plan.not_compared(&step.step)).collect();
    lacking.dedup();
    let sentence = about(plan, has_figures);
    std::iter::once(sentence).chain(lacking).collect::<Vec<_>>().join(" ")
}

fn about(plan: &Plan, has_figures: bool) -> String {
    let rows = number::counted(plan.size.rows, "row");
    match has_figures {
        true => format!("The plan is for {} with {rows}.", plan.input.dataset),
        false => format!(
            "The plan is for {} with {rows}: this run measured none of its figures.",
            plan.input.dataset
        ),
    }
}

/// For the terminal.
pub(crate) fn print(out: &mut String, facts: &Facts) {
    let Some(plan) = &facts.directory.planned else { return };
    let all = compared(facts);
    out.push('\n');
    push(out, "planned against measured");
    fold(out, "  ", &record::escape::ascii(&sentence(plan, facts, !all.is_empty())));
    if all.is_empty() {
        return;
    }
    let head = ["", "planned", "measured", "difference"].map(str::to_string);
    let rows: Vec<[String; 4]> = std::iter::once(head).chain(all.iter().map(cells)).collect();
    columns(out, &rows, |column| column == 0);
}
