//! What expressions mean: precedence, types, NULL, errors. (The same table against the real pgbench is in `tests/pgbench.rs`.)

use super::*;

fn is(expression: &str, expected: &str) {
    assert_eq!(evaluate(expression).as_deref(), Ok(expected), "{expression}");
}

fn fails(expression: &str, expected: &str) {
    assert_eq!(evaluate(expression).as_ref().err().map(String::as_str), Some(expected), "{expression}");
}

#[test]
fn operators_bind_as_in_pgbench() {
    is("1 + 2 * 3", "int 7");
    is("(1 + 2) * 3", "int 9");
    is("2 - 3 - 4", "int -5");
    is("100 / 10 / 2", "int 5");
    is("-2 * -3", "int 6");
    is("- - 5", "int 5");
    is("+-+5", "int -5");
    is("1 - -1", "int 2");
    is("~0", "int -1");
    is("~1 + 2", "int -4");
    is("3 * ~1 + 2", "int -12");
    is("~1 & 3", "int 2");
    is("1 | 2 # 3 & 1", "int 0");
    is("1 << 2 + 1", "int 8");
    is("1 << 2 << 3", "int 32");
    is("1 + 1 = 2 AND 3 > 2", "boolean true");
    is("NOT 1 = 2", "boolean true");
    is("NOT TRUE OR TRUE", "boolean true");
    is("NOT (TRUE OR TRUE)", "boolean false");
    is("TRUE OR FALSE AND FALSE", "boolean true");
    is("1 = 2 IS FALSE", "boolean true");
    is("NULL IS NULL IS TRUE", "boolean true");
    is("1 + NULL IS NULL", "boolean true");
    is("NOT NULL IS NULL", "boolean false");
    fails("1 < 2 = TRUE IS NULL", "comparisons cannot be chained");
    fails("1 < 2 < 3", "comparisons cannot be chained");
    fails("1 = NOT 2 = 3 = 4", "comparisons cannot be chained");
    is("(1 < 2 IS NULL) IS FALSE AND (1 = 1) IS TRUE", "boolean true");
    is("1 < 2 IS NULL IS FALSE", "boolean true");
}

#[test]
fn numbers_are_read_and_written() {
    is("0", "int 0");
    is("007", "int 7");
    is("9223372036854775807", "int 9223372036854775807");
    is("-9223372036854775808", "int -9223372036854775808");
    is("1.", "double 1");
    is(".5", "double 0.5");
    is("1e3", "double 1000");
    is("1E-3", "double 0.001");
    is("12.5e+1", "double 125");
    is("1e300 * 1e10", "double Infinity");
    is("-1e300 * 1e10", "double -Infinity");
    is("-0.0", "double 0");
    is("0 * -1.0", "double -0");
    is("sqrt(-1.0)", "double NaN");
    fails("9223372036854775808", "integer 9223372036854775808 is out of range");
    fails("99999999999999999999", "integer 99999999999999999999 is out of range");
    fails("1e400", "double 1e400 is out of range");
    fails("1e-400", "double 1e-400 is out of range");
    fails("-(9223372036854775808)", "integer 9223372036854775808 is out of range");
    fails("1e", "expected a comma, an operator or ), found \"e\"");
}

