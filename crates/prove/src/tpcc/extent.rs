//! What there is to judge: which warehouses, and what has happened to them since the load.

use super::nodes::Node;
use super::{ProveError, sql_error, text, text_of};

/// First and last warehouse, and how many there are.
pub(super) fn warehouses(
    nodes: &mut [Node],
    only: Option<(i64, i64)>,
) -> Result<(i64, i64, u64), ProveError> {
    const DOING: &str = "counting the warehouses";
    let range = only.map_or(String::new(), |(from, to)| format!(" where w_id between {from} and {to}"));
    let mut all: Option<(i64, i64, u64)> = None;
    for Node { control, names, .. } in nodes.iter_mut() {
        let sql = format!("select min(w_id), max(w_id), count(*) from {}{range}", names.warehouse);
        let rows = control.simple_query(&sql).map_err(sql_error(DOING))?;
        let number =
            |index: usize| -> Option<i64> { text_of(rows.first()?.get(index)?.as_deref()).parse().ok() };
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
        None if only.is_none() => named_elsewhere(nodes)?.ok_or(ProveError::NoWarehouse(only)),
        None => Err(ProveError::NoWarehouse(only)),
    }
}

/// The range of the warehouses that other tables name, where WAREHOUSE itself is empty.
fn named_elsewhere(nodes: &mut [Node]) -> Result<Option<(i64, i64, u64)>, ProveError> {
    const DOING: &str = "looking for rows without a warehouse";
    let mut all: Option<(i64, i64)> = None;
    for Node { control, names, .. } in nodes {
        let tables = [
            (&names.district, "d_w_id"),
            (&names.customer, "c_w_id"),
            (&names.stock, "s_w_id"),
            (&names.orders, "o_w_id"),
            (&names.order_line, "ol_w_id"),
        ];
        let each =
            tables.map(|(table, column)| format!("select min({column}) a, max({column}) b from {table}"));
        let sql = format!("select min(a), max(b) from ({}) named", each.join(" union all "));
        let rows = control.simple_query(&sql).map_err(sql_error(DOING))?;
        let number =
            |index: usize| -> Option<i64> { text_of(rows.first()?.get(index)?.as_deref()).parse().ok() };
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
    for Node { control, names, .. } in nodes {
        let sql = format!(
            "select coalesce(sum(d_next_o_id::bigint - 3001), 0) from {} where d_w_id between {from} and {to}",
            names.district
        );
        let text = text(control, &sql).map_err(sql_error(DOING))?;
        sum += text.parse::<i64>().map_err(|_| ProveError::Answer { doing: DOING })?;
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
    for Node { control, names, .. } in nodes {
        let customer = &names.customer;
        let sql = format!(
            "select exists (select from {customer} where c_w_id between {from} and {to} and c_delivery_cnt <> 0)"
        );
        delivered |= text(control, &sql).map_err(sql_error(doing))? == "t";
    }
    Ok(delivered.then(|| {
        format!("holds only until the first Delivery, and orders were delivered since the load ({orders_since_load} entered)")
    }))
}
