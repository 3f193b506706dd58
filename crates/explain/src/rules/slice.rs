//! LWL, and waits of other areas: sessions that wait for one thing inside of the server for a large share of the DB time. Each rule is a row of a table:
//! the wait events, what they mean, what excludes the neighbours, and what to do.

use super::costly::{busy, severity};
use super::form::wide;
use super::savepoints;
use crate::case::Case;
use crate::node_time;
use crate::rule::Need::Looked;
use crate::rule::{Answer, Claim, Need, Rule};
use crate::units;
use crate::waits::Who;
use record::escape::one_line;
use record::finding::{Level, NodeTime, Severity};
use record::watched::Fact;

const NEEDS: &[Need] = &[Looked("wait")];
/// Characters of a statement in a sentence.
const STATEMENT_CHARS: usize = 160;

/// A kind of wait.
struct Kind {
    /// The events of it.
    fits: fn(&str, &str) -> bool,
    /// The share of the DB time from which on it is a finding.
    share_min: f64,
    /// What sessions wait for; the end of the claim.
    what: &'static str,
    /// What the event excludes.
    not: &'static str,
    /// What else the recording shows of it.
    evidence: fn(&Case, &str) -> Vec<String>,
    /// By the share of the DB time, if nothing else decides.
    severity: fn(&Case, &str, f64) -> Severity,
    /// What to do.
    text: &'static str,
    commands: &'static [&'static str],
}

fn by_share(_: &Case, _: &str, share: f64) -> Severity {
    severity(share)
}

/// A VACUUM that is slow on purpose does harm where dead rows of its table are many. Which table that is, its progress shows.
fn by_dead_rows(case: &Case, node: &str, share: f64) -> Severity {
    const DEAD_MIN: f64 = 10_000.0;
    let is_at_work = |table: &str| {
        case.at("progress", node).any(|progress| {
            let lines = progress.lines;
            lines.word("command") == "vacuum"
                && lines.flag("auto") != Some(true)
                && lines.word("relation") == table
        })
    };
    let is_full = case.at("table", node).any(|table| {
        let rows = |field: &str| table.lines.last(field).unwrap_or(0.0);
        is_at_work(table.lines.word("relation"))
            && rows("dead_rows") >= DEAD_MIN
            && rows("dead_rows") >= rows("live_rows")
    });
    if is_full { severity(share) } else { Severity::Low }
}

fn no_more(_: &Case, _: &str) -> Vec<String> {
    vec![]
}

/// Counts a second of a field of the node's line, as a sentence.
fn per_second(case: &Case, node: &str, field: &str, words: &str) -> Vec<String> {
    let rate = case.one("server", node).and_then(|server| server.rate(field)).filter(|rate| *rate > 0.0);
    rate.map(|rate| format!("{} {words} a second", units::short(rate))).into_iter().collect()
}

/// Pages that a transaction status cache reads a second, by a part of its name: the names differ between releases.
fn cache_reads(case: &Case, node: &str, name: &str) -> Vec<String> {
    let caches = case.at("slru", node).filter(|cache| cache.name.to_ascii_lowercase().contains(name));
    let words = caches.filter_map(|cache| {
        let (reads, hits) = (cache.lines.rate("reads")?, cache.lines.rate("hits").unwrap_or(0.0));
        (reads + hits > 0.0).then(|| {
            format!(
                "pg_stat_slru {}: {} pages a second found, {} read from disk",
                cache.name,
                units::short(hits),
                units::short(reads)
            )
        })
    });
    words.collect()
}

const EXTEND: Kind = Kind {
    fits: |kind, event| (kind, event) == ("Lock", "extend") || kind == "IO" && event == "DataFileExtend",
    share_min: 0.15,
    what: "until a table's file is made longer",
    not: "rows: those waits have other names (Lock:tuple, Lock:transactionid)",
    evidence: |case, node| per_second(case, node, "tup_inserted", "rows are inserted"),
    severity: by_share,
    text: "let fewer sessions insert, with more rows each (COPY); spread the rows over partitions; PostgreSQL 16 adds several blocks at once",
    commands: &[
        "SELECT relation::regclass, count(*) FROM pg_locks WHERE locktype = 'extend' GROUP BY 1 ORDER BY 2 DESC;",
    ],
};

