//! How the settings of a session reach the server.
//!
//! A server takes them with the startup packet. A connection pooler refuses most of them there (pgbouncer: "unsupported startup parameter"), or is configured
//! to drop them silently (`ignore_startup_parameters`). The kind of pool decides what to do:
//!
//! * session pooling gives each client its own server process until it disconnects: they are set after the connect;
//! * transaction pooling gives one for a transaction only: a setting of the session would stay with the server process and affect the client that is given it
//!   next, so it is set for one transaction, or not at all;
//! * statement pooling gives one for a single statement, and refuses transactions: pgfathom does not work there.
//!
//! The pooler does not report its kind. Two of our sessions that get the same server process, or one session that
//! gets two, indicate the second kind, and a refused `BEGIN` the third. A session that gets none while another one of ours keeps
//! its own shows a pool of sessions that is too small. The result is kept per address.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use wire::error::ServerError;
use wire::startup::StartupError;

use crate::sql;

use crate::attempt::{Candidate, Cause, Endpoint, Failure};
use crate::conninfo::{ConnSpec, Pinned};

/// Settings that poolers keep for each client, with any server process.
const CARRIED: [&str; 2] = ["datestyle", "timezone"];

/// How settings reach a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// With the startup packet.
    Startup,
    /// By statements after the connect.
    Statements,
    /// For one transaction: server processes are shared.
    Transaction,
    /// Not at all: there are no transactions.
    Nowhere,
    /// Not at all: each session keeps a server process, and there is none for a second one.
    Single,
}

impl Way {
    /// Refuses a pooler that pgfathom cannot use. `needs_session`: the work could not use one of transactions either.
    fn usable(self, needs_session: bool) -> Result<Way, Cause> {
        match self {
            Way::Nowhere => Err(Cause::Pooler(PoolerRefusal::Statements { needs_session })),
            Way::Single => Err(Cause::Pooler(PoolerRefusal::Single)),
            way => Ok(way),
        }
    }
}

/// The settings of one session: name and value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings(Vec<(String, String)>);

impl Settings {
    /// The requested settings. A server option that is not a setting can only be sent in the startup packet.
    pub(crate) fn of(spec: &ConnSpec) -> Result<Settings, Cause> {
        let mut settings = parse(spec.options.as_deref().unwrap_or_default())
            .map_err(|option| Cause::Pooler(PoolerRefusal::Option(option)))?;
        settings.extend(spec.session_settings.iter().cloned());
        Ok(Settings(settings))
    }

    /// Without those that poolers carry.
    pub(crate) fn uncarried(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str()).filter(|name| !is_carried(name))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A query for the values that the session has, in order; [`LIMITS`] last.
    fn question(&self) -> String {
        let value = |name: &str| format!("pg_catalog.current_setting({}, true)", sql::literal(name));
        let names = self.0.iter().map(|(name, _)| name.as_str()).chain(LIMITS);
        format!("select {}", names.map(value).collect::<Vec<_>>().join(", "))
    }

    /// Sets them all: for the present transaction, or for the session.
    pub(crate) fn statement(&self, is_local: bool) -> String {
        let set = |(name, value): &(String, String)| {
            format!("pg_catalog.set_config({}, {}, {is_local})", sql::literal(name), sql::literal(value))
        };
        let sets: Vec<String> = self.0.iter().map(set).collect();
        if sets.is_empty() { String::new() } else { format!("select {}", sets.join(", ")) }
    }

    /// What the session has of them. A value may have another form ("ISO" is "ISO, DMY"); if that counts as a loss, they are only set again.
    pub(crate) fn are_in_effect(
        &self,
        ask: impl FnOnce(&str) -> Result<Vec<Vec<Option<Vec<u8>>>>, Cause>,
    ) -> Result<InEffect, Cause> {
        if self.is_empty() {
            return Ok(InEffect { are_all: true, ..InEffect::default() });
        }
        let rows = ask(&self.question())?;
        let found = rows.first().map(Vec::as_slice).unwrap_or_default();
        Ok(self.judge(found.iter().map(|value| value.as_deref().map(String::from_utf8_lossy))))
    }

