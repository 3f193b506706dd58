//! The scorer: what `explain` claims, compared with the cause that an entry of the catalogue really has. One scorer for conditions, controls and drills.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Rules about the host as a whole. While other programs use this much of the CPUs (in percent), their claims are true, whatever the entry does.
pub(crate) const MACHINE_RULES: [&str; 2] = ["SES-02", "CPU-04"];
pub(crate) const MACHINE_PCT: f64 = 15.0;

/// In a list of rules: any rule whose claim contains one of the names.
pub(crate) const ANY_RULE: &str = "*";

/// Words behind which a sentence of evidence quotes a statement, up to its end.
const QUOTES: [&str; 8] = [
    "the statement: ",
    "last statement: ",
    "a waiting statement: ",
    "of them run: ",
    "within it: ",
    "of execution: ",
    "they come from: ",
    "inside of it: ",
];
/// Characters of a statement by which a quotation elsewhere is recognised. A command such as CHECKPOINT, named as the cause, is shorter.
const QUOTED_CHARS_MIN: usize = 24;

/// What an entry expects.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expected<'a> {
    pub(crate) healthy: bool,
    pub(crate) rules: &'a [String],
    pub(crate) names: &'a [String],
    pub(crate) symptoms: &'a [String],
    pub(crate) also: &'a [String],
    /// How much of the CPUs programs used that do not belong to the entry.
    pub(crate) foreign_cpu_pct: f64,
}

/// From the best to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// A control without a false claim.
    Silent,
    /// The cause is the first finding.
    First,
    /// The cause is the second or the third.
    AmongThree,
    /// The cause is further down.
    Later,
    /// Only a consequence is named.
    SymptomOnly,
    Missed,
    /// A control with a false claim.
    FalseAlarm,
    /// The runner could not cause the condition, or failed.
    Broken,
    /// The host lacks something; the reason is given.
    NotPossible,
}

impl Outcome {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Outcome::Silent => "silent",
            Outcome::First => "first",
            Outcome::AmongThree => "among three",
            Outcome::Later => "later",
            Outcome::SymptomOnly => "symptom only",
            Outcome::Missed => "missed",
            Outcome::FalseAlarm => "false claim",
            Outcome::Broken => "broken",
            Outcome::NotPossible => "not possible here",
        }
    }
}

/// A finding, shortened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Claim {
    pub(crate) rule: String,
    pub(crate) severity: String,
    pub(crate) claim: String,
}

/// How an entry was judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) outcome: Outcome,
    /// The place of the cause among the claims, from 1.
    pub(crate) rank: Option<usize>,
    /// Claims of severity high or medium that are not true here.
    pub(crate) wrong: Vec<Claim>,
    /// All claims, as they were printed.
    pub(crate) claims: Vec<Claim>,
}

/// The place of the finding that names the cause among all findings of `explain`.
pub(crate) fn cause<'a>(answer: &'a Value, expected: &Expected) -> Option<&'a Value> {
    let statements = statements(answer);
    findings(answer).find(|finding| names_the_cause(finding, expected, &statements))
}

/// A text in lower case with single spaces.
fn normal(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

/// The statements that an answer may quote: those of the account of the time, and those that its findings show.
fn statements(answer: &Value) -> Vec<String> {
    let nodes = answer["node_time"].as_array().into_iter().flatten();
    let counted = nodes.flat_map(|node| node["statements"].as_array().into_iter().flatten());
    let counted = counted.map(|statement| normal(text(statement, "text")));
    let shown = findings(answer).flat_map(|finding| finding["evidence"].as_array().into_iter().flatten());
    let shown = shown.filter_map(|sentence| {
        let sentence = sentence.as_str()?;
        let quote = QUOTES.iter().find_map(|marker| sentence.split_once(marker))?;
        Some(normal(quote.1).trim_end_matches('…').to_owned())
    });
    counted.chain(shown).filter(|text| text.chars().count() >= QUOTED_CHARS_MIN).collect()
}

/// The program's own words in a sentence: without what it quotes of statements. A word of the application says nothing about what the program knows.
fn own_words(sentence: &str, statements: &[String]) -> String {
    let quoted = QUOTES.iter().filter_map(|marker| Some(sentence.find(marker)? + marker.len()));
    let mut words = normal(&sentence[..quoted.min().unwrap_or(sentence.len())]);
    for statement in statements {
        let begin: String = statement.chars().take(QUOTED_CHARS_MIN).collect();
        while let Some(at) = words.find(&begin) {
            // A quotation may be cut, so it ends where the two differ.
            let same = words[at..].chars().zip(statement.chars()).take_while(|(left, right)| left == right);
            let length: usize = same.map(|(c, _)| c.len_utf8()).sum();
            words.replace_range(at..at + length, "");
        }
    }
    words
}

fn findings(answer: &Value) -> impl Iterator<Item = &Value> {
    answer["findings"].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Every text inside of a value.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(values) => values.iter().flat_map(texts).collect(),
        Value::Object(values) => values.values().flat_map(texts).collect(),
        _ => vec![],
    }
}

