//! PLAN-53 to PLAN-56: indexes that find far more than a statement wants, conditions that only other kinds of index serve, OR with one side that has none, and
//! plans of a kind that a setting forbids.

use super::KEPT_SHARE_MAX;
use super::index::{indexes, scans_of, serves};
use super::{NEEDS, Planned, does_more, judge, number, severity};
use crate::case::{Case, Thing};
use crate::rule::Need::{Any, Field};
use crate::rule::{Answer, Claim, Rule};
use crate::rules::costly::{busy, closing, in_a_line};
use crate::rules::statement::explain_it;
use crate::units;
use record::finding::{Level, NodeTime, Severity, StatementTime};
use record::statement::{self, Condition};

pub(in crate::rules) const RULES: &[Rule] = &[
    Rule {
        id: "PLAN-53",
        title: "an index finds many rows, and the rest of the condition throws most of them away",
        needs: NEEDS,
        limits: "10 % of the session time; 100 blocks, ten for each row returned; an index that finds 1,000 rows, of which a filter by equality with \
            other columns keeps a tenth (ours)",
        judge: |case| judge(case, too_many, "rows that indexes find, and rows that conditions keep"),
        links: &["https://www.postgresql.org/docs/current/indexes-multicolumn.html"],
    },
    Rule {
        id: "PLAN-54",
        title: "a search inside of values reads each row, because no index looks into them",
        needs: NEEDS,
        limits: "10 % of the session time; a sequential scan of 1,000 rows or more by a full-text search, or by @>, <@, && or ? on a document, an array \
            or a range without a GIN or GiST index, for a tenth of the rows or less, half of them by a full-text search; low where keys are searched and \
            only sums are returned (ours)",
        judge: |case| judge(case, by_reading, "operators in the conditions of sequential scans"),
        links: &["https://www.postgresql.org/docs/current/textsearch-indexes.html"],
    },
    Rule {
        id: "PLAN-55",
        title: "OR reads the whole table, because one side has no index",
        needs: NEEDS,
        limits: "10 % of the session time; a sequential scan of 1,000 rows or more for a tenth of them or less, by OR of comparisons of which one has \
            no index (ours)",
        judge: |case| judge(case, half, "OR in the conditions of sequential scans"),
        links: &["https://www.postgresql.org/docs/current/indexes-bitmap-scans.html"],
    },
    Rule {
        id: "PLAN-56",
        title: "a setting forbids a kind of plan",
        needs: &[
            Any(&[Field("plan", "cost_total"), Field("statement", "calls")]),
            Field("server", "sessions_active"),
        ],
        limits: "10 % of the session time in a statement that touches 100 blocks, ten for each row, while enable_nestloop, enable_hashjoin, \
            enable_seqscan or the like is off and the plan has what takes its place; without a plan by a join in its text (ours)",
        judge: forbidden,
        links: &["https://www.postgresql.org/docs/current/runtime-config-query.html"],
    },
];

/// Rows that an index finds.
const FOUND_MIN: f64 = 1_000.0;
/// Blocks of an execution.
const BLOCKS_MIN: f64 = 100.0;
/// Blocks for each row that it returns.
const BLOCKS_PER_ROW_MIN: f64 = 10.0;

/// Blocks for each row that an index finds, with which it explains those of the statement.
const BLOCKS_PER_FOUND: f64 = 5.0;

/// Whether an execution touches far more blocks than it returns rows.
fn is_wasteful(planned: &Planned<'_>) -> bool {
    let (blocks, rows) = (planned.statement.blocks.unwrap_or(0.0), planned.statement.rows.unwrap_or(0.0));
    blocks >= BLOCKS_MIN && blocks >= rows.max(1.0) * BLOCKS_PER_ROW_MIN
}

/// The index of a node and how many rows it finds: what the planner expects of a bitmap, or what the counters of the table have.
fn found_by_index<'a>(case: &Case, planned: &Planned<'a>, node: &Thing<'a>) -> Option<(&'a str, f64)> {
    match node.lines.word("kind") {
        "Bitmap Heap Scan" => {
            let is_its = |one: &&Thing<'a>| number(one, "above") == number(node, "number");
            let below = planned
                .nodes
                .iter()
                .filter(is_its)
                .find(|one| one.lines.word("kind") == "Bitmap Index Scan")?;
            Some((below.lines.word("index"), number(below, "rows_planned")))
        }
        "Index Scan" => {
            let mut tables = case.at("table", planned.time.node.as_str());
            let table = tables.find(|table| table.lines.word("relation") == node.lines.word("relation"))?;
            let scans = table.lines.sum("index_scans").filter(|scans| *scans > 0.0)?;
            Some((node.lines.word("index"), table.lines.sum("index_rows")? / scans))
        }
        _ => None,
    }
}

