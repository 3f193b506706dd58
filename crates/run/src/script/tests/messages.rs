//! What a user reads after a mistake: place, text, caret, hint.

use super::*;

/// (script, place and message, hint; an empty hint means there is none to give)
const TABLE: &[(&str, &str, &str)] = &[
    ("", "test.sql: the script has no command", "a script needs at least one SQL statement or meta command"),
    (
        "-- only\n/* comments */",
        "test.sql: the script has no command",
        "a script needs at least one SQL statement or meta command",
    ),
    ("SELECT 1;\nSELECT 'a\0b';", "test.sql:2:10: NUL byte in the script", ""),
    ("SELECT 'abc;\n", "test.sql:1:8: a quoted string opened here is never closed", ""),
    ("SELECT \"abc;\n", "test.sql:1:8: a quoted identifier opened here is never closed", ""),
    ("SELECT 1;\nSELECT $x$ abc;\n", "test.sql:2:8: a dollar quote opened here is never closed", ""),
    ("SELECT 1 /* abc; /* */\n", "test.sql:1:10: a comment opened here is never closed", ""),
    (
        "SELECT (1;\nSELECT 2;",
        "test.sql:1:8: parenthesis opened here is never closed",
        "a statement ends at ; only outside parentheses: close it before the ;",
    ),
    (
        "SELECT (1\n\\set x 1\n",
        "test.sql:1:8: unclosed parenthesis before \\set",
        "close the parenthesis, and end the statement with ; before the meta command",
    ),
    (
        "SELECT :'x';",
        "test.sql:1:8: psql's :'name' is not part of the pgbench dialect",
        "write :name alone; parameters are quoted as needed by the protocol",
    ),
    (
        "SELECT :\"x\";",
        "test.sql:1:8: psql's :\"name\" is not part of the pgbench dialect",
        "write :name alone; parameters are quoted as needed by the protocol",
    ),
    (
        "\\set aid 1\nSELECT :adi;",
        "test.sql:2:8: undefined variable :adi",
        "is :aid meant? Otherwise set it: \\set adi ..., or -D adi=VALUE",
    ),
    (
        "\\set account 1\nSELECT :acount;",
        "test.sql:2:8: undefined variable :acount",
        "is :account meant? Otherwise set it: \\set acount ..., or -D acount=VALUE",
    ),
    (
        "\\set x 100 * :scal\n",
        "test.sql:1:14: undefined variable :scal",
        "is :scale meant? Otherwise set it: \\set scal ..., or -D scal=VALUE",
    ),
    (
        "\\sleep :pause\n",
        "test.sql:1:8: undefined variable :pause",
        "set it before its first use: \\set pause ..., or -D pause=VALUE",
    ),
    (
        "\\if :on\n\\endif\n",
        "test.sql:1:5: undefined variable :on",
        "set it before its first use: \\set on ..., or -D on=VALUE",
    ),
    ("\\\n", "test.sql:1:1: unknown command \\", KNOWN),
    ("\\ set x 1\n", "test.sql:1:1: unknown command \\", KNOWN),
    ("\\vacuum\n", "test.sql:1:1: unknown command \\vacuum", KNOWN),
    ("\\ste x 1\n", "test.sql:1:1: unknown command \\ste", "is \\set meant?"),
    ("SELECT 1 \\gste\n", "test.sql:1:10: unknown command \\gste", "is \\gset meant?"),
    (
        "SELECT 1;\n  \\shell echo 1\n",
        "test.sql:2:3: \\shell is not supported: running a program would stop every other session of its worker",
        "run the program once before, and pass its output: -D name=$(program)",
    ),
    (
        "\\setshell x echo 1\n",
        "test.sql:1:1: \\setshell is not supported: running a program would stop every other session of its worker",
        "run the program once before, and pass its output: -D name=$(program)",
    ),
    (
        "\\set\n",
        "test.sql:1:1: \\set needs a name and an expression",
        "write \\set name expression, as in \\set aid random(1, 1000)",
    ),
    (
        "\\set x\n",
        "test.sql:1:1: \\set needs an expression",
        "write \\set name expression, as in \\set aid random(1, 1000)",
    ),
    ("\\set 1x 1\n", "test.sql:1:6: invalid variable name \"1x\"", NAME),
    ("\\set :x 1\n", "test.sql:1:6: invalid variable name \":x\"", NAME),
    ("\\set x:=1\n", "test.sql:1:6: invalid variable name \"x:=1\"", NAME),
    ("SELECT 1 \\gset a-\n", "test.sql:1:16: invalid variable name \"a-\"", NAME),
    ("\\sleep :1\n", "test.sql:1:8: invalid variable name \"1\"", NAME),
    ("SELECT 1 \\gset a b\n", "test.sql:1:18: \\gset takes no more arguments", ""),
    ("\\sleep 1 s now\n", "test.sql:1:12: \\sleep takes no more arguments", ""),
    ("\\if TRUE\n\\else 1\n\\endif", "test.sql:2:7: \\else takes no more arguments", ""),
    ("\\if TRUE\n\\endif 1", "test.sql:2:8: \\endif takes no more arguments", ""),
    ("\\sleep\n", "test.sql:1:1: \\sleep needs a number and optionally a unit (us, ms, s)", ""),
    ("\\sleep soon\n", "test.sql:1:8: \\sleep needs a whole number or a :variable, not \"soon\"", SLEEP),
    ("\\sleep 1.5 s\n", "test.sql:1:8: \\sleep needs a whole number or a :variable, not \"1.5\"", SLEEP),
    ("\\sleep 1.5\n", "test.sql:1:8: \\sleep needs a whole number or a :variable, not \"1.5\"", SLEEP),
    ("\\sleep 1ms s\n", "test.sql:1:8: \\sleep needs a whole number or a :variable, not \"1ms\"", SLEEP),
    ("\\sleep 1 min\n", "test.sql:1:10: unknown time unit \"min\"", SLEEP),
    ("\\sleep 10sec\n", "test.sql:1:10: unknown time unit \"sec\"", SLEEP),
    ("\\gset\n", "test.sql:1:1: \\gset must follow an SQL command", GSET),
    ("\\set x 1\n\\gset\n", "test.sql:2:1: \\gset must follow an SQL command", GSET),
    ("SELECT 1 \\gset\n\\aset\n", "test.sql:2:1: \\aset must follow an SQL command", GSET),
    ("\\endif\n", "test.sql:1:1: \\endif without \\if", ""),
    ("\\else\n", "test.sql:1:1: \\else without \\if", ""),
    ("SELECT 1;\n\\elif TRUE\n", "test.sql:2:1: \\elif without \\if", ""),
    ("\\if TRUE\n\\else\n\\else\n\\endif\n", "test.sql:3:1: \\else after \\else", ""),
    ("\\if TRUE\n\\else\n\\elif 1\n\\endif\n", "test.sql:3:1: \\elif after \\else", ""),
    (
        "\\if TRUE\n\\if FALSE\n\\endif\n",
        "test.sql:1:1: \\if without \\endif",
        "close each \\if with its own \\endif",
    ),
    (
        "\\startpipeline\n\\endpipeline\n",
        "test.sql:1:1: \\startpipeline cannot work in the simple query mode",
        "run with -M extended or -M prepared",
    ),
    (
        "\\set x 1;\n",
        "test.sql:1:9: unexpected character ';'",
        "a meta command ends with its line, without ;",
    ),
    (
        "\\set x 'abc'\n",
        "test.sql:1:8: unexpected character '\\''",
        "expressions know numbers, booleans and NULL; text can only be used in SQL",
    ),
    ("\\set x !TRUE\n", "test.sql:1:8: unexpected character '!'", "write NOT, or <> for unequal"),
    ("\\set x 2 ^ 3\n", "test.sql:1:10: unexpected character '^'", "write pow(a, b)"),
    ("\\set x a[1]\n", "test.sql:1:9: unexpected character '['", "group with parentheses"),
    ("\\set x $1\n", "test.sql:1:8: unexpected character '$'", "variables are written :name"),
    ("\\set x a(1)\n", "test.sql:1:8: unknown function \"a\"", FUNCTIONS_A),
    ("\\set x 1 ? 2\n", "test.sql:1:10: unexpected character '?'", ""),
    (
        "\\set x = 1\n",
        "test.sql:1:8: expected an expression, found \"=\"",
        "\\set takes no =: write \\set name expression; equality is a single =",
    ),
    (
        "\\set x 1 == 1\n",
        "test.sql:1:11: expected an expression, found \"=\"",
        "\\set takes no =: write \\set name expression; equality is a single =",
    ),
    (
        "\\set x TRUE || FALSE\n",
        "test.sql:1:14: expected an expression, found \"|\"",
        "boolean operators are AND, OR and NOT",
    ),
    (
        "\\set x TRUE && FALSE\n",
        "test.sql:1:14: expected an expression, found \"&\"",
        "boolean operators are AND, OR and NOT",
    ),
    (
        "\\set x 2 ** 3\n",
        "test.sql:1:11: expected an expression, found \"*\"",
        "a value is missing before it; a power is written pow(a, b)",
    ),
    (
        "\\set x 1 +\nSELECT 1;",
        "test.sql:1:11: expected an expression, found the end of the line",
        "an expression continues on the next line only after a backslash at the end",
    ),
    (
        "\\if\n\\endif",
        "test.sql:1:4: expected an expression, found the end of the line",
        "an expression continues on the next line only after a backslash at the end",
    ),
    ("\\set x (1 + 2\n", "test.sql:1:14: expected an operator or ), found the end of the line", CONTINUES),
    ("\\set x 1 2\n", "test.sql:1:10: expected an operator or the end of the line, found \"2\"", ""),
    ("\\set x CASE 1 END\n", "test.sql:1:13: expected WHEN, found \"1\"", ""),
    ("\\set x CASE WHEN 1 END\n", "test.sql:1:20: expected an operator or THEN, found \"END\"", ""),
    (
        "\\set x CASE WHEN 1 THEN 2\n",
        "test.sql:1:26: expected an operator, WHEN, ELSE or END, found the end of the line",
        CONTINUES,
    ),
    ("\\set x 1 IS 1\n", "test.sql:1:13: expected NULL, TRUE or FALSE, found \"1\"", ""),
    ("\\set x 9223372036854775808\n", "test.sql:1:8: integer 9223372036854775808 is out of range", INTEGERS),
    ("\\set x 1e999\n", "test.sql:1:8: double 1e999 is out of range", ""),
    ("\\set x 1 < 2 < 3\n", "test.sql:1:14: comparisons cannot be chained", "write (a < b) AND (b < c)"),
    ("\\set x randon(1, 2)\n", "test.sql:1:8: unknown function \"randon\"", "is random() meant?"),
    ("\\set x random(1)\n", "test.sql:1:8: random() takes two arguments, not 1", ""),
];

