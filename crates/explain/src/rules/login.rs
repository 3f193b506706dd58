//! SES-14: logins that do not get through authentication, where another service decides about them. No view of the server has these processes before
//! PostgreSQL 18, and none of its limits of statements ends them. SES-15: what an event trigger does at each login, which is in no statement's time.

use super::costly::plain;
use super::paste::literal;
use crate::case::{Case, Thing};
use crate::rule::Need::Field;
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::event::{self, Event};
use record::finding::{Level, Severity};
use record::watched::EVENT_TRIGGER;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "SES-15",
        title: "an event trigger works at each login",
        needs: &[Field("server", "sessions_opened")],
        limits: "an event trigger at login is enabled, 1 session is opened a second, and a table is scanned or written about as often (half to four times); \
            high \
            if those scans read 100,000 rows a second; without such a table low from 20 sessions a second on (ours)",
        judge: at_login,
        links: &["https://www.postgresql.org/docs/current/event-trigger-database-login-example.html"],
    },
    Rule {
        id: "SES-14",
        title: "logins hang before the session begins",
        needs: &[Field("schedule", "authenticating"), Field("server", "xact_commit")],
        limits: "at all looks but one of ten 2 processes of the server or more are in the middle of a login, by their titles, and so many that a login takes \
            2 s \
        or longer at the rate at which sessions are opened (ours)",
        judge,
        links: &["https://www.postgresql.org/docs/current/auth-pg-hba-conf.html"],
    },
];

/// Processes in the middle of a login at once.
const PROCESSES_MIN: f64 = 2.0;
/// Of the looks, those with so many.
const OF_LOOKS_MIN: f64 = 0.9;
/// Looks that say something.
const LOOKS_MIN: u64 = 5;
/// Seconds that a login takes, by Little's law.
const LOGIN_S_MIN: f64 = 2.0;

fn judge(case: &Case) -> Answer {
    let claims = case.nodes().into_iter().filter_map(|node| of_node(case, node)).collect();
    Answer::of(claims, || "processes of the servers in the middle of a login".to_string())
}

/// What the server logs of services that decide about logins and do not serve it (`auth.c`), with the word for the service.
const SERVICES: [(&str, &str); 3] =
    [("RADIUS", "RADIUS response"), ("LDAP", " LDAP"), ("ident", "Ident server")];
/// Characters of such a line.
const LINE_CHARS: usize = 120;

/// The service that logins wait for, by the server's log, as the end of a claim.
fn service_of(case: &Case, node: &str) -> Option<String> {
    let lines = || {
        let of_node = |event: &&Event| [node, ""].contains(&Case::word_of(event, "node"));
        let logged = |event: &&Event| Case::word_of(event, "severity") == "LOG";
        case.events_of(event::SERVER_LOG).filter(of_node).filter(logged)
    };
    SERVICES.into_iter().find_map(|(service, words)| {
        let fits = |event: &&Event| {
            event.message.contains(words) && ["timeout ", "could not "].iter().any(|begin| event.message.starts_with(begin))
        };
        let first = lines().find(fits)?;
        let times: f64 = lines().filter(fits).map(|event| event.times()).sum();
        Some(format!(
            "; they wait for {service}, by the server's log: {} ({} in the recording): mend that service, or name another one in pg_hba.conf",
            plain(&first.message, LINE_CHARS),
            units::counted(times as usize, "time")
        ))
    })
}

