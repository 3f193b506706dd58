//! Checks that cover all nodes together: the warehouses, and the items of every node.

use std::collections::BTreeMap;

use prove::conditions::{Node, Outcome, ProveError, WITNESSES_MAX};

use super::set_strange;

/// Holes between the warehouses are looked into one by one, so many at most.
const MISSING_MAX: usize = 10_000;

/// All warehouses of all nodes, a null as 0, which is no warehouse either. From now on every node's queries know which warehouses are strange.
pub(super) fn know_warehouses(nodes: &mut [Node]) -> Result<Vec<i64>, ProveError> {
    const DOING: &str = "listing the warehouses";
    let mut ids: Vec<i64> = Vec::new();
    for node in nodes.iter_mut() {
        let sql = format!("select coalesce(w_id, 0) from {}", node.names().get("warehouse"));
        for row in node.rows(&sql).map_err(ProveError::sql(DOING))? {
            ids.push(text(&row, 0).parse().map_err(|_| ProveError::Answer { doing: DOING })?);
        }
    }
    ids.sort_unstable();
    let (Some(first), Some(last)) = (ids.first().copied(), ids.last().copied()) else {
        nodes.iter_mut().for_each(|node| set_strange(node, "({} is not null or {} is null)"));
        return Ok(ids);
    };
    // Bounds go by index; what is missing between them is mostly nothing.
    let mut strange = format!("({{}} is null or {{}} < {first} or {{}} > {last}");
    let missing = missing(&ids, first, last);
    if !missing.is_empty() {
        let list: Vec<String> = missing.iter().map(i64::to_string).collect();
        strange.push_str(&format!(" or {{}} in ({})", list.join(", ")));
    }
    strange.push(')');
    nodes.iter_mut().for_each(|node| set_strange(node, &strange));
    Ok(ids)
}

/// The first numbers that are not in a sorted list.
fn missing(ids: &[i64], first: i64, last: i64) -> Vec<i64> {
    let mut missing = Vec::new();
    let mut next = first;
    for id in ids {
        missing.extend((next..*id).take(MISSING_MAX - missing.len()));
        next = next.max(id + 1);
    }
    missing.extend((next..=last).take(MISSING_MAX - missing.len()));
    missing
}

/// X16: whether the warehouses are 1 to their number.
pub(super) fn numbered_from_one(ids: &[i64]) -> (u64, Outcome) {
    let count = ids.len() as i64;
    if ids.is_empty() {
        return (0, Outcome::Broken { count: 1, witnesses: vec!["no warehouse at all".to_owned()] });
    }
    let mut different = ids.to_vec();
    different.dedup();
    let within = different.iter().filter(|id| (1..=count).contains(*id)).count() as i64;
    let mut witnesses: Vec<String> = Vec::new();
    witnesses.extend(ids.chunk_by(|a, b| a == b).filter(|same| same.len() > 1).map(|same| {
        let id = same[0];
        format!("w_id {id} stands {} times", same.len())
    }));
    let strange = different.iter().filter(|id| !(1..=count).contains(*id));
    witnesses.extend(strange.map(|id| match id {
        0 => "w_id null or 0".to_string(),
        id => format!("w_id {id} of {count} warehouses"),
    }));
    witnesses.extend(
        missing(&different, 1, count)
            .into_iter()
            .filter(|id| *id <= count)
            .map(|id| format!("w_id {id} missing")),
    );
    witnesses.truncate(WITNESSES_MAX);
    let broken = (count - within) as u64;
    match broken {
        0 => (ids.len() as u64, Outcome::Kept),
        count => (ids.len() as u64, Outcome::Broken { count, witnesses }),
    }
}

