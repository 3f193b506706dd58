//! The whole suite: every kind of cluster that can be made here, with the faults and settings that its promises are about.

use super::What;
use super::testbed::Wanted;
use super::trial::Trial;
use crate::connection::Address;
use crate::failure::Failure;
use ::prove::fault::Plan;
use ::prove::live::Isolation;
use Isolation::{ReadCommitted, RepeatableRead, Serializable};
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

/// All of it; each trial lasts `time`, `major` is the servers' release.
pub(super) fn chapters(time: Duration, major: u32) -> Result<Vec<Chapter>, Failure> {
    let of = Trials { time };
    let chapter = |wanted: Wanted, trials: Vec<Trial>| Chapter { source: Source::Made(wanted), trials };
    let mut chapters = vec![
        chapter(Wanted::single(), of.single()?),
        chapter(
            Wanted::single().with("fsync", "off"),
            vec![of.ack(None, "kill@5s,heal@6s")?, of.ack(None, "power@5s,heal@6s")?],
        ),
        chapter(Wanted::replicated("async")?, of.replicated_async()?),
        chapter(Wanted::replicated("FIRST 1 (s1)")?, of.replicated()?),
        chapter(Wanted::sharded(), of.sharded()?),
    ];
    if major >= MULTIMASTER_MAJOR {
        chapters.push(chapter(Wanted::multimaster(), of.multimaster()?));
    }
    Ok(chapters)
}

/// Makes the trials, which all last the same time.
struct Trials {
    time: Duration,
}

impl Trials {
    /// `plan` has its times in tenths of the trial's time.
    fn trial(
        &self,
        what: What,
        level: Isolation,
        commit: Option<&str>,
        plan: &str,
    ) -> Result<Trial, Failure> {
        let mut plan = match plan {
            "" => Plan::default(),
            text => {
                Plan::parse(text).map_err(|error| Failure::usage(error.to_string()).hint(error.hint()))?
            }
        };
        for step in &mut plan.steps {
            step.at = self.time.mul_f64(step.at.as_secs_f64() / 10.0);
        }
        Ok(Trial { what, level, commit: commit.map(str::to_owned), plan, time: self.time })
    }

    fn ack(&self, commit: Option<&str>, plan: &str) -> Result<Trial, Failure> {
        self.trial(What::Ack, ReadCommitted, commit, plan)
    }

    fn other(&self, what: What, level: Isolation, plan: &str) -> Result<Trial, Failure> {
        self.trial(what, level, None, plan)
    }

    fn scripts(&self) -> Result<Trial, Failure> {
        self.trial(What::Hermitage, ReadCommitted, None, "")
    }

    /// The WAL writer's pause is the tail that synchronous_commit=off can lose.
    fn single(&self) -> Result<Vec<Trial>, Failure> {
        Ok(vec![
            self.scripts()?,
            self.ack(None, "kill@5s,heal@6s")?,
            self.ack(Some("off"), "kill@5s,heal@6s")?,
            self.ack(None, "power@5s,heal@6s")?,
            self.ack(Some("off"), "power@5s,heal@6s")?,
            self.ack(None, "pause@3s,heal@5s,cut@6s,restart@7s")?,
            self.ack(None, "drop-commit@2s,heal@8s")?,
            self.ack(None, "full@3s,heal@7s")?,
            self.ack(None, "orphan@3s,heal@7s")?,
            self.other(What::Hb, ReadCommitted, "kill@4s,heal@5s")?,
            self.other(What::Bank, ReadCommitted, "")?,
            self.other(What::Bank, Serializable, "")?,
            self.other(What::Twin, ReadCommitted, "")?,
            self.other(What::Skew, RepeatableRead, "")?,
            self.other(What::Skew, Serializable, "")?,
            self.other(What::Conflict, ReadCommitted, "")?,
            self.other(What::Verreg, ReadCommitted, "")?,
            self.other(What::Verreg, RepeatableRead, "kill@5s,heal@6s")?,
            self.other(What::Verreg, Serializable, "")?,
            self.other(What::Append, Serializable, "")?,
        ])
    }

    fn replicated_async(&self) -> Result<Vec<Trial>, Failure> {
        Ok(vec![
            self.scripts()?,
            self.other(What::Verreg, RepeatableRead, "")?,
            self.other(What::Hb, ReadCommitted, "")?,
            self.ack(Some("on"), "kill:s1@3s,heal@5s")?,
            self.ack(Some("on"), "kill@5s,promote@6s")?,
        ])
    }

    /// Every fault by every level of synchronous_commit: the matrix. What a promotion uses up is made anew.
    fn replicated(&self) -> Result<Vec<Trial>, Failure> {
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
                replicated.push(self.ack(Some(commit), plan)?);
            }
        }
        for plan in ["kill@5s,promote@6s", "partition@3s,promote@4s,heal@6s"] {
            for commit in COMMITS {
                replicated.push(self.ack(Some(commit), plan)?);
            }
        }
        for commit in ["local", "on"] {
            replicated.push(self.trial(What::Wide, ReadCommitted, Some(commit), "")?);
        }
        replicated.push(self.trial(What::Hb, ReadCommitted, Some("remote_apply"), "")?);
        replicated.push(self.other(What::Hb, ReadCommitted, "partition@3s,heal@6s")?);
        replicated.push(self.other(What::Hb, ReadCommitted, "kill@4s,promote@5s")?);
        Ok(replicated)
    }

    fn sharded(&self) -> Result<Vec<Trial>, Failure> {
        let mut sharded = vec![
            self.scripts()?,
            self.other(What::Twin, ReadCommitted, "")?,
            self.other(What::Wide, ReadCommitted, "")?,
            self.ack(None, "kill:n2@5s,heal@6s")?,
            self.ack(None, "power:n2@5s,heal@6s")?,
            self.ack(None, "partition:n2@3s,heal@6s")?,
        ];
        for level in Isolation::ALL {
            sharded.push(self.other(What::Bank, level, "")?);
        }
        sharded.push(self.other(What::Verreg, RepeatableRead, "")?);
        Ok(sharded)
    }

    fn multimaster(&self) -> Result<Vec<Trial>, Failure> {
        Ok(vec![
            self.scripts()?,
            self.other(What::Conflict, ReadCommitted, "")?,
            self.other(What::Append, RepeatableRead, "")?,
            self.other(What::Hb, ReadCommitted, "")?,
            self.other(What::Conflict, ReadCommitted, "partition@3s,heal@6s")?,
            self.ack(None, "kill@5s,heal@6s")?,
            self.ack(None, "power@5s,heal@6s")?,
        ])
    }
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
