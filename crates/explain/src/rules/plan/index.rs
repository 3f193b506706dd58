//! Sequential scans whose condition has no index, or one that it cannot use.

use super::collation::{self, Differs};
use super::wanted::{HOW_MANY_FIT, UNSURE, Wanted, wanted};
use super::{KEPT_SHARE_MAX, Planned, SHARE_MIN, distance, otherwise, planned, scans, severity, tree};
use crate::case::{Case, Thing};
use crate::rule::{Answer, Claim};
use crate::rules::statement::compiled_share;
use crate::units;
use record::finding::{Level, Severity};
use record::statement::{self, Condition, Use};

/// A smaller table is scanned rightly.
const ROWS_MIN: f64 = 1_000.0;
/// Of a plan's cost, that of a scan from which on an index in its place saves much.
const OF_PLAN_MIN: f64 = 0.2;
/// Of the time of a statement, that of its compilation.
const COMPILED_MAX: f64 = 0.6;
/// An index that was tried and does not make the plan cheaper than this is not proposed.
const CHEAPER_FACTOR: f64 = 0.8;

/// Bytes that an index entry takes on average: the key and its place, with room in the pages (ours).
pub(in crate::rules) const BYTES_PER_ENTRY: f64 = 40.0;

/// A sequential scan with a condition.
pub(super) struct Scan<'a> {
    pub(super) relation: &'a str,
    pub(super) rows: f64,
    pub(super) kept: f64,
    pub(super) filter: &'a str,
    /// Types and collations of its columns, each behind its name.
    pub(super) types: &'a str,
    pub(super) collations: &'a str,
    /// Read by an index for its order alone, without a condition.
    pub(super) is_walk: bool,
    is_partition: bool,
    /// Of the plan's cost, that of this scan; `None` if it is not known.
    of_plan: Option<f64>,
    pub(super) conditions: Vec<Condition>,
}

impl Scan<'_> {
    /// Whether the planner expects so few rows that an index would help.
    pub(super) fn keeps_few(&self) -> bool {
        self.kept <= self.rows * KEPT_SHARE_MAX
    }

    /// Whether the statement spends its time elsewhere, by the plan: what another scan would save is little.
    pub(super) fn is_minor(&self) -> bool {
        self.of_plan.is_some_and(|share| share < OF_PLAN_MIN)
    }

    /// Whether an index has the column of a condition in the order of another collation than the condition compares it by.
    pub(super) fn differs(&self, index: &Thing<'_>, condition: &Condition) -> Option<Differs> {
        let columns = index.lines.word("columns");
        let position = columns.split("; ").position(|column| column == condition.column)?;
        let texts = (self.filter, self.collations);
        collation::of_condition(texts, index, position, &condition.column)
            .filter(|_| condition.how.is_compared())
    }
}

pub(super) fn scans_of<'a>(planned: &Planned<'a>) -> Vec<Scan<'a>> {
    // An index that is read for its order alone, without a condition, is a scan of all rows, too.
    let is_scan = |node: &&Thing<'a>| {
        let kind = node.lines.word("kind");
        let is_walk = matches!(kind, "Index Scan" | "Index Only Scan");
        let is_whole = kind == "Seq Scan" || is_walk && node.lines.word("condition").is_empty();
        is_whole && !node.lines.word("filter").is_empty()
    };
    // The partitions of a table are scanned for one reason, and not all of them are recorded.
    let whole = |node: &Thing<'a>| {
        let above = planned.ancestors(node).into_iter().next();
        let is_of_parts = |above: &Thing<'a>| matches!(above.lines.word("kind"), "Append" | "Merge Append");
        above.filter(is_of_parts).unwrap_or(*node)
    };
    let scan = |node: &Thing<'a>| {
        let lines = node.lines;
        let rows = lines.last("table_rows")?;
        let mut conditions = statement::conditions(lines.word("filter")).unwrap_or_default();
        // A filter may compare columns of another table, whose names are the same.
        let alias = lines.word("alias");
        conditions.retain(|one| alias.is_empty() || one.table.as_ref().is_none_or(|table| table == alias));
        for condition in &mut conditions {
            forgive_relabelling(condition, lines.word("column_types"));
        }
        (rows >= ROWS_MIN).then_some(Scan {
            relation: lines.word("relation"),
            rows,
            kept: lines.last("rows_planned").unwrap_or(rows),
            filter: lines.word("filter"),
            types: lines.word("column_types"),
            collations: lines.word("column_collations"),
            is_walk: lines.word("kind") != "Seq Scan",
            is_partition: lines.flag("partitioned") == Some(true),
            of_plan: tree::weight(planned, &whole(node)),
            conditions,
        })
    };
    planned.nodes.iter().filter(is_scan).filter_map(scan).collect()
}

