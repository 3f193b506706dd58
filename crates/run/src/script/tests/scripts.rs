//! Whole scripts: where statements end, what is substituted, how conditionals, captures and pipelines go.

use super::*;

/// The statements of a script as sent in the simple mode.
fn sent(text: &str) -> Vec<String> {
    run(text).unwrap_or_else(|error| panic!("{text}\n{error}")).steps
}

/// The statements of a script as prepared.
fn prepared(text: &str) -> Vec<String> {
    let mix = compile_in(QueryMode::Prepared, text).unwrap_or_else(|error| panic!("{text}\n{error}"));
    mix.scripts()[0].statements().map(|(_, statement)| statement.prepared().to_owned()).collect()
}

#[test]
fn statements_end_at_a_semicolon_outside_quotes() {
    assert_eq!(sent("SELECT 1; SELECT 2;\nSELECT 3"), ["SELECT 1;", "SELECT 2;", "SELECT 3"]);
    assert_eq!(sent("SELECT\n  1\n;"), ["SELECT\n  1\n;"]);
    assert_eq!(sent("SELECT ';', ';;' ;"), ["SELECT ';', ';;' ;"]);
    assert_eq!(sent("SELECT 'it''s;';"), ["SELECT 'it''s;';"]);
    assert_eq!(sent(r"SELECT '\'; SELECT 2;"), [r"SELECT '\';", "SELECT 2;"]);
    assert_eq!(sent(r"SELECT E'\';'; SELECT 2;"), [r"SELECT E'\';';", "SELECT 2;"]);
    assert_eq!(sent("SELECT e'a'\n '\\';'; SELECT 2;"), ["SELECT e'a'\n '\\';';", "SELECT 2;"]);
    assert_eq!(sent("SELECT \"a;\"\"b\"; SELECT 2;"), ["SELECT \"a;\"\"b\";", "SELECT 2;"]);
    assert_eq!(
        sent("SELECT $$;$$, $a$;$b$;$$;$a$; SELECT 2;"),
        ["SELECT $$;$$, $a$;$b$;$$;$a$;", "SELECT 2;"]
    );
    assert_eq!(sent("SELECT a$b$; SELECT c$d;"), ["SELECT a$b$;", "SELECT c$d;"]);
    assert_eq!(sent("SELECT (1;2); SELECT 2;"), ["SELECT (1;2);", "SELECT 2;"]);
    assert_eq!(sent("SELECT 1) ; SELECT 2;"), ["SELECT 1) ;", "SELECT 2;"]);
    assert_eq!(sent(";"), [";"]);
    assert_eq!(sent(";;\n;"), [";", ";", ";"]);
    assert_eq!(sent("SELECT 'späte;r', 'ü' AS ä;SELECT 2;"), ["SELECT 'späte;r', 'ü' AS ä;", "SELECT 2;"]);
}

#[test]
fn comments_hide_and_leading_ones_are_dropped() {
    assert_eq!(sent("-- one; two\nSELECT 1;\n-- end"), ["SELECT 1;"]);
    assert_eq!(sent("SELECT 1 -- not; here\n;"), ["SELECT 1 -- not; here\n;"]);
    assert_eq!(sent("SELECT 1 /* a; /* b; */ c; */;"), ["SELECT 1 /* a; /* b; */ c; */;"]);
    assert_eq!(sent("/*+ SeqScan(t) */ SELECT 1;"), ["/*+ SeqScan(t) */ SELECT 1;"]);
    assert_eq!(sent("/* nothing */\n\\set x 1\nSELECT 1;\n/* more */"), ["SELECT 1;"]);
    assert_eq!(sent("SELECT 1 - - 1;"), ["SELECT 1 - - 1;"]);
    assert_eq!(
        sent("\\set b 2\n-- :nothing\nSELECT :b -- :nothing\n, /* :nothing */ 1;"),
        ["SELECT 2 -- :nothing\n, /* :nothing */ 1;"]
    );
}

