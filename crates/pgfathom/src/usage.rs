//! Mistakes on the command line, in the form of every other error: `error: what`, blank line, `hint: what to type`.
//!
//! clap finds them; its text is replaced, because it has no remedy and ignores the habits of psql and pgbench users.

use crate::failure::Failure;
use app::quantity::ValueError;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::error::Error as _;
use workloads::driving::pgbench_flags;

/// Planned verbs that this version lacks, with what to use instead.
const LATER_VERBS: &[(&str, &str)] = &[
    ("compare", "pgfathom report --format json RUN prints the figures of one run"),
    ("serve", "pgfathom report RUN writes one page that opens without a server"),
    ("agent", "pgfathom run drives from one host"),
];

/// Flags of psql, pgbench and other tools, and what to type here.
const HABITS: &[(&[&str], &str)] = &[
    (
        &["--warehouses", "--warehouse", "--branches"],
        "-s or --scale counts warehouses and branches; --rows and --size the rows of one table",
    ),
    (&["-W", "--password"], "a password is never an argument: use ~/.pgpass, PGPASSFILE or PGPASSWORD"),
    (&["-S", "--select-only"], "-b select-only"),
    (&["-N", "--skip-some-updates"], "-b simple-update"),
    (&["--duration"], "-T 60 or --time 60, in seconds, or as 10m"),
    (&["--clients", "--connections", "--sessions"], "-c 8 or --client 8"),
    (&["--threads", "--workers"], "-j 2 or --jobs 2"),
    (&["--url", "--uri", "--dsn"], "the target is the last argument: run -b NAME postgresql://host/db"),
    (&["--database"], "-d DBNAME or --dbname DBNAME"),
    (&["--user"], "-U NAME or --username NAME"),
    (&["--json"], "--format json"),
    (&["--output"], "-o DIR names the run directory, --format text|json what is printed"),
    (&["--no-color"], "--color never"),
    (&["--scale"], "load takes -s, --rows or --size; run takes -s for pgbench's tables"),
];

/// What to type instead of an unknown flag.
fn instead(flag: &str) -> Option<&'static str> {
    let habit = HABITS.iter().find(|(flags, _)| flags.contains(&flag)).map(|(_, instead)| *instead);
    habit.or_else(|| pgbench_flags::instead(flag))
}

/// What parsing the arguments ended with, when it did not end with a verb to run.
#[derive(Debug)]
pub enum NotAVerb {
    /// Help or version: text for stdout.
    Invocation(String),
    /// A mistake.
    Mistake(Failure),
}

/// Turns clap's result into ours. `verb` is the recognised verb, if there is one; `command` is its definition or the root's.
pub fn translate(error: &clap::Error, verb: Option<&str>, command: &clap::Command) -> NotAVerb {
    let failure = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            return NotAVerb::Invocation(error.render().to_string());
        }
        ErrorKind::InvalidValue => invalid_value(error, command),
        ErrorKind::ValueValidation => bad_value(error, command),
        ErrorKind::UnknownArgument => unknown_argument(error, verb, command),
        ErrorKind::InvalidSubcommand => unknown_verb(&text_of(error, ContextKind::InvalidSubcommand), error),
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Failure::usage("no verb given")
                .hint("pgfathom demo shows the main verbs; pgfathom --help lists all of them")
        }
        ErrorKind::MissingRequiredArgument => missing(error, verb, command),
        ErrorKind::ArgumentConflict => conflict(error, command),
        ErrorKind::TooManyValues | ErrorKind::WrongNumberOfValues => {
            let flag = flag_name(&text_of(error, ContextKind::InvalidArg), command);
            Failure::usage(format!("{flag} takes one value")).hint(help_hint(verb))
        }
        ErrorKind::InvalidUtf8 => Failure::usage("an argument is not valid UTF-8")
            .hint("names of databases and files given as arguments must be UTF-8"),
        _ => Failure::usage(first_line(error)).hint(help_hint(verb)),
    };
    NotAVerb::Mistake(failure)
}

/// pgbench's --connect takes no value and means something else.
const CONNECT_HINT: &str = "--connect names the nodes that sessions connect to: first, each, owner or a node; \
     pgbench's --connect, a connection for each transaction, is not supported";

fn help_hint(verb: Option<&str>) -> String {
    match verb {
        Some(verb) => format!("pgfathom {verb} --help lists every flag"),
        None => "pgfathom --help lists the verbs and the flags for all of them".to_string(),
    }
}

/// The strings of one piece of clap's context, joined.
fn text_of(error: &clap::Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        Some(ContextValue::StyledStr(text)) => text.to_string(),
        Some(ContextValue::StyledStrs(texts)) => {
            texts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        }
        _ => String::new(),
    }
}

fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_string()
}