const VIRTUAL_XID: Kind = Kind {
    fits: |kind, event| (kind, event) == ("Lock", "virtualxid"),
    share_min: 0.1,
    what: "until all older transactions have ended, as CREATE INDEX CONCURRENTLY and its relatives do",
    not: "a lock of a table: the statement has it already",
    evidence: |case, node| {
        let oldest = case.one("server", node).and_then(|server| server.max("oldest_transaction_s"));
        oldest
            .map(|age| format!("the oldest transaction was {} old", units::seconds(age)))
            .into_iter()
            .collect()
    },
    severity: by_share,
    text: "end the oldest transactions, or start the command when there are none: a lock_timeout would end it and leave an invalid index behind",
    commands: &[
        "SELECT pid, backend_start, state, now() - xact_start AS age, left(query, 60) AS query FROM pg_stat_activity \
         WHERE xact_start IS NOT NULL ORDER BY xact_start LIMIT 5;",
    ],
};

/// Sessions that are idle in a transaction: one of them may have an open cursor.
fn with_open_transactions(case: &Case, node: &str) -> Vec<String> {
    let mut idle: Vec<_> = case
        .at("session", node)
        .filter(|session| session.lines.word("state").starts_with("idle in transaction"))
        .filter_map(|session| Some((session.lines.max("xact_age_s")?, session)))
        .collect();
    idle.sort_by(|left, right| right.0.total_cmp(&left.0));
    let words = idle.iter().take(3).map(|(age, session)| {
        format!(
            "session {} is idle in a transaction of {}, perhaps with an open cursor: {}",
            session.name,
            units::seconds(*age),
            one_line(session.lines.word("query"), STATEMENT_CHARS)
        )
    });
    words.collect()
}

const BUFFER_PIN: Kind = Kind {
    fits: |kind, _| kind == "BufferPin",
    share_min: 0.1,
    what: "for a cleanup lock: until no session looks at a page any more, which an open cursor does as long as it stands on it",
    not: "a lock of the table or of a row: the statement has what it needs of these",
    evidence: with_open_transactions,
    severity: by_share,
    text: "close the cursor, or end its transaction: a program that reads in portions should read them by key and commit in between; VACUUM without FREEZE and \
        autovacuum skip such a page",
    commands: &[
        "SELECT pid, backend_start, state, now() - xact_start AS age, left(query, 60) AS query FROM pg_stat_activity \
         WHERE state LIKE 'idle in transaction%' ORDER BY xact_start LIMIT 5; -- then, if its work may be lost: SELECT pg_terminate_backend(pid);",
    ],
};

const LOCK_MANAGER: Kind = Kind {
    fits: |kind, event| kind == "LWLock" && matches!(event, "LockManager" | "lock_manager"),
    share_min: 0.1,
    what: "for the lock manager: statements lock more relations than the 16 places of the fast path",
    not: "each other's locks: those waits are of kind Lock",
    evidence: |case, node| {
        let most = case
            .at("table", node)
            .filter_map(|table| Some((table.lines.last("indexes")?, table)))
            .max_by(|left, right| left.0.total_cmp(&right.0));
        most.filter(|(count, _)| *count >= 5.0)
            .map(|(count, table)| {
                format!(
                    "{} has {count:.0} indexes, and each is locked by every statement",
                    table.lines.word("relation")
                )
            })
            .into_iter()
            .collect()
    },
    severity: by_share,
    text: "lock less per statement: a condition on the partition key that prunes while planning, prepared statements (locks of a generic plan are \
        taken for what \
           it runs), fewer partitions and indexes; from PostgreSQL 18 on the places grow with max_locks_per_transaction",
    commands: &[
        "SELECT fastpath, count(*), count(DISTINCT relation) FROM pg_locks WHERE locktype = 'relation' GROUP BY 1;",
        "ALTER SYSTEM SET max_locks_per_transaction = 256; -- PostgreSQL 18; then restart: all sessions end",
    ],
};

const SUBTRANSACTIONS: Kind = Kind {
    fits: |kind, event| {
        kind == "LWLock" && event.starts_with("Subtrans") || kind == "IO" && event == "SLRURead"
    },
    share_min: 0.1,
    what: "for the cache of subtransactions",
    not: "shared_buffers: these pages have a cache of their own",
    evidence: |case, node| cache_reads(case, node, "subtrans"),
    severity: by_share,
    text: "use fewer than 64 savepoints or exception blocks in a transaction, and end long transactions: while one is open, each of the others must look up \
           parents; from PostgreSQL 17 on the cache has a size",
    commands: &[
        "SELECT pid, backend_start, now() - xact_start AS age, state, left(query, 60) AS query FROM pg_stat_activity WHERE xact_start IS NOT NULL \
            ORDER BY xact_start LIMIT 5;",
        "ALTER SYSTEM SET subtransaction_buffers = '8MB'; -- PostgreSQL 17; then restart: all sessions end",
    ],
};

