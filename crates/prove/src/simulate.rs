//! Histories of databases that keep their promises, made from a seed: the checker must not refute them, and its speed is measured with them.
//!
//! [`serial`] runs one transaction after another. [`snapshot_isolation`] interleaves sessions: each transaction reads from the snapshot of
//! its beginning, and of two that overwrite each other the first to commit wins. It shows write skew, and nothing worse.

use crate::history::{History, Kind, Model, Op, Outcome, Txn};

/// What to simulate.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The same seed gives the same history.
    pub seed: u64,
    /// How values carry their version: versioned registers or lists.
    pub model: Model,
    /// Transactions.
    pub txns: u32,
    /// Sessions.
    pub sessions: u32,
    /// Keys in use at a time.
    pub keys: u32,
    /// A key makes room for a new one after so many versions.
    pub versions_max: u32,
    /// Operations of a transaction: 1 to this many.
    pub ops_max: u32,
    /// Operations that read, in percent.
    pub read_percent: u32,
    /// Transactions that roll back by themselves, in percent.
    pub fail_percent: u32,
    /// Transactions whose end the client does not learn, in percent; half of them have happened.
    pub info_percent: u32,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            seed: 1,
            model: Model::VersionedRegister,
            txns: 1000,
            sessions: 16,
            keys: 64,
            versions_max: 64,
            ops_max: 11,
            read_percent: 60,
            fail_percent: 2,
            info_percent: 0,
        }
    }
}

/// Numbers from a seed: splitmix64 (Steele, Lea, Flood, 2014).
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// Begins.
    pub fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    /// Less than `limit`, which is not 0.
    pub fn below(&mut self, limit: u32) -> u32 {
        (((self.bits() >> 32) * u64::from(limit)) >> 32) as u32
    }
}

/// One transaction after another.
pub fn serial(plan: &Plan) -> History {
    simulate(plan, true)
}

/// Interleaved sessions under snapshot isolation.
pub fn snapshot_isolation(plan: &Plan) -> History {
    simulate(plan, false)
}

/// A running transaction.
#[derive(Debug, Default)]
struct Running {
    begin: u64,
    left: u32,
    ops: Vec<Op>,
    /// Per written key: key, versions in the snapshot, tokens of its own.
    writes: Vec<(u32, usize, Vec<u64>)>,
}

fn simulate(plan: &Plan, is_serial: bool) -> History {
    let mut draw = Draw::new(plan.seed);
    let mut history = History::new(plan.model);
    // Of each key: when each version was committed, and its token.
    let mut keys: Vec<Vec<(u64, u64)>> = vec![Vec::new(); plan.keys.max(1) as usize];
    let mut pool: Vec<u32> = (0..plan.keys.max(1)).collect();
    let sessions = plan.sessions.max(1);
    let mut running: Vec<Option<Running>> = (0..sessions).map(|_| None).collect();
    // A session with a lost connection goes on under another number.
    let mut numbers: Vec<u32> = (0..sessions).collect();
    let mut next_number = sessions;
    let mut clock = 0u64;
    let mut token = 0u64;
    let mut current = 0usize;
    while (history.txns().len() as u32) < plan.txns {
        clock += 1;
        if !is_serial || running[current].is_none() {
            current = draw.below(sessions) as usize;
        }
        let Some(txn) = &mut running[current] else {
            let left = 1 + draw.below(plan.ops_max.max(1));
            running[current] = Some(Running { begin: clock, left, ..Running::default() });
            continue;
        };
        if txn.left > 0 {
            txn.left -= 1;
            let place = draw.below(pool.len() as u32) as usize;
            let is_read = draw.below(100) < plan.read_percent;
            token += 1;
            let op = operate(&mut history, &keys, pool[place], txn, (!is_read).then_some(token));
            let statement = txn.ops.len().min(usize::from(u16::MAX)) as u16;
            txn.ops.push(Op { statement, start_ns: clock, ..op });
            continue;
        }
        let Some(txn) = running[current].take() else { continue };
        let is_first = txn.writes.iter().all(|(key, seen, _)| keys[*key as usize].len() == *seen);
        let mut outcome = if is_first { Outcome::Ok } else { Outcome::Fail };
        let mut is_done = is_first;
        let chance = draw.below(100);
        if is_first && chance < plan.fail_percent {
            (outcome, is_done) = (Outcome::Fail, false);
        } else if chance >= 100 - plan.info_percent.min(100) {
            outcome = Outcome::Info;
            is_done &= draw.below(2) == 0;
        }
        if is_done {
            for (key, _, tokens) in &txn.writes {
                keys[*key as usize].extend(tokens.iter().map(|token| (clock, *token)));
            }
        }
        for place in &mut pool {
            if keys[*place as usize].len() >= plan.versions_max.max(1) as usize {
                *place = keys.len() as u32;
                keys.push(Vec::new());
            }
        }
        history.push(Txn::ok(numbers[current]).between(txn.begin, clock).ending(outcome), &txn.ops);
        if outcome == Outcome::Info {
            numbers[current] = next_number;
            next_number += 1;
        }
    }
    history
}

fn operate(
    history: &mut History,
    keys: &[Vec<(u64, u64)>],
    key: u32,
    txn: &mut Running,
    write: Option<u64>,
) -> Op {
    let versions = &keys[key as usize];
    // Few versions of a key are younger than a running transaction.
    let seen = versions.iter().rposition(|(at, _)| *at <= txn.begin).map_or(0, |at| at + 1);
    let own = txn.writes.iter().position(|(other, _, _)| *other == key);
    if let Some(token) = write {
        let own = own.unwrap_or_else(|| {
            txn.writes.push((key, seen, Vec::new()));
            txn.writes.len() - 1
        });
        let tokens = &mut txn.writes[own].2;
        tokens.push(token);
        let ver = (seen + tokens.len()) as u32;
        return match history.model() {
            Model::Append => Op::new(Kind::Append, key, 1, token),
            _ if ver == 1 => Op::new(Kind::Insert, key, 1, token),
            _ => Op::new(Kind::Update, key, ver, token),
        };
    }
    let own: &[u64] = own.map_or(&[], |own| &txn.writes[own].2);
    match history.model() {
        Model::Append => {
            let list: Vec<u64> =
                versions[..seen].iter().map(|(_, token)| *token).chain(own.iter().copied()).collect();
            history.read_list(key, &list)
        }
        _ => {
            let last = own.last().copied().or_else(|| versions[..seen].last().map(|(_, token)| *token));
            Op::new(Kind::Read, key, (seen + own.len()) as u32, last.unwrap_or(0))
        }
    }
}
