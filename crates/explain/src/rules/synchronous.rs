//! REP-01: commits that wait for synchronous standbys, how many of these a server wants, and how many stream from it.

use crate::case::{Case, Lines, Thing};
use crate::decompose;
use crate::rule::Need::Looked;
use crate::rule::{Answer, Claim, Rule};
use crate::series::Series;
use crate::units;
use crate::waits::Who;
use record::finding::{Level, Severity};
use std::collections::BTreeMap;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "REP-01",
    title: "commits wait for synchronous standbys",
    needs: &[Looked("wait"), Looked("replication")],
    limits: "20 % of the active sessions in IPC:SyncRep (ours; R4)",
    judge: sync_rep,
    links: &["https://www.postgresql.org/docs/current/warm-standby.html#SYNCHRONOUS-REPLICATION"],
}];

/// Of the active sessions.
pub(crate) const SYNC_SHARE: f64 = 0.2;
/// The limit of a high finding.
const SYNC_SHARE_HIGH: f64 = 0.5;

/// A position that moves by less between two looks stands still: commits of other databases and checkpoints write so much.
const STILL_BYTES: f64 = 64.0;
/// Looks in a row in which it stands still.
const STILL_LOOKS_MIN: usize = 3;
/// Characters of names in a text.
const NAMES_CHARS: usize = 120;

/// The wait of a commit for a standby.
pub(crate) fn is_sync(kind: &str, event: &str) -> bool {
    (kind, event) == ("IPC", "SyncRep")
}

fn sync_rep(case: &Case) -> Answer {
    let mut claims = vec![];
    for (node, waits) in case.waiting_nodes() {
        let Some(share) = waits.share(Who::Client, is_sync).filter(|share| *share >= SYNC_SHARE) else {
            continue;
        };
        let short = shortage(case, node);
        let mut claim = Claim::new(
            if share >= SYNC_SHARE_HIGH { Severity::High } else { Severity::Medium },
            Level::DiscriminatingCounter,
            format!(
                "{node}: {} of the active sessions wait for synchronous standbys{}",
                units::percent(share),
                short.as_deref().unwrap_or_default()
            ),
        )
        .on_node(node)
        .during(waits.windows(Who::Client, is_sync))
        .number("sync_share", share)
        .of_client_time(decompose::share_of(case, is_sync));
        let mode = case.setting(node, "synchronous_commit").unwrap_or("on");
        for standby in decisive(case, node, mode) {
            claim = with_delay(claim, case, &standby, mode);
        }
        let (text, commands) = match short {
            Some(_) => without_standby(case, node),
            None => with_standbys(case, node, mode),
        };
        let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
        claims.push(claim.because(format!("synchronous_commit is {mode}")).remedy(text, &commands));
    }
    Answer::of(claims, || "what active sessions waited for".to_string())
}

/// Those of `states` that are connected to a node.
fn of_states<'a>(case: &'a Case, node: &'a str, states: &[&str]) -> Vec<Thing<'a>> {
    case.at("replication", node).filter(|one| states.contains(&one.lines.word("sync_state"))).collect()
}

/// The standbys that commits return with: all that are called sync, and of a quorum so many as are wanted, the fastest ones.
fn decisive<'a>(case: &'a Case, node: &'a str, mode: &str) -> Vec<Thing<'a>> {
    let lag = |standby: &Thing<'_>| match stood_still(case, standby, mode).is_long() {
        true => f64::MAX,
        false => standby.lines.mean(position(mode).1).unwrap_or(0.0),
    };
    let mut quorum = of_states(case, node, &["quorum"]);
    quorum.sort_by(|left, right| lag(left).total_cmp(&lag(right)));
    quorum.truncate(setting(case, node).map_or(1, |wanted| wanted.count));
    let mut all = of_states(case, node, &["sync"]);
    all.extend(quorum);
    all
}

