//! Who holds the connections of a server, and whether they are used.

use crate::case::{Case, Thing};
use crate::rules::costly::plain;
use crate::rules::paste::literal;
use crate::units;

/// Connections of one program that do nothing, of all that the server admits, from which on it is the reason.
const SHARE_MIN: f64 = 0.25;
/// Of its connections, those that do nothing.
const UNUSED_SHARE: f64 = 0.5;
/// Connections that were not used for so long (seconds) are kept, and not used in turn.
const UNUSED_S: f64 = 5.0;
/// Groups that are listed.
const LISTED_MAX: usize = 4;
/// Characters of a name.
const NAME_CHARS: usize = 40;

/// What a program does with its connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    /// Most of them are idle for long.
    Kept,
    /// Most of them wait in a transaction for their client.
    InTransactions,
    /// They work, or are used in turn.
    Used,
}

/// The sessions of one program, role, database and host.
pub(super) struct Holder<'a> {
    pub(super) application: &'a str,
    pub(super) user: &'a str,
    database: &'a str,
    client: &'a str,
    /// Each on average over all looks.
    pub(super) sessions: f64,
    pub(super) idle: f64,
    in_transaction: f64,
    /// How long the idle ones were idle at the last look: the middle one, and the longest.
    idle_s: f64,
    pub(super) idle_s_max: f64,
}

impl<'a> Holder<'a> {
    fn of(group: &Thing<'a>, looks: f64) -> Holder<'a> {
        let word = |field: &str| group.lines.word(field);
        let mean = |field: &str| group.lines.sum(field).unwrap_or(0.0) / looks;
        let last = |field: &str| group.lines.last(field).unwrap_or(0.0);
        Holder {
            application: word("application"),
            user: word("user"),
            database: word("database"),
            client: word("client"),
            sessions: mean("sessions"),
            idle: mean("idle"),
            in_transaction: mean("idle_in_transaction"),
            idle_s: last("idle_s"),
            idle_s_max: last("idle_s_max"),
        }
    }

    fn how(&self) -> Use {
        if self.idle >= self.sessions * UNUSED_SHARE && self.idle_s >= UNUSED_S {
            Use::Kept
        } else if self.in_transaction >= self.sessions * UNUSED_SHARE {
            Use::InTransactions
        } else {
            Use::Used
        }
    }

    /// The program and where it is.
    fn name(&self) -> String {
        let application = match self.application {
            "" => "sessions without an application_name".to_string(),
            name => plain(name, NAME_CHARS),
        };
        let place =
            if self.client == "local" { "a Unix socket".to_string() } else { plain(self.client, NAME_CHARS) };
        format!(
            "{application} (role {}, database {}, from {place})",
            plain(self.user, NAME_CHARS),
            plain(self.database, NAME_CHARS)
        )
    }

    /// Number, share and use.
    fn described(&self, most: f64) -> String {
        let of_max = match most < f64::MAX {
            true => format!(" ({} of max_connections)", units::percent(self.sessions / most)),
            false => String::new(),
        };
        let how = match self.how() {
            Use::Kept => format!(
                "{} of them idle, half of these for more than {}, the longest for {}",
                units::short(self.idle.round()),
                units::seconds(self.idle_s),
                units::seconds(self.idle_s_max)
            ),
            Use::InTransactions => {
                format!("{} of them idle in a transaction", units::short(self.in_transaction.round()))
            }
            Use::Used => format!("{} of them idle at a time", units::short(self.idle.round())),
        };
        format!("{} holds {} connections{of_max}, {how}", self.name(), units::short(self.sessions.round()))
    }
}

/// All groups that `fits`, those with the most sessions first.
pub(super) fn all<'a>(case: &'a Case, node: &'a str, fits: impl Fn(&Thing<'a>) -> bool) -> Vec<Holder<'a>> {
    let groups: Vec<Thing<'a>> = case.at("connected", node).collect();
    let looks = groups.iter().map(|group| group.lines.ticks.readings()).max().unwrap_or(0).max(1) as f64;
    let mut all: Vec<Holder<'a>> =
        groups.iter().filter(|group| fits(group)).map(|group| Holder::of(group, looks)).collect();
    all.sort_by(|left, right| right.sessions.total_cmp(&left.sessions));
    all
}

/// The one that keeps the most connections without using them, if these are a large part of `of`.
pub(super) fn unused<'a, 'b>(all: &'b [Holder<'a>], of: f64) -> Option<&'b Holder<'a>> {
    let unused = |holder: &Holder<'_>| match holder.how() {
        Use::Kept => holder.idle,
        Use::InTransactions => holder.in_transaction,
        Use::Used => 0.0,
    };
    let first = all.iter().max_by(|left, right| unused(left).total_cmp(&unused(right)))?;
    (unused(first) >= of * SHARE_MIN).then_some(first)
}

/// The end of a claim: who holds a large part of `of` connections, of `most` that the server admits. Empty where nothing is known of it.
pub(super) fn claimed(all: &[Holder<'_>], of: f64, most: f64) -> String {
    let named = unused(all, of).or(all.first().filter(|first| first.sessions >= of * SHARE_MIN));
    named.map_or(String::new(), |holder| format!("; {}", holder.described(most)))
}

/// The largest groups, each as evidence.
pub(super) fn listed(all: &[Holder<'_>], most: f64) -> Vec<String> {
    all.iter().take(LISTED_MAX).map(|holder| holder.described(most)).collect()
}

/// What to do about a program that keeps connections without using them, and the commands; `None` for one that uses them.
pub(super) fn advice(holder: &Holder<'_>) -> Option<(String, Vec<String>)> {
    let whose = match holder.application {
        "" => String::new(),
        name => format!("application_name = {} AND ", literal(name)),
    };
    let user = literal(holder.user);
    let role = record::statement::quoted(holder.user);
    let who = plain(if holder.application.is_empty() { holder.user } else { holder.application }, NAME_CHARS);
    let (text, state, timeout) = match holder.how() {
        Use::Used => return None,
        Use::Kept => (
            format!(
                "find why {who} keeps connections that it does not use: connections that are opened and never closed or given back (a leak: close them in \
                 every path, errors too), or a pool that is too large for what it does; end those that sit idle, and let the server end such ones by itself"
            ),
            "state = 'idle'",
            "idle_session_timeout",
        ),
        Use::InTransactions => (
            format!(
                "find where {who} leaves its transactions open (no COMMIT in one path, or a call of another service in between): each of them keeps a \
                 connection"
            ),
            "state LIKE 'idle in transaction%'",
            "idle_in_transaction_session_timeout",
        ),
    };
    let commands = vec![
        format!(
            "SELECT pid, backend_start, now() - state_change AS idle, left(query, 60) AS last FROM pg_stat_activity WHERE {whose}usename = {user} AND {state} \
             ORDER BY state_change;"
        ),
        format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {whose}usename = {user} AND {state} AND state_change < now() - interval '1 min';"
        ),
        format!(
            "ALTER ROLE {role} SET {timeout} = '5min'; -- for sessions that begin later; not for a pool that cannot cope with it"
        ),
    ];
    Some((text, commands))
}