const MULTIXACTS: Kind = Kind {
    fits: |kind, event| kind == "LWLock" && event.starts_with("MultiXact"),
    share_min: 0.1,
    what: "for the caches of multixacts: several sessions lock the same rows together",
    not: "the row itself: those waits are of kind Lock",
    evidence: |case, node| cache_reads(case, node, "multixact"),
    severity: by_share,
    text: "let fewer transactions refer to the same row at a time (foreign keys lock the row they refer to; SELECT FOR SHARE does so, too); \
           from PostgreSQL 17 on the caches have sizes",
    commands: &[
        "ALTER SYSTEM SET multixact_member_buffers = '8MB'; -- PostgreSQL 17; then restart: all sessions end",
    ],
};

const PREDICATES: Kind = Kind {
    fits: |kind, event| {
        kind == "LWLock"
            && (event.contains("Predicate")
                || event.starts_with("Serializable")
                || event.starts_with("SerialS"))
    },
    share_min: 0.1,
    what: "for the lists of predicate locks, which only SERIALIZABLE transactions need",
    not: "row locks: those waits are of kind Lock",
    evidence: |case, node| per_second(case, node, "xact_rollback", "transactions are rolled back"),
    severity: by_share,
    text: "use REPEATABLE READ where it is enough, declare readers READ ONLY (long ones DEFERRABLE), and keep transactions short; the command shows \
        who uses it",
    commands: &[
        "SELECT a.application_name, a.usename, count(DISTINCT l.pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.mode = 'SIReadLock' \
            GROUP BY 1, 2;",
    ],
};

const WAL_INSERT: Kind = Kind {
    fits: |kind, event| kind == "LWLock" && matches!(event, "WALInsert" | "WALBufMapping"),
    share_min: 0.15,
    what: "to copy their changes into the WAL buffers",
    not: "the disk of the WAL: those waits are LWLock:WALWrite, IO:WALWrite and IO:WALSync",
    evidence: |case, node| per_second(case, node, "wal_fpi", "full page images are written"),
    severity: by_share,
    text: "write less WAL: fewer indexes, rarer checkpoints (full page images), unlogged tables for data that may be lost; larger wal_buffers if \
        WALBufMapping is named",
    commands: &[
        "SELECT wal_records, wal_fpi, wal_bytes, wal_buffers_full FROM pg_stat_wal;",
        "ALTER SYSTEM SET max_wal_size = '16GB'; SELECT pg_reload_conf(); -- fewer full page images",
    ],
};

const SNAPSHOTS: Kind = Kind {
    fits: |kind, event| {
        kind == "LWLock" && matches!(event, "ProcArray" | "XidGen" | "XactSLRU" | "XactBuffer")
    },
    share_min: 0.1,
    what: "for the list of running transactions and their outcomes",
    not: "locks of rows or tables: those waits are of kind Lock",
    evidence: |case, node| {
        let all = case.one("server", node).and_then(|server| server.mean("sessions_total"));
        all.map(|sessions| {
            format!(
                "{} sessions are connected; each commit and snapshot passes this list",
                units::short(sessions)
            )
        })
        .into_iter()
        .collect()
    },
    severity: by_share,
    text: "connect fewer sessions (a pool), and put more rows into a transaction",
    commands: &[
        "SELECT application_name, state, count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' GROUP BY 1, 2 ORDER BY 3 DESC;",
    ],
};

const WRITING: Kind = Kind {
    fits: |kind, event| {
        kind == "IO"
            && matches!(event, "DataFileWrite" | "DataFileFlush" | "DataFileSync" | "DataFileImmediateSync")
    },
    share_min: 0.1,
    what: "while they write or sync blocks of tables themselves",
    not: "the WAL: those waits have other names",
    evidence: |case, node| {
        let mut words = per_second(case, node, "backend_writes", "blocks are written by sessions");
        words.extend(per_second(
            case,
            node,
            "cleaner_stops",
            "times the background writer stopped at bgwriter_lru_maxpages",
        ));
        words
    },
    severity: by_share,
    text: "let the background writer work ahead, and give the sessions more shared_buffers; if most of it is CREATE INDEX, COPY or VACUUM, this is their work",
    commands: &[
        "ALTER SYSTEM SET bgwriter_lru_maxpages = 1000; ALTER SYSTEM SET bgwriter_delay = '50ms'; SELECT pg_reload_conf();",
    ],
};

