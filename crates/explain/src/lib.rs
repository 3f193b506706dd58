//! Turns a run directory into findings. It depends only on `record`, so it explains an old, a partial or a foreign directory as far as the data
//! permits.
//!
//! The directory becomes a [`Case`](case::Case): series, waits, events, facts, in bounded memory. Each rule of the table
//! ([`rules::all`]) names what it needs and answers with findings, "clean", or "cannot tell" and what is missing: one of these, always.
//! The result is [`record::finding::Findings`], which is written into the directory and shown by `report` and the terminal.

pub mod case;
mod command;
pub mod comparison;
pub mod decompose;
pub mod intervention;
pub mod node_time;
mod remedy;
pub mod rule;
pub mod rules;
pub mod series;
pub mod stacks;
pub mod statistics;
mod story;
mod text;
mod units;
mod validity;
pub mod waits;

pub use record::RecordError;
pub use text::{Detail, Sampling, brief, text};

use case::Case;
use record::Findings;
use record::finding::{CheckState, Checked};
use rule::Answer;
use std::path::Path;

/// Explains a run directory; writes nothing.
///
/// # Errors
/// If the folder is no run directory or cannot be read; a partial directory is no error.
pub fn explain(dir: &Path, tool_version: &str) -> Result<Findings, RecordError> {
    Ok(judge(&Case::open(dir)?, tool_version))
}

/// Evaluates every rule.
pub fn judge(case: &Case, tool_version: &str) -> Findings {
    let mut findings = Findings::new(&case.run.run_id, tool_version);
    findings.missing.clone_from(&case.missing);
    let gaps = case.gaps.iter().map(|gap| {
        let place = if gap.host.is_empty() { &gap.node } else { &gap.host };
        format!("{place}: {}: {}; not known: {}", gap.what, gap.why, gap.lost)
    });
    findings.missing.extend(gaps);
    for rule in rules::all() {
        // A change of a setting may prove more than the rule, and may reveal a condition that was present only for a while.
        let answer = match rule::ask(rule, case) {
            Answer::Found(claims) => Answer::Found(intervention::weigh(rule.id, case, claims)),
            Answer::Clean(looked_at) => Answer::of(intervention::weigh(rule.id, case, vec![]), || looked_at),
            answer => answer,
        };
        let (state, why) = match answer {
            Answer::Found(claims) => {
                let claims = rule::bound(claims).into_iter();
                findings
                    .findings
                    .extend(claims.enumerate().map(|(index, claim)| claim.finish(rule, index + 1)));
                continue;
            }
            Answer::Clean(looked_at) => (CheckState::Clean, looked_at),
            Answer::CannotTell(why) => (CheckState::CannotTell, why),
        };
        let checked = Checked { rule: rule.id.to_string(), title: rule.title.to_string(), state, why };
        findings.checked.push(checked);
    }
    findings.node_time = node_time::all(case).to_vec();
    findings.client_time = decompose::all(case);
    findings.validity = validity::of(case);
    story::complete(case, &mut findings);
    remedy::prune(case, &mut findings);
    findings.rank();
    findings
}
