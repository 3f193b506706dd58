//! Decisions that stay decided: the arrows between the crates, the number of dependencies, the shape of the source.

mod ratchets;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Which of our crates each of them may stand on (ARCHITECTURE.md, "The house").
const ARROWS: [(&str, &[&str]); 19] = [
    ("data", &[]),
    ("wire", &[]),
    ("record", &[]),
    ("testing", &[]),
    ("postgres", &[]),
    ("connect", &["postgres", "record", "wire"]),
    ("engines", &["connect", "postgres", "record", "wire"]),
    ("lab", &["connect", "engines", "postgres", "record"]),
    ("load", &["data", "postgres", "wire", "record", "connect", "engines"]),
    ("run", &["wire", "record", "connect", "engines"]),
    ("prove", &["data", "wire", "record", "connect", "engines", "lab"]),
    ("watch", &["postgres", "record", "connect", "engines", "lab"]),
    ("workloads", &["data", "postgres", "wire", "record", "connect", "engines", "load", "run", "prove"]),
    ("check", &["connect", "engines", "postgres", "record", "watch"]),
    ("plan", &["record"]),
    ("explain", &["record"]),
    ("report", &["record"]),
    (
        "app",
        &[
            "data",
            "postgres",
            "wire",
            "record",
            "connect",
            "engines",
            "lab",
            "load",
            "run",
            "prove",
            "watch",
            "check",
            "plan",
            "explain",
            "report",
            "workloads",
        ],
    ),
    (
        "pgfathom",
        &[
            "app",
            "data",
            "wire",
            "record",
            "connect",
            "lab",
            "load",
            "workloads",
            "run",
            "prove",
            "watch",
            "check",
        ],
    ),
];

/// Foreign packages in Cargo.lock at most, those of other platforms and of tests included. Raised only on purpose: the last time
/// for `der`, which replaced `x509-parser` and twenty-one packages below it in builds; the lock still names those, as an option of `rcgen` that is off.
/// After that for `sqlparser`, which needs only `log`.
const LOCKED_PACKAGES_MAX: usize = 200;

/// A module over about 600 lines is split by idea; a little more is not worth a bad split.
const MODULE_LINES_MAX: usize = 700;

/// A function longer than this is listed in `long-functions`, with its length. The list only shrinks.
const FUNCTION_LINES_MAX: usize = 70;

/// Production lines wider than this. The count only shrinks.
const LINE_CHARS_MAX: usize = 160;
const WIDE_LINES: usize = 12;
/// The command only turns flags into plans; what a verb does is in `app`, for callers without a command line.
const COMMAND_LINES_MAX: usize = 4_000;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names under `[dependencies]` of a manifest.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let section = manifest.split("[dependencies]").nth(1).unwrap_or_default();
    let lines = section.lines().skip(1).take_while(|line| !line.starts_with('['));
    let name = |line: &str| line.split(['.', ' ', '=']).next().unwrap_or_default().to_string();
    lines.filter(|line| !line.trim().is_empty() && !line.starts_with('#')).map(name).collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the source is readable").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn arrows_point_one_way() {
    let ours: BTreeSet<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    let folders: BTreeSet<String> = fs::read_dir(root().join("crates"))
        .expect("crates/ is there")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    assert_eq!(
        folders.iter().map(String::as_str).collect::<BTreeSet<_>>(),
        ours,
        "a crate without a place in the house"
    );
    for (name, allowed) in ARROWS {
        let found = dependencies(&read(&root().join("crates").join(name).join("Cargo.toml")));
        assert!(!found.is_empty() || name == "data", "the dependencies of {name} were not found");
        let wrong: Vec<&String> = found
            .iter()
            .filter(|other| ours.contains(other.as_str()) && !allowed.contains(&other.as_str()))
            .collect();
        assert!(wrong.is_empty(), "{name} must not stand on {wrong:?}");
    }
}

