//! Removes names, statements and settings from a run directory before it is exported, so that the rest can still be explained.
//!
//! Equal words become equal tokens (`host-1`, `sql-7`), so that a reader still sees which entries belong together. It works in two passes: the
//! first collects the words from the fields that contain them, the second replaces them there and in free text.
//! Fields with words of the program (`wait_event`, `kind`, ...) are not changed; else a database called `wal` would corrupt them.

mod fields;

use fields::{
    BEFORE_NAMES, COMMON_NAMES, MESSAGE_FIELDS, NAME_FIELDS, NAMING_SETTINGS, OWN_FIELDS, PLAIN_VALUES,
    QUOTING_FIELDS, SERVER_EVENTS, SHORT_CHARS_MAX, SHORT_WORDS, SQL_FIELDS, VALUE_FIELDS,
};
use record::watched::{EVENT_TRIGGER, FUNCTION_SETTINGS, FUNCTION_TEXT, PECULIAR, VIRTUAL_COLUMN, policy};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The replacement for hidden text.
pub(super) const HIDDEN: &str = "***";
/// What is taken out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Redaction {
    /// Names and addresses of machines, nodes, users, databases and applications, and the command line.
    pub hosts: bool,
    /// Statements, and the server's quotes from them and from rows.
    pub sql: bool,
    /// Values of server settings other than numbers, switches and well-known words.
    pub settings: bool,
}

impl Redaction {
    /// The words of it, as typed.
    pub fn words(&self) -> Vec<&'static str> {
        let all = [("hosts", self.hosts), ("sql", self.sql), ("settings", self.settings)];
        all.into_iter().filter(|(_, is_on)| *is_on).map(|(word, _)| word).collect()
    }

    /// Whether nothing is taken out.
    pub fn is_none(&self) -> bool {
        *self == Redaction::default()
    }
}

impl std::str::FromStr for Redaction {
    type Err = String;

    /// Reads `hosts,sql,settings`, in any order.
    fn from_str(text: &str) -> Result<Redaction, String> {
        let mut redaction = Redaction::default();
        for word in text.split(',').map(str::trim) {
            match word {
                "hosts" => redaction.hosts = true,
                "sql" => redaction.sql = true,
                "settings" => redaction.settings = true,
                _ => return Err(format!("{word:?} is not one of hosts, sql, settings")),
            }
        }
        Ok(redaction)
    }
}

/// Topics of facts whose values are SQL.
const OF_SQL: [&str; 6] =
    [FUNCTION_TEXT, FUNCTION_SETTINGS, PECULIAR, EVENT_TRIGGER, VIRTUAL_COLUMN, policy::TOPIC];

/// Replaces words by tokens.
#[derive(Debug, Default)]
pub(super) struct Redactor {
    what: Redaction,
    /// Word to token.
    names: BTreeMap<String, String>,
    /// Statement to token.
    statements: BTreeMap<String, String>,
    counts: BTreeMap<&'static str, u32>,
    /// The names, the longest first: `db1.corp.example` before `db1`.
    longest_first: Vec<(String, String)>,
}

impl Redactor {
    pub(super) fn new(what: Redaction) -> Redactor {
        Redactor { what, ..Redactor::default() }
    }

    fn token(&mut self, word: &'static str) -> String {
        let count = self.counts.entry(word).or_default();
        *count += 1;
        format!("{word}-{count}")
    }

    fn learn_name(&mut self, name: &str, word: &'static str) {
        let name = name.trim();
        let is_common = COMMON_NAMES.contains(&name) || name.starts_with('/') || name.starts_with('@');
        if name.is_empty() || is_common || self.names.contains_key(name) {
            return;
        }
        // An address with a port, a name with its domain: elsewhere each part is a separate word.
        if let Some((host, port)) = name.rsplit_once(':')
            && port.chars().all(|c| c.is_ascii_digit())
            && !host.contains(':')
        {
            return self.learn_name(host, word);
        }
        let token = self.token(word);
        self.names.insert(name.to_string(), token);
        if matches!(word, "host" | "node")
            && let Some((short, domain)) = name.split_once('.')
            && name.chars().any(|c| c.is_ascii_alphabetic())
        {
            self.learn_name(short, word);
            if domain.contains('.') {
                self.learn_name(domain, "domain");
            }
        }
    }

