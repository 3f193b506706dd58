//! The whole suite: every kind of cluster that can be made here, with the faults and settings that its promises are about.

use super::What;
use super::testbed::Wanted;
use super::trial::Trial;
use crate::connection::Address;
use crate::failure::Failure;
use ::prove::fault::Plan;
use ::prove::live::Isolation;
use std::time::Duration;

/// The scripts and the workloads, in the order of the report.
pub(super) const WORKLOADS: [What; 10] = [
    What::Hermitage,
    What::Ack,
    What::Hb,
    What::Bank,
    What::Twin,
    What::Skew,
    What::Conflict,
    What::Wide,
    What::Verreg,
    What::Append,
];
/// What a commit of a replicated cluster can wait for.
const COMMITS: [&str; 5] = ["off", "local", "remote_write", "on", "remote_apply"];
/// The first release whose logical replication can be a multimaster.
const MULTIMASTER_MAJOR: u32 = 16;

/// Where a cluster comes from.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// It is there.
    There(Address),
    /// It is to be made.
    Made(Wanted),
}

/// A cluster and what is proved about it.
#[derive(Clone, Debug)]
pub(super) struct Chapter {
    /// The cluster.
    pub source: Source,
    /// What is proved; empty: what the plan names.
    pub trials: Vec<Trial>,
}

/// A trial of `time`; `plan` has its times in tenths of it.
fn trial(
    what: What,
    level: Isolation,
    commit: Option<&str>,
    plan: &str,
    time: Duration,
) -> Result<Trial, Failure> {
    let mut plan = match plan {
        "" => Plan::default(),
        text => Plan::parse(text).map_err(|error| Failure::usage(error.to_string()).hint(error.hint()))?,
    };
    for step in &mut plan.steps {
        step.at = time.mul_f64(step.at.as_secs_f64() / 10.0);
    }
    Ok(Trial { what, level, commit: commit.map(str::to_owned), plan, time })
}

