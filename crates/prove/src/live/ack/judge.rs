//! Compares acknowledged rows with existing ones: the arithmetic, without a server.

use std::collections::HashMap;

use crate::outcome::Outcome;

/// One transaction as its client recorded it. Times are nanoseconds of the monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Which client.
    pub client: u32,
    /// Its number there, from 1.
    pub sequence: u32,
    /// The shards it wrote on, as bits.
    pub shards: u32,
    /// What its end was worth.
    pub outcome: Outcome,
    /// Before COMMIT was sent.
    pub sent_ns: u64,
    /// When the reply came, or the client gave up.
    pub ended_ns: u64,
    /// The WAL position at its write; 0: unknown.
    pub lsn: u64,
    /// The server that was queried, by its index among those that clients may reach: after a promotion there may be two for a time.
    pub server: usize,
}

impl Entry {
    fn key(&self) -> (u32, u32) {
        (self.client, self.sequence)
    }
}

/// The result of a read: for each transaction, the number of rows on each shard.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rows(HashMap<(u32, u32), HashMap<u32, u32>>);

impl Rows {
    /// One more row.
    pub fn add(&mut self, shard: u32, client: u32, sequence: u32) {
        *self.0.entry((client, sequence)).or_default().entry(shard).or_default() += 1;
    }

    /// Rows, all together.
    pub fn count(&self) -> u64 {
        self.0.values().flat_map(HashMap::values).map(|count| u64::from(*count)).sum()
    }

    /// The shards where it is, as bits, and whether it is anywhere more than once.
    fn of(&self, entry: &Entry) -> (u32, bool) {
        let Some(shards) = self.0.get(&entry.key()) else { return (0, false) };
        let bits = shards.keys().fold(0, |bits, shard| bits | 1_u32.checked_shl(*shard).unwrap_or(0));
        (bits, shards.values().any(|count| *count > 1))
    }
}

/// How many transactions ended how.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcomes {
    /// Acknowledged.
    pub ok: u64,
    /// Acknowledged with a warning.
    pub ok_weak: u64,
    /// Failed.
    pub fail: u64,
    /// Unknown.
    pub info: u64,
    /// Refused, perhaps in part committed.
    pub partial: u64,
}

impl Outcomes {
    /// One that ended so.
    pub(crate) fn one(outcome: Outcome) -> Outcomes {
        let mut outcomes = Outcomes::default();
        outcomes.count(outcome);
        outcomes
    }

    /// Both together.
    pub(crate) fn and(self, other: Outcomes) -> Outcomes {
        Outcomes {
            ok: self.ok + other.ok,
            ok_weak: self.ok_weak + other.ok_weak,
            fail: self.fail + other.fail,
            info: self.info + other.info,
            partial: self.partial + other.partial,
        }
    }

    fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Ok => self.ok += 1,
            Outcome::OkWeak => self.ok_weak += 1,
            Outcome::Fail => self.fail += 1,
            Outcome::Info => self.info += 1,
            Outcome::Partial => self.partial += 1,
        }
    }
}

/// The judgement.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Findings {
    /// How transactions ended.
    pub outcomes: Outcomes,
    /// Acknowledged without a warning, and nowhere.
    pub lost: u64,
    /// Acknowledged with a warning, and missing: the server had warned.
    pub weak_lost: u64,
    /// On some of its shards only, though acknowledged or unknown.
    pub torn: u64,
    /// More than once.
    pub duplicated: u64,
    /// Missing at the first read, there at the second.
    pub late: u64,
    /// There at the first read, missing at the second.
    pub vanished: u64,
    /// Unknown outcomes that turned out to be committed.
    pub info_committed: u64,
    /// Unknown outcomes that turned out not to be.
    pub info_absent: u64,
    /// Refused at COMMIT by an engine with non-atomic commits, and there in part.
    pub partial_torn: u64,
    /// Refused in this way, but there completely.
    pub partial_committed: u64,
    /// Reported as failed, but present: our judgement of outcomes, or the engine, is wrong.
    pub risen: u64,
    /// Holes: survivors that began after a lost one was acknowledged, by the same server, on one of its shards, before the fault. Worse than lag.
    pub holes: u64,
    /// From the oldest lost acknowledgement to the next fault.
    pub rpo_us: u64,
    /// WAL between the last survivor and the last lost one; `None` where no positions are known.
    pub rpo_bytes: Option<u64>,
    /// The first few wrong transactions.
    pub witnesses: Vec<Witness>,
}