/// `--client <N>` becomes `-c/--client`, `<WHAT>` becomes `WHAT`: both spellings, because only one of them was typed.
fn flag_name(raw: &str, command: &clap::Command) -> String {
    if let Some(group) = raw.strip_prefix("<--").and_then(|group| group.strip_suffix('>')) {
        // A group of which one is needed: `<--rows <N>|--size <SIZE>>`.
        let members: Vec<String> =
            format!("--{group}").split('|').map(|flag| flag_name(flag, command)).collect();
        return members.join(" or ");
    }
    let word = raw.split([' ', '=', '[']).find(|word| !word.is_empty()).unwrap_or(raw);
    if let Some(name) = word.strip_prefix('<') {
        return name.trim_end_matches(['>', '.']).to_string();
    }
    if raw.starts_with('[') {
        return raw.trim_matches(['[', ']', '.']).to_string();
    }
    let Some(long) = word.strip_prefix("--") else { return word.to_string() };
    let short =
        command.get_arguments().find(|arg| arg.get_long() == Some(long)).and_then(clap::Arg::get_short);
    match short {
        Some(short) => format!("-{short}/--{long}"),
        None => format!("--{long}"),
    }
}

fn invalid_value(error: &clap::Error, command: &clap::Command) -> Failure {
    let flag = flag_name(&text_of(error, ContextKind::InvalidArg), command);
    let value = text_of(error, ContextKind::InvalidValue);
    let valid = text_of(error, ContextKind::ValidValue);
    if value.is_empty() {
        let failure = Failure::usage(format!("{flag} needs a value"));
        return if flag == "-h/--host" {
            failure.hint("-h is the host, as in psql; help is --help or -?")
        } else if flag == "--connect" {
            failure.hint(CONNECT_HINT)
        } else if valid.is_empty() {
            failure.hint(format!("write {flag} VALUE", flag = flag.split('/').next().unwrap_or(&flag)))
        } else {
            failure.hint(format!("one of: {valid}"))
        };
    }
    let failure = Failure::usage(format!("{flag}: {value:?} is unknown"));
    if flag == "--connect" {
        return failure.hint(CONNECT_HINT);
    }
    match text_of(error, ContextKind::SuggestedValue) {
        suggested if !suggested.is_empty() => {
            failure.hint(format!("did you mean {suggested}? known: {valid}"))
        }
        _ => failure.hint(format!("known: {valid}")),
    }
}

fn bad_value(error: &clap::Error, command: &clap::Command) -> Failure {
    let flag = flag_name(&text_of(error, ContextKind::InvalidArg), command);
    let value = text_of(error, ContextKind::InvalidValue);
    match error.source() {
        Some(source) => match source.downcast_ref::<ValueError>() {
            Some(refused) => Failure::usage(format!("{flag}: {}", refused.message)).hint(&refused.hint),
            None => Failure::usage(format!("{flag}: {value:?}: {source}")).hint("write a whole number"),
        },
        None => Failure::usage(format!("{flag}: {value:?} is not a value")).hint("pgfathom --help"),
    }
}

/// Whether a verb has a flag, by its short or long form.
fn has_flag(verb: &clap::Command, flag: &str) -> bool {
    let (name, is_long) =
        flag.strip_prefix("--").map_or((flag.trim_start_matches('-'), false), |name| (name, true));
    let short = |argument: &clap::Arg| argument.get_short().is_some_and(|short| name == short.to_string());
    verb.get_arguments()
        .any(|argument| if is_long { argument.get_long() == Some(name) } else { short(argument) })
}

fn unknown_argument(error: &clap::Error, verb: Option<&str>, command: &clap::Command) -> Failure {
    let argument = text_of(error, ContextKind::InvalidArg);
    let word = argument.split(['=', ' ']).next().unwrap_or(&argument);
    if !argument.starts_with('-') {
        let failure = Failure::usage(format!("unexpected argument {argument:?}"));
        return if verb.is_some() && !has_flag(command, "--dbname") {
            failure.hint(match verb {
                Some(verb) if has_flag(command, "--against") => {
                    format!("{verb} takes one run directory; to compare two: pgfathom {verb} LATER --against EARLIER")
                }
                _ => help_hint(verb),
            })
        } else if argument.contains('=') {
            failure.hint("a connection string is one argument: quote it, as 'host=db1 dbname=bench'")
        } else {
            failure.hint(
                "the target is one last argument: a database name, a URI, or a quoted 'key=value ...' string",
            )
        };
    }
    if word[1..].starts_with(|c: char| c.is_ascii_digit()) {
        return Failure::usage(format!("{word} is where a value or a flag should be"))
            .hint("numbers here cannot be negative");
    }
    let place = verb.map_or(String::new(), |verb| format!(" for {verb}"));
    let failure = Failure::usage(format!("unknown flag {word}{place}"));
    // What is proposed must be a flag of this verb.
    let flag =
        |hint: &str| hint.split_whitespace().next().filter(|word| word.starts_with('-')).map(str::to_string);
    let fits = |hint: &&str| verb.is_none() || flag(hint).is_none_or(|flag| has_flag(command, &flag));
    if let Some(instead) = instead(word).filter(fits) {
        return failure.hint(instead);
    }
    match text_of(error, ContextKind::SuggestedArg) {
        suggested if !suggested.is_empty() => {
            failure.hint(format!("did you mean {suggested}? {}", help_hint(verb)))
        }
        _ => failure.hint(help_hint(verb)),
    }
}

