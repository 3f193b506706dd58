//! The fourteen cases, and what PostgreSQL answers to each (executed on 15 and 18; the same since 9.1).

use super::TABLE;
use super::transcript::Transcript;
use engines::profile::Isolation;

/// A script.
#[derive(Clone, Copy)]
pub struct Case {
    /// The short name.
    pub code: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// Session and statement. A session's first statement is preceded by BEGIN. `t` stands for the table; COMMIT and ROLLBACK end.
    pub steps: &'static [(char, &'static str)],
    /// Whether the anomaly happened.
    pub happened: fn(&Transcript) -> bool,
    /// At READ COMMITTED, REPEATABLE READ, SERIALIZABLE: whether it happens on PostgreSQL, and the line.
    pub expected: [(bool, &'static str); 3],
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").field("code", &self.code).finish_non_exhaustive()
    }
}

impl Case {
    /// The case of a name.
    pub fn find(code: &str) -> Option<&'static Case> {
        CASES.iter().find(|case| case.code.eq_ignore_ascii_case(code))
    }

    /// The statement of a step as it is sent.
    pub(super) fn sql(&self, step: usize) -> String {
        self.steps[step].1.replace(" t ", &format!(" {TABLE} "))
    }

    /// The whole script, to run it by hand, one statement a line.
    pub fn script(&self, level: Isolation) -> Vec<String> {
        let mut lines = vec![format!("-- {TABLE} (id, value) holds (1,10), (2,20)")];
        let mut begun = Vec::new();
        for (step, (who, _)) in self.steps.iter().enumerate() {
            if !begun.contains(who) {
                begun.push(*who);
                lines.push(format!("{who}: {};", level.begin()));
            }
            lines.push(format!("{who}: {};", self.sql(step)));
        }
        lines
    }
}

const READ_1: &str = "SELECT id, value FROM t WHERE id = 1";
const READ_2: &str = "SELECT id, value FROM t WHERE id = 2";
const READ_BOTH: &str = "SELECT id, value FROM t WHERE id IN (1, 2) ORDER BY id";
const READ_ALL: &str = "SELECT id, value FROM t ORDER BY id";
const BY_3: &str = "SELECT id, value FROM t WHERE value % 3 = 0 ORDER BY id";

/// Both transactions were committed.
fn both(transcript: &Transcript) -> bool {
    transcript.is_committed('a') && transcript.is_committed('b')
}

