//! What a session does that blocks others: by its statement, and by what the others wait for.

/// A reason why others wait, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Deed {
    /// What keeps the others waiting.
    pub(super) what: &'static str,
    pub(super) text: &'static str,
    pub(super) commands: Vec<String>,
}

/// A statement that takes a strong lock of a table: its first words (`*` fits any one, `|` divides), a word with which it takes a weaker one, and the rest.
struct Strong {
    begins: &'static str,
    /// The strongest lock that it takes; [`ANY`] where its own words decide.
    takes: &'static str,
    /// Words in a row that it must have; empty: none.
    has: &'static str,
    unless: &'static str,
    what: &'static str,
    text: &'static str,
}

/// The modes of a table's lock that keep more than one kind of statement out, the strongest first.
const MODES: [&str; 5] = [ANY, "ExclusiveLock", SHARE_ROW, SHARE, SHARE_UPDATE];
const ANY: &str = "AccessExclusiveLock";
const SHARE_ROW: &str = "ShareRowExclusiveLock";
const SHARE: &str = "ShareLock";
const SHARE_UPDATE: &str = "ShareUpdateExclusiveLock";

/// How a session holds the lock of a relation, and how the first of the others wants it; empty where that is not known.
#[derive(Clone, Copy, Default)]
pub(super) struct Modes<'a> {
    pub(super) held: &'a str,
    pub(super) wanted: &'a str,
}

impl Modes<'_> {
    /// The weakest place in [`MODES`] that keeps the others out, if that is known: what takes a weaker lock is not why they wait.
    fn least(self) -> Option<usize> {
        let place = |mode: &str| MODES.iter().position(|one| *one == mode);
        place(self.held).or(match self.wanted {
            "AccessShareLock" => Some(0),
            "RowShareLock" => Some(1),
            "RowExclusiveLock" => Some(3),
            _ => None,
        })
    }
}

