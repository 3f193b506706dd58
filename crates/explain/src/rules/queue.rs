//! SES, CPU: sessions that could compute and have no CPU, by the scheduler's account of their processes: because other programs use the CPUs, because there
//! are too many sessions, or because something keeps the server from CPUs that are idle.

mod backup;
mod priority;

use super::bursts;
use super::costly::{busy, severity};
use crate::case::{Case, Thing};
use crate::node_time;
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Need, Rule};
use crate::units;
use record::finding::{Level, NodePart, NodeTime, Severity};
use record::watched::ENDED;

/// What all of them read.
const NEEDS: &[Need] = &[Field("schedule", "wait_us"), Field("host", "cpu_user_pct"), Field("host", "cores")];

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "SES-02",
        title: "sessions wait for CPUs that other programs use",
        needs: NEEDS,
        limits: "25 % of the session time is spent waiting for a CPU, or 15 % where other programs leave no CPU idle and use twice what the sessions do; \
            other programs use 40 % of the host's CPUs, \
            and at least three quarters of what the sessions use; or programs that are no clients, by their names, 30 % and half; low if clients on the \
             same host use that much, or with less than 0.3 waiting sessions, not high below one (ours)",
        judge: crowded,
        links: &["docs/explain.md"],
    },
    Rule {
        id: "SES-03",
        title: "more sessions are active than the CPUs can serve",
        needs: NEEDS,
        limits: "half of the session time is spent waiting for a CPU; 8 sessions per CPU are active, and the sessions use 60 % of the CPUs (ours)",
        judge: too_many,
        links: &[
            "https://www.postgresql.org/docs/current/runtime-config-connection.html#GUC-MAX-CONNECTIONS",
        ],
    },
    Rule {
        id: "SES-17",
        title: "a base backup computes while sessions wait for a CPU",
        needs: NEEDS,
        limits: "a base backup in 30 % of the looks, whose walsender uses 15 % of the host's CPUs, and 20 % of the session time spent waiting for a CPU; \
            not high below one waiting session (ours)",
        judge: backup::judge,
        links: &["https://www.postgresql.org/docs/current/app-pgbasebackup.html"],
    },
    Rule {
        id: "CPU-06",
        title: "a limit keeps sessions from the CPUs",
        needs: NEEDS,
        limits: "40 % of the session time waiting for a CPU, and half as much again as on one, while 35 % of the host's CPUs are idle and half \
            a session waits on average; or 25 %, with \
            the control group's quota used up in 10 % of the periods, or with a nice value of 5 and more (without \
            sched_autogroup_enabled), or the policy idle, beside other programs (ours)",
        judge: limited,
        links: &["https://docs.kernel.org/scheduler/sched-bwc.html"],
    },
];

/// From so many sessions a second on, the CPU time of processes that no sample has may be theirs.
const OPENED_PER_S_MAX: f64 = 5.0;
/// The share of the time waiting for a CPU.
const QUEUE_SHARE_MIN: f64 = 0.25;
/// The same where others have the host nearly for themselves: who holds a lock then waits for a CPU as well, and the others wait for the lock.
const DISPLACED_SHARE_MIN: f64 = 0.15;
const DISPLACED_PER_SERVER_MIN: f64 = 2.0;
const DISPLACED_IDLE_SHARE_MAX: f64 = 0.1;
/// The share of the host's CPUs that others use.
const OTHERS_SHARE_MIN: f64 = 0.4;
/// What others use, against what the sessions use: a client on the same host uses less.
const OTHERS_PER_SERVER_MIN: f64 = 0.75;
/// The same for programs whose names show that they are no clients of the server.
const NAMED_SHARE_MIN: f64 = 0.3;
const NAMED_PER_SERVER_MIN: f64 = 0.5;
/// Programs that are named.
const NAMED_MAX: usize = 3;
/// Of the CPUs that others used by the host's account, the part that programs were seen to use.
const EXPLAINED_MIN: f64 = 0.5;
/// Programs that are written for driving a server.
const OURS: [&str; 3] = ["pgfathom", "pgbench", "psql"];
/// The processes of the server itself are not among the programs, so this is another one, a neighbour; in recordings that do not count its ended processes it
/// may be the server, which was not known at once.
const SERVER: &str = "postgres";
/// The share of the time waiting for a CPU with too many sessions.
const TOO_MANY_SHARE_MIN: f64 = 0.5;
/// Active sessions for each CPU.
const ACTIVE_PER_CPU_MAX: f64 = 8.0;
/// The share of the CPUs that the sessions then use.
const OWN_SHARE_MIN: f64 = 0.6;
/// The share of the time waiting for a CPU while CPUs are idle.
const LIMITED_SHARE_MIN: f64 = 0.4;
/// Waiting for a CPU, against the time on one. Arrivals at random wait for less at this load: in the queue of two servers that are busy for 65 % of the
/// time, 0.73 times as long as they are served.
const WAIT_PER_RUN_MIN: f64 = 1.5;
/// The share of the periods in which the quota of a control group was used up.
const THROTTLED_SHARE_MIN: f64 = 0.1;
/// The share of the host's CPUs that are idle.
const IDLE_SHARE_MIN: f64 = 0.35;

