//! TPC-C (standard specification, revision 5.11, clauses 2 and 5): five transactions, each a straight function that reads like its clause.
//!
//! | clause | here |
//! |---|---|
//! | 2.1.6 NURand with the run's constants, 2.x.1 input data | [`draw`] |
//! | 2.4 New-Order | [`new_order`] |
//! | 2.5 Payment | [`payment`] |
//! | 2.6 Order-Status | [`order_status`] |
//! | 2.7 Delivery | [`delivery`] |
//! | 2.8 Stock-Level | [`stock_level`] |
//! | 5.2.3, 5.2.4 mix; 5.2.5 keying and think times | [`pace`] |
//! | what the report audits | [`audit`] |
//!
//! Statements that do not depend on each other's results are sent together (a pipeline, one round trip), and rows of one table are changed
//! together (one statement with arrays). That is allowed: the order of data manipulations within a transaction is left to the implementer (clause
//! 2.4.2.3), and nothing is skipped. Round trips: New-Order 2, Payment and Order-Status 1, or 2 by last name, Delivery 3, Stock-Level 1.

use data::tpcc::DISTRICTS_PER_WAREHOUSE;
use data::tpcc::nurand::Constants;
pub use engines::profile::Isolation;
use wire::prepared::Wire;

use run::audit::Audits;
use run::engine::Nanos;
use run::random::Random;
use run::statement::StatementSpec;
use run::terminals::Turn;
use run::workload::{Item, TransactionError, Try, Workload};

pub mod answer;
pub mod audit;
pub mod delivery;
pub mod draw;
pub mod homes;
pub mod judge;
pub mod new_order;
pub mod null;
pub mod order_status;
pub mod pace;
pub mod payment;
mod pipeline;
mod statement;
pub mod stock_level;

use audit::{Audit, Done};
use draw::Home;
use homes::Homes;
use pace::Mix;

/// Terminals of a warehouse (clause 4.2.2).
pub(crate) const TERMINALS_PER_WAREHOUSE: u32 = DISTRICTS_PER_WAREHOUSE;

/// The five transaction profiles, in the order of the specification. The numbers are those of the items of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Profile {
    /// Clause 2.4.
    NewOrder,
    /// Clause 2.5.
    Payment,
    /// Clause 2.6.
    OrderStatus,
    /// Clause 2.7.
    Delivery,
    /// Clause 2.8.
    StockLevel,
}

impl Profile {
    /// All five.
    pub const ALL: [Profile; 5] =
        [Profile::NewOrder, Profile::Payment, Profile::OrderStatus, Profile::Delivery, Profile::StockLevel];

    /// As the specification writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Profile::NewOrder => "New-Order",
            Profile::Payment => "Payment",
            Profile::OrderStatus => "Order-Status",
            Profile::Delivery => "Delivery",
            Profile::StockLevel => "Stock-Level",
        }
    }
}

/// What the transactions of a run have in common.
#[derive(Clone, Debug)]
pub struct Tpcc {
    /// Warehouses that are driven: 1 to this. At most those loaded.
    pub warehouses: u32,
    /// NURand's.
    pub constants: Constants,
    /// How the next transaction is chosen.
    pub mix: Mix,
    /// How transactions are kept apart.
    pub isolation: Isolation,
    /// Messages and formats: answers are read in the one that was requested.
    pub wire: Wire,
    /// The schema of the tables; `None`: the search path finds them.
    pub schema: Option<String>,
    /// The node of each warehouse where rows are spread over several; `None`: one node.
    pub homes: Option<Homes>,
    /// Rows are spread over several nodes: statements then hold what an entry node needs to send them on. Where they are may be unknown.
    pub is_spread: bool,
    /// No database: a transaction takes so long.
    pub simulate: Option<Nanos>,
    /// Sessions of the run, to which the terminals are assigned when there are no keying and think times.
    pub sessions: u64,
}

impl Tpcc {
    /// Terminals of the driven warehouses.
    pub fn terminals(&self) -> u32 {
        self.warehouses * TERMINALS_PER_WAREHOUSE
    }

    /// The terminals that a session stands for when it never waits for one: a stretch of its own, so that sessions meet in a warehouse
    /// only when there are more of them than warehouses. All terminals together where there are more sessions than terminals.
    fn terminals_of(&self, session: u64) -> std::ops::Range<u64> {
        let terminals = u64::from(self.terminals());
        if self.sessions > terminals {
            let own = session % terminals;
            return own..own + 1;
        }
        let session = session % self.sessions;
        terminals * session / self.sessions..terminals * (session + 1) / self.sessions
    }

