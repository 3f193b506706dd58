//! `-f`, `-b` and `-D`.

use super::argument::*;
use super::*;

#[test]
fn weights_stand_behind_the_last_at_sign() {
    assert_eq!(split_weight("-f", "a.sql").unwrap(), ("a.sql", 1));
    assert_eq!(split_weight("-f", "a.sql@12").unwrap(), ("a.sql", 12));
    assert_eq!(split_weight("-f", "a@b.sql@0").unwrap(), ("a@b.sql", 0));
    assert_eq!(split_weight("-f", "a@2147483647").unwrap(), ("a", WEIGHT_MAX));
    for (argument, message) in [
        ("a@", "-f a@: \"\" is not a weight"),
        ("a@x", "-f a@x: \"x\" is not a weight"),
        ("a@1x", "-f a@1x: \"1x\" is not a weight"),
        ("a@1.5", "-f a@1.5: \"1.5\" is not a weight"),
        ("a@b.sql", "-f a@b.sql: \"b.sql\" is not a weight"),
        ("a@-1", "-f a@-1: a weight must be between 0 and 2147483647"),
        ("a@2147483648", "-f a@2147483648: a weight must be between 0 and 2147483647"),
        ("a@99999999999999999999", "-f a@99999999999999999999: a weight must be between 0 and 2147483647"),
        ("@3", "-f: a name is missing"),
        ("", "-f: a name is missing"),
    ] {
        assert_eq!(split_weight("-f", argument).unwrap_err().to_string(), message);
    }
}

#[test]
fn built_ins_are_found_by_the_beginning_of_their_names() {
    for (prefix, name) in [
        ("tpcb-like", "tpcb-like"),
        ("t", "tpcb-like"),
        ("simple", "simple-update"),
        ("si", "simple-update"),
        ("se", "select-only"),
    ] {
        assert_eq!(find_builtin(prefix).unwrap().name, name);
    }
    let ambiguous = find_builtin("s").unwrap_err();
    assert_eq!(ambiguous.to_string(), "-b s: 2 built-in scripts begin with that");
    assert_eq!(ambiguous.hint().unwrap(), "write more of the name: simple-update, select-only");
    assert!(
        matches!(find_builtin(""), Err(ArgumentError::AmbiguousBuiltin { candidates, .. }) if candidates.len() == 3)
    );
    let unknown = find_builtin("select-olny").unwrap_err();
    assert_eq!(unknown.hint().unwrap(), "is select-only meant? -b list shows all");
    let unknown = find_builtin("Tpcb").unwrap_err();
    assert_eq!(unknown.to_string(), "-b Tpcb: there is no built-in script of that name");
    assert_eq!(unknown.hint().unwrap(), "there are: tpcb-like, simple-update, select-only");
    let source = builtin_source("sel@7").unwrap();
    assert_eq!((source.name.as_str(), source.weight), ("select-only", 7));
}

#[test]
fn files_are_read_as_text() {
    let folder = std::env::temp_dir().join(format!("pgfathom-script-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("good@1.sql");
    std::fs::write(&path, "\u{feff}SELECT 1;\r\n").unwrap();
    let argument = format!("{}@5", path.display());
    let (source, sha256) = file_source(&argument).unwrap();
    // Of the file, as sha256sum prints it: the byte order mark is part of that.
    assert_eq!(sha256, "1ffc3c6acdbb610bcc942c606c787270e7c9d149c473e9d9aaa4fe597d5e402d");
    assert_eq!((source.text.as_str(), source.weight), ("SELECT 1;\r\n", 5));
    assert!(source.name.ends_with("good@1.sql"));

    std::fs::write(folder.join("latin1.sql"), b"SELECT 1;\nSELECT '\xe9';\n").unwrap();
    let error = file_source(&folder.join("latin1.sql").display().to_string()).unwrap_err();
    assert!(error.to_string().ends_with("latin1.sql: line 2 is not UTF-8 text"), "{error}");
    assert_eq!(error.hint().unwrap(), "convert the file first, for example: iconv -f latin1 -t utf8 FILE");

    std::fs::write(folder.join("huge.sql"), vec![b' '; SCRIPT_BYTES_MAX + 1]).unwrap();
    let error = file_source(&folder.join("huge.sql").display().to_string()).unwrap_err();
    assert!(error.to_string().contains("the limit is 16777216"), "{error}");

    let error = file_source(&folder.join("absent.sql").display().to_string()).unwrap_err();
    assert!(error.to_string().starts_with("cannot read script "), "{error}");
    assert!(std::error::Error::source(&error).is_some());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn defines_have_a_name_and_a_value() {
    assert_eq!(define("a=1").unwrap(), ("a".to_owned(), "1".to_owned()));
    assert_eq!(define("a_1=b=c d").unwrap(), ("a_1".to_owned(), "b=c d".to_owned()));
    for (argument, message) in [
        ("a", "-D a: not of the form NAME=VALUE"),
        ("=1", "-D =1: not of the form NAME=VALUE"),
        ("a=", "-D a=: not of the form NAME=VALUE"),
        ("1a=2", "-D 1a=2: \"1a\" is not a variable name"),
        ("a-b=2", "-D a-b=2: \"a-b\" is not a variable name"),
    ] {
        let error = define(argument).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert!(error.hint().is_some());
    }
    let long = define(&format!("a={}", "x".repeat(TEXT_BYTES_MAX + 1))).unwrap_err();
    assert!(long.to_string().starts_with("-D a=...: the value is 1048577 bytes long"));
}

#[test]
fn the_scripts_of_a_run_are_checked_together() {
    assert_eq!(complete(Vec::new()).unwrap()[0].name, "tpcb-like");
    let zero = Source { weight: 0, ..source("SELECT 1;") };
    assert!(matches!(complete(vec![zero.clone()]), Err(ArgumentError::ZeroWeight)));
    assert_eq!(complete(vec![zero, source("SELECT 1;")]).unwrap().len(), 2);
    let many = vec![source("SELECT 1;"); SCRIPTS_MAX + 1];
    assert!(matches!(complete(many), Err(ArgumentError::TooManyScripts { count: 129 })));
}
