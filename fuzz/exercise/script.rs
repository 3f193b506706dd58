//! Compiles any bytes as a script in every query mode and walks through what compiles.

use run::random::Random;
use run::script::{Cursor, EvalError, Failure, Mix, Options, Predefined, QueryMode, Source, Step};

const PREDEFINED: Predefined = Predefined { client_id: 1, scale: 10, random_seed: 42, default_seed: 5432 };

pub(crate) fn exercise(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for mode in [QueryMode::Simple, QueryMode::Extended, QueryMode::Prepared] {
        let sources = [
            Source { name: "fuzz.sql".to_owned(), text: text.to_owned(), weight: 1 },
            Source { name: "second.sql".to_owned(), text: "SELECT 1 AS x \\gset\n".to_owned(), weight: 2 },
        ];
        let defines = vec![("d".to_owned(), "0.5".to_owned()), ("word".to_owned(), "text".to_owned())];
        match Mix::compile(&sources, &Options { mode, defines }) {
            Ok(mix) => walk(&mix),
            Err(error) => {
                assert!(error.to_string().starts_with("fuzz.sql"), "{error}");
                let _ = error.hint();
            }
        }
    }
}

fn walk(mix: &Mix) {
    let script = &mix.scripts()[0];
    let mut state = mix.state(&PREDEFINED).expect("the defines are short");
    let mut out = Vec::new();
    // Twice, because the second transaction finds the variables of the first.
    for sequence in 0..2 {
        let mut random = Random::for_transaction(7, 0, sequence);
        let mut cursor = Cursor::default();
        let mut over = false;
        // Jumps only lead forward: a transaction has at most as many steps as commands, and its end.
        for _ in 0..=script.command_count() {
            match script.step(&mut cursor, &mut state, &mut random, &mut |_, _| {}) {
                Ok(Step::End) => {
                    over = true;
                    break;
                }
                Ok(Step::Sql { statement, command }) => {
                    out.clear();
                    if let Err(error) = statement.append_simple(&state, &mut out) {
                        explain(mix, Failure::new(command, error));
                    }
                    for (index, slot) in statement.parameters().iter().enumerate() {
                        assert!(statement.prepared().contains(&format!("${}", index + 1)));
                        let _ = state.append_parameter(*slot, &mut out);
                    }
                    if let Some(capture) = statement.capture() {
                        let mut targets = Vec::new();
                        if capture.targets(mix.names(), ["x", "y"].into_iter(), &mut targets).is_ok() {
                            for slot in targets.into_iter().flatten() {
                                state.set_text(slot, b"17").expect("a short text");
                            }
                        } else {
                            explain(
                                mix,
                                Failure::new(command, EvalError::ColumnName(capture.kind.name(), 1)),
                            );
                        }
                    }
                }
                Ok(_) => {}
                Err(failure) => {
                    explain(mix, failure);
                    over = true;
                    break;
                }
            }
        }
        assert!(over, "a transaction went on after as many steps as it has commands");
    }
}

fn explain(mix: &Mix, failure: Failure) {
    let script = &mix.scripts()[0];
    let error = script.explain(&failure, mix.names());
    assert_eq!(error.to_string().lines().count(), 3, "{error}");
    assert!(script.line(failure.command) <= error.line());
    let _ = error.hint();
}