fn unknown_verb(word: &str, error: &clap::Error) -> Failure {
    if let Some((verb, instead)) = LATER_VERBS.iter().find(|(verb, _)| *verb == word) {
        return Failure::usage(format!("this version has no verb {verb:?}"))
            .hint(format!("{instead}; pgfathom --help lists the verbs"));
    }
    let failure = Failure::usage(format!("unknown verb {word:?}"));
    match text_of(error, ContextKind::SuggestedSubcommand) {
        suggested if !suggested.is_empty() => {
            failure.hint(format!("did you mean {suggested}? pgfathom --help lists the verbs"))
        }
        _ => failure.hint("pgfathom --help lists the verbs"),
    }
}

fn missing(error: &clap::Error, verb: Option<&str>, command: &clap::Command) -> Failure {
    let mut names = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::Strings(texts)) => {
            texts.iter().map(|text| flag_name(text, command)).collect::<Vec<_>>()
        }
        _ => vec![flag_name(&text_of(error, ContextKind::InvalidArg), command)],
    };
    // One thing at a time, and what the verb works on before how.
    names.sort_by_key(|name| name.starts_with('-'));
    let name = names.first().map_or("an argument", String::as_str);
    let failure = Failure::usage(match verb {
        Some(verb) => format!("{verb}: {name} is missing"),
        None => format!("{name} is missing"),
    });
    match (verb, name) {
        (Some("load"), _) => failure.hint(workloads::dataset::DEMO.dataset.example),
        (Some("plan"), _) => failure.hint(crate::verbs::plan::example_of_any()),
        (Some("up"), _) => failure.hint("pgfathom up single"),
        (Some("report"), _) => failure.hint(
            "name a run directory (the last line of a run's output names it): pgfathom report runs/...",
        ),
        _ => failure.hint(help_hint(verb)),
    }
}

fn conflict(error: &clap::Error, command: &clap::Command) -> Failure {
    let first = flag_name(&text_of(error, ContextKind::InvalidArg), command);
    let second = flag_name(&text_of(error, ContextKind::PriorArg), command);
    if second.is_empty() || first == second {
        return Failure::usage(format!("{first} is given twice")).hint(format!("give {first} once"));
    }
    let failure = Failure::usage(format!("{first} and {second} cannot be used together"));
    let is_target = [&first, &second].iter().any(|name| name.as_str() == "TARGET");
    // One who has named a workload means something else.
    let is_named = std::env::args().any(|word| word.starts_with("-b") || word.starts_with("--builtin"));
    let is_meant = is_target && !is_named && command.get_name() == "run";
    let mut words = std::env::args().filter(|_| is_meant);
    match words.find_map(|word| app::run::workload_meant(&word)) {
        Some(name) => failure.hint(format!("a workload is named by -b: pgfathom run -b {name} ...")),
        None => failure.hint("give only one of them"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    /// Every flag of pgbench 15 to 18, by `pgbench --help`.
    const PGBENCH: &str = "-i --initialize -I --init-steps -F --fillfactor -n --no-vacuum -q --quiet -s --scale --foreign-keys \
        --index-tablespace --partition-method --partitions --tablespace --unlogged-tables -b --builtin -f --file -N \
        --skip-some-updates -S --select-only -c --client -C --connect -D --define -j --jobs -l --log -L --latency-limit -M --protocol \
        -P --progress -r --report-per-command -R --rate -t --transactions -T --time -v --vacuum-all --aggregate-interval \
        --exit-on-abort --failures-detailed --log-prefix --max-tries --progress-timestamp --random-seed --sampling-rate \
        --show-script --verbose-errors --debug -d --dbname -h --host -p --port -U --username -V --version -? --help";

    #[test]
    fn every_flag_of_pgbench_is_a_flag_of_run_or_has_a_hint_of_its_own() {
        let mut root = crate::cli::Cli::command();
        root.build();
        let run = root.find_subcommand("run").expect("a verb");
        for flag in PGBENCH.split_whitespace() {
            let is_ours = run.get_arguments().any(|argument| {
                let long = argument.get_long().is_some_and(|long| flag == format!("--{long}"));
                long || argument.get_short().is_some_and(|short| flag == format!("-{short}"))
            });
            // The program has --version, a verb does not.
            let is_ours = is_ours || matches!(flag, "-V" | "--version");
            assert!(is_ours || instead(flag).is_some(), "{flag} is neither a flag nor has a hint");
            let has_both = is_ours && instead(flag).is_some() && flag != "--scale";
            assert!(!has_both, "{flag} is a flag: its hint is never seen");
        }
    }
}
