//! A weighted mix of workloads: the plan that all sessions share.

use std::collections::HashSet;

use super::{Item, TransactionError, Try, Workload, is_complete};
use crate::audit::Audits;
use crate::engine::Nanos;
use crate::engine::session::Session;
use crate::random::Random;
use crate::schedule::Start;
use crate::statement::StatementSpec;
use wire::prepared::Template;

/// Chooses by weight.
#[derive(Clone, Debug)]
pub struct Chooser {
    /// Running sums of the weights.
    thresholds: Vec<u64>,
}

impl Chooser {
    /// `None` when nothing has a weight.
    pub fn new(weights: impl Iterator<Item = u64>) -> Option<Chooser> {
        let thresholds: Vec<u64> = weights
            .scan(0u64, |sum, weight| {
                *sum += weight;
                Some(*sum)
            })
            .collect();
        thresholds.last().is_some_and(|total| *total > 0).then_some(Chooser { thresholds })
    }

    /// The place of the weight that is chosen. Draws once, not at all where there is one.
    #[inline]
    pub fn choose(&self, random: &mut Random) -> usize {
        if self.thresholds.len() == 1 {
            return 0;
        }
        let total = self.thresholds[self.thresholds.len() - 1];
        let draw = random.below(total);
        self.thresholds.partition_point(|&threshold| threshold <= draw)
    }
}

/// A workload within a mix.
#[derive(Clone, Debug)]
pub struct Part<W> {
    /// The workload.
    pub workload: W,
    /// Its first item among the mix's.
    pub first_item: usize,
    /// How many items it has.
    pub items: usize,
    /// Its first statement among the mix's.
    first_statement: usize,
    /// How many statements it has.
    statements: usize,
}

/// A weighted mix of workloads.
#[derive(Clone, Debug)]
pub struct Mix<W> {
    parts: Vec<Part<W>>,
    items: Vec<Item>,
    /// The part of each item.
    part_of: Vec<usize>,
    chooser: Chooser,
    statements: Vec<StatementSpec>,
}

impl<W: Workload> Mix<W> {
    /// A mix of workloads, each with what its items' weights are multiplied by. `None` when no item has a weight.
    pub fn new(workloads: impl IntoIterator<Item = (W, u64)>) -> Option<Mix<W>> {
        let (mut parts, mut items, mut part_of, mut statements) = (Vec::new(), vec![], vec![], vec![]);
        let mut names = HashSet::new();
        for (workload, weight) in workloads {
            let (first_item, first_statement) = (items.len(), statements.len());
            let own = workload.items();
            part_of.extend(own.iter().map(|_| parts.len()));
            items.extend(own.into_iter().map(|item| Item { weight: item.weight * weight, ..item }));
            for mut statement in workload.statements() {
                // Workloads that share transactions share their names, and a session of the server has each name once.
                while !names.insert(statement.name.clone()) {
                    statement.name.push_str(&format!("_{}", parts.len()));
                }
                statements.push(statement);
            }
            parts.push(Part {
                workload,
                first_item,
                items: items.len() - first_item,
                first_statement,
                statements: statements.len() - first_statement,
            });
        }
        let chooser = Chooser::new(items.iter().map(|item| item.weight))?;
        Some(Mix { parts, items, part_of, chooser, statements })
    }

    /// A single workload. `None` when none of its items has a weight.
    pub fn of(workload: W) -> Option<Mix<W>> {
        Mix::new([(workload, 1)])
    }

    /// The workloads.
    pub fn parts(&self) -> &[Part<W>] {
        &self.parts
    }

    /// The types of transactions, those of the first workload first.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// The statements that every session lays out before it starts.
    pub fn statements(&self) -> &[StatementSpec] {
        &self.statements
    }

    /// Whether statements of the user's are among it.
    pub fn is_users(&self) -> bool {
        self.parts.iter().any(|part| part.workload.is_users())
    }

    /// No database is driven: transactions only take their time.
    pub(crate) fn is_simulated(&self) -> bool {
        self.parts.iter().any(|part| part.workload.is_simulated())
    }

    /// The node of a user's rows. Only a workload that is alone has users.
    pub(crate) fn node_of_terminal(&self, terminal: u32) -> Option<u16> {
        self.parts.first().and_then(|part| part.workload.node_of_terminal(terminal))
    }

    /// Chooses a transaction by weight: the first draw of every transaction.
    #[inline]
    pub fn choose(&self, random: &mut Random) -> usize {
        self.chooser.choose(random)
    }

    #[inline]
    fn part(&self, item: usize) -> (usize, &Part<W>) {
        let at = self.part_of[item];
        (at, &self.parts[at])
    }