#[test]
fn the_body_of_a_function_is_one_statement() {
    let body =
        "CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true THEN 1 END; END;";
    assert_eq!(sent(&format!("{body} SELECT 2;")), [body, "SELECT 2;"]);
    let body = "create or replace procedure p() begin atomic select 1; end;";
    assert_eq!(sent(&format!("{body} SELECT 2;")), [body, "SELECT 2;"]);
    assert_eq!(sent("BEGIN; SELECT 1; END;"), ["BEGIN;", "SELECT 1;", "END;"]);
    assert_eq!(
        sent("CREATE TABLE begin_t (a int); SELECT 1;"),
        ["CREATE TABLE begin_t (a int);", "SELECT 1;"]
    );
}

#[test]
fn variables_are_substituted_in_both_forms() {
    let text = "\\set x 5\n\\set yy -2\nSELECT :x, :yy, :x::text, 1::int, :x + :yy, a:=1, :scale;";
    assert_eq!(sent(text), ["SELECT 5, -2, 5::text, 1::int, 5 + -2, a:=1, 10;"]);
    assert_eq!(prepared(text), ["SELECT $1, $2, $3::text, 1::int, $4 + $5, a:=1, $6;"]);
    let mix = compile_in(QueryMode::Extended, text).unwrap();
    let (_, statement) = mix.scripts()[0].statements().next().unwrap();
    let names: Vec<&str> = statement.parameters().iter().map(|slot| mix.names().name(*slot)).collect();
    assert_eq!(names, ["x", "yy", "x", "x", "yy", "scale"]);
    assert_eq!(sent("\\set größe 3\nSELECT :größe;"), ["SELECT 3;"]);
    assert_eq!(sent("\\set b 1\nSELECT a:::b, :::b, x::::b;"), ["SELECT a:::b, :::b, x::::b;"]);
    assert_eq!(sent("\\set b 1\nSELECT '1:30', 2:3, \\:b;"), ["SELECT '1:30', 2:3, :b;"]);
}

#[test]
fn quoted_variables_are_text_in_the_simple_mode_only() {
    let text = "\\set x 5\nSELECT 'a:x', ':unknown', \":x\", $$:x$$, E'\\':x', ':scale' ;";
    assert_eq!(sent(text), ["SELECT 'a5', ':unknown', \"5\", $$5$$, E'\\'5', '10' ;"]);
    let error = compile_in(QueryMode::Prepared, text).unwrap_err();
    assert_eq!(error.problem(), &Problem::QuotedParameter { name: "x".to_owned(), place: "a quoted string" });
    assert_eq!(
        prepared("SELECT 'a:unknown', '12:30:00', \"a:b\";"),
        ["SELECT 'a:unknown', '12:30:00', \"a:b\";"]
    );
}

#[test]
fn slices_are_left_alone_unless_the_name_is_a_variable() {
    assert_eq!(sent("SELECT a[1:n], a[lo:hi] FROM t;"), ["SELECT a[1:n], a[lo:hi] FROM t;"]);
    assert_eq!(sent("\\set n 3\nSELECT a[1:n], ARRAY[:n, :n];"), ["SELECT a[13], ARRAY[3, 3];"]);
    assert_eq!(prepared("\\set n 3\nSELECT ARRAY[:n, 2][:n];"), ["SELECT ARRAY[$1, 2][$2];"]);
}

#[test]
fn joined_statements_go_together() {
    assert_eq!(
        sent("SELECT 1\\; SELECT 2 \\; SELECT 3; SELECT 4;"),
        ["SELECT 1; SELECT 2 ; SELECT 3;", "SELECT 4;"]
    );
    let error = compile_in(QueryMode::Prepared, "SELECT 1\\; SELECT 2;").unwrap_err();
    assert_eq!(error.problem(), &Problem::JoinedStatements);
}

