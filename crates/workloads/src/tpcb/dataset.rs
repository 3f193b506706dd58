//! The four tables as a dataset.

use std::ops::Range;

use data::ycsb::{Compressible, KeyOrder, Spec};
use engines::hash;
use load::dataset::{
    Audit, Auditor, Dataset, Encoder, Expected, Parameter, Placed, Placement, Table, TupleEncoder,
};
use load::verify::VerifyError;
use wire::copy::values::Tuples;

use super::schema::{
    ACCOUNTS, ACCOUNTS_PER_BRANCH, BRANCHES, HISTORY, SCALE_MAX, TELLERS, TELLERS_PER_BRANCH,
};
use crate::dataset::{Flags, Registration, Request, Size};

/// What the command knows of it.
pub const DATASET: Registration = Registration {
    name: "tpcb",
    about: "the four tables of pgbench, as pgbench -i makes them; about 16 MB for each unit of -s",
    size: Size::Scale,
    takes: &["--fillfactor"],
    flags: &[],
    example: "pgfathom load tpcb -s 100 DBNAME",
    examples: &["tpcb -s 100 DBNAME"],
    scale_unit: Some("branches, about 16 MB each"),
    build,
    recorded,
    replay: None,
};

fn build(request: &Request) -> Result<Box<dyn Dataset>, load::LoadError> {
    let refuse =
        |problem: String, hint: String| load::LoadError::Option { flag: "-s/--scale", problem, hint };
    let scale = request.scale.unwrap_or_default();
    if scale == 0 || scale > SCALE_MAX {
        let hint = format!("ask for 1 to {SCALE_MAX}: account numbers are 32-bit integers");
        return Err(refuse(format!("a scale of {scale} is not possible"), hint));
    }
    Ok(Box::new(Tpcb::new(scale, request.seed, request.fillfactor)))
}

fn recorded(spec: &Spec, flags: &Flags) -> Option<Box<dyn Dataset>> {
    let scale = flags.get("scale")?.parse().ok().filter(|scale| (1..=SCALE_MAX).contains(scale))?;
    let fillfactor = flags.get("fill factor")?.parse().ok();
    Some(Box::new(Tpcb::new(scale, spec.seed, fillfactor)))
}

/// What `pgbench` calls no fill factor.
const FILLFACTOR_DEFAULT: u32 = 100;

/// The filler of an account: blank-padded, as the server stores an empty one.
const ACCOUNT_FILLER: [u8; 84] = [b' '; 84];

/// The tables, by their place in [`Dataset::tables`].
const OF_ACCOUNTS: u32 = 0;
const OF_TELLERS: u32 = 1;

/// The dataset of one scale.
#[derive(Clone, Debug)]
pub struct Tpcb {
    scale: u64,
    spec: Spec,
    fillfactor: u32,
    tables: [Table; 4],
}

impl Tpcb {
    /// So many branches.
    pub fn new(scale: u64, seed: u64, fillfactor: Option<u32>) -> Tpcb {
        let percent = fillfactor.unwrap_or(FILLFACTOR_DEFAULT);
        let table = |name, rows, key: &'static str, balance: &'static [&'static str]| Table {
            name,
            rows,
            columns: Vec::new(),
            key: Some(key),
            named_by: None,
            index: None,
            placement: Placement::Hash { column: key, kind: "int" },
            mutable: balance,
            fillfactor: Some(percent),
        };
        let accounts = Table {
            columns: vec![
                ("aid", "int not null"),
                ("bid", "int"),
                ("abalance", "int"),
                ("filler", "char(84)"),
            ],
            ..table(ACCOUNTS, ACCOUNTS_PER_BRANCH * scale, "aid", &["abalance"])
        };
        let tellers = Table {
            columns: vec![
                ("tid", "int not null"),
                ("bid", "int"),
                ("tbalance", "int"),
                ("filler", "char(84)"),
            ],
            ..table(TELLERS, TELLERS_PER_BRANCH * scale, "tid", &["tbalance"])
        };
        let branches = Table {
            columns: vec![("bid", "int not null"), ("bbalance", "int"), ("filler", "char(88)")],
            ..table(BRANCHES, scale, "bid", &["bbalance"])
        };
        let history = Table {
            columns: vec![
                ("tid", "int"),
                ("bid", "int"),
                ("aid", "int"),
                ("delta", "int"),
                ("mtime", "timestamp"),
                ("filler", "char(22)"),
            ],
            key: None,
            fillfactor: None,
            // Beside the account that it is about.
            ..table(HISTORY, 0, "aid", &[])
        };
        // No value is drawn; the seed is that of runs.
        let spec = Spec { seed, key_order: KeyOrder::Sequential, compressible: Compressible::NONE };
        Tpcb { scale, spec, fillfactor: percent, tables: [accounts, tellers, branches, history] }
    }