    /// The names in a connection string or URI.
    fn learn_connection(&mut self, text: &str) {
        if let Some((_, rest)) = text.split_once("://") {
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            let (user, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
            self.learn_name(user.split(':').next().unwrap_or_default(), "user");
            for host in hosts.split(',') {
                self.learn_name(host, "host");
            }
            self.learn_name(path.split('?').next().unwrap_or_default(), "database");
            return;
        }
        for pair in text.split_ascii_whitespace() {
            let Some((name, value)) = pair.split_once('=') else { continue };
            let word = match name {
                "host" | "hostaddr" => "host",
                "user" => "user",
                "dbname" => "database",
                "application_name" => "application",
                _ => continue,
            };
            for value in value.trim_matches('\'').split(',') {
                self.learn_name(value, word);
            }
        }
    }

    /// The first pass.
    pub(super) fn learn(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    self.learn_field(key, value);
                }
                // The nodes of a step are a list of {name, role, ...}.
                if fields.contains_key("role")
                    && let Some(name) = fields.get("name").and_then(Value::as_str)
                    && self.what.hosts
                {
                    self.learn_name(name, "node");
                }
            }
            Value::Array(values) => values.iter().for_each(|value| self.learn(value)),
            _ => {}
        }
    }

    fn learn_field(&mut self, key: &str, value: &Value) {
        let word = NAME_FIELDS.iter().find(|(name, _)| *name == key).map(|(_, word)| *word);
        let texts: Vec<&str> = match value {
            Value::String(text) => vec![text],
            Value::Array(values) => values.iter().filter_map(Value::as_str).collect(),
            _ => vec![],
        };
        for text in texts {
            if self.what.hosts {
                match word {
                    Some(word) => self.learn_name(text, word),
                    None if key == "connection" || key == "argv" => self.learn_connection(text),
                    None => {}
                }
            }
            if self.what.sql
                && SQL_FIELDS.contains(&key)
                && !is_autovacuum(text)
                && !self.statements.contains_key(text)
            {
                let token = self.token("sql");
                self.statements.insert(text.to_string(), token);
            }
        }
        self.learn(value);
    }

    /// Ends the first pass.
    pub(super) fn end_learning(&mut self) {
        self.longest_first = self.names.iter().map(|(name, token)| (name.clone(), token.clone())).collect();
        self.longest_first.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    }

    /// The second pass, over one file's value or one line. Passwords are always removed.
    pub(super) fn replace(&self, value: &mut Value) {
        record::redact::value(value);
        if !self.what.is_none() {
            self.replace_names(value);
        }
    }

    fn replace_names(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => self.replace_fields(fields),
            Value::Array(values) => values.iter_mut().for_each(|value| self.replace_names(value)),
            _ => {}
        }
    }

    fn replace_fields(&self, fields: &mut Map<String, Value>) {
        let word = |fields: &Map<String, Value>, name: &str| {
            fields.get(name).and_then(Value::as_str).unwrap_or_default().to_string()
        };
        let kind = word(fields, "kind");
        let is_server_event = SERVER_EVENTS.contains(&kind.as_str());
        let is_setting = word(fields, "topic") == "setting"
            // The settings of run.json: {name, value, source, default}.
            || (fields.contains_key("value") && fields.contains_key("source") && !fields.contains_key("t_us"));
        let topic = word(fields, "topic");
        // A folder or file in a fact comes from some setting, whatever the name of the fact.
        let is_path = |value: &Value| value.as_str().is_some_and(|text| text.starts_with('/'));
        let is_fact = fields.contains_key("topic") && (self.what.hosts || self.what.settings);
        let is_change = kind == "settings_changed";
        let is_kernel_line = word(fields, "topic") == "kernel" && word(fields, "name") == "command line";
        let name = word(fields, "name");
        for (key, value) in fields.iter_mut() {
            let is_value = matches!(key.as_str(), "value" | "default" | "before" | "after" | "old" | "new");
            if ((is_setting || is_change) && is_value && self.hides_setting(&name, value))
                || (is_fact && key == "value" && (is_path(value) || topic == "mount"))
                || (OF_SQL.contains(&topic.as_str()) && is_value && self.what.sql)
                || (is_kernel_line && is_value && (self.what.hosts || self.what.settings))
                || (is_change && key == "message" && (self.what.settings || self.what.hosts))
            {
                *value = value.as_str().filter(|_| topic == "mount").map_or(HIDDEN.into(), mount).into();
                continue;
            }
            match value {
                Value::String(text) => *text = self.field(key, text, is_server_event),
                Value::Array(values) if key == "argv" && !self.what.is_none() => hide_arguments(values),
                Value::Array(values) => {
                    for value in values {
                        match value {
                            Value::String(text) => *text = self.field(key, text, is_server_event),
                            other => self.replace_names(other),
                        }
                    }
                }
                other => self.replace_names(other),
            }
        }
    }

    fn hides_setting(&self, name: &str, value: &Value) -> bool {
        let Some(text) = value.as_str().filter(|text| !text.is_empty()) else { return false };
        if self.what.hosts && NAMING_SETTINGS.contains(&name) {
            return true;
        }
        self.what.settings
            && !is_quantity(text)
            && !PLAIN_VALUES.contains(&text.trim().to_ascii_lowercase().as_str())
    }

    fn field(&self, key: &str, text: &str, is_server_event: bool) -> String {
        if self.what.hosts && key == "connection" {
            return HIDDEN.to_string();
        }
        if self.what.hosts && NAME_FIELDS.iter().any(|(name, _)| *name == key) {
            return self.name(text);
        }
        if self.what.sql {
            if SQL_FIELDS.contains(&key) && !is_autovacuum(text) {
                return self.statement(text);
            }
            if QUOTING_FIELDS.contains(&key) && !text.is_empty() {
                return HIDDEN.to_string();
            }
            if MESSAGE_FIELDS.contains(&key) && (is_server_event || key == "first_message") {
                return self.text(&hide_quoted(text));
            }
        }
        if OWN_FIELDS.contains(&key) {
            return text.to_string();
        }
        // A single name in a field that is not known for names.
        if self.what.hosts
            && !VALUE_FIELDS.contains(&key)
            && let Some(token) = self.names.get(text)
        {
            return token.clone();
        }
        if self.what.hosts && key == "run_id" {
            return self.words(text, Where::Names);
        }
        let mut text = text.to_string();
        if self.what.sql {
            // A statement inside a longer text; short ones (`END`) are treated as words.
            const STATEMENT_CHARS_MIN: usize = 12;
            for (statement, token) in &self.statements {
                if statement.len() >= STATEMENT_CHARS_MIN && text.contains(statement.as_str()) {
                    text = text.replace(statement.as_str(), token);
                }
            }
        }
        self.text(&text)
    }

    /// A name, or several, or an address with a port.
    fn name(&self, text: &str) -> String {
        match self.names.get(text) {
            Some(token) => token.clone(),
            None => self.words(text, Where::Names),
        }
    }

    /// A statement's token after its first word, which gives its kind.
    fn statement(&self, text: &str) -> String {
        let Some(token) = self.statements.get(text) else { return HIDDEN.to_string() };
        const VERBS: [&str; 14] = [
            "SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "COPY", "VACUUM", "ANALYZE", "CREATE", "ALTER",
            "COMMIT", "END", "BEGIN", "WITH",
        ];
        let first: String = text.trim_start().chars().take_while(char::is_ascii_alphabetic).collect();
        match VERBS.iter().find(|verb| verb.eq_ignore_ascii_case(&first)) {
            Some(verb) => format!("{verb} {token}"),
            None => token.clone(),
        }
    }

    /// Free text: learned names and addresses are replaced.
    pub(super) fn text(&self, text: &str) -> String {
        match self.what.hosts {
            true => self.words(text, Where::Sentence),
            false => text.to_string(),
        }
    }

    fn words(&self, text: &str, place: Where) -> String {
        let mut output = String::with_capacity(text.len());
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let mut rest = text;
        let mut before = None;
        while let Some(first) = rest.chars().next() {
            let found = (!before.is_some_and(is_part)).then(|| {
                self.longest_first.iter().find(|(name, _)| {
                    rest.strip_prefix(name.as_str()).is_some_and(|tail| {
                        !tail.chars().next().is_some_and(is_part)
                            && (place == Where::Names
                                || is_meant(name, &text[..text.len() - rest.len()], tail))
                    })
                })
            });
            if let Some((name, token)) = found.flatten() {
                output.push_str(token);
                rest = &rest[name.len()..];
                before = name.chars().next_back();
                continue;
            }
            if !before.is_some_and(is_part)
                && let Some(length) = address_length(rest)
            {
                output.push_str(HIDDEN);
                rest = &rest[length..];
                before = Some('0');
                continue;
            }
            output.push(first);
            rest = &rest[first.len_utf8()..];
            before = Some(first);
        }
        output
    }
}