#[test]
fn doubles_are_written_as_percent_15_g() {
    for (value, expected) in [
        (0.1, "0.1"),
        (1.0 / 3.0, "0.333333333333333"),
        (2.0 / 3.0, "0.666666666666667"),
        (100_000.0, "100000"),
        (123_456_789_012_345.0, "123456789012345"),
        (999_999_999_999_999.4, "999999999999999"),
        (999_999_999_999_999.5, "1e+15"),
        (1e15, "1e+15"),
        (1.5e15, "1.5e+15"),
        (1e100, "1e+100"),
        (1.234_567_890_123_456_7e-5, "1.23456789012346e-05"),
        (0.000_1, "0.0001"),
        (0.000_123_45, "0.00012345"),
        (0.000_012, "1.2e-05"),
        (5e-324, "4.94065645841247e-324"),
        (f64::MAX, "1.79769313486232e+308"),
        (-2.5, "-2.5"),
        (1000.5, "1000.5"),
        (0.0, "0"),
        (-0.0, "-0"),
        (f64::NAN, "NaN"),
        (f64::NEG_INFINITY, "-Infinity"),
    ] {
        assert_eq!(text_of(Value::Double(value)), expected);
    }
    for value in [0, 1, -1, 9, 10, 99, -100, i64::MAX, i64::MIN] {
        assert_eq!(text_of(Value::Int(value)), value.to_string());
    }
}

#[test]
fn text_becomes_a_value_as_in_pgbench() {
    for (text, expected) in [
        ("null", Some(Value::Null)),
        ("NULL", Some(Value::Null)),
        ("t", Some(Value::Bool(true))),
        ("True", Some(Value::Bool(true))),
        ("ye", Some(Value::Bool(true))),
        ("on", Some(Value::Bool(true))),
        ("o", None),
        ("of", Some(Value::Bool(false))),
        ("n", Some(Value::Bool(false))),
        ("FALSE", Some(Value::Bool(false))),
        ("nope", None),
        ("truely", None),
        ("0", Some(Value::Int(0))),
        ("+12", Some(Value::Int(12))),
        ("  -7", Some(Value::Int(-7))),
        ("7 ", None),
        ("9223372036854775807", Some(Value::Int(i64::MAX))),
        ("9223372036854775808", None),
        ("1.5", Some(Value::Double(1.5))),
        ("-1e3", Some(Value::Double(-1000.0))),
        ("1e999", None),
        ("1e-310", None),
        ("infinity", Some(Value::Double(f64::INFINITY))),
        ("", None),
        ("-", None),
        ("hello", None),
        ("\u{661}", None),
    ] {
        assert_eq!(Value::from_text(text.as_bytes()), expected, "{text:?}");
    }
    assert_eq!(Value::from_text(b"\xff\xfe"), None);
    assert!(matches!(Value::from_text(b"nan"), Some(Value::Double(value)) if value.is_nan()));
}

#[test]
fn types_mix_as_in_pgbench() {
    is("1 + 1.5", "double 2.5");
    is("7 / 2", "int 3");
    is("-7 / 2", "int -3");
    is("-7 % 3", "int -1");
    is("7.0 / 2", "double 3.5");
    is("1 / 0.0", "double Infinity");
    is("5.5 % 2", "int 0");
    is("6.5 % 4", "int 2");
    is("2 = 2.0", "boolean true");
    is("2.5 & 3", "int 2");
    is("int(2.5)", "int 2");
    is("int(3.5)", "int 4");
    is("int(-2.5)", "int -2");
    is("double(3)", "double 3");
    is("abs(-3)", "int 3");
    is("abs(-3.5)", "double 3.5");
    is("abs(-9223372036854775808)", "int -9223372036854775808");
    is("pow(2, 10)", "double 1024");
    is("POWER(2, 0.5)", "double 1.4142135623731");
    is("pi()", "double 3.14159265358979");
    is("ln(exp(1))", "double 1");
    is("sqrt(2)", "double 1.4142135623731");
    is("least(3, 1, 2)", "int 1");
    is("greatest(3, 1.5)", "double 3");
    is("least(1)", "int 1");
    is("mod(17, 5)", "int 2");
    is("1 <> 2", "boolean true");
    is("1 != 1", "boolean false");
    is("3 >= 3.0", "boolean true");
    fails("true + 1", "cannot coerce boolean to int");
    fails("true = false", "cannot coerce boolean to int");
    fails("true < 1.5", "cannot coerce boolean to double");
    fails("1 AND TRUE", "cannot coerce int to boolean");
    fails("TRUE AND 1", "cannot coerce int to boolean");
    fails("FALSE OR 2.5", "cannot coerce double to boolean");
    fails("NOT 0", "cannot coerce int to boolean");
    fails("abs(true)", "cannot coerce boolean to double");
    fails("int(1e30)", "double to int overflow for 1000000000000000019884624838656.000000");
    fails("int(9223372036854775807.0)", "double to int overflow for 9223372036854775808.000000");
    is("int(-9223372036854775808.0)", "int -9223372036854775808");
    fails("int(0.0 / 0.0)", "double to int overflow for NaN");
}

