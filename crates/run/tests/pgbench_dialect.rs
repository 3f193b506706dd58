//! Our scripts against the real pgbench: the same expressions give the same values and the same errors, and the same script sends
//! the same statements.
//!
//! Needs an installed PostgreSQL with pgbench; where there is none the tests say so and pass.

use std::path::{Path, PathBuf};
use std::process::Command;

use lab::throwaway::{SUPERUSER, Throwaway, installations};
use run::random::Random;
use run::script::{
    Cursor, Failure, Mix, Options, Predefined, QueryMode, ScriptError, Source, State, Step, Value,
};

const PREDEFINED: Predefined = Predefined { client_id: 0, scale: 10, random_seed: 42, default_seed: 5432 };

/// Expressions with a value. Draws are compared only where the range leaves no choice: the generators differ on purpose.
const VALUES: &[&str] = &[
    // Constants.
    "0",
    "1",
    "007",
    "+5",
    "-5",
    "- 5",
    "--5",
    "-+-5",
    "9223372036854775807",
    "-9223372036854775808",
    "1.",
    ".5",
    "0.1",
    "1e3",
    "1E-3",
    "12.5e+1",
    "1.0",
    "100000.0",
    "1e15",
    "1e16",
    "123456789012345678.0",
    "1e-4",
    "1e-5",
    "1.5e-10",
    "1e300",
    "-0.0",
    "0 * -1.0",
    "TRUE",
    "false",
    "Null",
    "0.1 + 0.2",
    "1e308 * 10",
    "-1e308 * 10",
    // Precedence.
    "1 + 2 * 3",
    "(1 + 2) * 3",
    "2 - 3 - 4",
    "100 / 10 / 2",
    "7 - -3",
    "-2 * -3",
    "2 + -3 * 4",
    "~0",
    "~1 + 2",
    "3 * ~1 + 2",
    "~1 & 3",
    "~ ~ 5",
    "-~5",
    "~-5",
    "1 | 2 # 3 & 1",
    "1 << 2 + 1",
    "1 << 2 << 3",
    "6 & 3 | 8",
    "1 + 1 = 2 AND 3 > 2",
    "NOT 1 = 2",
    "NOT TRUE OR TRUE",
    "NOT (TRUE OR TRUE)",
    "TRUE OR FALSE AND FALSE",
    "1 = 2 IS FALSE",
    "1 < 2 IS NULL IS FALSE",
    "NULL IS NULL IS TRUE",
    "1 + NULL IS NULL",
    "NOT NULL IS NULL",
    "NOT 1 IS NULL",
    "1 = 1 AND NOT 2 = 3",
    "TRUE AND 1 IS NOT NULL",
    "2 * 3 IS NOT NULL",
    "- 3 IS NULL",
    "1 <> 2",
    "1 != 1",
    "1 <= 1",
    "2 >= 3",
    "3 > 2.5",
    "1.5 < 1",
    "2 = 2.0",
    "1 - 1 - 1 * 2 % 3",
    "10 % 4 * 3",
    "1 NOTNULL",
    "1 ISNULL",
    "NULL ISNULL",
    "NULL NOTNULL",
    "1 = 1 ISNULL",
    // Types and rounding.
    "1 + 1.5",
    "7 / 2",
    "-7 / 2",
    "7 % 3",
    "-7 % 3",
    "7 % -3",
    "7.0 / 2",
    "1 / 0.0",
    "-1 / 0.0",
    "5.5 % 2",
    "6.5 % 4",
    "2.5 & 3",
    "3.5 | 0",
    "1.5 # 1",
    "1.4 << 1.6",
    "int(2.5)",
    "int(3.5)",
    "int(-2.5)",
    "int(-3.5)",
    "int(0.49999999999999994)",
    "int(1e18)",
    "int(-9223372036854775808.0)",
    "double(3)",
    "double(1) / 3",
    "double(9007199254740993)",
    "1 = 1.0000000000000002",
    // Functions.
    "abs(-3)",
    "abs(3)",
    "abs(-3.5)",
    "abs(-0.0)",
    "abs(-9223372036854775808)",
    "pow(2, 10)",
    "power(2, 0.5)",
    "pow(2, -1)",
    "pow(0, 0)",
    "pow(-8, 1.0 / 3)",
    "POW(10, 308)",
    "pi()",
    "Pi() * 2",
    "ln(10)",
    "ln(0)",
    "ln(-1)",
    "exp(1)",
    "exp(0.5)",
    "exp(710)",
    "exp(-1000)",
    "sqrt(2)",
    "sqrt(-1)",
    "sqrt(1e-300)",
    "least(3, 1, 2)",
    "least(3, 1.5)",
    "greatest(3, 1.5)",
    "greatest(1)",
    "least(-1, -2, 0)",
    "greatest(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)",
    "greatest(0.0 / 0.0, 1)",
    "least(1, 0.0 / 0.0)",
    "mod(17, 5)",
    "mod(-17, 5)",
    "mod(17.4, 5)",
    "debug(5) + 1",
    "hash(10)",
    "hash(10, 1)",
    "hash_murmur2(10, 5432)",
    "hash_fnv1a(10)",
    "hash_fnv1a(-10, -1)",
    "hash(5.6)",
    "permute(5, 100)",
    "permute(5, 100, 7)",
    "permute(-5, 100, 7)",
    "permute(5.4, 10.2, 1.1)",
    "permute(0, 1)",
    "permute(123456789, 987654321987)",
    "random(5, 5)",
    "random(5.4, 4.6)",
    "random_gaussian(7, 7, 2.0)",
    "random_exponential(7, 7, 0.1)",
    "random_zipfian(7, 7, 1.001)",
    "random_zipfian(9223372036854775807, 9223372036854775807, 1000)",
    // NULL.
    "NULL + 1",
    "1 - NULL",
    "-NULL",
    "~NULL",
    "NULL = NULL",
    "NULL <> 1",
    "NULL < 1",
    "abs(NULL)",
    "int(NULL)",
    "least(1, NULL)",
    "pow(NULL, 2)",
    "NOT NULL",
    "NULL AND FALSE",
    "FALSE AND NULL",
    "TRUE AND NULL",
    "NULL OR TRUE",
    "TRUE OR NULL",
    "FALSE OR NULL",
    "NULL AND 5",
    "NULL OR 5",
    "1 IS TRUE",
    "0 IS FALSE",
    "TRUE IS TRUE",
    "TRUE IS NOT FALSE",
    "NULL IS FALSE",
    "NULL IS NOT TRUE",
    "1.0 IS NULL",
    "hash(NULL)",
    "random(1, NULL)",
    "debug(NULL)",
    "NULL / 0",
    "NULL % 0",
    // Only what is needed is evaluated.
    "FALSE AND 1 / 0 = 1",
    "TRUE OR 1 / 0 = 1",
    "FALSE AND 5",
    "TRUE OR 5",
    "CASE WHEN TRUE THEN 1 ELSE 1 / 0 END",
    "CASE WHEN FALSE THEN 1 / 0 WHEN TRUE THEN 2 WHEN 1 / 0 THEN 3 END",
    "CASE WHEN 0 THEN 1 WHEN 2.5 THEN 3 END",
    "CASE WHEN NULL THEN 1 END",
    "CASE WHEN 0.0 THEN 1 ELSE 2 END",
    "CASE WHEN FALSE THEN 1 ELSE 2.5 END + 1",
    "case when 1=1 then case when false then 1 else 7 end end",
    "1 + CASE WHEN TRUE THEN 2 END * 3",
    "CASE WHEN TRUE THEN TRUE END AND FALSE",
    // Edges.
    "9223372036854775806 + 1",
    "-9223372036854775807 - 1",
    "-9223372036854775808 % -1",
    "-9223372036854775808 / 1",
    "1 << 62",
    "1 << 63",
    "1 << 64",
    "1 << -1",
    "-1 >> 1",
    "-8 >> 66",
    "1 >> 63",
    "-9223372036854775808 / 2",
    "3037000499 * 3037000499",
    "(((((((1)))))))",
    // Variables.
    ":scale * 100000",
    ":client_id",
    ":default_seed",
    ":given + 1",
    ":text_true",
    ":text_half * 2",
    ":text_null IS NULL",
    ":scale+:scale",
];

