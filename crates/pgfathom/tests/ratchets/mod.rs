//! What may only become better: lists of exceptions that shrink. `PGFATHOM_BLESS=1 cargo test -p pgfathom --test tidy` writes them anew after a
//! file was moved; a list that grew is for the reviewer to refuse.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::{production, read, root, sources};

/// A module longer than this is listed in `ratchets/long-modules`.
const MODULE_LINES: usize = 600;

/// The lines of a list.
fn listed(name: &str) -> BTreeSet<String> {
    let text = read(&root().join("crates/pgfathom/tests/ratchets").join(name));
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// Compares what was found with a list of exceptions: nothing may be new, and what is gone must be removed.
fn hold(name: &str, about: &str, found: &BTreeSet<String>) {
    let path = root().join("crates/pgfathom/tests/ratchets").join(name);
    if std::env::var("PGFATHOM_BLESS").is_ok_and(|value| value == "1") {
        let lines: String = found.iter().map(|line| format!("{line}\n")).collect();
        fs::write(&path, format!("# {about} This list only shrinks.\n{lines}"))
            .expect("the list can be written");
    }
    let listed = listed(name);
    let new: Vec<&String> = found.difference(&listed).collect();
    let gone: Vec<&String> = listed.difference(found).collect();
    assert!(new.is_empty(), "{about} New: {new:#?}");
    assert!(gone.is_empty(), "remove from {}: {gone:#?}", path.display());
}

#[test]
fn long_modules_only_become_fewer() {
    let mut found = Vec::new();
    sources(&root().join("crates"), &mut found);
    let long = found.iter().filter(|path| read(path).lines().count() > MODULE_LINES);
    let long = long.map(|path| path.strip_prefix(root()).expect("below the root").display().to_string());
    hold("long-modules", &format!("Modules of more than {MODULE_LINES} lines."), &long.collect());
}

/// A benchmark is one folder of `workloads`: other code asks the lists of that crate. `data` has content with golden vectors.
#[test]
fn benchmarks_are_named_in_their_folders_only() {
    let datasets = workloads::dataset::DATASETS.iter().map(|dataset| dataset.name);
    let titles = workloads::driving::FAMILIES.iter().map(|family| family.title());
    // That one is a word of English, too.
    let names: BTreeSet<String> =
        datasets.chain(titles).map(str::to_lowercase).filter(|name| name != "documents").collect();
    assert!(names.len() > 5, "{names:?}");
    let is_outside = |file: &str| !file.starts_with("crates/workloads/") && !file.starts_with("crates/data/");
    let names_one = |line: &String| {
        // pgbench's own script is none of ours.
        let line = line.trim().to_lowercase().replace("tpcb-like", "");
        !line.starts_with("//") && names.iter().any(|name| line.contains(name))
    };
    let found =
        production().into_iter().filter(|(file, lines)| is_outside(file) && lines.iter().any(names_one));
    hold(
        "benchmark-names",
        "Modules outside of workloads that name a benchmark.",
        &found.map(|(file, _)| file).collect(),
    );
}

/// Clippy refuses functions of more than seven arguments; nobody may switch that off.
#[test]
fn seven_arguments_are_enough() {
    let name = ["too_many", "_arguments"].concat();
    let with = production().into_iter().filter(|(_, lines)| lines.iter().any(|line| line.contains(&name)));
    hold(
        "many-arguments",
        "Modules with functions of more than seven arguments.",
        &with.map(|(file, _)| file).collect(),
    );
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or_default();
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// The crate of a file: `load` of `crates/load/src/fill.rs`, else the first folder.
fn crate_of(file: &str) -> &str {
    let mut parts = file.split('/');
    match parts.next() {
        Some("crates") => parts.next().unwrap_or_default(),
        other => other.unwrap_or_default(),
    }
}

/// The function, constant or static that a line declares for other crates.
fn declared(line: &str) -> Option<&str> {
    // The name of a macro's function is a parameter of the macro.
    let line = line.trim_start().strip_prefix("pub ").filter(|line| !line.contains("fn $"))?;
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    loop {
        match words.next()? {
            "fn" | "static" => return words.next(),
            "const" => match words.next()? {
                "fn" => return words.next(),
                name => return Some(name),
            },
            "async" | "unsafe" => {}
            _ => return None,
        }
    }
}

/// What is public and read by nobody outside of its crate, tests included, should say so: then the compiler knows when nobody reads it at all.
/// Types are left out: a signature may need them whose name nobody writes.
#[test]
fn what_is_public_is_read() {
    let mut files = Vec::new();
    for folder in ["crates", "drills", "fuzz"] {
        sources(&root().join(folder), &mut files);
    }
    let mut readers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in &files {
        let file = path.strip_prefix(root()).expect("below the root").display().to_string();
        let (name, is_inside) = (crate_of(&file).to_owned(), file.contains("/src/"));
        // The tests, examples and benchmarks of a crate stand outside of it.
        let reader = if is_inside { name } else { format!("{name} outside") };
        for line in read(path).lines() {
            // What a macro for other crates names is read there.
            let reader = if line.contains("$crate::") { format!("{reader} macro") } else { reader.clone() };
            for word in words(line) {
                if !readers.get(word).is_some_and(|readers| readers.contains(&reader)) {
                    readers.entry(word.to_owned()).or_default().insert(reader.clone());
                }
            }
        }
    }
    let mut found = BTreeSet::new();
    for (file, lines) in production() {
        let its = crate_of(&file);
        if ["pgfathom", "testing"].contains(&its) {
            continue;
        }
        let unread =
            |name: &&str| !readers.get(*name).is_some_and(|all| all.iter().any(|reader| reader != its));
        found.extend(
            lines.iter().filter_map(|line| declared(line)).filter(unread).map(|name| format!("{its} {name}")),
        );
    }
    hold("unread-public", "Public functions and constants that no other crate and no test reads.", &found);
}

/// Words that a reader has to decode, because the field has other ones (rule 5 of the guide for prose): programs report and query, they do not say
/// and ask, and no process is a nobody.
const PRIVATE_WORDS: [&str; 30] = [
    "acquit",
    "acquits",
    "asked",
    "books",
    "crew",
    "dealt",
    "desk",
    "diary",
    "foreman",
    "ground",
    "hears",
    "heard",
    "moments",
    "nobody",
    "said",
    "says",
    "seat",
    "seats",
    "somebody",
    "stranger",
    "strangers",
    "talk",
    "talks",
    "team",
    "tell",
    "tells",
    "told",
    "voice",
    "voices",
    "whoever",
];

/// How often each crate has each of these words in its source, comments included: words of identifiers count, parts of words do not.
fn private_words(files: impl Iterator<Item = (String, String)>) -> BTreeMap<(String, &'static str), usize> {
    let mut counts = BTreeMap::new();
    for (file, text) in files {
        // "Cannot tell" is a verdict, and a machine of PostgreSQL may have a user of that name.
        let text = text
            .to_lowercase()
            .replace("cannot tell", "")
            .replace("cannot_tell", "")
            .replace("\"nobody\"", "");
        for word in text.split(|c: char| !c.is_alphanumeric()) {
            if let Some(known) = PRIVATE_WORDS.iter().find(|known| **known == word) {
                *counts.entry((crate_of(&file).to_owned(), *known)).or_default() += 1;
            }
        }
    }
    counts
}

#[test]
fn private_words_only_become_fewer() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    let named = files.iter().map(|path| {
        let name = path.strip_prefix(root()).expect("below the root").display().to_string();
        (name, read(path))
    });
    let found = private_words(named.filter(|(name, _)| name.contains("/src/")));
    let lines: BTreeSet<String> =
        found.iter().map(|((name, word), count)| format!("{name} {word} {count}")).collect();
    println!("private words: {} in all", found.values().sum::<usize>());
    if std::env::var("PGFATHOM_BLESS").is_ok_and(|value| value == "1") {
        hold("private-words", "Private words by crate, with their number.", &lines);
    }
    let mut known = BTreeMap::new();
    for line in listed("private-words") {
        let (word, count) = line.rsplit_once(' ').expect("a crate, a word and a number");
        known.insert(word.to_owned(), count.parse::<usize>().expect("a number"));
    }
    let more: Vec<String> = found
        .iter()
        .filter(|((name, word), count)| **count > known.get(&format!("{name} {word}")).copied().unwrap_or(0))
        .map(|((name, word), count)| format!("{name} {word} {count}"))
        .collect();
    assert!(more.is_empty(), "use the field's terms, more private words than listed: {more:#?}");
    let all: usize = known.values().sum();
    let slack = all - found.values().sum::<usize>();
    assert!(slack <= PRIVATE_WORDS_SLACK, "{slack} private words are gone: bless the list");
}

/// So many words may go before the list must be written anew: otherwise every change of a comment would have to.
const PRIVATE_WORDS_SLACK: usize = 50;

#[test]
fn private_words_are_counted() {
    let text = "// He told_it, as Nobody says; says. It cannot tell: cannot_tell. essays";
    let found = private_words([("crates/run/src/a.rs".to_owned(), text.to_owned())].into_iter());
    let of = |word: &'static str| found.get(&("run".to_owned(), word)).copied().unwrap_or(0);
    assert_eq!((of("told"), of("nobody"), of("says"), of("tell")), (1, 1, 2, 0));
}

/// The place of a module in its crate: `["fill", "team"]` of `crates/load/src/fill/team.rs`.
fn module_of(file: &str) -> Vec<String> {
    let path = file.split_once("/src/").map_or("", |(_, path)| path).trim_end_matches(".rs");
    let mut parts: Vec<String> = path.split('/').map(str::to_owned).collect();
    if matches!(parts.last().map(String::as_str), Some("lib" | "main" | "mod")) {
        parts.pop();
    }
    parts
}

/// All paths that source names: `use a::{b, c::d};` gives `a::b` and `a::c::d`.
fn paths(lines: &[String]) -> Vec<Vec<String>> {
    let code: String =
        lines.iter().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    let mut paths = Vec::new();
    for (at, _) in code.match_indices("crate::").chain(code.match_indices("super::")) {
        let is_inner = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
        if !is_inner {
            tree(&code[at..], &mut Vec::new(), &mut paths);
        }
    }
    paths
}

/// Reads one path, or the tree of paths of a `use`; gives what is left.
fn tree<'a>(mut code: &'a str, before: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> &'a str {
    let depth = before.len();
    loop {
        code = code.trim_start();
        if let Some(inner) = code.strip_prefix('{') {
            code = inner;
            while !code.starts_with('}') && !code.is_empty() {
                code = tree(code, before, found).trim_start();
                code = code.strip_prefix(',').unwrap_or(code).trim_start();
            }
            code = code.strip_prefix('}').unwrap_or(code);
            break;
        }
        let length = code.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(code.len());
        if length == 0 {
            found.push(before.clone());
            // Something that is no path, as `*`, must not be read for ever.
            code = code.get(1..).unwrap_or_default();
            break;
        }
        before.push(code[..length].to_owned());
        code = &code[length..];
        match code.strip_prefix("::") {
            Some(rest) => code = rest,
            None => {
                found.push(before.clone());
                let name = code.trim_start().strip_prefix("as ").map(str::trim_start);
                if let Some(name) = name {
                    code =
                        &name[name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len())..];
                }
                break;
            }
        }
    }
    before.truncate(depth);
    code
}