/// A varchar is compared as text: the server shows a cast, which an index on the column does not mind.
pub(super) fn forgive_relabelling(condition: &mut Condition, types: &str) {
    let wanted = format!("{} character varying", condition.column);
    if condition.inside.as_deref() == Some("a cast to text")
        && types.split("; ").any(|column| column.starts_with(&wanted))
    {
        condition.inside = None;
    }
}

/// Whether an index belongs to this table in the database of the statement: names repeat in other schemas and databases.
pub(in crate::rules) fn is_of(index: &Thing<'_>, planned: &Planned<'_>, relation: &str) -> bool {
    is_in(index, &planned.statement.database, relation)
}

fn is_in(index: &Thing<'_>, wanted: &str, relation: &str) -> bool {
    let database = index.lines.word("database");
    let is_there = database.is_empty() || wanted.is_empty() || database == wanted;
    is_there && index.lines.word("relation") == relation
}

/// Indexes of a table with their columns.
pub(super) fn indexes<'a>(
    case: &'a Case,
    planned: &Planned<'a>,
    relation: &str,
) -> Vec<(Thing<'a>, Vec<&'a str>)> {
    indexes_of(case, planned.time.node.as_str(), &planned.statement.database, relation)
}

/// The same without a plan.
pub(super) fn indexes_of<'a>(
    case: &'a Case,
    node: &'a str,
    database: &str,
    relation: &str,
) -> Vec<(Thing<'a>, Vec<&'a str>)> {
    let of_table = case.at("plan_index", node).filter(|index| is_in(index, database, relation));
    of_table.map(|index| (index, index.lines.word("columns").split("; ").collect())).collect()
}

/// Operator classes of GIN that look into a value. The others (btree_gin) compare whole values as a B-tree does.
const LOOKS_INSIDE: [&str; 6] =
    ["array_ops", "gin_trgm_ops", "hstore_ops", "jsonb_ops", "jsonb_path_ops", "tsvector_ops"];

/// The operator class of the first column of an index; empty in recordings that do not have it.
pub(super) fn class_of<'a>(index: &Thing<'a>) -> &'a str {
    index.lines.word("operator_classes").split("; ").next().unwrap_or_default()
}

/// Whether an index of this method finds few rows by such a comparison with its first column.
pub(super) fn serves(index: &Thing<'_>, how: Use) -> bool {
    let class = class_of(index);
    match index.lines.word("method") {
        "brin" => false,
        "gin" => !class.is_empty() && !LOOKS_INSIDE.contains(&class) && how.is_compared(),
        "hash" => matches!(how, Use::Equality | Use::Join),
        // The order of these classes is byte by byte, whatever the collation.
        _ if class.ends_with("_pattern_ops") => matches!(how, Use::Equality | Use::Join),
        _ => how.is_compared(),
    }
}

/// How conditions compare a column itself: the comparison that narrows the search most.
fn how_compared(conditions: &[Condition], column: &str) -> Option<Use> {
    let of_column = conditions.iter().filter(|c| c.column == column && c.inside.is_none());
    of_column.map(|c| c.how).filter(|how| how.is_compared()).min()
}

/// How many different values a column has, by the statistics of the server.
fn different_values(case: &Case, planned: &Planned<'_>, relation: &str, column: &str) -> Option<f64> {
    let wanted = planned.statement.database.as_str();
    let table =
        case.at("plan_table", planned.time.node.as_str()).find(|table| is_in(table, wanted, relation))?;
    let of = |one: &str| one.strip_prefix(column)?.strip_prefix(' ')?.parse().ok();
    table.lines.word("column_values").split("; ").find_map(of)
}

/// An index that the plan of a statement gives reason for.
pub(in crate::rules) struct Proposal {
    /// The commands that create it.
    pub(in crate::rules) commands: Vec<String>,
    /// What the plan shows.
    pub(in crate::rules) evidence: Vec<String>,
    /// What would prove more.
    pub(in crate::rules) lacking: Option<String>,
    /// Planner's cost without and with it, if it was tried.
    pub(in crate::rules) costs: Option<(f64, f64)>,
    pub(in crate::rules) relation: String,
    /// Its columns.
    pub(in crate::rules) columns: Vec<String>,
    rows: f64,
    kept: f64,
}

