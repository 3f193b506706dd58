//! Removes secrets from text before it is stored or shown: passwords in connection URIs, in `key=value` connection strings, in
//! environment-like assignments, after flags, in SQL (`PASSWORD '...'`) and in files of passwords, and verifiers of `pg_authid`. Everything
//! that is written into a run directory passes through here. In doubt, text is hidden.

mod secrets;

use serde_json::Value;
use std::borrow::Cow;

/// What stands in a secret's place.
pub const HIDDEN: &str = "***";

/// Names (of libpq keywords, URI parameters, environment variables, flags) whose value is a secret. Compared in lower case.
const SECRET_NAMES: [&str; 9] = [
    "secret",
    "password",
    "pgpassword",
    "sslpassword",
    "pgsslpassword",
    "passwd",
    "oauth_client_secret",
    "scram_client_key",
    "scram_server_key",
];

/// Ends of other names whose value is a secret: options of foreign servers, columns of applications.
const SECRET_ENDS: [&str; 6] = ["password", "passwd", "passphrase", "_pwd", "_secret", "secret_access_key"];

/// Digits of a port.
const PORT_DIGITS_MAX: usize = 5;

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

/// Any text (a connection string, an error message, a statement, a line of a log) with its secrets hidden.
pub fn text(input: &str) -> String {
    if !secrets::may_hold(input.as_bytes()) {
        return input.to_string();
    }
    let hidden = secrets::hide_literals(&hide_assignments(&hide_userinfo(input)));
    secrets::hide_passfile(&secrets::hide_verifiers(&hidden)).into_owned()
}

/// Hides the secrets in all texts of a value, and the texts of fields that are secret by their name.
pub fn value(value: &mut Value) {
    match value {
        Value::String(text) if secrets::may_hold(text.as_bytes()) => *text = self::text(text),
        // Arguments of a command line may be a flag and its value.
        Value::Array(values) if values.iter().all(Value::is_string) => {
            let texts: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
            *values = arguments(texts).into_iter().map(Value::from).collect();
        }
        Value::Array(values) => values.iter_mut().for_each(self::value),
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                match field {
                    Value::String(text) if is_secret_name(name) && !text.is_empty() => {
                        *text = HIDDEN.to_string();
                    }
                    field => self::value(field),
                }
            }
        }
        _ => {}
    }
}

/// A line of JSON, or a whole file of it, with its secrets hidden; text that is no JSON is taken as text.
pub fn line(input: &str) -> Cow<'_, str> {
    if !secrets::may_hold(input.as_bytes()) {
        return Cow::Borrowed(input);
    }
    match serde_json::from_str::<Value>(input) {
        Ok(before) => {
            let mut after = before.clone();
            value(&mut after);
            if after == before { Cow::Borrowed(input) } else { Cow::Owned(after.to_string()) }
        }
        Err(_) => Cow::Owned(text(input)),
    }
}

/// Whether what stands under this name is a secret.
fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    SECRET_NAMES.contains(&name.as_str()) || SECRET_ENDS.iter().any(|end| name.ends_with(end))
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
        let end = end + blank_password(&after[..end], &after[end..]);
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

/// How much more of a text belongs to a URI that seems to end at a blank: a password with a blank is accepted, as libpq accepts it. What stands before the
/// blank is a user and the beginning of a password, not a host and its port, and the at-sign follows on the same line.
fn blank_password(uri: &str, rest: &str) -> usize {
    let Some((_, begun)) = uri.split_once(':') else { return 0 };
    let is_port = begun
        .split(['/', '?', ','])
        .next()
        .is_some_and(|port| port.len() <= PORT_DIGITS_MAX && port.bytes().all(|byte| byte.is_ascii_digit()));
    if uri.contains('@') || !rest.starts_with([' ', '\t']) {
        return 0;
    }
    let line = &rest[..rest.find(['\n', '\r', '"', '\'']).unwrap_or(rest.len())];
    // A number may begin a password as well: then the at-sign stands in the next word.
    let line = match is_port {
        true => &line[..line[1..].find([' ', '\t']).map_or(line.len(), |end| end + 1)],
        false => line,
    };
    let line = &line[..line.find("://").unwrap_or(line.len())];
    let Some(sign) = line.rfind('@') else { return 0 };
    let host = &line[sign..];
    sign + host.find(char::is_whitespace).unwrap_or(host.len())
}

