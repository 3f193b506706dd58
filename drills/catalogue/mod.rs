//! The catalogue of conditions: many causes, one runner, one scorer. `make drills` runs all entries, `make test-all` a third of them that the date chooses.
//!
//! Each entry runs in a process of its own, so one that fails, hangs or fills its disk does not end the others.

mod cure;
mod entry;
mod host;
mod load;
mod pooler;
mod runner;
mod score;
mod surroundings;
mod table;
use crate::island::{Island, Own};
use crate::support::Folder;
use crate::sys;
use entry::Entry;
use host::{Foreign, Group};
use runner::Record;
use score::{Expected, Outcome, Verdict};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use testing::{Lack, needs};

/// Only entries whose name or area contains one of these words.
const NAMES: &str = "PGFATHOM_DRILLS_NAMES";
/// Set: only the third of the entries that this day is for.
const THIRD: &str = "PGFATHOM_DRILLS_THIRD";
/// The file that records are appended to.
const SCORES: &str = "PGFATHOM_DRILLS_SCORES";
/// A folder for run directories, which are removed otherwise.
const KEEP: &str = "PGFATHOM_DRILLS_KEEP";
/// Such a folder of an earlier call: nothing is caused again, its recordings are explained and judged by the rules and entries of today.
const AGAIN: &str = "PGFATHOM_DRILLS_AGAIN";
/// In the folder of an entry that was kept: what became of it.
const RECORD: &str = "record.json";
/// Seconds to wait for a quiet host before each entry.
const WAIT: &str = "PGFATHOM_DRILLS_WAIT_S";
/// In the child: the entry, and where its record goes.
const ONE: &str = "PGFATHOM_DRILLS_ONE";
const RESULT: &str = "PGFATHOM_DRILLS_RESULT";
const WAIT_DEFAULT_S: u64 = 30;
/// A host on which others use less is quiet.
const QUIET_PCT: f64 = 20.0;
/// An entry that takes longer is killed: twice prepared, driven and watched for 40 s.
const ENTRY_TIMEOUT: Duration = Duration::from_secs(240);
const DAY_S: u64 = 86_400;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn catalogue() -> Vec<Entry> {
    entry::read(&root().join("drills/conditions")).expect("the catalogue can be read")
}

/// The outcomes of the last recorded run of all entries: what may not become worse.
fn recorded() -> Vec<Record> {
    table::read(&root().join("drills/recorded.ndjson")).expect("the recorded scores can be read")
}

#[test]
#[ignore = "each entry of the catalogue takes 15 s or more"]
fn conditions() {
    let all = catalogue();
    if let Some(name) = env::var_os(ONE) {
        let entry = all.iter().find(|entry| name == *entry.name).expect("the parent read the same catalogue");
        return in_the_child(entry);
    }
    let (mut wanted, known) = (selected(&all), recorded());
    let recordings = env::var_os(AGAIN).map(PathBuf::from);
    if let Some(recordings) = &recordings {
        wanted.retain(|entry| recordings.join(&entry.name).join(RECORD).is_file());
        assert!(!wanted.is_empty(), "{} holds no recording of these entries", recordings.display());
    }
    let mut worse = Vec::new();
    for entry in &wanted {
        let before = known.iter().find(|one| one.name == entry.name).map(|one| one.verdict.outcome);
        let mut record = match &recordings {
            Some(recordings) => again(entry, &recordings.join(&entry.name)),
            None => scored(entry),
        };
        // One run on a busy host proves little: what became worse is tried again.
        if recordings.is_none() && is_worse(record.verdict.outcome, before) {
            record = scored(entry);
        }
        report(&record);
        if is_worse(record.verdict.outcome, before) {
            worse.push(format!("{}: {}", entry.name, record.verdict.outcome.words()));
        }
    }
    assert!(worse.is_empty(), "worse than drills/recorded.ndjson: {worse:#?}");
}

/// Prints the table of the file of records, and with PGFATHOM_WRITE_DOCS writes it into docs/drills.md and drills/recorded.ndjson.
#[test]
#[ignore = "prints what the others recorded"]
fn table_of_scores() {
    let Some(path) = env::var_os(SCORES).map(PathBuf::from) else {
        eprintln!("no table: {SCORES} names no file");
        return;
    };
    let records = table::read(&path).expect("the records can be read");
    println!("\n{}", table::text(&records));
    if env::var_os("PGFATHOM_WRITE_DOCS").is_some() {
        write_docs(&records);
    }
}