/// What a trial of an index by hypopg showed.
struct Trial {
    /// Planner's cost without and with it.
    costs: Option<(f64, f64)>,
    words: Option<String>,
    /// What would prove more.
    lacking: Option<String>,
}

/// The trial of this command; `None` if the planner would not use the index, or gain nothing by it.
fn tried(case: &Case, planned: &Planned<'_>, command: &str) -> Option<Trial> {
    let trial = case.at("what_if", planned.time.node.as_str()).find(|trial| {
        trial.lines.word("query_id") == planned.statement.query_id && trial.lines.word("change") == command
    });
    let costs =
        trial.and_then(|trial| Some((trial.lines.last("cost_before")?, trial.lines.last("cost_after")?)));
    let Some((before, after)) = costs else {
        let lacking = match trial.map(|trial| trial.lines.word("why_not")) {
            Some(why) if !why.is_empty() => format!("a trial of the index: {why}"),
            _ => "a trial of the index: the extension hypopg lets the planner try it".to_string(),
        };
        return Some(Trial { costs, words: None, lacking: Some(lacking) });
    };
    let is_used = trial.and_then(|trial| trial.lines.flag("used")) == Some(true);
    if !is_used || after > before * CHEAPER_FACTOR {
        return None;
    }
    let size = trial.and_then(|trial| trial.lines.last("bytes"));
    let size = size.map_or(String::new(), |bytes| format!("; it would have about {}", units::bytes(bytes)));
    let words = format!(
        "tried with hypopg: with this index the planner's cost falls from {} to {}{size}",
        units::short(before),
        units::short(after)
    );
    let lacking = Some("the time of an execution with the index: costs are estimates".to_string());
    Some(Trial { costs, words: Some(words), lacking })
}

/// Why columns of the condition are not among those of the index.
fn without(all: &[String], columns: &[String]) -> Option<String> {
    let spared: Vec<&str> = all.iter().filter(|one| !columns.contains(one)).map(String::as_str).collect();
    (!spared.is_empty()).then(|| {
        format!(
            "{} would narrow the search no further, by the statistics of the columns: it only makes the index larger, and updates of it dearer",
            spared.join(", ")
        )
    })
}

/// The index for the most wasteful scan of a plan; `None` if there is one already, or the planner would not use it.
pub(in crate::rules) fn proposal(case: &Case, planned: &Planned<'_>) -> Option<Proposal> {
    let mut scans = scans_of(planned);
    scans.retain(|scan| scan.keeps_few() && !scan.is_minor());
    let scan = scans.into_iter().max_by(|left, right| left.rows.total_cmp(&right.rows))?;
    if distance::is_compared(scan.filter) {
        return None;
    }
    let all = statement::index_columns(&scan.conditions);
    let values = |column: &str| different_values(case, planned, scan.relation, column);
    let columns = statement::narrowing(all.clone(), &scan.conditions, scan.rows, values);
    let first = columns.first()?;
    let how = how_compared(&scan.conditions, first)?;
    // Of a range and an operator that another kind of index serves, the plan does not show which leaves few rows: a range of unknown values keeps a third.
    let is_range = columns.iter().all(|column| how_compared(&scan.conditions, column) == Some(Use::Range));
    let has_operator = |part: statement::Conjunct| matches!(part.form, statement::Form::Operator(_));
    if is_range && statement::conjuncts(scan.filter).unwrap_or_default().into_iter().any(has_operator) {
        return None;
    }
    let has_one = |(index, found): &(Thing<'_>, Vec<&str>)| {
        // One that finds equal values alone, as a hash index, is what PLAN-11 reports.
        found.first() == Some(&first.as_str()) && (serves(index, how) || serves(index, Use::Equality))
    };
    if indexes(case, planned, scan.relation).iter().any(has_one) {
        return None;
    }
    let command = statement::index_command(scan.relation, &columns, true);
    let mut evidence = vec![
        format!("the plan filters {} by {}", scan.relation, scan.filter),
        format!("the plan: plans/{}-{}.json", planned.statement.query_id, planned.plan.lines.word("hash")),
    ];
    let Trial { costs, words, lacking } = tried(case, planned, &command)?;
    evidence.push(words.unwrap_or_else(|| {
        format!(
            "it would take about {}, at {BYTES_PER_ENTRY:.0} bytes for each row, and each inserted row writes it",
            units::bytes(scan.rows * BYTES_PER_ENTRY)
        )
    }));
    evidence.extend(also_by_pattern(&scan));
    evidence.extend(without(&all, &columns));
    let mut commands = vec![command, format!("ANALYZE {};", scan.relation)];
    if scan.is_partition {
        commands.insert(
            0,
            "-- the same for each partition, then on the partitioned table itself, which adopts them"
                .to_string(),
        );
    }
    Some(Proposal {
        commands,
        evidence,
        lacking,
        costs,
        relation: scan.relation.to_string(),
        columns,
        rows: scan.rows,
        kept: scan.kept,
    })
}

