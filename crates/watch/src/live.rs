//! A line for the terminal with the present activity of a node, from the board.

use crate::board::NodeState;
use record::number;
use record::watched::WAIT_CPU;

/// Kinds of waits named in a line, the most frequent first.
const WAITS_MAX: usize = 3;
/// The least lag of a standby that is shown.
const LAG_BYTES_MIN: u64 = 1024 * 1024;
/// The least age of a transaction that is shown.
const OLDEST_MIN_S: f64 = 2.0;

/// `1840 commits/s, 7 active (4 CPU, 2 LWLock, 1 IO), WAL 12.3 MB/s, 2 blocked, oldest 3.2 s, lag 1.2 MB`; negligible values are left out.
pub fn line(state: &NodeState) -> String {
    if state.t_us == 0 {
        return "not sampled yet".to_string();
    }
    if !state.is_up {
        return "away".to_string();
    }
    // Parallel workers and rollbacks count, too: these are not the transactions of a client.
    let mut words = vec![format!("{:.0} commits/s", state.transactions_per_s), active(state)];
    words.push(format!("WAL {}/s", number::bytes(state.wal_bytes_per_s)));
    if state.sessions_blocked > 0 {
        words.push(format!("{} blocked", state.sessions_blocked));
    }
    if state.oldest_transaction_s >= OLDEST_MIN_S {
        words.push(format!("oldest {:.1} s", state.oldest_transaction_s));
    }
    if state.replay_lag_bytes >= LAG_BYTES_MIN {
        words.push(format!("lag {}", number::bytes(state.replay_lag_bytes as f64)));
    }
    words.join(", ")
}

fn active(state: &NodeState) -> String {
    let mut waits: Vec<(&str, u64)> = state.waits.iter().map(|(kind, n)| (kind.as_str(), *n)).collect();
    // CPU first, then by number; names decide between equals so that the line does not flicker.
    waits.sort_by_key(|(kind, n)| (*kind != WAIT_CPU, std::cmp::Reverse(*n), *kind));
    let named: Vec<String> = waits.iter().take(WAITS_MAX).map(|(kind, n)| format!("{n} {kind}")).collect();
    match named.is_empty() {
        true => format!("{} active", state.sessions_active),
        false => format!("{} active ({})", state.sessions_active, named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_what_matters() {
        let mut state = NodeState {
            t_us: 1,
            is_up: true,
            transactions_per_s: 1840.4,
            sessions_active: 7,
            ..NodeState::default()
        };
        assert_eq!(line(&state), "1840 commits/s, 7 active, WAL 0 B/s");
        for (kind, n) in [("IO", 1), ("LWLock", 2), ("CPU", 1), ("Lock", 2), ("IPC", 1)] {
            state.waits.insert(kind.to_string(), n);
        }
        state.wal_bytes_per_s = 12_300_000.0;
        (state.sessions_blocked, state.oldest_transaction_s, state.replay_lag_bytes) = (2, 3.21, 1_200_000);
        assert_eq!(
            line(&state),
            "1840 commits/s, 7 active (1 CPU, 2 LWLock, 2 Lock), WAL 12.3 MB/s, 2 blocked, oldest 3.2 s, lag 1.20 MB"
        );
        assert_eq!(line(&NodeState { t_us: 1, ..NodeState::default() }), "away");
        assert_eq!(line(&NodeState::default()), "not sampled yet");
    }
}
