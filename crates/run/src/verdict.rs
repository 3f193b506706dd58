//! The verdict: whether the figures of a run are valid. If the client was the limit, they describe the client and not the target.

use std::time::Duration;

use crate::control::{Cause, Outage};
use crate::drive::Account;
use crate::engine::{NANOS_PER_MICRO, NANOS_PER_SECOND, Nanos};
use crate::recovery::BACK_SHARE;
use record::number::counted;

mod left_out;

/// A worker thread that computed for more than this share of the time in which it could have a CPU had no room left: the target could
/// have done more.
pub(crate) const WORKER_BUSY_SHARE_MAX: f64 = 0.95;
/// ... provided that it got a good part of a CPU at all. A thread that its neighbours starve never idles either, but then the machine
/// is full, which is noted and is not the client's doing.
pub(crate) const WORKER_CPU_SHARE_MIN: f64 = 0.5;
/// A run shorter than this does not judge its client: the kernel's accounts of a thread are not that fine.
const CLIENT_JUDGED_FROM: Duration = Duration::from_millis(100);
/// Starts later than this at the 99th percentile, although a session was free, are not the schedule that was requested.
pub(crate) const LAG_US_P99_MAX: u64 = 5_000;
/// A worker that waited for a CPU longer than this share of the time shares the host with another busy program; noted. Less than that is
/// what any client and server on one full machine do to each other.
pub(crate) const WORKER_WAIT_SHARE_NOTED: f64 = 0.50;
/// Fewer transactions than this make poor percentiles; noted.
pub const TRANSACTIONS_FOR_P99_MIN: u64 = 10_000;

/// Reasons against a run, and what else a careful reader should know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opinion {
    /// No transaction succeeded in the measured time: there are no numbers, and that is the answer, whatever the client did.
    pub has_nothing: bool,
    /// Why the numbers prove nothing about the target. Empty: they are valid.
    pub invalid: Vec<String>,
    /// What should be known although the numbers stand.
    pub notes: Vec<String>,
}

/// The verdict on a run that was to last `duration`.
pub fn judge(account: &Account, duration: Option<Duration>) -> Opinion {
    let mut opinion = Opinion::default();
    let measured = &account.posted.measured;
    if measured.transactions() == 0 {
        opinion.has_nothing = true;
        opinion.invalid.push(nothing_succeeded(account, duration));
    }
    judge_client(account, &mut opinion);
    if account.is_interrupted {
        let seconds = account.measured().as_secs_f64();
        let wanted = duration.map_or(String::new(), |wanted| format!(" of {:.0} s", wanted.as_secs_f64()));
        opinion.notes.push(format!("interrupted after {seconds:.1} s{wanted}"));
    }
    opinion.notes.extend(account.outages.iter().map(|one| outage(account, one)));
    note_what_is_left(account, &mut opinion);
    let failed = measured.failed().saturating_sub(account.cut_off);
    if failed > 0 {
        opinion.notes.push(format!("{} failed", counted(failed, "transaction")));
    }
    if let Some(why) = account.abort.as_ref().filter(|_| account.aborted > 0) {
        let all = account.sessions.len() as u64;
        let rest = if account.aborted >= all { "" } else { "; the rest of the run was driven by fewer" };
        let were = if account.aborted == 1 { "was" } else { "were" };
        let of = format!("{} of {}", account.aborted, counted(all, "session"));
        opinion.notes.push(format!("{of} {were} aborted: {}{rest}", first_line(why)));
    }
    if account.weak_commits > 0 {
        opinion.notes.push(format!(
            "{} acknowledged although the wait for a standby was cancelled, and counted: a failover may lose these commits",
            were(account.weak_commits, "commit")
        ));
    }
    let overflow: u64 =
        measured.types.iter().map(|tally| tally.response.overflow() + tally.service.overflow()).sum();
    if overflow > 0 {
        opinion.notes.push(format!(
            "{} beyond the histogram's hour, in mean and maximum only",
            if overflow == 1 { "1 latency is".to_owned() } else { format!("{overflow} latencies are") }
        ));
    }
    if (1..TRANSACTIONS_FOR_P99_MIN).contains(&measured.transactions()) {
        opinion.notes.push(format!(
            "only {}: the high percentiles are inexact",
            counted(measured.transactions(), "transaction")
        ));
    }
    opinion
}