/// A node's sessions on the CPUs of its host.
struct Queue<'a> {
    /// The time of the sessions in which they had no CPU.
    waiting: &'a NodePart,
    host: &'a str,
    /// CPUs used by other programs that are no clients of the server.
    others: f64,
    /// CPUs used by clients on the same host.
    clients: f64,
    /// CPUs used by the sessions.
    own: f64,
    /// CPUs of the host that nothing used.
    idle: f64,
    cores: f64,
}

/// `None` if the scheduler was not read.
fn queue<'a>(case: &'a Case, time: &'a NodeTime) -> Option<Queue<'a>> {
    let waiting = time.parts.iter().find(|part| part.name == node_time::FOR_CPU)?;
    let backends = case.at("schedule", &time.node).find(|thing| thing.name == "backends")?;
    let host = backends.lines.word("host");
    let lines = case.one("host", host)?;
    let cores = lines.last("cores").filter(|cores| *cores > 0.0)?;
    let cpus =
        |fields: &[&str]| fields.iter().filter_map(|field| lines.mean(field)).sum::<f64>() / 100.0 * cores;
    let used = cpus(&["cpu_user_pct", "cpu_system_pct", "cpu_softirq_pct"]);
    // A CPU that the hypervisor gave away is not idle; one that waits for a disk is.
    let idle = (cores - used - cpus(&["cpu_steal_pct"])).max(0.0);
    let sessions: f64 = case
        .things("schedule")
        .filter(|thing| thing.lines.word("host") == host && matches!(thing.name, "backends" | "client"))
        .filter_map(|thing| used_by(&thing))
        .sum();
    let background: f64 = case
        .things("backend")
        .filter(|thing| thing.place == host && thing.lines.word("backend") != "client backend")
        .filter_map(|thing| thing.lines.rate("cpu_us"))
        .sum();
    let clients: f64 = case.other_programs(host).map(|program| of_clients(case, &time.node, &program)).sum();
    // Threads of our own client are subtracted already: its process is a client as well.
    let own_client: f64 = case
        .things("schedule")
        .filter(|thing| thing.lines.word("host") == host && thing.name == "client")
        .filter_map(|thing| used_by(&thing))
        .sum();
    let clients = (clients - own_client).max(0.0);
    // Where the program's own account has more than its sessions that were sampled, the rest are sessions, too.
    let of_program = case
        .at("program", host)
        .filter(|program| case.is_of_nodes(host, program.name))
        .filter_map(|program| program.lines.rate("cpu_us"))
        .sum::<f64>();
    // Parallel workers of a quarter of a second, and sessions of one request, end between two looks: the server's process has what they used.
    let ended_us = |who: &Thing<'_>| who.lines.rate("ended_us").unwrap_or(0.0);
    let ended: f64 = case
        .things("schedule")
        .filter(|thing| thing.lines.word("host") == host && thing.name == "backends")
        .map(|thing| ended_us(&thing))
        .sum();
    let of_lines: f64 = case
        .things("backend")
        .filter(|thing| thing.place == host && thing.lines.word("backend") == ENDED)
        .filter_map(|thing| thing.lines.rate("cpu_us"))
        .sum();
    let ended = (ended - of_lines).max(0.0) / 1e6;
    let of_servers = (sessions - own_client + background / 1e6 + ended).max(of_program / 1e6);
    let own = used_by(&backends)? + ended_us(&backends) / 1e6;
    let others = used - own_client - of_servers - clients;
    Some(Queue { waiting, host, others, clients, own, idle, cores })
}

