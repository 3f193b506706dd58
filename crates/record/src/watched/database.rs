//! Lines about a database node: its totals, its sessions, their waits and blockers, and its standbys.

line! {
    /// Totals of one node in one interval. Counters are differences; with a restart or a reset between two ticks they are absent.
    Server, "server" {
        /// The node.
        node: String,
        /// A round trip with an empty statement, made right after the question: what the way alone takes.
        rtt_us: Option<u64>,
        /// How long the question took that brought these values.
        asked_us: Option<u64>,
        /// Client sessions, ours excluded.
        sessions_total: Option<u64>,
        /// Of these, running a statement.
        sessions_active: Option<u64>,
        /// Of these, in a transaction and waiting for their client (aborted transactions included).
        sessions_idle_in_transaction: Option<u64>,
        /// Of these, waiting for a heavyweight lock.
        sessions_waiting_lock: Option<u64>,
        /// Seconds since the oldest transaction of a client began.
        oldest_transaction_s: Option<f64>,
        /// Transactions committed, over all databases.
        xact_commit: Option<u64>,
        /// Transactions rolled back.
        xact_rollback: Option<u64>,
        /// Rows inserted.
        tup_inserted: Option<u64>,
        /// Entries made in `pg_class` of the database that is watched: tables, indexes and TOAST tables, temporary ones included.
        relations_made: Option<u64>,
        /// Rows updated.
        tup_updated: Option<u64>,
        /// Rows deleted.
        tup_deleted: Option<u64>,
        /// Rows read by sequential scans, entries read by index scans.
        tup_returned: Option<u64>,
        /// Rows fetched by index scans.
        tup_fetched: Option<u64>,
        /// Blocks read into shared buffers.
        blks_read: Option<u64>,
        /// Blocks found there.
        blks_hit: Option<u64>,
        /// Bytes written to temporary files.
        temp_bytes: Option<u64>,
        /// Temporary files.
        temp_files: Option<u64>,
        /// Deadlocks.
        deadlocks: Option<u64>,
        /// Time that sessions spent running statements (14). A statement counts when it has ended.
        active_ms: Option<f64>,
        /// Time that they spent idle in a transaction, aborted ones included (14).
        idle_in_transaction_ms: Option<f64>,
        /// Sessions opened (14).
        sessions_opened: Option<u64>,
        /// Sessions over TLS, at this moment.
        sessions_tls: Option<u64>,
        /// How many sessions the server admits (`max_connections`).
        sessions_max: Option<u64>,
        /// Statements cancelled on a standby because they conflicted with replay.
        conflicts: Option<u64>,
        /// Blocks that sessions wrote themselves, to make room or to extend a file.
        backend_writes: Option<u64>,
        /// Times that the background writer stopped because it had written `bgwriter_lru_maxpages`.
        cleaner_stops: Option<u64>,
        /// Whether the replay of WAL is paused by command.
        replay_paused: Option<bool>,
        /// On a standby: WAL that it has received and not replayed.
        replay_behind_bytes: Option<u64>,
        /// On a standby: since the last transaction that it has replayed was committed at the primary.
        replay_age_s: Option<f64>,
        /// On a standby: processes that receive WAL from another server, 0 or 1.
        receivers: Option<u64>,
        /// The share of the queue of NOTIFY that is in use, 0 to 1.
        notify_queue_share: Option<f64>,
        /// WAL written, by the distance of the insert positions (primary) or replay positions (standby).
        wal_bytes: Option<u64>,
        /// WAL records (`pg_stat_wal`).
        wal_records: Option<u64>,
        /// Full page images.
        wal_fpi: Option<u64>,
        /// Times that WAL was written because its buffers were full.
        wal_buffers_full: Option<u64>,
        /// The WAL position, in bytes since 0/0.
        wal_position_bytes_total: Option<u64>,
        /// Checkpoints begun by the clock.
        checkpoints_timed: Option<u64>,
        /// Checkpoints requested: by WAL volume, by a command.
        checkpoints_requested: Option<u64>,
        /// Buffers written by checkpoints.
        checkpoint_buffers: Option<u64>,
        /// Time in the write phase of checkpoints that ended.
        checkpoint_write_ms: Option<f64>,
        /// Time in their sync phase.
        checkpoint_sync_ms: Option<f64>,
        /// fsync calls that backends had to make themselves.
        backend_fsync: Option<u64>,
        /// Whether it replays WAL of another.
        in_recovery: Option<bool>,
        /// Autovacuum workers at work.
        autovacuum_workers: Option<u64>,
        /// How many there may be.
        autovacuum_workers_max: Option<u64>,
        /// Transaction ids used since the oldest one that is not frozen, of the worst database.
        database_age_xids: Option<u64>,
        /// The same for multixacts.
        database_age_mxids: Option<u64>,
        /// `autovacuum_freeze_max_age`: where a vacuum against wraparound is forced.
        freeze_max_age_xids: Option<u64>,
        /// Prepared transactions.
        prepared_xacts: Option<u64>,
        /// Age of the oldest of them.
        prepared_age_s_max: Option<f64>,
        /// Failed attempts to archive a WAL file.
        archived_failed: Option<u64>,
        /// WAL behind the end of the last archived file; absent if nothing is archived.
        archive_behind_bytes: Option<u64>,
    }
}