/// Expressions that compile but fail, with what both say.
const FAILURES: &[(&str, &str)] = &[
    ("9223372036854775807 + 1", "bigint add out of range"),
    ("-9223372036854775808 - 1", "bigint sub out of range"),
    ("-(-9223372036854775808)", "bigint sub out of range"),
    ("4611686018427387904 * 2", "bigint mul out of range"),
    ("-9223372036854775808 / -1", "bigint div out of range"),
    ("1 / 0", "division by zero"),
    ("1 % 0", "division by zero"),
    ("mod(1, 0)", "division by zero"),
    ("1 / (2 - 2)", "division by zero"),
    ("TRUE + 1", "cannot coerce boolean to int"),
    ("TRUE = FALSE", "cannot coerce boolean to int"),
    ("TRUE < 1.5", "cannot coerce boolean to double"),
    ("1 AND TRUE", "cannot coerce int to boolean"),
    ("TRUE AND 1", "cannot coerce int to boolean"),
    ("FALSE OR 2.5", "cannot coerce double to boolean"),
    ("2.5 OR TRUE", "cannot coerce double to boolean"),
    ("NOT 0", "cannot coerce int to boolean"),
    ("NOT 1.5", "cannot coerce double to boolean"),
    ("int(TRUE)", "cannot coerce boolean to int"),
    ("double(TRUE)", "cannot coerce boolean to double"),
    ("~TRUE", "cannot coerce boolean to int"),
    ("-TRUE", "cannot coerce boolean to int"),
    ("sqrt(TRUE)", "cannot coerce boolean to double"),
    ("least(TRUE, 1)", "cannot coerce boolean to int"),
    ("greatest(1, FALSE, 2.0)", "cannot coerce boolean to double"),
    ("int(1e30)", "double to int overflow for 1000000000000000019884624838656.000000"),
    ("int(9223372036854775807.0)", "double to int overflow for 9223372036854775808.000000"),
    ("int(0.0 / 0.0)", "double to int overflow for NaN"),
    ("1e30 & 1", "double to int overflow for 1000000000000000019884624838656.000000"),
    ("random(2, 1)", "empty range given to random"),
    ("random_zipfian(2, 1, 1.5)", "empty range given to random"),
    ("random(-9223372036854775808, 9223372036854775807)", "random range is too large"),
    ("random(0, 9223372036854775807)", "random range is too large"),
    ("random(TRUE, 2)", "cannot coerce boolean to int"),
    ("random_gaussian(1, 10, 1.9)", "gaussian parameter must be at least 2.000000 (not 1.900000)"),
    ("random_zipfian(1, 10, 1.0)", "zipfian parameter must be in range [1.001, 1000] (not 1.000000)"),
    ("random_zipfian(1, 10, 1001)", "zipfian parameter must be in range [1.001, 1000] (not 1001.000000)"),
    ("random_exponential(1, 10, 0)", "exponential parameter must be greater than zero (not 0.000000)"),
    ("random_exponential(1, 10, -1.5)", "exponential parameter must be greater than zero (not -1.500000)"),
    ("permute(1, 0)", "permute size parameter must be greater than zero"),
    ("permute(1, -5, 7)", "permute size parameter must be greater than zero"),
    ("CASE WHEN TRUE THEN 1 / 0 END", "division by zero"),
    ("1 + :text_word", "malformed variable \"text_word\" value: \"word\""),
];