#[test]
fn conditionals_choose_one_branch() {
    let script = |x: &str| {
        format!(
            "\\set x {x}\n\\if :x = 1\nSELECT 'one';\n\\elif :x = 2\nSELECT 'two';\n\\if TRUE\nSELECT 'inner';\n\\else\n\
             SELECT 'never';\n\\endif\n\\elif :x = 3\n\\else\nSELECT 'other';\n\\endif\nSELECT 'end';"
        )
    };
    assert_eq!(sent(&script("1")), ["SELECT 'one';", "SELECT 'end';"]);
    assert_eq!(sent(&script("2")), ["SELECT 'two';", "SELECT 'inner';", "SELECT 'end';"]);
    assert_eq!(sent(&script("3")), ["SELECT 'end';"]);
    assert_eq!(sent(&script("4")), ["SELECT 'other';", "SELECT 'end';"]);
    assert_eq!(sent(&script("NULL")), ["SELECT 'other';", "SELECT 'end';"]);
    // A skipped branch is not evaluated, whatever it holds.
    assert_eq!(
        sent("\\if FALSE\n\\if 1 / 0\n\\endif\n\\elif 0.0\n\\else\nSELECT 1;\n\\endif"),
        ["SELECT 1;"]
    );
    assert_eq!(sent("\\if 1\n\\elif 1 / 0\n\\endif\nSELECT 1;"), ["SELECT 1;"]);
    // An unterminated statement ends at the backslash.
    assert_eq!(sent("\\if TRUE\nSELECT 1\n\\else\nSELECT 2\n\\endif"), ["SELECT 1"]);
}

#[test]
fn sleep_counts_units() {
    for (text, expected) in [
        ("\\sleep 2", "sleep 2000000"),
        ("\\sleep 2 s", "sleep 2000000"),
        ("\\sleep 2 MS", "sleep 2000"),
        ("\\sleep 20 us", "sleep 20"),
        ("\\sleep 20us", "sleep 20"),
        ("\\sleep +3ms", "sleep 3000"),
        ("\\sleep -3 s", "sleep 0"),
        ("\\set t 7\n\\sleep :t ms", "sleep 7000"),
        ("\\set t 7.9\n\\sleep :t us", "sleep 7"),
        ("\\set t -7\n\\sleep :t", "sleep 0"),
        ("\\sleep :scale us", "sleep 10"),
        ("\\sleep 18446744073709551615 s", "sleep 18446744073709551615"),
    ] {
        assert_eq!(sent(text), [expected], "{text}");
    }
    let mix = Mix::compile(
        &[source("\\sleep :t ms")],
        &Options { mode: QueryMode::Simple, defines: vec![("t".to_owned(), " 12abc".to_owned())] },
    )
    .unwrap();
    let mut state = mix.state(&PREDEFINED).unwrap();
    assert_eq!(walk(&mix, &mut state, |_, _, _| {}).unwrap().steps, ["sleep 12000"]);
    for bad in ["TRUE", "NULL"] {
        let error = run(&format!("\\set t {bad}\n\\sleep :t")).unwrap_err();
        assert_eq!(error.problem().to_string(), "\\sleep needs a number");
        assert_eq!(error.line(), 2);
    }
}

/// Answers every capture with one row of these columns.
fn answer(row: &[(&str, Option<&str>)]) -> impl FnMut(&Capture, &Names, &mut State) {
    move |capture, names, state| {
        let mut targets = Vec::new();
        capture.targets(names, row.iter().map(|(name, _)| *name), &mut targets).unwrap();
        for (target, (_, value)) in targets.iter().zip(row) {
            match (target, value) {
                (Some(slot), Some(text)) => state.set_text(*slot, text.as_bytes()).unwrap(),
                (Some(slot), None) => state.set(*slot, Value::Null),
                (None, _) => {}
            }
        }
    }
}