/// All cases, in Hermitage's order.
pub static CASES: [Case; 14] = [
    Case {
        code: "G0",
        title: "dirty write: two transactions update the same two rows",
        steps: &[
            ('a', "UPDATE t SET value = 11 WHERE id = 1"),
            ('b', "UPDATE t SET value = 12 WHERE id = 1"),
            ('a', "UPDATE t SET value = 21 WHERE id = 2"),
            ('a', "COMMIT"),
            ('b', "UPDATE t SET value = 22 WHERE id = 2"),
            ('b', "COMMIT"),
        ],
        happened: |t| ["1=11 2=22", "1=12 2=21"].contains(&t.last()),
        expected: [
            (false, "b waits; final 1=12 2=22"),
            (false, "b waits; b 40001; final 1=11 2=21"),
            (false, "b waits; b 40001; final 1=11 2=21"),
        ],
    },
    Case {
        code: "G1a",
        title: "aborted read: a value that is rolled back afterwards",
        steps: &[
            ('a', "UPDATE t SET value = 101 WHERE id = 1"),
            ('b', READ_1),
            ('a', "ROLLBACK"),
            ('b', READ_1),
            ('b', "COMMIT"),
        ],
        happened: |t| t.reads('b').iter().any(|read| read.contains("101")),
        expected: [(false, "b 1=10; b 1=10; final 1=10 2=20"); 3],
    },
    Case {
        code: "G1b",
        title: "intermediate read: a value that its transaction overwrites itself",
        steps: &[
            ('a', "UPDATE t SET value = 101 WHERE id = 1"),
            ('b', READ_1),
            ('a', "UPDATE t SET value = 11 WHERE id = 1"),
            ('a', "COMMIT"),
            ('b', READ_1),
            ('b', "COMMIT"),
        ],
        happened: |t| t.reads('b').iter().any(|read| read.contains("101")),
        expected: [
            (false, "b 1=10; b 1=11; final 1=11 2=20"),
            (false, "b 1=10; b 1=10; final 1=11 2=20"),
            (false, "b 1=10; b 1=10; final 1=11 2=20"),
        ],
    },
    Case {
        code: "G1c",
        title: "circular information flow: each reads what the other has just written",
        steps: &[
            ('a', "UPDATE t SET value = 11 WHERE id = 1"),
            ('b', "UPDATE t SET value = 22 WHERE id = 2"),
            ('a', READ_2),
            ('b', READ_1),
            ('a', "COMMIT"),
            ('b', "COMMIT"),
        ],
        happened: |t| both(t) && t.reads('a') == ["2=22"] && t.reads('b') == ["1=11"],
        expected: [
            (false, "a 2=20; b 1=10; final 1=11 2=22"),
            (false, "a 2=20; b 1=10; final 1=11 2=22"),
            (false, "a 2=20; b 1=10; b 40001 at COMMIT; final 1=11 2=20"),
        ],
    },
    Case {
        code: "OTV",
        title: "observed transaction vanishes: a reader sees a transaction in one row and then not in another",
        steps: &[
            ('a', "UPDATE t SET value = 11 WHERE id = 1"),
            ('a', "UPDATE t SET value = 19 WHERE id = 2"),
            ('b', "UPDATE t SET value = 12 WHERE id = 1"),
            ('a', "COMMIT"),
            ('d', READ_1),
            ('b', "UPDATE t SET value = 18 WHERE id = 2"),
            ('d', READ_2),
            ('b', "COMMIT"),
            ('d', READ_2),
            ('d', READ_1),
            ('d', "COMMIT"),
        ],
        happened: |t| {
            let is_new = |read: &&String| ["1=12", "2=18"].contains(&read.as_str());
            t.reads('d').iter().skip_while(|read| !is_new(read)).any(|read| !is_new(&read))
        },
        expected: [
            (false, "b waits; d 1=11; d 2=19; d 2=18; d 1=12; final 1=12 2=18"),
            (false, "b waits; b 40001; d 1=11; d 2=19; d 2=19; d 1=11; final 1=11 2=19"),
            (false, "b waits; b 40001; d 1=11; d 2=19; d 2=19; d 1=11; final 1=11 2=19"),
        ],
    },
    Case {
        code: "PMP",
        title: "predicate-many-preceders: a row appears that fits a predicate read before",
        steps: &[
            ('a', "SELECT id, value FROM t WHERE value = 30 ORDER BY id"),
            ('b', "INSERT INTO t (id, value) VALUES (3, 30)"),
            ('b', "COMMIT"),
            ('a', BY_3),
            ('a', "COMMIT"),
        ],
        happened: |t| t.reads('a') == ["", "3=30"],
        expected: [
            (true, "a no rows; a 3=30; final 1=10 2=20 3=30"),
            (false, "a no rows; a no rows; final 1=10 2=20 3=30"),
            (false, "a no rows; a no rows; final 1=10 2=20 3=30"),
        ],
    },
    Case {
        code: "PMP-write",
        title: "predicate-many-preceders for writes: a delete misses the row that it looks for",
        steps: &[
            ('a', "UPDATE t SET value = value + 10"),
            ('b', "DELETE FROM t WHERE value = 20"),
            ('a', "COMMIT"),
            ('b', "SELECT id, value FROM t WHERE value = 20"),
            ('b', "COMMIT"),
        ],
        happened: |t| t.is_committed('b') && t.reads('b') == ["1=20"],
        expected: [
            (true, "b waits; b 1=20; final 1=20 2=30"),
            (false, "b waits; b 40001; final 1=20 2=30"),
            (false, "b waits; b 40001; final 1=20 2=30"),
        ],
    },
    Case {
        code: "P4",
        title: "lost update: both read a row, then both write it",
        steps: &[
            ('a', READ_1),
            ('b', READ_1),
            ('a', "UPDATE t SET value = 11 WHERE id = 1"),
            ('b', "UPDATE t SET value = 11 WHERE id = 1"),
            ('a', "COMMIT"),
            ('b', "COMMIT"),
        ],
        happened: both,
        expected: [
            (true, "a 1=10; b 1=10; b waits; final 1=11 2=20"),
            (false, "a 1=10; b 1=10; b waits; b 40001; final 1=11 2=20"),
            (false, "a 1=10; b 1=10; b waits; b 40001; final 1=11 2=20"),
        ],
    },
    Case {
        code: "G-single",
        title: "read skew: a transaction that commits between two reads is seen by the second only",
        steps: &[
            ('a', READ_1),
            ('b', READ_BOTH),
            ('b', "UPDATE t SET value = 12 WHERE id = 1"),
            ('b', "UPDATE t SET value = 18 WHERE id = 2"),
            ('b', "COMMIT"),
            ('a', READ_2),
            ('a', "COMMIT"),
        ],
        happened: |t| t.reads('a') == ["1=10", "2=18"],
        expected: [
            (true, "a 1=10; b 1=10 2=20; a 2=18; final 1=12 2=18"),
            (false, "a 1=10; b 1=10 2=20; a 2=20; final 1=12 2=18"),
            (false, "a 1=10; b 1=10 2=20; a 2=20; final 1=12 2=18"),
        ],
    },
    Case {
        code: "G-single-predicate",
        title: "read skew over predicates",
        steps: &[
            ('a', "SELECT id, value FROM t WHERE value % 5 = 0 ORDER BY id"),
            ('b', "UPDATE t SET value = 12 WHERE value = 10"),
            ('b', "COMMIT"),
            ('a', BY_3),
            ('a', "COMMIT"),
        ],
        happened: |t| t.reads('a') == ["1=10 2=20", "1=12"],
        expected: [
            (true, "a 1=10 2=20; a 1=12; final 1=12 2=20"),
            (false, "a 1=10 2=20; a no rows; final 1=12 2=20"),
            (false, "a 1=10 2=20; a no rows; final 1=12 2=20"),
        ],
    },
    Case {
        code: "G-single-write",
        title: "read skew with a write: a transaction deletes by what it has not read",
        steps: &[
            ('a', READ_1),
            ('b', READ_ALL),
            ('b', "UPDATE t SET value = 12 WHERE id = 1"),
            ('b', "UPDATE t SET value = 18 WHERE id = 2"),
            ('b', "COMMIT"),
            ('a', "DELETE FROM t WHERE value = 20"),
            ('a', READ_ALL),
            ('a', "COMMIT"),
        ],
        happened: |t| t.is_committed('a'),
        expected: [
            (true, "a 1=10; b 1=10 2=20; a 1=12 2=18; final 1=12 2=18"),
            (false, "a 1=10; b 1=10 2=20; a 40001; final 1=12 2=18"),
            (false, "a 1=10; b 1=10 2=20; a 40001; final 1=12 2=18"),
        ],
    },
    Case {
        code: "G2-item",
        title: "write skew: both read two rows, each writes another one",
        steps: &[
            ('a', READ_BOTH),
            ('b', READ_BOTH),
            ('a', "UPDATE t SET value = 11 WHERE id = 1"),
            ('b', "UPDATE t SET value = 21 WHERE id = 2"),
            ('a', "COMMIT"),
            ('b', "COMMIT"),
        ],
        happened: both,
        expected: [
            (true, "a 1=10 2=20; b 1=10 2=20; final 1=11 2=21"),
            (true, "a 1=10 2=20; b 1=10 2=20; final 1=11 2=21"),
            (false, "a 1=10 2=20; b 1=10 2=20; b 40001 at COMMIT; final 1=11 2=20"),
        ],
    },
    Case {
        code: "G2",
        title: "write skew over predicates: both see no row, both insert one",
        steps: &[
            ('a', BY_3),
            ('b', BY_3),
            ('a', "INSERT INTO t (id, value) VALUES (3, 30)"),
            ('b', "INSERT INTO t (id, value) VALUES (4, 42)"),
            ('a', "COMMIT"),
            ('b', "COMMIT"),
        ],
        happened: both,
        expected: [
            (true, "a no rows; b no rows; final 1=10 2=20 3=30 4=42"),
            (true, "a no rows; b no rows; final 1=10 2=20 3=30 4=42"),
            (false, "a no rows; b no rows; b 40001 at COMMIT; final 1=10 2=20 3=30"),
        ],
    },
    Case {
        code: "G2-fekete",
        title: "write skew that only a reader shows (Fekete, O'Neil, O'Neil: A read-only transaction anomaly, 2004)",
        steps: &[
            ('a', READ_ALL),
            ('b', "UPDATE t SET value = value + 5 WHERE id = 2"),
            ('b', "COMMIT"),
            ('d', READ_ALL),
            ('d', "COMMIT"),
            ('a', "UPDATE t SET value = 0 WHERE id = 1"),
            ('a', "COMMIT"),
        ],
        happened: |t| t.is_committed('a') && t.reads('a') == ["1=10 2=20"] && t.reads('d') == ["1=10 2=25"],
        expected: [
            (true, "a 1=10 2=20; d 1=10 2=25; final 1=0 2=25"),
            (true, "a 1=10 2=20; d 1=10 2=25; final 1=0 2=25"),
            (false, "a 1=10 2=20; d 1=10 2=25; a 40001; final 1=10 2=25"),
        ],
    },
];
