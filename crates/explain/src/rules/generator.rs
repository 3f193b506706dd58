//! GEN: limits of the client that loads or drives, which must not be blamed on the server.

mod behind;
pub(crate) mod deadlock;
mod late;
mod maximum;
mod parties;
mod vain;

use crate::case::{Case, Lines};
use crate::rule::Need::{Any, Driven, Field, Filled};
use crate::rule::{Answer, Claim, Rule};
use crate::series::{Point, Series};
use crate::statistics;
use crate::units;
use crate::waits::{self, Who};
use record::finding::{Level, Severity, Window};
use record::model::Step;
use serde_json::Value;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "GEN-01",
        title: "key collisions stall the loader",
        needs: &[Any(&[Field("statement", "calls"), Field("server", "tup_inserted"), Driven])],
        limits: "the rows stored per call fall below half, or unique violations occur (R0: hashed keys collide)",
        judge: collisions,
        links: &["docs/dataset.md"],
    },
    Rule {
        id: "GEN-02",
        title: "deadlocks between writers",
        needs: &[Any(&[Field("server", "deadlocks"), Driven])],
        limits: "any; high above 0.1 per second (ours)",
        judge: deadlock::deadlocks,
        links: &["https://www.postgresql.org/docs/current/explicit-locking.html#LOCKING-DEADLOCKS"],
    },
    Rule {
        id: "GEN-03",
        title: "the client is the limit",
        needs: &[Driven],
        limits: "p99 of the lag above 10 % of the response time's, or the client computes 90 % of its workers' time (ours)",
        judge: client_limit,
        links: &["docs/run.md"],
    },
    Rule {
        id: "GEN-04",
        title: "stall without an error",
        needs: &[Any(&[Driven, Filled])],
        limits: "10 s without a transaction or a row, or without a line of the client's own counters (ours)",
        judge: stall,
        links: &[],
    },
    Rule {
        id: "GEN-05",
        title: "a closed loop hides stalls",
        needs: &[Driven],
        limits: "closed loop, and the transactions not sent during stalls are more than 0.1 % of all (Tene, coordinated omission)",
        judge: omission,
        links: &["docs/run.md"],
    },
    Rule {
        id: "GEN-06",
        title: "a load begins without enough free space",
        needs: &[Filled, Field("mount", "free_bytes")],
        limits: "the rows to load need more space than is free at the start",
        judge: full_target,
        links: &["docs/loading.md"],
    },
];

/// Unique violations in the server's log.
const COLLISIONS_MIN: f64 = 50.0;
/// Of all transactions.
const COLLISION_SHARE_MIN: f64 = 0.1;
/// Rows per call at the end below this share of those at the beginning: keys repeat.
const USEFUL_SHARE_MIN: f64 = 0.5;
/// Calls in either third that make the comparison worth it.
const CALLS_MIN: f64 = 30.0;
/// Lag above this share of the response time is the client's.
const LAG_SHARE_MAX: f64 = 0.1;
/// Lag below this does not matter, however fast the target replies.
const LAG_US_MIN: f64 = 1_000.0;
/// A client that computes longer than this share of its workers' time is full.
const CLIENT_BUSY: f64 = 0.9;
/// Time without work that counts as a stall.
const STALL_US: u64 = 10_000_000;
/// A second with less than this share of the usual is lost to a stall.
const STALL_RATE_SHARE: f64 = 0.1;
/// Transactions that stalls kept from being sent, as a share of all, before percentiles are wrong.
const OMITTED_SHARE_MIN: f64 = 0.001;
/// A third of a series: its beginning and its end are compared.
const THIRDS: u64 = 3;

fn thirds(window: Window) -> (Window, Window) {
    let third = window.length_us() / THIRDS;
    (Window::new(window.from_us, window.from_us + third), Window::new(window.to_us - third, window.to_us))
}