/// Texts that neither accepts as an expression.
const REFUSED: &[&str] = &[
    "",
    "+",
    "1 +",
    "* 2",
    "(1",
    "1)",
    "1 2",
    "()",
    "1 < 2 < 3",
    "1 = 2 = 3",
    "1 = NOT 2 = 3 = 4",
    "foo(1)",
    "random(1)",
    "random(1, 2, 3)",
    "pi(1)",
    "abs()",
    "abs(1, 2)",
    "least()",
    "hash()",
    "hash(1, 2, 3)",
    "permute(1)",
    "permute(1, 2, 3, 4)",
    "abs",
    "abs 1",
    "1e",
    "1.2.3",
    "9223372036854775808",
    "-(9223372036854775808)",
    "99999999999999999999",
    "1e400",
    "'a'",
    "\"a\"",
    "1;",
    "1 ^ 2",
    "!TRUE",
    "TRUE || FALSE",
    "1 ** 2",
    "1 == 1",
    "CASE END",
    "CASE WHEN 1 END",
    "CASE WHEN 1 THEN 2",
    "CASE 1 WHEN 1 THEN 2 END",
    "1 IS 1",
    "1 IS",
    "1 IS NOT",
    "NOT",
    "1 NOT NULL",
    ":",
    ": x",
    "1 ,2",
    "abs(1,)",
    "greatest(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17)",
    "= 1",
    "1 = 2 = FALSE IS NULL OR TRUE",
    "5e-324",
    "2.5e-310",
];