/// Whether this client was the limit: then the figures are its own, not the target's.
fn judge_client(account: &Account, opinion: &mut Opinion) {
    let percent = |share: f64| (share * 100.0).round();
    let (busy, waited) = (account.worker_cpu_share_max, account.worker_wait_share_max.unwrap_or(0.0));
    let is_long_enough = account.measured() >= CLIENT_JUDGED_FROM;
    if is_long_enough && busy >= WORKER_CPU_SHARE_MIN && busy > WORKER_BUSY_SHARE_MAX * (1.0 - waited) {
        opinion.invalid.push(format!(
            "this client was the limit: a worker thread was busy {} % of the time and waited for a CPU {} %; use more workers (-j) \
             or another host",
            percent(busy),
            percent(waited)
        ));
    }
    let lag = account.posted.measured.lag.quantile_us(0.99);
    if lag > LAG_US_P99_MAX {
        opinion.invalid.push(format!(
            "this client started late although sessions were free: lag p99 {:.1} ms, limit {} ms",
            lag as f64 / 1e3,
            LAG_US_P99_MAX / 1_000
        ));
    }
    if let Some(wait) = account.worker_wait_share_max.filter(|wait| *wait > WORKER_WAIT_SHARE_NOTED) {
        opinion.notes.push(format!(
            "a worker thread waited for a CPU {} % of the time: client and server share the host, and that wait is part of every latency",
            percent(wait)
        ));
    }
}

/// Transactions that did not begin, or did not end, within the time.
fn note_what_is_left(account: &Account, opinion: &mut Opinion) {
    opinion.notes.extend(left_out::notes(account));
    if account.unfinished > 0 {
        opinion.notes.push(format!(
            "{} dropped before the outcome was known{}",
            were(account.unfinished, "transaction"),
            left_behind(account)
        ));
    }
    if account.cut_off > 0 {
        let were = were(account.cut_off, "transaction");
        opinion.notes.push(format!("{were} not tried again because the time was over"));
    }
}

/// That no transaction succeeded, and what there was instead.
fn nothing_succeeded(account: &Account, duration: Option<Duration>) -> String {
    let failed = account.posted.measured.failed() + account.posted.warmup.failed();
    let measured = &account.posted.measured;
    if measured.started == 0 && account.posted.warmup.started > 0 && duration.is_none() {
        return format!(
            "nothing was left to measure: the warm-up used up the transactions of every session (-t), {} in all; raise -t, or shorten --warmup",
            account.posted.warmup.started
        );
    }
    // Not "committed": a script can commit, and fail behind that.
    let mut text = String::from("no transaction succeeded in the measured time");
    let often = account.posted.errors.iter().max_by_key(|error| error.count);
    match (failed, often) {
        (0, _) if account.unfinished > 0 => {
            text.push_str(&format!(": {} had no outcome when it was over", account.unfinished));
        }
        (0, _) if account.skipped > 0 => {
            text.push_str(&format!(": {} were skipped as too late", account.skipped))
        }
        (0, _) => {}
        (_, None) => text.push_str(&format!(": {failed} failed")),
        (_, Some(error)) => text.push_str(&format!(
            ": {failed} failed, most of them with {}: {}",
            error.sqlstate,
            first_line(&error.first_message)
        )),
    }
    if failed > 0 {
        text.push_str(
            "; the database contains what single statements committed before the transaction failed",
        );
    }
    text
}

/// What the server still does for transactions that were dropped, if that is known.
fn left_behind(account: &Account) -> String {
    match (account.cancelled, account.still_at_work) {
        (0, _) => String::new(),
        (cancelled, 0) => {
            let (statements, were) =
                if cancelled == 1 { ("statement", "was") } else { ("statements", "were") };
            format!("; {cancelled} {statements} of theirs {were} cancelled in the server")
        }
        (cancelled, left) => format!(
            "; a cancel request was sent for {}, and {left} of them {} still running (see pg_stat_activity)",
            counted(cancelled, "statement"),
            if left == 1 { "is" } else { "are" }
        ),
    }
}