fn collisions(case: &Case) -> Answer {
    let mut claims = vec![];
    for thing in case.things("statement") {
        let text = case.query(thing.lines.word("query_id")).unwrap_or("").to_lowercase();
        let (Some(calls), Some(rows)) = (thing.lines.series("calls"), thing.lines.series("rows")) else {
            continue;
        };
        if !text.contains("on conflict") {
            continue;
        }
        let (begin, end) = thirds(calls.window());
        let per_call = |window| rows.within(&[window]).sum() / calls.within(&[window]).sum().max(1.0);
        let enough = |window| calls.within(&[window]).sum() >= CALLS_MIN;
        let (before, after) = (per_call(begin), per_call(end));
        if enough(begin) && enough(end) && after < before * USEFUL_SHARE_MIN {
            claims.push(
                Claim::new(
                    Severity::High,
                    Level::DiscriminatingCounter,
                    format!(
                        "the loader's keys repeat: an INSERT .. ON CONFLICT stored {} rows per call at first and {} at the end",
                        units::short(before),
                        units::short(after)
                    ),
                )
                .on_node(thing.place)
                .during([end])
                .number("rows_per_call_before", before)
                .number("rows_per_call_after", after)
                .because(format!("{} calls continued", units::count(calls.within(&[end]).sum())))
                .not("a slow target: there would be fewer calls, not calls with fewer rows")
                .remedy(
                    "use keys that are a bijection of the row number, or give each writer its own range; never use a hash of the row number",
                    &["$ pgfathom load WHAT --rows N"],
                ),
            );
        }
    }
    let collided = case
        .run
        .steps
        .iter()
        .flat_map(|step| &step.errors)
        .filter(|error| error.sqlstate == "23505")
        .map(|error| error.count)
        .fold(0, u64::saturating_add);
    if collided > 0 {
        claims.push(
            Claim::new(
                Severity::Medium,
                Level::DiscriminatingCounter,
                format!(
                    "{} inserts failed because the key already exists (SQLSTATE 23505)",
                    units::count(collided as f64)
                ),
            )
            .number("errors", collided as f64)
            .because("the server names the unique constraint; nothing else raises this error")
            .remedy("give each writer its own keys", &[]),
        );
    }
    if claims.is_empty() {
        claims.extend(vain::claims(case));
        claims.extend(case.nodes().into_iter().filter_map(|node| logged_collisions(case, node)));
    }
    if claims.is_empty() {
        claims.extend(case.nodes().into_iter().filter_map(|node| empty_commits(case, node)));
    }
    Answer::of(claims, || "statements, unique violations, rows per commit".to_string())
}

/// Unique violations of other programs, as the server's log has them, while as many transactions are rolled back.
fn logged_collisions(case: &Case, node: &str) -> Option<Claim> {
    let server = case.one("server", node)?;
    let is_collision = |event: &&record::event::Event| {
        let is_here = [node, ""].contains(&Case::word_of(event, "node"));
        let known = Case::word_of(event, "sqlstate") == "23505";
        is_here && (known || event.message.contains("duplicate key value violates unique constraint"))
    };
    let events: Vec<&record::event::Event> =
        case.events_of(record::event::SERVER_LOG).filter(is_collision).collect();
    let count: f64 = events.iter().map(|event| event.times()).sum();
    let transactions = server.sum("xact_commit").unwrap_or(0.0) + server.sum("xact_rollback").unwrap_or(0.0);
    let first = events.first()?;
    let behind = behind::Behind::of_error(case, node, first);
    let maximum = maximum::statement(case, &first.message);
    (count >= COLLISIONS_MIN && count >= transactions * COLLISION_SHARE_MIN).then(|| {
        Claim::new(
            Severity::Medium,
            Level::DiscriminatingCounter,
            format!(
                "{node}: {} inserts failed because the key already exists, {} of all transactions{}",
                units::count(count),
                units::percent(count / transactions.max(count)),
                behind.as_ref().map_or_else(|| maximum::words(maximum.as_deref()), behind::Behind::words)
            ),
        )
        .on_node(node)
        .during(events.iter().map(|event| Window::new(event.t_us, event.t_us + 1_000_000)))
        .number("collisions", count)
        .because(format!("the server's log: {}", first.message))
        .because("each of them writes an error and its statement to the log")
        .remedy(
            match behind {
                None if maximum.is_some() => maximum::BY_SEQUENCE,
                Some(_) => "set the sequence behind the last row: after rows were copied with their keys it still hands out the first ones",
                None => "stop the program that repeats them, or let it use ON CONFLICT or keys of its own; a retry needs a pause, and a limit",
            },
            &[&behind.map_or_else(
                || "SELECT application_name, client_addr, left(query, 60) AS query FROM pg_stat_activity WHERE query ILIKE 'insert%';".to_owned(),
                |behind| behind.command(),
            )],
        )
    })
}

