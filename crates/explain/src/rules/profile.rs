//! PLAN-96: what a statement does with its processor time, by the functions of the server in whose samples it is. No counter of the server has that: a regular
//! expression, a text search's headline or the compression of large values look like any other computing. SES-16: what processes do before they have a
//! statement, which is in no time of a session at all.

mod work;

use super::costly::{busy, peculiar_of, plain, severity};
use super::statement::explain_it;
use crate::case::Case;
use crate::rule::Need::{Field, Stacks};
use crate::rule::{Answer, Claim, Rule};
use crate::stacks::{LOG_IN, SAMPLES_MIN, Stacks as Samples};
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::{self, Verb};
use record::watched::FUNCTION_TEXT;
pub(crate) use work::CHECKS_KEYS;
use work::{Reason, WORK, Work};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "PLAN-96",
        title: "a statement's processor time goes into one kind of work",
        needs: &[Stacks, Field("server", "sessions_active")],
        limits: "10 % of the session time in a statement of which 40 samples were taken, 40 % of them or more in functions of one kind; low up to 60 %, \
            for rows that are inserted, and if statements may be made for that work (ours)",
        judge,
        links: &["https://www.postgresql.org/docs/current/performance-tips.html"],
    },
    Rule {
        id: "SES-16",
        title: "the server's processors log sessions in",
        needs: &[Stacks, Field("server", "sessions_active")],
        limits: "30 % of 100 samples or more of the server's processes check passwords or agree on encryption; samples in libraries for encryption count if \
            5 % are seen in the server's own functions for it; low below 20 % of all samples of the machine (ours)",
        judge: logins,
        links: &[
            "https://www.postgresql.org/docs/current/runtime-config-connection.html#GUC-SCRAM-ITERATIONS",
            "https://www.postgresql.org/docs/current/auth-password.html",
        ],
    },
];

/// The share of the session time of a statement.
const SHARE_MIN: f64 = 0.1;
/// The share of them in one kind of work.
const WORK_SHARE_MIN: f64 = 0.4;
/// Functions that are named.
const FUNCTIONS_MAX: usize = 3;
/// Characters of what is unusual about a table.
const REASON_CHARS: usize = 160;
/// Characters of a function's name.
const NAME_CHARS: usize = 60;
/// Of the samples, those with a function that is named.
const FUNCTION_SHARE_MIN: f64 = 0.05;
/// Modules whose functions run for a statement without being called by it.
const MODULES_OF_HOOKS: [&str; 4] = ["pg_stat_statements.so", "auto_explain.so", "pgaudit.so", "plpgsql.so"];

/// Samples of the server's processes ...
const SERVER_SAMPLES_MIN: u64 = 100;
/// ... and the share of them that logs sessions in.
const LOG_IN_SHARE_MIN: f64 = 0.3;
/// Of all samples of the machine; below it is low.
const MACHINE_SHARE_MIN: f64 = 0.2;
/// Of those, at least this share is known by its functions: the rest may encrypt what is sent.
const KNOWN_SHARE_MIN: f64 = 0.05;

/// The number of a finding about passwords that take longer to check than the default wants.
pub(crate) const SLOW_PASSWORDS: &str = "scram_iterations";
/// Iterations of SCRAM by default.
const ITERATIONS: f64 = 4_096.0;

