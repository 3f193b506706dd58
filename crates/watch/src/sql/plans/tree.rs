//! A plan as EXPLAIN returns it in JSON, as a flat list of its nodes, and the hash of its shape.

use super::{PlanFunction, PlanIndex, PlanTable, flag, list, number, text};
use record::statement::{self, mask};
use serde_json::Value;

/// Nodes that are kept; a plan over thousands of partitions is cut.
pub(super) const NODES_MAX: usize = 200;

/// Nodes among which partitions are counted.
const COUNTED_MAX: usize = 20_000;

/// A node.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct TreeNode {
    /// From 1, in the order of EXPLAIN.
    pub(super) number: u64,
    /// The node above; 0 at the top.
    pub(super) above: u64,
    pub(super) kind: String,
    /// Whether it is a subquery of the node above, and no input of it.
    pub(super) subquery: bool,
    pub(super) schema: String,
    pub(super) table: String,
    /// The name of the table in conditions.
    pub(super) alias: String,
    pub(super) index: String,
    pub(super) filter: String,
    pub(super) condition: String,
    /// What a foreign server is sent.
    pub(super) remote: String,
    pub(super) rows: Option<f64>,
    pub(super) width: Option<u64>,
    pub(super) cost: Option<f64>,
    pub(super) removed: Option<u64>,
    /// Rows that are sent to a foreign server together.
    pub(super) batch: Option<u64>,
    /// How it joins; empty for an inner join.
    pub(super) join: String,
    pub(super) adds_nothing: Option<bool>,
    /// Workers of a Gather.
    pub(super) workers: Option<u64>,
}

/// The nodes, the top first, and how many there are in all.
pub(super) fn nodes(explained: &Value) -> (Vec<TreeNode>, u64) {
    let mut found = vec![];
    let mut open = vec![(&explained[0]["Plan"], 0_u64)];
    let mut count = 0;
    while let Some((plan, above)) = open.pop() {
        if !plan.is_object() {
            continue;
        }
        count += 1;
        if found.len() < COUNTED_MAX {
            found.push(node(plan, count, above));
        }
        for below in plan["Plans"].as_array().into_iter().flatten().rev() {
            open.push((below, count));
        }
    }
    (found, count)
}

/// The most tasks, each for one shard, that a part of the plan is split up into, as Citus prints it.
pub(super) fn tasks(explained: &Value) -> Option<u64> {
    match explained {
        Value::Object(fields) => {
            let own = fields.get("Task Count").and_then(Value::as_u64);
            own.max(fields.values().filter_map(tasks).max())
        }
        Value::Array(values) => values.iter().filter_map(tasks).max(),
        _ => None,
    }
}

fn node(plan: &Value, number: u64, above: u64) -> TreeNode {
    let word = |name: &str| plan[name].as_str().unwrap_or_default().to_string();
    let conditions =
        ["Index Cond", "Hash Cond", "Merge Cond", "Join Filter", "Recheck Cond", "Function Call"];
    let filter = ["Filter", "Join Filter"].iter().find_map(|name| plan[*name].as_str()).unwrap_or_default();
    let condition = conditions.iter().find_map(|name| plan[*name].as_str()).unwrap_or_default();
    let keys = ["Sort Key", "Group Key"].iter().find_map(|name| plan[*name].as_array());
    let keys = keys.into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
    TreeNode {
        number,
        above,
        kind: word("Node Type"),
        subquery: is_subquery(plan),
        schema: word("Schema"),
        table: word("Relation Name"),
        alias: word("Alias"),
        index: word("Index Name"),
        filter: mask(filter),
        condition: mask(if condition.is_empty() { &keys } else { condition }),
        remote: mask(&word("Remote SQL")),
        rows: plan["Plan Rows"].as_f64(),
        width: plan["Plan Width"].as_u64(),
        cost: plan["Total Cost"].as_f64(),
        removed: plan["Subplans Removed"].as_u64(),
        batch: plan["Batch Size"].as_u64(),
        join: Some(word("Join Type")).filter(|join| join != "Inner").unwrap_or_default(),
        adds_nothing: adds_nothing(plan),
        workers: plan["Workers Planned"].as_u64(),
    }
}

/// Whether a node is a subquery or WITH of the one above: these come before the inputs in the list of nodes below.
fn is_subquery(plan: &Value) -> bool {
    matches!(plan["Parent Relationship"].as_str(), Some("InitPlan" | "SubPlan"))
}

/// Kinds of nodes whose rows no unique key of a table makes unique.
const NO_KEY: [&str; 7] =
    ["Limit", "Aggregate", "Append", "Merge Append", "Subquery Scan", "CTE Scan", "Function Scan"];
/// Rows that a join may add, by the planner's estimate.
const ADDED_MAX: f64 = 1.1;