/// Scripts whose statements a server accepts: both must cut and fill them alike.
const SCRIPTS: &[&str] = &[
    "SELECT 1; SELECT 2;\nSELECT 3",
    "SELECT\n  1,\n\t2\n;",
    "SELECT ';', ';;' ;",
    "SELECT 'it''s;';SELECT 2;",
    "SELECT '\\'; SELECT 2;",
    "SELECT E'\\';'; SELECT 2;",
    "SELECT e'a'\n '\\';b'; SELECT 2;",
    "SELECT 1 AS \"a;\"\"b\"; SELECT 2;",
    "SELECT $$;$$, $a$;$b$;$$;$a$; SELECT 2;",
    "SELECT 1 AS a$b$; SELECT 2 AS c$d;",
    "-- one; two\nSELECT 1;\n-- end",
    "SELECT 1 -- not; here\n;",
    "SELECT 1 /* a; /* b; */ c; */;",
    "/*+ SeqScan(t) */ SELECT 1;",
    "SELECT (VALUES (1)); SELECT (2);",
    "\\set x 5\n\\set y -2\nSELECT :x, :y, :x::text, 1::int, :x::int + :y::int, ARRAY[:x, :y];",
    "\\set x 5\n\\set größe 3\nSELECT :größe, :x AS größe;",
    "\\set n 2\nSELECT (ARRAY[1, 2, 3])[1::int], (ARRAY[1, 2, 3])[:n];",
    "\\set d 1.0 / 3\n\\set b 1 = 1\nSELECT :d, :b;",
    "\\if 1 = 2\nSELECT 'a';\n\\elif 2 = 2\nSELECT 'b';\n\\if FALSE\nSELECT 'c';\n\\else\nSELECT 'd';\n\\endif\n\\else\nSELECT 'e';\n\\endif\nSELECT 'f';",
    "\\if FALSE\n\\if 1 / 0\nSELECT 1;\n\\endif\nSELECT 2;\n\\else\nSELECT 3;\n\\endif",
    "\\if NULL\nSELECT 1\n\\elif 0.5\nSELECT 2\n\\else\nSELECT 3\n\\endif",
    "\\SET x 1 + \\\n  2\n\\If :x = 3\nSELECT :x;\n\\EndIf",
    "SELECT 1 AS one, '007' AS two, 2.50 AS three \\gset\n\\set sum :one + :two + :three\nSELECT :one, :two, :three, :sum;",
    "SELECT 1 AS x; \\gset p_\nSELECT :p_x;",
    "SELECT 1 AS x, 2 AS y \\gset\nSELECT 3 AS x \\gset\nSELECT :x, :y;",
    "SELECT 1 AS x WHERE FALSE \\aset\nSELECT 5 AS x \\aset\nSELECT :x;",
    "\\sleep 1 us\nSELECT 1;\n\\set t 2\n\\sleep :t us\n\\sleep 3us\nSELECT 2;",
    "BEGIN;\nCREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE SQL BEGIN ATOMIC SELECT 1; SELECT CASE WHEN true THEN 1 END; END;\nROLLBACK;",
    "SELECT 1 -1, 2 - -1;\r\nSELECT\r\n3;\r\n",
    ";\nSELECT 1;;",
];

/// Scripts only for the simple mode.
const SIMPLE_SCRIPTS: &[&str] = &[
    "SELECT 1\\; SELECT 2 \\; SELECT 3; SELECT 4;",
    "\\set x 5\nSELECT 'a:x', ':unknown', $$:x$$ AS \":x\";",
    "SELECT 1 AS x \\; SELECT 2 AS y \\aset\nSELECT :x, :y;",
    "\\set x NULL\n\\set y 1 = 2\nSELECT :x, :y;",
    "SELECT '{\"a\": 1}'::json, '1:2', 'a::b';",
];

struct Pgbench {
    server: Throwaway,
    program: PathBuf,
}

impl Pgbench {
    /// A server with its pgbench, or `None` where no installation has one.
    fn start() -> Option<Pgbench> {
        let found = installations().into_iter().find(|installation| installation.program("pgbench").exists());
        let Some(installation) = found else {
            testing::skip(&testing::Lack::new("pgbench", "no PostgreSQL installation has one"));
            return None;
        };
        let server =
            Throwaway::start(&installation, &[("max_connections", "10")]).expect("the server starts");
        Some(Pgbench { program: installation.program("pgbench"), server })
    }

