use super::*;
use proptest::prelude::*;
use serde_json::json;

fn all() -> Redaction {
    "hosts,sql,settings".parse().expect("three words")
}

/// Collects from all values, then replaces in all.
fn redact(what: Redaction, values: &[Value]) -> Vec<Value> {
    let mut redactor = Redactor::new(what);
    values.iter().for_each(|value| redactor.learn(value));
    redactor.end_learning();
    let replaced = |value: &Value| {
        let mut value = value.clone();
        redactor.replace(&mut value);
        value
    };
    values.iter().map(replaced).collect()
}

#[test]
fn names_become_tokens_everywhere_and_the_same_ones() {
    let wording = redact(
        "hosts".parse().expect("a word"),
        &[
            json!({"source": "session", "node": "db1.acme.example:5432", "user": "carol", "application": "till", "database": "shop", "query": "SELECT 1"}),
            json!({"kind": "note", "host": "db1.acme.example", "message": "ssh carol@db1.acme.example: 10.20.30.40 port 22, db1 refused; db10 did not"}),
            json!({"source": "disk", "host": "db1", "device": "db1", "used_for": "pgdata"}),
        ],
    );
    let host = wording[1]["host"].as_str().expect("a token").to_string();
    assert_eq!(wording[0]["node"], json!(format!("{host}:5432")), "with and without its port");
    assert_eq!(wording[0]["user"], json!("user-1"));
    assert_eq!(
        wording[1]["message"],
        json!(format!(
            "ssh user-1@{host}: *** port 22, {} refused; db10 did not",
            wording[2]["host"].as_str().expect("a token")
        ))
    );
    assert_eq!(wording[0]["query"], json!("SELECT 1"), "no option hides statements");
    assert_eq!(wording[2]["device"], json!("db1"), "the kernel's own names stay");
}

#[test]
fn a_database_with_a_word_of_ours_does_no_harm() {
    let wording = redact(
        all(),
        &[json!({"source": "wait", "database": "WALWrite", "wait_event": "WALWrite", "wait_type": "LWLock"})],
    );
    assert_eq!(
        wording[0],
        json!({"source": "wait", "database": "database-1", "wait_event": "WALWrite", "wait_type": "LWLock"})
    );
}