/// Whether an outer join neither outputs nor filters by a column of the side whose rows may be absent, and repeats no row by the planner's estimate; `None` for
/// other nodes. The planner removes such a join only if a unique key of that side proves that it repeats no row.
fn adds_nothing(plan: &Value) -> Option<bool> {
    let is_right = match plan["Join Type"].as_str()? {
        "Left" => false,
        "Right" => true,
        _ => return None,
    };
    let inputs: Vec<&Value> = plan["Plans"].as_array()?.iter().filter(|below| !is_subquery(below)).collect();
    let [first, second] = inputs.as_slice() else { return Some(false) };
    let (kept, absent) = if is_right { (second, first) } else { (first, second) };
    let (output, mut names, mut others) = (plan["Output"].as_array()?, vec![], vec![]);
    aliases(absent, &mut names);
    aliases(kept, &mut others);
    let reads = |text: &str, name: &String| {
        text.match_indices(&format!("{name}.")).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            before.is_none_or(|c| !(c.is_alphanumeric() || "_.\"$".contains(c)))
        })
    };
    // What names neither side is computed below, perhaps from the absent one.
    let is_of_kept = |text: &str| {
        !names.iter().any(|name| reads(text, name)) && others.iter().any(|name| reads(text, name))
    };
    let rows = |node: &Value| node["Plan Rows"].as_f64().unwrap_or(0.0);
    Some(
        !names.is_empty()
            && plan["Filter"].is_null()
            && !has_kind(absent, &NO_KEY)
            && rows(plan) <= rows(kept).max(1.0) * ADDED_MAX
            && output.iter().filter_map(Value::as_str).all(is_of_kept),
    )
}

/// Whether a part of a plan has a node of these kinds.
fn has_kind(plan: &Value, kinds: &[&str]) -> bool {
    let is_one = plan["Node Type"].as_str().is_some_and(|kind| kinds.contains(&kind));
    is_one || plan["Plans"].as_array().into_iter().flatten().any(|below| has_kind(below, kinds))
}

/// The names of tables, subqueries and functions in a part of a plan.
fn aliases(plan: &Value, names: &mut Vec<String>) {
    if let Some(alias) = plan["Alias"].as_str() {
        names.extend([alias.to_string(), statement::quoted(alias)]);
    }
    for below in plan["Plans"].as_array().into_iter().flatten() {
        aliases(below, names);
    }
}

/// The plan without what it outputs, its constants hidden: what is kept as a file.
pub(super) fn without_constants(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| *name != "Output");
            Value::Object(kept.map(|(name, value)| (name.clone(), without_constants(value))).collect())
        }
        Value::Array(values) => Value::Array(values.iter().map(without_constants).collect()),
        // Names of nodes and tables have no constants, so only what looks like an expression changes.
        Value::String(text) if text.contains(['(', '\'']) => Value::String(mask(text)),
        other => other.clone(),
    }
}

/// A hash of the shape: what is read how, but no estimates. FNV-1a, so that it is the same in every recording.
pub(super) fn shape(nodes: &[TreeNode]) -> String {
    let bytes = |node: &TreeNode| {
        let number = node.above.to_string();
        let parts =
            [&number, &node.kind, &node.schema, &node.table, &node.index, &node.filter, &node.condition];
        parts.into_iter().flat_map(|part| part.bytes().chain([0])).collect::<Vec<u8>>()
    };
    format!("{:016x}", record::statement::fnv(nodes.iter().flat_map(bytes)))
}

/// Scans below one Append or MergeAppend, the most, and how many it leaves out when it runs.
pub(super) fn partitions(nodes: &[TreeNode]) -> (u64, Option<u64>) {
    let appends = nodes.iter().filter(|node| node.kind == "Append" || node.kind == "Merge Append");
    let scans = appends.map(|append| {
        let below = nodes.iter().filter(|node| node.above == append.number).count() as u64;
        (below, append.removed)
    });
    scans.max_by_key(|(below, removed)| below + removed.unwrap_or(0)).unwrap_or((0, None))
}

/// A definition without its constants, with the values of its options: they are numbers and switches, and no data.
fn with_options(masked: String, options: &[Value]) -> String {
    let is_plain = |value: &str| {
        !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
    };
    let pairs = options.iter().filter_map(|option| option.as_str()?.split_once('='));
    pairs.filter(|(_, value)| is_plain(value)).fold(masked, |text, (name, value)| {
        text.replace(&format!("{name}='***'"), &format!("{name}='{value}'"))
    })
}

/// An index of a table of the plan, as the catalog has it.
pub(super) fn index(node: &str, database: &str, table: &Value, index: &Value) -> PlanIndex {
    let in_order =
        |what: &str| list(index, what).iter().filter_map(Value::as_str).collect::<Vec<_>>().join("; ");
    PlanIndex {
        node: node.to_string(),
        database: database.to_string(),
        relation: text(table, "relation"),
        index: text(index, "index"),
        definition: with_options(statement::mask(&text(index, "definition")), list(index, "options")),
        columns: in_order("columns"),
        operator_classes: in_order("classes"),
        collations: in_order("collations"),
        method: text(index, "method"),
        valid: flag(index, "valid"),
        partial: flag(index, "partial"),
        correlation: number(index, "correlation"),
    }
}