/// What a text is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Where {
    /// Names and signs between them.
    Names,
    /// A sentence that may contain names.
    Sentence,
}

/// Whether a word of a sentence is a name, by its length and context.
fn is_meant(name: &str, before: &str, after: &str) -> bool {
    let length = name.chars().count();
    if length > SHORT_CHARS_MAX {
        return true;
    }
    let is_word = length == 1 || SHORT_WORDS.contains(&name.to_lowercase().as_str());
    if !is_word {
        return true;
    }
    let last = before.chars().next_back();
    let quotes = ['"', '\'', '`', '\u{201c}', '\u{ab}'];
    let closing = ['"', '\'', '`', '\u{201d}', '\u{bb}'];
    let is_quoted = last.is_some_and(|c| quotes.contains(&c)) && after.starts_with(closing);
    // `user=a`, `user: a`, `user a`, `a@host`, `@a`.
    let wording = before.trim_end_matches([' ', '=', ':', '(']);
    let word = wording.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default();
    let is_announced = wording.len() < before.len() && BEFORE_NAMES.contains(&word.to_lowercase().as_str());
    is_quoted || is_announced || last == Some('@') || after.starts_with('@')
}

/// The length of an IP address at the beginning, of either kind; `None` if there is none.
fn address_length(text: &str) -> Option<usize> {
    const COLONS_MIN: usize = 3;
    let length = text.find(|c: char| !c.is_ascii_hexdigit() && !matches!(c, '.' | ':')).unwrap_or(text.len());
    let word = text[..length].trim_end_matches(['.', ':']);
    // Followed by a letter: a longer word that only begins like it.
    if text[length..].starts_with(|c: char| c.is_alphanumeric() || c == '_') {
        return None;
    }
    // An IPv4 address may carry a port.
    let host = word.split(':').next().unwrap_or_default();
    if host.parse::<std::net::Ipv4Addr>().is_ok() {
        return Some(host.len());
    }
    let colons = word.bytes().filter(|byte| *byte == b':').count();
    (colons >= COLONS_MIN && word.parse::<std::net::Ipv6Addr>().is_ok()
        || word.len() > COLONS_MIN && word.contains("::") && word.parse::<std::net::Ipv6Addr>().is_ok())
    .then_some(word.len())
}