/// Columns of which a condition compares the values themselves with one value each.
fn compared(text: &str) -> Vec<Condition> {
    let mut all = statement::conditions(text).unwrap_or_default();
    all.retain(|one| one.inside.is_none() && one.how == statement::Use::Equality);
    all
}

fn too_many(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    planned.nodes.iter().filter(|_| is_wasteful(planned)).find_map(|node| {
            let (index, found) = found_by_index(case, planned, node)?;
            let (relation, filter) = (node.lines.word("relation"), node.lines.word("filter"));
            let kept = number(node, "rows_planned");
            let searched = compared(node.lines.word("condition"));
            let more: Vec<String> = compared(filter)
                .into_iter()
                .map(|one| one.column)
                .filter(|column| searched.iter().all(|one| one.column != *column))
                .collect();
            if found < FOUND_MIN || kept > found * KEPT_SHARE_MAX || searched.is_empty() || more.is_empty() {
                return None;
            }
            // Something else does more than planned for each of these rows: more of them fit than were expected (PLAN-24).
            let blocks = planned.statement.blocks.unwrap_or(0.0);
            if does_more(case, planned) && blocks > found * BLOCKS_PER_FOUND {
                return None;
            }
            let mut columns: Vec<String> = vec![];
            for column in searched.iter().map(|one| &one.column).chain(&more) {
                if !columns.contains(column) {
                    columns.push(column.clone());
                }
            }
            let has_all = |(_, of_index): &(Thing<'_>, Vec<&str>)| {
                columns.iter().all(|column| of_index.contains(&column.as_str()))
            };
            if indexes(case, planned, relation).iter().any(has_all) {
                return None;
            }
            let text = format!(
                "a statement that takes {} of the session time finds about {} rows of {relation} by index {index}, and the rest of its condition throws all \
                 but about {} of them away: no index has {} as well",
                planned.share(),
                units::count(found),
                units::count(kept.max(1.0)),
                more.join(", ")
            );
            let claim = planned
                .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
                .number("rows_found", found)
                .number("rows_kept", kept)
                .because(format!("the plan reads {relation} by {} and leaves out what does not fit {filter}", node.lines.word("condition")))
                .because(planned.file())
                .lacking("a trial of the index: the extension hypopg lets the planner try it")
                .remedy(
                    "create an index of several columns, for all that the statement compares: then it finds only the rows that are wanted; it can take \
                     the place \
                     of the present one where that begins with the same columns",
                    &[&statement::index_command(relation, &columns, true), &explain_it(case, &planned.time.node, planned.statement)],
                );
            Some(claim)
    })
}

/// Operators that B-trees do not serve, and whose values lie in a document, an array, a text or a range.
const INSIDE: [&str; 6] = [" @@ ", " @> ", " <@ ", " && ", " ?| ", " ? "];

/// What is searched by such an operator: the column or the expression, as an index has it.
fn searched_inside(
    filter: &str,
    (relation, alias): (&str, &str),
    types: &str,
) -> Option<(String, &'static str)> {
    let (left, operator, right) = INSIDE.iter().find_map(|operator| {
        let (left, right) = filter.split_once(operator)?;
        Some((left, *operator, right))
    })?;
    let name = relation.rsplit('.').next().unwrap_or(relation);
    let of_table = |text: &str| {
        let names = [alias, name].into_iter().filter(|name| !name.is_empty());
        names.fold(text.to_string(), |text, name| text.replace(&format!("{name}."), ""))
    };
    if operator == " @@ " && filter.contains("to_tsvector(") {
        let call = &filter[filter.find("to_tsvector(")?..];
        let open = call.find('(')?;
        return Some((of_table(&call[..=open + closing(&call[open..])?]), "gin"));
    }
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let plain = |text: &str| {
        let text = of_table(text.trim_matches(|c| matches!(c, '(' | ')' | ' ')));
        let column = text.rsplit([' ', '(']).next().unwrap_or_default().trim_end_matches(')').to_string();
        let kind = types.split("; ").find_map(|one| one.strip_prefix(&format!("{column} ")))?;
        (column.chars().all(is_name) && !column.is_empty()).then(|| (column.clone(), kind.to_string()))
    };
    let first = right.split([' ', ')']).next().unwrap_or_default();
    let (column, kind) = plain(left).or_else(|| plain(first))?;
    let method = match kind.as_str() {
        kind if kind.contains("range") => "gist",
        "jsonb" | "tsvector" | "hstore" => "gin",
        kind if kind.ends_with("[]") => "gin",
        _ => return None,
    };
    Some((statement::quoted(&column), method))
}