/// X15: whether every node has the same items. The nodes are compared with the first one that has what most have.
pub(super) fn same_items(nodes: &mut [Node]) -> (u64, Outcome) {
    let compared = savepoints(nodes).and_then(|()| compare_items(nodes));
    for node in nodes.iter_mut() {
        // The snapshot outlives an error only behind a savepoint, and is shared only when there is none. A connection that is lost is
        // noticed when the snapshot is shared.
        let _ = node.rows("rollback to savepoint items");
        let _ = node.rows("release savepoint items");
    }
    match compared {
        Ok((looked_at, 0, _)) => (looked_at, Outcome::Kept),
        Ok((looked_at, count, witnesses)) => (looked_at, Outcome::Broken { count, witnesses }),
        Err((node, error)) => {
            (0, Outcome::Failed { error: format!("items of {}: {error}", nodes[node].name()) })
        }
    }
}

/// A node's number, and what it reported.
type Trouble = (usize, String);

fn rows_of(nodes: &mut [Node], number: usize, sql: &str) -> Result<Vec<Vec<Option<String>>>, Trouble> {
    nodes[number].rows(sql).map_err(|error| (number, error.to_string()))
}

fn savepoints(nodes: &mut [Node]) -> Result<(), Trouble> {
    (0..nodes.len()).try_for_each(|number| rows_of(nodes, number, "savepoint items").map(drop))
}

type Compared = (u64, u64, Vec<String>);

fn compare_items(nodes: &mut [Node]) -> Result<Compared, Trouble> {
    let mut sums: Vec<(u64, String)> = Vec::new();
    for number in 0..nodes.len() {
        let sql = format!(
            "select count(*), coalesce(sum(pg_catalog.hashtextextended(i::text, 0)), 0) from {} i",
            nodes[number].names().get("item")
        );
        let rows = rows_of(nodes, number, &sql)?;
        let value = |index: usize| rows.first().map(|row| text(row, index).to_owned()).unwrap_or_default();
        sums.push((value(0).parse().unwrap_or(0), value(1)));
    }
    let votes = |sum: &(u64, String)| sums.iter().filter(|other| *other == sum).count();
    let model = (0..sums.len()).max_by_key(|at| (votes(&sums[*at]), std::cmp::Reverse(*at))).unwrap_or(0);
    let looked_at = sums.iter().map(|(count, _)| count).sum();
    let (mut count, mut witnesses) = (0, Vec::new());
    if sums.iter().all(|sum| *sum == sums[model]) {
        return Ok((looked_at, count, witnesses));
    }
    let model_name = nodes[model].name().to_owned();
    let expected = items_of(nodes, model)?;
    for number in (0..nodes.len()).filter(|number| sums[*number] != sums[model]) {
        let found = items_of(nodes, number)?;
        let name = nodes[number].name();
        let ids: std::collections::BTreeSet<&i64> = expected.keys().chain(found.keys()).collect();
        for id in ids.into_iter().filter(|id| expected.get(id) != found.get(id)) {
            count += 1;
            let what = match (expected.get(id), found.get(id)) {
                (Some(_), None) => format!("missing on {name}"),
                (None, _) => format!("on {name}, but not on {model_name}"),
                _ => format!("on {name} it differs from {model_name}"),
            };
            if witnesses.len() < WITNESSES_MAX {
                witnesses.push(format!("i_id {id}, {what}"));
            }
        }
    }
    Ok((looked_at, count, witnesses))
}

fn items_of(nodes: &mut [Node], number: usize) -> Result<BTreeMap<i64, String>, Trouble> {
    let item = nodes[number].names().get("item");
    let sql = format!("select i_id, pg_catalog.hashtextextended(i::text, 0) from {item} i");
    let rows = rows_of(nodes, number, &sql)?;
    Ok(rows.iter().map(|row| (text(row, 0).parse().unwrap_or(0), text(row, 1).to_owned())).collect())
}

/// A value of a row; nothing where it is null or not there.
pub(super) fn text(row: &[Option<String>], index: usize) -> &str {
    row.get(index).and_then(|value| value.as_deref()).unwrap_or_default()
}
