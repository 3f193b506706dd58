//! A parameter of a type that is not the column's: then the column is cast for the comparison, and its index does not serve it. The statement's text is the
//! same, and the plan for watch, which lets the server choose the type, uses the index.

use super::Planned;
use crate::case::Thing;
use record::statement;

/// A reason why the planner leaves an index aside, and what to do.
pub(super) struct Reason {
    pub(super) why: String,
    pub(super) text: &'static str,
    pub(super) commands: Vec<String>,
}

/// Types of columns, and what their drivers send that casts the column.
struct Sent {
    columns: &'static [&'static str],
    /// The parameter.
    is: &'static str,
    /// What the column is cast to.
    cast: &'static str,
    remedy: &'static str,
}

/// `OR_ELSE` of each remedy.
macro_rules! or_else {
    ($what:literal) => {
        concat!(
            $what,
            ". If it is of that type already, look for planner settings (enable_..., random_page_cost, plan_cache_mode) of the role, the database, a function \
             or the connection; a session that prepared its statement before the index existed needs DISCARD PLANS, or a new connection"
        )
    };
}

const SENT: [Sent; 4] = [
    Sent {
        columns: &["smallint", "integer", "bigint"],
        is: "numeric, as decimals of a driver",
        cast: "numeric",
        remedy: or_else!(
            "look at the type that the driver sends: bind an integer, or write CAST($1 AS bigint)"
        ),
    },
    Sent {
        columns: &["character"],
        is: "text or varchar, as strings of a driver",
        cast: "text",
        remedy: or_else!(
            "look at the type that the driver sends: bind it as character (bpchar), or write CAST($1 AS bpchar); or make the column text or varchar, \
             without the blanks; an index on the cast column serves statements that cannot be changed"
        ),
    },
    Sent {
        columns: &["citext"],
        is: "text or varchar, as strings of a driver",
        cast: "text",
        remedy: or_else!(
            "look at the type that the driver sends: as text the comparison also heeds capitals. Bind it as citext, or write CAST($1 AS citext)"
        ),
    },
    Sent {
        columns: &["numeric"],
        is: "double precision, as numbers of a driver",
        cast: "double precision",
        remedy: or_else!(
            "look at the type that the driver sends: bind a decimal, or write CAST($1 AS numeric)"
        ),
    },
];

/// That the sessions send a parameter of another type, if a column that the plan for watch compares with one has a type at which that happens.
pub(super) fn of_other_type(planned: &Planned<'_>, relation: &str) -> Option<Reason> {
    let of_table = planned.nodes.iter().filter(|node| node.lines.word("relation") == relation);
    of_table.into_iter().find_map(|node| {
        let compared = statement::conditions(node.lines.word("condition")).unwrap_or_default();
        let is_compared =
            |column: &str| compared.is_empty() || compared.iter().any(|condition| condition.column == column);
        let types = node.lines.word("column_types").split("; ");
        let mut known = types.filter_map(|one| column_of(one)).filter(|(column, _)| is_compared(column));
        known.next().map(|(column, sent)| reason(node, relation, column, sent))
    })
}

/// The column of an entry like `artnr character`, and what casts it.
fn column_of(entry: &str) -> Option<(&str, &'static Sent)> {
    SENT.iter().find_map(|sent| {
        let mut kinds = sent.columns.iter();
        let column = kinds.find_map(|kind| entry.strip_suffix(kind)?.strip_suffix(' '))?;
        Some((column, sent))
    })
}

fn reason(node: &Thing<'_>, relation: &str, column: &str, sent: &Sent) -> Reason {
    let Sent { is, cast, remedy, .. } = sent;
    let kind = node
        .lines
        .word("column_types")
        .split("; ")
        .find_map(|one| one.strip_prefix(column)?.strip_prefix(' '));
    let why = format!(
        "its sessions send a parameter of another type ({is}: {column} is {}, and is compared as {column}::{cast}, which is in no index), or have other \
         settings or older plans",
        kind.unwrap_or_default()
    );
    let commands = match *cast {
        "text" => vec![format!(
            "CREATE INDEX CONCURRENTLY ON {relation} (({column}::text)); -- only where the statements cannot be changed"
        )],
        _ => vec![],
    };
    Reason { why, text: remedy, commands }
}