#[test]
fn gset_makes_variables_of_columns() {
    let mix =
        compile("SELECT 1 AS one, 2 AS two \\gset\n\\set three :one + :two\nSELECT :one, ':two', :three;")
            .unwrap();
    let mut state = mix.state(&PREDEFINED).unwrap();
    let trace =
        walk(&mix, &mut state, answer(&[("one", Some("007")), ("two", Some("2.5")), ("unused", None)]))
            .unwrap();
    // In SQL the text stays as the server wrote it; an expression reads the number.
    assert_eq!(trace.steps, ["SELECT 1 AS one, 2 AS two", "SELECT 007, '2.5', 9.5;"]);

    let mix = compile("SELECT 1; \\gset p_\nSELECT :p_x, :p_x::text;").unwrap();
    let mut state = mix.state(&PREDEFINED).unwrap();
    let trace = walk(&mix, &mut state, answer(&[("x", None), ("y", Some("1"))])).unwrap();
    assert_eq!(trace.steps, ["SELECT 1;", "SELECT NULL, NULL::text;"]);
    let capture = mix.scripts()[0].statements().next().unwrap().1.capture().unwrap();
    assert_eq!((capture.kind, capture.prefix.as_str()), (CaptureKind::Gset, "p_"));

    let mix = compile("SELECT 1 \\; SELECT 2 \\aset\nSELECT :x;").unwrap();
    assert_eq!(mix.scripts()[0].statements().next().unwrap().1.capture().unwrap().kind, CaptureKind::Aset);
    let mut state = mix.state(&PREDEFINED).unwrap();
    let error = walk(&mix, &mut state, |_, _, _| {}).unwrap_err();
    assert_eq!(error.to_string(), "test.sql:2:1: variable :x is not set\n  2 | SELECT :x;\n    | ^^^^^^^^^^");
}

#[test]
fn gset_refuses_columns_that_name_no_variable() {
    let mix = compile("SELECT 1 \\gset\nSELECT :x;").unwrap();
    let capture = mix.scripts()[0].statements().next().unwrap().1.capture().unwrap();
    let mut targets = Vec::new();
    let result = capture.targets(mix.names(), ["x", "?column?"].into_iter(), &mut targets);
    assert_eq!(result, Err(EvalError::ColumnName("gset", 2)));
    assert_eq!(capture.targets(mix.names(), ["y", "x"].into_iter(), &mut targets), Ok(()));
    assert_eq!(targets, [None, mix.names().find("x")]);
}

#[test]
fn text_that_is_no_number_is_fine_in_sql_only() {
    let mix = compile("SELECT 1 AS t \\gset\nSELECT ':t';\n\\set y :t + 1").unwrap();
    let mut state = mix.state(&PREDEFINED).unwrap();
    let error = walk(&mix, &mut state, answer(&[("t", Some("abc"))])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "test.sql:3:8: variable :t holds text that is not a number, boolean or null\n  3 | \\set y :t + 1\n    |        ^^"
    );
}

#[test]
fn a_slot_keeps_no_more_text_than_allowed() {
    let mix = compile("SELECT 1 AS t \\gset\nSELECT ':t';").unwrap();
    let mut state = mix.state(&PREDEFINED).unwrap();
    let slot = mix.names().find("t").unwrap();
    assert!(!state.is_set(slot));
    assert_eq!(state.set_text(slot, &vec![b'x'; TEXT_BYTES_MAX]), Ok(()));
    let refused = state.set_text(slot, &vec![b'x'; TEXT_BYTES_MAX + 1]);
    assert_eq!(refused, Err(EvalError::TextTooLong { bytes: TEXT_BYTES_MAX + 1, limit: TEXT_BYTES_MAX }));
    state.set(slot, Value::Int(1));
    assert_eq!(state.parameter(slot), Ok(Parameter::Value(Value::Int(1))));
}

#[test]
fn parameters_are_appended_as_text_or_null() {
    let mix = compile("\\set a 1\n\\set b NULL\n\\set c 0.5\nSELECT :a, :b, :c, :d;\nSELECT 1 AS d \\gset")
        .unwrap();
    let mut state = mix.state(&PREDEFINED).unwrap();
    assert!(walk(&mix, &mut state, |_, _, _| {}).is_err(), "d is not set in the first transaction");
    let mut out = Vec::new();
    let slot = |name| mix.names().find(name).unwrap();
    assert_eq!(state.append_parameter(slot("a"), &mut out), Ok(true));
    assert_eq!(state.append_parameter(slot("b"), &mut out), Ok(false));
    assert_eq!(state.append_parameter(slot("c"), &mut out), Ok(true));
    assert_eq!(state.append_parameter(slot("d"), &mut out), Err(EvalError::Undefined(slot("d"))));
    assert_eq!(out, b"10.5");
    state.set_text(slot("d"), b"from the first").unwrap();
    let trace = walk(&mix, &mut state, |_, _, _| {}).unwrap();
    assert_eq!(trace.steps[0], "SELECT 1, NULL, 0.5, from the first;");
}