/// Operators that ask for keys of a document.
const KEYS: [&str; 3] = [" ? ", " ?| ", " ?& "];
/// Of the rows of a table, those that fit, from which on an index that spares reading and parsing the others gains nothing.
const MOST: f64 = 0.5;
/// Steps after which the rows that a scan returns are no longer counted.
const REDUCES: [&str; 5] = ["Aggregate", "Group", "Unique", "Limit", "SetOp"];
/// What the record does not show of a statement that sums up.
const OF_FEW: &str =
    "how many rows fit: the index gains where few do, and is left aside where most have what is searched for";

/// Whether an index of documents has an operator class without the operator of a filter: `jsonb_path_ops` does not look for keys.
fn lacks_operator(index: &Thing<'_>, filter: &str) -> bool {
    let asks_keys = KEYS.iter().any(|operator| filter.contains(operator));
    asks_keys && index.lines.word("operator_classes").contains("jsonb_path_ops")
}

/// An index of the column that does not look into its values, as the end of a claim.
fn unsuited(of_table: &[(Thing<'_>, Vec<&str>)], what: &str, filter: &str) -> String {
    if let Some((index, _)) = of_table.iter().find(|(index, _)| lacks_operator(index, filter)) {
        return format!(
            "; index {} is one of jsonb_path_ops, an operator class that knows @> and jsonpath, and not ?",
            index.lines.word("index")
        );
    }
    let tree = of_table.iter().find(|(index, columns)| {
        index.lines.word("method") == "btree" && columns.first() == Some(&what.trim_matches('"'))
    });
    tree.map_or(String::new(), |(index, _)| {
        format!("; index {} is a B-tree, which compares whole values", index.lines.word("index"))
    })
}

fn by_reading(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let alias_of = |relation: &str| {
        let mut nodes = planned.nodes.iter();
        nodes.find(|node| node.lines.word("relation") == relation).map_or("", |node| node.lines.word("alias"))
    };
    let found = scans_of(planned).into_iter().find_map(|scan| {
        let (what, method) =
            searched_inside(scan.filter, (scan.relation, alias_of(scan.relation)), scan.types)?;
        let is_there = indexes(case, planned, scan.relation).iter().any(|(index, columns)| {
            let holds =
                index.lines.word("definition").contains("to_tsvector") && what.starts_with("to_tsvector(");
            ["gin", "gist"].contains(&index.lines.word("method"))
                && !lacks_operator(index, scan.filter)
                && (columns.contains(&what.trim_matches('"')) || holds)
        });
        (!is_there).then_some((scan, what, method))
    });
    let (scan, what, method) = found?;
    let is_text = what.starts_with("to_tsvector(");
    // A text is parsed in each row that a scan reads, so that an index gains more.
    let most = scan.rows * if is_text { MOST } else { KEPT_SHARE_MAX };
    let is_reduced = planned.nodes.iter().any(|node| REDUCES.contains(&node.lines.word("kind")));
    if !is_reduced && planned.statement.rows.is_some_and(|rows| rows > most) {
        return None;
    }
    // A key may be in every document: how many have it, no counter shows where they are summed up.
    let is_guess = is_reduced && KEYS.iter().any(|operator| scan.filter.contains(operator));
    let of_table = indexes(case, planned, scan.relation);
    let other = unsuited(&of_table, &what, scan.filter);
    let kind =
        if is_text { "a full-text search that parses each row" } else { "a search inside of its values" };
    let text = format!(
        "a statement that takes {} of the session time reads {} ({} rows) for {kind}: no {} index is on {what}{other}",
        planned.share(),
        scan.relation,
        units::short(scan.rows),
        method.to_uppercase()
    );
    // The constant of the configuration is replaced in the text that the server keeps.
    let written = what.replace("to_tsvector($1", "to_tsvector('english'");
    let note = if written == what { "" } else { " -- the configuration (english) that the statement names" };
    let create = format!("CREATE INDEX CONCURRENTLY ON {} USING {method} ({written});{note}", scan.relation);
    Some(
            planned
                .claim(case, Level::CoOccurrence, if is_guess { Severity::Low } else { severity(planned.statement.share) }, text)
                .number("rows_of_table", scan.rows)
                .with(is_reduced.then_some(OF_FEW), Claim::lacking)
                .because(format!("the plan filters {} by {}", scan.relation, scan.filter))
                .because(planned.file())
                .not("a B-tree that is missing: it does not serve this operator")
                .remedy(
                    if is_text {
                        "create an index on the same expression, or keep the tsvector in a generated column and index that: then no text is parsed for a search"
                    } else {
                        "create an index of a kind that looks into the values; it slows writes of them"
                    },
                    &[&create, &format!("ANALYZE {};", scan.relation), &explain_it(case, &planned.time.node, planned.statement)],
                ),
        )
}

fn half(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    scans_of(planned).into_iter().filter(super::index::Scan::keeps_few).find_map(|scan| {
            let sides = statement::alternatives(scan.filter).unwrap_or_default();
            let of_table = indexes(case, planned, scan.relation);
            let is_served = |side: &Condition| {
                of_table.iter().any(|(index, columns)| {
                    columns.first() == Some(&side.column.as_str()) && serves(index, side.how)
                })
            };
            let usable =
                |side: &&Vec<Condition>| side.iter().any(|one| one.inside.is_none() && one.how.is_compared());
            if sides.len() < 2 || !sides.iter().all(|side| usable(&side)) {
                return None;
            }
            let missing: Vec<Vec<String>> = sides
                .iter()
                .filter(|side| !side.iter().any(&is_served))
                .map(|side| statement::index_columns(side))
                .collect();
            if missing.is_empty() || missing.iter().any(Vec::is_empty) {
                return None;
            }
            let names: Vec<String> = missing.iter().map(|columns| columns.join(", ")).collect();
            let text = format!(
                "a statement that takes {} of the session time reads all {} rows of {} for an OR, each side of which needs an index: none begins with {}",
                planned.share(),
                units::short(scan.rows),
                scan.relation,
                names.join(" or ")
            );
            let mut commands: Vec<String> = missing
                .iter()
                .map(|columns| statement::index_command(scan.relation, columns, true))
                .collect();
            commands.push(explain_it(case, &planned.time.node, planned.statement));
            let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
            Some(
                planned
                    .claim(case, Level::CoOccurrence, severity(planned.statement.share), text)
                    .number("rows_of_table", scan.rows)
                    .because(format!("the plan filters {} by {}", scan.relation, scan.filter))
                    .because(format!("{} of {} sides have an index, which alone does not help", sides.len() - missing.len(), sides.len()))
                    .because(planned.file())
                    .not("a condition that most rows satisfy: a tenth or less is expected")
                    .remedy(
                        "create what is missing: the planner then reads the indexes of all sides and joins what they find (BitmapOr); or write a UNION of one \
                         query for each side",
                        &commands,
                    ),
            )
    })
}

/// Settings that forbid a kind of plan, and the kinds of node that may take its place.
const FORBIDDEN: [(&str, &[&str]); 8] = [
    ("enable_nestloop", &["Hash Join", "Merge Join"]),
    ("enable_hashjoin", &["Nested Loop", "Merge Join"]),
    ("enable_mergejoin", &["Nested Loop", "Hash Join"]),
    ("enable_seqscan", &["Index Scan", "Bitmap Heap Scan", "Index Only Scan"]),
    ("enable_hashagg", &["Aggregate", "Unique", "Sort"]),
    ("enable_sort", &["Index Scan", "Nested Loop"]),
    ("enable_memoize", &["Nested Loop"]),
    ("enable_partition_pruning", &["Append", "Merge Append"]),
];

/// The kinds of join, of which one that is forbidden is seen without a plan: a statement that joins few rows takes another one.
const JOINS_OFF: [&str; 2] = ["enable_nestloop", "enable_hashjoin"];
const ROLES: &str = "SELECT coalesce(d.datname, '(all databases)') AS database, coalesce(r.rolname, '(all roles)') AS role, s.setconfig FROM \
    pg_db_role_setting s LEFT JOIN pg_database d ON d.oid = s.setdatabase LEFT JOIN pg_roles r ON r.oid = s.setrole;";

/// The same where a statement has no plan: it joins, and touches far more blocks than it returns rows.
fn off_by_text(case: &Case, time: &NodeTime, statement: &StatementTime) -> Option<Claim> {
    let (blocks, rows) = (statement.blocks.unwrap_or(0.0), statement.rows.unwrap_or(0.0));
    let is_wasteful = blocks >= BLOCKS_MIN && blocks >= rows.max(1.0) * BLOCKS_PER_ROW_MIN;
    if statement.share < super::SHARE_MIN || !is_wasteful || super::plan_of(case, time, statement).is_some() {
        return None;
    }
    let name = JOINS_OFF.iter().find(|name| case.setting(&time.node, name) == Some("off"))?;
    let parsed = statement::parse(&statement.text).ok()?;
    if parsed.tables.len() < 2 || !parsed.is_filtered {
        return None;
    }
    let text = format!(
        "{}: {name} is off for this server or database, and a statement that takes {} of the session time joins {} tables and touches {} blocks for {} rows",
        time.node,
        units::percent(statement.share),
        parsed.tables.len(),
        units::short(blocks),
        units::short(rows)
    );
    let show = format!("SET {name} = on; {}", explain_it(case, &time.node, statement));
    Some(
        Claim::new(severity(statement.share), Level::CoOccurrence, text)
            .on_node(&time.node)
            .during(case.one("server", &time.node).map(|server| server.ticks.window()))
            .number("share", statement.share)
            .because(format!("the statement: {}", in_a_line(statement)))
            .because(format!("{name} is off in a session of ours: the configuration, the database or its role sets it"))
            .lacking("its plan: the first command shows it as it would be without the setting")
            .remedy(
                "take the setting back, and set it only where it helps: in the session or transaction of that one statement (SET LOCAL)",
                &[&show, ROLES, &format!("ALTER SYSTEM RESET {name}; SELECT pg_reload_conf(); -- or ALTER DATABASE ... RESET {name};")],
            ),
    )
}

/// PLAN-56.
fn forbidden(case: &Case) -> Answer {
    let mut claims: Vec<Claim> =
        super::planned(case, super::SHARE_MIN).filter_map(|planned| off(case, &planned)).collect();
    for time in busy(case) {
        claims.extend(time.statements.iter().filter_map(|statement| off_by_text(case, time, statement)));
    }
    Answer::of(claims, || "settings that forbid kinds of plans".to_string())
}

fn off(case: &Case, planned: &Planned<'_>) -> Option<Claim> {
    let node = planned.time.node.as_str();
    let has = |kinds: &[&str]| planned.nodes.iter().any(|one| kinds.contains(&one.lines.word("kind")));
    let is_off = |name: &str| case.setting(node, name) == Some("off");
    let (name, _) =
        FORBIDDEN.iter().filter(|_| is_wasteful(planned)).find(|(name, kinds)| is_off(name) && has(kinds))?;
    let text = format!(
        "{name} is off for this server or database, and a statement that takes {} of the session time touches {} blocks for {} rows by another kind of plan",
        planned.share(),
        units::short(planned.statement.blocks.unwrap_or(0.0)),
        units::short(planned.statement.rows.unwrap_or(0.0))
    );
    let show = format!("SET {name} = on; {}", explain_it(case, node, planned.statement));
    Some(
            planned
                .claim(case, Level::CoOccurrence, severity(planned.statement.share).max(Severity::Medium), text)
                .because(format!("{name} is off in a session of ours: the configuration, the database or its role sets it"))
                .because(planned.file())
                .lacking("the plan without it: the first command shows that")
                .remedy(
                    "take the setting back, and set it only where it helps: in the session or transaction of that one statement (SET LOCAL)",
                    &[
                        &show,
                        ROLES,
                        &format!("ALTER SYSTEM RESET {name}; SELECT pg_reload_conf(); -- or ALTER DATABASE ... RESET {name};"),
                    ],
                ),
        )
}

/// Whether one of these rules explains what a statement reads.
pub(super) fn is_explained(case: &Case, planned: &Planned<'_>) -> bool {
    [too_many, by_reading, half, off].iter().any(|look| look(case, planned).is_some())
}
