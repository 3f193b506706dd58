//! Tables that runs have written, judged by the history of these runs.

use super::*;

/// What a run did, as its replay would show: rows 0..10 had field1 written by its session 0, twice each; row `ROWS` was inserted.
#[derive(Debug)]
pub(super) struct Run;

impl Run {
    const FIRST: Version = Version::LOADED;

    pub(super) fn last(row: u64) -> Version {
        Version::new(1, 0, 2 * row as u32 + 2)
    }

    pub(super) fn earlier(row: u64) -> Version {
        Version::new(1, 0, 2 * row as u32 + 1)
    }

    pub(super) fn inserted() -> Version {
        Version::new(1, 1, 1)
    }
}

impl WriterHistory for Run {
    fn wrote_row(&self, row: u64) -> bool {
        row < 10 || row == ROWS
    }

    fn expects_row(&self, row: u64) -> Expect {
        match row {
            ROWS => Expect::Present,
            row if row == ROWS + 1 => Expect::Either,
            _ => Expect::Absent,
        }
    }

    fn rows_end(&self) -> u64 {
        ROWS + 1
    }

    fn judge_version(&self, row: u64, column: usize, version: Version) -> VersionJudgement {
        let right = match (row, column) {
            (0..10, 1) => Run::last(row),
            (row, _) if row >= ROWS => Run::inserted(),
            _ => Run::FIRST,
        };
        match version {
            version if version == right => VersionJudgement::Acceptable,
            version if version == Run::earlier(row) || version == Run::FIRST => {
                VersionJudgement::Stale { latest: right }
            }
            version if version.run() == 1 && version.session() == 9 => {
                VersionJudgement::NotJudgeable { why: "the run was killed" }
            }
            _ => VersionJudgement::UnknownWriter,
        }
    }
}

pub(super) fn set_field(table: &Table, row: u64, column: usize, version: Version) -> String {
    let mut value = [0; FIELD_BYTES];
    table.field(row, column, version, &mut value);
    let value = std::str::from_utf8(&value).unwrap();
    format!("update usertable set field{column} = '{value}' where ycsb_key = '{}'", key(table, row))
}

fn insert_row(table: &Table, row: u64, version: Version) -> String {
    let mut sql = format!("insert into usertable values ('{}'", key(table, row));
    for column in 0..FIELD_COUNT {
        let mut value = [0; FIELD_BYTES];
        table.field(row, column, version, &mut value);
        write!(sql, ", '{}'", std::str::from_utf8(&value).unwrap()).unwrap();
    }
    sql + ")"
}

#[test]
fn updates_and_inserts_of_runs_are_judged_by_their_history() {
    on_each(|cluster| {
        let table = load(cluster, "written", ROWS, PARTITIONS, spec_of(SEED));
        let spec = database(cluster, "written");
        let mut client = control::connect(&spec).unwrap();
        let dataset = ledger::find_dataset(&mut *client, YCSB).unwrap().unwrap();
        let run_no = ledger::create_writer(&mut client, &dataset, "{}").unwrap();
        for row in 0..10 {
            client.batch_execute(&set_field(&table, row, 1, Run::last(row))).unwrap();
        }
        client.batch_execute(&insert_row(&table, ROWS, Run::inserted())).unwrap();
        client.batch_execute(&insert_row(&table, ROWS + 1, Run::inserted())).unwrap();

        // Without an end in the ledger, what the run has lost cannot be seen.
        let report = check(&spec, false, Some(Run)).unwrap();
        assert_eq!(report.verdict(), Verdict::CannotTell, "{}", report.text());
        assert_eq!(
            report.unfinished.as_deref(),
            Some(
                "run 1 has no end in the ledger (it was killed or is active), so its lost updates and inserts cannot be detected"
            )
        );
        ledger::finish_writer(&mut *client, &dataset, run_no, &[99; 10]).unwrap();

        // Not a deep verification, but runs have written.
        let report = check(&spec, false, Some(Run)).unwrap();
        assert_eq!(report.verdict(), Verdict::Exact, "{}", report.text());
        assert_eq!((report.method, report.notes.len()), (Method::Deep, 1));
        assert_eq!(report.updates_accepted, 10 + 2 * FIELD_COUNT as u64);
        assert_eq!((report.rows_expected, report.rows_found, report.rows_uncertain), (ROWS + 1, ROWS + 2, 1));
        // The ledger alone accepts them as well, as it cannot know better.
        assert!(check(&spec, false, None).unwrap().exact());

        for (sql, kind, named) in [
            (set_field(&table, 3, 1, Run::earlier(3)), "stale value", 3),
            (set_field(&table, 3, 1, Version::LOADED), "stale value", 3),
            (set_field(&table, 3, 1, Version::new(1, 0, 77)), "value of an unknown writer", 3),
            (
                format!("update usertable set field1 = '' where ycsb_key = '{}'", key(&table, 3)),
                "damaged value",
                3,
            ),
            (format!("delete from usertable where ycsb_key = '{}'", key(&table, ROWS)), "missing", ROWS),
            (insert_row(&table, ROWS + 5, Run::inserted()), "extra row", ROWS + 5),
        ] {
            client.batch_execute(&sql).unwrap();
            let report = check(&spec, true, Some(Run)).unwrap();
            assert_eq!(kinds_and_keys(&report), [(kind, key(&table, named))], "{sql}: {}", report.text());
            // Undone, so that each stands alone.
            let undo = match named {
                3 => set_field(&table, 3, 1, Run::last(3)),
                ROWS => insert_row(&table, ROWS, Run::inserted()),
                row => format!("delete from usertable where ycsb_key = '{}'", key(&table, row)),
            };
            client.batch_execute(&undo).unwrap();
        }

        client.batch_execute(&set_field(&table, 4, 1, Version::new(1, 9, 1))).unwrap();
        let report = check(&spec, true, Some(Run)).unwrap();
        assert_eq!((report.verdict(), report.values_unjudged), (Verdict::CannotTell, 1), "{}", report.text());
        assert!(report.text().contains("the run was killed"));
    });
}