const STRONG: [Strong; 20] = [
    Strong {
        begins: "ALTER TABLE",
        takes: ANY,
        has: "IF NOT EXISTS",
        unless: "",
        what: "its ALTER TABLE ... IF NOT EXISTS takes an ACCESS EXCLUSIVE lock until its transaction ends, also when there is nothing to add",
        text: "change the schema once, at the deployment; a program that must be sure looks into information_schema.columns first, and commits right after \
            an ALTER TABLE",
    },
    Strong {
        begins: "ALTER TABLE",
        takes: SHARE_ROW,
        has: "FOREIGN KEY",
        unless: "NOT VALID",
        what: "its ALTER TABLE adds a foreign key and checks all rows of the table while it keeps writers out",
        text: "add it NOT VALID, which is done at once, and check the rows afterwards with VALIDATE CONSTRAINT, during which others write",
    },
    Strong {
        begins: "ALTER TABLE",
        takes: ANY,
        has: "CHECK",
        unless: "NOT VALID",
        what: "its ALTER TABLE adds a constraint and checks all rows of the table while it keeps others out",
        text: "add it NOT VALID, which is done at once, and check the rows afterwards with VALIDATE CONSTRAINT, during which others read and write",
    },
    Strong {
        begins: "ALTER TABLE",
        takes: ANY,
        has: "DEFAULT",
        unless: "SET DEFAULT",
        what: "its ALTER TABLE adds a column with a DEFAULT, and keeps readers and writers out (ACCESS EXCLUSIVE) until its transaction ends: a \
            volatile default \
            (random(), gen_random_uuid()) rewrites the whole table first",
        text: "add the column without a default, set the default for new rows, and fill the old rows in portions; a constant default rewrites nothing",
    },
    Strong {
        begins: "ALTER TABLE",
        takes: ANY,
        has: "TYPE",
        unless: "ADD",
        what: "its ALTER TABLE changes the type of a column, which mostly rewrites the whole table and its indexes, and keeps readers and writers out \
            meanwhile \
            (ACCESS EXCLUSIVE)",
        text: "add a second column of the new type, fill it in portions (a trigger keeps it up to date), and rename both in one short transaction",
    },
    Strong {
        begins: "CREATE TABLE",
        takes: ANY,
        has: "PARTITION OF",
        unless: "",
        what: "its CREATE TABLE ... PARTITION OF locks the whole table, and reads all rows of the default partition, if there is one, before it goes on",
        text: "keep the default partition empty, or give it a CHECK constraint that excludes the new range (added NOT VALID, then validated): then it is not \
            read; or create the table alone and ATTACH it, which locks less; make partitions ahead, when little is written",
    },
    Strong {
        begins: "ALTER TABLE",
        takes: ANY,
        has: "ATTACH PARTITION",
        unless: "",
        what: "its ATTACH PARTITION reads the new partition and all rows of the default partition, if there is one, under a lock",
        text: "give the new partition, and the default partition, a validated CHECK constraint that fits before: then they are not read",
    },
    Strong {
        begins: "ANALYZE|VACUUM",
        takes: SHARE_UPDATE,
        has: "",
        unless: "FULL",
        what: "a VACUUM or ANALYZE keeps other ones of the same table, and schema changes, waiting until it ends",
        text: "leave both to autovacuum, or run them once after a whole import, from one session",
    },
    Strong {
        begins: "CREATE INDEX|CREATE UNIQUE INDEX",
        takes: SHARE,
        has: "",
        unless: "CONCURRENTLY",
        what: "its CREATE INDEX keeps all writers of the table out until the transaction ends",
        text: "build indexes with CREATE INDEX CONCURRENTLY, outside of a transaction block: it takes longer, and writers go on",
    },
    Strong {
        begins: "REINDEX",
        takes: ANY,
        has: "",
        unless: "CONCURRENTLY",
        what: "its REINDEX keeps all writers of the table out until it ends",
        text: "use REINDEX ... CONCURRENTLY (PostgreSQL 12 and later): writers go on",
    },
    Strong {
        begins: "VACUUM FULL|VACUUM (FULL|CLUSTER",
        takes: ANY,
        has: "",
        unless: "",
        what: "it writes the table anew, and no other session can read or write it meanwhile",
        text: "VACUUM without FULL makes the room usable again and blocks no session; to shrink a table under load use a tool that copies it and catches up \
            (pg_repack, pg_squeeze)",
    },
    Strong {
        begins: "TRUNCATE",
        takes: ANY,
        has: "",
        unless: "",
        what: "its TRUNCATE keeps readers and writers out until the transaction ends",
        text: "commit right after the TRUNCATE, or fill a second table and rename both in one short transaction",
    },
    Strong {
        begins: "ALTER TABLE",
        takes: ANY,
        has: "SET LOGGED",
        unless: "",
        what: "its ALTER TABLE ... SET LOGGED rewrites the whole table with its indexes, and writes all of it into the WAL, while no other session can \
            read or write it",
        text: "load into a table of its own that is unlogged, and copy the new rows from there (INSERT ... SELECT): the large table stays logged",
    },
    Strong {
        begins: "ALTER TABLE",
        takes: ANY,
        has: "SET UNLOGGED",
        unless: "",
        what: "its ALTER TABLE ... SET UNLOGGED rewrites the whole table with its indexes while no other session can read or write it",
        text: "load into a table of its own that is unlogged, and copy the new rows from there (INSERT ... SELECT): the large table stays logged",
    },
    Strong {
        begins: "ALTER TABLE|ALTER INDEX|ALTER MATERIALIZED VIEW",
        takes: ANY,
        has: "SET TABLESPACE",
        unless: "",
        what: "its SET TABLESPACE copies all files while no other session can read or write the table",
        text: "do it at a quiet hour, or with a tool that copies the table and catches up (pg_repack --tablespace); indexes by REINDEX (TABLESPACE ...) \
            CONCURRENTLY",
    },
    Strong {
        begins: "ALTER TABLE",
        takes: ANY,
        has: "SET ACCESS METHOD",
        unless: "",
        what: "its SET ACCESS METHOD rewrites the whole table with its indexes while no other session can read or write it",
        text: "make a second table with the new access method, fill it in portions, and rename both in one short transaction",
    },
    Strong {
        begins: "ALTER TABLE",
        takes: ANY,
        has: "",
        unless: "",
        what: "its ALTER TABLE keeps the others out until the transaction ends",
        text: "keep such transactions short: add constraints NOT VALID and validate them later, add columns without a default that must be computed, \
            change types through a second column; and give them a lock_timeout",
    },
    Strong {
        begins: "CREATE TRIGGER|CREATE CONSTRAINT TRIGGER|CREATE OR REPLACE TRIGGER",
        takes: SHARE_ROW,
        has: "",
        unless: "",
        what: "its CREATE TRIGGER keeps all writers of the table out until the transaction ends",
        text: "commit right after it",
    },
    Strong {
        begins: "DROP",
        takes: ANY,
        has: "",
        unless: "CONCURRENTLY",
        what: "its DROP keeps readers and writers out until the transaction ends",
        text: "commit right after it; drop indexes with DROP INDEX CONCURRENTLY",
    },
    Strong {
        begins: "LOCK",
        takes: ANY,
        has: "",
        unless: "",
        what: "it locks the table by a command of its own",
        text: "lock rows (SELECT ... FOR UPDATE) or a key (pg_advisory_xact_lock) instead of a table, or in the weakest mode that does",
    },
];

