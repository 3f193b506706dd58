//! The table of scores: what `make drills` prints and what docs/drills.md shows, from the records of the runner.

use super::cure::Cure;
use super::runner::Record;
use super::score::Outcome;
use record::number;
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

const BEGIN: &str = "<!-- scores: made by scripts/drills --docs -->";
const END: &str = "<!-- end of scores -->";
/// Records of this area are drills of their own, which expect more than one rule.
pub(crate) const DRILL: &str = "drill";
/// Characters of a cause in the terminal.
const CAUSE_CHARS: usize = 60;

/// Appends a record to a file of records.
pub(crate) fn append(path: &Path, record: &Record) -> Result<(), String> {
    let line = serde_json::to_string(record).map_err(|error| error.to_string())? + "\n";
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// The records of a file, the last one of each name, in the order of their first appearance.
pub(crate) fn read(path: &Path) -> Result<Vec<Record>, String> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let mut all: Vec<Record> = Vec::new();
    for line in text.lines() {
        let record: Record =
            serde_json::from_str(line).map_err(|error| format!("{}: {error}", path.display()))?;
        match all.iter_mut().find(|one| one.name == record.name) {
            Some(place) => *place = record,
            None => all.push(record),
        }
    }
    Ok(all)
}

/// Counts of one group of records.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Totals {
    pub(crate) of: usize,
    pub(crate) outcomes: BTreeMap<Outcome, usize>,
    /// Records with at least one claim that is not true there.
    pub(crate) with_wrong: usize,
}

impl Totals {
    /// Those that could be caused on this host.
    pub(crate) fn of<'a>(records: impl Iterator<Item = &'a Record>) -> Totals {
        let mut totals = Totals::default();
        for record in records {
            *totals.outcomes.entry(record.verdict.outcome).or_default() += 1;
            if !matches!(record.verdict.outcome, Outcome::NotPossible | Outcome::Broken) {
                totals.of += 1;
                totals.with_wrong += usize::from(!record.verdict.wrong.is_empty());
            }
        }
        totals
    }

    pub(crate) fn count(&self, outcome: Outcome) -> usize {
        self.outcomes.get(&outcome).copied().unwrap_or(0)
    }

    fn share(&self, count: usize) -> String {
        if self.of == 0 {
            "none".into()
        } else {
            format!("{count} of {} ({:.0} %)", self.of, 100.0 * count as f64 / self.of as f64)
        }
    }
}

/// The sentences below the table.
pub(crate) fn totals(records: &[Record]) -> Vec<String> {
    let group =
        |healthy: bool| Totals::of(records.iter().filter(|one| one.area != DRILL && one.healthy == healthy));
    let (conditions, controls) = (group(false), group(true));
    let first = conditions.count(Outcome::First);
    let three = first + conditions.count(Outcome::AmongThree);
    let mut lines = vec![
        format!("conditions: the cause is the first finding in {}", conditions.share(first)),
        format!("conditions: the cause is among the first three in {}", conditions.share(three)),
        format!(
            "conditions: later {}, symptom only {}, missed {}; a false claim (high or medium) in {}",
            conditions.count(Outcome::Later),
            conditions.count(Outcome::SymptomOnly),
            conditions.count(Outcome::Missed),
            conditions.share(conditions.with_wrong)
        ),
        format!("controls: without a false claim {}", controls.share(controls.count(Outcome::Silent))),
    ];
    for (outcome, words) in
        [(Outcome::Broken, "could not be caused"), (Outcome::NotPossible, "not possible here")]
    {
        let count = conditions.count(outcome) + controls.count(outcome);
        if count > 0 {
            lines.push(format!("{words}: {count}"));
        }
    }
    lines.extend(cures(records));
    let drills = Totals::of(records.iter().filter(|one| one.area == DRILL));
    if drills.of > 0 {
        let first = drills.count(Outcome::First);
        let three = first + drills.count(Outcome::AmongThree);
        lines.push(format!(
            "drills: one of the expected rules is first in {}, among three in {}",
            drills.share(first),
            drills.share(three)
        ));
    }
    lines
}

fn cures(records: &[Record]) -> Option<String> {
    let all: Vec<&Cure> = records.iter().filter_map(|record| record.cure.as_ref()).collect();
    if all.is_empty() {
        return None;
    }
    let typed: Vec<&&Cure> = all.iter().filter(|cure| cure.failed.is_none()).collect();
    let gone = typed.iter().filter(|cure| cure.gone == Some(true)).count();
    let compared: Vec<bool> = typed.iter().filter_map(|cure| cure.within_two()).collect();
    let within = compared.iter().filter(|is_within| **is_within).count();
    Some(format!(
        "remedies: {} tried; the printed commands could be typed in {}; cause gone in {gone}; saving within a factor of two of the prediction in {within} of {} compared",
        all.len(),
        typed.len(),
        compared.len()
    ))
}