line! {
    /// Sessions that shared one state at a tick. Waits of kind `Activity` and idle clients are left out.
    Wait, "wait" {
        /// The node.
        node: String,
        /// `client backend`, `autovacuum worker`, `walwriter`, ...
        backend: String,
        /// State of a client's session; empty for others.
        state: String,
        /// Kind of wait; [`WAIT_CPU`](super::WAIT_CPU) if it waits for nothing.
        wait_type: String,
        /// The event waited for.
        wait_event: String,
        /// The statement; absent if the server has none.
        query_id: Option<String>,
        /// How many.
        sessions: u64,
    }
}

line! {
    /// Samples of waits that `pg_wait_sampling` took in the interval, many a second: finer than [`Wait`].
    WaitProfile, "wait_profile" {
        /// The node.
        node: String,
        /// Kind of wait; [`WAIT_CPU`](super::WAIT_CPU) if it waited for nothing.
        wait_type: String,
        /// The event waited for.
        wait_event: String,
        /// The statement; absent if it has none.
        query_id: Option<String>,
        /// How many samples.
        samples: u64,
    }
}

line! {
    /// A session worth a name: the oldest transactions, those idle in one, holders of the xmin horizon, and blockers.
    Session, "session" {
        /// The node.
        node: String,
        /// Process id.
        pid: u64,
        /// Kind of backend.
        backend: String,
        /// `application_name`.
        application: String,
        /// Its role.
        user: String,
        /// Its database.
        database: String,
        /// `active`, `idle in transaction`, ...
        state: String,
        /// Kind of wait; empty if none.
        wait_type: String,
        /// The event waited for.
        wait_event: String,
        /// Since its transaction began.
        xact_age_s: Option<f64>,
        /// Since its state changed.
        state_age_s: Option<f64>,
        /// Transactions since its snapshot.
        xmin_age_xids: Option<u64>,
        /// When its process began, as the server writes it: with the process id it names one session for ever.
        backend_start: String,
        /// `query_id` of its last statement, from PostgreSQL 14 on.
        query_id: String,
        /// The first 200 characters of its last statement.
        query: String,
    }
}

line! {
    /// Who the active sessions of a tick belong to; the most numerous groups.
    Activity, "activity" {
        /// The node.
        node: String,
        /// `application_name`.
        application: String,
        /// Their role.
        user: String,
        /// Their database.
        database: String,
        /// The address they come from; `local` for a Unix socket.
        client: String,
        /// How many.
        sessions: u64,
    }
}

line! {
    /// A cache of the server for transaction status (`pg_stat_slru`) that moved in the interval.
    Slru, "slru" {
        /// The node.
        node: String,
        /// `Subtrans`, `MultiXactMember`, `Xact`, ... as the server writes it.
        name: String,
        /// Pages found in it.
        hits: Option<u64>,
        /// Pages read from disk.
        reads: Option<u64>,
        /// Pages written.
        writes: Option<u64>,
    }
}

line! {
    /// A session that waits for a lock that others hold, and the root of the tree it hangs in.
    Block, "block" {
        /// The node.
        node: String,
        /// The one that waits.
        pid: u64,
        /// Which kind of process it is, if no client's session.
        backend: String,
        /// Who it waits for; the first, if several.
        blocked_by: Option<u64>,
        /// The session at the root, which waits for no other.
        root: Option<u64>,
        /// The root's state: what to do depends on it.
        root_state: String,
        /// Steps from here to the root; 1 if it waits for the root itself.
        depth: Option<u64>,
        /// How long it has waited.
        wait_s: Option<f64>,
        /// `relation`, `tuple`, `transactionid`, ...
        lock_type: String,
        /// Whether it is an advisory lock that the engine takes itself; absent where the engine takes none.
        own: Option<bool>,
        /// The mode wanted.
        mode: String,
        /// The relation, by name or by oid if it belongs to another database.
        relation: String,
        /// The table whose row it waits for: while it waits for the transaction that changed a row, it holds the lock of that row. Empty if it waits for none.
        row_of: String,
        /// The strongest mode in which the root has this relation, if it keeps writers or schema changes out; empty for one behind another that waits.
        held_mode: String,
        /// Its statement, the first 200 characters.
        query: String,
        /// The statement of `blocked_by`.
        blocker_query: String,
    }
}