/// Whether the record has the processes of servers that began and ended between two looks.
fn counts_ended(case: &Case) -> bool {
    case.things("backend").any(|one| one.lines.word("backend") == ENDED)
}

/// Whether a program is a client of the node by its name: one for driving servers, or the name that sessions give.
fn is_client(case: &Case, node: &str, name: &str) -> bool {
    let is_its = |group: Thing<'_>| !name.is_empty() && group.lines.word("application").starts_with(name);
    OURS.iter().any(|own| name.starts_with(own)) || case.at("activity", node).any(is_its)
}

/// CPUs that processes of a program use which are clients of the server, by its name or by their connections.
fn of_clients(case: &Case, node: &str, program: &Thing<'_>) -> f64 {
    let counted = program.lines.rate("client_cpu_us");
    // Applications that begin with the same letters, as postgres_fdw does, are the server's own sessions.
    let is_by_name = match program.name {
        SERVER => counted.is_none() && !counts_ended(case),
        name => is_client(case, node, name),
    };
    let cpu_us = if is_by_name { program.lines.rate("cpu_us") } else { counted };
    cpu_us.unwrap_or(0.0) / 1e6
}

/// Programs of a host that are no clients of the node, and the CPUs they use, the largest first.
fn neighbours<'a>(case: &'a Case, node: &str, host: &'a str) -> Vec<(&'a str, f64)> {
    let others = |program: Thing<'a>| {
        let all = program.lines.rate("cpu_us").unwrap_or(0.0) / 1e6;
        (program.name, (all - of_clients(case, node, &program)).max(0.0))
    };
    let mut found: Vec<(&str, f64)> =
        case.other_programs(host).map(others).filter(|(_, cpus)| *cpus > 0.0).collect();
    found.sort_by(|left, right| right.1.total_cmp(&left.1));
    found
}

/// CPUs used by a group of tasks; those that were read represent the others.
fn used_by(tasks: &Thing<'_>) -> Option<f64> {
    let all = tasks.lines.mean("tasks")? / tasks.lines.mean("looked")?.max(1.0);
    Some(tasks.lines.rate("run_us")? / 1e6 * all.max(1.0))
}

/// Sessions that are opened each second at the servers of a host.
fn opened_per_s(case: &Case, host: &str) -> f64 {
    case.things("server")
        .filter(|server| case.host_of(server.place) == Some(host))
        .filter_map(|server| server.lines.rate("sessions_opened"))
        .sum()
}

/// Looks in which a base backup runs, of all.
const BACKUP_LOOKS_MIN: f64 = 0.3;
/// What to do about backups, and about other programs.
const LATER: &str = "take backups at a quiet hour or from a standby, slowly (--max-rate), and let the receiver compress (--compress=client-...)";
const MOVE: &str = "find the programs, and move them to another host or give them a lower weight";
/// What shows programs.
const PROGRAMS: [&str; 2] = ["$ top -b -n 1 -o %CPU | head -n 20", "$ systemd-cgtop -n 1 --cpu=percentage"];
/// What shows base backups.
const BACKUPS: [&str; 2] = [
    "SELECT p.pid, a.application_name, a.client_addr, a.backend_start, p.phase FROM pg_stat_progress_basebackup p JOIN pg_stat_activity a USING (pid);",
    "$ top -b -n 1 -o %CPU | head -n 20",
];