const CLIENT_WRITE: Kind = Kind {
    fits: |kind, event| (kind, event) == ("Client", "ClientWrite"),
    share_min: 0.2,
    what: "until their client takes the rows they send",
    not: "the server: it has the rows",
    evidence: no_more,
    severity: by_share,
    text: "read fewer rows or columns, read them faster (the client stops while it works on a row), or use a faster network; the command shows which clients",
    commands: &[
        "SELECT application_name, client_addr, left(query, 60) AS query, count(*) FROM pg_stat_activity WHERE wait_event = 'ClientWrite' GROUP BY 1, \
            2, 3 ORDER BY 4 DESC;",
    ],
};

const VACUUM_DELAY: Kind = Kind {
    fits: |kind, event| (kind, event) == ("Timeout", "VacuumDelay"),
    share_min: 0.2,
    what: "in a VACUUM by command that sleeps for its cost limit",
    not: "autovacuum: these are sessions of clients",
    evidence: no_more,
    severity: by_dead_rows,
    text: "run it without the delay while the host has capacity",
    commands: &["SET vacuum_cost_delay = 0; -- in the session that runs VACUUM"],
};

/// Extensions that query other servers, whose waits have no name of their own before PostgreSQL 17.
const QUERYING: [&str; 2] = ["postgres_fdw", "dblink"];

const EMPTYING: Kind = Kind {
    fits: |kind, event| (kind, event) == ("IO", "DataFileTruncate"),
    share_min: 0.1,
    what: "while files of tables are emptied or shortened: by TRUNCATE, or at each COMMIT for every temporary table with ON COMMIT DELETE ROWS that the \
        transaction could have used",
    not: "written blocks: those waits have other names",
    evidence: |case, node| per_second(case, node, "xact_commit", "transactions are committed"),
    severity: by_share,
    text: "create temporary tables only in the sessions, and when, they are needed (at COMMIT the server truncates all of a session that may have been \
        touched); \
        keep rows that belong to a transaction in an array or a CTE; DELETE instead of TRUNCATE for a few rows",
    commands: &[
        "SELECT relname, relpersistence FROM pg_class WHERE relpersistence = 't' AND relkind = 'r';",
        "SELECT calls, mean_exec_time AS ms, left(query, 80) AS query FROM pg_stat_statements WHERE query ~* 'temp|truncate' ORDER BY total_exec_time DESC \
            LIMIT 5;",
    ],
};

const FOREIGN: Kind = Kind {
    fits: |kind, event| {
        kind == "Extension"
            && (event.starts_with("PostgresFdw") || event.starts_with("Dblink") || event == "Extension")
    },
    share_min: 0.2,
    what: "until a foreign server sends rows",
    not: "this server's own disks and locks",
    evidence: no_more,
    severity: by_share,
    text: "look at Remote SQL in the plan: a condition that is not in it is checked here, after all rows were fetched. Use functions and operators that both \
           servers have (IMMUTABLE built-in ones, or those of an extension named in the server's option extensions), fetch more rows at a time, and let \
           ANALYZE know the foreign tables",
    commands: &[
        "SELECT srvname, srvoptions FROM pg_foreign_server;",
        "SELECT ftrelid::regclass, srvname FROM pg_foreign_table JOIN pg_foreign_server s ON s.oid = ftserver; \
            -- then: EXPLAIN (VERBOSE) of the statement",
    ],
};

/// dblink alone: no foreign table has rows to send.
const LINKED: Kind = Kind {
    what: "until a connection that dblink opened, in a function or trigger, answers",
    text: "look for dblink in the functions that these statements and the triggers of their tables call: keep one connection for a session (dblink_connect \
           with a name, opened once), or write the rows in the transaction itself; a log that must outlive a rollback can go through a queue that another \
           process reads",
    commands: &[
        "SELECT oid::regprocedure FROM pg_proc WHERE prosrc ~* 'dblink' AND pronamespace <> 'pg_catalog'::regnamespace;",
        "SELECT tgrelid::regclass, tgname, tgfoid::regprocedure FROM pg_trigger WHERE NOT tgisinternal;",
    ],
    ..FOREIGN
};

