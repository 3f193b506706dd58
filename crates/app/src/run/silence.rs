//! Times in which one node completed no transaction while others did: the throughput of all hides them.

use record::number::counted;

/// A node that completed fewer a second before is not called silent for a second without one.
const TPS_MIN: f64 = 10.0;
/// What is shorter is not noted.
const NOTED_US: u64 = 2_000_000;

/// A time without a transaction at a node that has sessions.
#[derive(Clone, PartialEq, Debug)]
struct Silence {
    node: usize,
    from_us: u64,
    /// `None` while it lasts.
    to_us: Option<u64>,
    failed: u64,
    /// For how long of it others completed transactions.
    alone_us: u64,
}

/// Follows every node second by second.
#[derive(Clone, Debug, Default)]
pub(super) struct Silences {
    /// By node: completed transactions, and the time in which they were.
    before: Vec<(u64, u64)>,
    /// By node.
    open: Vec<Option<Silence>>,
    over: Vec<Silence>,
}

impl Silences {
    /// Takes a second: what the sessions of each node completed and what failed; nodes without sessions are `None`.
    pub(super) fn second(&mut self, (from_us, to_us): (u64, u64), nodes: &[Option<(u64, u64)>]) {
        self.before.resize(nodes.len(), (0, 0));
        self.open.resize(nodes.len(), None);
        for (at, node) in nodes.iter().enumerate() {
            let Some((transactions, failed)) = *node else { continue };
            if transactions > 0 {
                self.before[at].0 += transactions;
                self.before[at].1 += to_us.saturating_sub(from_us);
                if let Some(silence) = self.open[at].take() {
                    self.over.push(Silence { to_us: Some(from_us), ..silence });
                }
                continue;
            }
            let others_work = nodes.iter().flatten().any(|(transactions, _)| *transactions > 0);
            let (done, time_us) = self.before[at];
            let is_busy = done as f64 >= TPS_MIN * time_us as f64 / 1e6 && done > 0;
            match &mut self.open[at] {
                Some(silence) => {
                    silence.failed += failed;
                    silence.alone_us += if others_work { to_us.saturating_sub(from_us) } else { 0 };
                }
                None if others_work && (failed > 0 || is_busy) => {
                    self.open[at] = Some(Silence {
                        node: at,
                        from_us,
                        to_us: None,
                        failed,
                        alone_us: to_us.saturating_sub(from_us),
                    });
                }
                None => {}
            }
        }
    }

    /// The notes of a run that began at this time.
    pub(super) fn notes(&self, names: &[String], begin_us: u64) -> Vec<String> {
        let mut all: Vec<&Silence> = self.over.iter().chain(self.open.iter().flatten()).collect();
        all.retain(|one| one.alone_us >= NOTED_US);
        all.sort_by_key(|one| one.from_us);
        let seconds = |us: u64| us as f64 / 1e6;
        let text = |one: &Silence| {
            let at = seconds(one.from_us.saturating_sub(begin_us));
            let time = match one.to_us {
                Some(to_us) => format!("for {:.1} s at {at:.1} s", seconds(to_us - one.from_us)),
                None => format!("from {at:.1} s to the end"),
            };
            let failed = match one.failed {
                0 => String::new(),
                failed => format!("; {} failed there", counted(failed, "transaction")),
            };
            format!("{}: no transaction {time}, while other nodes went on{failed}", names[one.node])
        };
        all.into_iter().map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    /// The notes after these seconds, each with what two nodes did.
    fn notes(seconds: &[[(u64, u64); 2]]) -> Vec<String> {
        let mut silences = Silences::default();
        for (at, nodes) in (0u64..).zip(seconds) {
            let span = (at * SECOND, (at + 1) * SECOND);
            silences.second(span, &[Some(nodes[0]), None, Some(nodes[1])]);
        }
        let names = ["m1".to_owned(), "m2".to_owned(), "m3".to_owned()];
        silences.notes(&names, 0)
    }

    #[test]
    fn a_node_that_only_refuses_while_another_works_is_noted() {
        let (works, refuses) = ((50, 0), (0, 1_000));
        let all = [[works, works], [works, refuses], [works, refuses], [works, works]];
        let expected = "m3: no transaction for 2.0 s at 1.0 s, while other nodes went on; 2,000 transactions failed there";
        assert_eq!(notes(&all), [expected]);
        assert_eq!(notes(&all[2..]), Vec::<String>::new(), "one second");
        // From the start.
        let to_the_end = notes(&[[refuses, works], [refuses, works], [refuses, works]]);
        assert_eq!(
            to_the_end,
            [
                "m1: no transaction from 0.0 s to the end, while other nodes went on; 3,000 transactions failed there"
            ]
        );
    }

    #[test]
    fn a_frozen_node_is_silent_and_a_slow_one_is_not() {
        let frozen = [[(50, 0), (50, 0)], [(50, 0), (0, 0)], [(50, 0), (0, 0)], [(50, 0), (0, 0)]];
        assert_eq!(notes(&frozen), ["m3: no transaction from 1.0 s to the end, while other nodes went on"]);
        let slow = [[(50, 0), (1, 0)], [(50, 0), (0, 0)], [(50, 0), (0, 0)], [(50, 0), (0, 0)]];
        assert_eq!(notes(&slow), Vec::<String>::new());
        // A stall of all is noted elsewhere, also if one stalls a second before the others.
        let last = [[(50, 0), (50, 0)], [(50, 0), (0, 0)], [(0, 0), (0, 0)], [(0, 0), (0, 0)]];
        assert_eq!(notes(&last), Vec::<String>::new());
        let stall = [[(50, 0), (50, 0)], [(0, 0), (0, 0)], [(0, 0), (0, 0)], [(0, 0), (0, 0)]];
        assert_eq!(notes(&stall), Vec::<String>::new());
    }
}