    /// Runs one transaction of a script; answers whether it went well, and stderr.
    fn run(&self, mode: &str, script: &str) -> (bool, String) {
        let file = TemporaryFile::with(script);
        let output = Command::new(&self.program)
            .arg("-h")
            .arg(self.server.socket_dir())
            .args(["-p", &self.server.port().to_string(), "-U", SUPERUSER, "-n", "-t", "1", "-d", "-M", mode])
            .args(["-D", "scale=10", "-D", "default_seed=5432"])
            .args(DEFINES.iter().flat_map(|(name, value)| ["-D".to_owned(), format!("{name}={value}")]))
            .arg("-f")
            .arg(&file.0)
            .arg("postgres")
            .env("LC_ALL", "C")
            .output()
            .expect("pgbench starts");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

const DEFINES: [(&str, &str); 5] = [
    ("given", "41"),
    ("text_true", "yes"),
    ("text_half", "0.5"),
    ("text_null", "NULL"),
    ("text_word", "word"),
];

struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn with(text: &str) -> TemporaryFile {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("pgfathom-dialect-{}-{number}.sql", std::process::id()));
        std::fs::write(&path, text).expect("the temporary folder is writable");
        TemporaryFile(path)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(Path::new(&self.0));
    }
}

fn compile(mode: QueryMode, text: &str) -> Result<Mix, ScriptError> {
    let defines = DEFINES.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let source = Source { name: "t.sql".to_owned(), text: text.to_owned(), weight: 1 };
    Mix::compile(&[source], &Options { mode, defines })
}

/// What `debug()` prints of a value.
fn shown(value: Value) -> String {
    if value == Value::Null {
        return "null".to_owned();
    }
    let mut text = Vec::new();
    value.write_text(&mut text);
    format!("{} {}", value.type_name(), String::from_utf8(text).expect("numbers are ASCII"))
}

/// Evaluates an expression as the last `debug()` of a `\set`.
fn ours(expression: &str) -> Result<String, String> {
    let mix = compile(QueryMode::Simple, &format!("\\set v debug({expression})\n"))
        .map_err(|error| error.problem().to_string())?;
    let script = &mix.scripts()[0];
    let mut state = mix.state(&PREDEFINED).expect("short defines");
    let mut last = None;
    let mut random = Random::for_transaction(1, 0, 0);
    script
        .step(&mut Cursor::default(), &mut state, &mut random, &mut |_, value| last = Some(value))
        .map_err(|failure| script.explain(&failure, mix.names()).problem().to_string())?;
    Ok(shown(last.expect("debug() was called")))
}