/// The module that a path named in `module` leads to: the longest part of it that is one.
fn target(module: &[String], path: &[String], modules: &BTreeSet<Vec<String>>) -> Option<Vec<String>> {
    let mut place = if path[0] == "crate" { Vec::new() } else { module.to_vec() };
    let mut found = None;
    for word in path.iter().skip_while(|word| *word == "crate") {
        match word.as_str() {
            "super" => {
                place.pop();
            }
            "self" => {}
            name => place.push(name.to_owned()),
        }
        if modules.contains(&place) {
            found = Some(place.clone());
        }
    }
    found
}

/// Modules that name each other, directly or over others. A parent and its children may: they are one piece.
fn circles(files: &BTreeMap<Vec<String>, Vec<String>>) -> Vec<BTreeSet<String>> {
    let modules: BTreeSet<Vec<String>> = files.keys().cloned().collect();
    let mut ways: BTreeMap<&Vec<String>, BTreeSet<Vec<String>>> = BTreeMap::new();
    for (module, lines) in files {
        let its = paths(lines).into_iter().filter_map(|path| target(module, &path, &modules));
        ways.insert(
            module,
            its.filter(|other| !other.starts_with(module) && !module.starts_with(other)).collect(),
        );
    }
    let reach = |from: &Vec<String>| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(module) = left.pop() {
            left.extend(ways[&module].iter().filter(|next| seen.insert((*next).clone())).cloned());
        }
        seen
    };
    let reached: BTreeMap<&Vec<String>, BTreeSet<Vec<String>>> =
        files.keys().map(|module| (module, reach(module))).collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for (module, far) in reached.iter().filter(|(module, far)| far.contains(**module)) {
        let circle: BTreeSet<String> = far
            .iter()
            .filter(|other| reached[other].contains(*module))
            .map(|other| other.join("::"))
            .collect();
        if !found.contains(&circle) {
            found.push(circle);
        }
    }
    found
}