    /// The same through the other library.
    pub(crate) fn are_in_effect_of(
        &self,
        client: &mut postgres::Client,
    ) -> Result<InEffect, postgres::Error> {
        if self.is_empty() {
            return Ok(InEffect { are_all: true, ..InEffect::default() });
        }
        let messages = client.simple_query(&self.question())?;
        let row = messages.iter().find_map(|message| match message {
            postgres::SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        Ok(row.map_or_else(InEffect::default, |row| {
            self.judge((0..row.len()).map(|column| row.get(column).map(Into::into)))
        }))
    }

    fn judge<'a>(&self, mut found: impl Iterator<Item = Option<std::borrow::Cow<'a, str>>>) -> InEffect {
        let values: Vec<_> = self.0.iter().map(|_| found.next().flatten()).collect();
        let is_kept = |((_, wanted), value): (&(String, String), &Option<std::borrow::Cow<'a, str>>)| {
            value.as_ref().is_some_and(|value| is_same(wanted, value))
        };
        let are_all = self.0.iter().zip(&values).all(is_kept);
        let is_limit = |(_, value): &(&str, Option<std::borrow::Cow<'a, str>>)| {
            value.as_ref().is_some_and(|value| quantity(value).is_none_or(|(number, _)| number > 0.0))
        };
        let limits = LIMITS.into_iter().zip(found).filter(is_limit).map(|(name, _)| name).collect();
        InEffect { are_all, limits }
    }

    /// Those of these limits that the user has not set, as settings that switch them off.
    fn without_limits(&self, limits: &[&'static str]) -> Vec<(String, String)> {
        let is_users = |name: &str| self.0.iter().any(|(other, _)| other.eq_ignore_ascii_case(name));
        let ours = limits.iter().filter(|name| !is_users(name));
        ours.map(|name| ((*name).to_owned(), "0".to_owned())).collect()
    }
}

/// What a session has of the settings that it was opened with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct InEffect {
    are_all: bool,
    /// Those of [`LIMITS`] that a role or a database sets.
    limits: Vec<&'static str>,
}

/// Limits with which the owner of a role or a database can end our sessions. Servers without one of them refuse a connection that names it, so they are sent to
/// those only that have been seen to have it.
const LIMITS: [&str; 3] =
    ["idle_in_transaction_session_timeout", "idle_session_timeout", "transaction_timeout"];

/// SQLSTATEs with which a session ends at one of them.
const ENDED_BY_LIMIT: [&str; 3] = ["25P03", "57P05", "25P04"];

/// Whether one of them has ended the first query: it is the last one, whose servers have all (PostgreSQL 17).
fn is_ended_by_limit(cause: &Cause) -> bool {
    matches!(cause, Cause::Requested(error) if ENDED_BY_LIMIT.contains(&error.sqlstate.as_str()))
}

/// Whether the server shows `found` for a setting that was given as `wanted`. It shows numbers in the largest unit that holds them whole (4000ms as 4s), lists
/// with a blank behind each comma, and `iso` as `ISO, DMY`.
fn is_same(wanted: &str, found: &str) -> bool {
    let plain = |text: &str| text.to_lowercase().replace([' ', '"'], "");
    if let (Some((wanted, wanted_unit)), Some((found, found_unit))) = (quantity(wanted), quantity(found)) {
        let equals = |wanted: f64| (wanted - found).abs() <= 1e-9 * found.abs();
        return match (wanted_unit, found_unit) {
            // Without a unit the number counts in that of the setting, which only the server knows.
            (None, Some(kind)) => {
                UNITS.iter().filter(|unit| unit.1 == kind).any(|unit| equals(wanted * unit.2))
            }
            (wanted_unit, found_unit) => wanted_unit == found_unit && equals(wanted),
        };
    }
    if let (Some(wanted), Some(found)) = (switch(wanted), switch(found)) {
        return wanted == found;
    }
    plain(found).starts_with(&plain(wanted))
}

/// Units of settings: name, kind, and how many microseconds or bytes they have (`guc.c`, `memory_unit_conversion_table` and its neighbour). The last is that of
/// settings that count pages of the usual size.
const UNITS: &[(&str, Kind, f64)] = &[
    ("us", Kind::Time, 1.0),
    ("ms", Kind::Time, 1e3),
    ("s", Kind::Time, 1e6),
    ("min", Kind::Time, 6e7),
    ("h", Kind::Time, 3.6e9),
    ("d", Kind::Time, 8.64e10),
    ("B", Kind::Memory, 1.0),
    ("kB", Kind::Memory, 1024.0),
    ("MB", Kind::Memory, 1_048_576.0),
    ("GB", Kind::Memory, 1_073_741_824.0),
    ("TB", Kind::Memory, 1_099_511_627_776.0),
    ("", Kind::Memory, 8192.0),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Time,
    Memory,
}

/// A number in microseconds or bytes, or one without a unit.
fn quantity(text: &str) -> Option<(f64, Option<Kind>)> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits.trim_end().parse().ok()?;
    let unit = &text[digits.len()..];
    if unit.is_empty() {
        return Some((number, None));
    }
    UNITS.iter().find(|(name, ..)| *name == unit).map(|(_, kind, size)| (number * size, Some(*kind)))
}