    /// The stream of draws of the transaction that begins with `start`, and its item: a user has a stream and choices of its own, whichever
    /// session serves it.
    #[inline]
    pub fn draw(&self, seed: u64, session: u64, sequence: u32, start: Start) -> (Random, usize) {
        if let Some(turn) = start.turn {
            let random = Random::for_transaction(seed, turn.terminal.into(), turn.number.into());
            return (random, turn.item);
        }
        let mut random = Random::for_transaction(seed, session, u64::from(sequence));
        let drawn = self.choose(&mut random);
        let (_, part) = self.part(drawn);
        let own = part.workload.choose(drawn - part.first_item, seed, session, u64::from(sequence));
        (random, part.first_item + own)
    }

    /// A session's own state.
    ///
    /// # Errors
    /// When a workload cannot begin a session.
    pub fn session(&self, session: u64) -> Result<MixSession<W>, String> {
        let states =
            self.parts.iter().map(|part| part.workload.session(session)).collect::<Result<_, _>>()?;
        Ok(MixSession { states })
    }

    /// One try of one transaction: runs it to its end, which must be the server's end of it, too.
    #[inline]
    pub async fn transaction(
        &self,
        item: usize,
        state: &mut MixSession<W>,
        (session, templates): (&Session, &[Template]),
        (sequence, random): (u32, &mut Random),
    ) -> Result<(), TransactionError> {
        let (at, part) = self.part(item);
        // A simulation has prepared nothing.
        let own = part.first_statement..part.first_statement + part.statements;
        let templates = templates.get(own).unwrap_or_default();
        let attempt = Try { session, templates, sequence, random };
        part.workload.transaction(item - part.first_item, &mut state.states[at], attempt).await?;
        is_complete(&part.workload, session, &self.items[item].name)
    }

    /// What a transaction that reached its end has done, added to its workload's sums.
    #[inline]
    pub fn audit(&self, item: usize, state: &MixSession<W>, waited: Option<Nanos>, audits: &mut Audits) {
        let (at, part) = self.part(item);
        part.workload.audit(item - part.first_item, &state.states[at], waited, audits);
    }

    /// The connection of a transaction was lost.
    pub fn lost(&self, item: usize, state: &MixSession<W>, audits: &mut Audits) {
        let (at, part) = self.part(item);
        part.workload.lost(item - part.first_item, &state.states[at], audits);
    }
}

/// What one session keeps between transactions.
#[derive(Debug)]
pub struct MixSession<W: Workload> {
    /// By part.
    states: Vec<W::Session>,
}

impl<W: Workload> MixSession<W> {
    /// The transaction that begins with `start` has its first try.
    #[inline]
    pub fn begin(&mut self, mix: &Mix<W>, start: Start) {
        for (part, state) in mix.parts.iter().zip(&mut self.states) {
            part.workload.begin(state, start.turn);
        }
    }

    /// The same transaction is tried again.
    pub fn again(&mut self, mix: &Mix<W>) {
        for (part, state) in mix.parts.iter().zip(&mut self.states) {
            part.workload.again(state);
        }
    }

    /// Transaction `item` has had its last try; `is_committed` is false also where it is unknown.
    #[inline]
    pub fn ended(&mut self, mix: &Mix<W>, item: usize, is_committed: bool) {
        let (at, part) = mix.part(item);
        part.workload.ended(item - part.first_item, &mut self.states[at], is_committed);
    }

    /// Rows that the session has tried to insert.
    #[inline]
    pub fn inserted(&self, mix: &Mix<W>) -> u64 {
        mix.parts.iter().zip(&self.states).map(|(part, state)| part.workload.inserted(state)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Workloads that share their statements.
    #[derive(Debug)]
    struct Shared(&'static [&'static str]);

    impl Workload for Shared {
        type Session = ();

        fn items(&self) -> Vec<Item> {
            vec![Item { name: "one".into(), weight: 1 }]
        }

        fn statements(&self) -> Vec<StatementSpec> {
            self.0.iter().map(|name| StatementSpec::ours((*name).to_owned(), "SELECT 1".into())).collect()
        }

        fn session(&self, _: u64) -> Result<(), String> {
            Ok(())
        }

        async fn transaction(&self, _: usize, (): &mut (), _: Try<'_>) -> Result<(), TransactionError> {
            Ok(())
        }
    }

    #[test]
    fn no_two_statements_of_a_mix_have_one_name() {
        let workloads = [Shared(&["a", "b"]), Shared(&["b", "a_1"]), Shared(&["a", "b", "c"])];
        let mix = Mix::new(workloads.map(|workload| (workload, 1))).expect("weights");
        let names: Vec<&str> = mix.statements().iter().map(|statement| &*statement.name).collect();
        assert_eq!(names, ["a", "b", "b_1", "a_1", "a_2", "b_2", "c"]);
        let alone = Mix::of(Shared(&["a", "b"])).expect("weights");
        assert_eq!(alone.statements()[1].name, "b", "a workload alone keeps its names");
    }
}