#[test]
fn defines_and_predefined_variables_are_set_from_the_start() {
    let options = Options {
        mode: QueryMode::Simple,
        defines: vec![
            ("table".to_owned(), "accounts_1".to_owned()),
            ("scale".to_owned(), "77".to_owned()),
            ("unused".to_owned(), "x".to_owned()),
            ("twice".to_owned(), "1".to_owned()),
            ("twice".to_owned(), "2".to_owned()),
        ],
    };
    let text = "\\set double 2 * :scale\nSELECT * FROM :table WHERE a = :double AND b = :client_id AND c = :twice AND d IN (:random_seed, :default_seed);";
    let mix = Mix::compile(&[source(text)], &options).unwrap();
    let mut state = mix.state(&PREDEFINED).unwrap();
    let trace = walk(&mix, &mut state, |_, _, _| {}).unwrap();
    assert_eq!(
        trace.steps,
        ["SELECT * FROM accounts_1 WHERE a = 154 AND b = 3 AND c = 2 AND d IN (42, 5432);"]
    );
    assert!(mix.mentions("client_id"));
    assert!(!mix.mentions("unused"));
    assert_eq!(default_seed(1), default_seed(1));
    assert_ne!(default_seed(1), default_seed(2));
}

#[test]
fn scripts_share_variables_and_are_chosen_by_weight() {
    let scripts = [
        Source { name: "a".to_owned(), text: "\\set x 1\nSELECT :x;".to_owned(), weight: 3 },
        Source { name: "b".to_owned(), text: "SELECT :x;\nSELECT 2;".to_owned(), weight: 1 },
        Source { name: "never".to_owned(), text: "SELECT 3;".to_owned(), weight: 0 },
    ];
    let mix = Mix::compile(&scripts, &Options::default()).unwrap();
    let mut random = Random::for_transaction(9, 9, 9);
    let mut chosen = [0; 3];
    for _ in 0..40_000 {
        chosen[mix.choose(&mut random)] += 1;
    }
    assert!((29_500..30_500).contains(&chosen[0]), "{chosen:?}");
    assert_eq!(chosen[2], 0);
    assert_eq!(chosen[0] + chosen[1], 40_000);
    assert_eq!(mix.statement_count(), 4);
    let numbers: Vec<usize> =
        mix.scripts().iter().flat_map(|script| script.statements().map(|(_, s)| s.number())).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
    // A single script costs no draw.
    let single = compile("SELECT 1;").unwrap();
    let before = random.clone();
    assert_eq!(single.choose(&mut random), 0);
    assert_eq!(before, random);
}

#[test]
fn pipelines_are_walked_and_checked() {
    let text = "\\startpipeline\nSELECT 1;\n\\syncpipeline\nSELECT 2;\n\\endpipeline\nSELECT 3;";
    let mix = compile_in(QueryMode::Extended, text).unwrap();
    let mut state = mix.state(&PREDEFINED).unwrap();
    assert_eq!(
        walk(&mix, &mut state, |_, _, _| {}).unwrap().steps,
        ["startpipeline", "SELECT 1;", "syncpipeline", "SELECT 2;", "endpipeline", "SELECT 3;"]
    );
    let problem = |text: &str| compile_in(QueryMode::Prepared, text).unwrap_err().problem().clone();
    assert_eq!(compile(text).unwrap_err().problem(), &Problem::SimplePipeline { command: "startpipeline" });
    assert_eq!(problem("\\startpipeline\n\\startpipeline\n\\endpipeline"), Problem::AlreadyInPipeline);
    assert_eq!(problem("\\endpipeline"), Problem::NotInPipeline { command: "endpipeline" });
    assert_eq!(problem("SELECT 1;\\syncpipeline"), Problem::NotInPipeline { command: "syncpipeline" });
    assert_eq!(problem("\\startpipeline\nSELECT 1;"), Problem::PipelineLeftOpen);
    assert_eq!(
        problem("\\startpipeline\nSELECT 1 AS x \\gset\n\\endpipeline"),
        Problem::CaptureInPipeline { command: "gset" }
    );
    assert_eq!(
        problem("\\if :scale > 1\n\\startpipeline\n\\else\n\\startpipeline\n\\endif\nSELECT 1;"),
        Problem::PipelineLeftOpen
    );
}