/// A column that the scan searches by a pattern besides.
fn also_by_pattern(scan: &Scan<'_>) -> Option<String> {
    let searched = scan.conditions.iter().find(|c| c.how == Use::Pattern && c.inside.is_none())?;
    Some(format!(
        "it also searches {0} by a pattern: if that begins with fixed characters, the same index serves it with {0} text_pattern_ops as its last column",
        statement::quoted(&searched.column)
    ))
}

/// Bytes of a page, by default.
const PAGE_BYTES: f64 = 8_192.0;
/// Executions a second from which on counters show whether a plan is the one that is carried out.
const CALLS_PER_S_KNOWN: f64 = 1.0;

/// Whether executions scan a table as the plan does: a plan that was looked at before the table grew, or with other statistics, may be another one.
pub(super) fn is_carried_out(case: &Case, planned: &Planned<'_>, relation: &str) -> bool {
    let is_of_it = |node: &Thing<'_>| node.lines.word("relation") == relation;
    let calls = planned.statement.calls_per_s.unwrap_or(0.0);
    let blocks = planned.statement.blocks.unwrap_or(0.0);
    // Of some executions only, which touch the most.
    let sizes =
        case.at("table", &planned.time.node).filter(is_of_it).filter_map(|table| table.lines.last("bytes"));
    let pages = sizes.fold(0.0, f64::max) / PAGE_BYTES;
    let tables = case.at("table", &planned.time.node).filter(is_of_it);
    let scans = tables.filter_map(|table| table.lines.rate("seq_scans")).max_by(f64::total_cmp);
    let is_scan = |node: &Thing<'_>| is_of_it(node) && node.lines.word("kind") == "Seq Scan";
    !planned.nodes.iter().any(is_scan)
        || calls < CALLS_PER_S_KNOWN
        || scans.is_none_or(|scans| scans * 2.0 >= calls || scans * pages >= calls * blocks / 2.0)
}

pub(super) fn missing(case: &Case) -> Answer {
    let mut claims = vec![];
    for planned in planned(case, SHARE_MIN) {
        // Where counters show the scans as well, PLAN-01 has the same proposal.
        if scans(case, &planned.time.node, planned.statement) {
            continue;
        }
        // Most of it is compilation: an index takes none of that away.
        if compiled_share(planned.statement) >= planned.statement.share * COMPILED_MAX {
            continue;
        }
        let Some(proposal) = proposal(case, &planned) else { continue };
        if !is_carried_out(case, &planned, &proposal.relation) {
            continue;
        }
        let level = if proposal.costs.is_some() { Level::WhatIf } else { Level::CoOccurrence };
        let is_unknown = wanted(&planned, &proposal.relation) == Wanted::Unknown;
        let most = if is_unknown { Severity::Low } else { Severity::High };
        let text = format!(
            "a statement that takes {} of the session time scans {} rows of {} for {}: no index begins with {}",
            planned.share(),
            units::short(proposal.rows),
            proposal.relation,
            match is_unknown {
                true => "an aggregate over those that fit".to_string(),
                false => units::short(proposal.kept),
            },
            proposal.columns.join(" or ")
        );
        let claim = planned
            .claim(case, level, severity(planned.statement.share).min(most), text)
            .number("rows_of_table", proposal.rows)
            .number("rows_planned", proposal.kept);
        let claim = if is_unknown { claim.lacking(HOW_MANY_FIT).number(UNSURE, 1.0) } else { claim };
        claims.push(with_proposal(claim, &proposal));
    }
    Answer::of(claims, || "sequential scans in the plans of statements that take the time".to_string())
}