line! {
    /// What keeps old row versions alive.
    Horizon, "horizon" {
        /// The node.
        node: String,
        /// `session`, `slot`, `standby` or `prepared`.
        kind: String,
        /// Its name: application, slot, standby or global transaction id.
        name: String,
        /// Its process, if it has one.
        pid: Option<u64>,
        /// Transactions since.
        age_xids: Option<u64>,
        /// Seconds since, where it is known.
        age_s: Option<f64>,
    }
}

line! {
    /// A command that reports how far it is.
    Progress, "progress" {
        /// The node.
        node: String,
        /// Its process.
        pid: u64,
        /// `vacuum`, `analyze`, `create_index`, `copy`, `cluster` or `basebackup`.
        command: String,
        /// The relation, by name or by oid if it belongs to another database.
        relation: String,
        /// Where it is.
        phase: String,
        /// Done in this phase.
        done: Option<u64>,
        /// To do in this phase; absent if unknown.
        total: Option<u64>,
        /// Of `done` and `total`: `blocks`, `bytes`, `rows`.
        unit: String,
        /// Passes over the indexes that a vacuum has made.
        index_passes: Option<u64>,
        /// Whether it is a vacuum against wraparound.
        wraparound: Option<bool>,
        /// Whether autovacuum runs it.
        auto: Option<bool>,
        /// Time slept for the cost limit, since it began (18, with `track_cost_delay_timing`).
        delay_ms: Option<f64>,
    }
}

line! {
    /// One standby, from its sender's view.
    Replication, "replication" {
        /// The node that sends.
        node: String,
        /// `application_name` of the receiver.
        standby: String,
        /// Process id of the sender.
        pid: Option<u64>,
        /// `streaming`, `catchup`, ...
        state: String,
        /// `async`, `sync`, `quorum`, `potential`.
        sync_state: String,
        /// WAL not sent yet.
        sent_lag_bytes: Option<u64>,
        /// WAL not written there yet.
        write_lag_bytes: Option<u64>,
        /// WAL not flushed there yet.
        flush_lag_bytes: Option<u64>,
        /// WAL not replayed there yet.
        replay_lag_bytes: Option<u64>,
        /// Time until recent WAL was written there.
        write_lag_us: Option<u64>,
        /// Until it was flushed.
        flush_lag_us: Option<u64>,
        /// Until it was replayed.
        replay_lag_us: Option<u64>,
        /// Whether it reports its oldest snapshot here (`hot_standby_feedback`), itself or by its slot.
        feedback: Option<bool>,
        /// Transactions since that snapshot.
        feedback_xids: Option<u64>,
    }
}

line! {
    /// A replication slot.
    Slot, "slot" {
        /// The node.
        node: String,
        /// Its name.
        slot: String,
        /// `physical` or `logical`.
        kind: String,
        /// Whether it is in use.
        active: Option<bool>,
        /// WAL kept for it.
        retained_bytes: Option<u64>,
        /// Of a logical slot, the position up to which its consumer has confirmed what it received, in bytes of WAL since the cluster was made.
        confirmed_bytes: Option<u64>,
        /// `reserved`, `extended`, `unreserved`, `lost`.
        wal_status: String,
        /// WAL that may still be written before it is lost; absent without a limit.
        safe_wal_bytes: Option<u64>,
        /// Since when it is not in use (17).
        inactive_s: Option<f64>,
        /// Decoded changes spilled to disk in the interval.
        spill_bytes: Option<u64>,
        /// Transactions spilled in the interval.
        spill_txns: Option<u64>,
        /// Age of the catalog horizon it holds.
        catalog_xmin_age: Option<u64>,
    }
}

line! {
    /// A subscription.
    Subscription, "subscription" {
        /// The node that applies.
        node: String,
        /// Its name.
        subscription: String,
        /// The replication that it belongs to, unless it is PostgreSQL's own.
        replication: Option<String>,
        /// Its slot on the node that is followed; empty if it has none.
        slot: String,
        /// Errors of the apply worker in the interval (15).
        apply_errors: Option<u64>,
        /// Errors of the initial copy in the interval (15).
        sync_errors: Option<u64>,
        /// Whether it is enabled: an error may disable it.
        enabled: Option<bool>,
        /// Whether the engine keeps it for its own use; such subscriptions are always disabled.
        own: Option<bool>,
        /// Whether its worker runs.
        running: Option<bool>,
        /// That worker's process, of PostgreSQL's own replication.
        pid: Option<u64>,
        /// Received but not yet reported as applied.
        lag_bytes: Option<u64>,
    }
}

line! {
    /// The server's clock minus ours, by the midpoint method; the best of several round trips.
    ClockOffset, "clock" {
        /// The node.
        node: String,
        /// Server minus ours, in wall-clock time.
        offset_us: Option<i64>,
        /// It is not further off than this: half of the round trip.
        error_us: Option<u64>,
    }
}