/// One transaction whose rows contradict its reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Witness {
    /// An acknowledged row is gone; or a row is there in part, twice, or although it was reported as failed.
    pub is_loss: bool,
    /// In words.
    pub text: String,
}

/// Witnesses kept.
const WITNESSES_MAX: usize = 10;

impl Findings {
    /// Acknowledged without a warning.
    pub fn acknowledged(&self) -> u64 {
        self.outcomes.ok
    }

    /// Whether the promise is broken: lost, torn, duplicated, vanished, or risen.
    pub fn is_broken(&self) -> bool {
        self.lost + self.torn + self.duplicated + self.vanished + self.risen > 0
    }

    fn witness(
        &mut self,
        (is_loss, what): (bool, &str),
        entry: &Entry,
        names: &[String],
        there: u32,
        start_ns: u64,
    ) {
        if self.witnesses.len() >= WITNESSES_MAX {
            return;
        }
        let named = |bits: u32| -> String {
            let of = |number: usize| names.get(number - 1).map_or("?", String::as_str).to_owned();
            let list: Vec<String> =
                (1..32).filter(|number| bits >> number & 1 == 1).map(|number| of(number as usize)).collect();
            if list.is_empty() { "nowhere".to_owned() } else { list.join(" and ") }
        };
        let text = format!(
            "{what}: transaction {} of client {}, written to {}, {} after {:.3} s, is on {}",
            entry.sequence,
            entry.client,
            named(entry.shards),
            match entry.outcome {
                Outcome::Ok => "acknowledged",
                Outcome::OkWeak => "acknowledged with a warning",
                Outcome::Fail => "failed",
                Outcome::Info => "left without an answer",
                Outcome::Partial => "refused at COMMIT",
            },
            entry.ended_ns.saturating_sub(start_ns) as f64 / 1e9,
            named(there),
        );
        self.witnesses.push(Witness { is_loss, text });
    }
}

/// The time of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// When it began.
    pub begin_ns: u64,
    /// When it was done.
    pub end_ns: u64,
}

/// Compares. `faults` are in the order of their time, `names` the shards'.
pub fn judge(entries: &[Entry], first: &Rows, second: &Rows, faults: &[Span], names: &[String]) -> Findings {
    let mut found = Findings::default();
    let start_ns = entries.iter().map(|entry| entry.sent_ns).min().unwrap_or(0);
    let mut lost: Vec<&Entry> = Vec::new();
    for entry in entries {
        found.outcomes.count(entry.outcome);
        let ((before, _), (now, twice)) = (first.of(entry), second.of(entry));
        let witness =
            |found: &mut Findings, what: (bool, &str)| found.witness(what, entry, names, now, start_ns);
        if twice {
            found.duplicated += 1;
            witness(&mut found, (false, "duplicated"));
        }
        if before & !now != 0 {
            found.vanished += 1;
            witness(&mut found, (true, "vanished"));
        } else if now & !before != 0 {
            found.late += 1;
        }
        let (all, none) = (now == entry.shards, now == 0);
        match entry.outcome {
            Outcome::Ok if none => {
                found.lost += 1;
                lost.push(entry);
                witness(&mut found, (true, "lost"));
            }
            Outcome::OkWeak if none => {
                found.weak_lost += 1;
                witness(&mut found, (true, "lost after a warning"));
            }
            Outcome::Info if all => found.info_committed += 1,
            Outcome::Info if none => found.info_absent += 1,
            Outcome::Partial if all => found.partial_committed += 1,
            Outcome::Partial if !none => {
                found.partial_torn += 1;
                witness(&mut found, (false, "committed in part"));
            }
            Outcome::Fail if !none => {
                found.risen += 1;
                witness(&mut found, (false, "risen"));
            }
            Outcome::Ok | Outcome::OkWeak | Outcome::Info if !all => {
                found.torn += 1;
                witness(&mut found, (false, "torn"));
            }
            _ => {}
        }
    }
    measure_loss(&mut found, entries, &lost, second, faults);
    found
}