/// A table of the plan, as the catalog has it.
pub(super) fn table(node: &str, database: &str, table: &Value) -> PlanTable {
    let pairs = |what: &str| {
        let fields = table[what].as_object().into_iter().flatten();
        let words = fields.filter_map(|(name, value)| Some(format!("{name} {}", value.as_str()?)));
        words.collect::<Vec<_>>().join("; ")
    };
    PlanTable {
        node: node.to_string(),
        database: database.to_string(),
        relation: text(table, "relation"),
        columns: pairs("columns"),
        column_values: pairs("values"),
        wide_columns: pairs("wide"),
    }
}

/// Functions with the name of one in the plan.
pub(super) fn function(node: &str, database: &str, function: &Value) -> PlanFunction {
    PlanFunction {
        node: node.to_string(),
        database: database.to_string(),
        name: text(function, "name"),
        overloads: text(function, "overloads"),
    }
}

/// What may be the name of a function in the conditions and orders of a plan.
pub(super) fn names(nodes: &[TreeNode]) -> Vec<String> {
    const NAMES_MAX: usize = 100;
    let called =
        nodes.iter().flat_map(|node| [&node.filter, &node.condition]).filter(|text| text.contains('('));
    let all: std::collections::BTreeSet<String> = called.flat_map(|text| statement::names(text)).collect();
    all.into_iter().take(NAMES_MAX).collect()
}

/// Milliseconds of planning, as EXPLAIN with SUMMARY has them.
pub(super) fn planning_of(explained: &Value) -> Option<f64> {
    explained.get(0)?.get("Planning Time")?.as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn explained(index: &str, rows: f64) -> Value {
        json!([{"Plan": {"Node Type": "Append", "Subplans Removed": 2, "Total Cost": 9.5, "Plan Rows": rows, "Plans": [
            {"Node Type": "Index Scan", "Schema": "s", "Relation Name": "t1", "Index Name": index, "Index Cond": "(a = $1)",
             "Filter": "(b = 'secret'::text)", "Output": ["a", "'secret'"], "Plan Rows": rows, "Plan Width": 8},
            {"Node Type": "Seq Scan", "Schema": "s", "Relation Name": "t2"}]}}])
    }

    #[test]
    fn a_plan_becomes_a_list_without_constants() {
        let (nodes, count) = nodes(&explained("i", 5.0));
        assert_eq!((count, nodes.len()), (3, 3));
        assert_eq!((nodes[1].above, nodes[2].above, nodes[2].number), (1, 1, 3));
        assert_eq!(
            (nodes[1].filter.as_str(), nodes[1].condition.as_str()),
            ("(b = '***'::text)", "(a = $1)")
        );
        assert_eq!(partitions(&nodes), (2, Some(2)));
        let kept = without_constants(&explained("i", 5.0)).to_string();
        assert!(!kept.contains("secret") && kept.contains("Index Cond"), "{kept}");
    }

    #[test]
    fn a_definition_has_its_options_and_no_constant() {
        let masked = "CREATE INDEX i ON s.t USING gin (tsv) WITH (fastupdate='***', gin_pending_list_limit='***') WHERE (a = '***'::text)";
        let options = [json!("fastupdate=on"), json!("gin_pending_list_limit=1048576"), json!("a=' or")];
        assert_eq!(
            with_options(masked.to_string(), &options),
            "CREATE INDEX i ON s.t USING gin (tsv) WITH (fastupdate='on', gin_pending_list_limit='1048576') WHERE (a = '***'::text)"
        );
    }

    #[test]
    fn the_shape_changes_with_the_index_and_not_with_the_estimates() {
        let of = |index: &str, rows: f64| shape(&nodes(&explained(index, rows)).0);
        assert_eq!(of("i", 5.0), of("i", 7.0));
        assert_ne!(of("i", 5.0), of("j", 5.0));
    }

    #[test]
    fn tasks_are_counted_wherever_they_stand() {
        let custom = json!([{"Plan": {"Node Type": "Aggregate", "Plans": [{"Node Type": "Custom Scan", "Custom Plan Provider": "Citus Adaptive",
            "Distributed Query": {"Job": {"Task Count": 32, "Tasks Shown": "One of 32"}}}]}}]);
        assert_eq!((tasks(&custom), tasks(&explained("i", 1.0))), (Some(32), None));
    }

    #[test]
    fn a_plan_of_another_form_has_no_nodes() {
        for odd in [Value::Null, json!([]), json!([{"Plan": 5}]), json!({"Plan": {}})] {
            assert_eq!(nodes(&odd).0.len(), 0, "{odd}");
        }
    }
}
