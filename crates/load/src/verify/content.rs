//! The expected content of a row, in the form in which rows are compared.

use engines::hash;
use postgres::Client;
use wire::copy::values::Tuples;
use wire::copy::{CopyError, Fields};

use super::error::{VerifyError, sql};
use crate::dataset::{Dataset, Hashing, Table};
use crate::difference::printable;

/// The type of a column as the server numbers it (`src/include/catalog/pg_type.dat`), from its declaration.
pub(super) fn type_oid(declared: &str) -> u32 {
    const KINDS: [(&str, u32); 7] = [
        ("int", 23),
        ("bigint", 20),
        ("varchar(", 1043),
        ("char(", 1042),
        ("numeric(", 1700),
        ("timestamp", 1114),
        ("jsonb", 3802),
    ];
    let kind = KINDS.iter().find(|(name, _)| declared.starts_with(name));
    kind.expect("the tables have columns of these types only").1
}

/// Hashes tuples of COPY as the server hashes rows: `hash_record_extended(row(record_send(row(<columns>))), 0)`.
///
/// `record_send` (`src/backend/utils/adt/rowtypes.c`) is the number of columns, and for each its type, its length (-1 for null) and its
/// value in binary form. A record of one column has that column's hash; a bytea is hashed as a text is.
#[derive(Debug)]
pub(super) struct RowHash {
    oids: Vec<u32>,
    bytes: Vec<u8>,
}

impl RowHash {
    pub(super) fn new(table: &Table) -> RowHash {
        RowHash::of_columns(&table.columns)
    }

    fn of_columns(columns: &[(&str, &str)]) -> RowHash {
        let oids = columns.iter().map(|(_, declared)| type_oid(declared)).collect();
        RowHash { oids, bytes: Vec::new() }
    }

    /// The hash of one tuple. Behind the types, a field is the same in both forms: its length, -1 for null, and its bytes.
    pub(super) fn of(&mut self, tuple: &[u8]) -> Result<u64, CopyError> {
        let (count, mut rest) = tuple.split_first_chunk().ok_or(CopyError::Shape)?;
        if usize::from(u16::from_be_bytes(*count)) != self.oids.len() {
            return Err(CopyError::Shape);
        }
        self.bytes.clear();
        self.bytes.extend_from_slice(&(self.oids.len() as i32).to_be_bytes());
        for oid in &self.oids {
            let length = rest.first_chunk().map(|length| i32::from_be_bytes(*length));
            let end = 4 + usize::try_from(length.ok_or(CopyError::Shape)?).unwrap_or(0);
            let (field, behind) = rest.split_at_checked(end).ok_or(CopyError::Shape)?;
            self.bytes.extend_from_slice(&oid.to_be_bytes());
            self.bytes.extend_from_slice(field);
            rest = behind;
        }
        Ok(hash::record([Some(hash::bytes_extended(&self.bytes, 0))]))
    }
}

/// A row by its key, as a condition that can be pasted into a query: `aid = 17`.
pub(super) fn condition(table: &Table, fields: &[Option<&[u8]>]) -> String {
    let part = |name: &str| {
        let column = table.columns.iter().position(|(column, _)| *column == name);
        let value = column.and_then(|column| fields.get(column).copied().flatten());
        let number = value.and_then(|bytes| match bytes.len() {
            4 => Some(i64::from(i32::from_be_bytes(bytes.try_into().ok()?))),
            8 => Some(i64::from_be_bytes(bytes.try_into().ok()?)),
            _ => None,
        });
        match (number, value) {
            (Some(number), _) => format!("{name} = {number}"),
            (None, Some(text)) => format!("{name} = '{}'", printable(text)),
            (None, None) => format!("{name} is null"),
        }
    };
    let named_by = table.key.or(table.named_by).or(table.placement.column()).unwrap_or_default();
    named_by.split(", ").map(part).collect::<Vec<_>>().join(" and ")
}

/// The number of a row, if it has one, and what it is called, from all of its columns as text.
pub(super) fn identify(
    content: &dyn Dataset,
    number: usize,
    fields: &[Option<String>],
) -> (Option<u64>, String) {
    let table = &content.tables()[number];
    let bytes: Vec<Option<Vec<u8>>> = std::iter::zip(&table.columns, fields)
        .map(|((_, declared), text)| text.as_deref().map(|text| binary(declared, text)))
        .collect();
    let found: Vec<Option<&[u8]>> = bytes.iter().map(Option::as_deref).collect();
    let row = content.number(number, &found);
    let name = match (content.is_named_by_key(), row) {
        (true, Some(row)) => content.key(row),
        (true, None) => found.first().copied().flatten().map_or("null".to_owned(), printable),
        (false, _) => condition(table, &found),
    };
    (row, name)
}

/// A value in binary form, of the types that keys have.
fn binary(declared: &str, text: &str) -> Vec<u8> {
    match (type_oid(declared), text.parse::<i64>()) {
        (23, Ok(number)) => (number as i32).to_be_bytes().to_vec(),
        (20, Ok(number)) => number.to_be_bytes().to_vec(),
        _ => text.as_bytes().to_vec(),
    }
}

