//! Settings of the write-ahead log: checkpoints, what slots may keep, what is logged.

use crate::database::draft::{judged, note, pass, unknown, warn};
use crate::database::node::Node;
use crate::database::rule::{Check, Judged, Need};
use crate::database::setting::{size, size_within};
use record::check::{Area, Unit, Verdict};
use record::number;
use watch::sql::json;

/// More requested checkpoints than this share mean that max_wal_size is too small (the rule of pg_gather).
const REQUESTED_SHARE_MAX: f64 = 0.1;
/// Fewer checkpoints say nothing.
const CHECKPOINTS_MIN: f64 = 10.0;
/// Below this rate a measured moment does not show the load to come.
const WAL_RATE_MIN: f64 = 1_000_000.0;
/// Of the disk of the WAL: slots, archiving and the checkpoint under way need the rest.
const WAL_DISK_SHARE_MAX: f64 = 0.5;
/// The default since 14; before, half of the interval was used.
const COMPLETION_TARGET_MIN: f64 = 0.9;
/// What slots may keep if the disk is not known: enough for an hour at 30 MB/s.
const SLOT_KEEP_BYTES: f64 = 100.0 * 1024.0 * 1024.0 * 1024.0;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "settings.max_wal_size",
        area: Area::Settings,
        title: "max_wal_size against the WAL rate, the counted checkpoints and the disk",
        limits: "a checkpoint is forced before checkpoint_timeout at the WAL rate (planned, or measured above 1 MB/s); more than 10 % of at least 10 \
            checkpoints were requested (pg_gather); more than half of the WAL's disk",
        units: &[Unit::Bytes, Unit::Share],
        needs: &[Need::Primary],
        why: "a checkpoint that the WAL forces comes early, writes in a hurry and logs full pages again: latency peaks at its start",
        judge: max_wal_size,
    },
    Check {
        id: "settings.slot_limit",
        area: Area::Settings,
        title: "max_slot_wal_keep_size where replication slots exist",
        limits: "unlimited with at least one slot",
        units: &[Unit::Count],
        needs: &[Need::Since(130_000)],
        why: "a slot without a consumer keeps WAL until the disk is full and the server stops: two nodes of a cluster went down this way within \
            two hours",
        judge: slot_limit,
    },
    Check {
        id: "settings.wal_level",
        area: Area::Settings,
        title: "wal_level against the use of the WAL",
        limits: "minimal; logical without a logical slot or publication is a note",
        units: &[],
        needs: &[],
        why: "minimal allows no standby, no archive and no online base backup; logical writes more WAL for every update and delete (seen: up to 3x)",
        judge: wal_level,
    },
    Check {
        id: "settings.checkpoint_completion_target",
        area: Area::Settings,
        title: "checkpoint_completion_target",
        limits: "below 0.9, the default since PostgreSQL 14",
        units: &[Unit::Share],
        needs: &[],
        why: "a checkpoint that ends early leaves the disk idle for the rest of the interval and writes harder before",
        judge: completion_target,
    },
    Check {
        id: "settings.wal_compression",
        area: Area::Settings,
        title: "wal_compression",
        limits: "off is a note",
        units: &[],
        needs: &[],
        why: "full page images after a checkpoint are most of the WAL of random updates; compression costs CPU and saves WAL on disk and network",
        judge: compression,
    },
];

fn max_wal_size(node: &mut Node<'_>) -> Judged {
    let measured = node.rates()?;
    let counted = checkpoints(node)?;
    let setting = node.setting("max_wal_size")?;
    let (bytes, words) = (setting.bytes().unwrap_or(0.0), setting.words());
    let timeout_s = node.setting("checkpoint_timeout")?.seconds().unwrap_or(300.0);
    let target = node.setting("checkpoint_completion_target")?.number().unwrap_or(COMPLETION_TARGET_MIN);
    let mut drafts = Vec::new();
    if let Some(disk) = node.machine.wal_disk_bytes.filter(|disk| bytes > *disk as f64 * WAL_DISK_SHARE_MAX) {
        let most = disk as f64 * WAL_DISK_SHARE_MAX;
        let draft = judged(Verdict::Fail, "max_wal_size", format!("{words}; the disk of the WAL has {}", number::bytes(disk as f64)))
            .figure(bytes, Unit::Bytes)
            .at_most(most)
            .why("max_wal_size is a soft limit: slots, archiving and a slow checkpoint need space beside it, and a full disk stops the server")
            .advice("lower it, or give pg_wal a larger disk").run_all(setting.change(&size_within(most)));
        return Ok(vec![draft]);
    }
    let (rate, of) = match node.expected.wal_bytes_per_s {
        Some(planned) => (planned, "planned"),
        None => (measured.wal_bytes, "present"),
    };
    // The server begins a checkpoint so early that the WAL of two intervals fits: CalculateCheckpointSegments in xlog.c.
    let distance = bytes / (1.0 + target);
    if rate >= WAL_RATE_MIN && distance / rate < timeout_s {
        let needed = rate * timeout_s * (1.0 + target.max(COMPLETION_TARGET_MIN));
        let claim = format!(
            "{words}: at the {of} {}/s of WAL a checkpoint is forced every {}, before checkpoint_timeout ({})",
            number::bytes(rate),
            number::duration(distance / rate),
            number::duration(timeout_s)
        );
        let draft = warn("max_wal_size", claim)
            .figure(bytes, Unit::Bytes)
            .at_least(needed)
            .advice("raise it so that checkpoints begin by time; recovery after a crash takes longer")
            .run_all(setting.change(&size(needed)));
        drafts.push(draft);
    } else if let Some((requested, all, reset)) = counted
        && all >= CHECKPOINTS_MIN
        && requested / all > REQUESTED_SHARE_MAX
    {
        let claim = format!(
            "{words}: {} of {} checkpoints were requested and not timed",
            number::short(requested),
            number::short(all)
        );
        let draft = warn("max_wal_size", claim)
            .figure(requested / all, Unit::Share)
            .at_most(REQUESTED_SHARE_MAX)
            .advice(
                "double it, and count from zero; CHECKPOINT commands and base backups also count as \
                requested",
            )
            .run_all(setting.change(&size(bytes * 2.0)));
        drafts.push(draft.run(format!("SELECT pg_stat_reset_shared('{reset}');")));
    }
    if drafts.is_empty() {
        drafts.push(
            pass(format!("{words}; WAL rate now {}/s", number::bytes(measured.wal_bytes)))
                .figure(bytes, Unit::Bytes),
        );
    }
    Ok(drafts)
}

