//! REP-11 of WAL that a standby does not get in time: it is not sent yet, or was sent and not flushed, and gets more all the time. The view of the primary is
//! enough for that.

use super::BEHIND_S;
use crate::case::{Case, Thing};
use crate::rule::Claim;
use crate::units;
use record::finding::{Level, Severity};

/// WAL that has not left the primary, or is not flushed on the standby: less is on its way.
const BYTES_MIN: f64 = 8.0 * 1024.0 * 1024.0;
/// By how much it is more at the end than at the beginning.
const GROWTH_MIN: f64 = 1.1;
/// Of all that is not replayed, from which on it is the reason.
const OF_ALL_MIN: f64 = 0.5;

const OF_LINK: &str = "find out what limits the connection between the two hosts: its bandwidth (a link between sites, a VPN, a quota of a cloud), packets \
    that are lost (retransmissions), or a standby that does not read; send less WAL: wal_compression = on, longer intervals between checkpoints, \
    fewer indexes. Until it catches up, a failover to it loses what it lacks";
const OF_DISK: &str = "look at the disk of the standby's WAL: it flushes more slowly than the primary writes (iostat on its host); until it catches up, a \
    failover to it loses what it lacks";

/// Claims about all standbys that get their WAL late.
pub(super) fn claims(case: &Case) -> Vec<Claim> {
    case.things("replication").filter_map(|standby| claim(case, &standby)).collect()
}

/// Whether a logical slot may be what sends: that is decoded first, and its consumer may be slow (REP-15).
fn is_logical(case: &Case, standby: &Thing<'_>) -> bool {
    let of_kind = |kind: &'static str| {
        case.at("slot", standby.place).filter(move |slot| slot.lines.word("kind") == kind)
    };
    let is_its = |slot: Thing<'_>| {
        slot.name == standby.name
            || slot.lines.flag("active") == Some(true) && of_kind("physical").next().is_none()
    };
    of_kind("logical").any(is_its)
}

/// Where it is that the WAL waits.
enum At {
    Primary,
    Disk,
}

fn claim(case: &Case, standby: &Thing<'_>) -> Option<Claim> {
    let lag = |field: &str| standby.lines.last(field).unwrap_or(0.0);
    let (unsent, unflushed) = (lag("sent_lag_bytes"), lag("flush_lag_bytes") - lag("write_lag_bytes"));
    let (field, at, bytes) = match unsent >= unflushed {
        true => ("sent_lag_bytes", At::Primary, unsent),
        false => ("flush_lag_bytes", At::Disk, unflushed),
    };
    let lag_s = lag("flush_lag_us") / 1e6;
    let series = standby.lines.series(field)?;
    let grows = series.last()? >= series.first()? * GROWTH_MIN && series.last()? > series.mean();
    let is_most = bytes >= lag("replay_lag_bytes") * OF_ALL_MIN;
    if bytes < BYTES_MIN || lag_s < BEHIND_S || !grows || !is_most || is_logical(case, standby) {
        return None;
    }
    let written = case.one("server", standby.place).and_then(|server| server.rate("wal_bytes"));
    let seconds = standby.lines.ticks.window().length_us() as f64 / 1e6;
    let growth = (series.last()? - series.first()?) / seconds.max(1.0);
    let (what, remedy) = match at {
        At::Primary => ("have not been sent to it yet", OF_LINK),
        At::Disk => ("have been written there and not flushed", OF_DISK),
    };
    let carried = written.map(|written| (written - growth).max(0.0));
    let rates = written.zip(carried).map_or(String::new(), |(written, carried)| {
        format!(
            ": {} of WAL are written a second, and it takes {}",
            units::bytes(written),
            units::bytes(carried)
        )
    });
    Some(
        Claim::new(
            Severity::Medium,
            Level::DiscriminatingCounter,
            format!(
                "{}: {} of WAL {what}, {} old and growing{rates}",
                standby.name,
                units::bytes(bytes),
                units::seconds(lag_s)
            ),
        )
        .on_node(standby.place)
        .during([standby.lines.ticks.window()])
        .number("late_bytes", bytes)
        .number("late_s", lag_s)
        .with(carried, |claim, carried| claim.number("carried_bytes_per_s", carried))
        .because(format!(
            "by pg_stat_replication of {}: {} not sent, {} not written there, {} not flushed, {} not replayed",
            standby.place,
            units::bytes(unsent),
            units::bytes(lag("write_lag_bytes")),
            units::bytes(lag("flush_lag_bytes")),
            units::bytes(lag("replay_lag_bytes"))
        ))
        .not("replay on the standby: nearly all that it has, it has replayed")
        .lacking("the link itself: packets that were sent again, and the bandwidth of a test between the two hosts (pgfathom check)")
        .remedy(
            remedy,
            &[
                "SELECT application_name, client_addr, state, pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), sent_lsn)) AS unsent, write_lag, flush_lag, \
                 replay_lag FROM pg_stat_replication;",
                "$ ss -tino '( sport = :5432 )' | grep -B1 -E 'retrans|unacked' # on the primary's host: its walsender's connection",
                "ALTER SYSTEM SET wal_compression = on; SELECT pg_reload_conf();",
            ],
        ),
    )
}
