//! `docs/scripts.md` tells the truth: its examples compile, the scripts it calls refused are refused with the messages it shows, and
//! its limits and functions are the program's.

use run::random::Random;
use run::script::{
    ARGUMENTS_MAX, BUILTINS, COMMANDS_MAX, Cursor, DEPTH_MAX, Mix, Options, PARAMETERS_MAX, Predefined,
    QueryMode, SCRIPT_BYTES_MAX, ScriptError, Source, Step, TEXT_BYTES_MAX, argument::SCRIPTS_MAX,
};

const DOCUMENT: &str = include_str!("../../../docs/scripts.md");

struct Block {
    kind: String,
    text: String,
}

/// The fenced blocks, with the indentation of their fence taken off.
fn blocks() -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open: Option<usize> = None;
    for line in DOCUMENT.lines() {
        let indent = line.len() - line.trim_start().len();
        match (open, line.trim_start().strip_prefix("```")) {
            (None, Some(kind)) => {
                open = Some(indent);
                blocks.push(Block { kind: kind.to_owned(), text: String::new() });
            }
            (Some(_), Some("")) => open = None,
            (Some(indent), _) => {
                let block = blocks.last_mut().expect("a block is open");
                block.text.push_str(line.get(indent..).unwrap_or(""));
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert_eq!(open, None, "a block is never closed");
    blocks
}

fn compile(kind: &str, text: &str) -> Result<Mix, ScriptError> {
    let mode = if kind.contains("prepared") { QueryMode::Prepared } else { QueryMode::Simple };
    let source = Source { name: "script.sql".to_owned(), text: text.to_owned(), weight: 1 };
    Mix::compile(&[source], &Options { mode, defines: Vec::new() })
}

#[test]
fn examples_compile_and_run() {
    let mut count = 0;
    for block in
        blocks().iter().filter(|block| block.kind.starts_with("pgbench") && !block.kind.contains("refused"))
    {
        let mix = compile(&block.kind, &block.text).unwrap_or_else(|error| panic!("{}\n{error}", block.text));
        let script = &mix.scripts()[0];
        let predefined = Predefined { client_id: 0, scale: 10, random_seed: 1, default_seed: 1 };
        let mut state = mix.state(&predefined).expect("no defines");
        let (mut random, mut cursor, mut statements) =
            (Random::for_transaction(1, 1, 1), Cursor::default(), 0);
        loop {
            let step = script.step(&mut cursor, &mut state, &mut random, &mut |_, _| {});
            match step.unwrap_or_else(|failure| panic!("{}", script.explain(&failure, mix.names()))) {
                Step::End => break,
                Step::Sql { statement, .. } => {
                    statements += 1;
                    if statement.capture().is_some() {
                        for (slot, name) in mix.names().iter() {
                            if ["branch_balance", "branch_bid", "one", "two"].contains(&name) {
                                state.set_text(slot, b"3000").expect("a short text");
                            }
                        }
                    }
                    statement.append_simple(&state, &mut Vec::new()).expect("every variable is set");
                }
                _ => {}
            }
        }
        assert!(statements > 0, "{}", block.text);
        count += 1;
    }
    assert!(count >= 6, "only {count} examples");
}

#[test]
fn refused_examples_are_refused_as_shown() {
    let blocks = blocks();
    let mut count = 0;
    for pair in blocks.windows(2).filter(|pair| pair[0].kind.contains("refused")) {
        assert_eq!(pair[1].kind, "text", "the message belongs right behind a refused example");
        let error = compile(&pair[0].kind, &pair[0].text).expect_err(&pair[0].text);
        let hint = error.hint().map_or(String::new(), |hint| format!("\nhint: {hint}\n"));
        assert_eq!(format!("error: {error}\n{hint}"), pair[1].text);
        count += 1;
    }
    assert!(count >= 4, "only {count} refused examples");
}

#[test]
fn functions_built_ins_and_limits_are_the_programs() {
    let error = compile("", "\\set x nosuchfunction(1)\n").expect_err("no such function");
    let hint = error.hint().expect("the hint lists the functions");
    let names = hint.strip_prefix("known are ").and_then(|rest| rest.split(';').next()).expect("a list");
    assert!(names.split(' ').count() > 15);
    for name in names.split(' ') {
        assert!(DOCUMENT.contains(&format!("`{name}(")), "{name} is missing");
    }
    for builtin in BUILTINS {
        assert!(DOCUMENT.contains(builtin.name), "{} is missing", builtin.name);
    }
    let limits = format!(
        "Limits: {SCRIPTS_MAX} scripts, {} MiB and {},000 commands a script, {},{} variables a statement, {DEPTH_MAX} levels of nesting, \
         {} MiB of text a variable.",
        SCRIPT_BYTES_MAX >> 20,
        COMMANDS_MAX / 1000,
        PARAMETERS_MAX / 1000,
        PARAMETERS_MAX % 1000,
        TEXT_BYTES_MAX >> 20,
    );
    assert!(DOCUMENT.contains(&limits), "{limits}");
    assert!(DOCUMENT.contains(&format!("one to {ARGUMENTS_MAX} arguments")));
}