fn names_the_cause(finding: &Value, expected: &Expected, statements: &[String]) -> bool {
    let contains_a_name = |keys: &[&str]| {
        let sentences = keys.iter().flat_map(|key| texts(&finding[*key]));
        let own: Vec<String> = sentences.map(|sentence| own_words(sentence, statements)).collect();
        expected.names.iter().any(|name| own.iter().any(|words| words.contains(&normal(name))))
    };
    let is_listed = holds(expected.rules, text(finding, "rule"));
    // No rule of today is about this cause: then only the words of the claim itself count.
    let is_any = holds(expected.rules, ANY_RULE) && contains_a_name(&["title", "claim"]);
    is_any || is_listed && (expected.names.is_empty() || contains_a_name(&["claim", "evidence", "remedy"]))
}

fn holds(rules: &[String], rule: &str) -> bool {
    rules.iter().any(|one| one == rule)
}

/// Judges what `explain` reports. Notes are not claims. A claim about the host is skipped if other programs really used it meanwhile.
pub(crate) fn judge(answer: &Value, expected: &Expected) -> Verdict {
    let disturbed = expected.foreign_cpu_pct >= MACHINE_PCT && !holds(expected.rules, MACHINE_RULES[0]);
    let counts = |finding: &&Value| {
        // `explain` itself puts a symptom below its cause: it is no claim about a cause.
        let is_aside = text(finding, "severity") == "note" || finding["symptom_of"].is_string();
        !(is_aside || disturbed && MACHINE_RULES.contains(&text(finding, "rule")))
    };
    let counted: Vec<&Value> = findings(answer).filter(counts).collect();
    let statements = statements(answer);
    let names = |finding: &&Value| names_the_cause(finding, expected, &statements);
    let rank = counted.iter().position(names).map(|index| index + 1);
    let is_true = |rule: &str| {
        [expected.rules, expected.symptoms, expected.also].iter().any(|rules| holds(rules, rule))
    };
    let is_loud = |finding: &&&Value| matches!(text(finding, "severity"), "high" | "medium");
    let wrong: Vec<Claim> = counted
        .iter()
        .filter(is_loud)
        // Where no rule is listed, the finding that names the cause is no false one.
        .filter(|one| !is_true(text(one, "rule")) && !names(one))
        .map(|one| claim(one))
        .collect();
    let has_symptom = findings(answer).any(|one| {
        let is_note = text(one, "severity") == "note";
        !is_note && [expected.symptoms, expected.rules].iter().any(|rules| holds(rules, text(one, "rule")))
    });
    let outcome = match (expected.healthy, rank) {
        (true, _) if wrong.is_empty() => Outcome::Silent,
        (true, _) => Outcome::FalseAlarm,
        (false, Some(1)) => Outcome::First,
        (false, Some(2 | 3)) => Outcome::AmongThree,
        (false, Some(_)) => Outcome::Later,
        (false, None) if has_symptom => Outcome::SymptomOnly,
        (false, None) => Outcome::Missed,
    };
    Verdict { outcome, rank, wrong, claims: findings(answer).map(claim).collect() }
}

fn claim(finding: &Value) -> Claim {
    let [rule, severity, claim] = ["rule", "severity", "claim"].map(|key| text(finding, key).to_owned());
    Claim { rule, severity, claim }
}