#[test]
fn null_passes_through() {
    is("NULL + 1", "null NULL");
    is("abs(NULL)", "null NULL");
    is("NULL = NULL", "null NULL");
    is("least(1, NULL)", "null NULL");
    is("NOT NULL", "null NULL");
    is("NULL AND FALSE", "null NULL");
    is("FALSE AND NULL", "boolean false");
    is("TRUE AND NULL", "null NULL");
    is("NULL OR TRUE", "null NULL");
    is("TRUE OR NULL", "boolean true");
    is("FALSE OR NULL", "null NULL");
    is("NULL ISNULL", "boolean true");
    is("1 NOTNULL", "boolean true");
    is("1 IS NOT NULL", "boolean true");
    is("1 IS TRUE", "boolean false");
    is("TRUE IS NOT FALSE", "boolean true");
    is("NULL IS FALSE", "boolean false");
    is("random(1, NULL)", "null NULL");
}

#[test]
fn only_what_is_needed_is_evaluated() {
    is("FALSE AND 1 / 0 = 1", "boolean false");
    is("TRUE OR 1 / 0 = 1", "boolean true");
    is("CASE WHEN TRUE THEN 1 WHEN 1 / 0 = 1 THEN 2 ELSE 1 / 0 END", "int 1");
    is("CASE WHEN 0 THEN 1 WHEN 2.5 THEN 3 END", "int 3");
    is("CASE WHEN NULL THEN 1 END", "null NULL");
    is("CASE WHEN FALSE THEN 1 ELSE 2.5 END + 1", "double 3.5");
    is("case when 1 = 1 then case when FALSE then 1 else 7 end end", "int 7");
    is("1 + CASE WHEN TRUE THEN 2 END * 3", "int 7");
    assert_eq!(
        run("\\set x CASE WHEN FALSE THEN debug(1) ELSE debug(2) END AND debug(TRUE)\n")
            .unwrap_err()
            .to_string(),
        "test.sql:1:8: cannot coerce int to boolean\n  \
         1 | \\set x CASE WHEN FALSE THEN debug(1) ELSE debug(2) END AND debug(TRUE)\n    \
         |        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^"
    );
}

#[test]
fn arithmetic_fails_as_in_pgbench() {
    fails("9223372036854775807 + 1", "bigint add out of range");
    fails("-9223372036854775808 - 1", "bigint sub out of range");
    fails("-(-9223372036854775808)", "bigint sub out of range");
    fails("4611686018427387904 * 2", "bigint mul out of range");
    fails("-9223372036854775808 / -1", "bigint div out of range");
    is("-9223372036854775808 % -1", "int 0");
    fails("1 / 0", "division by zero");
    fails("1 % 0", "division by zero");
    fails("mod(1, 0)", "division by zero");
    is("1 << 63", "int -9223372036854775808");
    is("1 << 64", "int 1");
    is("-1 >> 1", "int -1");
    is("-8 >> 66", "int -2");
}

