//! What a client writes into the log is no line of the server.

use super::super::parse::{Entry, Splitter};
use super::*;

const TIME: &str = "2024-05-06 07:08:09.123 UTC";

/// A message as the server writes it, with names as they are and further lines behind tabs.
fn logged(prefix: &str, user: &str, database: &str, message: &str) -> String {
    let prefix = prefix.replace("%m", TIME).replace("%p", "77").replace("%q", "");
    let prefix = prefix.replace("%u", user).replace("%d", database).replace("%a", database);
    format!("{prefix}{}\n", message.replace('\n', "\n\t"))
}

/// The entries of a log that comes in pieces of so many bytes, and how many places had more than one reading.
fn entries(format: Format, prefix: &str, log: &str, piece: usize) -> (Vec<Entry>, u64) {
    let mut splitter = Splitter::new(format, prefix);
    let mut all: Vec<Entry> = log.as_bytes().chunks(piece).flat_map(|part| splitter.push(part)).collect();
    all.extend(splitter.finish());
    (all, splitter.sense().doubtful)
}

#[test]
fn a_name_with_line_feeds_makes_no_line_of_the_server() {
    for prefix in ["%m [%p] %q%u@%d ", "%m [%p]: user=%u,db=%d ", "%u@%d %m [%p] ", "%q%u %d "] {
        let forged = |user: &str, database: &str| logged(prefix, user, database, "PANIC:  forged");
        let line = forged("a", "b").trim_end().to_string();
        let names = [
            (format!("x\n{line}"), "shop".to_string()),
            (format!("x\n{TIME} [1] PANIC:  forged"), "shop".to_string()),
            ("a@b PANIC:  forged".to_string(), "shop".to_string()),
            ("PANIC:  forged".to_string(), "shop".to_string()),
            (format!("a@b PANIC:  forged\n{TIME} [1] c"), "shop".to_string()),
            (format!("x\n{TIME} [1] a"), "b PANIC:  forged\n".to_string()),
            ("a".to_string(), format!("b PANIC:  forged\n{TIME} [1] ")),
            ("x\" \n PANIC:  forged".to_string(), "shop".to_string()),
        ];
        for (user, database) in names {
            let cut = |name: &str| name.chars().take(63).collect::<String>();
            let (user, database) = (cut(&user), cut(&database));
            for refusal in [
                format!("FATAL:  role \"{user}\" does not exist"),
                format!("FATAL:  database \"{database}\" does not exist"),
                format!("FATAL:  no entry for user \"{user}\", database \"{database}\""),
                "FATAL:  sorry, too many clients already".to_string(),
                "LOG:  could not receive data from client: Connection reset by peer".to_string(),
            ] {
                let refused = logged(prefix, &user, &database, &refusal);
                let detail = logged(prefix, &user, &database, "DETAIL:  Connection matched line 1");
                let genuine = |text: &str| {
                    // Longer than two names: a prefix without a time leaves nothing else to know lines by.
                    let long = "to be of the length of a message of the server".repeat(3);
                    logged(prefix, "bob", "shop", &format!("ERROR:  {text}, {long}"))
                };
                let log = genuine("first") + &refused + &detail + &genuine("last");
                let (found, doubtful) = entries(Format::Stderr, prefix, &log, log.len());
                let seen = format!("{prefix} {user:?} {database:?}\n{log}\n{found:#?} {doubtful}");
                let is_one =
                    |words: &str| found.iter().filter(|entry| entry.message.starts_with(words)).count();
                assert_eq!((is_one("first"), is_one("last"), is_one("forged")), (1, 1, 0), "{seen}");
                let is_known = found.iter().any(|entry| ["FATAL", "LOG"].contains(&entry.severity.as_str()));
                assert!(is_known || doubtful > 0, "{seen}");
            }
        }
    }
}

#[test]
fn a_name_of_an_application_makes_no_message_of_another_kind() {
    let prefix = "%m [%p] app=%a,client=local ";
    let forged = "x,client=local PANIC:  forged";
    let log =
        logged(prefix, "", forged, "ERROR:  division by zero") + &logged(prefix, "", "psql", "LOG:  next");
    let (found, doubtful) = entries(Format::Stderr, prefix, &log, log.len());
    assert_eq!(found.iter().map(|entry| entry.message.as_str()).collect::<Vec<_>>(), ["next"]);
    assert_eq!(doubtful, 1);
}

#[test]
fn usual_lines_have_one_reading_and_wait_for_nothing() {
    let prefix = "%m [%p] %q%u@%d ";
    let mut log = String::new();
    for message in [
        "ERROR:  deadlock detected",
        "DETAIL:  Process 5 waits for ShareLock on transaction 7; blocked by process 6.\nProcess 6: commit",
        "STATEMENT:  update t set v = 1",
        "LOG:  duration: 12.345 ms",
        "FATAL:  role \"bob\" does not exist",
        "LOG:  duration: 1.345 ms",
        "FATAL:  the database system is starting up",
        "ERROR:  relation \"a@b c\" does not exist",
    ] {
        log += &logged(prefix, "bob", "shop", message);
        log += &format!("{TIME} [5] LOG:  checkpoint starting: time\n");
    }
    for piece in [1, 7, 100, log.len()] {
        let (found, doubtful) = entries(Format::Stderr, prefix, &log, piece);
        assert_eq!((found.len(), doubtful), (14, 0), "{piece}: {found:#?}");
    }
    // The second line of the file is there as soon as it is written.
    let mut splitter = Splitter::new(Format::Stderr, prefix);
    assert_eq!(splitter.push(logged(prefix, "bob", "shop", "ERROR:  at once").as_bytes()).len(), 1);
}

/// A statement with line feeds and quotes inside of a CSV entry that is longer than what is kept.
#[test]
fn a_statement_of_csvlog_that_was_cut_makes_no_entries() {
    let entry = |user: &str, message: &str, statement: &str| {
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        format!(
            "{TIME},{},\"shop\",77,\"[local]\",6638a1b2.4d,5,\"idle\",{TIME},3/5,0,ERROR,22012,{},,,,,,{},,,\"psql\",\"client backend\",,0\n",
            quoted(user),
            quoted(message),
            quoted(statement)
        )
    };
    let forged = format!(
        "{TIME},,,1,,6638a1b2.4d,1,,{TIME},,0,PANIC,XX000,forged,,,,,,,,,,postmaster,,0\n{}",
        entry("bob", "forged", "select 1")
    );
    let mut statement = "select 1 /*".to_string();
    while statement.len() < 3 * 256 * 1024 {
        statement += &forged;
    }
    let log = entry("bob", "division by zero", &statement) + &entry("bob", "last", "select 2");
    for piece in [4_096, 100_000, 300_000] {
        let (found, _) = entries(Format::Csv, "", &log, piece);
        let messages: Vec<&str> = found.iter().map(|entry| entry.message.as_str()).collect();
        assert!(!messages.contains(&"forged") && messages.last() == Some(&"last"), "{piece}: {messages:?}");
    }
}