macro_rules! rules {
    ($(($judge:ident, $id:literal, $title:literal, $limits:literal, $kind:ident, $link:literal),)*) => {
        pub(super) const RULES: &[Rule] = &[$(Rule {
            id: $id,
            title: $title,
            needs: NEEDS,
            limits: $limits,
            judge: $judge,
            links: &[$link],
        },)*];
        $(fn $judge(case: &Case) -> Answer {
            judge(case, &$kind)
        })*
    };
}

rules! {
    (extend, "LCK-05", "sessions queue to make a table's file longer", "15 % of the session time in Lock:extend or IO:DataFileExtend (ours)", EXTEND,
        "https://www.postgresql.org/docs/current/monitoring-stats.html#WAIT-EVENT-LOCK-TABLE"),
    (virtual_xid, "LCK-06", "a command waits for all older transactions", "10 % of the session time in Lock:virtualxid (ours)", VIRTUAL_XID,
        "https://www.postgresql.org/docs/current/sql-createindex.html#SQL-CREATEINDEX-CONCURRENTLY"),
    (buffer_pin, "LCK-08", "a vacuum waits for a page at which an open cursor stands", "10 % of the session time in BufferPin (ours)", BUFFER_PIN,
        "https://www.postgresql.org/docs/current/sql-vacuum.html"),
    (lock_manager, "LWL-01", "statements lock more relations than the fast path has places for", "10 % of the session time in LWLock:LockManager \
        (ours)", LOCK_MANAGER,
        "https://www.postgresql.org/docs/current/runtime-config-locks.html"),
    (subtransactions, "LWL-02", "subtransactions overflow their cache", "10 % of the session time in LWLock:Subtrans* or IO:SLRURead (ours)", SUBTRANSACTIONS,
        "https://www.postgresql.org/docs/current/subxacts.html"),
    (multixacts, "LWL-03", "multixacts overflow their caches", "10 % of the session time in LWLock:MultiXact* (ours)", MULTIXACTS,
        "https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-ROWS"),
    (predicates, "LWL-04", "predicate locks of serializable transactions are contended", "10 % of the session time in their lightweight locks \
        (ours)", PREDICATES,
        "https://www.postgresql.org/docs/current/transaction-iso.html#XACT-SERIALIZABLE"),
    (wal_insert, "LWL-05", "sessions queue to insert into the WAL", "15 % of the session time in LWLock:WALInsert or WALBufMapping (ours)", WAL_INSERT,
        "https://www.postgresql.org/docs/current/wal-internals.html"),
    (snapshots, "LWL-06", "the list of running transactions is contended", "10 % of the session time in LWLock:ProcArray, XidGen or XactSLRU (ours)", SNAPSHOTS,
        "https://www.postgresql.org/docs/current/runtime-config-connection.html#GUC-MAX-CONNECTIONS"),
    (writing, "IO-08", "sessions write blocks of tables themselves", "10 % of the session time in IO:DataFileWrite and its relatives (ours)", WRITING,
        "https://www.postgresql.org/docs/current/runtime-config-resource.html#RUNTIME-CONFIG-RESOURCE-BACKGROUND-WRITER"),
    (emptying, "IO-11", "sessions empty files of tables", "10 % of the session time in IO:DataFileTruncate (ours)", EMPTYING,
        "https://www.postgresql.org/docs/current/sql-createtable.html"),
    (client_write, "NET-06", "clients are slow to take their results", "20 % of the session time in Client:ClientWrite (ours)", CLIENT_WRITE,
        "https://www.postgresql.org/docs/current/monitoring-stats.html#WAIT-EVENT-CLIENT-TABLE"),
    (foreign, "EXT-01", "sessions wait for a foreign server", "20 % of the session time in Extension:PostgresFdw*, or before PostgreSQL 17 in \
        Extension:Extension \
        with postgres_fdw or dblink in the database (ours)", FOREIGN,
        "https://www.postgresql.org/docs/current/postgres-fdw.html#POSTGRES-FDW-REMOTE-QUERY-OPTIMIZATION"),
    (vacuum_delay, "VAC-10", "a vacuum by command sleeps for its cost limit", "20 % of the session time in Timeout:VacuumDelay (ours)", VACUUM_DELAY,
        "https://www.postgresql.org/docs/current/runtime-config-resource.html#RUNTIME-CONFIG-RESOURCE-VACUUM-COST"),
}