/// The condition for the row of this number, as it was loaded.
pub(super) fn row_condition(content: &dyn Dataset, table: usize, number: u64) -> String {
    let mut tuple = Tuples::new(1 << 10);
    content.expect(table, number, &[], &mut tuple);
    let table = &content.tables()[table];
    let fields = || -> Option<Vec<Option<&[u8]>>> {
        let mut fields = Fields::parse(tuple.payload()).ok()??;
        table.columns.iter().map(|_| fields.next_field().ok()?).collect()
    };
    fields().map_or_else(|| format!("row {number}"), |fields| condition(table, &fields))
}

/// The hash of a row in SQL; `by_digest`: in a way that every server has, see [`row_digest_sql`].
pub(super) fn row_hash_sql(hashing: Option<&Hashing>, table: &Table, by_digest: bool) -> String {
    match hashing {
        _ if by_digest => row_digest_sql(table),
        Some(hashing) => hashing.row.clone(),
        None => format!("hash_record_extended(row(record_send(row({}))), 0)", table.column_list()),
    }
}

/// A number in SQL for some bytes: servers of every release compute it alike.
fn digest_sql(bytes: &str) -> String {
    format!("('x' || left(md5({bytes}), 16))::bit(64)::bigint")
}

/// The number of a row where a server has no hash of rows. All types of the tables are PostgreSQL's own, whose binary form is the same on all releases and does
/// not depend on settings of a session.
fn row_digest_sql(table: &Table) -> String {
    digest_sql(&format!("record_send(row({}))", table.column_list()))
}

/// The same instead of a dataset's own hashes, for servers that are compared with each other and not with what we compute.
pub(super) fn digests(hashing: Hashing, table: &Table) -> Hashing {
    let key = digest_sql(&format!("record_send(row({}))", table.key.unwrap_or_default()));
    Hashing { key, row: row_digest_sql(table), ..hashing }
}

/// Whether the server hashes keys and rows as we do.
pub(super) fn probe(control: &mut Client, hashing: Option<&Hashing>) -> Result<(bool, bool), VerifyError> {
    const DOING: &str = "checking how the server hashes";
    let Some(hashing) = hashing else {
        let rows = hashes_as_we_do(control)?;
        return Ok((rows, rows));
    };
    let there = control.query_one(
        "select to_regprocedure('pg_catalog.hashtextextended(text,bigint)') is not null,
                to_regprocedure('pg_catalog.hash_record_extended(record,bigint)') is not null",
        &[],
    );
    let there = sql(DOING, there)?;
    let mut agrees = |is_there: bool, (query, ours): (&str, u64)| -> Result<bool, VerifyError> {
        Ok(is_there && sql(DOING, control.query_one(query, &[]))?.get::<_, i64>(0) as u64 == ours)
    };
    let key = agrees(there.get(0), hashing.key_probe)?;
    Ok((key, agrees(key && there.get(1), hashing.row_probe)?))
}

/// Whether the server's hash of a row in binary form is there and agrees with ours, tried with a value of each type that is not plain, and a null.
fn hashes_as_we_do(control: &mut Client) -> Result<bool, VerifyError> {
    const DOING: &str = "asking the server how it hashes";
    /// Since 1970.
    const NEW_YEAR_2026_US: i64 = 1_767_225_600_000_000;
    let there = control.query_one(
        "select to_regprocedure('pg_catalog.hash_record_extended(record,bigint)') is not null
            and to_regprocedure('pg_catalog.record_send(record)') is not null",
        &[],
    );
    if !sql(DOING, there)?.get::<_, bool>(0) {
        return Ok(false);
    }
    let theirs = control.query_one(
        "select hash_record_extended(row(record_send(row(7, 8::bigint, 'ab'::char(4), null::int, '{\"id\": 7}'::jsonb,
            -12.50::numeric(6,2), timestamp '2026-01-01'))), 0)",
        &[],
    );
    let mut tuple = Tuples::new(1);
    tuple.begin(7);
    tuple.int4(7);
    tuple.int8(8);
    tuple.text(b"ab  ");
    tuple.null();
    tuple.text(b"\x01{\"id\": 7}");
    tuple.numeric(-1250, 2);
    tuple.timestamp(NEW_YEAR_2026_US);
    let columns = ["int", "bigint", "char(4)", "int", "jsonb", "numeric(6,2)", "timestamp"];
    let columns = columns.map(|kind| ("", kind));
    let ours = RowHash::of_columns(&columns).of(tuple.payload());
    Ok(ours.is_ok_and(|ours| sql(DOING, theirs).is_ok_and(|row| row.get::<_, i64>(0) as u64 == ours)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_named_by_their_key() {
        let table = Table {
            name: "t",
            rows: 1,
            columns: vec![("a", "int"), ("b", "bigint")],
            key: Some("b, a"),
            named_by: None,
            index: None,
            placement: crate::dataset::Placement::Whole,
            mutable: &[],
            fillfactor: None,
        };
        let (a, b) = (5i32.to_be_bytes(), (-7i64).to_be_bytes());
        assert_eq!(condition(&table, &[Some(&a), Some(&b)]), "b = -7 and a = 5");
        assert_eq!(condition(&table, &[None, Some(&b)]), "b = -7 and a is null");
        let table = Table { key: None, named_by: Some("a"), ..table };
        assert_eq!(condition(&table, &[Some(&a), Some(&b)]), "a = 5");
    }
}
