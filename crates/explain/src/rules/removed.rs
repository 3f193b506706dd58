//! REP-19: a standby, or a subscriber, asks its primary for WAL that is no longer there.

use super::costly::plain;
use crate::case::{Case, Thing};
use crate::rule::Need::Facts;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::event::{self, Event};
use record::finding::{Level, Severity};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "REP-19",
    title: "a standby asks for WAL that the primary has removed",
    needs: &[Facts("setting")],
    limits: "a line of the primary's log that a requested segment has already been removed (walsender.c)",
    judge,
    links: &["https://www.postgresql.org/docs/current/warm-standby.html#STREAMING-REPLICATION-SLOTS"],
}];

/// What the primary writes for each attempt of the standby (`WalSndSegmentOpen` in walsender.c).
const REMOVED: &str = "has already been removed";
/// Characters of the line.
const LINE_CHARS: usize = 160;

/// The lines of a server that streams to others, and not of one that receives: that one has REP-11.
fn refused<'a>(case: &'a Case, server: &Thing<'_>) -> Vec<&'a Event> {
    let is_its = |event: &&Event| {
        Case::word_of(event, "node") == server.place
            && event.message.contains(REMOVED)
            && event.message.starts_with("requested WAL segment")
    };
    case.events_of(event::SERVER_LOG).filter(is_its).collect()
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for server in case.things("server").filter(|server| server.lines.flag("in_recovery") != Some(true)) {
        let lines = refused(case, &server);
        let Some(last) = lines.last() else { continue };
        let kept = case.setting(server.place, "wal_keep_size");
        let times: f64 = lines.iter().map(|event| event.times()).sum();
        claims.push(
            Claim::new(
                Severity::High,
                Level::DiscriminatingCounter,
                format!(
                    "{}: a standby asks for WAL that is no longer there ({}): it can never catch up by streaming, and gets older all the time",
                    server.place,
                    plain(&last.message, LINE_CHARS)
                ),
            )
            .on_node(server.place)
            .during([server.lines.ticks.window()])
            .number("times", times)
            .because(format!("the server's log has it {}", units::counted(times as usize, "time")))
            .with(kept, |claim, kept| claim.because(format!("wal_keep_size is {kept}; a slot keeps what its standby has not received")))
            .not("a slow network or standby: what is missing is not sent")
            .lacking("which standby: its own log has the same line; log_connections = on shows its address")
            .remedy(
                "give the standby the segments from an archive (restore_command), or make it anew; before that give it a replication slot, so that the primary \
                 keeps what it needs, with a limit (max_slot_wal_keep_size)",
                &[
                    "SELECT slot_name, active, restart_lsn, wal_status FROM pg_replication_slots WHERE slot_type = 'physical';",
                    "SELECT pg_create_physical_replication_slot('standby_1', true); -- then primary_slot_name = 'standby_1' on the standby",
                    "$ pg_basebackup -h PRIMARY -D NEW_DATA_DIRECTORY -R -S standby_1 -X stream -P",
                ],
            ),
        );
    }
    Answer::of(claims, || "lines of the primaries' logs about WAL that was removed".to_string())
}