#[test]
fn the_hot_path_has_no_runtime_and_content_no_dependency() {
    let of = |name: &str| dependencies(&read(&root().join("crates").join(name).join("Cargo.toml")));
    for name in ["data", "wire", "load", "run", "record", "report", "pgfathom"] {
        let found = of(name);
        let wrong: Vec<&String> =
            found.iter().filter(|other| other.contains("tokio") || *other == "async-std").collect();
        assert!(wrong.is_empty(), "{name} stands on {wrong:?}: only connect's control connections may");
    }
    assert_eq!(of("data"), BTreeSet::new(), "data depends on nothing: its output is frozen");
    for name in ["wire", "run"] {
        assert!(!of(name).contains("postgres"), "{name} speaks the protocol itself");
    }
}

#[test]
fn dependencies_are_counted() {
    let lock = read(&root().join("Cargo.lock"));
    let packages = lock.lines().filter(|line| line.starts_with("source = ")).count();
    assert!(packages > 50, "Cargo.lock was not understood");
    assert!(
        packages <= LOCKED_PACKAGES_MAX,
        "{packages} packages are locked, {LOCKED_PACKAGES_MAX} are the budget"
    );
}

/// A skip that is only printed is seen by nobody: `testing::skip` is counted. Nor are examples in comments run: there must be none to run.
#[test]
fn tests_skip_in_one_way_and_comments_hold_no_programs() {
    let mut found = Vec::new();
    sources(&root().join("crates"), &mut found);
    sources(&root().join("drills"), &mut found);
    let mut problems = Vec::new();
    for path in found.iter().filter(|path| !path.starts_with(root().join("crates/testing"))) {
        let text = read(path);
        let prints = |line: &&str| line.contains("println!(\"");
        let skips = |line: &str| {
            let line = line.to_lowercase();
            ["skipped:", "not tested", "not possible here", "untested"]
                .iter()
                .any(|words| line.contains(words))
        };
        for line in text.lines().filter(prints).filter(|line| skips(line) && !line.contains("drill {rule}")) {
            problems.push(format!("{}: use testing::skip: {}", path.display(), line.trim()));
        }
        let mut is_open = false;
        for line in text
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with("//! ```") || line.starts_with("/// ```"))
        {
            if !is_open
                && matches!(line[4..].trim_start_matches('`'), "" | "rust" | "no_run" | "should_panic")
            {
                problems.push(format!("{}: a program in a comment: {line}", path.display()));
            }
            is_open = !is_open;
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

/// Where cargo does not look for test programs by itself, a file that no program declares would never be run.
#[test]
fn every_file_of_tests_is_run() {
    let mut forgotten = Vec::new();
    for krate in fs::read_dir(root().join("crates")).expect("crates/ is there").flatten() {
        let manifest = read(&krate.path().join("Cargo.toml"));
        if !manifest.contains("autotests = false") {
            continue;
        }
        let folder = krate.path().join("tests");
        let all = read(&folder.join("all.rs"));
        for file in fs::read_dir(&folder).expect("its tests are there").flatten() {
            let path = file.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let is_source = path.extension().is_some_and(|extension| extension == "rs");
            let is_module = all.lines().any(|line| line == format!("mod {name};"));
            if is_source && !is_module && !manifest.contains(&format!("[[test]]\nname = \"{name}\"\n")) {
                forgotten.push(path);
            }
        }
    }
    assert!(
        forgotten.is_empty(),
        "declare them in tests/all.rs, or as programs in Cargo.toml: {forgotten:?}"
    );
}

#[test]
fn modules_are_short_and_say_what_they_are() {
    let mut found = Vec::new();
    sources(&root().join("crates"), &mut found);
    sources(&root().join("drills"), &mut found);
    assert!(found.len() > 50, "the source was not found");
    let mut problems = BTreeMap::new();
    for path in found {
        let text = read(&path);
        let is_test_module =
            path.ends_with("tests.rs") || path.components().any(|part| part.as_os_str() == "tests");
        if !is_test_module && !text.starts_with("//!") {
            problems.insert(path.clone(), "does not begin with //!".to_string());
        }
        let lines = text.lines().count();
        if lines > MODULE_LINES_MAX {
            problems.insert(path.clone(), format!("has {lines} lines"));
        }
        // Put together so that this file does not contain them.
        for word in [["to", "do!("], ["unimple", "mented!("], ["db", "g!("], ["FIX", "ME"]] {
            if text.contains(&word.concat()) {
                problems.insert(path.clone(), format!("contains {}", word.concat()));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

/// Where an engine's name may stand in code outside of `engines`, and why.
const ENGINE_NAMES: [(&str, &str); 3] = [
    ("crates/lab/src/", "local clusters are made by their kinds, some of which are called as their engine"),
    ("verbs/up.rs", "the kinds of `up` on the command line"),
    ("crates/app/src/prove/", "the kinds of `prove --local`"),
];

/// Code reads the values of an engine's profile; it does not ask which engine it has. So neither an engine of its own (`Engine::Name`) nor a name in a
/// string decides anything. PostgreSQL's name is also that of a program, a crate and a database.
/// Keywords that queries on catalogs use as names of columns. Before PostgreSQL 14 a name that is a keyword needs AS in a SELECT list.
const KEYWORDS_AS_NAMES: [&str; 14] = [
    "columns",
    "database",
    "function",
    "identity",
    "indexes",
    "locked",
    "name",
    "names",
    "rows",
    "tables",
    "temporary",
    "text",
    "type",
    "value",
];

/// What stands in string literals; other characters are blanks, so that lines keep their numbers.
fn in_strings(text: &str) -> String {
    let (mut is_inside, mut is_escaped) = (false, false);
    let kept = text.lines().map(|line| if line.trim_start().starts_with("//") { "" } else { line });
    let kept = kept.collect::<Vec<_>>().join("\n");
    kept.chars()
        .map(|c| {
            let ends = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            is_inside ^= ends;
            if c == '\n' || is_inside && !ends { c } else { ' ' }
        })
        .collect()
}

#[test]
fn names_that_are_keywords_have_as_in_front() {
    let mut found = vec![];
    for folder in ["crates/watch/src/sql", "crates/check/src/database"] {
        let mut files = vec![];
        sources(&root().join(folder), &mut files);
        for file in files {
            for (number, line) in in_strings(&read(&file)).lines().enumerate() {
                let words: Vec<&str> = line.split_whitespace().collect();
                let is_bare = |pair: &[&str]| {
                    let is_expression =
                        pair[0].ends_with([')', ']']) || pair[0].contains("::") || pair[0].contains('.');
                    is_expression && KEYWORDS_AS_NAMES.contains(&pair[1].trim_end_matches([',', ')', '\\']))
                };
                if words.windows(2).any(is_bare) {
                    found.push(format!("{}:{}: {}", file.display(), number + 1, line.trim()));
                }
            }
        }
    }
    assert!(
        found.is_empty(),
        "write AS before a name that is a keyword: PostgreSQL 13 refuses it otherwise\n{}",
        found.join("\n")
    );
}

#[test]
fn only_the_crate_of_engines_knows_them_by_name() {
    let signs = engines::engine::signs();
    let mut names: BTreeSet<&str> = signs.iter().map(engines::engine::Signs::name).collect();
    for engine in engines::Engine::ALL {
        names.extend(engine.aliases.iter().chain([&engine.name]));
    }
    names.remove(engines::Engine::default().name());
    assert!(names.len() > 10, "the names were not found");
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let (mut problems, mut used) = (Vec::new(), BTreeSet::new());
    for (file, lines) in production().iter().filter(|(file, _)| !file.starts_with("crates/engines/")) {
        let code = lines.iter().map(|line| line.trim()).filter(|line| !line.starts_with("//"));
        for line in code.filter(|line| line.split(|c| !is_of_word(c)).any(|word| names.contains(word))) {
            match ENGINE_NAMES.iter().find(|(place, _)| file.contains(place)) {
                Some((place, _)) => {
                    used.insert(*place);
                }
                None => problems.push(format!("{file}: read a value of the engine's profile: {line}")),
            }
        }
    }
    let unused = ENGINE_NAMES.iter().filter(|(place, _)| !used.contains(place));
    problems.extend(
        unused.map(|(place, _)| format!("{place} names no engine any more: remove it from ENGINE_NAMES")),
    );
    let mut found = Vec::new();
    sources(&root().join("crates"), &mut found);
    for path in found.iter().filter(|path| !path.starts_with(root().join("crates/engines"))) {
        // `Engine::ALL` is for whoever lists them, and this file talks about the rest.
        let is_one =
            |rest: &str| rest.starts_with(|c: char| c.is_ascii_uppercase()) && !rest.starts_with("ALL");
        if !path.ends_with("tidy.rs") && read(path).split("Engine::").skip(1).any(is_one) {
            problems.push(format!("{} names an engine: read a value of its profile", path.display()));
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

/// The production code: sources below `src` without the modules of tests, and without test modules at the end of a file.
fn production() -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    sources(&root().join("crates"), &mut found);
    found.sort();
    let mut files = Vec::new();
    for path in found {
        let name = path.strip_prefix(root()).expect("below the root").display().to_string();
        if !name.contains("/src/") || name.contains("/tests/") || name.ends_with("/tests.rs") {
            continue;
        }
        let text = read(&path);
        let lines = text.lines().take_while(|line| *line != "#[cfg(test)]").map(str::to_owned).collect();
        files.push((name, lines));
    }
    files
}

/// Name and length of every function of formatted source: one ends where its closing brace stands below its first character.
fn functions(lines: &[String]) -> Vec<(String, usize)> {
    let name_of = |line: &str| {
        let mut words = line.split_whitespace().peekable();
        while words
            .next_if(|word| word.starts_with("pub") || ["const", "async", "unsafe"].contains(word))
            .is_some()
        {}
        (words.next() == Some("fn"))
            .then(|| words.next())?
            .map(|word| word.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>())
    };
    let mut functions = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let Some(name) = name_of(line) else { continue };
        let indent = &line[..line.len() - line.trim_start().len()];
        let end = format!("{indent}}}");
        // A declaration and a body on one line end before any brace of their own.
        let length = lines[first..].iter().position(|line| *line == end).map_or(1, |place| place + 1);
        let is_short = line.ends_with('}')
            || lines[first..].iter().take(length).any(|line| {
                line.starts_with(indent) && !line[indent.len()..].starts_with(' ') && line.ends_with(';')
            });
        if !is_short {
            functions.push((name, length));
        }
    }
    functions
}

#[test]
fn functions_and_lines_only_become_shorter() {
    let list = root().join("crates/pgfathom/tests/long-functions");
    let mut found = Vec::new();
    let (mut wide, mut lengths, mut sizes) = (0, Vec::new(), BTreeMap::<String, usize>::new());
    for (file, lines) in production() {
        wide += lines.iter().filter(|line| line.chars().count() > LINE_CHARS_MAX).count();
        *sizes.entry(file.split('/').nth(1).unwrap_or_default().to_owned()).or_default() += lines.len();
        for (name, length) in functions(&lines) {
            lengths.push(length);
            if length > FUNCTION_LINES_MAX {
                found.push(format!("{length} {file} {name}"));
            }
        }
    }
    lengths.sort_unstable();
    println!("lines by crate: {sizes:?}, {} in all", sizes.values().sum::<usize>());
    println!("{} functions, {} lines in the median", lengths.len(), lengths[lengths.len() / 2]);
    assert!(lengths.len() > 3_000, "the functions were not found");
    let command = sizes["pgfathom"];
    assert!(command <= COMMAND_LINES_MAX, "the command has {command} lines: what it does belongs to app");
    let listed = read(&list);
    let listed: Vec<&str> = listed.lines().filter(|line| !line.starts_with('#')).collect();
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    let longer: Vec<&&str> = found.iter().filter(|line| !listed.contains(line)).collect();
    let shorter: Vec<&&str> = listed.iter().filter(|line| !found.contains(line)).collect();
    assert!(
        longer.is_empty() && shorter.is_empty(),
        "split what is long: {longer:#?}\nremove from {} what is not so long any more: {shorter:#?}",
        list.display()
    );
    assert!(wide <= WIDE_LINES, "{wide} lines are wider than {LINE_CHARS_MAX}, {WIDE_LINES} were");
    assert_eq!(wide, WIDE_LINES, "lower WIDE_LINES");
}

#[test]
fn long_functions_are_found() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let text = "trait T {\n    fn declared(&self) -> u8;\n    fn made(&self) {\n        if true {\n        }\n    }\n}\npub(crate) async fn long(\n    a: u8,\n) -> u8 {\n    1\n}\nfn one() {}\n";
    assert_eq!(functions(&lines(text)), [("made".to_owned(), 4), ("long".to_owned(), 5)]);
}