#[test]
fn expressions_have_pgbenchs_values() {
    let Some(pgbench) = Pgbench::start() else { return };
    assert!(VALUES.len() >= 150, "only {} expressions are compared", VALUES.len());
    let script: String = VALUES.iter().map(|expression| format!("\\set v debug({expression})\n")).collect();
    let (success, stderr) = pgbench.run("simple", &(script + "SELECT 1;\n"));
    assert!(success, "pgbench refuses a value:\n{stderr}");
    // debug(script=0,command=N): value; a nested debug() prints twice, the last one counts.
    let mut theirs = vec![String::new(); VALUES.len()];
    for line in stderr.lines() {
        let Some(rest) = line.strip_prefix("debug(script=0,command=") else { continue };
        let (command, value) = rest.split_once("): ").expect("the form of a debug line");
        theirs[command.parse::<usize>().expect("a number") - 1] = value.to_owned();
    }
    let mut differences = Vec::new();
    for (expression, theirs) in VALUES.iter().zip(&theirs) {
        let ours = ours(expression);
        if ours.as_ref() != Ok(theirs) {
            differences.push(format!("{expression}: ours {ours:?}, pgbench {theirs}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn expressions_fail_where_pgbench_fails() {
    let Some(pgbench) = Pgbench::start() else { return };
    let mut differences = Vec::new();
    for (expression, message) in FAILURES {
        let (success, stderr) = pgbench.run("simple", &format!("\\set v {expression}\nSELECT 1;\n"));
        if success || !stderr.contains(message) {
            differences.push(format!("{expression}: pgbench says {stderr}"));
        }
        match ours(expression) {
            Err(ours) if ours == *message || message.starts_with("malformed") => {}
            other => differences.push(format!("{expression}: ours {other:?}, expected {message}")),
        }
    }
    for expression in REFUSED {
        let (success, _) = pgbench.run("simple", &format!("\\set v {expression}\nSELECT 1;\n"));
        let ours = compile(QueryMode::Simple, &format!("\\set v {expression}\nSELECT 1;\n"));
        if success || ours.is_ok() {
            differences.push(format!("{expression}: accepted by pgbench {success}, by us {}", ours.is_ok()));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// The statements that pgbench's debug output says it sent.
fn sent_by_pgbench(stderr: &str) -> Vec<String> {
    let mut sent: Vec<String> = Vec::new();
    let mut in_statement = false;
    for line in stderr.split('\n') {
        if let Some(text) = line.strip_prefix("pgbench: client 0 sending ") {
            sent.push(text.to_owned());
            in_statement = true;
        } else if line.starts_with("pgbench: ") || line.starts_with("debug(") {
            in_statement = false;
        } else if in_statement {
            let statement = sent.last_mut().expect("a statement has begun");
            statement.push('\n');
            statement.push_str(line);
        }
    }
    sent.into_iter().map(|statement| statement.trim_end().to_owned()).collect()
}

/// The statements that we send, with the server's answers to captures.
fn sent_by_us(mode: QueryMode, text: &str, server: &Throwaway) -> Vec<String> {
    let mix = compile(mode, text).unwrap_or_else(|error| panic!("{error}"));
    let script = &mix.scripts()[0];
    let mut state = mix.state(&PREDEFINED).expect("short defines");
    let mut random = Random::for_transaction(1, 0, 0);
    let mut cursor = Cursor::default();
    let mut sent = Vec::new();
    loop {
        let step = script.step(&mut cursor, &mut state, &mut random, &mut |_, _| {});
        match step.unwrap_or_else(|failure| panic!("{}", script.explain(&failure, mix.names()))) {
            Step::End => return sent,
            Step::Sql { statement, command } => {
                let mut simple = Vec::new();
                if let Err(error) = statement.append_simple(&state, &mut simple) {
                    panic!("{}", script.explain(&Failure::new(command, error), mix.names()));
                }
                let simple = String::from_utf8(simple).expect("the script is UTF-8");
                if let Some(capture) = statement.capture() {
                    answer(server, &simple, capture, &mix, &mut state);
                }
                sent.push(if mode == QueryMode::Simple { simple } else { statement.prepared().to_owned() });
            }
            _ => {}
        }
    }
}

/// Sets what a capture sets, one statement of a joined pair after the other.
fn answer(server: &Throwaway, sql: &str, capture: &run::script::Capture, mix: &Mix, state: &mut State) {
    for part in sql.split(';').filter(|part| !part.trim().is_empty()) {
        // One row of (name, value) pairs, whatever the columns are.
        let query =
            format!("SELECT key, value FROM ({part}) AS answer, LATERAL json_each_text(to_json(answer))");
        for row in server.execute(&query).expect("the statement is valid") {
            let (Some(name), value) = (row[0].as_deref().expect("a name").into(), row[1].as_deref()) else {
                return;
            };
            let mut targets = Vec::new();
            let name: &str = name;
            capture.targets(mix.names(), std::iter::once(name), &mut targets).expect("a variable name");
            if let (Some(slot), Some(value)) = (targets[0], value) {
                state.set_text(slot, value.as_bytes()).expect("a short text");
            }
        }
    }
}

#[test]
fn scripts_send_the_statements_that_pgbench_sends() {
    let Some(pgbench) = Pgbench::start() else { return };
    let mut differences = Vec::new();
    let everywhere =
        SCRIPTS.iter().flat_map(|script| [(*script, QueryMode::Simple), (*script, QueryMode::Extended)]);
    let simple = SIMPLE_SCRIPTS.iter().map(|script| (*script, QueryMode::Simple));
    for (script, mode) in everywhere.chain(simple) {
        let flag = if mode == QueryMode::Simple { "simple" } else { "extended" };
        let (success, stderr) = pgbench.run(flag, script);
        assert!(success, "pgbench refuses in {flag} mode:\n{script}\n{stderr}");
        let theirs = sent_by_pgbench(&stderr);
        let ours = sent_by_us(mode, script, &pgbench.server);
        if ours != theirs {
            differences.push(format!("{flag} mode:\n{script}\nours    {ours:?}\npgbench {theirs:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

#[test]
fn built_in_scripts_are_pgbenchs() {
    let Some(pgbench) = Pgbench::start() else { return };
    for builtin in run::script::BUILTINS {
        let output = Command::new(&pgbench.program)
            .arg(format!("--show-script={}", builtin.name))
            .output()
            .expect("pgbench starts");
        let theirs = String::from_utf8_lossy(&output.stderr).into_owned();
        let commands: Vec<&str> =
            theirs.lines().filter(|line| !line.is_empty() && !line.starts_with("--")).collect();
        assert_eq!(builtin.text.lines().collect::<Vec<_>>(), commands, "{}", builtin.name);
    }
}
