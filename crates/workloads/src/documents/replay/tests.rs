//! A tiny model of a table is driven with the same draws; the replay must accept what it holds, and nothing that an acknowledged write has replaced.

use std::collections::BTreeMap;

use ::run::client::Exception;
use ::run::workload::Item;

use super::*;
use crate::documents::content::Documents;
use crate::documents::run::{NAME, NAME_TX, items};
use crate::documents::size::Sizes;

const ROWS: u64 = 12;
const SEED: u64 = 5;

fn workload(sessions: u64, run: u16, mix: &[(&'static str, u64)]) -> DocumentsRun {
    DocumentsRun {
        schema: "public".into(),
        documents: Documents::new(1, Sizes::new(300, 900).expect("sizes")),
        draws: Draws { first: 1, count: ROWS, first_insert: first_insert(run), sessions },
        items: items(mix, 4),
    }
}

/// A table and the ledger's entries about it.
#[derive(Clone, Default)]
struct Model {
    /// Version by document.
    stored: BTreeMap<u64, u32>,
    writers: Vec<Writer<String>>,
}

impl Model {
    /// Runs `count` transactions in each of some sessions. `order` commits them; `outcome` decides about each: whether it takes place, and what the client
    /// knows about it.
    fn run(
        &mut self,
        (run, epoch): (u16, u32),
        (sessions, count): (u64, u32),
        outcome: impl Fn(u64, u32) -> (bool, Outcome),
    ) {
        let workload = workload(sessions, run, &[(NAME, 2), (NAME_TX, 1)]);
        let items: Vec<Item> = workload.items.iter().map(|(item, _)| item.clone()).collect();
        let mut spec =
            WriterSpec::new(InMix { items: &items, first: 0, seed: SEED + u64::from(run) }, &workload);
        let chooser = Chooser::new(items.iter().map(|item| item.weight)).expect("weights");
        let mut states: Vec<DocumentsSession> = (0..sessions).map(DocumentsSession::new).collect();
        let mut records =
            vec![SessionRecord { transactions: count.into(), ..SessionRecord::default() }; sessions as usize];
        // Sessions commit by turns.
        for sequence in 0..count {
            for session in 0..sessions {
                let state = &mut states[session as usize];
                let mut random = Random::for_transaction(SEED + u64::from(run), session, sequence.into());
                let kind = workload.items[chooser.choose(&mut random)].1;
                workload.draws.draw(kind, state, &mut random);
                let (happens, known) = outcome(session, sequence);
                if happens {
                    self.stored.extend(state.left());
                }
                if known != Outcome::Committed {
                    let is_known_failed = known == Outcome::Failed;
                    records[session as usize].exceptions.push(Exception { sequence, is_known_failed });
                }
                state.ended();
            }
        }
        spec.finish(&records);
        let spec = serde_json::to_string(&spec).expect("JSON");
        let transactions = Some(vec![count.into(); sessions as usize]);
        self.writers.push(Writer { run, epoch, spec, transactions });
    }

    fn new() -> Model {
        Model { stored: (1..=ROWS).map(|document| (document, 0)).collect(), writers: vec![] }
    }

    fn history(&self) -> History {
        History::replay(ROWS, self.writers.clone()).expect("a history")
    }

    fn assert_accepted(&self) {
        let history = self.history();
        for (&document, &version) in &self.stored {
            assert_eq!(history.judge(document, version), Judged::Acceptable, "document {document}");
            let existence = history.existence(document);
            assert!(document <= ROWS || existence != Existence::Impossible, "document {document}");
        }
    }
}

fn commits(_: u64, _: u32) -> (bool, Outcome) {
    (true, Outcome::Committed)
}

#[test]
fn what_the_model_holds_is_accepted_and_what_was_replaced_is_not() {
    let mut model = Model::new();
    model.run((1, 1), (3, 30), commits);
    let before = model.stored.clone();
    model.run((2, 2), (2, 20), commits);
    model.assert_accepted();
    let history = model.history();
    let mut replaced = 0;
    for (&document, &version) in model.stored.range(..=ROWS) {
        assert!(matches!(history.judge(document, 0), Judged::Replaced { .. }), "document {document}");
        if before[&document] != version {
            // Whichever session of the later run came last.
            let judged = history.judge(document, before[&document]);
            assert!(matches!(judged, Judged::Replaced { by, .. } if by.run() == 2), "{judged:?}");
            replaced += 1;
        }
        assert_eq!(history.judge(document, 1_234_567), Judged::Foreign);
    }
    assert!(replaced > 4, "{replaced}");
    for (run, inserted) in [(1, history.inserted()[0]), (2, history.inserted()[1])] {
        let range = first_insert(run)..first_insert(run + 1);
        let there = model.stored.range(range.clone()).count() as u64;
        assert_eq!((inserted.run, inserted.least, inserted.most), (run, there, there));
        assert!(there > 5);
        assert_eq!(history.existence(range.end - 1), Existence::Impossible);
    }
}

#[test]
fn the_update_of_a_session_replaces_its_own_earlier_one_and_not_that_of_another_session() {
    let mut model = Model::new();
    model.run((1, 1), (2, 60), commits);
    let history = model.history();
    let mut own = 0;
    for document in 1..=ROWS {
        let writes = history.of(document);
        let last = |session: u16| {
            writes.iter().filter(|write| write.by.session() == session).max_by_key(|write| write.by)
        };
        for write in writes {
            let last = last(write.by.session()).expect("itself");
            match write.by == last.by {
                true => assert_eq!(history.judge(document, write.version), Judged::Acceptable),
                false => {
                    let expected = Judged::Replaced { latest: last.version, by: last.by };
                    assert_eq!(history.judge(document, write.version), expected);
                    own += 1;
                }
            }
        }
    }
    assert!(own > 10, "{own}");
}

/// Whatever became of a transaction whose connection was lost, its version and the one before it are possible.
#[test]
fn where_the_outcome_is_unknown_either_version_is_accepted() {
    for happens in [false, true] {
        let mut model = Model::new();
        model.run((1, 1), (1, 200), |_, sequence| match sequence % 3 {
            0 => (happens, Outcome::Unknown),
            1 => (false, Outcome::Failed),
            _ => (true, Outcome::Committed),
        });
        model.assert_accepted();
        let history = model.history();
        let inserted = history.inserted()[0];
        assert!(inserted.least < inserted.most, "{inserted:?}");
        let there = model.stored.range(ROWS + 1..).count() as u64;
        assert!((inserted.least..=inserted.most).contains(&there));
    }
    // A transaction that is known to have failed wrote nothing.
    let mut model = Model::new();
    model.run((1, 1), (1, 50), |_, _| (true, Outcome::Failed));
    let (&document, &version) = model.stored.iter().find(|(_, version)| **version > 0).expect("a write");
    assert_eq!(model.history().judge(document, version), Judged::Foreign);
}

#[test]
fn a_killed_run_may_have_written_any_version_but_undoes_no_other_run() {
    let mut model = Model::new();
    model.run((1, 1), (2, 40), commits);
    let mut killed = model.clone();
    killed.run((2, u32::MAX), (2, 40), commits);
    killed.writers[1].transactions = None;
    // An earlier release has left its name only.
    let mut named = killed.clone();
    named.writers[1].spec = "{\"workload\": \"documents\"}".to_owned();
    for model in [killed, named] {
        model.assert_accepted();
        let history = model.history();
        let document = (1..=ROWS).find(|document| !history.of(*document).is_empty()).expect("a write");
        assert_eq!(history.judge(document, 77), Judged::Acceptable);
        assert!(matches!(history.judge(document, 0), Judged::Replaced { .. }));
        let inside = |run: u16| history.existence(first_insert(run) + (1 << INSERTED_BITS) - 1);
        assert_eq!(
            [1, 2, 3].map(inside),
            [Existence::Impossible, Existence::Possible, Existence::Impossible]
        );
        assert_eq!(history.inserted().len(), 1, "of the run whose end is known");
    }
}

#[test]
fn runs_of_another_form_are_refused() {
    let mut model = Model::new();
    model.run((1, 1), (1, 5), commits);
    let replay = |spec: String| {
        History::replay(ROWS, vec![Writer { spec, ..model.writers[0].clone() }])
            .map(drop)
            .expect_err("refused")
    };
    let later = model.writers[0].spec.replace("\"version\":1", "\"version\":2");
    assert_eq!(replay(later), ReplayError::Version { run: 1, version: 2, known: 1 });
    assert!(matches!(replay("{\"version\":1}".into()), ReplayError::Damaged { run: 1, .. }));
    let empty = model.writers[0].spec.replace("\"count\":12", "\"count\":0");
    assert!(matches!(replay(empty), ReplayError::Damaged { run: 1, .. }));
}

/// Frozen: what a run has written must be found by every later release, unless the form of its description changes.
#[test]
fn draws_stay_as_they_are() {
    let mut model = Model::new();
    model.run((1, 1), (2, 10), commits);
    let history = model.history();
    let sum = history.writes.iter().fold(0u64, |sum, write| {
        data::mix::mix(sum ^ write.document ^ u64::from(write.version) << 20 ^ write.by.as_u64())
    });
    assert_eq!((history.writes.len(), sum), (19, 7_047_925_301_447_197_482));
}
