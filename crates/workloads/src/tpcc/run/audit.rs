//! What the report audits (clauses 5.2.3 and 5.3, and the shares that clause 2 prescribes), counted without locks.

use record::Latency;

use super::draw::{Delivery, Home, NewOrder, OrderStatus, Payment, StockLevel, UNUSED_ITEM};
use super::{Profile, Tpcc};
use run::audit::Sums;
use run::engine::Nanos;
use run::random::Random;

/// Numbers of nodes that are counted apart; the last stands for itself and more.
pub const NODES_MAX: usize = 8;

/// What one transaction did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Which one it was.
    pub profile: Profile,
    /// Lines of a New-Order.
    pub lines: u64,
    /// Lines that another warehouse supplies.
    pub remote_lines: u64,
    /// A New-Order with an unused item.
    pub is_rolled_back: bool,
    /// A Payment by a customer of another warehouse.
    pub is_remote: bool,
    /// The customer was found by last name.
    pub is_by_name: bool,
    /// Orders that were delivered.
    pub delivered: u64,
    /// Districts without an order to deliver (clause 2.7.4.2).
    pub skipped: u64,
    /// Nodes whose rows it touched.
    pub nodes: u32,
    /// Requests that were awaited.
    pub round_trips: u64,
    /// Time between requests and their answers.
    pub database: Nanos,
}

impl Default for Done {
    fn default() -> Done {
        Done::of(Profile::NewOrder)
    }
}

impl Done {
    /// Nothing yet.
    pub fn of(profile: Profile) -> Done {
        Done {
            profile,
            lines: 0,
            remote_lines: 0,
            is_rolled_back: false,
            is_remote: false,
            is_by_name: false,
            delivered: 0,
            skipped: 0,
            nodes: 1,
            round_trips: 0,
            database: 0,
        }
    }

    /// Draws a transaction's input and notes what is counted about it, without a database.
    pub(super) fn draw(&mut self, tpcc: &Tpcc, profile: Profile, home: Home, random: &mut Random) {
        match profile {
            Profile::NewOrder => {
                let input = NewOrder::draw(random, tpcc, home);
                self.order(&input, tpcc);
                self.is_rolled_back = input.lines().iter().any(|line| line.i_id == UNUSED_ITEM);
            }
            Profile::Payment => self.payment(&Payment::draw(random, tpcc, home), tpcc),
            Profile::OrderStatus => {
                self.is_by_name = OrderStatus::draw(random, tpcc, home).customer.is_by_name();
            }
            Profile::Delivery => {
                Delivery::draw(random, home);
            }
            Profile::StockLevel => {
                StockLevel::draw(random, home);
            }
        }
    }

    /// Notes the input of a New-Order.
    pub(super) fn order(&mut self, input: &NewOrder, tpcc: &Tpcc) {
        self.lines = input.lines().len() as u64;
        self.remote_lines = input.remote_lines();
        if tpcc.homes.is_some() {
            // No stock is touched for an item that is not there.
            let there = input.lines().iter().filter(|line| line.i_id != UNUSED_ITEM);
            self.nodes = tpcc.nodes_of(there.map(|line| line.supply_w_id).chain([input.w_id]));
        }
    }

    /// Notes the input of a Payment.
    pub(super) fn payment(&mut self, input: &Payment, tpcc: &Tpcc) {
        self.is_remote = input.c_w_id != input.w_id;
        self.is_by_name = input.customer.is_by_name();
        self.nodes = tpcc.nodes_of([input.w_id, input.c_w_id].into_iter());
    }
}

/// Sums over transactions that reached their end; all zero in runs of other workloads.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// By profile.
    pub ended: [u64; Profile::ALL.len()],
    /// New-Orders with an unused item, rolled back.
    pub rolled_back: u64,
    /// Lines of New-Orders.
    pub lines: u64,
    /// Lines that another warehouse supplies.
    pub remote_lines: u64,
    /// New-Orders with at least one such line.
    pub remote_orders: u64,
    /// Payments by customers of another warehouse.
    pub remote_payments: u64,
    /// Payments by last name.
    pub payments_by_name: u64,
    /// Order-Statuses by last name.
    pub statuses_by_name: u64,
    /// Orders delivered.
    pub delivered: u64,
    /// Districts of Deliveries without an order to deliver.
    pub skipped: u64,
    /// Transactions by profile and number of nodes they touched: 1 first.
    pub nodes: [[u64; NODES_MAX]; Profile::ALL.len()],
    /// Transactions that committed and had written on more than one node: an engine that promises all or nothing commits these in two phases.
    pub wide_commits: u64,
    /// Requests that were awaited.
    pub round_trips: u64,
    /// New-Orders whose connection was lost, so that it is unknown whether they committed.
    pub unknown_orders: u64,
    /// Time in the database per transaction. Made when it is first needed: other workloads have none.
    pub database: Option<Box<Latency>>,
    /// Time a terminal waited until a session was free.
    pub session_wait: Option<Box<Latency>>,
}

