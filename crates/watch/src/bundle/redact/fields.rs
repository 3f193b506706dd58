//! The fields, settings and words that decide what is a name, a statement or a word of the program.

/// Names this short are also words and units of free text. There they are taken for names only where the context shows it: quotes around them,
/// or a word like `user` before them. In fields for names all words are names.
pub(super) const SHORT_CHARS_MAX: usize = 2;

/// Pairs of letters that are words or units; other single pairs are names.
pub(super) const SHORT_WORDS: [&str; 42] = [
    "am", "an", "as", "at", "be", "by", "do", "go", "he", "if", "in", "is", "it", "me", "my", "no", "of",
    "ok", "on", "or", "so", "to", "up", "us", "vs", "we", "ms", "ns", "kb", "mb", "gb", "tb", "hz", "io",
    "id", "cp", "rw", "ro", "tx", "rx", "js", "sh",
];

/// Words behind which a name stands.
pub(super) const BEFORE_NAMES: [&str; 16] = [
    "user",
    "role",
    "database",
    "dbname",
    "db",
    "host",
    "node",
    "application",
    "application_name",
    "standby",
    "server",
    "hostname",
    "owner",
    "cluster",
    "nodes",
    "hosts",
];

/// Fields whose words are values even if they equal a name.
pub(super) const VALUE_FIELDS: [&str; 6] = ["value", "default", "before", "after", "old", "new"];

/// Fields whose value is a name, and the prefix of its token.
pub(super) const NAME_FIELDS: [(&str, &str); 13] = [
    ("host", "host"),
    ("hosts", "host"),
    ("hostname", "host"),
    ("address", "host"),
    ("node", "node"),
    ("user", "user"),
    ("database", "database"),
    ("dbname", "database"),
    ("application", "application"),
    ("standby", "application"),
    ("pooler", "host"),
    ("foreign_server", "node"),
    ("slowest_node", "node"),
];

/// Fields whose value is a statement.
pub(super) const SQL_FIELDS: [&str; 14] = [
    "query",
    "document_keys",
    "inner",
    "outer",
    "blocker_query",
    "text",
    "sql",
    "script",
    "statements",
    "filter",
    "condition",
    "remote",
    "change",
    "definition",
];

/// Fields in which the server quotes statements and rows.
pub(super) const QUOTING_FIELDS: [&str; 4] = ["detail", "context", "hint", "statement"];

/// Fields of free text in which the server's words surround quoted ones.
pub(super) const MESSAGE_FIELDS: [&str; 2] = ["message", "first_message"];

/// Kinds of events whose message is the server's.
pub(super) const SERVER_EVENTS: [&str; 6] =
    ["server_log", "error", "lock_wait", "deadlock", "temp_file", "outage"];

/// Fields with words of the program.
pub(super) const OWN_FIELDS: [&str; 30] = [
    "source",
    "kind",
    "topic",
    "phase",
    "state",
    "wait_type",
    "wait_event",
    "what",
    "step",
    "verb",
    "filesystem",
    "unit",
    "wchan",
    "lock_type",
    "mode",
    "held_mode",
    "join",
    "command",
    "sync_state",
    "wal_status",
    "root_state",
    "backend",
    "schema",
    "device",
    "member_of",
    "interface",
    "rule",
    "severity",
    "level",
    "engine",
];

/// Names that everybody has.
pub(super) const COMMON_NAMES: [&str; 8] =
    ["postgres", "localhost", "template0", "template1", "pgfathom", "walreceiver", "psql", "pgbench"];

/// Values of settings that reveal nothing.
pub(super) const PLAIN_VALUES: [&str; 44] = [
    "on",
    "off",
    "true",
    "false",
    "yes",
    "no",
    "none",
    "all",
    "top",
    "auto",
    "always",
    "never",
    "minimal",
    "replica",
    "logical",
    "local",
    "remote_write",
    "remote_apply",
    "try",
    "first",
    "any",
    "origin",
    "partition",
    "pglz",
    "lz4",
    "zstd",
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "log",
    "fatal",
    "panic",
    "fsync",
    "fdatasync",
    "open_sync",
    "open_datasync",
    "read committed",
    "repeatable read",
    "serializable",
    "shared",
    "posix",
    "mmap",
];

/// Settings that name hosts, users or files, removed with the hosts.
pub(super) const NAMING_SETTINGS: [&str; 16] = [
    "listen_addresses",
    "primary_conninfo",
    "primary_slot_name",
    "synchronous_standby_names",
    "cluster_name",
    "archive_command",
    "restore_command",
    "archive_cleanup_command",
    "recovery_end_command",
    "data_directory",
    "config_file",
    "hba_file",
    "ident_file",
    "unix_socket_directories",
    "external_pid_file",
    "log_directory",
];