/// Commits continue, but rows are no longer stored.
fn empty_commits(case: &Case, node: &str) -> Option<Claim> {
    let server = case.one("server", node)?;
    let (inserted, commits) = (server.series("tup_inserted")?, server.series("xact_commit")?);
    let (begin, end) = thirds(inserted.window());
    let per_commit = |window| inserted.within(&[window]).sum() / commits.within(&[window]).sum().max(1.0);
    let (before, after) = (per_commit(begin), per_commit(end));
    let commits_hold = commits.within(&[end]).rate() >= commits.within(&[begin]).rate() * 0.8;
    // Workers that apply others' changes commit what others loaded, in transactions of any size.
    let writes_only = case.loads().is_empty() && case.driven().is_empty() && !case.applies(node);
    let is_loading = before >= 10.0 && inserted.within(&[begin]).readings() >= THIRDS * 5;
    (writes_only && is_loading && commits_hold && after < before * USEFUL_SHARE_MIN / 2.0).then(|| {
        Claim::new(
            Severity::Medium,
            Level::Symptom,
            format!(
                "commits continue, but each stores {} rows instead of {}",
                units::short(after),
                units::short(before)
            ),
        )
        .on_node(node)
        .during([end])
        .number("rows_per_commit_before", before)
        .number("rows_per_commit_after", after)
        .lacking("the loader's own count of rows tried and stored, or pg_stat_statements on the target")
        .remedy("compare the loader's rows tried with rows stored; hashed keys repeat", &[])
    })
}

fn parameter(step: &Step, name: &str) -> Option<f64> {
    step.parameters.get(name).and_then(Value::as_f64)
}

fn client_limit(case: &Case) -> Answer {
    let mut claims = vec![];
    for (step, window) in case.driven() {
        let Some(client) = case.client(&step.key) else { continue };
        let inside = |field: &str| client.series(field).map(|series| series.within(&[window]));
        let late = inside("lag_us_p99").zip(inside("response_us_p99")).map(|(lag, response)| {
            (
                statistics::median(lag.values()).unwrap_or(0.0),
                statistics::median(response.values()).unwrap_or(0.0),
            )
        });
        let workers = parameter(step, "workers").unwrap_or(1.0).max(1.0);
        let busy = inside("client_cpu_us").map_or(0.0, |cpu| cpu.rate() / 1e6 / workers);
        let is_late = late.is_some_and(|(lag, response)| lag >= LAG_US_MIN && lag > response * LAG_SHARE_MAX);
        if !is_late && busy < CLIENT_BUSY {
            continue;
        }
        let detail = match late.filter(|_| is_late) {
            Some((lag, response)) => {
                format!(
                    "transactions began late: p99 of the lag is {} of a response time of {}",
                    units::us(lag),
                    units::us(response)
                )
            }
            None => format!("the client computed {} of its workers' time", units::percent(busy)),
        };
        let both = is_late && busy >= CLIENT_BUSY;
        claims.push(
            Claim::new(Severity::High, if both { Level::DiscriminatingCounter } else { Level::CoOccurrence }, detail)
                .during([window])
                .number("client_busy_share", busy)
                .number("workers", workers)
                .with(late, |claim, (lag, response)| {
                    claim.number("lag_us_p99", lag).number("response_us_p99", response)
                })
                .because(format!("{} used {} of {} workers' time", step.key, units::percent(busy), workers))
                .remedy(
                    "give the client more workers or another host, or lower the rate; these figures do not describe the target",
                    &["$ pgfathom run -j WORKERS ..."],
                ),
        );
    }
    Answer::of(claims, || "lag and CPU of the client in every step".to_string())
}

fn stall(case: &Case) -> Answer {
    let mut claims = vec![];
    for (step, window) in case.driven() {
        let Some(client) = case.client(&step.key) else { continue };
        let sessions = client.series("sessions").map_or(0.0, |sessions| sessions.mean());
        if let Some(series) = client.series("transactions").filter(|_| sessions > 0.0) {
            claims.extend(stalls(case, &step.key, "transaction", &series.within(&[window])));
        }
    }
    for (step, lines) in case.loads() {
        let copying = lines.word("phase");
        let (Some(rows), Some(streams)) = (lines.series("rows"), lines.series("streams")) else { continue };
        let moving = streams.stretches(0, |point| point.mean() > 0.0);
        if copying != "index" {
            claims.extend(stalls(case, step, "row", &rows.within(&moving)));
        }
    }
    Answer::of(claims, || {
        format!("no {} without a transaction or a row", units::seconds(STALL_US as f64 / 1e6))
    })
}