/// The share of the looks in which base backups ran, if they are many.
fn backups(case: &Case, node: &str) -> Option<f64> {
    let running = case.at("progress", node).filter(|progress| progress.lines.word("command") == "basebackup");
    let seen: f64 = running.map(|progress| progress.lines.ticks.points().len() as f64).sum();
    let looks = case.looks(node, &[case.span]);
    (looks > 0.0 && seen >= looks * BACKUP_LOOKS_MIN).then(|| (seen / looks).min(1.0))
}

/// Which CPUs are not the server's: other programs can use no more than those that were seen.
fn used_by_others(host: &str, list: &[String], counted: f64, cores: f64, is_unnamed: bool) -> String {
    let (counted, cores) = (units::short(counted), units::short(cores));
    match list.join(", ") {
        list if is_unnamed => format!(
            "{counted} of the {cores} CPUs of {host} are used by what is neither a session nor a program that was seen ({list}): threads of the kernel (it \
             writes what the server wrote), interrupts, or processes that live for less than a look"
        ),
        list if list.is_empty() => format!("other programs use {counted} of the {cores} CPUs of {host}"),
        list => format!("other programs use {counted} of the {cores} CPUs of {host} ({list})"),
    }
}

/// Sessions that wait for a CPU, on average, below which that is low, and below which it is not high: on a host that is full each single session waits.
const WAITING_LOW: f64 = 0.3;
const WAITING_MEDIUM: f64 = 1.0;

/// How much it matters at most that so many sessions wait.
fn most_of(sessions: f64) -> Severity {
    match sessions {
        few if few < WAITING_LOW => Severity::Low,
        few if few < WAITING_MEDIUM => Severity::Medium,
        _ => Severity::High,
    }
}

/// What SES-02 reports of a node: `named` are the programs that were seen, `counted` the CPUs that are others'.
fn of_others(
    case: &Case,
    node: &str,
    queue: &Queue<'_>,
    named: &[(&str, f64)],
    (counted, is_by_name): (f64, bool),
) -> Claim {
    let Queue { waiting, host, others, own, cores, .. } = *queue;
    let backups = backups(case, node);
    let of_named: f64 = named.iter().map(|(_, cpus)| cpus).sum();
    // The kernel's own threads, the server's collector of logs and processes that end within a look may be the rest.
    let is_unnamed = !named.is_empty() && of_named < others * EXPLAINED_MIN && !is_by_name;
    let words = |(name, cpus): &(&str, f64)| {
        let of = if *name == SERVER { " of other clusters" } else { "" };
        format!("{name}{of} {}", units::short(*cpus))
    };
    let list: Vec<String> = named.iter().take(NAMED_MAX).map(words).collect();
    Claim::new(
        if is_unnamed { Severity::Low } else { severity(waiting.share).min(most_of(waiting.sessions)) },
        Level::DiscriminatingCounter,
        format!(
            "{node}: sessions wait for a CPU in {} of their time ({} sessions on average), while {}{}",
            units::percent(waiting.share),
            units::short(waiting.sessions),
            if backups.is_some() { "base backups run (pg_basebackup) and " } else { "" },
            used_by_others(host, &list, counted, cores, is_unnamed)
        ),
    )
    .on_node(node)
    .on_host(host)
    .during(case.one("host", host).map(|host| host.ticks.window()))
    .number("share", waiting.share)
    .number("cpus_of_others", others)
    .number("cpus_of_sessions", own)
    .because(format!(
        "the scheduler's counters: the sessions used {} CPUs, and waited for {} more",
        units::short(own),
        units::short(waiting.sessions)
    ))
    .not("the server's own load alone: what its processes and this client used is subtracted")
    .with(backups, |claim, share| {
        claim.number("looks_with_backups", share).because(format!(
            "pg_stat_progress_basebackup: a base backup runs in {} of the looks; its walsender reads all files, and may compress them",
            units::percent(share)
        ))
    })
    .with(is_unnamed.then_some(of_named), |claim, named| {
        claim.lacking(format!("which processes: the programs that were seen use {} CPUs of these", units::short(named)))
    })
    .with(list.is_empty().then_some(()), |claim, ()| claim.lacking("the names of the programs: look for them while they run"))
    .remedy(if backups.is_some() { LATER } else { MOVE }, if backups.is_some() { &BACKUPS } else { &PROGRAMS })
}