/// Adds what a proposal shows and what to type.
pub(in crate::rules) fn with_proposal(claim: Claim, proposal: &Proposal) -> Claim {
    let mut claim = claim;
    for sentence in &proposal.evidence {
        claim = claim.because(sentence);
    }
    if let Some(sentence) = &proposal.lacking {
        claim = claim.lacking(sentence);
    }
    if let Some((before, after)) = proposal.costs {
        claim = claim.number("cost_before", before).number("cost_after", after);
    }
    let commands: Vec<&str> = proposal.commands.iter().map(String::as_str).collect();
    claim.remedy(
        "create an index for the columns of its condition: those compared by equality first (CONCURRENTLY does not block writes, and must not \
            run in a transaction); every index slows writes to its table",
        &commands,
    )
}

/// Whether an index can hold what a function makes of a column: it has that one argument, and no time zone of the session decides.
fn can_be_indexed(condition: &Condition, function: &str, types: &str) -> bool {
    let has_one = condition.computed.as_ref().is_some_and(|computed| {
        let inside = computed.strip_suffix(')').and_then(|text| text.split_once('('));
        inside.is_some_and(|(name, argument)| {
            name.eq_ignore_ascii_case(function) && !argument.contains([',', '$', '(', ' '])
        })
    });
    let zoned = format!("{} timestamp with time zone", condition.column);
    has_one && !types.split("; ").any(|column| column == zoned)
}

/// The same where the order of an index is another one than the condition needs, or it has none.
fn by_order(scan: &Scan<'_>, condition: &Condition, index: &Thing<'_>) -> Option<(String, Option<String>)> {
    if let Some(differs) = scan.differs(index, condition) {
        return Some(collation::obstacle(scan.relation, condition, index.lines.word("index"), &differs));
    }
    let is_range = condition.how == Use::Range && condition.inside.is_none();
    (is_range && !serves(index, Use::Range)).then(|| collation::no_order(scan.relation, condition, index))
}

/// Why an index on the column of a condition is not used, and what to do.
fn obstacle(
    condition: &Condition,
    scan: &Scan<'_>,
    index: &Thing<'_>,
    columns: &[&str],
) -> Option<(String, Option<String>)> {
    let (conditions, relation) = (&scan.conditions, scan.relation);
    let name = index.lines.word("index");
    let position = columns.iter().position(|column| *column == condition.column)?;
    if index.lines.flag("valid") == Some(false) {
        let schema = statement::schema_of(relation);
        let command = format!("REINDEX INDEX CONCURRENTLY {schema}.{};", statement::quoted(name));
        return Some((
            format!("index {name} is invalid: its CREATE INDEX CONCURRENTLY failed"),
            Some(command),
        ));
    }
    // The order of their columns does not matter to other methods, and they compare in other ways.
    if !serves(index, Use::Equality) {
        return None;
    }
    if position == 0
        && let Some(found) = by_order(scan, condition, index)
    {
        return Some(found);
    }
    if position == 0
        && let Some(inside) = &condition.inside
    {
        let command = inside
            .strip_prefix("function ")
            .filter(|function| can_be_indexed(condition, function, scan.types))
            .map(|function| {
                format!(
                    "CREATE INDEX CONCURRENTLY ON {relation} ({function}({}));",
                    statement::quoted(&condition.column)
                )
            });
        return Some((
            format!("index {name} is on {}, and the condition compares {inside} of it", condition.column),
            command,
        ));
    }
    if position == 0 && index.lines.flag("partial") == Some(true) && condition.how.is_compared() {
        let definition = index.lines.word("definition");
        let only = definition.split_once(" WHERE ").map_or("", |(_, only)| only);
        let columns: Vec<String> = columns.iter().map(|column| (*column).to_string()).collect();
        return Some((
            format!(
                "index {name} is partial: it holds only the rows WHERE {only}, and the condition does not say that in a form the planner can prove"
            ),
            Some(statement::index_command(relation, &columns, true)),
        ));
    }
    let is_later = position > 0 && condition.inside.is_none() && condition.how.is_compared();
    if is_later && how_compared(conditions, columns[0]).is_none() {
        let wanted = statement::index_columns(conditions);
        return Some((
            format!(
                "index {name} begins with {}, which the condition does not compare; {} comes later in it, and no index begins with {}",
                columns[0],
                condition.column,
                wanted.join(", ")
            ),
            Some(statement::index_command(relation, &wanted, true)),
        ));
    }
    None
}