/// The command that lets commits return with any one of the standbys that can confirm; `None` where that is so, or where there are fewer than `least`.
fn any_of(case: &Case, node: &str, least: usize) -> Option<String> {
    let names: Vec<String> = of_states(case, node, &["sync", "quorum", "potential"])
        .iter()
        .filter(|standby| !standby.name.is_empty())
        .map(|standby| format!("\"{}\"", standby.name.replace(['"', '\''], "")))
        .collect();
    let is_set = setting(case, node).is_some_and(|wanted| wanted.is_quorum && wanted.count == 1);
    (names.len() >= least && !(is_set && least > 1)).then(|| {
        format!(
            "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 ({})'; SELECT pg_reload_conf();",
            names.join(", ")
        )
    })
}

/// What to do where fewer standbys are connected than have to confirm: every level that waits for a standby at all waits for them.
fn without_standby(case: &Case, node: &str) -> (String, Vec<String>) {
    let others: Vec<&str> = of_states(case, node, &["async"])
        .iter()
        .filter(|one| one.lines.word("state") == "streaming" && !one.name.is_empty())
        .map(|one| one.name)
        .collect();
    let named = match others.is_empty() {
        true => String::new(),
        false => format!(
            " (connected and not named in it: {})",
            super::costly::plain(&others.join(", "), NAMES_CHARS)
        ),
    };
    let text = format!(
        "start the standby that is missing, or see in its log why it does not connect; else name standbys that are connected in \
         synchronous_standby_names{named}, or wait for none until it is back"
    );
    (text, any_of(case, node, 1).into_iter().chain([NONE_LEFT.to_string()]).collect())
}

/// What to do where the standbys are there and confirm late.
fn with_standbys(case: &Case, node: &str, mode: &str) -> (String, Vec<String>) {
    let waited_for = decisive(case, node, mode);
    let is_still = |mode: &str| waited_for.iter().any(|standby| stood_still(case, standby, mode).is_long());
    // A weaker level gains nothing where its own position stands still, too, or where the stage that it leaves out takes little of the delay.
    let weaker = weaker_commit(mode)
        .filter(|(level, _)| !is_still(level))
        .map(|way| (way, spared(&waited_for, mode, way.0)))
        .filter(|(_, spared)| is_still(mode) || spared.is_none_or(|share| share >= SPARED_MIN));
    let any = any_of(case, node, 2);
    let mut ways = vec![];
    if let Some(((level, _), spared)) = weaker {
        let gain = spared.map_or(String::new(), |share| {
            format!(", which leaves out {} of the delay", units::percent(share))
        });
        ways.push(format!("use a weaker synchronous_commit ({level} instead of {mode}{gain})"));
    }
    if any.is_some() {
        ways.push("wait for any one of several standbys".to_string());
    }
    let slowest = waited_for.iter().filter_map(|standby| longest(standby, mode));
    let slowest = slowest.max_by(|left, right| left.1.total_cmp(&right.1));
    ways.push(match (is_still(mode), slowest) {
        (true, _) => "look on the standby at what stops it".to_string(),
        (false, Some((stage, _))) => stage.remedy().to_string(),
        (false, None) => "give the standbys a faster way and a faster disk for the WAL".to_string(),
    });
    let commands = any.into_iter().chain(weaker.map(|((_, command), _)| command.to_string())).collect();
    (ways.join(", or "), commands)
}

/// The part of the delay from which on a level that leaves it out is worth what it gives up.
const SPARED_MIN: f64 = 0.25;

/// The share of the delay of commits that another level would leave out, by the lags of the standbys that they wait for; `None` where these are not known.
fn spared(standbys: &[Thing<'_>], mode: &str, weaker: &str) -> Option<f64> {
    let longest = |field: &str| {
        let lags = standbys.iter().filter_map(|standby| standby.lines.mean(field));
        lags.max_by(f64::total_cmp)
    };
    let (now, then) = (longest(position(mode).1)?, longest(position(weaker).1)?);
    (now > 0.0).then(|| (1.0 - then / now).max(0.0))
}

/// Where the WAL of a commit is on its way to the confirmation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Sending,
    Flushing,
    Replaying,
}

