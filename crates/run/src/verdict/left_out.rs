//! What the figures of a run leave out: starts that were skipped or never came, and sessions that hardly did anything.

use crate::drive::Account;
use crate::engine::NANOS_PER_SECOND;
use record::number::{self, counted};

/// The target did not keep up if so many transactions, and more than this share of those that were scheduled, had not started at the end ...
const BEHIND_MIN: u64 = 10;
const BEHIND_SHARE_MIN: f64 = 0.01;
/// ... or the arrivals of so many seconds.
const BEHIND_S_MIN: f64 = 1.0;
/// A session of a closed loop is starved with less than this share of the mean ...
const STARVED_SHARE_MAX: f64 = 0.1;
/// ... if that is enough for chance not to explain it.
const STARVED_MEAN_MIN: f64 = 50.0;

/// What a reader of the figures should know.
pub(super) fn notes(account: &Account) -> Vec<String> {
    unstarted(account).into_iter().chain(beyond_limit(account)).chain(starved(account)).collect()
}

/// Starts that the end came before. A few that were due at the last instant are no fault of the target.
fn unstarted(account: &Account) -> Option<String> {
    let Account { unstarted, scheduled, .. } = *account;
    let share = unstarted as f64 / scheduled.max(1) as f64;
    let seconds = account.end.saturating_sub(account.begin) as f64 / NANOS_PER_SECOND as f64;
    let is_behind = unstarted >= BEHIND_MIN && share > BEHIND_SHARE_MIN
        || unstarted > 1 && share * seconds > BEHIND_S_MIN;
    let why = match account.aborted {
        _ if unstarted == 0 => return None,
        0 if is_behind => "the target did not keep up: ",
        0 if share <= BEHIND_SHARE_MIN => return None,
        0 => "",
        _ => "aborted sessions start no more transactions: ",
    };
    Some(format!(
        "{why}{} of {} had not started at the end",
        number::count(unstarted),
        counted(scheduled, "scheduled transaction")
    ))
}

/// Sessions of a closed loop that hardly did anything while others worked: the load was that of fewer sessions.
fn starved(account: &Account) -> Option<String> {
    // With a schedule the first free session takes the next transaction, so some do nothing because nothing is left for them.
    let is_closed_loop = account.posted.measured.lag.is_empty();
    let sessions = account.sessions.len() as u64;
    let all: u64 = account.sessions.iter().map(|session| session.transactions).sum();
    let mean = all as f64 / sessions.max(1) as f64;
    let is_few = |transactions: u64| (transactions as f64) < mean * STARVED_SHARE_MAX;
    let few = account.sessions.iter().map(|session| session.transactions).filter(|count| is_few(*count));
    let (count, most) = few.fold((0, 0), |(count, most), one| (count + 1, u64::max(most, one)));
    let is_noted = is_closed_loop && account.aborted == 0 && mean >= STARVED_MEAN_MIN && count > 0;
    is_noted.then(|| {
        let sessions = counted(sessions, "session");
        format!(
            "{count} of {sessions} did at most {}, while the average session did {}: they waited nearly all of the time, for a connection of a \
             pooler or for a lock, so the load was that of {} sessions",
            counted(most, "transaction"),
            number::short(mean),
            account.sessions.len() as u64 - count
        )
    })
}

/// What `--latency-limit` left out, and what took longer.
fn beyond_limit(account: &Account) -> Vec<String> {
    let measured = &account.posted.measured;
    let late: u64 = measured.types.iter().map(|tally| tally.late).sum();
    let mut notes = Vec::new();
    if account.skipped > 0 {
        notes.push(format!(
            "{} of {} were skipped, because they would have started later than --latency-limit ({}): no latency contains them",
            number::count(account.skipped),
            counted(account.scheduled, "scheduled transaction"),
            number::percent_of(account.skipped as f64, account.scheduled as f64)
        ));
    }
    if late > 0 {
        notes.push(format!(
            "{} of {} took longer than --latency-limit ({})",
            number::count(late),
            counted(measured.transactions(), "transaction"),
            number::percent_of(late as f64, measured.transactions() as f64)
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::super::judge;
    use super::super::tests::account;
    use super::*;

    #[test]
    fn a_few_arrivals_at_the_last_instant_are_no_fault_of_the_target() {
        let notes = |unstarted, scheduled, seconds| {
            let account = Account { unstarted, scheduled, end: seconds * NANOS_PER_SECOND, ..account() };
            judge(&account, None).notes
        };
        assert_eq!(notes(1, 10_000, 10), [""; 0]);
        assert_eq!(notes(50, 10_000, 10), [""; 0], "50 ms of arrivals");
        assert_eq!(notes(1, 5, 5), ["1 of 5 scheduled transactions had not started at the end"]);
        assert!(notes(2, 80, 4)[0].starts_with("2 of 80"), "100 ms of arrivals");
        assert!(notes(200, 10_000, 10)[0].starts_with("the target did not keep up: 200 of 10,000"));
        assert!(
            notes(10_000, 3_600_000, 3_600)[0].starts_with("the target did not keep up"),
            "10 s of arrivals"
        );
    }

    #[test]
    fn sessions_that_others_starved_are_counted() {
        let of = |transactions: &[u64]| {
            let session = |transactions: &u64| crate::client::SessionRecord {
                transactions: *transactions,
                ..Default::default()
            };
            Account { sessions: transactions.iter().map(session).collect(), ..account() }
        };
        let pool = of(&[400, 500, 1, 0, 1]);
        assert_eq!(
            judge(&pool, None).notes,
            [
                "3 of 5 sessions did at most 1 transaction, while the average session did 180: they waited nearly all of the time, for a connection of a \
              pooler or for a lock, so the load was that of 2 sessions"
            ]
        );
        assert_eq!(judge(&of(&[400, 500, 60]), None).notes, [""; 0], "slower is not starved");
        assert_eq!(judge(&of(&[9, 1, 0]), None).notes, [""; 0], "too few to judge");
        let mut scheduled = of(&[400, 500, 1]);
        scheduled.posted.measured.lag.record_us(1);
        assert_eq!(judge(&scheduled, None).notes, [""; 0], "there was nothing to do for it");
    }

    #[test]
    fn what_the_latency_limit_left_out_is_noted() {
        let mut account = account();
        (account.skipped, account.posted.measured.types[0].late) = (2_500, 30);
        assert_eq!(
            judge(&account, None).notes,
            [
                "2,500 of 10,000 scheduled transactions were skipped, because they would have started later than --latency-limit (25 %): no latency \
                 contains them",
                "30 of 10,000 transactions took longer than --latency-limit (0.30 %)",
            ]
        );
    }
}