    /// Where the terminal stands whose turn it is.
    fn home(&self, state: &TpccSession, random: &mut Random) -> Home {
        if let Some(turn) = state.turn {
            return Home::of_terminal(turn.terminal);
        }
        let mut one_of = |own: std::ops::Range<u64>| own.start + random.below(own.end - own.start);
        if let Some((homes, own)) =
            self.homes.as_ref().and_then(|homes| Some((homes, homes.stretch(state.session)?)))
            && let Some(home) = homes.home(state.session, one_of(own))
        {
            return home;
        }
        Home::of_terminal(one_of(self.terminals_of(state.session)) as u32)
    }

    /// Nodes that own the rows of these warehouses.
    fn nodes_of(&self, warehouses: impl Iterator<Item = u32>) -> u32 {
        let Some(homes) = &self.homes else { return 1 };
        // A transaction touches up to 16 warehouses; nodes are numbered small.
        let mut seen = [u16::MAX; 16];
        let mut count = 0;
        for warehouse in warehouses {
            let node = homes.node_of(warehouse);
            if !seen[..count].contains(&node) && count < seen.len() {
                seen[count] = node;
                count += 1;
            }
        }
        count as u32
    }
}

/// What a session keeps between transactions, and room for the next one: no transaction allocates.
#[derive(Clone, Debug)]
pub struct TpccSession {
    session: u64,
    turn: Option<Turn>,
    /// What the last transaction did.
    pub(crate) done: Done,
    new_order: new_order::Buffers,
    delivery: delivery::Buffers,
}

impl TpccSession {
    /// Session number `session` of the whole run.
    pub fn new(session: u64) -> TpccSession {
        TpccSession {
            session,
            turn: None,
            done: Done::default(),
            new_order: new_order::Buffers::default(),
            delivery: delivery::Buffers::default(),
        }
    }
}

impl Workload for Tpcc {
    type Session = Box<TpccSession>;

    /// The five transactions of TPC-C, in the order of [`Profile`].
    fn items(&self) -> Vec<Item> {
        let item = |(profile, weight): (Profile, u64)| Item { name: profile.name().into(), weight };
        Profile::ALL.into_iter().zip(self.mix.weights()).map(item).collect()
    }

    fn statements(&self) -> Vec<StatementSpec> {
        statement::all(self)
    }

    fn session(&self, session: u64) -> Result<Box<TpccSession>, String> {
        Ok(Box::new(TpccSession::new(session)))
    }

    async fn transaction(
        &self,
        item: usize,
        state: &mut Box<TpccSession>,
        attempt: Try<'_>,
    ) -> Result<(), TransactionError> {
        let Try { session, templates, random, .. } = attempt;
        let profile = Profile::ALL[item];
        state.done = Done::of(profile);
        let home = self.home(state, random);
        if let Some(takes) = self.simulate {
            state.done.draw(self, profile, home, random);
            session.sleep_until(session.now() + takes).await;
            return Ok(());
        }
        let call = pipeline::Call { tpcc: self, session, templates };
        match profile {
            Profile::NewOrder => new_order::transaction(&call, home, state, random).await,
            Profile::Payment => payment::transaction(&call, home, state, random).await,
            Profile::OrderStatus => order_status::transaction(&call, home, state, random).await,
            Profile::Delivery => delivery::transaction(&call, home, state, random).await,
            Profile::StockLevel => stock_level::transaction(&call, home, state, random).await,
        }
    }

    #[inline]
    fn choose(&self, drawn: usize, seed: u64, session: u64, sequence: u64) -> usize {
        match self.mix {
            Mix::Weights => drawn,
            Mix::Deck => {
                let mut own = Random::for_transaction(seed, session, sequence);
                self.mix.habits().choose(seed, session, sequence, &mut own)
            }
        }
    }

    #[inline]
    fn begin(&self, state: &mut Box<TpccSession>, turn: Option<Turn>) {
        state.turn = turn;
    }

    #[inline]
    fn audit(&self, _: usize, state: &Box<TpccSession>, waited: Option<Nanos>, audits: &mut Audits) {
        audits.entry::<Audit>().count(&state.done, waited);
    }

    fn lost(&self, item: usize, _: &Box<TpccSession>, audits: &mut Audits) {
        audits.entry::<Audit>().count_lost(item);
    }

    fn is_simulated(&self) -> bool {
        self.simulate.is_some()
    }

    fn node_of_terminal(&self, terminal: u32) -> Option<u16> {
        let homes = self.homes.as_ref().filter(|homes| homes.is_held())?;
        Some(homes.node_of(Home::of_terminal(terminal).w_id))
    }
}

#[cfg(test)]
mod tests;