/// The words of a statement in capitals; a parenthesis ends one, and stays before its first word.
fn words(statement: &str) -> Vec<String> {
    let spaced = statement.replace('(', " (").replace("( ", "(").replace(')', " ");
    spaced.split_whitespace().map(|word| word.trim_matches(',').to_uppercase()).collect()
}

/// What a statement that holds a strong lock of a table does. A text may have several statements: one that takes such a lock keeps it to the end.
pub(super) fn of_table(query: &str, modes: Modes<'_>) -> Option<Deed> {
    let least = modes.least();
    // An earlier statement of the transaction has taken a stronger lock than this one takes.
    let is_strong_enough = |takes: &str| {
        least.is_none_or(|least| {
            MODES.iter().position(|one| *one == takes).is_some_and(|place| place <= least)
        })
    };
    for statement in query.split(';') {
        let words = words(statement);
        let begins = |begin: &str| {
            let wanted: Vec<&str> = begin.split(' ').collect();
            words.len() > wanted.len() && words.iter().zip(&wanted).all(|(word, wanted)| word == wanted)
        };
        let fits = |strong: &&Strong| {
            let all = words.join(" ");
            let has = |part: &str| format!(" {all} ").replace('(', "").contains(&format!(" {part} "));
            let is_weaker = !strong.unless.is_empty() && has(strong.unless);
            strong.begins.split('|').any(begins) && (strong.has.is_empty() || has(strong.has)) && !is_weaker
        };
        let found = STRONG.iter().find(fits).filter(|strong| is_strong_enough(strong.takes));
        if let Some(Strong { what, text, .. }) = found {
            return Some(Deed { what, text, commands: vec![] });
        }
    }
    None
}

/// Seconds from which on a transaction is long.
const LONG_S: f64 = 1.0;

/// The lock that a session holds, where it was taken by an earlier statement of its transaction: which ones take such a lock.
fn of_mode(held: &str) -> Option<Deed> {
    let what = match held {
        "AccessExclusiveLock" => {
            "its transaction holds an ACCESS EXCLUSIVE lock (ALTER TABLE, DROP, TRUNCATE, VACUUM FULL and LOCK TABLE take it), which keeps readers and \
                writers out until it ends"
        }
        "ExclusiveLock" => {
            "its transaction holds an EXCLUSIVE lock (REFRESH MATERIALIZED VIEW CONCURRENTLY and LOCK TABLE take it), which keeps all writers out until it ends"
        }
        "ShareRowExclusiveLock" => {
            "its transaction holds a SHARE ROW EXCLUSIVE lock (ALTER TABLE ... DISABLE or ENABLE TRIGGER, ADD FOREIGN KEY, CREATE TRIGGER and LOCK \
             TABLE take it), \
                which keeps all writers out until it ends"
        }
        "ShareLock" => {
            "its transaction holds a SHARE lock (CREATE INDEX without CONCURRENTLY and LOCK TABLE take it), which keeps all writers out until it ends"
        }
        "ShareUpdateExclusiveLock" => {
            "its transaction holds a SHARE UPDATE EXCLUSIVE lock (VACUUM, ANALYZE, CREATE INDEX CONCURRENTLY and VALIDATE CONSTRAINT take it), which keeps \
                schema changes and vacuums out until it ends"
        }
        _ => return None,
    };
    Some(Deed {
        what,
        text: "find the statement of its transaction that takes this lock: leave it out of transactions that do other work, or commit right after it; a \
            weaker lock, or locks of rows, often serve as well",
        commands: vec![],
    })
}

/// How what keeps others from inserting begins.
pub(super) const TO_INSERT: &str = "the others wait to insert until";

