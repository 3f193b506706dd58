//! Simulated users, as the terminals of TPC-C: a hundred and fifty thousand of them in a few megabytes.
//!
//! A terminal is not a task but a record of sixteen bytes. While its user thinks and keys in, it is in a timer wheel; when its time
//! has come it waits in a queue until a session is free; it occupies a session only while its transaction runs.
//!
//! If the data of each user is on one node, only a session that connects to that node runs its transaction: there is a queue per [`Groups`] group.
//!
//! ```text
//!   resting --its time has come--> due --a session is free--> in a transaction --the transaction has ended--> resting
//! ```

use crate::engine::{NANOS_PER_SECOND, Nanos};
use crate::random::Random;

mod habits;

pub use habits::Habits;

/// Times of terminals are whole ticks: a millisecond more or less of thinking is nothing to a user, and those of one tick are woken together.
pub const TICK: Nanos = NANOS_PER_SECOND / 1_000;
/// Slots of the wheel, a tick each: 262 seconds, above the longest rest.
const SLOTS: usize = 1 << 18;
/// The longest rest that the wheel can hold.
pub const REST_MAX: Nanos = (SLOTS as u64 - 2) * TICK;
/// End of a list.
const NONE: u32 = u32::MAX;
/// Streams of rests, apart from those of transactions.
const REST_SEED: u64 = 0x7465_726d_696e_616c;
/// Bits of a record that hold the type of the next transaction.
const ITEM_BITS: u32 = 3;
/// Most transaction types of simulated users.
pub const ITEMS_MAX: usize = 1 << ITEM_BITS;

/// The users of a run, or of a worker: what decides their rests and their choices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Users {
    /// The first terminal's number.
    pub first: u32,
    /// How many there are.
    pub count: u32,
    /// Decides every draw.
    pub seed: u64,
    /// How they choose transactions, and how long they rest.
    pub habits: Habits,
}

impl Users {
    /// Part `part` of `parts`, in which parts may differ by one.
    #[must_use]
    pub fn part(self, part: u64, parts: u64) -> Users {
        let at = |part: u64| (u64::from(self.count) * part / parts) as u32;
        Users { first: self.first + at(part), count: at(part + 1) - at(part), ..self }
    }
}

/// A terminal's turn to run a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Whose.
    pub terminal: u32,
    /// Its how manieth, from 0.
    pub number: u32,
    /// Which transaction of its workload.
    pub item: usize,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    /// The tick of its next transaction, counted from the run's begin.
    due: u64,
    /// The next one in the same list.
    next: u32,
    /// Number of its next transaction, and above it that transaction's type.
    number_and_item: u32,
}

impl Record {
    fn turn(self, terminal: u32) -> Turn {
        let item = (self.number_and_item >> (32 - ITEM_BITS)) as usize;
        Turn { terminal, number: self.number_and_item & (u32::MAX >> ITEM_BITS), item }
    }

    fn expect(&mut self, number: u32, item: usize) {
        let number = number & (u32::MAX >> ITEM_BITS);
        self.number_and_item = number | (item as u32) << (32 - ITEM_BITS);
    }
}

/// Which queue a terminal stands in, and which queue a session takes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    /// How many queues there are, 1 at least.
    count: usize,
    /// Of each terminal of the worker; empty: they all stand in one.
    terminals: Vec<u16>,
    /// Of each session of the worker; empty likewise.
    sessions: Vec<u16>,
}

impl Groups {
    /// One queue for all.
    pub fn one() -> Groups {
        Groups { count: 1, terminals: Vec::new(), sessions: Vec::new() }
    }

    /// A queue per node. `terminals` and `sessions` are nodes: where each terminal's rows are, and where each session enters. Terminals of a
    /// node at which no session of this worker enters stand in the queues of others.
    pub fn by_node(terminals: impl Iterator<Item = u16>, sessions: &[u16]) -> Groups {
        let mut nodes = sessions.to_vec();
        nodes.sort_unstable();
        nodes.dedup();
        if nodes.len() < 2 {
            return Groups::one();
        }
        let of = |node: u16| match nodes.binary_search(&node) {
            Ok(group) => group as u16,
            Err(_) => node % nodes.len() as u16,
        };
        Groups {
            count: nodes.len(),
            terminals: terminals.map(of).collect(),
            sessions: sessions.iter().map(|node| of(*node)).collect(),
        }
    }

    /// Whether there are several queues.
    pub(crate) fn are_several(&self) -> bool {
        self.count > 1
    }

    /// The queue of a session, by its number within the worker.
    #[inline]
    pub(crate) fn of_session(&self, index: usize) -> usize {
        self.sessions.get(index).copied().unwrap_or(0).into()
    }

    fn of_terminal(&self, index: u32) -> usize {
        self.terminals.get(index as usize).copied().unwrap_or(0).into()
    }
}

/// Terminals whose time has come, first come first served.
#[derive(Clone, Copy, Debug)]
struct Queue {
    first: u32,
    last: u32,
    length: u64,
}

/// All terminals of one worker.
#[derive(Clone, Debug)]
pub struct Terminals {
    users: Users,
    begin: Nanos,
    records: Vec<Record>,
    /// First terminal of each slot.
    slots: Vec<u32>,
    /// One bit per slot that is not empty.
    occupied: Vec<u64>,
    /// The first tick that has not been looked at.
    clock: u64,
    groups: Groups,
    queues: Vec<Queue>,
}

