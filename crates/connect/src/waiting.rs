//! Whether commits really wait for standbys after `synchronous_standby_names` has changed.
//!
//! A session that shows the new value proves nothing. A flag in shared memory decides whether commits wait; the checkpointer sets it when it
//! reloads the configuration, which may be delayed. The walsenders decide for which standbys commits wait, and they also
//! reload the configuration later. No view shows that flag, so this module tests it: while a name that no standby has is set, a waiting commit is the
//! proof.

use std::time::{Duration, Instant};

use crate::attempt::ConnectError;
use crate::conninfo::ConnSpec;
use crate::control;

/// A name for `synchronous_standby_names` that no standby has: a commit that waits for it never ends.
pub const NO_STANDBY: &str = "pgfathom_nobody";
/// Whether every walsender knows that commits wait for no standby; each walsender publishes its own `sync_priority`.
pub const NONE_IS_SYNCHRONOUS: &str =
    "select not exists (select from pg_catalog.pg_stat_replication where sync_priority > 0)";
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// The smallest transaction whose commit waits: a WAL record without effect.
const COMMIT: &str = "select pg_catalog.pg_logical_emit_message(true, 'pgfathom', '')";

/// Why it is unknown whether commits wait.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    /// No session.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server refused a question.
    #[error("cannot find out whether commits wait for standbys")]
    Sql(#[from] postgres::Error),
    /// Commits never waited.
    #[error("commits did not begin to wait for standbys within {} s", .0.as_secs())]
    Late(Duration),
}

/// Returns when a commit has been seen waiting for a standby. Call it on the node that takes writes, while a name that no standby has is set.
///
/// # Errors
/// When two sessions are not available, or no commit waits within `limit`.
pub fn until_commits_wait(spec: &ConnSpec, limit: Duration) -> Result<(), WaitError> {
    let begin = Instant::now();
    let mut prober = control::connect(spec)?;
    let mut watcher = control::connect(spec)?;
    prober.batch_execute("set synchronous_commit = on")?;
    let pid: i32 = prober.query_one("select pg_catalog.pg_backend_pid()", &[])?.get(0);
    let waits =
        "select exists (select from pg_catalog.pg_stat_activity where pid = $1 and wait_event = 'SyncRep')";
    while begin.elapsed() < limit {
        let has_waited = std::thread::scope(|scope| {
            let commit = scope.spawn(|| prober.query(COMMIT, &[]).map(drop));
            let mut has_waited = Ok(false);
            while !commit.is_finished() && matches!(has_waited, Ok(false)) {
                has_waited = watcher.query_one(waits, &[&pid]).map(|row| row.get(0));
            }
            // In either case no session is left waiting: the wait is cancelled, not the commit.
            if !commit.is_finished() {
                let cancelled = watcher.query("select pg_catalog.pg_cancel_backend($1)", &[&pid]);
                has_waited = cancelled.and(has_waited);
            }
            let done = commit.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            done.and(has_waited)
        })?;
        if has_waited {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
    Err(WaitError::Late(limit))
}
