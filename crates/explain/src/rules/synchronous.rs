//! REP-01: commits that wait for synchronous standbys, how many of these a server wants, and how many stream from it.

use crate::case::{Case, Thing};
use crate::decompose;
use crate::rule::Need::Looked;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use crate::waits::Who;
use record::finding::{Level, Severity};

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
        let mut claim = Claim::new(
            if share >= SYNC_SHARE_HIGH { Severity::High } else { Severity::Medium },
            Level::DiscriminatingCounter,
            format!(
                "{node}: {} of the active sessions wait for synchronous standbys{}",
                units::percent(share),
                shortage(case, node).unwrap_or_default()
            ),
        )
        .on_node(node)
        .during(waits.windows(Who::Client, is_sync))
        .number("sync_share", share)
        .of_client_time(decompose::share_of(case, is_sync));
        let mode = case.setting(node, "synchronous_commit").unwrap_or("on");
        let is_waited_for =
            |standby: &Thing<'_>| matches!(standby.lines.word("sync_state"), "sync" | "quorum");
        for standby in case.at("replication", node).filter(is_waited_for) {
            claim = with_delay(claim, &standby, mode);
        }
        let names: Vec<String> = case
            .at("replication", node)
            .filter(|standby| !standby.name.is_empty())
            .filter(|standby| matches!(standby.lines.word("sync_state"), "sync" | "quorum" | "potential"))
            .map(|standby| format!("\"{}\"", standby.name.replace(['"', '\''], "")))
            .collect();
        let any = format!(
            "ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 ({})'; SELECT pg_reload_conf();",
            names.join(", ")
        );
        let mut commands = vec![weaker_commit(mode)];
        let is_short = shortage(case, node).is_some();
        if is_short {
            commands.insert(0, NONE_LEFT);
        }
        if names.len() > 1 || is_short && !names.is_empty() {
            commands.insert(0, &any);
        }
        claims.push(claim.because(format!("synchronous_commit is {mode}")).remedy(
            "use a weaker synchronous_commit (remote_write or on instead of remote_apply), wait for any one of several standbys, or give them a \
                faster disk for the WAL",
            &commands,
        ));
    }
    Answer::of(claims, || "what active sessions waited for".to_string())
}

/// What lets commits return where no standby is left that could confirm them.
const NONE_LEFT: &str = "ALTER SYSTEM SET synchronous_standby_names = ''; SELECT pg_reload_conf(); -- commits wait for no standby until one is back: what is \
    committed meanwhile is on this server alone";

/// The next weaker level of `synchronous_commit` at which a standby still confirms.
pub(super) fn weaker_commit(mode: &str) -> &'static str {
    match mode {
        "remote_apply" => {
            "ALTER SYSTEM SET synchronous_commit = 'on'; SELECT pg_reload_conf(); -- reads of a standby may then miss a commit"
        }
        _ => {
            "ALTER SYSTEM SET synchronous_commit = 'remote_write'; SELECT pg_reload_conf(); -- a commit may be lost if both hosts crash"
        }
    }
}

/// Adds where a standby takes its time: the network, its disk, or replay.
fn with_delay(claim: Claim, standby: &Thing<'_>, mode: &str) -> Claim {
    let lag = |field: &str| standby.lines.mean(field).unwrap_or(0.0);
    let (write, flush, replay) = (lag("write_lag_us"), lag("flush_lag_us"), lag("replay_lag_us"));
    let stages = [
        ("the network and writing there", write),
        ("flushing there", flush - write),
        ("replaying there", replay - flush),
    ];
    let detail = stages
        .iter()
        .filter(|(name, _)| mode == "remote_apply" || *name != "replaying there")
        .max_by(|left, right| left.1.total_cmp(&right.1));
    claim.number("write_lag_us", write).number("flush_lag_us", flush).number("replay_lag_us", replay).with(
        detail,
        |claim, (name, us)| {
            claim.because(format!(
                "standby {}: most of the delay is {name}, {}",
                standby.name,
                units::us(*us)
            ))
        },
    )
}

/// What `synchronous_standby_names` asks for (`syncrep_gram.y`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    /// Standbys that have to confirm.
    pub(super) count: usize,
    /// Names of which they are; empty for `*`.
    names: Vec<String>,
}

/// Reads a value of `synchronous_standby_names`; `None` if it is empty or has another form.
pub(super) fn wanted(value: &str) -> Option<Wanted> {
    let value = value.trim();
    let (count, list) = match value.split_once('(') {
        Some((before, list)) => {
            let number = before.split_whitespace().last()?;
            (number.parse().ok()?, list.strip_suffix(')')?)
        }
        None => (1, value),
    };
    let names: Vec<String> = list.split(',').map(|name| name.trim().trim_matches('"').to_string()).collect();
    if names.iter().any(String::is_empty) {
        return None;
    }
    let is_any = names.iter().any(|name| name == "*");
    Some(Wanted { count, names: if is_any { vec![] } else { names } })
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
        assert_eq!(of("ANY 2 (*)"), Some((2, String::new())));
        assert_eq!(of("FIRST 1 (s1, \"S 2\")"), Some((1, "s1 S 2".to_string())));
        assert_eq!(of("2 (a,b,c)"), Some((2, "a b c".to_string())));
        assert_eq!(of("s1"), Some((1, "s1".to_string())));
        assert_eq!(of("a, b"), Some((1, "a b".to_string())));
        assert_eq!(of(""), None);
        assert_eq!(of("ANY x (a)"), None);
    }
}