#[test]
fn statements_keep_their_kind_and_identity() {
    let wording = redact(
        "sql".parse().expect("a word"),
        &[
            json!({"source": "session", "query": "update people set name = 'Eve' where id = 7", "node": "n1"}),
            json!({"source": "block", "query": "COMMIT", "blocker_query": "update people set name = 'Eve' where id = 7", "relation": "people"}),
            json!({"source": "session", "query": "autovacuum: VACUUM public.people (to prevent wraparound)"}),
            json!({"kind": "server_log", "message": "invalid input syntax for type integer: \"4929-secret\"", "detail": "Key (name)=(Eve) already exists.", "sqlstate": "22P02"}),
            json!({"kind": "lock_wait", "message": "process 7 still waiting", "detail": "Process holding the lock: 8", "wait_ms": 1000}),
            json!({"kind": "query", "query_id": "-7", "text": "update people set name = $1 where id = $2"}),
            json!({"kind": "note", "message": "seen: update people set name = 'Eve' where id = 7"}),
            json!({"errors": [{"sqlstate": "23505", "first_message": "duplicate key value violates unique constraint \"people_pkey\""}]}),
        ],
    );
    assert_eq!(wording[0]["query"], json!("UPDATE sql-1"));
    assert_eq!(
        wording[1]["blocker_query"],
        json!("UPDATE sql-1"),
        "the same statement is seen to be the same"
    );
    assert_eq!(wording[1]["relation"], json!("people"));
    assert_eq!(wording[2]["query"], json!("autovacuum: VACUUM public.people (to prevent wraparound)"));
    assert_eq!(wording[3]["message"], json!("invalid input syntax for type integer: \"***\""));
    assert_eq!((&wording[3]["detail"], &wording[3]["sqlstate"]), (&json!("***"), &json!("22P02")));
    assert_eq!(wording[4]["message"], json!("process 7 still waiting"));
    assert_eq!(wording[6]["message"], json!("seen: sql-1"));
    let text = Value::from(wording).to_string();
    for secret in ["Eve", "4929", "people set", "people_pkey"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}

#[test]
fn settings_keep_numbers_switches_and_well_known_words() {
    let setting = |name: &str, value: &str| json!({"source": "fact", "t_us": 1, "topic": "setting", "name": name, "value": value});
    let wording = redact(
        "settings".parse().expect("a word"),
        &[
            setting("work_mem", "64MB"),
            setting("fsync", "on"),
            setting("wal_level", "Logical"),
            setting("search_path", "acme, public"),
            setting("autovacuum_vacuum_cost_delay", "2ms"),
            json!({"settings": [{"name": "shared_preload_libraries", "value": "acme_audit", "source": "configuration file", "default": ""}]}),
            json!({"kind": "settings_changed", "message": "search_path: acme to acme2", "name": "search_path", "before": "acme", "after": "acme2"}),
            json!({"source": "fact", "t_us": 1, "topic": "mount", "name": "/data", "value": "/dev/sda ext4 rw"}),
        ],
    );
    let values: Vec<&Value> = wording[..5].iter().map(|line| &line["value"]).collect();
    assert_eq!(values, ["64MB", "on", "Logical", "***", "2ms"]);
    assert_eq!(wording[5]["settings"][0]["value"], json!("***"));
    assert_eq!(wording[7]["value"], json!("/dev/sda ext4 rw"), "options of mounts are evidence");
    assert!(!Value::from(wording).to_string().contains("acme"));
}

#[test]
fn texts_of_functions_and_keys_of_partitions_are_statements() {
    for topic in ["function", "function_settings", "peculiar"] {
        let value = "sql returning 1 rows: select acme from people";
        let line = json!({"source": "fact", "t_us": 1, "topic": topic, "name": "f", "value": value});
        let wording = redact("sql".parse().expect("a word"), std::slice::from_ref(&line));
        assert_eq!(wording[0]["value"], json!("***"), "{topic}");
        let kept = redact("settings".parse().expect("a word"), &[line]);
        assert!(kept[0]["value"].as_str().is_some_and(|text| text.contains("people")), "{topic}");
    }
}

#[test]
fn mounts_keep_their_kind_and_options_and_no_names_of_people() {
    for (value, expected) in [
        ("/dev/sda1 ext4 rw,noatime,stripe=1280", "/dev/sda1 ext4 rw,noatime,stripe=1280"),
        ("/dev/mapper/acme-data xfs rw,logdev=/dev/acme", "*** xfs rw,logdev=***"),
        ("nas7.acme:/export/acme nfs4 rw,addr=fe80::1", "*** nfs4 rw,addr=***"),
        (
            "overlay overlay rw,lowerdir=/acme/a:/acme/b,workdir=/acme/w",
            "overlay overlay rw,lowerdir=***,workdir=***",
        ),
        ("/dev/disk/by-label/acme ext4 rw", "*** ext4 rw"),
    ] {
        let line = json!({"source": "fact", "t_us": 1, "topic": "mount", "name": "/data", "value": value});
        let wording = redact("settings,hosts".parse().expect("words"), &[line]);
        assert_eq!(wording[0]["value"], json!(expected));
    }
}

#[test]
fn connections_and_command_lines() {
    let wording = redact(
        "hosts".parse().expect("a word"),
        &[json!({
            "argv": ["pgfathom", "watch", "-h", "db7.acme.example", "-T", "60", "--label=acme", "postgres://carol@db7.acme.example/shop"],
            "target": {"connection": "host=db7.acme.example,10.0.0.9 user=carol dbname=shop"},
            "steps": [{"nodes": [{"name": "west", "role": "primary"}], "summary": {"nodes": 3}}],
            "run_id": "20261120-watch-shop", "name": "shop",
        })],
    );
    let wording = &wording[0];
    let expected = ["pgfathom", "watch", "-h", "***", "-T", "60", "--label=***", "***"];
    assert_eq!(wording["argv"], json!(expected));
    assert_eq!(wording["target"]["connection"], json!("***"));
    assert!(
        wording["run_id"].as_str().is_some_and(|id| id.starts_with("20261120-watch-database-")),
        "{wording}"
    );
    let text = wording.to_string();
    for secret in ["db7", "acme", "carol", "shop", "west", "10.0.0.9"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}

#[test]
fn addresses_are_found_and_times_are_not() {
    for (text, expected) in [
        ("10.1.2.3", Some(8)),
        ("10.1.2.3:5432)", Some(8)),
        ("10.1.2", None),
        ("10.1.2.300", None),
        ("10:15:00", None),
        ("fe80::1", Some(7)),
        ("::1", None),
        ("2001:db8:0:0:0:0:0:1 x", Some(20)),
        ("feed", None),
        ("1.2.3.4abc", None),
        ("1.2.3.4xyz", None),
        ("", None),
    ] {
        assert_eq!(address_length(text), expected, "{text}");
    }
}

#[test]
fn names_of_all_lengths_leave_their_fields_and_words_stay() {
    for (user, database) in [
        ("a", "b"),
        ("on", "is"),
        ("qx", "d1"),
        ("joe", "app"),
        ("x", "s"),
        ("\u{fc}", "\u{6771}"),
        ("at", "the_shop"),
    ] {
        let wording = redact(
            "hosts".parse().expect("a word"),
            &[
                json!({"source": "session", "user": user, "database": database, "application": "w", "state": "idle"}),
                json!({"name": database, "run_id": format!("20261122-101500-run-{database}"), "cells": [user, database]}),
                json!({"kind": "server_log", "message": format!("password authentication failed for user \"{user}\" at 5 s")}),
                json!({"kind": "note", "message": format!("connection is on: user={user} database={database}, role {user}")}),
                json!({"address": format!("{database}:5432"), "topic": "setting", "name": "fsync", "value": "on"}),
            ],
        );
        assert_eq!(
            (&wording[0]["user"], &wording[0]["state"]),
            (&json!("user-1"), &json!("idle")),
            "{user} {database}"
        );
        assert_eq!(wording[1]["name"], json!("database-1"), "{user} {database}");
        assert_eq!(wording[1]["run_id"], json!("20261122-101500-run-database-1"));
        assert_eq!(wording[1]["cells"], json!(["user-1", "database-1"]));
        assert_eq!(wording[2]["message"], json!("password authentication failed for user \"user-1\" at 5 s"));
        assert_eq!(
            wording[3]["message"],
            json!("connection is on: user=user-1 database=database-1, role user-1")
        );
        assert_eq!((&wording[4]["address"], &wording[4]["value"]), (&json!("database-1:5432"), &json!("on")));
    }
}

#[test]
fn passwords_are_always_removed() {
    let wording = redact(
        Redaction::default(),
        &[
            json!({"source": "session", "query": "alter role carol password 'hidden-word'", "user": "carol"}),
            json!({"kind": "server_log", "message": "statement: CREATE USER MAPPING FOR x SERVER y OPTIONS (user 'u', password 'hidden-word')"}),
            json!({"password": "hidden-word", "argv": ["pgfathom", "postgres://u:hidden-word@h/d"]}),
        ],
    );
    let text = Value::from(wording.clone()).to_string();
    assert!(!text.contains("hidden-word") && text.contains("carol"), "{text}");
    assert_eq!(wording[0]["query"], json!("alter role carol password '***'"));
}

#[test]
fn words_of_the_flag() {
    assert_eq!("sql,hosts".parse(), Ok(Redaction { hosts: true, sql: true, settings: false }));
    assert_eq!(all().words(), ["hosts", "sql", "settings"]);
    assert!("sql,rows".parse::<Redaction>().is_err() && "".parse::<Redaction>().is_err());
}

proptest! {
    #[test]
    fn no_learned_host_survives_in_free_text(host in "[a-z]{4,8}[0-9]{1,2}", before in "[ .,:@/(=-]", after in "[ .,:@/)=-]") {
        let message = format!("x{before}{host}{after}y");
        let wording = redact(all(), &[json!({"host": host, "message": message})]);
        prop_assert!(!wording[0].to_string().contains(&host), "{}", wording[0]);
    }

    #[test]
    fn any_text_is_taken(text in ".{0,80}", name in ".{0,8}") {
        let wording = redact(all(), &[json!({"host": name, "user": text, "message": text, "query": text, "value": text, "connection": text})]);
        prop_assert!(wording[0].is_object());
    }
}

#[test]
fn statements_inside_of_functions_are_statements() {
    let lines = [
        json!({"source": "plan", "query_id": "7", "function": "renew", "inner": "delete from people where mail = $1"}),
        json!({"node_time": [{"statements": [{"query_id": "7", "text": "delete from people where mail = $1", "outer": "select renew($1)"}]}]}),
    ];
    let text = serde_json::to_string(&redact("sql".parse().expect("a word"), &lines)).expect("JSON");
    for hidden in ["mail", "renew($1)"] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
}