impl Stage {
    fn words(self) -> &'static str {
        match self {
            Stage::Sending => "the network and writing there",
            Stage::Flushing => "flushing there",
            Stage::Replaying => "replaying there",
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Stage::Sending => {
                "shorten the way to the standby: its round trip, lost packets, a network that is full, or a host whose CPUs are busy, so that its walreceiver \
                 runs late; let fewer and larger transactions commit"
            }
            Stage::Flushing => {
                "give the standby a faster disk for its WAL, or one that replay and its readers do not share"
            }
            Stage::Replaying => {
                "look on the standby at what its replay waits for: a CPU (one process replays), its disk (recovery_prefetch), statements that it \
                 must not cancel yet"
            }
        }
    }
}

/// The stages of a standby's delay that commits of a level wait for, with their times.
fn stages(standby: &Thing<'_>, mode: &str) -> Vec<(Stage, f64)> {
    let lag = |field: &str| standby.lines.mean(field);
    let Some(write) = lag("write_lag_us") else { return vec![] };
    let mut found = vec![(Stage::Sending, write)];
    if let Some(flush) = lag("flush_lag_us").filter(|_| mode != "remote_write") {
        found.push((Stage::Flushing, flush - write));
        if let Some(replay) = lag("replay_lag_us").filter(|_| mode == "remote_apply") {
            found.push((Stage::Replaying, replay - flush));
        }
    }
    found
}

/// The longest of them.
fn longest(standby: &Thing<'_>, mode: &str) -> Option<(Stage, f64)> {
    stages(standby, mode).into_iter().max_by(|left, right| left.1.total_cmp(&right.1))
}

/// What lets commits return where no standby is left that could confirm them.
const NONE_LEFT: &str = "ALTER SYSTEM SET synchronous_standby_names = ''; SELECT pg_reload_conf(); -- commits wait for no standby until one is back: what is \
    committed until then is on this server alone";

/// The next weaker level of `synchronous_commit` at which a standby still confirms, and the command.
pub(super) fn weaker_commit(mode: &str) -> Option<(&'static str, &'static str)> {
    match mode {
        "remote_apply" => Some(("on", ON)),
        "remote_write" => None,
        _ => Some((
            "remote_write",
            "ALTER SYSTEM SET synchronous_commit = 'remote_write'; SELECT pg_reload_conf(); -- a commit may be lost if both hosts crash",
        )),
    }
}

/// The command for commits that do not wait for replay.
pub(super) const ON: &str = "ALTER SYSTEM SET synchronous_commit = 'on'; SELECT pg_reload_conf(); -- reads of a standby may then miss a commit";

/// What commits of a level wait for at a standby: its position, as bytes behind, and how late that is.
fn position(mode: &str) -> (&'static str, &'static str) {
    match mode {
        "remote_apply" => ("replay_lag_bytes", "replay_lag_us"),
        "remote_write" => ("write_lag_bytes", "write_lag_us"),
        _ => ("flush_lag_bytes", "flush_lag_us"),
    }
}

/// A position of a standby that does not move while commits wait for it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Still {
    /// Looks in which it has not moved since the one before although there was WAL, and all looks.
    pub(super) looks: usize,
    pub(super) of: usize,
    /// Those in a row, and for how long.
    in_a_row: usize,
    pub(super) longest_us: u64,
    /// Bytes behind in these looks, and those of them that are not flushed there either.
    pub(super) bytes: f64,
    pub(super) unflushed: f64,
}

impl Still {
    pub(super) fn is_long(&self) -> bool {
        self.in_a_row >= STILL_LOOKS_MIN
    }
}

