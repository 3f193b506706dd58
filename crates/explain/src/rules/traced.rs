//! CPU-08: processes of the server that a tracer stops at each of their system calls, or that a signal has stopped. No view of the server shows it: they count
//! as computing, or as waiting for what they waited for when it happened.

use super::costly::plain;
use crate::case::{Case, Thing};
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::finding::{Level, Severity};
use std::collections::BTreeSet;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "CPU-08",
    title: "processes of the server are traced or stopped",
    needs: &[Field("backend", "stopped")],
    limits: "a process is found stopped (state t or T) at 3 looks or more, and at a tenth of them; high for a third of the sessions' processes, for \
        one that is \
        stopped by a signal for 5 s, and for any that others may wait for: one at work without a session (ours)",
    judge,
    links: &["https://man7.org/linux/man-pages/man2/ptrace.2.html"],
}];

/// Looks at which a process is found stopped, and their share.
const LOOKS_MIN: f64 = 3.0;
const LOOKS_SHARE_MIN: f64 = 0.1;
/// Of the processes of sessions, those that are traced.
const TRACED_HIGH: f64 = 0.3;
/// Seconds that a process is stopped by a signal.
const STOPPED_HIGH_S: f64 = 5.0;
/// A process that is stopped all the time is seen like that in nearly each look.
const STANDS_MIN: f64 = 0.9;
/// Characters of a program's name.
const NAME_CHARS: usize = 60;
/// What a session's process is called.
const SESSION: &str = "client backend";

fn judge(case: &Case) -> Answer {
    let claims = case.nodes().into_iter().filter_map(|node| of_node(case, node)).collect();
    Answer::of(claims, || "processes of the servers that were stopped when they were looked at".to_string())
}

/// A process with the looks that found it stopped.
struct Stopped<'a> {
    process: Thing<'a>,
    looks: f64,
    share: f64,
}

fn stopped(process: Thing<'_>) -> Option<Stopped<'_>> {
    let series = process.lines.series("stopped")?;
    let looks = series.sum();
    let share = looks / (series.readings() as f64).max(1.0);
    (looks >= LOOKS_MIN && share >= LOOKS_SHARE_MIN).then_some(Stopped { process, looks, share })
}

fn of_node(case: &Case, node: &str) -> Option<Claim> {
    let its = || case.things("backend").filter(|process| process.lines.word("node") == node);
    let is_session = |process: &Thing<'_>| process.lines.word("backend") == SESSION;
    let all = its().filter(|process| is_session(process)).count();
    let found: Vec<Stopped<'_>> = its().filter_map(stopped).collect();
    let worst = found.iter().max_by(|left, right| left.looks.total_cmp(&right.looks))?;
    let tracers: BTreeSet<&str> =
        found.iter().map(|one| one.process.lines.word("tracer")).filter(|name| !name.is_empty()).collect();
    let tracers = tracers.into_iter().collect::<Vec<_>>().join(", ");
    let sessions = found.iter().filter(|one| is_session(&one.process)).count();
    let window = worst.process.lines.ticks.window();
    let stopped_s = window.length_us() as f64 / 1e6 * worst.share;
    let is_signal = tracers.is_empty();
    let is_high = match is_signal {
        true => stopped_s >= STOPPED_HIGH_S || sessions < found.len(),
        false => sessions as f64 >= all as f64 * TRACED_HIGH || sessions < found.len(),
    };
    let how = match (is_signal, worst.share >= STANDS_MIN) {
        (true, _) => "a signal has stopped them (SIGSTOP), and they go on only after another one (SIGCONT): whatever locks they hold stay held".to_string(),
        (false, true) => format!("{} holds them, as a debugger does at a breakpoint: whatever locks they hold stay held", plain(&tracers, NAME_CHARS)),
        (false, false) => format!("{} stops them at each system call to report it, and they take many times longer", plain(&tracers, NAME_CHARS)),
    };
    let claim = Claim::new(
        if is_high { Severity::High } else { Severity::Medium },
        Level::DiscriminatingCounter,
        format!(
            "{node}: {} of the server {} found stopped, one of them in {} of the looks: {how}",
            units::counted(found.len(), "process"),
            if found.len() == 1 { "is" } else { "are" },
            units::percent(worst.share)
        ),
    )
    .on_node(node)
    .on_host(worst.process.place)
    .during(worst.process.lines.series("stopped")?.stretches(0, |point| point.sum > 0.0))
    .number("processes", found.len() as f64)
    .number("stopped_share", worst.share)
    .because(format!(
        "by the state of the processes in /proc (T: by a signal, t: by a tracer): {}, in {} looks",
        worst.process.name,
        units::short(worst.looks)
    ))
    .because("the server's views do not know it: such a session counts as active without a wait, or with the wait that it had before");
    let pid = worst.process.name.rsplit(' ').next().unwrap_or_default();
    let go_on = format!("$ kill -CONT {pid}");
    let of_signal = [go_on.as_str(), "$ ps -eo pid,ppid,stat,lstart,args | awk '$3 ~ /^[Tt]/'"];
    let of_tracer = [
        "$ for p in $(pgrep -x postgres); do grep -H TracerPid /proc/$p/status; done | awk '$2 != 0'",
        "$ ps -eo pid,ppid,user,lstart,args | grep -E '[s]trace|[g]db|[l]trace'",
    ];
    Some(match is_signal {
        true => claim.remedy("find out who stopped them and why; let them go on, or end their sessions", &of_signal),
        false => claim.remedy(
            "end the tracer (SIGINT lets go of what it traces); perf and eBPF look at a server in use without stopping it",
            &of_tracer,
        ),
    })
}