fn write_docs(new: &[Record]) {
    let target = root().join("drills/recorded.ndjson");
    let of_catalogue: Vec<Record> = {
        let mut all = recorded();
        for record in new.iter().filter(|one| one.area != table::DRILL) {
            all.retain(|one| one.name != record.name);
            all.push(Record { run: None, ..record.clone() });
        }
        let order = catalogue();
        let place = |name: &str| order.iter().position(|entry| entry.name == name);
        all.retain(|one| place(&one.name).is_some());
        all.sort_by_key(|one| place(&one.name));
        all
    };
    fs::write(&target, "").expect("the records can be written");
    for record in &of_catalogue {
        table::append(&target, record).expect("the records can be written");
    }
    let page = root().join("docs/drills.md");
    let text = fs::read_to_string(&page).expect("the page is there");
    let text = table::write_into(&text, &table::markdown(&of_catalogue)).expect("the page has its markers");
    fs::write(&page, text).expect("the page can be written");
}

/// The entries that the environment selects.
fn selected(all: &[Entry]) -> Vec<&Entry> {
    let words = env::var(NAMES).unwrap_or_default();
    let words: Vec<&str> = words.split_whitespace().collect();
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let day = env::var_os(THIRD).map(|_| since.as_secs() / DAY_S);
    let is_named = |entry: &Entry| {
        words.is_empty() || words.iter().any(|word| entry.name.contains(word) || entry.area == *word)
    };
    let all = all.iter().enumerate();
    all.filter(|(index, entry)| is_named(entry) && day.is_none_or(|day| is_of_day(*index, day)))
        .map(|(_, entry)| entry)
        .collect()
}

/// Every entry has its turn within three days.
fn is_of_day(index: usize, day: u64) -> bool {
    index as u64 % 3 == day % 3
}

/// Whether an outcome is worse than the recorded one: by kind, because first and second may change places on a busy host.
fn is_worse(now: Outcome, before: Option<Outcome>) -> bool {
    let kind = |outcome: Outcome| match outcome {
        Outcome::Silent | Outcome::First | Outcome::AmongThree | Outcome::NotPossible => 0,
        Outcome::Later | Outcome::SymptomOnly => 1,
        Outcome::Missed | Outcome::FalseAlarm => 2,
        Outcome::Broken => 3,
    };
    match before {
        Some(before) => kind(now) > kind(before),
        None => now == Outcome::Broken,
    }
}

/// The self-test: the runner passes with all rules, and fails once the rule of a condition is removed.
#[test]
#[ignore = "two or more runs of an entry"]
fn a_condition_whose_rule_is_removed_fails() {
    const NAME: &str = "log-statement-all";
    let before = recorded().into_iter().find(|one| one.name == NAME).expect("it is recorded");
    assert!(
        matches!(before.verdict.outcome, Outcome::First | Outcome::AmongThree),
        "choose one that is found: {before:?}"
    );
    let run = |without: &str| {
        let mut command = testing::again(module_path!(), "conditions");
        command.args(["--include-ignored", "--nocapture"]).env(NAMES, NAME).env(runner::WITHOUT, without);
        command.env_remove(THIRD).env_remove(SCORES).env_remove(ONE);
        let ended = command.output().expect("we start ourselves");
        (ended.status.success(), String::from_utf8_lossy(&ended.stderr).into_owned())
    };
    let (passed, text) = run("");
    assert!(passed, "{text}");
    let (passed, text) = run(&before.rules.join(" "));
    assert!(!passed && text.contains("worse than"), "{text}");
}

