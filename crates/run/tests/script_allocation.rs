//! A script's transaction allocates nothing on the client: variables are slots, expressions are flat programs, text buffers keep
//! their capacity. (The test is alone in its binary, because it counts the allocations of the whole process.)

use std::alloc::System;

use run::random::Random;
use run::script::{Cursor, Mix, Options, Predefined, QueryMode, Source, State, Step};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const TRANSACTIONS: u64 = 10_000;

/// Everything that can happen in a script without a server.
const SCRIPT: &str = "\
\\set aid random(1, 100000 * :scale)
\\set skewed random_zipfian(1, 1000000, 1.07) + random_gaussian(1, 10, 2.5) + random_exponential(1, 10, 3)
\\set hashed permute(:aid, 1000000) + hash(:aid) % 7 + hash_fnv1a(:aid) % 3
\\set share CASE WHEN :aid < 500000 AND NOT :aid = 7 OR :aid IS NULL THEN sqrt(:aid) / 3 ELSE greatest(1, :aid, 0.5) END
\\if :aid % 2 = 0
SELECT :aid, :skewed, 'quoted :hashed', :share;
\\elif TRUE
UPDATE t SET a = :share WHERE b = :captured AND c = ':captured' AND d = :missing;
\\else
\\sleep :aid us
\\endif
SELECT 1 AS captured, NULL AS missing \\gset
\\set next :captured + 1
";

fn transaction(mix: &Mix, state: &mut State, out: &mut Vec<u8>, sequence: u64) {
    let mut random = Random::for_transaction(1, 1, sequence);
    let mut cursor = Cursor::default();
    let captured = mix.names().find("captured").expect("the script mentions it");
    let missing = mix.names().find("missing").expect("the script mentions it");
    loop {
        match mix.scripts()[0].step(&mut cursor, state, &mut random, &mut |_, _| {}).expect("the script runs")
        {
            Step::End => return,
            Step::Sql { statement, .. } => {
                out.clear();
                statement.append_simple(state, out).expect("every variable is set");
                for slot in statement.parameters() {
                    state.append_parameter(*slot, out).expect("every variable is set");
                }
                if statement.capture().is_some() {
                    state.set_text(captured, b"123456789").expect("a short text");
                    state.set(missing, run::script::Value::Null);
                }
            }
            _ => {}
        }
    }
}

#[test]
fn a_transaction_allocates_nothing() {
    let source = Source { name: "all.sql".to_owned(), text: SCRIPT.to_owned(), weight: 1 };
    let mix = Mix::compile(&[source], &Options { mode: QueryMode::Simple, defines: Vec::new() })
        .expect("a good script");
    let predefined = Predefined { client_id: 0, scale: 10, random_seed: 1, default_seed: 1 };
    let mut state = mix.state(&predefined).expect("no defines");
    state.set_text(mix.names().find("captured").expect("mentioned"), b"000000001").expect("a short text");
    state.set(mix.names().find("missing").expect("mentioned"), run::script::Value::Null);
    let mut out = Vec::with_capacity(1 << 12);
    // Text buffers and the stack get their sizes here.
    for sequence in 0..10 {
        transaction(&mix, &mut state, &mut out, sequence);
    }
    let region = Region::new(ALLOCATOR);
    for sequence in 0..TRANSACTIONS {
        transaction(&mix, &mut state, &mut out, sequence);
    }
    let change = region.change();
    // The test harness's own thread may allocate meanwhile; a script that did would do so in every transaction.
    let allocations = change.allocations + change.reallocations;
    assert!(
        allocations < TRANSACTIONS as usize / 100,
        "{allocations} allocations in {TRANSACTIONS} transactions"
    );
}