/// What a remedy came to, in a few words.
pub(crate) fn cure_words(cure: &Cure) -> String {
    if let Some(why) = &cure.failed {
        return format!("not applied: {why}");
    }
    let pct = |share: Option<f64>| share.map_or("?".to_owned(), number::percent);
    let gone = match cure.gone {
        Some(true) => "cause gone",
        Some(false) => "cause still there",
        None => "unknown",
    };
    let predicted = match cure.predicted {
        Some((least, most)) if least == most => pct(Some(most)),
        Some((least, most)) => format!("{} to {}", pct(Some(least)), pct(Some(most))),
        None => "nothing".to_owned(),
    };
    format!("{gone}, saved {} (predicted: {predicted}, from {})", pct(cure.saved), cure.predicted_by)
}

/// The first claims of a record: what a user reads first.
fn claimed(record: &Record, count: usize) -> String {
    let shown = |claim: &super::score::Claim| format!("{} {}", claim.rule, claim.severity);
    let all: Vec<String> = record.verdict.claims.iter().take(count).map(shown).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
}

/// The table for a terminal.
pub(crate) fn text(records: &[Record]) -> String {
    let mut lines = vec![format!(
        "{:<34} {:<14} {:<16} {:<36} {}",
        "name", "outcome", "expected", "first claims", "cause, remedy"
    )];
    for record in records {
        let cause: String = record.cause.chars().take(CAUSE_CHARS).collect();
        let remedy = record.cure.as_ref().map(|cure| format!(" | {}", cure_words(cure))).unwrap_or_default();
        let why = record.why.as_ref().map(|why| format!(" | {why}")).unwrap_or_default();
        lines.push(format!(
            "{:<34} {:<14} {:<16} {:<36} {cause}{remedy}{why}",
            record.name,
            record.verdict.outcome.words(),
            if record.healthy { "nothing".to_owned() } else { record.rules.join(" ") },
            claimed(record, 3)
        ));
    }
    lines.push(String::new());
    lines.extend(totals(records));
    lines.join("\n")
}

/// The part of docs/drills.md between its markers.
pub(crate) fn markdown(records: &[Record]) -> String {
    let mut out = vec![BEGIN.to_owned(), String::new()];
    out.extend(totals(records).into_iter().map(|line| format!("- {line}")));
    let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
    let rows = |out: &mut Vec<String>, healthy: bool| {
        for record in records.iter().filter(|one| one.healthy == healthy && one.area != DRILL) {
            let why = record.why.clone().unwrap_or_default();
            let wrong: Vec<&str> = record.verdict.wrong.iter().map(|claim| claim.rule.as_str()).collect();
            out.push(format!(
                "| {} | {} | {} | {} | {} | {} | {} |",
                record.name,
                cell(&record.cause),
                record.rules.join(", "),
                record.verdict.outcome.words(),
                cell(if why.is_empty() { claimed(record, 3) } else { why }.as_str()),
                wrong.join(", "),
                record.foreign_cpu_pct.map_or("?".to_owned(), |pct| format!("{pct:.0} %"))
            ));
        }
    };
    let head = "| name | cause | rules that name it | outcome | first claims | false | CPU of others |\n|---|---|---|---|---|---|---|";
    out.extend([String::new(), head.to_owned()]);
    rows(&mut out, false);
    let head = "| control | what the server does | | outcome | first claims | false | CPU of others |\n|---|---|---|---|---|---|---|";
    out.extend([String::new(), head.to_owned()]);
    rows(&mut out, true);
    let with_cures: Vec<&Record> = records.iter().filter(|record| record.cure.is_some()).collect();
    if !with_cures.is_empty() {
        out.extend([String::new(), "| condition | typed | result |\n|---|---|---|".to_owned()]);
        for record in with_cures {
            let cure = record.cure.as_ref().expect("it was filtered");
            let typed =
                cure.commands.iter().map(|one| format!("`{}`", cell(one))).collect::<Vec<_>>().join(" ");
            out.push(format!("| {} | {typed} | {} |", record.name, cell(&cure_words(cure))));
        }
    }
    out.extend([String::new(), END.to_owned()]);
    out.join("\n")
}

/// Replaces the part between the markers.
pub(crate) fn write_into(page: &str, part: &str) -> Result<String, String> {
    let (before, rest) = page.split_once(BEGIN).ok_or_else(|| format!("the page has no line {BEGIN}"))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| format!("the page has no line {END}"))?;
    Ok(format!("{before}{part}{after}"))
}