fn crowded(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let Some(queue) = queue(case, time) else { continue };
        let Queue { waiting, host, others, own, cores, .. } = queue;
        let named = neighbours(case, &time.node, host);
        let of_named: f64 = named.iter().map(|(_, cpus)| cpus).sum();
        // Processes that live for less than a sample are in no sample: those of sessions that are opened again and again are the server's.
        let is_churned = opened_per_s(case, host) >= OPENED_PER_S_MAX;
        // What no program explains are processes that lived for less than a look, as parallel workers of the server do. Those of the server may be counted.
        let is_explained = named.is_empty() || counts_ended(case) || of_named >= others * EXPLAINED_MIN;
        let is_much = !is_churned
            && is_explained
            && others >= cores * OTHERS_SHARE_MIN
            && others >= own * OTHERS_PER_SERVER_MIN;
        // Programs and the host's account contradict each other where the sessions' CPU was read too high.
        let is_much_by_name = of_named >= cores * NAMED_SHARE_MIN
            && of_named >= own * NAMED_PER_SERVER_MIN
            && others >= of_named * EXPLAINED_MIN;
        let is_displaced =
            others >= own * DISPLACED_PER_SERVER_MIN && queue.idle <= cores * DISPLACED_IDLE_SHARE_MAX;
        if waiting.share < if is_displaced { DISPLACED_SHARE_MIN } else { QUEUE_SHARE_MIN } {
            continue;
        }
        if !(is_much || is_much_by_name) {
            claims.extend(clients_beside(case, &time.node, &queue));
            continue;
        }
        let counted = if is_churned { of_named } else { others };
        claims.push(of_others(case, &time.node, &queue, &named, (counted, is_much_by_name)));
    }
    Answer::of(claims, || "waiting for a CPU, and what other programs used".to_string())
}

/// Clients on the server's own host are part of the load, and they take as much of its CPUs as any neighbour does.
fn clients_beside(case: &Case, node: &str, queue: &Queue<'_>) -> Option<Claim> {
    let Queue { waiting, host, clients, own, cores, .. } = *queue;
    if clients < cores * OTHERS_SHARE_MIN || clients < own * OTHERS_PER_SERVER_MIN {
        return None;
    }
    let rate = |program: &Thing<'_>| of_clients(case, node, program);
    let most = case.other_programs(host).max_by(|left, right| rate(left).total_cmp(&rate(right)))?;
    let text = format!(
        "{node}: sessions wait for a CPU in {} of their time, while the server's clients on the same host use {} of the {} CPUs of {host}, {} most of all",
        units::percent(waiting.share),
        units::short(clients),
        units::short(cores),
        most.name
    );
    Some(
        Claim::new(Severity::Low, Level::DiscriminatingCounter, text)
            .on_node(node)
            .on_host(host)
            .during(case.one("host", host).map(|host| host.ticks.window()))
            .number("share", waiting.share)
            .number("cpus_of_clients", clients)
            .number("cpus_of_sessions", own)
            .because("the processes are connected to the server: their sockets are")
            .remedy("run the clients on another host", &[]),
    )
}

fn too_many(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let Some(Queue { waiting, host, own, cores, .. }) = queue(case, time) else { continue };
        let is_crowd = time.active >= cores * ACTIVE_PER_CPU_MAX && own >= cores * OWN_SHARE_MIN;
        if waiting.share < TOO_MANY_SHARE_MIN || !is_crowd {
            continue;
        }
        claims.push(
            Claim::new(
                Severity::Medium,
                Level::DiscriminatingCounter,
                format!(
                    "{}: {} sessions are active on {} CPUs, and wait for one in {} of their time",
                    time.node,
                    units::short(time.active),
                    units::short(cores),
                    units::percent(waiting.share)
                ),
            )
            .on_node(&time.node)
            .on_host(host)
            .during(case.one("host", host).map(|host| host.ticks.window()))
            .number("active", time.active)
            .number("share", waiting.share)
            .number("cpus_of_sessions", own)
            .because(format!(
                "the scheduler's counters: the sessions used {} CPUs, and {} of them waited for one",
                units::short(own),
                units::short(waiting.sessions)
            ))
            .not("other programs: the sessions themselves use most of the CPUs")
            .remedy(
                "limit the active sessions with a pool: two to four per CPU do the same work with shorter waits, and hold locks for a shorter time; \
                 then look at the statements that take the time",
                &["SELECT application_name, usename, client_addr, state, count(*) FROM pg_stat_activity \
                    WHERE backend_type = 'client backend' GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC;"],
            ),
        );
    }
    Answer::of(claims, || "active sessions against CPUs, and waiting for one".to_string())
}