/// A boolean in one of its forms. "1" and "0" are numbers first.
fn switch(text: &str) -> Option<bool> {
    match text.trim().to_lowercase().as_str() {
        "on" | "true" | "yes" | "t" | "y" | "1" => Some(true),
        "off" | "false" | "no" | "f" | "n" | "0" => Some(false),
        _ => None,
    }
}

/// The same with a setting by which a pooler can be distinguished from a server, if there is none yet. It changes nothing: floats are exact with it,
/// as they are without since PostgreSQL 12.
pub(crate) fn marked(spec: &ConnSpec) -> ConnSpec {
    let mut spec = spec.clone();
    if Settings::of(&spec).is_ok_and(|settings| settings.uncarried().next().is_none()) {
        spec.session_settings.push(("extra_float_digits".to_owned(), "3".to_owned()));
    }
    spec
}

/// The same specification, with only the startup parameters that poolers accept.
pub(crate) fn without(spec: &ConnSpec) -> ConnSpec {
    let mut spec = spec.clone();
    spec.options = None;
    spec.pinned = Pinned::Nothing;
    spec.session_settings.retain(|(name, _)| is_carried(name));
    spec
}

/// The same without any: the other library can only send settings as options.
pub(crate) fn without_any(spec: &ConnSpec) -> ConnSpec {
    let mut spec = without(spec);
    spec.session_settings.clear();
    spec
}

fn is_carried(name: &str) -> bool {
    CARRIED.iter().any(|carried| carried.eq_ignore_ascii_case(name))
}

/// What a pooler does not support.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolerRefusal {
    /// An option that is no setting.
    #[error("there is a connection pooler before the server, and the option {0:?} cannot be set later")]
    Option(String),
    /// The work needs sessions.
    #[error(
        "there is a connection pooler in transaction mode before the server: a session keeps no settings, locks or prepared statements"
    )]
    Session,
    /// There are no transactions.
    #[error(
        "there is a connection pooler in statement mode before the server: it does not allow transactions"
    )]
    Statements {
        /// The work needs sessions: transactions would not be enough.
        needs_session: bool,
    },
    /// A pool of sessions with one server process.
    #[error(
        "there is a connection pooler in session mode before the server, and its pool has no server connection for a second session"
    )]
    Single,
    /// The user's own settings.
    #[error(
        "there is a connection pooler in transaction mode before the server, so the session would lose the setting {0}"
    )]
    Setting(String),
}