/// The same with the verb.
fn were(count: u64, one: &str) -> String {
    format!("{} {}", counted(count, one), if count == 1 { "was" } else { "were" })
}

/// The first line of an error: a script's has the line and a caret below, which stand in `run.json`.
fn first_line(message: &str) -> &str {
    message.lines().next().unwrap_or_default().trim_end()
}

/// One outage, and what became of the throughput.
fn outage(account: &Account, outage: &Outage) -> String {
    let seconds = |time: Nanos| time as f64 / NANOS_PER_SECOND as f64;
    let from = seconds(outage.from.saturating_sub(account.begin));
    let what = match outage.cause {
        Cause::Disconnected => "outage",
        Cause::Stalled => "stall",
        Cause::Failing => "nothing but failures",
        Cause::Partial => "failures beside commits",
    };
    let why = match outage.cause {
        Cause::Failing | Cause::Partial => format!(
            "{} failed, the first with {}",
            counted(outage.failed, "transaction"),
            first_line(&outage.message)
        ),
        Cause::Disconnected | Cause::Stalled => first_line(&outage.message).to_owned(),
    };
    let mut text = match outage.to {
        Some(to) => {
            let length = seconds(to - outage.from);
            match outage.cause {
                // By whole seconds.
                Cause::Partial => format!("{what} for {length:.0} s at {from:.0} s: {why}"),
                Cause::Failing => format!("{what} for {length:.2} s at {from:.1} s: {why}"),
                Cause::Disconnected | Cause::Stalled => {
                    format!("{what} of {length:.2} s at {from:.1} s: {why}")
                }
            }
        }
        None => format!("{what} from {from:.1} s to the end: {why}"),
    };
    if let Some(server) = account.server_after(outage) {
        text.push_str(&format!("; sessions went on at {server}"));
    }
    match (outage.tps_before, outage.back) {
        (Some(before), Some(back)) => text.push_str(&format!(
            "; back to {:.0} % of {before:.0} transactions/s after {:.1} s",
            BACK_SHARE * 100.0,
            seconds(back - outage.from)
        )),
        (Some(before), None) if outage.to.is_some() => text.push_str(&format!(
            "; not back to {:.0} % of {before:.0} transactions/s by the end",
            BACK_SHARE * 100.0
        )),
        _ => {}
    }
    text
}