#[test]
fn a_pipeline_that_only_some_paths_open_is_checked_when_running() {
    let text = "\\if :on\n\\startpipeline\n\\endif\nSELECT 1;\n\\if :off\n\\endpipeline\n\\endif";
    let walked = |on: &str, off: &str| {
        let defines = vec![("on".to_owned(), on.to_owned()), ("off".to_owned(), off.to_owned())];
        let mix = Mix::compile(&[source(text)], &Options { mode: QueryMode::Extended, defines }).unwrap();
        let mut state = mix.state(&PREDEFINED).unwrap();
        walk(&mix, &mut state, |_, _, _| {})
            .map(|trace| trace.steps.join(" "))
            .map_err(|e| e.problem().to_string())
    };
    assert_eq!(walked("1", "1"), Ok("startpipeline SELECT 1; endpipeline".to_owned()));
    assert_eq!(walked("0", "0"), Ok("SELECT 1;".to_owned()));
    assert_eq!(walked("1", "0"), Err("the script ended inside a pipeline".to_owned()));
    assert_eq!(walked("0", "1"), Err("\\endpipeline outside a pipeline".to_owned()));
}

#[test]
fn labels_and_lines_are_for_reports() {
    let mix = compile("\\set x 1 \n\n  SELECT\n 1;\nSELECT 2 \\gset\n\\if TRUE\nSELECT 3;\n\\endif").unwrap();
    let script = &mix.scripts()[0];
    let described: Vec<(usize, String)> =
        (0..script.command_count()).map(|command| (script.line(command), script.label(command))).collect();
    let expected = [(1, "\\set x 1"), (3, "SELECT"), (5, "SELECT 2"), (6, "\\if TRUE"), (7, "SELECT 3;")];
    assert_eq!(described, expected.map(|(line, label)| (line, label.to_owned())));
    assert_eq!(script.label(99), "");
}

#[test]
fn built_ins_send_what_pgbench_sends() {
    let options = Options { mode: QueryMode::Prepared, defines: Vec::new() };
    let built = |name: &str| Mix::compile(&[argument::builtin_source(name).unwrap()], &options).unwrap();
    for (name, statements, random) in [("tpcb-like", 7, 4), ("simple-update", 5, 4), ("select-only", 1, 1)] {
        let mix = built(name);
        assert_eq!(mix.statement_count(), statements, "{name}");
        assert_eq!(mix.scripts()[0].command_count(), statements + random, "{name}");
        assert!(mix.mentions("scale"), "{name}");
    }
    let tpcb = built("tpcb");
    let insert = tpcb.scripts()[0].statements().nth(5).unwrap().1;
    assert_eq!(
        insert.prepared(),
        "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP);"
    );
    let mix = built("select");
    let mut state = mix.state(&PREDEFINED).unwrap();
    let aid = mix.names().find("aid").unwrap();
    let mut seen = (i64::MAX, i64::MIN);
    for sequence in 0..2_000 {
        let mut random = Random::for_transaction(1, 1, sequence);
        let mut cursor = Cursor::default();
        let step = mix.scripts()[0].step(&mut cursor, &mut state, &mut random, &mut |_, _| {}).unwrap();
        assert!(matches!(step, Step::Sql { .. }));
        let Ok(Value::Int(value)) = state.value(aid) else { panic!("{state:?}") };
        seen = (seen.0.min(value), seen.1.max(value));
    }
    assert!(seen.0 >= 1 && seen.0 < 5_000 && seen.1 <= 1_000_000 && seen.1 > 995_000, "{seen:?}");
}