    /// The table of a row, and the row's number in it.
    fn place_of(&self, row: u64) -> (u32, u64) {
        let (accounts, tellers) = (self.tables[0].rows, self.tables[1].rows);
        match row {
            _ if row < accounts => (OF_ACCOUNTS, row),
            _ if row < accounts + tellers => (OF_TELLERS, row - accounts),
            _ => (OF_TELLERS + 1, row - accounts - tellers),
        }
    }
}

/// Appends a row as it is loaded.
#[inline]
fn push(table: u32, number: u64, out: &mut Tuples) {
    let id = number as i32 + 1;
    match table {
        OF_ACCOUNTS => {
            out.begin(4);
            out.int4(id);
            out.int4((number / ACCOUNTS_PER_BRANCH) as i32 + 1);
            out.int4(0);
            out.text(&ACCOUNT_FILLER);
        }
        OF_TELLERS => {
            out.begin(4);
            out.int4(id);
            out.int4((number / TELLERS_PER_BRANCH) as i32 + 1);
            out.int4(0);
            out.null();
        }
        _ => {
            out.begin(3);
            out.int4(id);
            out.int4(0);
            out.null();
        }
    }
}

/// Bytes of the values of a row.
const fn value_bytes(table: u32) -> u64 {
    match table {
        OF_ACCOUNTS => 12 + ACCOUNT_FILLER.len() as u64,
        OF_TELLERS => 12,
        _ => 8,
    }
}

impl Dataset for Tpcb {
    fn name(&self) -> &'static str {
        DATASET.name
    }

    fn tables(&self) -> &[Table] {
        &self.tables
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![
            Parameter { what: "scale", flag: "--scale", value: self.scale.to_string() },
            Parameter { what: "fill factor", flag: "--fillfactor", value: self.fillfactor.to_string() },
        ]
    }

    fn row_bytes(&self) -> u64 {
        value_bytes(OF_ACCOUNTS)
    }

    fn place(&self, rows: Range<u64>, placed: &mut Placed<'_>) {
        for row in rows {
            let (table, number) = self.place_of(row);
            let hash = hash::int4_extended(number as i32 + 1, hash::PARTITION_SEED);
            placed.push(table, hash, value_bytes(table));
        }
    }

    fn key(&self, row: u64) -> String {
        (self.place_of(row).1 + 1).to_string()
    }

    fn encoder(&self, message_bytes: usize) -> Box<dyn Encoder + Send + '_> {
        Box::new(TupleEncoder::new(message_bytes, |row, out: &mut Tuples| {
            let (table, number) = self.place_of(row);
            push(table, number, out);
        }))
    }

    fn number(&self, table: usize, found: &[Option<&[u8]>]) -> Option<u64> {
        let id = i32::from_be_bytes((*found.first()?)?.try_into().ok()?);
        u64::try_from(id).ok()?.checked_sub(1).filter(|number| *number < self.tables[table].rows)
    }

    fn number_sql(&self, table: usize) -> String {
        format!("{}::bigint - 1", self.tables[table].columns[0].0)
    }

    fn expect(&self, table: usize, number: u64, _: &[Option<&[u8]>], out: &mut Tuples) -> Expected {
        push(table as u32, number, out);
        Expected::Loaded
    }

    fn audit(&self, auditor: &mut dyn Auditor) -> Result<Audit, VerifyError> {
        super::audit::audit(auditor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_those_of_pgbench() {
        let tpcb = Tpcb::new(3, 1, None);
        assert_eq!(tpcb.rows(), 3 * (100_000 + 10 + 1));
        assert_eq!(tpcb.place_of(299_999), (0, 299_999));
        assert_eq!(tpcb.place_of(300_000), (1, 0));
        assert_eq!(tpcb.place_of(300_030), (2, 0));
        assert_eq!(
            (tpcb.key(0), tpcb.key(300_029), tpcb.key(300_032)),
            ("1".into(), "30".into(), "3".into())
        );
        let mut out = Tuples::new(1);
        push(0, 100_000, &mut out);
        assert_eq!(out.value_bytes(), value_bytes(0));
        assert_eq!(
            out.payload()[..26],
            [0, 4, 0, 0, 0, 4, 0, 1, 0x86, 0xa1, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 0]
        );
    }

    #[test]
    fn a_row_is_found_again_by_its_key() {
        let tpcb = Tpcb::new(2, 1, Some(90));
        let id = |id: i32| id.to_be_bytes();
        assert_eq!(tpcb.number(0, &[Some(&id(200_000))]), Some(199_999));
        for wrong in [0, -1, 200_001] {
            assert_eq!(tpcb.number(0, &[Some(&id(wrong))]), None);
        }
        assert_eq!(tpcb.number(0, &[None]), None);
    }
}