/// CPU time of this client per committed transaction of the measured window, in microseconds.
pub fn client_cpu_us_per_transaction(account: &Account) -> Option<f64> {
    let transactions = account.posted.measured.transactions();
    (transactions > 0).then(|| account.client_cpu as f64 / NANOS_PER_MICRO as f64 / transactions as f64)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::engine::connector::Move;
    use crate::engine::link::Traffic;
    use crate::tally::{Posted, Shape};

    pub(crate) fn account() -> Account {
        let mut posted = Posted::new(Shape::of_types(1));
        posted.measured.types[0].transactions = TRANSACTIONS_FOR_P99_MIN;
        posted.measured.started = TRANSACTIONS_FOR_P99_MIN;
        Account {
            posted,
            begin: 0,
            measure_from: 0,
            end: 10 * NANOS_PER_SECOND,
            scheduled: TRANSACTIONS_FOR_P99_MIN,
            skipped: 0,
            unstarted: 0,
            unfinished: 0,
            cancelled: 0,
            still_at_work: 0,
            client_cpu: NANOS_PER_SECOND / 10,
            worker_cpu_share_max: 0.5,
            worker_wait_share_max: Some(0.1),
            traffic: Traffic::default(),
            poller: crate::engine::poller::Poller::Epoll,
            outages: Vec::new(),
            moves: Vec::new(),
            lost: 0,
            reconnected: 0,
            weak_commits: 0,
            cut_off: 0,
            aborted: 0,
            abort: None,
            is_interrupted: false,
            sessions: Vec::new(),
            buffer_bytes: 0,
        }
    }

    #[test]
    fn a_run_without_a_success_is_reported_with_what_there_was_instead() {
        let mut account = account();
        account.posted.measured.types[0] = crate::tally::TypeTally { failed: 40, ..Default::default() };
        account.worker_cpu_share_max = 1.0;
        let error = |code: &[u8; 5], count| crate::tally::ErrorTally {
            sqlstate: wire::error::SqlState(*code),
            count,
            retried: 0,
            first_message: "first".into(),
            first: 0,
            first_type: 0,
        };
        account.posted.errors = vec![error(b"40001", 3), error(b"53100", 37)];
        let opinion = judge(&account, None);
        assert!(opinion.has_nothing, "also where the client was busy with failing");
        assert_eq!(
            opinion.invalid[0],
            "no transaction succeeded in the measured time: 40 failed, most of them with 53100: first; the database contains \
             what single statements committed before the transaction failed"
        );
        account.posted.measured.types[0].transactions = 1;
        assert!(!judge(&account, None).has_nothing);
    }

    #[test]
    fn what_became_of_dropped_statements_in_the_server_is_reported() {
        let detail = |cancelled, still_at_work| {
            let account = Account { unfinished: 3, cancelled, still_at_work, ..account() };
            judge(&account, None).notes.remove(0)
        };
        assert!(detail(0, 0).ends_with("before the outcome was known"));
        assert!(detail(1, 0).ends_with("known; 1 statement of theirs was cancelled in the server"));
        assert!(detail(3, 0).ends_with("known; 3 statements of theirs were cancelled in the server"));
        assert!(
            detail(3, 1)
                .contains("a cancel request was sent for 3 statements, and 1 of them is still running")
        );
    }

    #[test]
    fn a_warm_up_that_used_up_the_transactions_is_the_reason_for_no_numbers() {
        let mut account = account();
        std::mem::swap(&mut account.posted.warmup, &mut account.posted.measured);
        assert!(
            judge(&account, None).invalid[0]
                .contains("warm-up used up the transactions of every session (-t)")
        );
        let timed = judge(&account, Some(Duration::from_secs(1)));
        assert!(timed.invalid[0].starts_with("no transaction succeeded"), "{timed:?}");
    }

    #[test]
    fn notes_quote_one_line_and_count_one_as_one() {
        let mut one = account();
        one.sessions = vec![Default::default(); 1];
        (one.aborted, one.abort) = (1, Some("x:1:1: no\n  1 | \\set\n    | ^".into()));
        (one.unstarted, one.scheduled, one.unfinished, one.weak_commits) = (1, 1, 1, 1);
        one.posted.measured.types[0].failed = 1;
        assert_eq!(
            judge(&one, None).notes,
            [
                "aborted sessions start no more transactions: 1 of 1 scheduled transaction had not started at the end",
                "1 transaction was dropped before the outcome was known",
                "1 transaction failed",
                "1 of 1 session was aborted: x:1:1: no",
                "1 commit was acknowledged although the wait for a standby was cancelled, and counted: a failover may lose these commits",
            ]
        );
    }

    #[test]
    fn transactions_that_the_end_kept_from_another_try_are_no_failures_of_the_target() {
        let mut account = account();
        (account.cut_off, account.posted.measured.types[0].failed) = (4, 4);
        let detail = |account: &Account| judge(account, None).notes;
        assert_eq!(detail(&account), ["4 transactions were not tried again because the time was over"]);
        account.posted.measured.types[0].failed = 5;
        assert_eq!(detail(&account)[1], "1 transaction failed");
    }

    #[test]
    fn aborted_sessions_are_reported() {
        let mut some = account();
        some.sessions = vec![Default::default(); 3];
        (some.aborted, some.abort) = (2, Some("x: end of script reached".into()));
        assert!(
            judge(&some, None).notes[0]
                .starts_with("2 of 3 sessions were aborted: x: end of script reached; the rest")
        );
        some.aborted = 3;
        assert_eq!(judge(&some, None).notes[0], "3 of 3 sessions were aborted: x: end of script reached");
    }

    #[test]
    fn a_calm_run_is_valid_without_notes() {
        assert_eq!(judge(&account(), None), Opinion::default());
        assert_eq!(client_cpu_us_per_transaction(&account()), Some(10.0));
    }

    #[test]
    fn commits_without_their_standbys_are_reported() {
        let mut weak = account();
        weak.weak_commits = 3;
        let opinion = judge(&weak, None);
        assert!(opinion.invalid.is_empty() && opinion.notes[0].starts_with("3 commits"), "{opinion:?}");
    }

    #[test]
    fn a_busy_or_late_client_makes_a_run_invalid() {
        let mut busy = account();
        busy.worker_cpu_share_max = 0.87;
        assert!(judge(&busy, None).invalid[0].contains("busy 87 % of the time and waited for a CPU 10 %"));
        busy.worker_wait_share_max = None;
        assert_eq!(judge(&busy, None).invalid, [""; 0], "13 % of the time it had nothing to do");
        (busy.worker_cpu_share_max, busy.worker_wait_share_max) = (0.3, Some(0.69));
        assert_eq!(judge(&busy, None).invalid, [""; 0], "a full machine is not the client's doing");
        assert!(judge(&busy, None).notes[0].contains("waited for a CPU 69 %"));
        let mut late = account();
        (0..100).for_each(|_| late.posted.measured.lag.record_us(6_000));
        assert!(judge(&late, None).invalid[0].contains("lag p99 6.0 ms"), "{:?}", judge(&late, None));
        let mut empty = account();
        empty.posted.measured.types[0].transactions = 0;
        assert_eq!(judge(&empty, None).invalid.len(), 1);
        assert_eq!(client_cpu_us_per_transaction(&empty), None);
    }

    #[test]
    fn what_happened_to_the_target_is_noted_and_does_not_invalidate() {
        let mut account = account();
        account.outages = vec![Outage {
            from: NANOS_PER_SECOND,
            to: Some(3 * NANOS_PER_SECOND),
            message: "gone".into(),
            ..Outage::default()
        }];
        account.unstarted = 500;
        account.unfinished = 2;
        account.is_interrupted = true;
        account.posted.measured.types[0].failed = 1;
        let opinion = judge(&account, Some(Duration::from_secs(60)));
        assert!(opinion.invalid.is_empty());
        assert_eq!(
            opinion.notes,
            [
                "interrupted after 10.0 s of 60 s",
                "outage of 2.00 s at 1.0 s: gone",
                "the target did not keep up: 500 of 10,000 scheduled transactions had not started at the end",
                "2 transactions were dropped before the outcome was known",
                "1 transaction failed",
            ]
        );
    }

    #[test]
    fn an_outage_is_reported_with_its_recovery() {
        let detail = |change: fn(&mut Outage)| {
            let mut account = account();
            let mut outage = Outage {
                from: NANOS_PER_SECOND,
                to: Some(3 * NANOS_PER_SECOND),
                message: "gone".into(),
                tps_before: Some(1_234.4),
                back: Some(5 * NANOS_PER_SECOND),
                ..Outage::default()
            };
            change(&mut outage);
            account.outages = vec![outage];
            account.moves = [(0, "a:1"), (2, "b:1")]
                .map(|(second, to)| Move { at: second * NANOS_PER_SECOND, to: to.into() })
                .to_vec();
            judge(&account, None).notes.remove(0)
        };
        assert_eq!(
            detail(|_| {}),
            "outage of 2.00 s at 1.0 s: gone; sessions went on at b:1; back to 95 % of 1234 transactions/s after 4.0 s"
        );
        assert!(
            detail(|outage| outage.back = None)
                .ends_with("; not back to 95 % of 1234 transactions/s by the end")
        );
        let stall = detail(|outage| (outage.cause, outage.to) = (Cause::Stalled, None));
        assert!(stall.starts_with("stall from 1.0 s to the end: gone"), "{stall}");
        let failing = detail(|outage| {
            (outage.cause, outage.failed, outage.back) = (Cause::Failing, 21_542, None);
            outage.message = "53100: disk full".into();
        });
        let expected = "nothing but failures for 2.00 s at 1.0 s: 21,542 transactions failed, the first with 53100: disk full; ";
        assert!(failing.starts_with(expected), "{failing}");
    }
}