/// Counters of sessions have neither: a process that is not logged in yet is in no view but as a start.
fn logins(case: &Case) -> Answer {
    let Some(all) = &case.stacks else { return Answer::CannotTell("no stacks".to_string()) };
    let of_server = all.of_server();
    let (known, crypto) = all.log_in();
    let is_known = known as f64 >= (known + crypto) as f64 * KNOWN_SHARE_MIN;
    let log_in = if is_known { known + crypto } else { known };
    let share = log_in as f64 / of_server.max(1) as f64;
    if of_server < SERVER_SAMPLES_MIN || share < LOG_IN_SHARE_MIN {
        return Answer::Clean(format!(
            "{} of {of_server} samples of the server's processes log sessions in",
            units::percent(share)
        ));
    }
    let mut servers = case.things("server");
    let server = servers.next().filter(|_| servers.next().is_none());
    let node = server.as_ref().map_or("the server", |server| server.place);
    let iterations = case.facts("setting").find(|fact| fact.name == "scram_iterations");
    let slow = iterations.and_then(|fact| fact.value.parse::<f64>().ok()).filter(|count| *count > ITERATIONS);
    // Of idle processors there are samples too.
    let of_machine = log_in as f64 / all.samples().max(1) as f64;
    let severity = if of_machine >= MACHINE_SHARE_MIN { severity(of_machine) } else { Severity::Low };
    let claim = Claim::new(
        severity,
        Level::DiscriminatingCounter,
        format!(
            "{node}: {} of the processor time of its processes is spent on logging sessions in: each new connection agrees on encryption and proves its \
                password again, which is made to take long",
            units::percent(share)
        ),
    )
    .during([server.as_ref().map_or(case.span, |server| server.lines.ticks.window())])
    .number("log_in_share", share)
    .number("machine_share", of_machine)
    .number("samples", of_server as f64)
    .because(format!(
        "of {of_server} samples of its processes, {known} are in functions for it ({}), and {crypto} in libraries for encryption",
        named(all, LOG_IN, 0.0)
    ))
    .with(server.as_ref().and_then(|server| server.lines.rate("sessions_opened")), |claim, opened| {
        claim.number("sessions_opened_per_s", opened).because(format!("{} sessions are opened a second", units::short(opened)))
    })
    .with(slow, |claim, count| claim.number(SLOW_PASSWORDS, count))
    .with(iterations, |claim, fact| claim.because(format!("scram_iterations is {}", plain(&fact.value, 20))))
    .remedy(
        "keep connections: a pool in the application, or a pooler in between. Where it must be each time: SCRAM in pg_hba.conf instead of a plain password or \
            LDAP leaves the work to the client, and fewer scram_iterations (PostgreSQL 16; the default is 4096) hold for passwords that are set afterwards",
        &[
            "SELECT usename, application_name, client_addr, count(*), min(now() - backend_start) AS newest FROM pg_stat_activity WHERE backend_type = 'client \
                backend' GROUP BY 1, 2, 3 ORDER BY 4 DESC;",
            "SELECT rolname, split_part(split_part(rolpassword, '$', 2), ':', 1) AS iterations FROM pg_authid WHERE rolpassword LIKE 'SCRAM-%';",
        ],
    );
    let claim = match &server {
        Some(server) => claim.on_node(server.place),
        None => claim,
    };
    Answer::of(vec![claim], String::new)
}

/// The functions of a family that are in most of the samples, with their shares.
fn named(samples: &Samples, family: &[&str], share_min: f64) -> String {
    let members = samples.members(family).into_iter().filter(|(_, share)| *share >= share_min);
    let word = |(name, share): (&str, f64)| format!("{} {}", plain(name, NAME_CHARS), units::percent(share));
    members.take(FUNCTIONS_MAX).map(word).collect::<Vec<_>>().join(", ")
}

fn judge(case: &Case) -> Answer {
    let Some(all) = &case.stacks else { return Answer::CannotTell("no stacks".to_string()) };
    let mut claims = vec![];
    for time in busy(case) {
        for one in time.statements.iter().filter(|one| one.share >= SHARE_MIN) {
            let found = all.of_statement(&time.node, &one.query_id);
            let Some(found) = found.filter(|found| found.samples() >= SAMPLES_MIN) else { continue };
            claims.extend(of_work(case, time, one, found).or_else(|| of_module(case, time, one, found)));
        }
    }
    Answer::of(claims, || "the functions in which the statements spend their processor time".to_string())
}

/// What samples of the processor time of a statement show that it does, if most of them are in one kind of work.
pub(super) fn work_of(case: &Case, time: &NodeTime, one: &StatementTime) -> Option<&'static str> {
    let found = case.stacks.as_ref()?.of_statement(&time.node, &one.query_id)?;
    kind_of(found).filter(|_| found.samples() >= SAMPLES_MIN).map(|(work, _)| work.does)
}

/// The kind of work that has the time, and its share. Kinds contain each other, and the first of them that has the time is the narrowest.
fn kind_of(found: &Samples) -> Option<(&'static Work, f64)> {
    let share_of = |work: &Work| found.share_of(work.functions, work.beside, work.without);
    WORK.iter().map(|work| (work, share_of(work))).find(|(_, share)| *share >= WORK_SHARE_MIN)
}

