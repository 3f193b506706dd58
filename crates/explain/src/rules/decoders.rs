//! REP-17: several logical slots, each of which decodes all of the WAL.

use crate::case::{Case, Thing};
use crate::rule::Need::{Field, Looked};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, Severity};

pub(super) const RULES: &[Rule] = &[Rule {
    id: "REP-17",
    title: "several logical slots decode the same WAL",
    needs: &[Looked("slot"), Field("backend", "cpu_us")],
    limits: "three logical slots or more in use, whose walsenders use 0.3 CPUs together; high if that is a quarter of the host (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/logicaldecoding-explanation.html"],
}];

/// Slots in use.
const SLOTS_MIN: usize = 3;
/// CPUs of their walsenders together.
const CPUS_MIN: f64 = 0.3;
/// The same, of those of the host.
const OF_HOST_HIGH: f64 = 0.25;

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for node in case.nodes() {
        let is_in_use = |slot: &Thing<'_>| {
            slot.lines.word("kind") == "logical" && slot.lines.flag("active") == Some(true)
        };
        let slots: Vec<Thing<'_>> = case.at("slot", node).filter(is_in_use).collect();
        let is_sender =
            |one: &Thing<'_>| one.lines.word("backend") == "walsender" && one.lines.word("node") == node;
        let senders: Vec<Thing<'_>> = case.things("backend").filter(is_sender).collect();
        let cpus: f64 = senders.iter().filter_map(|one| one.lines.rate("cpu_us")).sum::<f64>() / 1e6;
        let Some(slot) = slots.first().filter(|_| slots.len() >= SLOTS_MIN && cpus >= CPUS_MIN) else {
            continue;
        };
        let of_host = case.host_of(node).and_then(|host| case.one("host", host)?.last("cores"));
        let is_high = of_host.is_some_and(|all| cpus >= all * OF_HOST_HIGH);
        claims.push(
            Claim::new(
                if is_high { Severity::High } else { Severity::Medium },
                Level::DiscriminatingCounter,
                format!(
                    "{node}: {} logical slots are read at once, and each has a walsender that decodes all of the WAL, whatever it passes on: together \
                     they use {} CPUs",
                    slots.len(),
                    units::short(cpus)
                ),
            )
            .on_node(node)
            .during([slot.lines.ticks.window()])
            .number("slots", slots.len() as f64)
            .number("cpus", cpus)
            .because(format!(
                "the slots: {}",
                super::costly::plain(&slots.iter().map(|slot| slot.name).collect::<Vec<_>>().join(", "), 160)
            ))
            .because("a publication or a filter of the output plugin leaves changes out only after they have been decoded")
            .remedy(
                "let one slot feed a queue from which all services read, instead of one slot for each; or decode on a standby (PostgreSQL 16 and later)",
                &["SELECT slot_name, plugin, database, active_pid, confirmed_flush_lsn FROM pg_replication_slots WHERE slot_type = 'logical' ORDER BY 1;"],
            ),
        );
    }
    Answer::of(claims, || "logical slots in use, and the CPU time of their walsenders".to_string())
}