/// The stalls of one step: seconds that the client recorded without work, and time that it did not record at all.
fn stalls(case: &Case, step: &str, what: &str, series: &Series) -> Vec<Claim> {
    let mut claims = vec![];
    let detail = series.stretches(STALL_US, |point| point.sum == 0.0);
    if !detail.is_empty() {
        claims.push(stalled(case, step, what, detail));
    }
    let untold = untold(series);
    if !untold.is_empty() {
        claims.push(stood_still(case, step, what, untold));
    }
    claims
}

/// Stretches for which the client wrote a single line instead of one a second, and did almost nothing: its process did not run.
fn untold(series: &Series) -> Vec<Window> {
    let each = |point: &Point| point.interval_us as f64 / point.count.max(1) as f64;
    let usual_us = statistics::median(series.points().iter().map(each)).unwrap_or(0.0);
    let usual = statistics::median(series.rates()).unwrap_or(0.0);
    let is_hole = |point: &&Point| {
        // A point may stand for several readings; the gap is one of them.
        let longest_us = point.interval_us as f64 - usual_us * point.count.saturating_sub(1) as f64;
        longest_us >= usual_us + STALL_US as f64 && point.rate() < usual * STALL_RATE_SHARE
    };
    series.points().iter().filter(is_hole).map(Point::window).collect()
}

/// The claim about a stall that the client recorded: which side hung, judged by what the sessions did in the server.
fn stalled(case: &Case, step: &str, what: &str, windows: Vec<Window>) -> Claim {
    let longest = windows.iter().map(|window| window.length_us()).max().unwrap_or(0);
    let (mut client_side, mut looked) = (true, false);
    let mut detail = vec![];
    for (node, waits) in case.waiting_nodes() {
        let looks = case.looks(node, &windows);
        if looks < 1.0 {
            continue;
        }
        looked = true;
        let active = waits.seen_within(Who::Client, &windows) / looks;
        if active < 0.5 {
            continue;
        }
        client_side = false;
        let most = waits
            .of(Who::Client)
            .map(|(event, series)| (waits::name(event), series.within(&windows).sum()))
            .max_by(|left, right| left.1.total_cmp(&right.1));
        let most = most.map_or(String::new(), |(event, _)| format!(", most in {event}"));
        detail.push(format!(
            "{node}: {} sessions were active in the server during the stall{most}",
            units::short(active)
        ));
    }
    let (level, claim) = match (looked, client_side) {
        (false, _) => (Level::Symptom, "the server was not sampled"),
        (true, true) => {
            (Level::DiscriminatingCounter, "no session was active in the server: the client hung")
        }
        (true, false) => {
            (Level::DiscriminatingCounter, "the sessions were inside the server: the target hung")
        }
    };
    let mut made = Claim::new(
        Severity::High,
        level,
        format!("{step}: no {what} for {}, and no error; {claim}", units::seconds(longest as f64 / 1e6)),
    )
    .number("longest_us", longest as f64)
    .during(windows)
    .remedy(
        "check what the sessions do at that moment",
        &["SELECT pid, state, wait_event_type, wait_event, pg_blocking_pids(pid), left(query, 60) FROM pg_stat_activity WHERE state <> 'idle';"],
    );
    for sentence in detail {
        made = made.because(sentence);
    }
    if looked { made } else { made.lacking("samples of wait events: they show which side hung") }
}

/// The claim about a stall of the client's own process: it was stopped, swapped out, or its host was paused.
fn stood_still(case: &Case, step: &str, what: &str, windows: Vec<Window>) -> Claim {
    let longest = windows.iter().map(|window| window.length_us()).max().unwrap_or(0);
    let mut made = Claim::new(
        Severity::High,
        Level::DiscriminatingCounter,
        format!(
            "{step}: almost no {what} for {}, and no error; the client itself stopped: it writes its counters every second, and these are missing",
            units::seconds(longest as f64 / 1e6)
        ),
    )
    .number("longest_us", longest as f64)
    .because("the client writes its counters every second, even if the target does not reply")
    .not("a target that hangs: the client would have written zeros");
    for server in case.things("server") {
        let Some(commits) = server.lines.series("xact_commit") else { continue };
        // Monitoring in the same process was stopped, too: its next reading spans the gap.
        let inside = commits.within(&windows).sum();
        made = made.because(format!(
            "{}: {} transactions ended there during the stall",
            server.place,
            units::count(inside)
        ));
    }
    made.during(windows).remedy(
        "check the client's process and host: a job control stop (state T), full memory, a paused virtual machine, a debugger",
        &["$ ps -o pid,stat,wchan,cmd -C pgfathom", "$ grep -E 'oom_kill|pswpin' /proc/vmstat"],
    )
}

