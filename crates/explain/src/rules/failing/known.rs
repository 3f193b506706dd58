//! Errors that a setting, a missing object or another program explains.

/// SQLSTATE of data that is not as it was written.
pub(super) const DAMAGED: &str = "XX001";
/// SQLSTATE of a statement that would need a transaction id when there are none left, among others.
pub(super) const OUT_OF_IDS: &str = "54000";
/// SQLSTATE of a row that fits no partition.
pub(super) const NO_PARTITION: &str = "23514";
/// SQLSTATE of waiting for a lock for too long.
pub(super) const LOCK_TIMEOUT: &str = "55P03";
/// SQLSTATE of a sequence that has given out its largest value.
pub(super) const AT_ITS_END: &str = "2200H";
/// SQLSTATE of a statement that is cancelled.
pub(super) const CANCELLED: &str = "57014";
/// SQLSTATE of sessions that an administrator, or a server that stops, ends.
pub(super) const SHUTDOWN: &str = "57P01";
/// Words of an UPDATE or DELETE that is refused, because a publication cannot describe the row.
pub(super) const WITHOUT_IDENTITY: &str = "does not have a replica identity";

/// What a value of more than 1 GB does (`MaxAllocSize` in memutils.h), whatever the words are.
const TOO_LARGE: &str = "a value or row would be larger than 1 GB, which the server cannot make: the statement fails when it gets there, after all of its \
    work, however often it is repeated";
const IN_PARTS: &str = "return rows in the place of one value: without json_agg, array_agg or string_agg over all of them the client joins them itself (COPY \
    (SELECT row_to_json(d) FROM ... d) TO STDOUT writes one document in a line), or divide the work by a key; no setting raises this limit";

/// SQLSTATEs of several kinds of error: the words decide.
const AMBIGUOUS: [&str; 12] = [
    "54000", "23514", "0A000", "53200", "53100", "55P03", "28000", "22P02", "28P01", "55000", "XX000",
    CANCELLED,
];

/// A kind of error, by its SQLSTATE, or where the log has none (`log_line_prefix` without %e) by words of its message.
pub(super) struct Known {
    pub(super) sqlstate: &'static str,
    /// `^` stands before what begins it.
    pub(super) words: &'static [&'static str],
    /// What happens.
    pub(super) what: &'static str,
    /// The setting that decides, if it is one.
    pub(super) setting: &'static str,
    pub(super) text: &'static str,
}