/// What keeps the others waiting, if `query` of the session at the root, the age of its transaction in seconds, the mode in which it holds the relation, or
/// `waiting` of one behind it shows that.
pub(super) fn of(
    query: &str,
    age_s: f64,
    (lock_type, modes): (&str, Modes<'_>),
    waiting: &str,
) -> Option<Deed> {
    let first = words(waiting).into_iter().next().unwrap_or_default();
    match lock_type {
        "relation" => of_table(query, modes).or_else(|| of_mode(modes.held)),
        // An INSERT waits for the end of a transaction only because of a key: its own, or one that it refers to.
        "transactionid" if first == "INSERT" => Some(Deed {
            what: "the others wait to insert until its transaction ends: it has inserted the same unique key, or changed, deleted or locked a row that they \
                refer to",
            text: "commit soon after such an INSERT; where rows of one key keep work apart, take pg_advisory_xact_lock instead, which leaves no dead rows, or \
                pg_try_advisory_xact_lock, which does not wait",
            commands: vec!["SELECT pg_try_advisory_xact_lock(hashtext('name of the work')); -- false: another session holds it".to_string()],
        }),
        "transactionid" | "tuple" if age_s >= LONG_S => Some(Deed {
            what: "its long transaction keeps the lock of each row that it has changed until it ends",
            text: "divide that work into many short transactions, of some hundred rows each, in the order of their keys; or do it when nothing else \
                writes these rows",
            commands: vec![],
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_with_strong_locks_are_known_in_any_place_of_a_text() {
        let what = |query: &str| of(query, 0.0, ("relation", Modes::default()), "").map(|deed| deed.what);
        for (query, part) in [
            ("BEGIN; create  index on a (b); ROLLBACK", "CREATE INDEX keeps"),
            ("create unique index x on a(b)", "CREATE INDEX keeps"),
            ("vacuum (full, verbose) a", "writes the table anew"),
            ("VACUUM FULL a", "writes the table anew"),
            ("alter table a add column b int", "ALTER TABLE keeps"),
            ("lock table a in share mode", "locks the table"),
            ("reindex table a", "REINDEX keeps"),
            ("drop index a", "DROP keeps"),
        ] {
            assert!(what(query).is_some_and(|what| what.contains(part)), "{query}: {:?}", what(query));
        }
        for query in [
            "create index concurrently x on a (b)",
            "CREATE UNIQUE INDEX CONCURRENTLY x ON a (b)",
            "reindex (concurrently) table a",
            "reindex table concurrently a",
            "drop index concurrently a",
            "select 'drop table a'",
            "",
        ] {
            assert_eq!(what(query), None, "{query}");
        }
    }

    #[test]
    fn an_insert_that_waits_for_a_transaction_waits_for_a_key() {
        let held = |mode| ("relation", Modes { held: mode, wanted: "RowExclusiveLock" });
        let insert = "insert into a values (1)";
        let trigger = of(insert, 0.0, held(SHARE_ROW), "").expect("held");
        assert!(trigger.what.contains("DISABLE or ENABLE TRIGGER"), "{trigger:?}");
        assert_eq!(of(insert, 0.0, held("RowExclusiveLock"), ""), None);
        let insert =
            of("select 1", 0.0, ("transactionid", Modes::default()), "insert into job_lock values ($1)")
                .expect("a key");
        assert!(insert.what.contains("same unique key") && insert.what.contains("refer to"), "{insert:?}");
        assert_eq!(of("select 1", 0.1, ("transactionid", Modes::default()), "update a set b = 1"), None);
        assert_eq!(of("select 1", 0.0, ("tuple", Modes::default()), "insert into a values (1)"), None);
        let long = of("select job()", 9.0, ("transactionid", Modes::default()), "update a set b = 1")
            .expect("a long transaction");
        assert!(long.what.contains("long transaction"));
    }

    #[test]
    fn a_weaker_lock_than_the_one_that_is_held_was_taken_by_another_statement() {
        let what = |query: &str, held: &str, wanted: &str| {
            of(query, 0.0, ("relation", Modes { held, wanted }), "").map_or("", |deed| deed.what)
        };
        let index = "create index page_slug on page(slug)";
        assert!(what(index, SHARE, "RowExclusiveLock").contains("CREATE INDEX keeps"));
        assert!(what(index, "", "RowExclusiveLock").contains("CREATE INDEX keeps"));
        // An ALTER TABLE before it keeps readers out, too.
        assert!(what(index, ANY, "AccessShareLock").contains("ACCESS EXCLUSIVE lock"));
        assert_eq!(what(index, "", "AccessShareLock"), "", "readers do not wait for it");
        assert!(what("analyze page", ANY, "AccessShareLock").contains("ACCESS EXCLUSIVE lock"));
        assert!(
            what("create trigger t after insert on a", SHARE_ROW, "RowExclusiveLock")
                .contains("TRIGGER keeps")
        );
        assert!(
            what("alter table a add column b int; create index on a (b)", ANY, "AccessShareLock")
                .contains("ALTER TABLE keeps")
        );
        assert_eq!(what("analyze page", "", "RowExclusiveLock"), "", "writers do not wait for it");
        assert!(what("analyze page", "", "ShareUpdateExclusiveLock").contains("ANALYZE keeps"));
    }
}