impl Terminals {
    /// Terminals of a run that begins at `begin`, all resting.
    pub fn new(users: Users, begin: Nanos, groups: Groups) -> Terminals {
        let mut terminals = Terminals {
            users,
            begin,
            records: vec![Record { due: 0, next: NONE, number_and_item: 0 }; users.count as usize],
            slots: vec![NONE; SLOTS],
            occupied: vec![0; SLOTS / 64],
            clock: 0,
            queues: vec![Queue { first: NONE, last: NONE, length: 0 }; groups.count.max(1)],
            groups,
        };
        for index in 0..users.count {
            let terminal = u64::from(users.first + index);
            let mut random = Random::for_transaction(users.seed ^ REST_SEED, terminal, u64::MAX);
            let (rest, chosen) = users.habits.at_random_moment(&mut random);
            // A deck has its own first card.
            let item = match users.habits.is_shuffled {
                false => chosen,
                true => users.habits.choose(users.seed, terminal, 0, &mut random),
            };
            terminals.records[index as usize].expect(0, item);
            terminals.hang(index, rest.div_ceil(TICK));
        }
        terminals
    }

    /// Hangs a terminal into the wheel.
    fn hang(&mut self, index: u32, due: u64) {
        let due = due.clamp(self.clock, self.clock + SLOTS as u64 - 1);
        let slot = due as usize % SLOTS;
        let record = &mut self.records[index as usize];
        (record.due, record.next) = (due, self.slots[slot]);
        self.slots[slot] = index;
        self.occupied[slot / 64] |= 1 << (slot % 64);
    }

    fn time_of(&self, tick: u64) -> Nanos {
        self.begin + tick * TICK
    }

    /// The first occupied tick from the clock on.
    fn next_tick(&self) -> Option<u64> {
        let first = self.clock as usize % SLOTS;
        let words = self.occupied.len();
        // The word in which the clock stands is looked at twice: its end first, its beginning last.
        for step in 0..=words {
            let at = (first / 64 + step) % words;
            let mask = match step {
                0 => u64::MAX << (first % 64),
                last if last == words => !(u64::MAX << (first % 64)),
                _ => u64::MAX,
            };
            let word = self.occupied[at] & mask;
            if word != 0 {
                let slot = at * 64 + word.trailing_zeros() as usize;
                return Some(self.clock + ((slot + SLOTS - first) % SLOTS) as u64);
            }
        }
        None
    }

    /// Lines up everybody whose time has come.
    fn advance(&mut self, now: Nanos) {
        let Some(passed) = now.checked_sub(self.begin) else { return };
        let now_tick = passed / TICK;
        while let Some(tick) = self.next_tick().filter(|tick| *tick <= now_tick) {
            let slot = tick as usize % SLOTS;
            self.occupied[slot / 64] &= !(1 << (slot % 64));
            let mut index = std::mem::replace(&mut self.slots[slot], NONE);
            while index != NONE {
                let next = std::mem::replace(&mut self.records[index as usize].next, NONE);
                let queue = &mut self.queues[self.groups.of_terminal(index)];
                match queue.last {
                    NONE => queue.first = index,
                    last => self.records[last as usize].next = index,
                }
                queue.last = index;
                queue.length += 1;
                index = next;
            }
            self.clock = tick + 1;
        }
        self.clock = self.clock.max(now_tick + 1);
    }

    /// The terminal that has waited longest for the worker's session number `session`, and since when; `None` while nothing waits.
    pub fn claim(&mut self, now: Nanos, session: usize) -> Option<(Nanos, Turn)> {
        self.advance(now);
        let queue = &mut self.queues[self.groups.of_session(session)];
        let index = queue.first;
        if index == NONE {
            return None;
        }
        let record = self.records[index as usize];
        queue.first = record.next;
        if queue.first == NONE {
            queue.last = NONE;
        }
        queue.length -= 1;
        Some((self.time_of(record.due), record.turn(self.users.first + index)))
    }

    /// The transaction of a turn has ended: the user thinks, then keys in the next one.
    pub fn rest(&mut self, turn: Turn, now: Nanos) {
        self.advance(now);
        let index = turn.terminal - self.users.first;
        let number = turn.number + 1;
        let mut random =
            Random::for_transaction(self.users.seed ^ REST_SEED, u64::from(turn.terminal), u64::from(number));
        let Users { seed, habits, .. } = self.users;
        let thinking = habits.thinking(turn.item, &mut random);
        let next = habits.choose(seed, u64::from(turn.terminal), u64::from(number), &mut random);
        self.records[index as usize].expect(number, next);
        let due = (now + thinking + habits.keying(next)).saturating_sub(self.begin).div_ceil(TICK);
        self.hang(index, due);
    }

    /// Whether there are several queues, so that not every session serves every terminal.
    pub(crate) fn are_grouped(&self) -> bool {
        self.groups.are_several()
    }

    /// Whether a terminal waits for this session.
    pub fn wait_for(&mut self, session: usize, now: Nanos) -> bool {
        self.advance(now);
        self.queues[self.groups.of_session(session)].length > 0
    }

    /// When a session can be given a terminal; with several queues, when the next terminal joins one of them.
    pub fn next_due(&self, now: Nanos) -> Nanos {
        if !self.are_grouped() && self.queues[0].length > 0 {
            return now;
        }
        self.next_tick().map_or(Nanos::MAX, |tick| self.time_of(tick))
    }

    /// Terminals whose time has come before `end` and that no session has taken.
    pub fn waiting(&self, now: Nanos) -> u64 {
        let Some(passed) = now.checked_sub(self.begin) else { return 0 };
        let mut count = self.queues.iter().map(|queue| queue.length).sum();
        for tick in self.clock..=(passed / TICK).min(self.clock + SLOTS as u64 - 1) {
            let mut index = self.slots[tick as usize % SLOTS];
            while index != NONE {
                count += 1;
                index = self.records[index as usize].next;
            }
        }
        count
    }
}

#[cfg(test)]
mod tests;
