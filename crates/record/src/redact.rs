//! Secrets out of text, before it is stored or shown: passwords in connection URIs, in `key=value` connection strings, in
//! environment-like assignments and after flags. Rather too much is hidden than too little.

/// What stands in a secret's place.
pub const HIDDEN: &str = "***";

/// Names (of libpq keywords, URI parameters, environment variables, flags) whose value is a secret. Compared in lower case.
const SECRET_NAMES: [&str; 8] = [
    "password",
    "pgpassword",
    "sslpassword",
    "pgsslpassword",
    "passwd",
    "oauth_client_secret",
    "scram_client_key",
    "scram_server_key",
];

/// A command line with its secrets hidden, also where a flag's value is an argument of its own (`--password secret`).
pub fn arguments<I, S>(arguments: I) -> Vec<String>
where
    I: IntoIterator<Item = S>,
    S: AsRef<str>,
{
    let mut hide_next = false;
    arguments
        .into_iter()
        .map(|argument| {
            let argument = argument.as_ref();
            if std::mem::take(&mut hide_next) {
                return HIDDEN.to_string();
            }
            hide_next = argument.strip_prefix("--").is_some_and(is_secret_name);
            text(argument)
        })
        .collect()
}

/// Any text (a connection string, an error message, a command) with its secrets hidden.
pub fn text(input: &str) -> String {
    hide_assignments(&hide_userinfo(input))
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    SECRET_NAMES.contains(&name.as_str())
}

/// `scheme://user:SECRET@host`: everything between the first colon and the last at-sign of the authority. A password with a
/// raw slash or at-sign is not a valid URI, but people type it, and the error message must not show it.
fn hide_userinfo(input: &str) -> String {
    let mut output = String::with_capacity(input.len());
    let mut rest = input;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        output.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || c == '"' || c == '\'').unwrap_or(after.len());
        let uri = &after[..end];
        // An at-sign in a parameter (`?options=a@b`) is not the authority's.
        let query = uri.find('?').filter(|mark| uri[*mark..].contains('='));
        let authority = &uri[..query.unwrap_or(uri.len())];
        match (authority.find(':'), authority.rfind('@')) {
            (Some(colon), Some(sign)) if colon < sign => {
                output.push_str(&uri[..=colon]);
                output.push_str(HIDDEN);
                output.push_str(&uri[sign..]);
            }
            _ => output.push_str(uri),
        }
        rest = &after[end..];
    }
    output + rest
}

/// `name = value`, `name='quo\'ted value'`, `?name=value&`: the value of a secret name.
fn hide_assignments(input: &str) -> String {
    let mut output = String::with_capacity(input.len());
    let mut rest = input;
    while let Some(sign) = rest.find('=') {
        let (before, after) = rest.split_at(sign);
        let trimmed = before.trim_end();
        let name_start = trimmed
            .rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-'))
            .map_or(0, |at| at + trimmed[at..].chars().next().map_or(1, char::len_utf8));
        let name = trimmed[name_start..].trim_start_matches('-');
        output.push_str(before);
        output.push('=');
        rest = &after[1..];
        if !is_secret_name(name) {
            continue;
        }
        let blank = rest.len() - rest.trim_start().len();
        let (spaces, value) = rest.split_at(blank);
        output.push_str(spaces);
        output.push_str(HIDDEN);
        rest = &value[value_length(value)..];
    }
    output + rest
}

/// Length of a connection string's value: to the closing quote, else to white space or the next URI parameter.
fn value_length(value: &str) -> usize {
    let Some(quote) = value.chars().next().filter(|c| matches!(c, '\'' | '"')) else {
        let mut escaped = false;
        return value
            .find(|c: char| {
                let ends = !escaped && (c.is_whitespace() || c == '&' || c == '\'' || c == '"');
                escaped = !escaped && c == '\\';
                ends
            })
            .unwrap_or(value.len());
    };
    let mut escaped = false;
    for (at, c) in value.char_indices().skip(1) {
        if !escaped && c == quote {
            return at + 1;
        }
        escaped = !escaped && c == '\\';
    }
    value.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn secrets_are_hidden_and_the_rest_is_left_alone() {
        for (input, expected) in [
            ("postgres://joe:s3cret@h:5432/db", "postgres://joe:***@h:5432/db"),
            ("postgresql://joe:s3c@r/et@h/db?sslmode=require", "postgresql://joe:***@h/db?sslmode=require"),
            ("postgresql://joe@h/db", "postgresql://joe@h/db"),
            ("postgresql://h:5432/db?options=a@b", "postgresql://h:5432/db?options=a@b"),
            ("postgresql://h/db?user=joe&password=s3cret&x=1", "postgresql://h/db?user=joe&password=***&x=1"),
            ("postgresql://h/db?sslpassword=s3cret", "postgresql://h/db?sslpassword=***"),
            ("host=h password=s3cret user=joe", "host=h password=*** user=joe"),
            ("host=h password = 's3 \\'cret' user=joe", "host=h password = *** user=joe"),
            (r"password=s3\ cret user=joe", "password=*** user=joe"),
            ("password='s3cret", "password=***"),
            ("PGPASSWORD=s3cret pgfathom run", "PGPASSWORD=*** pgfathom run"),
            ("--password=s3cret", "--password=***"),
            ("--control=postgres://a:b@c/d", "--control=postgres://a:***@c/d"),
            ("host=h passfile=/home/joe/.pgpass", "host=h passfile=/home/joe/.pgpass"),
            ("a=b=c", "a=b=c"),
            ("über=1 password=ä", "über=1 password=***"),
            ("", ""),
        ] {
            assert_eq!(text(input), expected, "{input}");
        }
        assert_eq!(
            arguments(["run", "--password", "s3cret", "-c", "8"]),
            ["run", "--password", "***", "-c", "8"]
        );
    }

    proptest! {
        #[test]
        fn no_password_survives(password in "[A-Za-z0-9@/:!%^*()_+.,~-]{8,24}") {
            let uri = text(&format!("postgres://joe:{password}@host/db"));
            prop_assert!(!uri.contains(&password), "{uri}");
            let pair = text(&format!("host=h password={password} user=u"));
            prop_assert!(!pair.contains(&password), "{pair}");
        }

        #[test]
        fn any_text_is_taken_and_hidden_once(input in ".{0,80}") {
            let once = text(&input);
            prop_assert_eq!(text(&once), once);
        }
    }
}