/// The CPU quota of a node's control group and the share of the periods in which it was used up, if that was often.
fn quota(case: &Case, node: &str) -> Option<(f64, f64)> {
    let group = case.one("cgroup", node)?;
    let stopped = group.sum("periods_throttled")? / group.sum("periods")?.max(1.0);
    Some((group.last("quota_cpus")?, stopped)).filter(|_| stopped >= THROTTLED_SHARE_MIN)
}

/// The CPUs that a node's processes may run on, if they are fewer than the host has and its sessions use nearly all of what they may, or other programs
/// leave little of them.
fn pinned(case: &Case, node: &str, own: f64, cores: f64) -> Option<f64> {
    let allowed = case.one("cgroup", node)?.last("cpus_allowed")?;
    let is_tight = own >= allowed * OWN_SHARE_MIN / 2.0;
    (allowed < cores && is_tight).then_some(allowed)
}

/// Waits of processes that work together on a statement: for their start and end, for rows, and for each other.
fn is_among_workers(kind: &str, event: &str) -> bool {
    let event_words = event.to_ascii_lowercase();
    let is_together = ["messagequeue", "hash", "parallel"].iter().any(|begin| event_words.starts_with(begin));
    super::plan::is_for_workers(kind, event) || kind == "IPC" && is_together
}

/// The share of the session time in waits for parallel workers, from which on their CPU time matters.
const PARALLEL_SHARE_MIN: f64 = 0.05;

/// The share of the host's CPUs that other programs use, from which on a low priority is felt.
const BESIDE_SHARE_MIN: f64 = 0.2;
const OF_PRIORITY: &str = "each step of the nice value is a tenth of a CPU less beside others: nice 19 gets a seventieth of what nice 0 gets; a session that \
    waits for a CPU keeps its locks for that time";

/// Which limit it is, as the end of the claim.
fn which(quota: Option<(f64, f64)>, pinned: Option<f64>, low: Option<&str>) -> String {
    match (quota, pinned, low) {
        (Some((cpus, stopped)), ..) => format!(
            "its control group may use {} and was stopped in {} of the periods",
            units::counted_cpus(cpus),
            units::percent(stopped)
        ),
        (None, Some(cpus), _) => format!("its processes may run on {} only", units::counted_cpus(cpus)),
        (None, None, Some(low)) => format!("{low}, so that all others come first"),
        (None, None, None) => "the server may not use them".to_string(),
    }
}

/// Sessions that wait, on average, for a limit that no setting of the host shows.
const LIMITED_SESSIONS_MIN: f64 = 0.5;