/// Requested checkpoints, all of them, and the name of their statistics.
fn checkpoints(node: &mut Node<'_>) -> Result<Option<(f64, f64, &'static str)>, watch::sql::session::Failed> {
    let (sql, reset) = if node.has_column("pg_catalog.pg_stat_checkpointer", "num_requested")? {
        (
            "select num_requested requested, num_timed timed from pg_catalog.pg_stat_checkpointer",
            "checkpointer",
        )
    } else if node.has_column("pg_catalog.pg_stat_bgwriter", "checkpoints_req")? {
        (
            "select checkpoints_req requested, checkpoints_timed timed from pg_catalog.pg_stat_bgwriter",
            "bgwriter",
        )
    } else {
        return Ok(None);
    };
    let row = node.row(sql)?;
    let requested = json::number(&row, "requested").unwrap_or(0.0);
    Ok(Some((requested, requested + json::number(&row, "timed").unwrap_or(0.0), reset)))
}

fn slot_limit(node: &mut Node<'_>) -> Judged {
    let slots = node.row("select count(*) n from pg_catalog.pg_replication_slots where not temporary")?;
    let slots = json::count(&slots, "n").unwrap_or(0);
    let setting = node.setting("max_slot_wal_keep_size")?;
    let is_unlimited = setting.number().is_some_and(|number| number < 0.0);
    if !is_unlimited || slots == 0 {
        return Ok(vec![pass(format!("{}; {}", setting.words(), number::counted(slots, "slot")))]);
    }
    let keep = node.machine.wal_free_bytes.map_or(SLOT_KEEP_BYTES, |free| free as f64 * WAL_DISK_SHARE_MAX);
    let draft = warn(
        "max_slot_wal_keep_size",
        format!(
            "{}: {} may keep WAL until the disk is full",
            setting.words(),
            number::counted(slots, "slot")
        ),
    )
    .figure(slots as f64, Unit::Count)
    .advice("set a limit, so that a slot is lost and not the server")
    .run_all(setting.change(&size_within(keep)));
    Ok(vec![draft])
}

fn wal_level(node: &mut Node<'_>) -> Judged {
    let used = node.row(
        "select (select count(*) from pg_catalog.pg_replication_slots where slot_type = 'logical') slots, (select count(*) from \
            pg_catalog.pg_publication) publications",
    )?;
    let used = json::count(&used, "slots").unwrap_or(0) + json::count(&used, "publications").unwrap_or(0);
    let setting = node.setting("wal_level")?;
    let draft = match setting.value.as_str() {
        "minimal" => warn("wal_level", setting.words())
            .advice("replica is the default")
            .run_all(setting.change("replica")),
        "logical" if used == 0 => {
            return Ok(vec![note(
                "wal_level",
                format!(
                    "{}; no logical slot of this server and no publication of this database uses it",
                    setting.words()
                ),
            )]);
        }
        _ => return Ok(vec![pass(setting.words())]),
    };
    Ok(vec![draft])
}

fn completion_target(node: &mut Node<'_>) -> Judged {
    let setting = node.setting("checkpoint_completion_target")?;
    let Some(value) = setting.number() else {
        return Ok(vec![unknown("not checked", "the value is no number")]);
    };
    if value >= COMPLETION_TARGET_MIN {
        return Ok(vec![pass(setting.words())]);
    }
    let draft = warn("checkpoint_completion_target", setting.words())
        .figure(value, Unit::Share)
        .at_least(COMPLETION_TARGET_MIN)
        .advice("spread the writes over the interval")
        .run_all(setting.change("0.9"));
    Ok(vec![draft])
}

fn compression(node: &mut Node<'_>) -> Judged {
    let setting = node.setting("wal_compression")?;
    if setting.value != "off" {
        return Ok(vec![pass(setting.words())]);
    }
    let draft = note("wal_compression", setting.words())
        .advice("try it with your load: it pays where WAL, archive or network are the limit")
        .run_all(setting.change("on"));
    Ok(vec![draft])
}