fn of_node(case: &Case, node: &str) -> Option<Claim> {
    let is_its = |one: &Thing<'_>| one.lines.word("node") == node && one.lines.word("who") == "backends";
    let all = case.things("schedule").find(is_its)?;
    let series = all.lines.series("authenticating")?;
    let (looks, most) = (series.readings(), all.lines.max("authenticating")?);
    let many = series.values().into_iter().filter(|count| *count >= PROCESSES_MIN).count();
    if looks < LOOKS_MIN || (many as f64) < looks as f64 * OF_LOOKS_MIN {
        return None;
    }
    let mean = series.sum() / looks as f64;
    let opened = case.one("server", node).and_then(|server| server.rate("sessions_opened"));
    let login_s = mean / opened.unwrap_or(0.0).max(f64::MIN_POSITIVE);
    if login_s < LOGIN_S_MIN {
        return None;
    }
    let timeout = case.setting(node, "authentication_timeout").unwrap_or("1min");
    let rate = opened.filter(|opened| *opened > 0.0);
    // The name of a client is looked up before anything else is done for it (`BackendInitialize` in `backend_startup.c`).
    let is_named = case.setting(node, "log_hostname").is_some_and(|value| value == "on");
    let by_name = if is_named {
        "; log_hostname is on, so the name of each client's address is looked up first"
    } else {
        ""
    };
    let service = service_of(case, node);
    const NAMES: &str = "switch log_hostname off (ALTER SYSTEM SET log_hostname = off; SELECT pg_reload_conf();), or mend the name service of this host: each \
        connection waits for its answer. Else ";
    Some(
        Claim::new(
            Severity::High,
            Level::DiscriminatingCounter,
            format!(
                "{node}: logins hang, in authentication or at the start of the session: {} on average, up to {}, and {}{by_name}{}",
                units::counted(mean.round() as usize, "process"),
                units::short(most),
                match rate {
                    Some(rate) => format!("only {} sessions are opened a second", units::short(rate)),
                    None => "no session is opened".to_string(),
                },
                service.unwrap_or_default()
            ),
        )
        .on_node(node)
        .during([all.lines.ticks.window()])
        .number("processes", mean)
        .because("by the titles of the server's processes, which no view has before they are through")
        .because(format!("the server ends such a login only after authentication_timeout, {timeout}; until then it takes one of max_connections"))
        .not("a full server: then connections are refused at once, before authentication")
        .lacking("which method it is: pg_hba.conf, and the lines that the command below shows")
        .remedy(
            format!("{}look at the service that decides about these logins (LDAP, RADIUS, PAM, Kerberos, ident): whether it answers, and how fast; let logins \
                of \
             programs use scram-sha-256, which needs no other service; a client that sends no password, behind a dead network, hangs likewise; so do all \
             while a session keeps a catalog locked (the third command)", if is_named { NAMES } else { "" }),
            &[
                "SELECT line_number, type, database, user_name, address, auth_method FROM pg_hba_file_rules WHERE auth_method NOT IN ('trust', 'reject', \
                    'scram-sha-256', 'md5', 'peer', 'cert');",
                "$ ps -eo pid,lstart,args | grep -E '[a]uthentication$|[s]tartup( waiting)?$' # client addresses, and since when",
                "SELECT pid, mode, relation::regclass FROM pg_locks WHERE granted AND mode = 'AccessExclusiveLock' AND relation < 16384;",
                "$ ss -tnp state syn-sent,established '( dport = :389 or dport = :636 )' # connections to an LDAP server",
                "ALTER SYSTEM SET authentication_timeout = '10s'; SELECT pg_reload_conf();",
            ],
        ),
    )
}

/// Sessions opened a second from which on what each of them does matters.
const OPENED_PER_S_MIN: f64 = 1.0;
/// The same where nothing shows what the trigger does.
const OPENED_PER_S_MANY: f64 = 20.0;
/// Scans or writes of a table for each session that is opened.
const PER_LOGIN: std::ops::RangeInclusive<f64> = 0.5..=4.0;
/// Rows of a scan that an index would save.
const ROWS_MIN: f64 = 1_000.0;
/// Rows a second that such scans read, from which on it is high.
const ROWS_PER_S_HIGH: f64 = 100_000.0;
/// Characters of the names of triggers.
const NAMES_CHARS: usize = 120;

/// What a trigger does with a table at each login.
struct Work<'a> {
    table: &'a str,
    /// Rows that a scan of the whole table reads, if it is scanned.
    rows: Option<f64>,
}

