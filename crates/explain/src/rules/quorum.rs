//! How many synchronous standbys a server wants, and how many stream from it.

use crate::case::Case;

/// What `synchronous_standby_names` asks for (`syncrep_gram.y`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wanted {
    /// Standbys that have to confirm.
    count: usize,
    /// Names of which they are; empty for `*`.
    names: Vec<String>,
}

/// Reads a value of `synchronous_standby_names`; `None` if it is empty or has another form.
fn wanted(value: &str) -> Option<Wanted> {
    let value = value.trim();
    let (count, list) = match value.split_once('(') {
        Some((before, list)) => {
            let number = before.split_whitespace().last()?;
            (number.parse().ok()?, list.strip_suffix(')')?)
        }
        None => (1, value),
    };
    let names: Vec<String> = list.split(',').map(|name| name.trim().trim_matches('"').to_string()).collect();
    if names.iter().any(String::is_empty) {
        return None;
    }
    let is_any = names.iter().any(|name| name == "*");
    Some(Wanted { count, names: if is_any { vec![] } else { names } })
}

/// Why commits of a node never return, as the end of a claim: fewer standbys stream to it than have to confirm.
pub(super) fn shortage(case: &Case, node: &str) -> Option<String> {
    let value = case.setting(node, "synchronous_standby_names")?;
    let wanted = wanted(value)?;
    let is_named =
        |name: &str| wanted.names.is_empty() || wanted.names.iter().any(|one| one.eq_ignore_ascii_case(name));
    let end = case.one("server", node)?.ticks.window().to_us;
    // One that went away has no lines in the last seconds.
    let is_there = |to_us: u64| to_us.saturating_add(AWAY_US) >= end;
    let there = case
        .at("replication", node)
        .filter(|one| one.lines.word("state") == "streaming" && is_named(&one.name))
        .filter(|one| is_there(one.lines.ticks.window().to_us))
        .count();
    (there < wanted.count).then(|| {
        format!(
            ": {} must confirm each commit (synchronous_standby_names = {value}), and {} of them {} connected, so that no commit returns",
            wanted.count,
            if there == 0 { "none".to_string() } else { format!("only {there}") },
            if there > 1 { "are" } else { "is" }
        )
    })
}

/// A standby without a line for so long is away.
const AWAY_US: u64 = 4_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_of_the_setting_are_read() {
        let of = |value: &str| wanted(value).map(|wanted| (wanted.count, wanted.names.join(" ")));
        assert_eq!(of("ANY 2 (*)"), Some((2, String::new())));
        assert_eq!(of("FIRST 1 (s1, \"S 2\")"), Some((1, "s1 S 2".to_string())));
        assert_eq!(of("2 (a,b,c)"), Some((2, "a b c".to_string())));
        assert_eq!(of("s1"), Some((1, "s1".to_string())));
        assert_eq!(of("a, b"), Some((1, "a b".to_string())));
        assert_eq!(of(""), None);
        assert_eq!(of("ANY x (a)"), None);
    }
}