#[test]
fn random_functions_check_their_arguments() {
    fails("random(2, 1)", "empty range given to random");
    fails("random(-9223372036854775808, 9223372036854775807)", "random range is too large");
    fails("random(0, 9223372036854775807)", "random range is too large");
    fails("random_gaussian(1, 10, 1.9)", "gaussian parameter must be at least 2.000000 (not 1.900000)");
    fails("random_gaussian(1, 10, 0.0 / 0.0)", "gaussian parameter must be at least 2.000000 (not NaN)");
    fails("random_zipfian(1, 10, 1.0)", "zipfian parameter must be in range [1.001, 1000] (not 1.000000)");
    fails(
        "random_zipfian(1, 10, 1001)",
        "zipfian parameter must be in range [1.001, 1000] (not 1001.000000)",
    );
    fails("random_exponential(1, 10, 0)", "exponential parameter must be greater than zero (not 0.000000)");
    fails("permute(1, 0)", "permute size parameter must be greater than zero");
    is("random(5, 5)", "int 5");
    is("random_zipfian(5, 5, 1.5)", "int 5");
    is("random_gaussian(5, 5, 2.5)", "int 5");
    is("random_exponential(5, 5, 2.5)", "int 5");
    is("hash(10, 5432)", "int -5817877081768721676");
    is("hash(10)", "int -5817877081768721676");
    is("hash_murmur2(10)", "int -5817877081768721676");
    is("hash_fnv1a(10, 5432)", "int -7793829335365542153");
    is("hash_fnv1a(10.2)", "int -7793829335365542153");
    is("permute(0, 3, 5432)", "int 0");
    is("permute(2, 3)", "int 2");
}

#[test]
fn draws_come_from_the_transactions_stream() {
    let trace = run("\\set a debug(random(1, 1000000))\n\\set b debug(random_zipfian(1, 100, 2))\n").unwrap();
    let mut random = Random::for_transaction(1, 2, 3);
    let first = random.between(1, 1_000_000);
    let sampler = crate::random::zipf::Zipf::new(100, 2.0);
    let second = crate::random::pgbench::zipfian(&mut random, 1, &sampler);
    assert_eq!(trace.debug, [format!("0: int {first}"), format!("1: int {second}")]);
}

#[test]
fn functions_count_their_arguments() {
    fails("random(1)", "random() takes two arguments, not 1");
    fails("pi(1)", "pi() takes no argument, not 1");
    fails("least()", "least() takes one to 16 arguments, not 0");
    fails(
        "greatest(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17)",
        "greatest() takes one to 16 arguments, not 17",
    );
    is("greatest(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)", "int 16");
    fails("hash()", "hash() takes a value and optionally a seed, not 0");
    fails("permute(1)", "permute() takes a value, a size and optionally a seed, not 1");
    fails("abs(, 1)", "expected an expression, found \",\"");
    fails("abs(1,)", "expected an expression, found \")\"");
    fails("foo(1)", "unknown function \"foo\"");
    fails("abs 1", "expected ( after a function's name, found \"1\"");
}

#[test]
fn nesting_has_a_limit_and_chains_do_not() {
    let nested = |levels: usize| format!("{}1{}", "(".repeat(levels), ")".repeat(levels));
    is(&nested(DEPTH_MAX - 2), "int 1");
    fails(&nested(DEPTH_MAX), "expression nested deeper than 200 levels");
    fails(&format!("{}1", "-".repeat(100_000)), "expression nested deeper than 200 levels");
    fails(&"(".repeat(100_000), "expression nested deeper than 200 levels");
    is(&format!("0{}", " + 1".repeat(100_000)), "int 100000");
    is(&format!("FALSE{}", " OR FALSE".repeat(50_000)), "boolean false");
    let many = "WHEN FALSE THEN 1 ".repeat(20_000);
    is(&format!("CASE {many} ELSE 2 END"), "int 2");
}

#[test]
fn a_backslash_carries_an_expression_to_the_next_line() {
    assert_eq!(run("\\set x 1 + \\\n  2\nSELECT :x;").unwrap().steps, ["SELECT 3;"]);
    assert_eq!(
        run("\\set x \\\r\n CASE WHEN TRUE \\\n THEN 5 \\\n END\r\nSELECT :x;").unwrap().steps,
        ["SELECT 5;"]
    );
}