fn measure_loss(found: &mut Findings, entries: &[Entry], lost: &[&Entry], rows: &Rows, faults: &[Span]) {
    // The fault that lost a transaction: the first one that was not over when its COMMIT was sent. A server that is being killed still answers
    // for a moment, and a busy client may read that answer much later; a COMMIT sent before the end can only have gone to this server.
    let victim_of = |entry: &Entry| faults.iter().find(|fault| fault.end_ns >= entry.sent_ns);
    // A loss after all known faults is measured from the last of them.
    let last_ns = lost.iter().map(|entry| entry.ended_ns).max().unwrap_or(0);
    let age = |entry: &&Entry| {
        victim_of(entry).map_or(last_ns, |fault| fault.begin_ns).saturating_sub(entry.ended_ns)
    };
    found.rpo_us = lost.iter().map(age).max().unwrap_or(0) / 1_000;
    let survivors =
        || entries.iter().filter(|entry| entry.outcome.is_acknowledged() && rows.of(entry).0 == entry.shards);
    // By end of a fault, server and shard: the begin of the last survivor before it.
    let mut last_begun: HashMap<(u64, usize), [u64; 32]> = HashMap::new();
    for entry in lost {
        let end_ns = victim_of(entry).map_or(u64::MAX, |fault| fault.end_ns);
        let begun = last_begun.entry((end_ns, entry.server)).or_insert_with(|| {
            let mut begun = [0; 32];
            let is_before = |other: &&Entry| other.ended_ns <= end_ns && other.server == entry.server;
            for other in survivors().filter(is_before) {
                for shard in (0..32).filter(|shard| other.shards >> shard & 1 == 1) {
                    begun[shard] = begun[shard].max(other.sent_ns);
                }
            }
            begun
        });
        let is_overtaken =
            (0..32).any(|shard| entry.shards >> shard & 1 == 1 && begun[shard] > entry.ended_ns);
        found.holes += u64::from(is_overtaken);
    }
    let last = lost.iter().max_by_key(|entry| entry.lsn).filter(|entry| entry.lsn > 0);
    let Some((last_lost, server)) = last.map(|entry| (entry.lsn, entry.server)) else { return };
    let end_ns = lost.iter().filter_map(|entry| victim_of(entry)).map(|fault| fault.end_ns).max();
    // Another server may have another timeline, whose positions cannot be compared with these.
    let before =
        survivors().filter(|entry| entry.ended_ns <= end_ns.unwrap_or(u64::MAX) && entry.server == server);
    let last_survivor = before.map(|entry| entry.lsn).max().unwrap_or(0);
    // Nothing survived: the distance is from the first one.
    let from = if last_survivor > 0 {
        last_survivor
    } else {
        entries.iter().map(|entry| entry.lsn).filter(|lsn| *lsn > 0).min().unwrap_or(0)
    };
    found.rpo_bytes = Some(last_lost.saturating_sub(from));
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn entry(sequence: u32, shards: u32, outcome: Outcome) -> Entry {
        let at = u64::from(sequence) * 10 * MS;
        Entry {
            client: 1,
            sequence,
            shards,
            outcome,
            sent_ns: at,
            ended_ns: at + MS,
            lsn: 1_000 * u64::from(sequence),
            server: 0,
        }
    }

    fn rows(there: &[(u32, u32)]) -> Rows {
        let mut rows = Rows::default();
        there.iter().for_each(|(sequence, shard)| rows.add(*shard, 1, *sequence));
        rows
    }

    /// A fault that takes a moment.
    fn span(ms: u64) -> Span {
        Span { begin_ns: ms * MS, end_ns: (ms + 2) * MS }
    }

    fn names() -> Vec<String> {
        vec!["n1".to_owned(), "n2".to_owned()]
    }

    #[test]
    fn an_answer_read_after_the_kill_makes_no_hole_and_one_from_before_it_does() {
        let mut late = entry(2, 0b10, Outcome::Ok);
        late.ended_ns = 90 * MS;
        let there = rows(&[(1, 1), (10, 1)]);
        let entries = [entry(1, 0b10, Outcome::Ok), late, entry(10, 0b10, Outcome::Ok)];
        let found = judge(&entries, &there, &there, &[span(20)], &names());
        assert_eq!((found.lost, found.holes), (1, 0), "10 was written to the server that came after");
        let there = rows(&[(1, 1), (3, 1)]);
        let entries = [1, 2, 3].map(|sequence| entry(sequence, 0b10, Outcome::Ok));
        let found = judge(&entries, &there, &there, &[span(40)], &names());
        assert_eq!((found.lost, found.holes), (1, 1), "3 came behind 2, and survived the same kill");
    }

    #[test]
    fn every_kind_of_damage_has_its_count() {
        use Outcome::{Fail, Info, Ok, OkWeak, Partial};
        let both = 0b110;
        let entries = [
            entry(1, 0b10, Ok),
            entry(2, both, Ok),
            entry(3, 0b10, Ok),
            entry(4, both, Ok),
            entry(5, 0b10, Ok),
            entry(6, 0b10, Info),
            entry(7, 0b10, Info),
            entry(8, both, Info),
            entry(9, 0b10, Fail),
            entry(10, 0b10, Fail),
            entry(11, 0b10, OkWeak),
            entry(12, both, Partial),
            entry(13, both, Partial),
            entry(14, 0b10, Ok),
        ];
        let there = [
            (1, 1),
            (2, 1),
            (2, 2),
            (4, 2),
            (5, 1),
            (5, 1),
            (6, 1),
            (8, 1),
            (10, 1),
            (12, 1),
            (13, 1),
            (13, 2),
        ];
        let mut first = rows(&there);
        // 14 was there once; 6 came only later.
        first.add(1, 1, 14);
        first.0.remove(&(1, 6));
        let found = judge(&entries, &first, &rows(&there), &[span(35)], &names());
        let expected = Findings {
            outcomes: Outcomes { ok: 6, ok_weak: 1, fail: 2, info: 3, partial: 2 },
            lost: 2,
            weak_lost: 1,
            torn: 2,
            duplicated: 1,
            late: 1,
            vanished: 1,
            info_committed: 1,
            info_absent: 1,
            partial_torn: 1,
            partial_committed: 1,
            risen: 1,
            holes: found.holes,
            rpo_us: 4_000,
            rpo_bytes: found.rpo_bytes,
            witnesses: found.witnesses.clone(),
        };
        assert_eq!(found, expected);
        assert!(found.is_broken());
        let torn = found
            .witnesses
            .iter()
            .map(|witness| &witness.text)
            .find(|text| text.starts_with("torn"))
            .unwrap();
        assert!(
            torn.contains("transaction 4") && torn.contains("n1 and n2") && torn.ends_with("is on n2"),
            "{torn}"
        );
    }

    #[test]
    fn a_lost_tail_is_no_hole_and_has_a_length() {
        let entries: Vec<Entry> = (1..=9).map(|sequence| entry(sequence, 0b10, Outcome::Ok)).collect();
        let fault = span(75);
        // 6 and 7 are lost; 8 and 9 came after the fault.
        let there: Vec<(u32, u32)> = [1, 2, 3, 4, 5, 8, 9].map(|sequence| (sequence, 1)).to_vec();
        let found = judge(&entries, &rows(&there), &rows(&there), &[fault], &names());
        assert_eq!((found.lost, found.holes, found.rpo_us), (2, 0, 14_000));
        assert_eq!(found.rpo_bytes, Some(2_000));
        // A write acknowledged while the server is being killed leaves no gap.
        let killed = Span { begin_ns: 55 * MS, end_ns: 75 * MS };
        let found = judge(&entries, &rows(&there), &rows(&there), &[killed], &names());
        assert_eq!((found.lost, found.holes, found.rpo_us), (2, 0, 0));
        // 5 is lost but 6 is not: a transaction after a lost one survived.
        let there: Vec<(u32, u32)> = [1, 2, 3, 4, 6, 8, 9].map(|sequence| (sequence, 1)).to_vec();
        let found = judge(&entries, &rows(&there), &rows(&there), &[fault], &names());
        assert_eq!((found.lost, found.holes), (2, 1));
        // Nothing lost is nothing to measure.
        let all: Vec<(u32, u32)> = (1..=9).map(|sequence| (sequence, 1)).collect();
        let found = judge(&entries, &rows(&all), &rows(&all), &[fault], &names());
        assert!(!found.is_broken() && found.rpo_bytes.is_none() && found.witnesses.is_empty());
    }

    /// While a promotion leaves two servers, survivors of the newer one prove nothing about the order of the older one.
    #[test]
    fn survivors_of_another_server_make_no_hole() {
        let mut all: Vec<Entry> = (1..=6).map(|sequence| entry(sequence, 2, Outcome::Ok)).collect();
        // 3 and 4 were acknowledged by a server that ended while 5 and 6 were being acknowledged by the next one.
        all[4].server = 1;
        all[5].server = 1;
        let there = rows(&[(1, 1), (2, 1), (5, 1), (6, 1)]);
        let found = judge(&all, &there, &there, &[span(65)], &names());
        assert_eq!((found.lost, found.holes), (2, 0), "{found:?}");
        // From the acknowledgement of the older one to that server's end.
        assert_eq!(found.rpo_us, 34_000, "{found:?}");
        all.iter_mut().for_each(|entry| entry.server = 0);
        assert_eq!(judge(&all, &there, &there, &[span(65)], &names()).holes, 2);
    }
}