/// How a standby's position for this level stands still. Its lag does not show that: PostgreSQL measures it when a confirmation comes, and shows the last one.
pub(super) fn stood_still(case: &Case, standby: &Thing<'_>, mode: &str) -> Still {
    let (Some(server), Some(waits)) = (case.one("server", standby.place), case.waits(standby.place)) else {
        return Still::default();
    };
    let by_time = |lines: &Lines, field: &str| -> BTreeMap<u64, f64> {
        let points = lines.series(field).map_or(&[][..], Series::points);
        points.iter().map(|point| (point.to_us, point.mean())).collect()
    };
    let (ends, flushed) =
        (by_time(server, "wal_position_bytes_total"), by_time(standby.lines, "flush_lag_bytes"));
    let windows = waits.windows(Who::Client, is_sync);
    let is_waited_for = |at: u64| windows.iter().any(|window| window.from_us < at && at <= window.to_us);
    let looks: Vec<(u64, f64, f64)> = by_time(standby.lines, position(mode).0)
        .into_iter()
        .filter_map(|(at, behind)| Some((at, behind, ends.get(&at)? - behind)))
        .collect();
    let mut still = Still { of: looks.len().saturating_sub(1), ..Still::default() };
    let (mut row, mut since_us) = (0, 0);
    for pair in looks.windows(2) {
        let ((before_us, before, from), (at, behind, to)) = (pair[0], pair[1]);
        if before <= 0.0 || to - from > STILL_BYTES || !is_waited_for(at) {
            row = 0;
            continue;
        }
        if row == 0 {
            since_us = before_us;
        }
        row += 1;
        still.looks += 1;
        still.in_a_row = still.in_a_row.max(row);
        still.longest_us = still.longest_us.max(at - since_us);
        still.bytes += behind;
        still.unflushed += flushed.get(&at).copied().unwrap_or(0.0);
    }
    let count = still.looks.max(1) as f64;
    Still { bytes: still.bytes / count, unflushed: still.unflushed / count, ..still }
}

/// Whether a wait is that of commits which hang until a standby is back, so that fewer and larger ones would hang as well: too few standbys are connected, or
/// one that they need confirms nothing.
pub(super) fn hung(case: &Case, node: &str) -> impl Fn(&str, &str) -> bool + use<> {
    let mode = case.setting(node, "synchronous_commit").unwrap_or("on");
    let hangs = shortage(case, node).is_some()
        || decisive(case, node, mode).iter().any(|standby| stood_still(case, standby, mode).is_long());
    move |kind, event| hangs && is_sync(kind, event)
}

/// Adds where a standby takes its time: the network, its disk, or replay; or that it confirms nothing.
fn with_delay(claim: Claim, case: &Case, standby: &Thing<'_>, mode: &str) -> Claim {
    let still = stood_still(case, standby, mode);
    if still.is_long() {
        return claim.number("looks_still", still.looks as f64).because(format!(
            "standby {}: it has confirmed nothing in {} of {} looks, for {} at a stretch; the lag that pg_stat_replication shows is that of the last \
             commit before",
            standby.name,
            still.looks,
            still.of,
            units::us(still.longest_us as f64)
        ));
    }
    let lag = |field: &str| standby.lines.mean(field).unwrap_or(0.0);
    let (write, flush, replay) = (lag("write_lag_us"), lag("flush_lag_us"), lag("replay_lag_us"));
    claim.number("write_lag_us", write).number("flush_lag_us", flush).number("replay_lag_us", replay).with(
        longest(standby, mode),
        |claim, (stage, us)| {
            claim.because(format!(
                "standby {}: most of the delay is {}, {} (write lag {}, flush lag {}, replay lag {})",
                standby.name,
                stage.words(),
                units::us(us),
                units::us(write),
                units::us(flush),
                units::us(replay)
            ))
        },
    )
}

/// What the setting of a node asks for.
pub(super) fn setting(case: &Case, node: &str) -> Option<Wanted> {
    case.setting(node, "synchronous_standby_names").and_then(wanted)
}