#[test]
fn every_entry_has_its_day_and_worse_is_worse() {
    for index in 0..100 {
        assert_eq!((20_000..20_003).filter(|day| is_of_day(index, *day)).count(), 1);
    }
    let found = Some(Outcome::First);
    assert!(
        is_worse(Outcome::Missed, found)
            && is_worse(Outcome::SymptomOnly, found)
            && is_worse(Outcome::Later, found)
    );
    assert!(!is_worse(Outcome::AmongThree, found) && !is_worse(Outcome::First, Some(Outcome::Missed)));
    assert!(is_worse(Outcome::FalseAlarm, Some(Outcome::Silent)) && is_worse(Outcome::Broken, None));
    assert!(!is_worse(Outcome::Missed, None) && !is_worse(Outcome::NotPossible, found));
}

#[test]
fn the_recorded_scores_are_those_of_the_catalogue() {
    let (all, recorded) = (catalogue(), recorded());
    let lost: Vec<&String> = recorded
        .iter()
        .map(|one| &one.name)
        .filter(|name| !all.iter().any(|entry| entry.name == **name))
        .collect();
    assert!(lost.is_empty(), "not in the catalogue any more: {lost:?}");
    let page = fs::read_to_string(root().join("docs/drills.md")).expect("the page is there");
    let shown = table::write_into(&page, &table::markdown(&recorded)).expect("the page has its markers");
    assert!(page == shown, "docs/drills.md does not show drills/recorded.ndjson: scripts/drills --docs");
}

fn report(record: &Record) {
    let claims: Vec<String> = record
        .verdict
        .claims
        .iter()
        .take(3)
        .map(|claim| format!("{} {}: {}", claim.rule, claim.severity, claim.claim))
        .collect();
    eprintln!(
        "condition {}: {} (others used {} of the CPUs, {:.0} s): {}{}",
        record.name,
        record.verdict.outcome.words(),
        record.foreign_cpu_pct.map_or("?".to_owned(), |pct| format!("{pct:.0} %")),
        record.wall_s,
        record.why.clone().unwrap_or_else(|| claims.join("; ")),
        record.cure.as_ref().map(|cure| format!("; remedy: {}", table::cure_words(cure))).unwrap_or_default()
    );
    if let Some(path) = env::var_os(SCORES) {
        table::append(Path::new(&path), record).expect("the record can be written");
    }
}

/// A drill with rules of its own, in the same table: whether what it expects comes first.
pub(crate) fn score_drill(name: &str, rules: &[&str], answer: &serde_json::Value) {
    let Some(path) = env::var_os(SCORES) else { return };
    let test = thread::current().name().unwrap_or("drill").to_owned();
    let rules: Vec<String> = rules.iter().map(|rule| (*rule).to_owned()).collect();
    let mut verdict = score::judge(answer, &Expected { rules: &rules, ..Expected::default() });
    // Drills cause several conditions at once, and state only some of them: other claims are not judged.
    verdict.wrong.clear();
    let record = Record {
        name: format!("{test}/{name}"),
        area: table::DRILL.to_owned(),
        cause: "see the table of drills in docs/drills.md".to_owned(),
        rules,
        ..blank(verdict)
    };
    table::append(Path::new(&path), &record).expect("the record can be written");
}

fn blank(verdict: Verdict) -> Record {
    Record {
        name: String::new(),
        area: String::new(),
        cause: String::new(),
        healthy: false,
        rules: Vec::new(),
        verdict,
        foreign_cpu_pct: None,
        postgres: 0,
        why: None,
        cure: None,
        run: None,
        wall_s: 0.0,
    }
}

fn without(entry: &Entry, outcome: Outcome, why: String) -> Record {
    let verdict = Verdict { outcome, rank: None, wrong: Vec::new(), claims: Vec::new() };
    Record {
        name: entry.name.clone(),
        area: entry.area.clone(),
        cause: entry.cause.clone(),
        healthy: entry.healthy,
        rules: entry.rules.clone(),
        why: Some(why),
        ..blank(verdict)
    }
}

/// What this host lacks for an entry.
fn lack(entry: &Entry) -> Result<(), Lack> {
    if entry.disk.is_some() {
        needs::loop_devices()?;
        needs::slow_disks()?;
    }
    if entry.shm_mib.is_some() {
        needs::mounts()?;
    }
    if entry.pooler.is_some() {
        needs::program(pooler::PROGRAM)?;
    }
    for (is_needed, controller) in
        [(entry.cpu_quota_pct.is_some(), "cpu"), (entry.memory_mib.is_some(), "memory")]
    {
        if is_needed {
            Group::new(controller).map_err(|why| Lack::new("cgroup-v1", why))?;
        }
    }
    runner::installation(entry).map(drop).map_err(|why| Lack::new("postgres-release", why))
}