#[test]
fn modules_stand_on_each_other_one_way() {
    let mut crates: BTreeMap<String, BTreeMap<Vec<String>, Vec<String>>> = BTreeMap::new();
    for (file, lines) in production() {
        crates.entry(crate_of(&file).to_owned()).or_default().insert(module_of(&file), lines);
    }
    let mut found = BTreeSet::new();
    for (name, files) in &crates {
        for circle in circles(files) {
            found.insert(format!("{name} {}", circle.into_iter().collect::<Vec<_>>().join(" ")));
        }
    }
    hold("circles", "Modules of a crate that need each other.", &found);
}

#[test]
fn circles_are_found() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let module = |text: &str| text.split('/').map(str::to_owned).collect::<Vec<_>>();
    let files = [
        ("a", "use crate::b::{self, Thing as Other, deep::{Deep, *}};\nmod child;"),
        ("a/child", "use super::Own;"),
        ("b", "fn f() { super::c::g(); }"),
        ("c", "// crate::b\nuse crate::a::child;"),
        ("d", "use crate::{a::Own, c};"),
    ];
    let files = files.map(|(name, text)| (module(name), lines(text))).into_iter().collect();
    // `c` stands on a child of `a`, which stands on its parent only.
    assert_eq!(circles(&files), Vec::<BTreeSet<String>>::new());
    let files = [("a", "use crate::{b::Thing};"), ("b", "fn f() { super::c::g(); }"), ("c", "use crate::a;")];
    let files = files.map(|(name, text)| (module(name), lines(text))).into_iter().collect();
    assert_eq!(circles(&files), [["a", "b", "c"].map(str::to_owned).into()]);
    assert_eq!(declared("    pub const fn three() -> u8 {"), Some("three"));
    assert_eq!(declared("pub const THREE: u8 = 3;"), Some("THREE"));
    assert_eq!(declared("pub struct Three;"), None);
}