pub(super) static KNOWN: [Known; 36] = [
    Known {
        sqlstate: "53300",
        words: &["standby connections", "max_wal_senders"],
        what: "standbys, receivers of WAL and backups are refused, because all walsenders are in use: a standby that is refused falls behind, and has nothing \
            to take \
            over with",
        setting: "max_wal_senders",
        text: "do not stop what is refused: raise max_wal_senders, or end walsenders that nothing needs any more (an old backup or receiver: \
            pg_stat_replication \
            shows them); slots without a reader are counted apart (max_replication_slots)",
    },
    Known {
        sqlstate: NO_PARTITION,
        words: &["no partition of relation"],
        what: "rows are refused, because no partition of their table is for them: the one of this time, or of this key, was not created",
        setting: "",
        text: "create the missing partition, with the bounds that follow those of the last one, and let the job that creates them run ahead (pg_partman, \
            cron); a \
            DEFAULT partition takes what fits no other one, but its rows must be moved before a partition for them can be created",
    },
    Known {
        sqlstate: "42P05",
        words: &["prepared statement", "already exists"],
        what: "statements fail, because a prepared statement of that name is in the session already: a pooler gives one server process to several clients \
            (transaction pooling), whose drivers name their statements alike",
        setting: "",
        text: "let the pooler follow prepared statements (pgbouncer 1.21 or later: max_prepared_statements), or let the driver prepare none (or without names)",
    },
    Known {
        sqlstate: "25P03",
        words: &["idle-in-transaction timeout"],
        what: "sessions are terminated, because they paused in a transaction for longer than idle_in_transaction_session_timeout allows: their work is lost",
        setting: "idle_in_transaction_session_timeout",
        text: "end the transaction before the program waits for something else (another service, a user), or give that program's role a longer limit",
    },
    Known {
        sqlstate: "57P05",
        words: &["idle-session timeout"],
        what: "idle sessions are terminated by idle_session_timeout, and connect anew",
        setting: "idle_session_timeout",
        text: "let the pool close idle connections itself before that time, or give its role a longer limit",
    },
    Known {
        sqlstate: "25P04",
        words: &["due to transaction timeout"],
        what: "sessions are terminated, because a transaction took longer than transaction_timeout allows: its work is lost",
        setting: "transaction_timeout",
        text: "divide the work into shorter transactions, or give that program's role a longer limit",
    },
    Known {
        sqlstate: LOCK_TIMEOUT,
        words: &["lock timeout"],
        what: "statements give up, because they waited for a lock for longer than lock_timeout allows",
        setting: "lock_timeout",
        text: "look for what holds the lock for so long (pg_blocking_pids), or wait longer",
    },
    Known {
        sqlstate: "53400",
        words: &["temp_file_limit"],
        what: "statements fail, because their temporary files are larger than temp_file_limit allows: what they did is lost, and starts again if it is \
            repeated",
        setting: "temp_file_limit",
        text: "raise the limit for that role, or let the statement need less: more work_mem, an index in the wanted order, fewer rows",
    },
    Known {
        sqlstate: "25006",
        words: &["in a read-only transaction"],
        what: "writes are sent to a session that may only read: a standby, or default_transaction_read_only",
        setting: "default_transaction_read_only",
        text: "connect writers with target_session_attrs=read-write",
    },
    Known {
        sqlstate: AT_ITS_END,
        words: &["reached maximum value of sequence"],
        what: "inserts fail, because a sequence has given out its largest value: none of them can come through again",
        setting: "",
        text: "give the column and the sequence a larger type (bigint): ALTER TABLE ... ALTER COLUMN ... TYPE bigint writes the table anew and locks \
            everybody out while it does, so a new column that is filled beforehand is the way for a large table; until then negative numbers of an \
            ascending sequence are free (ALTER SEQUENCE ... MINVALUE -2147483648 RESTART -2147483648), if nothing minds them",
    },
    Known {
        sqlstate: DAMAGED,
        words: &["invalid page in block"],
        what: "blocks of a relation are damaged: its statements fail, and what was in them may be lost",
        setting: "",
        text: "stop changes of that relation, and copy the data directory before anything else; take the rows from a standby or a backup; an index is made \
            anew \
            (REINDEX); then look for the reason: disk, memory, file system (the kernel's log), fsync = off",
    },
    Known {
        sqlstate: OUT_OF_IDS,
        words: &["not accepting commands"],
        what: "every statement that writes is refused, because a database is about to run out of transaction ids: reads go on, and only vacuum ends it",
        setting: "",
        text: "end what holds the horizon back first (sessions, prepared transactions, slots, standbys: VAC-05), then vacuum the oldest tables of every \
            database (vacuumdb --all --freeze); the server accepts writes again when the oldest database is younger, which autovacuum may have to do for \
            template0",
    },
    Known {
        sqlstate: "42P01",
        words: &["^relation ", "does not exist"],
        what: "statements name a table that is not there, or not in the search_path: a migration is missing, or a program is older or newer than the schema",
        setting: "search_path",
        text: "create what is missing, or correct the program",
    },
    Known {
        sqlstate: "42703",
        words: &["^column ", "does not exist"],
        what: "statements name a column that is not there: a migration is missing, or a program is older or newer than the schema",
        setting: "",
        text: "create what is missing, or correct the program",
    },
    Known {
        sqlstate: "42501",
        words: &["permission denied"],
        what: "statements are refused, because their role lacks a right",
        setting: "",
        text: "grant the right, or let the program use the role that has it",
    },
    Known {
        sqlstate: "28P01",
        words: &["password authentication failed", "has an expired password"],
        what: "connections are refused, because the password of their role has expired (VALID UNTIL): those that are open go on, so that it shows with the \
            next deployment or restart of a pool",
        setting: "",
        text: "give the role a new password with a later date, or the same one without any (VALID UNTIL 'infinity'); the programs see only that the \
            authentication failed, the server's log has the reason",
    },
    Known {
        sqlstate: "28P01",
        words: &["password authentication failed"],
        what: "connections are refused for a wrong password: each of them takes a process and the time of a handshake",
        setting: "",
        text: "give the program the present password; one that is repeated without a pause needs a pause",
    },
    Known {
        sqlstate: CANCELLED,
        words: &["canceling statement due to user request"],
        what: "statements are cancelled by request: pg_cancel_backend of another session, or their own client, which does not wait any longer (a timeout of \
            the driver, a user who goes away): what they did is lost, and starts again if it is repeated",
        setting: "",
        text: "find who cancels them (scripts against long statements, the query timeout of the driver or pool); let it spare that role, or make the \
            statements \
            cheaper. A timeout that is meant belongs into the server (statement_timeout of the role), where it has a name of its own in the log",
    },
    Known {
        sqlstate: "55000",
        words: &[WITHOUT_IDENTITY],
        what: "changes of rows are refused, because a publication has their table, which has no primary key and no other replica identity",
        setting: "",
        text: "give the table a primary key, or a unique index of NOT NULL columns as its replica identity (REPLICA IDENTITY FULL costs the whole old row in \
            the \
            WAL), or take it out of the publication: FOR ALL TABLES has every new table as well",
    },
    Known {
        sqlstate: SHUTDOWN,
        words: &["terminating connection due to administrator command"],
        what: "sessions are terminated by pg_terminate_backend (or a signal), and the server goes on: a person or a watchdog ends them, and their work is lost",
        setting: "",
        text: "find who calls pg_terminate_backend (scripts against long or idle sessions, proxies, orchestration); let it spare that role, or give its \
            statements less to do; statement_timeout cancels the statement and keeps the session",
    },
    Known {
        sqlstate: "53200",
        words: &["out of memory", "Cannot enlarge string buffer"],
        what: TOO_LARGE,
        setting: "",
        text: IN_PARTS,
    },
    Known {
        sqlstate: "54000",
        words: &["string buffer exceeds maximum allowed length"],
        what: TOO_LARGE,
        setting: "",
        text: IN_PARTS,
    },
    Known {
        sqlstate: "XX000",
        words: &["invalid memory alloc request size"],
        what: TOO_LARGE,
        setting: "",
        text: IN_PARTS,
    },
    Known {
        sqlstate: "54000",
        words: &["array size exceeds the maximum allowed"],
        what: TOO_LARGE,
        setting: "",
        text: IN_PARTS,
    },
    Known {
        sqlstate: "53200",
        words: &["out of memory", "Failed on request of size"],
        what: "statements fail, because the system gives the server no more memory: a limit of its service or container, or vm.overcommit_memory = 2",
        setting: "",
        text: "let fewer sessions work at once, or each need less (work_mem, hash_mem_multiplier, maintenance_work_mem), or give the host more memory; the log \
            has the memory of the session that failed, by its parts, before the error",
    },
    Known {
        sqlstate: "53200",
        words: &["out of shared memory"],
        what: "statements fail, because the shared lock table is full: they lock more tables, partitions and indexes than max_locks_per_transaction \
            provides for",
        setting: "max_locks_per_transaction",
        text: "raise max_locks_per_transaction (a restart; the lock table has room for that many locks for each of max_connections), or touch fewer \
            partitions in one \
            transaction",
    },
    Known {
        sqlstate: "53100",
        words: &["pgsql_tmp", "No space left"],
        what: "statements fail, because the volume of temporary files is full: sorts and hash tables that do not fit into work_mem are written there",
        setting: "temp_tablespaces",
        text: "give that volume more room, or let temporary files go elsewhere (temp_tablespaces; empty, they go where the database is); let fewer such \
            statements run at once, and give them more work_mem; temp_file_limit keeps one session from filling it for all",
    },
    Known {
        sqlstate: "53100",
        words: &["could not resize shared memory segment"],
        what: "statements fail, because /dev/shm is too small for parallel workers: a container has 64 MB of it by default",
        setting: "dynamic_shared_memory_type",
        text: "give the container more shared memory (--shm-size), or let fewer workers share less (max_parallel_workers_per_gather, work_mem)",
    },
    Known {
        sqlstate: "53100",
        words: &["No space left"],
        what: "writes fail, because a volume is full for the server although the volumes that were watched have space: its inodes are used up, a reserve for \
            root is reached, or it is another volume",
        setting: "",
        text: "look at the volume of the file that the message names: df -h and df -i on the path below the data directory (pg_tblspc holds links)",
    },
    Known {
        sqlstate: "XX000",
        words: &["Disk quota exceeded"],
        what: "writes fail, because a quota of the file system is reached: df shows free space, and the server may not use it",
        setting: "",
        text: "raise the quota of the server's user, group or project (repquota, xfs_quota, zfs get quota), or move what is large to another volume",
    },
    Known {
        sqlstate: "26000",
        words: &["prepared statement", "does not exist"],
        what: "statements fail, because what they prepared is not in the session: a pooler gave them another server process, or something discarded it",
        setting: "",
        text: "let the pooler follow prepared statements (pgbouncer 1.21 or later: max_prepared_statements), or let the driver prepare none",
    },
    Known {
        sqlstate: "25P02",
        words: &["current transaction is aborted"],
        what: "programs go on in a transaction that has failed: every further statement of it is refused",
        setting: "",
        text: "roll back after an error, or put what may fail behind a SAVEPOINT; the first error of the transaction is the one to mend",
    },
    Known {
        sqlstate: LOCK_TIMEOUT,
        words: &["could not obtain lock"],
        what: "statements with NOWAIT are refused, because the row or table is locked",
        setting: "",
        text: "take other rows (SKIP LOCKED), pause before the next attempt, or look for what holds the lock for so long",
    },
    Known {
        sqlstate: "28000",
        words: &["no pg_hba.conf entry"],
        what: "connections are refused, because no line of pg_hba.conf fits their host, user, database or encryption",
        setting: "",
        text: "add the line, or stop the program: each attempt takes a process",
    },
    Known {
        sqlstate: "22P02",
        words: &["invalid input syntax"],
        what: "statements fail, because a value does not fit its type",
        setting: "",
        text: "find the program that sends such values, and let it check them",
    },
    Known {
        sqlstate: "0A000",
        words: &["cached plan must not change result type"],
        what: "prepared statements fail, because their table has been changed since they were prepared",
        setting: "",
        text: "prepare them again after a schema change (a pool: DISCARD ALL, or new connections)",
    },
];

impl Known {
    /// Whether an error is of this kind, by its SQLSTATE, and by its message and detail.
    pub(super) fn fits(&self, state: &str, message: &str) -> bool {
        let is_of_state = state.is_empty() || state == self.sqlstate;
        is_of_state
            && (state == self.sqlstate && !AMBIGUOUS.contains(&state)
                || self.words.iter().all(|part| match part.strip_prefix('^') {
                    Some(begin) => message.starts_with(begin),
                    None => message.contains(part),
                }))
    }
}
