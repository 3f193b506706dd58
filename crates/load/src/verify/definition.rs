//! Checks that tables are defined as the load made them: columns, types, collations, keys, indexes, kind.
//!
//! Sums of hashes compare values, and equal values of another type can have equal hashes. So the definition is compared first. A difference that
//! makes values incomparable is refused; any other one is reported as a [`Problem`] beside the verdict on the rows.

use postgres::Client;

use super::error::{VerifyError, sql};
use super::problem::Problem;
use crate::difference::TableName;

const DOING: &str = "reading the tables' definitions";
/// Columns named in a note.
const NAMED_MAX: usize = 5;

/// A column as the load makes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Column {
    name: String,
    /// As it was declared, without its collation and `not null`.
    declared: String,
    /// As `format_type` prints it.
    printed: String,
    collation: u32,
    is_not_null: bool,
}

/// `pg_collation.oid` of "default" and of "C", the same on every server.
const COLLATION_DEFAULT: u32 = 100;
const COLLATION_C: u32 = 950;

impl Column {
    /// A column by its name and the words behind it in `create table`.
    pub(super) fn new(name: &str, declared: &str) -> Column {
        let is_not_null = declared.ends_with(" not null");
        let declared = declared.trim_end_matches(" not null");
        let kind = declared.trim_end_matches(" collate \"C\"");
        let (base, length) = kind.find('(').map_or((kind, ""), |at| kind.split_at(at));
        let (printed, is_text) = match base {
            "varchar" => ("character varying", true),
            "char" => ("character", true),
            "int" => ("integer", false),
            "timestamp" => ("timestamp without time zone", false),
            other => (other, false),
        };
        let collation = match is_text {
            false => 0,
            true if kind == declared => COLLATION_DEFAULT,
            true => COLLATION_C,
        };
        Column {
            name: name.to_owned(),
            declared: kind.to_owned(),
            printed: format!("{printed}{length}"),
            collation,
            is_not_null,
        }
    }
}

/// What tables of one dataset have in common.
#[derive(Clone, Debug)]
pub(super) struct Definition {
    pub(super) columns: Vec<Column>,
    /// Columns of the primary key.
    pub(super) key: Option<String>,
    /// Columns of a further index.
    pub(super) index: Option<String>,
    pub(super) is_unlogged: bool,
}

