//! Statements that still run when no session waits for them. A server does not check the connection while it executes a statement: unless
//! the client cancels it, the statement continues and keeps its locks.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use connect::hot::CancelToken;

use crate::engine::link::Link;

/// How long the end of the run waits for them altogether: after the second request to stop it takes at most two seconds.
const PATIENCE: Duration = Duration::from_millis(1_200);
/// How long one request is given to take effect before it is made again: it may have come before its statement had begun.
const ROUND: Duration = Duration::from_millis(300);
/// Between two looks at the connections.
const PAUSE: Duration = Duration::from_millis(2);
/// Requests under way at the same time.
const CANCELLERS_MAX: usize = 16;

/// What became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Leftover {
    /// Sessions whose statement the server was requested to end.
    pub(super) cancelled: u64,
    /// Those of them that had not ended when it was no longer waited for.
    pub(super) still_at_work: u64,
}

/// Requests that the server ends what these sessions execute, and then the sessions.
pub(super) fn cancel(links: Vec<Link>) -> Leftover {
    let cancelled = links.len() as u64;
    let deadline = Instant::now() + PATIENCE;
    let mut waiting = links;
    // It reads this once it has given up the statement, and its end of the connection closes.
    waiting.iter_mut().for_each(Link::terminate);
    while !waiting.is_empty() && Instant::now() < deadline {
        let round = (Instant::now() + ROUND).min(deadline);
        request_cancels(waiting.iter().filter_map(Link::cancel_token).cloned().collect(), round);
        loop {
            waiting.retain_mut(|link| !link.has_ended());
            if waiting.is_empty() || Instant::now() >= round {
                break;
            }
            std::thread::sleep(PAUSE);
        }
    }
    Leftover { cancelled, still_at_work: waiting.len() as u64 }
}

/// Sends the requests, on threads of their own: one that hangs delays no other.
fn request_cancels(tokens: Vec<CancelToken>, deadline: Instant) {
    let cancellers = tokens.len().min(CANCELLERS_MAX);
    let tokens = Arc::new(Mutex::new(tokens));
    let (done, all_done) = mpsc::channel::<()>();
    for _ in 0..cancellers {
        let (tokens, done) = (Arc::clone(&tokens), done.clone());
        let canceller = move || {
            loop {
                let token = tokens.lock().unwrap_or_else(PoisonError::into_inner).pop();
                let (Some(token), Some(left)) = (token, deadline.checked_duration_since(Instant::now()))
                else {
                    break;
                };
                // A server that takes no request is one that does not obey: the connection shows it.
                let _ = token.within(left).cancel();
            }
            drop(done);
        };
        // Without a thread there are fewer of them.
        let _ = std::thread::Builder::new().name("canceller".into()).spawn(canceller);
    }
    drop(done);
    // No message comes: the channel closes when the last of them is through.
    let _ = all_done.recv_timeout(deadline.saturating_duration_since(Instant::now()));
}
