//! The extent of a check: which warehouses, and what has changed in them since the load.

use prove::conditions::{Node, ProveError};

use super::warehouses::text;

/// First and last warehouse, and how many there are.
pub(super) fn warehouses(
    nodes: &mut [Node],
    only: Option<(i64, i64)>,
) -> Result<(i64, i64, u64), ProveError> {
    const DOING: &str = "counting the warehouses";
    let range = only.map_or(String::new(), |(from, to)| format!(" where w_id between {from} and {to}"));
    let mut all: Option<(i64, i64, u64)> = None;
    for node in nodes.iter_mut() {
        let warehouse = node.names().get("warehouse");
        let sql = format!("select min(w_id), max(w_id), count(*) from {warehouse}{range}");
        let rows = node.rows(&sql).map_err(ProveError::sql(DOING))?;
        let number = |index: usize| -> Option<i64> { text(rows.first()?, index).parse().ok() };
        let here = match (number(0), number(1), number(2)) {
            (_, _, Some(0)) => continue,
            (Some(from), Some(to), Some(count)) if from <= to => (from, to, count as u64),
            _ => return Err(ProveError::Answer { doing: DOING }),
        };
        let (from, to, count) = all.unwrap_or((here.0, here.1, 0));
        all = Some((from.min(here.0), to.max(here.1), count + here.2));
    }
    match all {
        Some(all) => Ok(all),
        // Warehouses that are gone are a broken condition while anything of theirs is left.
        None if only.is_none() => named_elsewhere(nodes)?.ok_or_else(|| none(only)),
        None => Err(none(only)),
    }
}

/// There is no warehouse to judge.
fn none(only: Option<(i64, i64)>) -> ProveError {
    let of = only.map_or(String::new(), |(from, to)| format!(" from {from} to {to}"));
    let hint = match only {
        None => format!("load it: {}", super::FILL),
        Some(_) => "omit --warehouses to check all of them".to_owned(),
    };
    ProveError::Empty { what: format!("the table warehouse holds no warehouse{of}"), hint }
}

/// The range of the warehouses that other tables name, where WAREHOUSE itself is empty.
fn named_elsewhere(nodes: &mut [Node]) -> Result<Option<(i64, i64, u64)>, ProveError> {
    const DOING: &str = "looking for rows without a warehouse";
    let mut all: Option<(i64, i64)> = None;
    for node in nodes {
        let tables = [
            ("district", "d_w_id"),
            ("customer", "c_w_id"),
            ("stock", "s_w_id"),
            ("orders", "o_w_id"),
            ("order_line", "ol_w_id"),
        ];
        let each = tables.map(|(table, column)| {
            format!("select min({column}) a, max({column}) b from {}", node.names().get(table))
        });
        let sql = format!("select min(a), max(b) from ({}) named", each.join(" union all "));
        let rows = node.rows(&sql).map_err(ProveError::sql(DOING))?;
        let number = |index: usize| -> Option<i64> { text(rows.first()?, index).parse().ok() };
        if let (Some(from), Some(to)) = (number(0), number(1)) {
            let (first, last) = all.unwrap_or((from, to));
            all = Some((first.min(from), last.max(to)));
        }
    }
    Ok(all.map(|(from, to)| (from, to, 0)))
}

/// By the counters of the districts; each begins with 3001 (clause 4.3.3.1).
pub(super) fn orders_since_load(nodes: &mut [Node], from: i64, to: i64) -> Result<u64, ProveError> {
    const DOING: &str = "counting the orders since the load";
    let mut sum = 0;
    for node in nodes {
        let sql = format!(
            "select coalesce(sum(d_next_o_id::bigint - 3001), 0) from {} where d_w_id between {from} and {to}",
            node.names().get("district")
        );
        let rows = node.rows(&sql).map_err(ProveError::sql(DOING))?;
        let number = rows.first().and_then(|row| text(row, 0).parse::<i64>().ok());
        sum += number.ok_or(ProveError::Answer { doing: DOING })?;
    }
    Ok(sum.max(0) as u64)
}

/// C11 counts what the load has made: any New-Order keeps it, any Delivery ends it.
pub(super) fn why_not_as_loaded(
    nodes: &mut [Node],
    orders_since_load: u64,
    from: i64,
    to: i64,
) -> Result<Option<String>, ProveError> {
    let doing = "looking for deliveries";
    let mut delivered = false;
    for node in nodes {
        let customer = node.names().get("customer");
        // Not `select from`: Citus sends the subquery as a function of its own, and a record without columns has no type.
        let sql = format!(
            "select exists (select 1 from {customer} where c_w_id between {from} and {to} and c_delivery_cnt <> 0)"
        );
        let rows = node.rows(&sql).map_err(ProveError::sql(doing))?;
        delivered |= rows.first().is_some_and(|row| text(row, 0) == "t");
    }
    Ok(delivered.then(|| {
        format!("holds only until the first Delivery, and orders were delivered since the load ({orders_since_load} entered)")
    }))
}