impl Definition {
    /// The names of its columns, with commas between.
    pub(super) fn column_list(&self) -> String {
        self.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// A table to look at.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) name: TableName,
    /// Schema and name, quoted.
    pub(super) relation: String,
    /// It holds rows of the dataset by right, and so has its key. A parent has its leaves instead of rows.
    pub(super) is_home: bool,
    pub(super) is_parent: bool,
}

/// What is different.
#[derive(Debug, Default)]
pub(super) struct Compared {
    pub(super) problems: Vec<Problem>,
    pub(super) notes: Vec<String>,
}

/// Compares tables with what the load makes. Tables that are gone are passed over.
pub(super) fn compare(
    client: &mut Client,
    subjects: &[Subject],
    definition: &Definition,
) -> Result<Compared, VerifyError> {
    let relations: Vec<&str> = subjects.iter().map(|subject| subject.relation.as_str()).collect();
    let mut compared = Compared::default();
    compare_relations(client, &relations, subjects, definition, &mut compared)?;
    compare_columns(client, &relations, subjects, definition, &mut compared)?;
    compare_indexes(client, &relations, subjects, definition, &mut compared)?;
    Ok(compared)
}

fn place(row: &postgres::Row) -> usize {
    (row.get::<_, i64>(0) - 1) as usize
}

fn changed(subject: &Subject, problem: String) -> VerifyError {
    VerifyError::ChangedTable { table: subject.name.to_string(), problem }
}

impl Compared {
    fn problem(&mut self, subject: &Subject, problem: String) {
        let (table, node) = (subject.name.table.clone(), subject.name.node.clone());
        self.problems.push(Problem::Definition { node, table, problem });
    }
}

fn compare_relations(
    client: &mut Client,
    relations: &[&str],
    subjects: &[Subject],
    definition: &Definition,
    compared: &mut Compared,
) -> Result<(), VerifyError> {
    let rows = client.query(
        "select w.n, c.relpersistence::text, row_security_active(c.oid),
                (select count(*) from pg_inherits i where i.inhparent = c.oid)
         from unnest($1::text[]) with ordinality as w (relation, n) join pg_class c on c.oid = to_regclass(w.relation)
         order by 1",
        &[&relations],
    );
    for row in sql(DOING, rows)? {
        let subject = &subjects[place(&row)];
        if row.get(2) {
            return Err(VerifyError::RowSecurity { table: subject.name.to_string() });
        }
        let is_unlogged = row.get::<_, &str>(1) == "u";
        if !subject.is_parent && subject.is_home && is_unlogged != definition.is_unlogged {
            let (now, was) = if is_unlogged { ("unlogged", "logged") } else { ("logged", "unlogged") };
            compared.problem(subject, format!("is {now}, but was created {was}"));
        }
        if !subject.is_parent && row.get::<_, i64>(3) > 0 {
            let problem = "has child tables: queries also return their rows";
            compared.problem(subject, problem.to_owned());
        }
    }
    Ok(())
}

fn compare_columns(
    client: &mut Client,
    relations: &[&str],
    subjects: &[Subject],
    definition: &Definition,
    compared: &mut Compared,
) -> Result<(), VerifyError> {
    // Servers before PostgreSQL 12 have no attgenerated.
    let rows = client.query(
        "select w.n, a.attname::text, format_type(a.atttypid, a.atttypmod), a.attcollation, a.attnotnull,
                a.attidentity <> '', coalesce(to_jsonb(a) ->> 'attgenerated', '') <> '',
                (select quote_ident(c.collname) from pg_collation c where c.oid = a.attcollation)
         from unnest($1::text[]) with ordinality as w (relation, n) join pg_attribute a on a.attrelid = to_regclass(w.relation)
         where a.attnum > 0 and not a.attisdropped order by w.n, a.attnum",
        &[&relations],
    );
    let rows = sql(DOING, rows)?;
    for of_table in rows.chunk_by(|one, other| place(one) == place(other)) {
        let subject = &subjects[place(&of_table[0])];
        let mut last = None;
        let mut is_in_order = true;
        for column in &definition.columns {
            let name = &column.name;
            let at = of_table.iter().position(|row| row.get::<_, &str>(1) == name);
            let at = at.ok_or_else(|| changed(subject, format!("has no column {name}")))?;
            is_in_order &= last < Some(at);
            last = Some(at);
            let row = &of_table[at];
            let found: &str = row.get(2);
            if found != column.printed {
                let was = &column.declared;
                return Err(changed(subject, format!("its column {name} is no longer {was}, but {found}")));
            }
            if row.get::<_, u32>(3) != column.collation {
                let collation = row.get::<_, Option<&str>>(7).unwrap_or("none").to_owned();
                return Err(changed(
                    subject,
                    format!("its column {name} has another collation, {collation}"),
                ));
            }
            if row.get(6) {
                return Err(changed(subject, format!("its column {name} is generated by an expression")));
            }
            if row.get(5) {
                compared.problem(subject, format!("its column {name} is an identity column"));
            }
            if column.is_not_null && !row.get::<_, bool>(4) {
                compared.problem(subject, format!("its column {name} is nullable"));
            }
        }
        if !is_in_order {
            compared.problem(subject, "has its columns in another order".to_owned());
        }
        let is_ours = |name: &str| definition.columns.iter().any(|column| column.name == name);
        let extra: Vec<&str> =
            of_table.iter().map(|row| row.get::<_, &str>(1)).filter(|name| !is_ours(name)).collect();
        // Its leaves have the same.
        if !extra.is_empty() && !subject.is_parent {
            let named = extra[..extra.len().min(NAMED_MAX)].join(", ");
            let more = if extra.len() > NAMED_MAX { ", ..." } else { "" };
            compared.notes.push(format!(
                "{} has columns that the load did not make ({named}{more}): their values were not verified",
                subject.name
            ));
        }
    }
    Ok(())
}

fn compare_indexes(
    client: &mut Client,
    relations: &[&str],
    subjects: &[Subject],
    definition: &Definition,
    compared: &mut Compared,
) -> Result<(), VerifyError> {
    let rows = client.query(
        "select w.n, x.relname::text, i.indisprimary, i.indisvalid and i.indisready and i.indislive, i.indimmediate,
                i.indpred is null and i.indexprs is null and i.indnkeyatts = i.indnatts
                and m.amname = 'btree' and not exists (select from unnest(i.indclass::oid[]) u (oid) join pg_opclass o on o.oid = u.oid where not o.opcdefault)
                and not exists (select from unnest(i.indkey::int2[], i.indcollation::oid[]) u (attnum, coll)
                                join pg_attribute a on a.attrelid = i.indrelid and a.attnum = u.attnum where a.attcollation <> u.coll),
                (select coalesce(string_agg(a.attname, ', ' order by k.n), '') from unnest(i.indkey::int2[]) with ordinality as k (attnum, n)
                 join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum)
         from unnest($1::text[]) with ordinality as w (relation, n) join pg_index i on i.indrelid = to_regclass(w.relation)
         join pg_class x on x.oid = i.indexrelid join pg_am m on m.oid = x.relam order by w.n, x.relname",
        &[&relations],
    );
    let rows = sql(DOING, rows)?;
    for (number, subject) in subjects.iter().enumerate() {
        let of_table: Vec<_> = rows.iter().filter(|row| place(row) == number).collect();
        for row in of_table.iter().filter(|row| !row.get::<_, bool>(3)) {
            let index: &str = row.get(1);
            compared.problem(subject, format!("its index {index} is invalid: no query uses it"));
        }
        if !subject.is_home || compared.is_gone(client, subject)? {
            continue;
        }
        let plain = |columns: &str, is_primary: bool| {
            of_table.iter().any(|row| {
                row.get::<_, bool>(2) == is_primary
                    && row.get::<_, bool>(4)
                    && row.get::<_, bool>(5)
                    && row.get::<_, &str>(6) == columns
            })
        };
        if let Some(key) = definition.key.as_ref().filter(|key| !plain(key, true)) {
            compared.problem(subject, format!("has no primary key ({key})"));
        }
        if let Some(index) = definition.index.as_ref().filter(|index| !plain(index, false)) {
            compared.problem(subject, format!("has no index on ({index})"));
        }
    }
    Ok(())
}

impl Compared {
    /// A table that is gone has no key either, and that is reported as a missing table.
    fn is_gone(&self, client: &mut Client, subject: &Subject) -> Result<bool, VerifyError> {
        let row = client.query_one("select to_regclass($1) is null", &[&subject.relation]);
        Ok(sql(DOING, row)?.get(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_printed_as_the_server_does() {
        let column = |declared| {
            let Column { printed, collation, is_not_null, declared, .. } = Column::new("c", declared);
            (declared, printed, collation, is_not_null)
        };
        let found = |declared: &str, printed: &str, collation, is_not_null| {
            (declared.to_owned(), printed.to_owned(), collation, is_not_null)
        };
        assert_eq!(column("varchar(100)"), found("varchar(100)", "character varying(100)", 100, false));
        assert_eq!(
            column("varchar(16) collate \"C\" not null"),
            found("varchar(16)", "character varying(16)", 950, true)
        );
        assert_eq!(column("char(9) not null"), found("char(9)", "character(9)", 100, true));
        assert_eq!(column("numeric(4,4) not null"), found("numeric(4,4)", "numeric(4,4)", 0, true));
        assert_eq!(column("timestamp"), found("timestamp", "timestamp without time zone", 0, false));
        assert_eq!(column("int not null"), found("int", "integer", 0, true));
    }
}