impl PoolerRefusal {
    /// What to do instead.
    pub(crate) fn hint(&self) -> String {
        const DIRECT: &str = "connect to the server itself (its own host and port)";
        match self {
            PoolerRefusal::Option(_) => format!("{DIRECT}, or omit the option (options, PGOPTIONS)"),
            PoolerRefusal::Session => format!(
                "{DIRECT}, or to a pool of sessions (pool_mode = session); run and watch work through this one"
            ),
            PoolerRefusal::Statements { needs_session: true } => {
                format!("{DIRECT}, or to a pool of sessions (pool_mode = session)")
            }
            PoolerRefusal::Statements { needs_session: false } => format!(
                "{DIRECT}, or to a pool of sessions (pool_mode = session); run and watch also work through one of transactions"
            ),
            PoolerRefusal::Single => format!(
                "enlarge the pool (pgbouncer: default_pool_size, or pool_size of the database), end other clients of it, or {DIRECT}"
            ),
            PoolerRefusal::Setting(name) => {
                format!("{DIRECT}, or give it to the role: ALTER ROLE ... SET {name} = ...")
            }
        }
    }
}

/// Why these settings cannot do without a session, where a pooler has only transactions: one of the user's, by name, or some of ours. `None`: they can.
pub(crate) fn lost(spec: &ConnSpec, wanted: &Settings) -> Option<PoolerRefusal> {
    let is_pinned = |name: &&str| spec.pinned.settings().any(|(pinned, _)| pinned == *name);
    let (ours, users): (Vec<&str>, Vec<&str>) = wanted.uncarried().partition(is_pinned);
    match users.first() {
        Some(name) => Some(PoolerRefusal::Setting((*name).to_owned())),
        // If only names are pinned, the statements qualify them.
        None => (!ours.is_empty() && spec.pinned != Pinned::Names).then_some(PoolerRefusal::Session),
    }
}

/// Whether a pooler has refused a startup parameter.
fn are_refused(cause: &Cause) -> bool {
    matches!(cause, Cause::Startup(StartupError::Server(error)) if is_refusal(error))
}

fn is_refusal(error: &ServerError) -> bool {
    error.sqlstate.as_str() == "08P01" && error.message.contains("unsupported startup parameter")
}

type Place = (String, u16, String, String);

static KNOWN: Mutex<BTreeMap<Place, Way>> = Mutex::new(BTreeMap::new());

/// The limits that sessions of a place have to be opened without.
static LIMITED: Mutex<BTreeMap<Place, Vec<(String, String)>>> = Mutex::new(BTreeMap::new());

fn place(spec: &ConnSpec, candidate: &Candidate) -> Place {
    let address = match &candidate.endpoint {
        Endpoint::Tcp(address) => address.ip().to_string(),
        Endpoint::Unix(path) => path.display().to_string(),
    };
    (address, candidate.host.port, spec.user.clone(), spec.dbname.clone())
}

/// What was learned of a place.
pub(crate) fn known(spec: &ConnSpec, candidate: &Candidate) -> Option<Way> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).get(&place(spec, candidate)).copied()
}

/// Whether a pooler was found at one of the addresses with this port, for this role and database.
pub(crate) fn is_pooled(port: u16, user: &str, dbname: &str) -> bool {
    let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let is_it = |place: &Place| place.1 == port && place.2 == user && place.3 == dbname;
    known.iter().any(|(place, way)| is_it(place) && *way != Way::Startup)
}

/// Remembers it.
fn remember(spec: &ConnSpec, candidate: &Candidate, way: Way) {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).insert(place(spec, candidate), way);
}

/// A session that was opened with its settings, or how one has to be given them.
pub(crate) enum Started<S> {
    /// It has them.
    Session(S),
    /// They have to be set in this way, not in the startup packet.
    By(Way, Settings),
}