/// All of it; each trial lasts `time`, `major` is the servers' release.
pub(super) fn chapters(time: Duration, major: u32) -> Result<Vec<Chapter>, Failure> {
    use Isolation::{ReadCommitted, RepeatableRead, Serializable};
    let ack = |commit: Option<&str>, plan: &str| trial(What::Ack, ReadCommitted, commit, plan, time);
    let other = |what: What, level: Isolation, plan: &str| trial(what, level, None, plan, time);
    let scripts = || trial(What::Hermitage, ReadCommitted, None, "", time);
    let mut chapters = vec![
        Chapter {
            // The WAL writer's pause is the tail that synchronous_commit=off can lose.
            source: Source::Made(Wanted::single()),
            trials: vec![
                scripts()?,
                ack(None, "kill@5s,heal@6s")?,
                ack(Some("off"), "kill@5s,heal@6s")?,
                ack(None, "power@5s,heal@6s")?,
                ack(Some("off"), "power@5s,heal@6s")?,
                ack(None, "pause@3s,heal@5s,cut@6s,restart@7s")?,
                ack(None, "drop-commit@2s,heal@8s")?,
                ack(None, "full@3s,heal@7s")?,
                ack(None, "orphan@3s,heal@7s")?,
                other(What::Hb, ReadCommitted, "kill@4s,heal@5s")?,
                other(What::Bank, ReadCommitted, "")?,
                other(What::Bank, Serializable, "")?,
                other(What::Twin, ReadCommitted, "")?,
                other(What::Skew, RepeatableRead, "")?,
                other(What::Skew, Serializable, "")?,
                other(What::Conflict, ReadCommitted, "")?,
                other(What::Verreg, ReadCommitted, "")?,
                other(What::Verreg, RepeatableRead, "kill@5s,heal@6s")?,
                other(What::Verreg, Serializable, "")?,
                other(What::Append, Serializable, "")?,
            ],
        },
        Chapter {
            source: Source::Made(Wanted::single().with("fsync", "off")),
            trials: vec![ack(None, "kill@5s,heal@6s")?, ack(None, "power@5s,heal@6s")?],
        },
        Chapter {
            source: Source::Made(Wanted::replicated("async")?),
            trials: vec![
                scripts()?,
                other(What::Verreg, RepeatableRead, "")?,
                other(What::Hb, ReadCommitted, "")?,
                ack(Some("on"), "kill:s1@3s,heal@5s")?,
                ack(Some("on"), "kill@5s,promote@6s")?,
            ],
        },
    ];
    // Every fault by every level of synchronous_commit: the matrix. What a promotion uses up is made anew.
    let mut replicated = Vec::new();
    for plan in [
        "kill@5s,heal@6s",
        "power@5s,heal@6s",
        "pause@3s,heal@5s",
        "full@3s,heal@7s",
        "partition@3s,heal@6s",
        "kill:s1@3s,heal@5s",
        "power:s1@3s,heal@5s",
    ] {
        for commit in COMMITS {
            replicated.push(ack(Some(commit), plan)?);
        }
    }
    for plan in ["kill@5s,promote@6s", "partition@3s,promote@4s,heal@6s"] {
        for commit in COMMITS {
            replicated.push(ack(Some(commit), plan)?);
        }
    }
    for commit in ["local", "on"] {
        replicated.push(trial(What::Wide, ReadCommitted, Some(commit), "", time)?);
    }
    replicated.push(trial(What::Hb, ReadCommitted, Some("remote_apply"), "", time)?);
    replicated.push(other(What::Hb, ReadCommitted, "partition@3s,heal@6s")?);
    replicated.push(other(What::Hb, ReadCommitted, "kill@4s,promote@5s")?);
    chapters.push(Chapter { source: Source::Made(Wanted::replicated("FIRST 1 (s1)")?), trials: replicated });
    let mut sharded = vec![
        scripts()?,
        other(What::Twin, ReadCommitted, "")?,
        other(What::Wide, ReadCommitted, "")?,
        ack(None, "kill:n2@5s,heal@6s")?,
        ack(None, "power:n2@5s,heal@6s")?,
        ack(None, "partition:n2@3s,heal@6s")?,
    ];
    for level in Isolation::ALL {
        sharded.push(other(What::Bank, level, "")?);
    }
    sharded.push(other(What::Verreg, RepeatableRead, "")?);
    chapters.push(Chapter { source: Source::Made(Wanted::sharded()), trials: sharded });
    if major >= MULTIMASTER_MAJOR {
        chapters.push(Chapter {
            source: Source::Made(Wanted::multimaster()),
            trials: vec![
                scripts()?,
                other(What::Conflict, ReadCommitted, "")?,
                other(What::Append, RepeatableRead, "")?,
                other(What::Hb, ReadCommitted, "")?,
                other(What::Conflict, ReadCommitted, "partition@3s,heal@6s")?,
                ack(None, "kill@5s,heal@6s")?,
                ack(None, "power@5s,heal@6s")?,
            ],
        });
    }
    Ok(chapters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suite_holds_every_workload_and_scales_with_its_time() {
        let chapters = chapters(Duration::from_secs(2), 18).unwrap();
        let trials: Vec<&Trial> = chapters.iter().flat_map(|chapter| &chapter.trials).collect();
        for what in WORKLOADS {
            assert!(trials.iter().any(|trial| trial.what == what), "{what:?} is missing");
        }
        assert!(trials.iter().all(|trial| trial.plan.ends() < trial.time));
        for commit in COMMITS {
            let with = |words: &str| {
                let is_it = |trial: &&&Trial| {
                    trial.commit.as_deref() == Some(commit) && trial.plan.to_string().contains(words)
                };
                trials.iter().filter(is_it).count()
            };
            for words in ["kill@", "power@", "pause@", "full@", "partition@", "promote@"] {
                assert!(with(words) > 0, "{words} is missing with {commit}");
            }
        }
        let first = &trials.iter().find(|trial| trial.what == What::Ack).unwrap().plan;
        assert_eq!(first.to_string(), "kill@1s,heal@1200ms");
        let without = super::chapters(Duration::from_secs(2), 15).unwrap();
        assert_eq!(without.len() + 1, chapters.len(), "15 cannot be a multimaster");
    }
}