/// `name = value`, `name='quo\'ted value'`, `?name=value&`: the value of a secret name.
fn hide_assignments(input: &str) -> String {
    let mut output = String::with_capacity(input.len());
    let mut rest = input;
    while let Some((sign, length)) = assignment(rest) {
        let (before, after) = rest.split_at(sign);
        let trimmed = before.trim_end();
        let name_start = trimmed
            .rfind(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '%')))
            .map_or(0, |at| at + trimmed[at..].chars().next().map_or(1, char::len_utf8));
        let name = trimmed[name_start..].trim_start_matches('-');
        output.push_str(before);
        output.push_str(&after[..length]);
        rest = &after[length..];
        // `name => value`, as functions are called.
        if let Some(value) = rest.strip_prefix('>') {
            output.push('>');
            rest = value;
        }
        let name = decoded(name);
        // Of `-c%20my.secret%3Dx` the last word.
        let name = name.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-')).next();
        if !name.is_some_and(is_secret_name) {
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

/// Where the next sign of assignment is, and its length: in a parameter of a URI it may be percent-encoded.
fn assignment(text: &str) -> Option<(usize, usize)> {
    const ENCODED: [&[u8]; 2] = [b"%3D", b"%3d"];
    let coded = |at: &usize| text.as_bytes().get(*at..at + 3).is_some_and(|sign| ENCODED.contains(&sign));
    let plain = |at: &usize| text.as_bytes()[*at] == b'=';
    let at = (0..text.len()).find(|at| plain(at) || coded(at))?;
    Some((at, if plain(&at) { 1 } else { ENCODED[0].len() }))
}

/// A parameter's name of a URI without its percent-encoding, as the parser of connection strings reads it.
fn decoded(name: &str) -> Cow<'_, str> {
    if !name.contains('%') {
        return Cow::Borrowed(name);
    }
    let (mut bytes, mut rest) = (vec![], name.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let coded = digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(coded.unwrap_or(*first));
        rest = if coded.is_some() { &after[2..] } else { after };
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

/// Length of a connection string's value: to the closing quote, else to white space or the next URI parameter.
fn value_length(value: &str) -> usize {
    let Some(length) = secrets::literal(value) else {
        let mut escaped = false;
        return value
            .find(|c: char| {
                let ends = !escaped && (c.is_whitespace() || c == '&' || c == '\'' || c == '"');
                escaped = !escaped && c == '\\';
                ends
            })
            .unwrap_or(value.len());
    };
    length
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
            ("postgresql://h/db?p%61ssword=s3cret&x=1", "postgresql://h/db?p%61ssword=***&x=1"),
            (
                "postgresql://h/db?%70%61%73%73%77%6F%72%64=s3cret",
                "postgresql://h/db?%70%61%73%73%77%6F%72%64=***",
            ),
            ("postgresql://u:s3c ret@h/db", "postgresql://u:***@h/db"),
            ("postgresql://u:1234 secret@h/db", "postgresql://u:***@h/db"),
            ("postgresql://h:5432 failed for a@b", "postgresql://h:5432 failed for a@b"),
            ("watch postgresql://u:s3c r@t no@h/db -x", "watch postgresql://u:***@h/db -x"),
            (
                "no answer of postgresql://h:5432 to joe@example",
                "no answer of postgresql://h:5432 to joe@example",
            ),
            (
                "no answer of postgresql://h:5432/db to joe@example",
                "no answer of postgresql://h:5432/db to joe@example",
            ),
            ("host=h options='-c my.secret=s3cret' user=u", "host=h options='-c my.secret=***' user=u"),
            (
                "postgresql://h/db?options=-c%20my.secret%3Ds3cret",
                "postgresql://h/db?options=-c%20my.secret%3D***",
            ),
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

    #[test]
    fn passwords_in_sql_are_hidden_however_they_are_quoted() {
        for (input, expected) in [
            (
                "ALTER ROLE joe PASSWORD 's3cret' VALID UNTIL 'infinity'",
                "ALTER ROLE joe PASSWORD '***' VALID UNTIL 'infinity'",
            ),
            (
                "create user joe encrypted password E's3\\'cret'; select 1",
                "create user joe encrypted password '***'; select 1",
            ),
            ("CREATE ROLE joe PASSWORD $$s3cret$$ LOGIN", "CREATE ROLE joe PASSWORD '***' LOGIN"),
            ("CREATE ROLE joe PASSWORD $x$s3$$cret$x$ LOGIN", "CREATE ROLE joe PASSWORD '***' LOGIN"),
            (
                "alter user joe password /* now */ -- so\n 's3''cret'",
                "alter user joe password /* now */ -- so\n '***'",
            ),
            ("alter user joe password 's3cret", "alter user joe password '***'"),
            // SQL joins literals between which a line ends.
            ("alter role r password\n'LEAKN1'\n'LEAKN2'", "alter role r password\n'***'"),
            (
                "alter role r password 'a'\r\n\t 'LEAKN2'\n'LEAKN3'; select 'x'",
                "alter role r password '***'; select 'x'",
            ),
            ("alter role r password E'a' -- so\n  'LEAKN2' login", "alter role r password '***' login"),
            ("alter role r password 'a'\n/* and\n on */ 'LEAKN2", "alter role r password '***'"),
            ("do 'alter role r password ''a''\n''LEAKN2'' login'", "do 'alter role r password '***' login'"),
            ("options (password 'a', user 'j')\n'x'", "options (password '***', user 'j')\n'x'"),
            ("alter user joe password $$s3cret", "alter user joe password '***'"),
            (
                "execute 'alter role joe password ''s3cret'' login'",
                "execute 'alter role joe password '***' login'",
            ),
            (
                "CREATE USER MAPPING FOR joe SERVER far OPTIONS (user 'j', password 's3cret')",
                "CREATE USER MAPPING FOR joe SERVER far OPTIONS (user 'j', password '***')",
            ),
            (
                "ALTER USER MAPPING FOR joe SERVER far OPTIONS (SET \"password\" 's3cret')",
                "ALTER USER MAPPING FOR joe SERVER far OPTIONS (SET \"password\" '***')",
            ),
            (
                "select dblink_connect('host=h user=u password=s3cret dbname=d')",
                "select dblink_connect('host=h user=u password=*** dbname=d')",
            ),
            (
                "create subscription s connection 'host=h password=''s3 cret'' user=u' publication p",
                "create subscription s connection 'host=h password=*** user=u' publication p",
            ),
            (
                "update users set password = 's3cret' where id = 1",
                "update users set password = *** where id = 1",
            ),
            ("select set_password(new_password => 's3cret')", "select set_password(new_password => ***)"),
            ("alter role joe password U&'s3cret'", "alter role joe password '***'"),
            ("alter role joe password $1", "alter role joe password $1"),
            ("alter role joe password null", "alter role joe password null"),
            ("set password_encryption = 'scram-sha-256'", "set password_encryption = 'scram-sha-256'"),
            (
                "password authentication failed for user \"joe\"",
                "password authentication failed for user \"joe\"",
            ),
            (
                "null value in column \"password\" of relation \"users\"",
                "null value in column \"password\" of relation \"users\"",
            ),
            ("rolpassword is md5900150983cd24fb0d6963f7d28e17f72, old", "rolpassword is md5***, old"),
            (
                "values ('SCRAM-SHA-256$4096:c2FsdA==$c3RvcmVk:c2VydmVy', 1)",
                "values ('SCRAM-SHA-256$***', 1)",
            ),
            (
                "line db1.example:5432:shop:joe:s3cret of .pgpass",
                "line db1.example:5432:shop:joe:*** of .pgpass",
            ),
            ("*:*:*:joe:s3\\:cret", "*:*:*:joe:***"),
            (
                "at 10:15:00 from fe80:1234:0:1:ab and 00:11:22:33:44:55",
                "at 10:15:00 from fe80:1234:0:1:ab and 00:11:22:33:44:55",
            ),
        ] {
            assert_eq!(text(input), expected, "{input}");
        }
    }

    #[test]
    fn lines_of_json_stay_json_without_their_secrets() {
        let input = r#"{"t_us":5,"source":"session","query":"alter role joe password 's3\"cret'","password":"s3cret"}"#;
        let hidden = line(input);
        let value: Value = serde_json::from_str(&hidden).expect("JSON");
        assert_eq!(
            (value["query"].as_str(), value["password"].as_str()),
            (Some("alter role joe password '***'"), Some("***"))
        );
        let plain = r#"{"t_us":5,"source":"wait","wait_event":"ClientRead","count":1}"#;
        assert!(matches!(line(plain), Cow::Borrowed(_)));
        assert_eq!(line("{\"torn\": \"password 'x"), "{\"torn\": \"password '***'");
    }

    proptest! {
        #[test]
        fn no_quoted_password_survives(password in "[A-Za-z0-9@/:!%^*()_+.,~$ -]{8,24}", form in 0usize..6) {
            let quoted = match form {
                0 => format!("PASSWORD '{password}'"),
                1 => format!("password E'{password}'"),
                2 => format!("Password $q${password}$q$"),
                3 => format!("OPTIONS (password '{password}')"),
                4 => format!("'... PASSWORD ''{}'' ...'", password.trim()),
                _ => format!("PASSWORD '{password}"),
            };
            let hidden = text(&format!("alter role joe {quoted}"));
            prop_assert!(!hidden.contains(password.trim()), "{hidden}");
        }

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
