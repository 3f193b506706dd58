//! TXN-20: transactions that commit in two phases. A program that uses one server only, through a transaction manager (XA, JTA), has the price of two
//! commits
//! for each: two flushes of the WAL, a file or shared state for the prepared transaction, and a second round trip.

use super::costly::{busy, plain, severity};
use crate::case::Case;
use crate::rule::Need::{Field, Looked};
use crate::rule::{Answer, Claim, Rule};
use crate::units;
use record::event::QUERY;
use record::finding::{Level, NodeTime, Severity};
use record::watched::own;

pub(super) const RULES: &[Rule] = &[Rule {
    id: "TXN-20",
    title: "transactions commit in two phases",
    needs: &[Looked("wait"), Field("server", "sessions_active")],
    limits: "15 % of the looks at sessions at work show PREPARE TRANSACTION, COMMIT PREPARED or ROLLBACK PREPARED, 10 of them or more, of transactions that \
        no engine of a \
        cluster has prepared; high from half on (ours)",
    judge,
    links: &["https://www.postgresql.org/docs/current/two-phase.html"],
}];

/// Of the looks at sessions with a statement.
const SHARE_MIN: f64 = 0.15;
/// Looks.
const LOOKS_MIN: f64 = 10.0;
/// Of the texts that are known, those of phases.
const UNKNOWN_SHARE_MIN: f64 = 0.5;
/// The statements of the second phase, and of the first.
const PHASES: [&str; 3] = ["prepare transaction", "commit prepared", "rollback prepared"];
/// Characters of a name.
const NAME_CHARS: usize = 60;

/// The transaction's name in a statement of one of the phases; empty where the server keeps it as a parameter.
fn named(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let rest = PHASES.iter().find_map(|begin| {
        let (head, rest) = text.split_at_checked(begin.len())?;
        head.eq_ignore_ascii_case(begin).then_some(rest)
    })?;
    Some(rest.split('\'').nth(1).unwrap_or(""))
}

/// Of the texts of a node that name a transaction or have no other execution, most are forgotten before they are read: the server has an entry for each name.
/// So
/// a statement whose text is not known is one of a phase with their share of all texts, if that is half or more. With an example.
fn phases_among_texts(case: &Case, node: &str) -> (f64, String) {
    let texts = case.events_of(QUERY).filter(|event| Case::word_of(event, "node") == node);
    let (mut all, mut of_phases, mut example) = (0.0, 0.0, String::new());
    for text in texts.map(|event| Case::word_of(event, "text")) {
        all += 1.0;
        let Some(name) = named(text).filter(|name| !is_of_engine(case, node, name)) else { continue };
        of_phases += 1.0;
        example = plain(name, NAME_CHARS);
    }
    match of_phases / f64::max(all, 1.0) {
        share if share >= UNKNOWN_SHARE_MIN => (share, example),
        _ => (0.0, String::new()),
    }
}

/// Looks at sessions with statements of the phases, among all, and an example.
struct Looks {
    seen: f64,
    all: f64,
    example: String,
    /// The share of such commands among known texts, where it stands for the texts that are not known.
    of_texts: f64,
}

impl Looks {
    fn of(case: &Case, node: &str) -> Option<Looks> {
        let waits = case.waits(node)?;
        let (of_texts, known) = phases_among_texts(case, node);
        let mut looks = Looks { seen: 0.0, all: 0.0, example: String::new(), of_texts };
        for (query_id, sessions) in waits.statements() {
            looks.all += sessions;
            let (part, example) = match case.query(query_id) {
                None => (of_texts, known.as_str()),
                Some(text) => match named(text).filter(|name| !is_of_engine(case, node, name)) {
                    None => continue,
                    Some(name) => (1.0, name),
                },
            };
            looks.seen += sessions * part;
            if part > 0.0 && looks.example.is_empty() {
                looks.example = plain(example, NAME_CHARS);
            }
        }
        Some(looks)
    }

    fn share(&self) -> f64 {
        if self.all > 0.0 { self.seen / self.all } else { 0.0 }
    }
}

/// Whether the engine of a cluster has prepared a transaction itself: by its name, or, where the server keeps no names, because it does.
fn is_of_engine(case: &Case, node: &str, name: &str) -> bool {
    match name {
        "" => case.own(node, own::PREPARED).is_some(),
        name => case.is_own_transaction(node, name),
    }
}

fn judge(case: &Case) -> Answer {
    let mut claims = vec![];
    for time in busy(case) {
        let Some(looks) = Looks::of(case, &time.node) else { continue };
        if looks.seen >= LOOKS_MIN && looks.share() >= SHARE_MIN {
            claims.push(claim(case, time, &looks));
        }
    }
    Answer::of(claims, || "statements of two-phase commits among those of sessions at work".to_string())
}

fn claim(case: &Case, time: &NodeTime, looks: &Looks) -> Claim {
    let share = looks.share();
    let of_application = time
        .by
        .iter()
        .find(|by| by.name == "application")
        .and_then(|by| by.shares.first())
        .filter(|(name, of_it)| !name.is_empty() && *of_it >= share)
        .map(|(name, _)| plain(name, NAME_CHARS));
    let server = case.one("server", &time.node);
    Claim::new(
        severity(share).max(Severity::Medium),
        Level::DiscriminatingCounter,
        format!(
            "{}: transactions{} commit in two phases: {} of the looks at sessions at work show PREPARE TRANSACTION or COMMIT PREPARED. Each costs two \
             flushes of the WAL and two round trips, where one COMMIT costs one of each",
            time.node,
            of_application.map_or(String::new(), |name| format!(" of {name}")),
            units::percent(share)
        ),
    )
    .on_node(&time.node)
    .during(server.map(|server| server.ticks.window()))
    .number("share", share)
    .number("looks", looks.seen)
    .with((!looks.example.is_empty()).then_some(&looks.example), |claim, name| claim.because(format!("one of them: '{name}'")))
    .with(server.and_then(|server| server.rate("xact_commit")), |claim, rate| {
        claim.because(format!("{} transactions a second commit", units::short(rate)))
    })
    .with((looks.of_texts > 0.0).then_some(looks.of_texts), |claim, share| {
        claim.because(format!(
            "most of these statements are forgotten before their text is read, as each has a name of its own: {} of the texts that are known are such \
                commands",
            units::percent(share)
        ))
    })
    .lacking("whether a second server takes part in these transactions: with one alone, a transaction manager may commit in one phase")
    .remedy(
        "a data source that is the only one of its transactions needs no XA: make it a local one (in Java servers a non-XA data source, or last \
            resource), or let the manager \
         commit in one phase. Where two servers take part, an outbox table in the same transaction and a message afterwards cost one commit",
        &[
            "SELECT gid, prepared, owner, database FROM pg_prepared_xacts ORDER BY prepared LIMIT 10; -- what is open, and whose",
            "SELECT pid, application_name, usename, client_addr, left(query, 60) AS query FROM pg_stat_activity WHERE query ~* '^(prepare \
                transaction|(commit|rollback) prepared)' LIMIT 10;",
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn statements_of_the_phases_are_known_by_their_beginning() {
        assert_eq!(named("PREPARE TRANSACTION 'xa_1'"), Some("xa_1"));
        assert_eq!(named(" commit prepared 'a b'"), Some("a b"));
        assert_eq!(named("ROLLBACK PREPARED $1"), Some(""));
        for text in ["PREPARE t AS SELECT 1", "COMMIT", "commit prepare", "", "é"] {
            assert_eq!(named(text), None, "{text}");
        }
    }
}
