//! SES-13 of states of a pooler that are no matter of sizes: a database that is paused, whose clients wait until it is resumed, and one to which no
//! connection is open.

use super::NAME_CHARS;
use crate::case::{Case, Thing};
use crate::rule::Claim;
use crate::rules::costly::plain;
use crate::rules::paste::word;
use crate::units;
use record::finding::{Level, Severity};
use std::collections::BTreeMap;

/// Whether the database of a pool was paused at the last look.
pub(super) fn is_paused(pool: &Thing<'_>) -> bool {
    pool.lines.flag("paused") == Some(true)
}

/// One claim for each database that is paused, with the clients of all its pools.
pub(super) fn claims(case: &Case) -> Vec<Claim> {
    let mut databases: BTreeMap<(&str, &str, &str), Vec<Thing<'_>>> = BTreeMap::new();
    for pool in case.things("pool").filter(is_paused) {
        let key = (pool.place, pool.lines.word("pooler"), pool.lines.word("database"));
        databases.entry(key).or_default().push(pool);
    }
    databases
        .into_iter()
        .map(|((node, pooler, database), pools)| claim(node, pooler, database, &pools))
        .collect()
}

fn claim(node: &str, pooler: &str, database: &str, pools: &[Thing<'_>]) -> Claim {
    let waiting: f64 = pools.iter().filter_map(|pool| pool.lines.last("clients_waiting")).sum();
    let longest = pools.iter().filter_map(|pool| pool.lines.max("max_wait_us")).fold(0.0, f64::max);
    let name = plain(database, NAME_CHARS);
    let clients = match waiting > 0.0 {
        true => {
            format!(
                ": {} in its queue, for up to {}",
                units::counted(waiting as usize, "client"),
                units::us(longest)
            )
        }
        false => ": the next client that begins a transaction waits".to_string(),
    };
    // The name may need quotes of the console, which takes SQL's.
    let resume = format!("RESUME \"{}\"", database.replace('"', "\"\""));
    Claim::new(
        if waiting > 0.0 { Severity::High } else { Severity::Medium },
        Level::DiscriminatingCounter,
        format!("{node}: database {name} is paused in pgbouncer (PAUSE){clients} until it is resumed"),
    )
    .on_node(node)
    .during(pools.iter().map(|pool| pool.lines.ticks.window()))
    .number("clients_waiting", waiting)
    .number("max_wait_us", longest)
    .because(format!("SHOW DATABASES of pgbouncer ({}): paused", plain(pooler, NAME_CHARS * 2)))
    .not("a pool that is too small, or a server that is slow: no client gets a connection, however many there are")
    .remedy(
        "ask who has paused it (a maintenance or a switchover that may not have ended), then resume it; the command needs a role in admin_users",
        &[
            &format!("$ psql {} -c 'SHOW DATABASES' -c 'SHOW POOLS'", word(pooler)),
            &format!("$ psql {} -c {}", word(pooler), word(&resume)),
        ],
    )
}

/// Clients that wait although no connection to the server is open: a larger pool would have none either.
pub(super) fn unconnected(pool: &Thing<'_>, waiting: f64, longest_us: f64) -> Claim {
    let (database, pooler) = (plain(pool.lines.word("database"), NAME_CHARS), pool.lines.word("pooler"));
    Claim::new(
        Severity::High,
        Level::DiscriminatingCounter,
        format!(
            "{}: {} of role {} wait in pgbouncer for a connection to database {database}, for up to {}, and none is open: it opens none, or cannot log in",
            pool.place,
            units::counted(waiting.round().max(1.0) as usize, "client"),
            plain(pool.lines.word("user"), NAME_CHARS),
            units::us(longest_us)
        ),
    )
    .on_node(pool.place)
    .during([pool.lines.ticks.window()])
    .number("clients_waiting", waiting)
    .number("max_wait_us", longest_us)
    .because(format!("SHOW POOLS of pgbouncer ({}): clients wait, and it has no connection to the server", plain(pooler, NAME_CHARS * 2)))
    .not("a pool that is too small: none of its connections is open")
    .remedy(
        "look into the log of pgbouncer and of the server: a login that is refused (password, pg_hba.conf), a server that was not reached (host and port in \
         SHOW DATABASES), all connections of the server in use, or a database that is disabled",
        &[&format!("$ psql {} -c 'SHOW DATABASES' -c 'SHOW SERVERS' -c 'SHOW POOLS'", word(pooler))],
    )
}
