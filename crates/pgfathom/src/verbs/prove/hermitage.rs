//! `prove hermitage`: scripted interleavings that name the isolation level of a server, and what a cluster adds.

use super::Prove;
use crate::cli::Format;
use crate::context::Context;
use crate::failure::Failure;
use crate::fingerprint;
use crate::recording::Recording;
use crate::verbs::load::fields;
use ::prove::hermitage::cluster::{self, Node};
use ::prove::hermitage::{Answer, CASES, Case, HermitageError, LEVELS, Verdict, run};
use ::prove::history::Isolation;
use record::model::{Check, CheckResult, Step};
use record::{Exit, State};
use serde_json::json;
use std::time::Duration;
use target::Cluster;
use target::cluster::Role;

/// How long a deadlock over two nodes is watched where no time limit ends it.
const DEADLOCK_PATIENCE: Duration = Duration::from_secs(10);

impl Prove {
    pub(super) fn run_hermitage(self, context: &Context) -> Result<Exit, Failure> {
        let nodes = self.connection.resolve_cluster_of(context)?;
        let spec = nodes.nodes[0].spec.clone();
        let mut control = target::control::connect(&spec)?;
        let recording = Recording::begin(context, &self.directory, "prove", "hermitage")?;
        let mut fingerprint = fingerprint::take(&mut control, &spec);
        fingerprint.engine = nodes.engine.name().to_string();
        drop(control);
        let dir = recording.dir();
        dir.edit(|run| run.target = Some(fingerprint))?;
        let step = dir.begin_step("prove", "hermitage")?;
        let cases: Vec<&'static Case> = CASES.iter().collect();
        recording.keep(dir.edit_step(&step, |step| {
            step.parameters = fields(json!({
                "engine": nodes.engine.name(),
                "cases": cases.iter().map(|case| case.code).collect::<Vec<_>>(),
            }));
        }));
        let is_text = context.format == Format::Text;
        let mut tell = |answer: &Answer| {
            if is_text {
                context.terminal.data(&line(answer));
            }
        };
        let played = run(&spec, nodes.engine, &cases, &LEVELS, &mut tell).and_then(|mut answers| {
            for answer in on_cluster(&nodes)? {
                tell(&answer);
                answers.push(answer);
            }
            Ok(answers)
        });
        let answers = match played {
            Ok(answers) => answers,
            Err(error) => {
                recording.fail(&step, &error);
                return Err(error.into());
            }
        };
        recording.keep(dir.edit_step(&step, |step| describe(step, &answers)));
        recording.keep(dir.end_step(&step, State::Finished));
        for answer in answers.iter().filter(|answer| is_text && answer.verdict() == Verdict::Broken) {
            context.terminal.data(&format!(
                "\n{} at {}, to be played by hand:",
                answer.case,
                answer.level.sql()
            ));
            answer.script.iter().for_each(|line| context.terminal.data(&format!("  {line}")));
        }
        recording.finish(State::Finished)?;
        let has = |verdict: Verdict| answers.iter().any(|answer| answer.verdict() == verdict);
        Ok(match () {
            () if has(Verdict::Broken) => Exit::Difference,
            () if has(Verdict::NotTested) => Exit::CannotTell,
            () => Exit::Ok,
        })
    }
}

/// The cases that need several nodes and disturb nobody: a table of ours on each, and no setting is touched.
fn on_cluster(nodes: &Cluster) -> Result<Vec<Answer>, HermitageError> {
    let of = |role: Role| -> Vec<Node> {
        let chosen = nodes.nodes.iter().filter(|node| node.role == role);
        chosen.map(|node| Node { name: node.name.clone(), spec: node.spec.clone() }).collect()
    };
    let mut answers = Vec::new();
    if let [entry, far, ..] = &of(Role::Shard)[..] {
        for level in LEVELS {
            answers.push(cluster::fractured_sum(entry, far, level)?);
        }
        answers.push(cluster::distributed_deadlock(entry, far, DEADLOCK_PATIENCE)?);
    }
    if let [standby, ..] = &of(Role::Standby)[..] {
        answers.push(cluster::serializable_on_standby(standby)?);
    }
    Ok(answers)
}

fn line(answer: &Answer) -> String {
    let level = match answer.level {
        Isolation::Unknown => "",
        level => level.sql(),
    };
    let verdict = match (answer.verdict(), answer.expected) {
        (Verdict::ByDesign, None) => "happens",
        (verdict, _) => verdict.says(),
    };
    format!("{:18}  {level:15}  {verdict:10}  {}", answer.case, answer.line)
}

fn describe(step: &mut Step, answers: &[Answer]) {
    let count = |verdict: Verdict| answers.iter().filter(|answer| answer.verdict() == verdict).count();
    step.summary.rows = Some(answers.len() as u64);
    step.checks = answers
        .iter()
        .map(|answer| Check {
            name: format!("{} {}", answer.case, answer.level.sql()).trim_end().to_string(),
            scope: answer.title.to_string(),
            rows: 1,
            result: match answer.verdict() {
                Verdict::Kept | Verdict::ByDesign => CheckResult::Ok,
                Verdict::Broken => CheckResult::Fail,
                Verdict::NotTested => CheckResult::Skipped,
            },
            detail: format!("{}: {}", answer.verdict().says(), answer.line),
            counterexamples: match answer.verdict() {
                Verdict::Broken => answer.script.clone(),
                _ => Vec::new(),
            },
        })
        .collect();
    step.totals = fields(json!({
        "kept": count(Verdict::Kept),
        "by_design": count(Verdict::ByDesign),
        "broken": count(Verdict::Broken),
        "not_tested": count(Verdict::NotTested),
    }));
    for answer in answers.iter().filter(|answer| answer.verdict() == Verdict::Broken) {
        step.verdict.invalidate(format!("{} at {}: {}", answer.case, answer.level.sql(), answer.line));
    }
}
