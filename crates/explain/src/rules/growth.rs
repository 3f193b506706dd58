//! MEM-08: server processes that grow between statements, which no view of the server shows.

use super::costly::plain;
use super::paste::literal;
use crate::case::{Case, Thing};
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, Severity};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "MEM-08",
    title: "the server processes of sessions grow all the time",
    needs: &[Field("session_memory", "private_bytes")],
    limits: "the memory of the sessions of an application grows from look to look for 30 s or longer, \
        by 4 MB and a fifth for each session, at the end at half the rate of the \
        whole or faster, and 1 MB a second together, while no \
        statement runs for 2 s; high if the memory of the host is used up within an hour at that rate (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/functions-admin.html#FUNCTIONS-ADMIN-SIGNAL"],
}];

/// Looks at the sessions.
const LOOKS_MIN: usize = 3;
/// A shorter recording may see nothing but caches that fill, and its looks are too few to show that their growth slows down.
const RECORDED_S_MIN: f64 = 30.0;
/// What a session grows by, in bytes and of what it had, and all of an application a second. New sessions grow as well until they have what they need.
const GROWN_BYTES_MIN: f64 = 4_000_000.0;
const GROWN_SHARE_MIN: f64 = 0.2;
const BYTES_PER_S_MIN: f64 = 1_000_000.0;
/// Of the average growth between two looks, that between the last two: less, and the processes have what they need.
const LATE_SHARE_MIN: f64 = 0.5;
/// A longer statement may sort or hash what it reads, and gives the memory back at its end.
const STATEMENT_S_MAX: f64 = 2.0;
/// A look may be smaller than the one before by so much.
const NOISE: f64 = 0.01;
/// Sessions that come and go: their number changes by no more than this.
const SESSIONS_CHANGE_MAX: f64 = 0.1;
/// The host is out of memory within this time.
const SOON_S: f64 = 3_600.0;
/// Characters of a name.
const NAME_CHARS: usize = 40;

/// How the sessions of an application grow.
struct Growth {
    sessions: f64,
    /// Bytes of a session at the first look and at the last one, and of all together a second.
    from: f64,
    to: f64,
    per_s: f64,
}

fn growth(group: &Thing<'_>) -> Option<Growth> {
    let (bytes, sessions) = (group.lines.series("private_bytes")?, group.lines.series("sessions")?);
    let is_short = group.lines.max("longest_statement_s").unwrap_or(0.0) < STATEMENT_S_MAX;
    let counts: Vec<f64> = sessions.points().iter().map(|point| point.mean()).collect();
    let (least, most) =
        (counts.iter().copied().fold(f64::MAX, f64::min), counts.iter().copied().fold(0.0, f64::max));
    if counts.len() < LOOKS_MIN || !is_short || most - least > most * SESSIONS_CHANGE_MAX {
        return None;
    }
    let each: Vec<f64> =
        bytes.points().iter().zip(&counts).map(|(point, count)| point.mean() / count.max(1.0)).collect();
    // The looks at the memory, and not the whole recording: it may have begun late.
    let times: Vec<u64> = bytes.points().iter().map(|point| point.to_us).collect();
    let looked_s = times.last()?.saturating_sub(*times.first()?) as f64 / 1e6;
    let only_grows = each.windows(2).all(|pair| pair[1] >= pair[0] * (1.0 - NOISE));
    let (from, to) = (*each.first()?, *each.last()?);
    // The rate of the second half: what a session needs at its beginning is no growth for ever.
    let half = each.len() / 2;
    let late_s = times.last()?.saturating_sub(times[half.saturating_sub(1)]) as f64 / 1e6;
    let per_s = (to - each[half.saturating_sub(1)]) * most / late_s.max(1.0);
    let average = (to - from) / (each.len() - 1) as f64;
    let goes_on = each.windows(2).last().is_some_and(|pair| pair[1] - pair[0] >= average * LATE_SHARE_MIN);
    let is_growth = looked_s >= RECORDED_S_MIN
        && only_grows
        && goes_on
        && to - from >= GROWN_BYTES_MIN
        && to >= from * (1.0 + GROWN_SHARE_MIN);
    (is_growth && per_s >= BYTES_PER_S_MIN).then_some(Growth { sessions: most, from, to, per_s })
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for group in case.things("session_memory") {
        let Some(Growth { sessions, from, to, per_s }) = growth(&group) else { continue };
        let host = case.host_of(group.place).and_then(|host| case.one("host", host));
        let left_s = host.and_then(|host| host.last("memory_available_bytes")).map(|free| free / per_s);
        let (application, user) = (group.lines.word("application"), group.lines.word("user"));
        let whose = match application {
            "" => format!("role {}", plain(user, NAME_CHARS)),
            name => format!("{} (role {})", plain(name, NAME_CHARS), plain(user, NAME_CHARS)),
        };
        let all =
            if sessions > 1.0 { format!("the {sessions:.0} sessions") } else { "a session".to_string() };
        let until = left_s.map_or(String::new(), |left| {
            format!(": the memory of the host is used up in {}", units::seconds(left))
        });
        claims.push(
            Claim::new(
                if left_s.is_some_and(|left| left < SOON_S) { Severity::High } else { Severity::Medium },
                Level::DiscriminatingCounter,
                format!(
                    "{}: the server processes of {all} of {whose} grow all the time, from {} to {} each, {} a second together{until}",
                    group.place,
                    units::bytes(from),
                    units::bytes(to),
                    units::bytes(per_s)
                ),
            )
            .on_node(group.place)
            .during([group.lines.ticks.window()])
            .number("bytes_per_s", per_s)
            .number("sessions", sessions)
            .with(left_s, |claim, left| claim.number("until_full_s", left))
            .because("what the processes share with no other grew from look to look, while their statements took less than two seconds: it is kept between \
                statements")
            .lacking("what they keep: the server writes the memory of a process into its log with the command below")
            .remedy(
                "what grows with the number of different statements is mostly prepared statements that are never deallocated (a new name for each), with their \
                 plans, or the caches of thousands of tables and partitions: let the driver reuse or deallocate them, and let the pool replace its connections \
                 after some time (max lifetime), which gives the memory back",
                &[
                    &format!(
                        "SELECT pid, pg_log_backend_memory_contexts(pid) FROM pg_stat_activity WHERE application_name = {} AND usename = {} ORDER BY \
                            backend_start \
                         LIMIT 1; -- writes into the server's log; CachedPlanSource, CachedPlan: prepared statements; CacheMemoryContext: tables",
                        literal(application),
                        literal(user)
                    ),
                    "SELECT count(*) FROM pg_prepared_statements; -- in a session of the application",
                ],
            ),
        );
    }
    Answer::of(claims, || "memory of the server processes by application".to_string())
}