/// What `synchronous_standby_names` asks for (`syncrep_gram.y`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    /// Standbys that have to confirm.
    pub(super) count: usize,
    /// Whether any of them will do (`ANY`), and not the first ones.
    is_quorum: bool,
    /// Names of which they are; empty for `*`.
    names: Vec<String>,
}

/// Reads a value of `synchronous_standby_names`; `None` if it is empty or has another form.
fn wanted(value: &str) -> Option<Wanted> {
    let value = value.trim();
    let (is_quorum, count, list) = match value.split_once('(') {
        Some((before, list)) => {
            let number = before.split_whitespace().last()?;
            let is_quorum = before.trim_start().to_ascii_lowercase().starts_with("any");
            (is_quorum, number.parse().ok()?, list.strip_suffix(')')?)
        }
        None => (false, 1, value),
    };
    let names: Vec<String> = list.split(',').map(|name| name.trim().trim_matches('"').to_string()).collect();
    if names.iter().any(String::is_empty) {
        return None;
    }
    let is_any = names.iter().any(|name| name == "*");
    Some(Wanted { count, is_quorum, names: if is_any { vec![] } else { names } })
}

/// Why commits of a node never return, as the end of a claim: fewer standbys stream to it than have to confirm.
pub(super) fn shortage(case: &Case, node: &str) -> Option<String> {
    let value = case.setting(node, "synchronous_standby_names")?;
    let wanted = wanted(value)?;
    let is_named =
        |name: &str| wanted.names.is_empty() || wanted.names.iter().any(|one| one.eq_ignore_ascii_case(name));
    let end = case.one("server", node)?.ticks.window().to_us;
    // One that went away has no lines in the last seconds.
    let is_there = |to_us: u64| to_us.saturating_add(AWAY_US) >= end;
    // Where the state of others is hidden from our role, or commits return, none is known to be missing.
    let is_hidden = case.at("replication", node).any(|one| one.lines.word("state").is_empty())
        || case.gaps.iter().any(|gap| gap.node == node && gap.what == "sessions of other roles");
    let rate = |field: &str| case.one("server", node).and_then(|server| server.rate(field)).unwrap_or(0.0);
    let writes = rate("tup_inserted") + rate("tup_updated") + rate("tup_deleted");
    if is_hidden || writes > 0.0 && rate("xact_commit") > WATCHING_PER_S {
        return None;
    }
    let there = case
        .at("replication", node)
        .filter(|one| one.lines.word("state") == "streaming" && is_named(one.name))
        .filter(|one| is_there(one.lines.ticks.window().to_us))
        .count();
    (there < wanted.count).then(|| {
        format!(
            ": {} must confirm each commit (synchronous_standby_names = {value}), and {} of them {} connected, so that no commit returns",
            wanted.count,
            if there == 0 { "none".to_string() } else { format!("only {there}") },
            if there > 1 { "are" } else { "is" }
        )
    })
}

/// Transactions a second of monitoring.
const WATCHING_PER_S: f64 = 5.0;
/// A standby without a line for so long is away.
const AWAY_US: u64 = 4_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_of_the_setting_are_read() {
        let of = |value: &str| wanted(value).map(|wanted| (wanted.count, wanted.names.join(" ")));
        let is_quorum = |value: &str| wanted(value).map(|wanted| wanted.is_quorum);
        assert_eq!((is_quorum("any 1 (a, b)"), is_quorum("FIRST 1 (any1)")), (Some(true), Some(false)));
        assert_eq!(is_quorum("anywhere"), Some(false));
        assert_eq!(of("ANY 2 (*)"), Some((2, String::new())));
        assert_eq!(of("FIRST 1 (s1, \"S 2\")"), Some((1, "s1 S 2".to_string())));
        assert_eq!(of("2 (a,b,c)"), Some((2, "a b c".to_string())));
        assert_eq!(of("s1"), Some((1, "s1".to_string())));
        assert_eq!(of("a, b"), Some((1, "a b".to_string())));
        assert_eq!(of(""), None);
        assert_eq!(of("ANY x (a)"), None);
    }
}