/// The kind of work that a statement spends its time in.
fn of_work(case: &Case, time: &NodeTime, one: &StatementTime, found: &Samples) -> Option<Claim> {
    let (work, share) = kind_of(found)?;
    let is_usual = share <= work.usual_to || !work.is_of_writes && writes(&one.text);
    let severity = if is_usual { Severity::Low } else { severity(one.share * share) };
    let does = match reason(case, time, one, work.reason) {
        Some(reason) => format!("{} ({reason})", work.does),
        None => work.does.to_string(),
    };
    let claim = claim(case, time, one, severity, share, found.samples(), &does);
    let claim = claim
        .because(format!("functions in the samples: {}", named(found, work.functions, FUNCTION_SHARE_MIN)));
    let mut commands: Vec<&str> = work.commands.to_vec();
    let explained = explain_it(case, &time.node, one);
    commands.push(&explained);
    Some(claim.remedy(work.remedy, &commands))
}

/// Whether a statement writes rows that it is given, or makes.
fn writes(text: &str) -> bool {
    let is_copy = || text.trim_start().get(..4).is_some_and(|word| word.eq_ignore_ascii_case("copy"));
    statement::parse(text).is_ok_and(|parsed| matches!(parsed.verb, Verb::Insert | Verb::Merge)) || is_copy()
}

/// What names the reason of a kind of work.
fn reason(case: &Case, time: &NodeTime, one: &StatementTime, of: Reason) -> Option<String> {
    match of {
        Reason::Kind => None,
        Reason::Table(word) => {
            let facts = peculiar_of(case, &time.node, &one.text);
            let fact = facts.into_iter().find(|fact| fact.value.contains(word))?;
            let parts = fact.value.split("; ").filter(|part| part.contains(word));
            Some(format!(
                "{}: {}",
                plain(&fact.name, NAME_CHARS),
                plain(&parts.collect::<Vec<_>>().join(", "), REASON_CHARS)
            ))
        }
        Reason::Function => {
            let called = statement::names(&one.text);
            let mut functions = case.facts(FUNCTION_TEXT).filter(|fact| fact.node == time.node);
            let function = functions.find(|fact| called.contains(&fact.name))?;
            Some(format!("{}()", plain(&function.name, NAME_CHARS)))
        }
    }
}

/// The extension whose functions a statement spends its time in.
fn of_module(case: &Case, time: &NodeTime, one: &StatementTime, found: &Samples) -> Option<Claim> {
    let (module, share) = found
        .module()
        .filter(|(module, share)| *share >= WORK_SHARE_MIN && !MODULES_OF_HOOKS.contains(module))?;
    let does = format!("computes in the module {}, which an extension has loaded", plain(module, NAME_CHARS));
    let claim = claim(case, time, one, Severity::Low, share, found.samples(), &does);
    Some(claim.remedy(
        "call its functions for fewer rows: let an index that the extension has for its types find them, compare with a cheap condition first, or store what \
            is \
         computed from a row when the row is written",
        &[
            "SELECT DISTINCT e.extname, p.probin FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.deptype = 'e' JOIN pg_extension e ON e.oid = \
                d.refobjid WHERE p.probin IS NOT NULL;",
            &explain_it(case, &time.node, one),
        ],
    ))
}

fn claim(
    case: &Case,
    time: &NodeTime,
    one: &StatementTime,
    severity: Severity,
    share: f64,
    samples: u64,
    does: &str,
) -> Claim {
    Claim::new(
        severity,
        Level::DiscriminatingCounter,
        format!(
            "{}: a statement that takes {} of the session time {does}: that is {} of its processor time",
            time.node,
            units::percent(one.share),
            units::percent(share)
        ),
    )
    .on_node(&time.node)
    .during(case.one("server", &time.node).map(|server| server.ticks.window()))
    .number("share", one.share * share)
    .number("samples", samples as f64)
    .because(format!(
        "of {samples} samples of sessions that ran it, {} are in this work",
        units::percent(share)
    ))
    .because(format!("the statement: {}", super::costly::in_a_line(one)))
}