/// Whether waits of an extension may be those for another server.
fn queries_others(case: &Case, node: &str) -> bool {
    let is_named = |kind: &str, event: &str| {
        kind == "Extension" && (event.starts_with("PostgresFdw") || event.starts_with("Dblink"))
    };
    let has_one = |fact: &Fact| fact.node == node && QUERYING.contains(&fact.name.as_str());
    case.facts("extension").any(has_one)
        || node_time::share_waiting(case, node, is_named).is_some_and(|share| share > 0.0)
}

/// Sessions that were seen in such a wait, in all samples together.
const SEEN_MIN: f64 = 5.0;

/// Whether only dblink connects to other servers.
fn is_linked(case: &Case, node: &str) -> bool {
    let has = |name: &str| case.facts("extension").any(|fact| fact.node == node && fact.name == name);
    has("dblink") && !has("postgres_fdw")
}

/// What is sent, where it is large values that a statement with all columns takes along.
fn large_values(case: &Case, time: &NodeTime, kind: &Kind) -> Option<String> {
    let (query_id, share) =
        case.waits(&time.node)?.worst_statement(kind.fits).filter(|_| kind.what == CLIENT_WRITE.what)?;
    let statement = time.statements.iter().find(|one| one.query_id == query_id)?;
    let (relation, each) = wide::of_all_columns(case, time, statement)?;
    Some(format!(
        "; {} of them run SELECT * on {relation}, whose rows have {} each with their large values (TOAST)",
        units::percent(share),
        units::bytes(each)
    ))
}

/// The session that makes the others wait, where one does, as the end of a claim.
fn whose(case: &Case, node: &str, kind: &Kind) -> String {
    let oldest = savepoints::oldest(case, node).filter(|_| kind.what == SUBTRANSACTIONS.what);
    oldest.map_or(String::new(), |session| format!("; {}", savepoints::in_words(&session)))
}

fn judge(case: &Case, kind: &Kind) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let kind = if kind.what == FOREIGN.what && is_linked(case, &time.node) { &LINKED } else { kind };
        let Some(waits) = case.waits(&time.node) else { continue };
        let share = node_time::share_waiting(case, &time.node, kind.fits).unwrap_or(0.0);
        if share < kind.share_min
            || (kind.fits)("Extension", "Extension") && !queries_others(case, &time.node)
        {
            continue;
        }
        let events = waits.of(Who::Client).filter(|(event, _)| (kind.fits)(&event.0, &event.1));
        let mut events: Vec<(String, f64)> =
            events.map(|(event, series)| (crate::waits::name(event), series.sum())).collect();
        // A share of a handful of samples is an accident.
        if events.iter().map(|(_, sum)| sum).sum::<f64>() < SEEN_MIN {
            continue;
        }
        events.sort_by(|left, right| right.1.total_cmp(&left.1));
        let names: Vec<&str> = events.iter().take(3).map(|(name, _)| name.as_str()).collect();
        let large = large_values(case, time, kind);
        let text = match large {
            Some(_) => format!("{}; {}", wide::NAME_COLUMNS, kind.text),
            None => kind.text.to_string(),
        };
        let mut claim = Claim::new(
            (kind.severity)(case, &time.node, share),
            Level::DiscriminatingCounter,
            format!(
                "{}: sessions wait {} of their time {}{}",
                time.node,
                units::percent(share),
                kind.what,
                large.unwrap_or_else(|| whose(case, &time.node, kind))
            ),
        )
        .on_node(&time.node)
        .during(waits.windows(Who::Client, kind.fits))
        .number("share", share)
        .number("sessions", share * time.active)
        .because(format!("seen in {}", names.join(", ")))
        .not(kind.not);
        for sentence in (kind.evidence)(case, &time.node) {
            claim = claim.because(sentence);
        }
        claims.push(
            claim
                .with(waits.worst_statement(kind.fits), |claim, (query_id, share)| {
                    let text = case.query(query_id).unwrap_or(query_id);
                    claim.because(format!(
                        "{} of them run: {}",
                        units::percent(share),
                        one_line(text, STATEMENT_CHARS)
                    ))
                })
                .remedy(text, kind.commands),
        );
    }
    Answer::of(claims, || "what the sessions waited for".to_string())
}