fn omission(case: &Case) -> Answer {
    let mut claims = vec![];
    for (step, window) in case.driven() {
        let Some(client) = case.client(&step.key) else { continue };
        let is_open = parameter(step, "rate_per_s").is_some();
        let Some(series) = client.series("transactions").map(|series| series.within(&[window])) else {
            continue;
        };
        let usual = statistics::median(series.rates()).unwrap_or(0.0);
        if is_open || usual <= 0.0 {
            continue;
        }
        let stalls = series.stretches(0, |point| point.rate() < usual * STALL_RATE_SHARE);
        let stalled_s =
            stalls.iter().map(|window| window.length_us()).fold(0, u64::saturating_add) as f64 / 1e6;
        let omitted = usual * stalled_s - series.within(&stalls).sum();
        let share = omitted / (series.sum() + omitted).max(1.0);
        if share < OMITTED_SHARE_MIN {
            continue;
        }
        claims.push(
            Claim::new(
                Severity::Low,
                Level::DiscriminatingCounter,
                format!(
                    "{}: the closed loop stalled for {} and did not send about {} transactions: percentiles above {} are too low",
                    step.key,
                    units::seconds(stalled_s),
                    units::count(omitted),
                    units::percent(1.0 - share)
                ),
            )
            .during(stalls)
            .number("omitted", omitted)
            .number("omitted_share", share)
            .because("without --rate a session waits for the result before it sends the next transaction")
            .remedy("drive at a fixed rate: response time then counts from the moment a transaction was due", &["$ pgfathom run -R RATE ..."]),
        );
    }
    Answer::of(claims, || "no stall in a closed loop, or a fixed rate".to_string())
}

/// Free bytes that a load can use: of the mounts that hold tables.
pub(super) fn free_for_data(case: &Case, first: bool) -> Option<(f64, &str)> {
    let mounts = case.things("mount").filter(|mount| {
        let used_for = mount.lines.word("used_for");
        used_for.contains("pgdata") || used_for.contains("tablespace")
    });
    let free = |lines: &Lines| if first { lines.first("free_bytes") } else { lines.last("free_bytes") };
    let all: Vec<(f64, &str)> = mounts.filter_map(|mount| Some((free(mount.lines)?, mount.name))).collect();
    let (bytes, names): (Vec<f64>, Vec<&str>) = all.into_iter().unzip();
    names.first().map(|name| (bytes.iter().sum(), *name))
}

/// Bytes that a row takes on disk, from the space used during the load; `None` before enough rows are loaded.
pub(super) fn bytes_per_row(case: &Case, lines: &Lines) -> Option<f64> {
    let (before, after) = (free_for_data(case, true)?.0, free_for_data(case, false)?.0);
    let rows = lines.sum("rows")?;
    (rows > 0.0 && before > after).then(|| (before - after) / rows)
}

fn full_target(case: &Case) -> Answer {
    let mut claims = vec![];
    for (step, lines) in case.loads() {
        let (Some(goal), Some(done)) = (lines.max("rows_goal"), lines.first("rows_total")) else { continue };
        let (Some(per_row), Some((free, mount))) = (bytes_per_row(case, lines), free_for_data(case, true))
        else {
            return Answer::CannotTell(
                "too few rows were loaded to know how much disk a row takes".to_string(),
            );
        };
        let left = (goal - done).max(0.0);
        if left * per_row > free {
            claims.push(
                Claim::new(
                    Severity::High,
                    Level::DiscriminatingCounter,
                    format!(
                        "{step}: {} rows were left to load, {} at {} bytes each, but {} were free at the start",
                        units::count(left),
                        units::bytes(left * per_row),
                        units::short(per_row),
                        units::bytes(free)
                    ),
                )
                .during([lines.ticks.window()])
                .number("needed_bytes", left * per_row)
                .number("free_bytes", free)
                .because(format!("free space of {mount} was read before and during the load"))
                .remedy("add space or tablespaces before you continue, or load fewer rows", &["$ pgfathom load ... --keep-free 500GB"]),
            );
        }
    }
    Answer::of(claims, || "the rows to load fit into the free space".to_string())
}