/// Opens a session with its settings in the startup packet. If a pooler does not accept them there, determines how to set them. `bare` opens
/// a session as specified, `are_in_effect` checks whether it has the settings, `learn` determines the kind of pool. `needs_session`: a pool of transactions
/// will be refused.
pub(crate) fn open<S>(
    spec: &ConnSpec,
    candidate: &Candidate,
    bare: impl Fn(&ConnSpec) -> Result<S, Failure>,
    are_in_effect: impl FnOnce(&Settings, &mut S) -> Result<InEffect, Cause>,
    learn: impl FnOnce(&ConnSpec) -> Result<Way, Failure>,
    needs_session: bool,
) -> Result<Started<S>, Failure> {
    let plain = |cause| Failure { cause, encrypted: false };
    let known = known(spec, candidate);
    if matches!(known, None | Some(Way::Startup)) {
        let place = place(spec, candidate);
        let limited = LIMITED.lock().unwrap_or_else(PoisonError::into_inner).get(&place).cloned();
        // Only sessions for statements of ours are opened without the limits of others.
        let limited = if spec.pinned == Pinned::All { limited } else { Some(Vec::new()) };
        let unlimited = |limits: &[(String, String)]| {
            let mut spec = spec.clone();
            spec.session_settings.extend(limits.iter().cloned());
            spec
        };
        match (bare(&unlimited(limited.as_deref().unwrap_or_default())), known) {
            (Ok(session), Some(_)) if limited.is_some() => return Ok(Started::Session(session)),
            (Ok(mut session), known) => {
                // A server accepted options that are not settings; a pooler refuses all of them.
                let wanted = Settings::of(spec).unwrap_or_default();
                let found = match are_in_effect(&wanted, &mut session) {
                    Err(cause) if limited.is_none() && is_ended_by_limit(&cause) => {
                        InEffect { are_all: true, limits: LIMITS.to_vec() }
                    }
                    found => found.map_err(plain)?,
                };
                if found.are_all || known.is_some() {
                    if !wanted.is_empty() {
                        remember(spec, candidate, Way::Startup);
                    }
                    if limited.is_some() {
                        return Ok(Started::Session(session));
                    }
                    let limits = wanted.without_limits(&found.limits);
                    LIMITED.lock().unwrap_or_else(PoisonError::into_inner).insert(place, limits.clone());
                    if limits.is_empty() {
                        return Ok(Started::Session(session));
                    }
                    drop(session);
                    return bare(&unlimited(&limits)).map(Started::Session);
                }
            }
            (Err(failure), _) if are_refused(&failure.cause) => {}
            (Err(failure), _) => return Err(failure),
        }
    }
    let way = match known {
        Some(way) if way != Way::Startup => way,
        _ => learn(&without(spec))?,
    };
    remember(spec, candidate, way);
    Ok(Started::By(way.usable(needs_session).map_err(plain)?, Settings::of(spec).map_err(plain)?))
}

/// The settings among the options of the user.
pub(crate) fn of_options(spec: &ConnSpec) -> Vec<(String, String)> {
    parse(spec.options.as_deref().unwrap_or_default()).unwrap_or_default()
}

/// The settings in a line of options, as `postgres` reads it: words separated by blanks, a backslash before a literal character, `-c name=value` or
/// `--name=value`. Fails with the first option that is something else.
fn parse(options: &str) -> Result<Vec<(String, String)>, String> {
    let mut words = words(options).into_iter();
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        let text = match word.as_str() {
            "-c" => words.next().ok_or_else(|| word.clone())?,
            _ => match word.strip_prefix("-c").or_else(|| word.strip_prefix("--")) {
                Some(text) => text.to_owned(),
                None => return Err(word),
            },
        };
        let (name, value) = text.split_once('=').ok_or_else(|| text.clone())?;
        settings.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(settings)
}