/// Autovacuum's activity text is no statement of a user, and findings need it.
fn is_autovacuum(text: &str) -> bool {
    text.starts_with("autovacuum:")
}

/// A number, with a unit of PostgreSQL's or without.
fn is_quantity(text: &str) -> bool {
    const UNITS: [&str; 11] = ["", "B", "kB", "8kB", "MB", "GB", "TB", "us", "ms", "s", "min"];
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | '-' | '+')).unwrap_or(text.len());
    text[..end].parse::<f64>().is_ok()
        && (UNITS.contains(&text[end..].trim()) || matches!(&text[end..], "h" | "d"))
}

/// Keeps the verb, flags and numbers of a command line: the rest may name anything.
fn hide_arguments(arguments: &mut [Value]) {
    const VERB_CHARS_MAX: usize = 8;
    for (number, argument) in arguments.iter_mut().enumerate() {
        let Some(text) = argument.as_str() else { continue };
        if number == 0 {
            *argument = "pgfathom".into();
            continue;
        }
        if number == 1 && text.len() <= VERB_CHARS_MAX && text.chars().all(|c| c.is_ascii_lowercase()) {
            continue;
        }
        let is_number = text.parse::<f64>().is_ok();
        if text.starts_with('-') {
            let flag = text.split('=').next().unwrap_or_default();
            if flag.len() < text.len() {
                *argument = format!("{flag}={HIDDEN}").into();
            }
        } else if !is_number {
            *argument = HIDDEN.into();
        }
    }
}

/// Hides quoted text: values of rows and parts of statements. An open quote hides the rest.
fn hide_quoted(text: &str) -> String {
    let mut output = String::with_capacity(text.len());
    let mut open: Option<char> = None;
    for c in text.chars() {
        match open {
            Some(quote) if c == quote => {
                open = None;
                output.push(c);
            }
            Some(_) => {}
            None if c == '"' || c == '\'' => {
                open = Some(c);
                output.push(c);
                output.push_str(HIDDEN);
            }
            None => output.push(c),
        }
    }
    output
}

/// Keeps the kind and the options of a file system, and a device whose name the kernel gave; `text` is `DEVICE KIND OPTIONS`, or one option. A mapped
/// volume, a server's export and the folders of an overlay have names given by people.
fn mount(text: &str) -> String {
    const KERNEL_NAMES: [&str; 8] = ["sd", "hd", "vd", "xvd", "nvme", "md", "dm-", "loop"];
    let is_kernels = |word: &str| {
        word.strip_prefix("/dev/").is_some_and(|device| {
            KERNEL_NAMES.iter().any(|name| device.starts_with(name))
                && !device.contains('/')
                && device.len() <= 16
        })
    };
    let option = |option: &str| match option.split_once('=') {
        Some((name, value)) if value.contains(['/', ':']) => format!("{name}={HIDDEN}"),
        None if option.contains('/') => HIDDEN.to_string(),
        _ => option.to_string(),
    };
    let words = text.split(' ').enumerate().map(|(place, word)| match place {
        0 if is_kernels(word) => word.to_string(),
        0 if word.contains(['/', ':']) => HIDDEN.to_string(),
        _ => word.split(',').map(option).collect::<Vec<_>>().join(","),
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
