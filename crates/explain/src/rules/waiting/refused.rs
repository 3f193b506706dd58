//! SES-13 of clients that a pooler sends away before they have a session: the server does not see them, and no counter of the pooler does.

use super::NAME_CHARS;
use crate::case::{Case, Thing};
use crate::rule::Claim;
use crate::rules::costly::plain;
use crate::rules::paste::word;
use crate::units;
use record::finding::{Level, Severity};

/// Looks at which all places for clients are taken.
const LOOKS_SHARE: f64 = 0.5;
/// Clients sent away in a second, from which on an application suffers.
const RATE_HIGH: f64 = 1.0;
/// How a reason begins if all places for clients are taken (`src/client.c` of pgbouncer).
const FULL: &str = "no more connections allowed";
/// Characters of a reason.
const REASON_CHARS: usize = 120;

/// One claim for each pooler that sends clients away, or has no place for one more.
pub(super) fn claims(case: &Case) -> Vec<Claim> {
    case.things("pooler").filter_map(|pooler| claim(&pooler)).collect()
}

fn claim(pooler: &Thing<'_>) -> Option<Claim> {
    let lines = pooler.lines;
    let refused = lines.sum("refused").unwrap_or(0.0);
    let full = full_share(pooler);
    if refused < 1.0 && full < LOOKS_SHARE {
        return None;
    }
    let reason = plain(lines.word("reason"), REASON_CHARS);
    let is_full = full >= LOOKS_SHARE || reason.starts_with(FULL);
    let most = lines.last("clients_max");
    let places = || {
        format!(
            "all of its {} places for clients are taken (max_client_conn)",
            units::short(most.unwrap_or(0.0))
        )
    };
    let rate = lines.rate("refused").unwrap_or(0.0);
    let (severity, title) = if refused >= 1.0 {
        let why = if reason.starts_with("no more connections allowed (max_client_conn)") && most.is_some() {
            format!("{}: {reason}", places())
        } else {
            reason.clone()
        };
        let severity = if rate >= RATE_HIGH { Severity::High } else { Severity::Medium };
        let clients = units::counted(refused as usize, "client");
        (
            severity,
            format!(
                "{}: pgbouncer sent {clients} away, {} a second; {why}",
                pooler.place,
                units::short(rate)
            ),
        )
    } else {
        let looks = units::percent(full);
        (
            Severity::Medium,
            format!(
                "{}: {} in {looks} of the looks at pgbouncer: a further client is sent away",
                pooler.place,
                places()
            ),
        )
    };
    let (text, setting) = remedy(&reason, is_full, most);
    let is_outside = lines.last("size").is_some();
    let console = word(lines.word("pooler"));
    let look = format!("$ psql {console} -c 'SHOW CLIENTS' -c 'SHOW LISTS' -c 'SHOW CONFIG'");
    let change = setting.map(|setting| format!("$ psql {console} -c '{setting}'"));
    let mut commands = vec![look.as_str()];
    commands.extend(change.as_deref());
    let claim = Claim::new(severity, Level::DiscriminatingCounter, title)
        .on_node(pooler.place)
        .during([lines.ticks.window()])
        .number("refused", refused)
        .with(most, |claim, most| claim.number("clients_max", most))
        .with(lines.max("clients"), |claim, clients| {
            claim.number("clients", clients).because(seen(pooler, is_outside, clients))
        })
        .not("the server: in its views and its log these clients do not exist");
    let claim = claim.with(is_outside.then_some(()), |claim, ()| {
        claim.lacking("its console, which does not admit our role: a role in stats_users or admin_users of pgbouncer.ini types the commands")
    });
    let claim = match lines.sum("refused") {
        Some(_) => claim.because("counted in the log of pgbouncer (\"pooler error\")"),
        None => claim.lacking("whether clients were sent away: the log of pgbouncer was not read (logfile is not set, or it is not readable, or elsewhere)"),
    };
    Some(claim.remedy(text, &commands))
}

/// Where its clients were seen, and how many at most.
fn seen(pooler: &Thing<'_>, is_outside: bool, clients: f64) -> String {
    format!(
        "{} ({}): up to {} clients at a look",
        if is_outside { "sockets of pgbouncer's port" } else { "SHOW LISTS of pgbouncer" },
        plain(pooler.lines.word("pooler"), NAME_CHARS * 2),
        units::short(clients)
    )
}

/// Of the looks, those at which no place is left.
fn full_share(pooler: &Thing<'_>) -> f64 {
    let (Some(most), Some(clients)) = (pooler.lines.last("clients_max"), pooler.lines.series("clients"))
    else {
        return 0.0;
    };
    let points = clients.points();
    let full = points.iter().filter(|point| point.max >= most).count();
    full as f64 / points.len().max(1) as f64
}

/// What to do about a reason, and the command of the console.
fn remedy(reason: &str, is_full: bool, most: Option<f64>) -> (&'static str, Option<String>) {
    let has = |words: &[&str]| words.iter().any(|word| reason.contains(word));
    if is_full {
        let more = most.map(|most| format!("SET max_client_conn = {}", units::short((most * 2.0).ceil())));
        return (
            "find out which program has the clients, and whether it uses them (SHOW CLIENTS: state, addr, connect_time): pools of an application that are too \
             large, or connections that it leaves open. Else raise max_client_conn, also in pgbouncer.ini (and the limit of open files of pgbouncer: it needs \
             one for each client): a client costs it a few kB. max_db_client_connections and max_user_client_connections limit one database or role (1.24)",
            more,
        );
    }
    if has(&["timeout"]) {
        return (
            "clients wait for a connection longer than the timeout allows: see what keeps the connections (SHOW POOLS, and the other findings); the timeout \
             itself is right if clients shall not wait for ever",
            None,
        );
    }
    if has(&["server login", "server_login", "connect failed", "server conn", "server_connect"]) {
        return (
            "pgbouncer cannot log in at the server: see its log and the server's for the reason (password in auth_file, pg_hba.conf, host and port in SHOW \
             DATABASES, all connections of the server in use)",
            None,
        );
    }
    if has(&["password", "auth", "no such user", "no such database", "SASL", "SCRAM"]) {
        return (
            "a program connects with a name or password that pgbouncer does not accept: its line in the log names the database, role and address; mend its \
             configuration, or auth_file or the list of databases",
            None,
        );
    }
    ("the log of pgbouncer names the database, role and address of each client beside the reason", None)
}