/// The table that is scanned about as often as sessions are opened, or else the one that is written so.
fn work_of<'a>(case: &'a Case, node: &'a str, opened: f64) -> Option<Work<'a>> {
    let is_of_login = |rate: f64| PER_LOGIN.contains(&(rate / opened));
    let rate = |table: &Thing<'_>, field: &str| table.lines.rate(field).unwrap_or(0.0);
    let scanned = case.at("table", node).filter_map(|table| {
        let scans = rate(&table, "seq_scans");
        let rows = rate(&table, "seq_rows") / scans.max(f64::MIN_POSITIVE);
        let is_it = is_of_login(scans) && rows >= ROWS_MIN;
        is_it.then(|| Work { table: table.lines.word("relation"), rows: Some(rows) })
    });
    let most =
        |left: &Work<'_>, right: &Work<'_>| left.rows.unwrap_or(0.0).total_cmp(&right.rows.unwrap_or(0.0));
    let written = || {
        case.at("table", node).find_map(|table| {
            let fields = ["rows_inserted", "rows_updated"];
            let is_it = fields.iter().any(|field| is_of_login(rate(&table, field)));
            is_it.then(|| Work { table: table.lines.word("relation"), rows: None })
        })
    };
    scanned.max_by(most).or_else(written)
}

fn at_login(case: &Case) -> Answer {
    let claims = case.nodes().into_iter().filter_map(|node| of_trigger(case, node)).collect();
    Answer::of(claims, || "event triggers at login, against sessions that are opened".to_string())
}

fn of_trigger(case: &Case, node: &str) -> Option<Claim> {
    let all = case.facts(EVENT_TRIGGER).filter(|fact| fact.node == node && fact.value.ends_with(" at login"));
    let names: Vec<String> = all.map(|fact| format!("{} ({})", fact.name, fact.value)).collect();
    let server = case.one("server", node)?;
    let opened = server.rate("sessions_opened").filter(|opened| *opened >= OPENED_PER_S_MIN)?;
    if names.is_empty() {
        return None;
    }
    let work = work_of(case, node, opened);
    let read_per_s = work.as_ref().and_then(|work| work.rows).map_or(0.0, |rows| rows * opened);
    let (severity, level) = match &work {
        Some(_) if read_per_s >= ROWS_PER_S_HIGH => (Severity::High, Level::DiscriminatingCounter),
        Some(_) => (Severity::Medium, Level::CoOccurrence),
        None if opened >= OPENED_PER_S_MANY => (Severity::Low, Level::CoOccurrence),
        None => return None,
    };
    let does = match &work {
        Some(Work { table, rows: Some(rows) }) => {
            format!(
                "; {table} is scanned about as often, {} rows each time: no index serves what it looks for",
                units::short(*rows)
            )
        }
        Some(Work { table, rows: None }) => format!("; {table} is written about as often"),
        None => String::new(),
    };
    let names = plain(&names.join(", "), NAMES_CHARS);
    let indexes = work.as_ref().map(|work| {
        format!(
            "SELECT indexdef FROM pg_indexes WHERE format('%s.%s', schemaname, tablename) = {};",
            literal(work.table)
        )
    });
    let commands = [
        "SELECT evtname, evtfoid::regprocedure, pg_get_functiondef(evtfoid) FROM pg_event_trigger WHERE evtevent = 'login';",
    ];
    let commands: Vec<&str> = commands.into_iter().chain(indexes.as_deref()).collect();
    Some(
        Claim::new(
            severity,
            level,
            format!(
                "{node}: each login runs event trigger {names}, and {} sessions are opened a second{does}",
                units::short(opened)
            ),
        )
        .on_node(node)
        .during([server.ticks.window()])
        .number("sessions_opened_per_s", opened)
        .with((read_per_s > 0.0).then_some(read_per_s), |claim, rows| claim.number("rows_per_s", rows))
        .because("a client waits for it before its first statement, and its time is in no statement's")
        .remedy(
            "give what it searches an index, or let it only insert a row; and let the application keep its sessions (a pool). A trigger that fails keeps \
                everybody \
             out: event_triggers = off in the connection of a superuser lets that one in",
            &commands,
        ),
    )
}