const KNOWN: &str = "known are \\set \\gset \\aset \\if \\elif \\else \\endif \\sleep \\startpipeline \\syncpipeline \\endpipeline";
const NAME: &str = "a name is letters, digits and underscores, not starting with a digit";
const SLEEP: &str = "write \\sleep 10 ms; units are us, ms and s";
const GSET: &str = "put it right after the statement: SELECT 1 AS one \\gset";
const CONTINUES: &str = "an expression continues on the next line only after a backslash at the end";
const INTEGERS: &str =
    "integers reach from -9223372036854775808 to 9223372036854775807; append .0 for a double";
const FUNCTIONS_A: &str = "known are abs debug double exp greatest hash hash_fnv1a hash_murmur2 int least ln mod permute pi pow power random \
     random_exponential random_gaussian random_zipfian sqrt; variables are written :a";

#[test]
fn every_mistake_has_its_place_and_its_hint() {
    for (text, message, hint) in TABLE {
        let error = compile(text).err().unwrap_or_else(|| panic!("{text:?} is accepted"));
        let shown = error.to_string();
        assert_eq!(shown.lines().next(), Some(*message), "{text:?}");
        assert_eq!(error.hint().unwrap_or_default(), *hint, "{text:?}");
    }
}

#[test]
fn failures_while_running_point_at_the_part_that_failed() {
    let error = run("SELECT 1;\n\\set x 1\n\\set y 2 + :x / (:x - 1)\n").unwrap_err();
    assert_eq!(
        error.to_string(),
        "test.sql:3:15: division by zero\n  3 | \\set y 2 + :x / (:x - 1)\n    |               ^"
    );
    assert_eq!(error.hint().unwrap(), "guard the divisor: CASE WHEN :x <> 0 THEN :y / :x END");
    let error = run("\\set x 1\n\\if random(:x, 0) = 1\n\\endif\n").unwrap_err();
    assert_eq!(
        error.to_string(),
        "test.sql:2:5: empty range given to random\n  2 | \\if random(:x, 0) = 1\n    |     ^^^^^^^^^^^^^"
    );
    assert_eq!(error.hint().unwrap(), "the first bound must not be above the second");
    let error = run("\\if FALSE\n\\set late 1\n\\endif\n\\set y :late\n").unwrap_err();
    assert_eq!(
        error.to_string(),
        "test.sql:4:8: variable :late is not set\n  4 | \\set y :late\n    |        ^^^^^"
    );
    assert_eq!(error.hint().unwrap(), "set it with \\set or \\gset before this command, or with -D");
}

