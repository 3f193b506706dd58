//! Commands about settings that reach what they are for. `ALTER SYSTEM RESET` takes away only what `ALTER SYSTEM` has set before, an option of the command line
//! wins over every file, and what a role or a database sets for itself wins over the server.

use super::SET;
use crate::case::Case;
use crate::case::engine::reset_command;
use crate::rules::costly::plain;
use record::watched::{AUTO_CONF, COMMAND_LINE, SETTING_DEFAULT, SETTING_SOURCE};

/// What begins a command that takes a setting of the server away.
const RESET: &str = "ALTER SYSTEM RESET ";
/// Characters of a value, or of a file, in a comment.
const SHOWN_CHARS: usize = 200;

/// Where a setting of a node comes from.
enum Source<'a> {
    /// A file that ALTER SYSTEM does not write, with the line.
    File(&'a str),
    CommandLine,
    /// ALTER SYSTEM, or not known.
    Other,
}

fn fact<'a>(case: &'a Case, node: &str, topic: &'a str, name: &str) -> Option<&'a str> {
    let mut of_topic = case.facts(topic).filter(|fact| fact.name == name);
    of_topic.find(|fact| node.is_empty() || fact.node == node).map(|fact| fact.value.as_str())
}

fn source<'a>(case: &'a Case, node: &str, name: &str) -> Source<'a> {
    let is_written = |place: &str| place.rsplit_once(':').is_some_and(|(file, _)| file.ends_with(AUTO_CONF));
    match fact(case, node, SETTING_SOURCE, name) {
        Some(COMMAND_LINE) => Source::CommandLine,
        // A path that was hidden before the recording was given away is none.
        Some(place) if place.starts_with('/') && !is_written(place) => Source::File(place),
        _ => Source::Other,
    }
}

/// The setting that a statement of a command changes.
fn name_of(sql: &str) -> Option<&str> {
    match (sql.strip_prefix(SET), sql.strip_prefix(RESET)) {
        (Some(rest), _) => rest.split('=').next().map(str::trim),
        (_, Some(name)) => Some(name.trim()),
        _ => None,
    }
}

/// A command with statements that take effect, and comments that say why they are others; or a comment alone, where none can.
fn fitted(case: &Case, node: &str, command: &str) -> String {
    let (sql, comment) = command.find(" -- ").map_or((command, ""), |at| command.split_at(at));
    let mut why = vec![];
    let mut statements = vec![];
    for sql in sql.split(';').map(str::trim).filter(|sql| !sql.is_empty()) {
        let Some(name) = name_of(sql) else {
            statements.push(sql.to_string());
            continue;
        };
        match source(case, node, name) {
            Source::CommandLine => {
                return format!(
                    "-- {name} is set on the command line of the server (-c {name}=... or its own option), which wins over every file: change how the \
                     server is started; then: {command}"
                );
            }
            Source::File(place) if sql.starts_with(RESET) => {
                let Some(default) = fact(case, node, SETTING_DEFAULT, name) else {
                    statements.push(sql.to_string());
                    continue;
                };
                statements.push(format!("{SET}{name} = {}", crate::rules::literal(default)));
                why.push(format!(
                    "the default: {} sets it, which ALTER SYSTEM RESET would leave as it is",
                    plain(place, SHOWN_CHARS)
                ));
            }
            _ => statements.push(sql.to_string()),
        }
    }
    if why.is_empty() {
        return command.to_string();
    }
    let comment = comment.strip_prefix(" -- ").map(str::to_string);
    let comments: Vec<String> = comment.into_iter().chain(why).collect();
    format!("{}; -- {}", statements.join("; "), comments.join("; "))
}

/// What owners at work set for themselves instead of a setting that a command changes: the commands that take it away.
fn narrower(case: &Case, node: &str, command: &str) -> Vec<(String, String)> {
    let sql = command.split(" -- ").next().unwrap_or_default();
    let names = sql.split(';').filter_map(|sql| name_of(sql.trim()));
    let own = names.flat_map(|name| {
        let owners = case.own_settings(node, name).filter(|(owner, _)| case.is_at_work(node, owner, ""));
        owners.map(move |(owner, value)| {
            (reset_command(owner, name), format!("{owner} has {name} = {}", plain(value, SHOWN_CHARS)))
        })
    });
    own.collect()
}

/// Commands that take effect at the sessions which they are for.
pub(super) fn that_reach(case: &Case, node: &str, commands: Vec<String>) -> Vec<String> {
    let mut kept: Vec<String> = vec![];
    for command in &commands {
        let is_of_server = command.starts_with(SET) || command.starts_with(RESET);
        let narrower = if is_of_server { narrower(case, node, command) } else { vec![] };
        // The command that takes the narrower setting away stands there already: this one would not reach its sessions.
        if narrower.iter().any(|(reset, _)| commands.contains(reset)) {
            continue;
        }
        kept.push(if is_of_server { fitted(case, node, command) } else { command.clone() });
        for (reset, what) in narrower {
            let (sql, when) = reset.split_once(" -- ").unwrap_or((&reset, ""));
            kept.push(format!("{sql} -- {what}, which wins over the server's; {when}"));
        }
    }
    kept
}