/// Why no index of the table fits the conditions of a scan, although one is on a compared column.
pub(super) fn obstacle_of(
    case: &Case,
    planned: &Planned<'_>,
    scan: &Scan<'_>,
) -> Option<(String, Option<String>)> {
    let found = indexes(case, planned, scan.relation);
    // A usable index that the planner leaves aside is no obstacle: most rows are wanted.
    let usable = found.iter().any(|(index, columns)| {
        let is_left_out = index.lines.flag("partial") == Some(true) && scan.keeps_few();
        index.lines.flag("valid") != Some(false)
            && !is_left_out
            && scan.conditions.iter().any(|c| {
                let is_first = columns.first() == Some(&c.column.as_str()) && c.inside.is_none();
                is_first && serves(index, c.how) && scan.differs(index, c).is_none()
            })
    });
    // Patterns are served by other indexes.
    let compared = scan.conditions.iter().filter(|c| !c.how.is_pattern());
    let mut obstacles = found
        .iter()
        .filter(|_| !usable)
        .flat_map(|(index, columns)| compared.clone().filter_map(|c| obstacle(c, scan, index, columns)));
    obstacles.next().or_else(|| {
        let of_array = found
            .iter()
            .filter(|_| !usable)
            .find_map(|(index, columns)| member_of_array(scan, index, columns));
        let mut in_order = found.iter().filter(|(index, _)| !usable && serves(index, Use::Equality));
        let mut for_equality = in_order.clone();
        of_array
            .or_else(|| for_equality.find_map(|(index, columns)| not_distinct(scan, index, columns)))
            .or_else(|| in_order.find_map(|(index, columns)| inside_a_call(scan, index, columns)))
            .or_else(|| {
                found
                    .iter()
                    .filter(|_| !usable)
                    .find_map(|(index, _)| otherwise::nearly(scan.filter, &scan.conditions, index))
            })
    })
}

/// `value = ANY (column)`: a GIN index of the column answers `column @> ARRAY[value]`, which means the same, and not this.
fn member_of_array(scan: &Scan<'_>, index: &Thing<'_>, columns: &[&str]) -> Option<(String, Option<String>)> {
    let is_of_column = |column: &&&str| {
        let written = [format!("ANY ({column})"), format!(".{column})")];
        scan.filter.contains("= ANY (") && written.iter().any(|text| scan.filter.contains(text.as_str()))
    };
    let column = columns.iter().find(is_of_column).filter(|_| index.lines.word("method") == "gin")?;
    let name = index.lines.word("index");
    let why = format!(
        "index {name} on {column} is a GIN index, which answers {column} @> ARRAY[value], and not value = ANY ({column})"
    );
    Some((why, None))
}

/// `column IS NOT DISTINCT FROM value`, which plans show as NOT (column IS DISTINCT FROM value): no index method has such an operator.
fn not_distinct(scan: &Scan<'_>, index: &Thing<'_>, columns: &[&str]) -> Option<(String, Option<String>)> {
    let compared: Vec<&str> = scan
        .filter
        .match_indices(" IS DISTINCT FROM ")
        .filter_map(|(at, _)| scan.filter[..at].rsplit_once("NOT (").map(|(_, operand)| operand))
        .collect();
    let column = columns.first().filter(|column| {
        let is_it = |operand: &&str| {
            let bare = operand.trim_matches(['(', ')']).split(")::").next().unwrap_or_default();
            bare.rsplit('.').next().is_some_and(|name| name.trim_matches('"') == **column)
        };
        compared.iter().any(is_it)
    })?;
    let name = index.lines.word("index");
    let why = format!(
        "index {name} begins with {column}, and the condition compares it by IS NOT DISTINCT FROM, which no index serves: write {column} = value, and \
         {column} IS \
         NULL where the value is null"
    );
    Some((why, None))
}

/// A function of several arguments, one of them the first column of an index.
fn inside_a_call(scan: &Scan<'_>, index: &Thing<'_>, columns: &[&str]) -> Option<(String, Option<String>)> {
    let column = columns.first().filter(|column| !column.is_empty())?;
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let named = format!(".{column}");
    let found = scan.filter.match_indices(&named).find_map(|(at, _)| {
        let is_whole = !scan.filter[at + named.len()..].starts_with(is_name);
        let before = &scan.filter[..at];
        let open = before.rfind('(')?;
        let function: String = before[..open].chars().rev().take_while(|c| is_name(*c)).collect();
        let function: String = function.chars().rev().collect();
        let is_call = before[open..].contains(',') && !function.is_empty();
        (is_whole && is_call).then_some(function)
    })?;
    let name = index.lines.word("index");
    Some((format!("index {name} is on {column}, and the condition compares {found}() of it"), None))
}