#[test]
fn carets_stand_under_the_mistake_in_any_text() {
    let shown = |text: &str| compile(text).unwrap_err().to_string();
    assert_eq!(
        shown("SELECT 1;\n\n\n\n\n\n\n\n\n\\set größe 1 + ü()\n"),
        "test.sql:10:16: unknown function \"ü\"\n  10 | \\set größe 1 + ü()\n     |                ^"
    );
    assert_eq!(
        shown("\t\\set x foo(1)\r\n"),
        "test.sql:1:9: unknown function \"foo\"\n  1 |  \\set x foo(1)\n    |         ^^^"
    );
    // A continued expression shows the line of the mistake.
    assert_eq!(
        shown("\\set x 1 + \\\n  foo(1)\n"),
        "test.sql:2:3: unknown function \"foo\"\n  2 |   foo(1)\n    |   ^^^"
    );
    // A very long line is cut around the mistake.
    let long = format!("\\set x {}foo(1){}\n", "1 + ".repeat(100), " + 1".repeat(100));
    let lines: Vec<String> = shown(&long).lines().map(str::to_owned).collect();
    assert_eq!(lines[0], "test.sql:1:408: unknown function \"foo\"");
    assert!(lines[1].len() < 120 && lines[1].contains("foo(1)"), "{lines:?}");
    assert_eq!(lines[1].find("foo"), lines[2].find("^^^"));
}