fn limited(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let Some(Queue { waiting, host, own, idle, cores, others, .. }) = queue(case, time) else { continue };
        let is_long = waiting.share >= LIMITED_SHARE_MIN && waiting.sessions >= own * WAIT_PER_RUN_MIN;
        let quota = quota(case, &time.node).filter(|_| waiting.share >= QUEUE_SHARE_MIN);
        let pinned = pinned(case, &time.node, own, cores).filter(|_| waiting.share >= QUEUE_SHARE_MIN);
        // Parallel workers that come and go between two looks use CPUs that no sample has.
        let is_parallel = node_time::share_waiting(case, &time.node, is_among_workers)
            .is_some_and(|share| share >= PARALLEL_SHARE_MIN);
        // CPUs that are idle between bursts are no sign of a limit, nor are few sessions that wait beside bursts of other programs.
        let is_limited = is_long
            && waiting.sessions >= LIMITED_SESSIONS_MIN
            && idle >= cores * IDLE_SHARE_MIN
            && !is_parallel
            && !bursts::is_in_bursts(case, &time.node);
        let low = priority::of(case, &time.node)
            .filter(|_| waiting.share >= QUEUE_SHARE_MIN && others >= cores * BESIDE_SHARE_MIN);
        if quota.is_none() && pinned.is_none() && low.is_none() && !is_limited {
            continue;
        }
        let beside = match low.is_some() && idle < cores * IDLE_SHARE_MIN {
            true => format!(
                "other programs use {} of the {} CPUs of {host}",
                units::short(others),
                units::short(cores)
            ),
            false => format!("{} of the {} CPUs of {host} are idle", units::short(idle), units::short(cores)),
        };
        let is_known = quota.is_some() || pinned.is_some() || low.is_some();
        claims.push(with_limit_remedy(
            case,
            &time.node,
            Claim::new(
                severity(waiting.share),
                if is_known { Level::DiscriminatingCounter } else { Level::CoOccurrence },
                format!(
                    "{}: sessions wait for a CPU in {} of their time while {beside}: {}",
                    time.node,
                    units::percent(waiting.share),
                    which(quota, pinned, low.as_deref())
                ),
            )
            .on_node(&time.node)
            .on_host(host)
            .during(case.one("host", host).map(|host| host.ticks.window()))
            .number("share", waiting.share)
            .number("cpus_idle", idle)
            .number("cpus_of_sessions", own)
            .because(format!(
                "the scheduler's counters: the sessions used {} CPUs, and {} of them were ready to run but had no CPU",
                units::short(own),
                units::short(waiting.sessions)
            ))
            .with((idle >= cores * IDLE_SHARE_MIN).then_some(()), |claim, ()| claim.not("a full host: its CPUs are idle"))
            .with(quota, |claim, (cpus, stopped)| {
                claim.number("quota_cpus", cpus).number("throttled_share", stopped)
                    .because("cpu.stat of the server's control group counts the periods in which its quota was used up (nr_throttled)")
            })
            .with(pinned, |claim, cpus| {
                claim.number("cpus_allowed", cpus).because("the kernel lists the CPUs that the server's processes may run on (Cpus_allowed_list)")
            })
            .with(low, |claim, _| claim.because(OF_PRIORITY))
            .with((!is_known).then_some(()), |claim, ()| {
                claim.lacking("which limit: the CPU quota of a cgroup (container, systemd's CPUQuota), a cpuset, or an affinity")
            }),
        ));
    }
    Answer::of(claims, || "waiting for a CPU, against idle CPUs".to_string())
}

/// Where the limit is, and how to raise it.
fn with_limit_remedy(case: &Case, node: &str, claim: Claim) -> Claim {
    let file = format!("{}/postmaster.pid", super::paste::data_directory(case, node));
    claim.remedy(
        "look at the limits of the server's cgroup, where nr_throttled must not grow, and at its affinity; raise the quota, or give it all CPUs: taskset -acp \
            for \
         each of its processes until it is started again, and CPUAffinity or AllowedCPUs in its unit (cpuset in a container) for ever; a low priority \
             is that of the script or unit which starts it (nice, Nice=, \
         CPUSchedulingPolicy=): renice -n 0 for each of its processes",
        &[
            &format!("$ pid=$(head -n 1 {file}) && taskset -cp $pid && ps -o pid,ni,cls,args --ppid $pid --pid $pid"),
            // The second path is that of cgroups in version 1.
            &format!(
                "$ for g in $(cut -d: -f3 /proc/$(head -n 1 {file})/cgroup | sort -u); do \
                 cat /sys/fs/cgroup$g/cpu.max /sys/fs/cgroup$g/cpu.stat \
                 /sys/fs/cgroup/cpu$g/cpu.cfs_quota_us /sys/fs/cgroup/cpu$g/cpu.stat 2>/dev/null; done"
            ),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_of_a_session_that_waits_for_a_cpu_is_no_alarm() {
        assert_eq!([0.15, 0.57, 4.0].map(most_of), [Severity::Low, Severity::Medium, Severity::High]);
    }
}