fn words(options: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = options.chars();
    while let Some(c) = chars.next() {
        if c.is_ascii_whitespace() {
            words.extend(word.take());
            continue;
        }
        let literal = if c == '\\' { chars.next() } else { Some(c) };
        word.get_or_insert_default().extend(literal);
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn options_are_read_as_postgres_reads_them() {
        let good: [(&str, &[(&str, &str)]); 6] = [
            ("", &[]),
            ("-c geqo=off", &[("geqo", "off")]),
            ("  -cgeqo=off\t--work-mem=4MB ", &[("geqo", "off"), ("work_mem", "4MB")]),
            (r"-c search_path=a,\ b", &[("search_path", "a, b")]),
            (r"-c x.y=back\\slash", &[("x.y", r"back\slash")]),
            ("-c a.b=", &[("a.b", "")]),
        ];
        for (options, wanted) in good {
            assert_eq!(parse(options), Ok(pairs(wanted)), "{options}");
        }
        for bad in ["-e", "-c", "-c geqo", "-c a=b -F", "--geqo", "geqo=off"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn values_are_literals_whatever_they_hold() {
        let settings = Settings(pairs(&[("search_path", "\"it's\""), ("x.y", r"a\b")]));
        assert_eq!(
            settings.statement(true),
            r#"select pg_catalog.set_config('search_path', '"it''s"', true), pg_catalog.set_config('x.y',  E'a\\b', true)"#
        );
        assert_eq!(Settings::default().statement(false), "");
    }

    /// As servers show them: `SHOW` after `SET`.
    #[test]
    fn numbers_and_booleans_in_effect_may_be_spelled_otherwise() {
        let same = [
            ("4000ms", "4s"),
            ("50ms", "50ms"),
            ("90s", "90s"),
            ("120 s", "2min"),
            ("4000", "4s"),
            ("0", "0"),
            ("1024kB", "1MB"),
            ("65536", "64MB"),
            ("16384", "128MB"),
            ("1.5", "1.50"),
            ("true", "on"),
            ("1", "on"),
            ("no", "off"),
        ];
        for (wanted, found) in same {
            assert!(is_same(wanted, found), "{wanted} {found}");
        }
        for (wanted, found) in
            [("4000ms", "0"), ("4s", "40s"), ("1", "10"), ("on", "off"), ("4s", "4MB"), ("3", "1")]
        {
            assert!(!is_same(wanted, found), "{wanted} {found}");
        }
    }

    #[test]
    fn a_value_in_effect_may_be_spelled_otherwise() {
        let settings = Settings(pairs(&[("datestyle", "iso"), ("search_path", "pg_catalog,pg_temp")]));
        let of = |values: [Option<&'static str>; 2]| {
            settings.judge(values.into_iter().map(|value| value.map(Into::into))).are_all
        };
        assert!(of([Some("ISO, DMY"), Some("pg_catalog, pg_temp")]));
        assert!(!of([Some("ISO, DMY"), Some("\"$user\", public")]));
        assert!(!of([Some("German, DMY"), Some("pg_catalog,pg_temp")]));
        assert!(!of([None, Some("pg_catalog,pg_temp")]));
        assert!(!settings.judge(std::iter::empty()).are_all);
    }

    #[test]
    fn limits_that_would_end_a_session_are_found_behind_the_settings() {
        let settings = Settings(pairs(&[("datestyle", "iso"), ("idle_session_timeout", "5s")]));
        let of = |values: [Option<&'static str>; 5]| {
            settings.judge(values.into_iter().map(|value| value.map(Into::into)))
        };
        let found = of([Some("ISO, DMY"), Some("5s"), Some("0"), Some("5s"), Some("1ms")]);
        assert!(found.are_all);
        assert_eq!(found.limits, ["idle_session_timeout", "transaction_timeout"]);
        // What the user asks for stays.
        assert_eq!(settings.without_limits(&found.limits), pairs(&[("transaction_timeout", "0")]));
        let old = of([Some("ISO, DMY"), Some("5s"), Some("0"), None, None]);
        assert_eq!(old.limits, [""; 0]);
    }

    #[test]
    fn a_pool_of_transactions_is_refused_for_the_reason_and_with_what_helps() {
        let of = |pinned: Pinned, options: Option<&str>| {
            let spec =
                ConnSpec { options: options.map(str::to_owned), ..ConnSpec::new("db", 5432, "u", "d") };
            let spec = spec.with_pinned(pinned).with_settings_applied();
            lost(&spec, &Settings::of(&spec).unwrap())
        };
        assert_eq!(of(Pinned::Names, None), None);
        // What we pin is not the user's to give to a role.
        assert_eq!(of(Pinned::All, None), Some(PoolerRefusal::Session));
        let users = of(Pinned::All, Some("-c work_mem=64MB"));
        assert_eq!(users, Some(PoolerRefusal::Setting("work_mem".to_owned())));
        assert!(users.unwrap().hint().contains("ALTER ROLE"));
        // Where a pool of transactions would be refused next, it is not offered.
        let hint = |needs_session| PoolerRefusal::Statements { needs_session }.hint();
        assert!(hint(false).contains("run and watch also work") && !hint(true).contains("transaction"));
    }
}