impl Audit {
    /// A transaction reached its end after its terminal had waited `waited` for a session; `None`: no terminal waits in a closed loop.
    #[inline]
    pub fn count(&mut self, done: &Done, waited: Option<Nanos>) {
        self.ended[done.profile as usize] += 1;
        self.rolled_back += u64::from(done.is_rolled_back);
        self.lines += done.lines;
        self.remote_lines += done.remote_lines;
        self.remote_orders += u64::from(done.remote_lines > 0);
        self.remote_payments += u64::from(done.is_remote);
        match done.profile {
            Profile::Payment => self.payments_by_name += u64::from(done.is_by_name),
            _ => self.statuses_by_name += u64::from(done.is_by_name),
        }
        self.delivered += done.delivered;
        self.skipped += done.skipped;
        self.nodes[done.profile as usize][(done.nodes.max(1) as usize - 1).min(NODES_MAX - 1)] += 1;
        // Only profiles that write ever leave their warehouse.
        self.wide_commits += u64::from(done.nodes > 1 && !done.is_rolled_back);
        self.round_trips += done.round_trips;
        self.database.get_or_insert_default().record_ns(done.database);
        if let Some(waited) = waited {
            self.session_wait.get_or_insert_default().record_ns(waited);
        }
    }

    /// The connection of a transaction of this profile was lost.
    pub(crate) fn count_lost(&mut self, profile: usize) {
        self.unknown_orders += u64::from(profile == Profile::NewOrder as usize);
    }

    /// New-Orders that committed.
    pub fn committed_orders(&self) -> u64 {
        self.ended[Profile::NewOrder as usize] - self.rolled_back
    }

    fn counters(&mut self) -> [&mut u64; 12] {
        [
            &mut self.rolled_back,
            &mut self.lines,
            &mut self.remote_lines,
            &mut self.remote_orders,
            &mut self.remote_payments,
            &mut self.payments_by_name,
            &mut self.statuses_by_name,
            &mut self.delivered,
            &mut self.skipped,
            &mut self.round_trips,
            &mut self.unknown_orders,
            &mut self.wide_commits,
        ]
    }

    fn is_untouched(&self) -> bool {
        self.ended.iter().all(|count| *count == 0) && self.unknown_orders == 0
    }
}

impl Sums for Audit {
    fn add(&mut self, other: &Audit) {
        if other.is_untouched() {
            return;
        }
        let mut theirs = Audit { database: None, session_wait: None, ..*other };
        for (mine, theirs) in self.counters().into_iter().zip(theirs.counters()) {
            *mine += *theirs;
        }
        for (mine, theirs) in self.ended.iter_mut().zip(other.ended) {
            *mine += theirs;
        }
        for (mine, theirs) in self.nodes.iter_mut().flatten().zip(other.nodes.iter().flatten()) {
            *mine += theirs;
        }
        for (mine, theirs) in
            [(&mut self.database, &other.database), (&mut self.session_wait, &other.session_wait)]
        {
            if let Some(theirs) = theirs.as_deref().filter(|latency| !latency.is_empty()) {
                mine.get_or_insert_default().merge(theirs);
            }
        }
    }

    fn reset(&mut self) {
        if self.is_untouched() {
            return;
        }
        self.counters().into_iter().for_each(|count| *count = 0);
        (self.ended, self.nodes) = Default::default();
        for latency in [&mut self.database, &mut self.session_wait].into_iter().flatten() {
            if !latency.is_empty() {
                latency.reset();
            }
        }
    }
}

/// The sums of a benchmark that runs these transactions beside work of its own: a mix may have it and TPC-C itself, each with its own sums.
#[derive(Clone, Debug, Default)]
pub struct Beside(pub Audit);

impl From<Beside> for Audit {
    fn from(Beside(audit): Beside) -> Audit {
        audit
    }
}

impl Sums for Beside {
    fn add(&mut self, other: &Beside) {
        self.0.add(&other.0);
    }

    fn reset(&mut self) {
        self.0.reset();
    }
}