/// Runs an entry in a process of its own.
fn scored(entry: &Entry) -> Record {
    if let Err(lack) = lack(entry) {
        testing::skip(&lack);
        return without(entry, Outcome::NotPossible, lack.to_string());
    }
    let folder = Folder::new();
    let (result, output) = (folder.path().join("result"), folder.path().join("output"));
    let exe = env::current_exe().expect("we were started from a file");
    let mut command = if entry.disk.is_some() || entry.shm_mib.is_some() {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--"]).arg(exe);
        command
    } else {
        Command::new(exe)
    };
    command.args([
        "--exact",
        "catalogue::conditions",
        "--include-ignored",
        "--nocapture",
        "--test-threads",
        "1",
    ]);
    command.env(ONE, &entry.name).env(RESULT, &result).stdin(Stdio::null());
    let file = fs::File::create(&output).expect("the folder is ours");
    command.stdout(Stdio::null()).stderr(file);
    sys::end_with_us(&mut command);
    let (mut child, begun) = (command.spawn().expect("we start ourselves"), Instant::now());
    while child.try_wait().expect("it is our child").is_none() {
        if begun.elapsed() > ENTRY_TIMEOUT {
            let _ = child.kill();
            let _ = child.wait();
            return without(
                entry,
                Outcome::Broken,
                format!("it did not end in {} s", ENTRY_TIMEOUT.as_secs()),
            );
        }
        thread::sleep(Duration::from_millis(100));
    }
    let written = fs::read_to_string(&result).ok().and_then(|text| serde_json::from_str(&text).ok());
    written.unwrap_or_else(|| {
        let text = fs::read_to_string(&output).unwrap_or_default();
        let line = text.lines().rev().find(|line| !line.is_empty() && !line.starts_with("note:"));
        without(entry, Outcome::Broken, line.unwrap_or("it ended without a record").to_owned())
    })
}

/// Judges what an earlier call kept of an entry. An entry that could not be caused then stays as it was.
fn again(entry: &Entry, kept: &Path) -> Record {
    let text = fs::read_to_string(kept.join(RECORD)).expect("it was there a moment ago");
    let before: Record = serde_json::from_str(&text).expect("a record is JSON");
    if matches!(before.verdict.outcome, Outcome::Broken | Outcome::NotPossible) {
        return before;
    }
    let judged = runner::judge_kept(entry, kept, before);
    judged.unwrap_or_else(|why| without(entry, Outcome::Broken, why))
}

/// The child's part.
fn in_the_child(entry: &Entry) {
    let wait_s = env::var(WAIT).ok().and_then(|text| text.parse().ok()).unwrap_or(WAIT_DEFAULT_S);
    let foreign = Foreign::new();
    foreign.wait_for_less_than(QUIET_PCT, Duration::from_secs(wait_s));
    let folder = Folder::new();
    if let Some(mib) = entry.shm_mib {
        host::shrink_shared_memory(mib).expect("the parent tried to mount");
    }
    let island = entry.disk.map(|_| Island::new(Own::Mounts).expect("the parent tried it"));
    let performed = runner::perform(entry, folder.path(), &foreign, island.as_ref());
    let mut record = performed.unwrap_or_else(|why| without(entry, Outcome::Broken, why));
    record.run = env::var_os(KEEP).and_then(|keep| kept(folder.path(), &Path::new(&keep).join(&entry.name)));
    let text = serde_json::to_string(&record).expect("a record is JSON");
    if let Some(run) = &record.run {
        fs::write(run.join(RECORD), &text).expect("the folder is ours");
    }
    fs::write(env::var_os(RESULT).expect("the parent set it"), text).expect("the parent made the folder");
}

/// Copies what the entry left to a folder that stays.
fn kept(from: &Path, to: &Path) -> Option<PathBuf> {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to.parent()?).ok()?;
    let copied = Command::new("cp").arg("-r").arg(from).arg(to).status().ok()?;
    copied.success().then(|| to.to_path_buf())
}