#[test]
fn the_quoted_parameter_shows_what_to_write() {
    let error = compile_in(QueryMode::Prepared, "\\set x 1\nSELECT 'key:x';").unwrap_err();
    assert_eq!(
        error.to_string(),
        "test.sql:2:12: variable :x inside a quoted string cannot be sent as a parameter\n  \
         2 | SELECT 'key:x';\n    |            ^^"
    );
    assert_eq!(error.hint().unwrap(), "write 'text' || :x || 'text', or run with -M simple");
    let error = compile_in(QueryMode::Extended, "SELECT 1 \\; SELECT 2;").unwrap_err();
    assert_eq!(error.hint().unwrap(), "run with -M simple, or use \\startpipeline and \\endpipeline");
}

#[test]
fn limits_are_reported() {
    let error = compile(&" ".repeat(SCRIPT_BYTES_MAX + 1)).unwrap_err();
    assert_eq!(error.to_string(), "test.sql: the script is 16777217 bytes long; the limit is 16777216");
    let error = compile(&";".repeat(COMMANDS_MAX + 1)).unwrap_err();
    assert!(error.to_string().starts_with("test.sql:1:100001: more than 100000 commands\n"), "{error}");
    let many = format!("\\set x 1\nSELECT {};", vec![":x"; PARAMETERS_MAX + 1].join(","));
    let error = compile(&many).unwrap_err();
    assert_eq!(error.problem(), &Problem::TooManyParameters { limit: PARAMETERS_MAX });
}
