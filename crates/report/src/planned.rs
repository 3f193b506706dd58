//! What `plan` expected beside what was measured, on the terminal and on the page.

use crate::facts::Facts;
use crate::html::markup::{Cell, Row, escape, table};
use crate::layout::{columns, fold, push};
use record::number;
use record::plan::{Compared, Plan};

/// A measured value this far from the planned one stands out.
const APART: f64 = 0.1;

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

/// What the plan was for, and that nothing of the run can be compared with it, if that is so.
fn sentence(plan: &Plan, has_figures: bool) -> String {
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
    fold(out, "  ", &record::escape::ascii(&sentence(plan, !all.is_empty())));
    if all.is_empty() {
        return;
    }
    let head = ["", "planned", "measured", "difference"].map(str::to_string);
    let rows: Vec<[String; 4]> = std::iter::once(head).chain(all.iter().map(cells)).collect();
    columns(out, &rows, |column| column == 0);
}

/// For the page.
pub(crate) fn section(out: &mut String, facts: &Facts) {
    let Some(plan) = &facts.directory.planned else { return };
    let all = compared(facts);
    out.push_str("<section id=\"planned\"><h2>Planned against measured</h2>\n");
    out.push_str(&format!("<p>{}</p>\n", escape(&sentence(plan, !all.is_empty()))));
    if !all.is_empty() {
        let row = |one: &Compared| {
            let [name, planned, measured, apart] = cells(one);
            let stands_out = one.difference.is_none_or(|share| share.abs() > APART);
            let apart = Cell::number(apart).class(if stands_out { "bad" } else { "" });
            Row::new(vec![Cell::words(name), Cell::number(planned), Cell::number(measured), apart])
        };
        let rows: Vec<Row> = all.iter().map(row).collect();
        let head = [("figure", true), ("planned", false), ("measured", false), ("difference", false)];
        table(out, "Figures of the plan that this run measured", &head, &rows);
    }
    out.push_str("</section>\n");
}
