//! Cases of nodes that all take writes: conflicts, forks, and locks or isolation levels that hold on one node only.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use connect::cluster_file::Role;

use engines::profile::Case;

use super::super::{Answer, HermitageError};
use super::{
    LIMIT, LOOK, PendingUndo, QUIET, ScriptedSession, Stage, expected, of_role, stale_reads, timed_out,
};
use crate::fault::Site;
use crate::live::tables::{Shape, Tables, converge};
use engines::profile::Isolation;

const SHAPE: Shape = Shape {
    name: "hermitage",
    columns: "id int not null, value int not null, who text, u int unique",
    key: Some("shard, id"),
};
const TABLE: &str = "pgfathom_prove.hermitage";

/// The nodes that answer now.
fn answering(site: &Site) -> Vec<usize> {
    let away = site.absent_nodes();
    let is_away = |node: &usize| away.iter().any(|(name, _)| *name == site.nodes[*node].name);
    of_role(site, Role::Peer).into_iter().filter(|node| !is_away(node)).collect()
}

/// Runs all cases between the first two nodes that answer.
pub(super) fn play(stage: &mut Stage<'_>) -> Result<(), HermitageError> {
    let site = stage.site;
    let there = answering(site);
    let away: Vec<&str> = of_role(site, Role::Peer)
        .into_iter()
        .filter(|node| !there.contains(node))
        .map(|node| site.nodes[node].name.as_str())
        .collect();
    if !away.is_empty() {
        let without =
            if there.len() < 2 { "no case between nodes was played" } else { "no case is played there" };
        site.note(format!("{} did not answer at the begin: {without}", away.join(" and ")));
    }
    let [first, second, ..] = there[..] else { return Ok(()) };
    let pair = [first, second];
    conflicts(stage, pair)?;
    isolation(stage, pair)?;
    read_your_writes(stage, pair)
}

/// Two nodes write the same row at once.
fn conflicts(stage: &mut Stage<'_>, pair: [usize; 2]) -> Result<(), HermitageError> {
    let engine = stage.site.engine;
    let conflict = |title| {
        let promise =
            "when two nodes write the same row at once, one is refused or waits, and all nodes agree";
        Answer { why: engine.conflict_rule(), ..expected(Case::Conflict, engine, title, promise) }
    };
    stage.play(conflict("conflict: two nodes update the same row at once"), &[], |site, answer| {
        same_row(site, pair, answer)
    })?;
    stage.play(conflict("conflict: two nodes insert the same key at once"), &pair, |site, answer| {
        same_key(
            site,
            pair,
            ["VALUES (1, 3, 1, 'first', 31)", "VALUES (1, 3, 2, 'second', 32)"],
            "id = 3",
            answer,
        )
    })?;
    stage.play(
        conflict("conflict: two nodes insert the same unique value at once"),
        &pair,
        |site, answer| {
            same_key(
                site,
                pair,
                ["VALUES (1, 4, 1, 'first', 40)", "VALUES (1, 5, 2, 'second', 40)"],
                "u = 40",
                answer,
            )
        },
    )?;
    Ok(())
}

/// Locks and isolation levels between two nodes.
fn isolation(stage: &mut Stage<'_>, pair: [usize; 2]) -> Result<(), HermitageError> {
    let engine = stage.site.engine;
    let answer = expected(
        Case::Deadlock,
        engine,
        "locks in opposite order on two nodes",
        "a deadlock over two nodes is found and ended",
    );
    stage.play(answer, &[], |site, answer| opposite_locks(site, pair, answer))?;
    let answer = Answer {
        level: Some(Isolation::Serializable),
        ..expected(
            Case::Serializable,
            engine,
            "write skew over two nodes: both read two rows, each writes another one",
            "SERIALIZABLE refuses write skew also between nodes",
        )
    };
    stage.play(answer, &[], |site, answer| write_skew(site, pair, answer))?;
    let answer = Answer {
        level: Some(Isolation::RepeatableRead),
        ..expected(
            Case::LongFork,
            engine,
            "long fork: two nodes show two writes in opposite orders",
            "all nodes show commits in one order",
        )
    };
    stage.play(answer, &[], |site, answer| long_fork(site, pair, answer))
}

/// What one node acknowledged, read on another one.
fn read_your_writes(stage: &mut Stage<'_>, pair: [usize; 2]) -> Result<(), HermitageError> {
    let engine = stage.site.engine;
    let (chance, stop) = (*stage.chance, stage.stop);
    let ryw = |title| {
        expected(
            Case::ReadYourWrites,
            engine,
            title,
            "a node shows at once what was acknowledged on another one",
        )
    };
    stage.play(
        ryw("read your writes: an acknowledged write is missing on another node"),
        &[],
        |site, answer| held_read(site, pair, answer),
    )?;
    stage.play(
        ryw("read your writes by chance: read on another node right after the acknowledgement"),
        &[],
        |site, answer| by_chance(site, pair, chance.reads, stop, answer),
    )
}

/// Two rows on every node.
struct Rows<'a> {
    site: &'a Site,
    tables: Option<Tables>,
}

impl<'a> Rows<'a> {
    fn make(site: &'a Site, [first, _]: [usize; 2]) -> Result<Rows<'a>, HermitageError> {
        let tables = Tables::make(site, &[SHAPE])?;
        let rows = Rows { site, tables: Some(tables) };
        let mut referee = ScriptedSession::open("referee", &site.nodes[first])?;
        referee
            .quietly(&format!("INSERT INTO {TABLE} VALUES (1, 1, 0, 'nobody', 1), (1, 2, 0, 'nobody', 2)"))?;
        rows.meet()?;
        Ok(rows)
    }

    /// Waits until every node that answers has what the others have written.
    fn meet(&self) -> Result<(), HermitageError> {
        let stuck = converge(self.site, &answering(self.site))?;
        match stuck.is_empty() {
            true => Ok(()),
            false => {
                Err(HermitageError::Refused { doing: "waiting for replication", message: stuck.join("; ") })
            }
        }
    }

    fn remove(mut self) -> Result<(), HermitageError> {
        if let Some(tables) = self.tables.take() {
            tables.remove(self.site);
        }
        Ok(())
    }
}

impl Drop for Rows<'_> {
    fn drop(&mut self) {
        if let Some(tables) = self.tables.take() {
            // The script was aborted; the next proof also drops the schema.
            tables.remove(self.site);
        }
    }
}

fn pair(
    site: &Site,
    [first, second]: [usize; 2],
) -> Result<(ScriptedSession, ScriptedSession), HermitageError> {
    Ok((ScriptedSession::open("a", &site.nodes[first])?, ScriptedSession::open("b", &site.nodes[second])?))
}

/// Sends a statement and takes its reply; `None`: it waits for the other node, which has to continue first.
fn one(
    session: &mut ScriptedSession,
    script: &mut Vec<String>,
    sql: &str,
) -> Result<Option<String>, HermitageError> {
    session.send(script, sql)?;
    let reply = session.session.reply_within(QUIET)?;
    Ok(reply.map(|reply| reply.sqlstate().map_or_else(|| reply.tag().to_owned(), str::to_owned)))
}

/// The outstanding reply.
fn late(session: &mut ScriptedSession, got: Option<String>) -> Result<String, HermitageError> {
    if let Some(got) = got {
        return Ok(got);
    }
    let reply = session.session.reply_within(LIMIT)?.ok_or_else(timed_out)?;
    Ok(reply.sqlstate().map_or_else(|| reply.tag().to_owned(), str::to_owned))
}

/// Both transactions begin, run their statement, and commit; returns the result of each COMMIT.
fn at_once(
    site: &Site,
    nodes: [usize; 2],
    level: Isolation,
    statements: [&[String]; 2],
    script: &mut Vec<String>,
) -> Result<[String; 2], HermitageError> {
    let (mut a, mut b) = pair(site, nodes)?;
    a.request(script, &level.begin())?;
    b.request(script, &level.begin())?;
    let mut open = [None, None];
    for step in 0..statements[0].len().max(statements[1].len()) {
        for (at, session) in [&mut a, &mut b].into_iter().enumerate() {
            if let Some(sql) = statements[at].get(step) {
                // On engines with shared locks the second one waits until the first has committed.
                let got = one(session, script, sql)?;
                open[at] = Some(got);
            }
        }
    }
    let mut ends = [String::new(), String::new()];
    for (at, session) in [&mut a, &mut b].into_iter().enumerate() {
        if let Some(got) = open[at].take() {
            late(session, got)?;
        }
        let got = one(session, script, "COMMIT")?;
        ends[at] = late(session, got)?;
    }
    Ok(ends)
}

/// What each node holds.
fn held(site: &Site, nodes: [usize; 2], columns: &str, filter: &str) -> Result<[String; 2], HermitageError> {
    let mut held = [String::new(), String::new()];
    for (at, node) in nodes.into_iter().enumerate() {
        let mut referee = ScriptedSession::open("referee", &site.nodes[node])?;
        held[at] = referee.quietly(&format!(
            "select coalesce(string_agg({columns}, ', ' order by id), 'nothing') from {TABLE} where {filter}"
        ))?;
    }
    Ok(held)
}

/// MC: both add one to the same row.
fn same_row(site: &Site, nodes: [usize; 2], answer: &mut Answer) -> Result<(), HermitageError> {
    let rows = Rows::make(site, nodes)?;
    let update =
        |who: &str| vec![format!("UPDATE {TABLE} SET value = value + 1, who = '{who}' WHERE id = 1")];
    let (first, second) = (update("first"), update("second"));
    let ends = at_once(site, nodes, Isolation::ReadCommitted, [&first, &second], &mut answer.script)?;
    rows.meet()?;
    let [here, there] = held(site, nodes, "value::text || ' by the ' || who", "id = 1")?;
    let acknowledged = ends.iter().filter(|end| *end == "COMMIT").count();
    let values = held(site, nodes, "value::text", "id = 1")?;
    let is_lost = values.iter().any(|value| *value != acknowledged.to_string()) || here != there;
    answer.happened = Some(is_lost);
    answer.line = format!(
        "{acknowledged} increments acknowledged; {} holds {here}, {} holds {there}",
        site.nodes[nodes[0]].name, site.nodes[nodes[1]].name
    );
    rows.remove()
}

/// Repairs a node that cannot apply a row: it deletes its own row (changes with an origin are not sent to the others), and disabled subscriptions
/// are enabled again.
fn forget(filter: &str, subscriptions: &[String]) -> Vec<String> {
    let origin = format!("pgfathom_{}", std::process::id());
    let mut sql = vec![
        format!(
            "select pg_catalog.pg_replication_origin_create('{origin}') where pg_catalog.pg_replication_origin_oid('{origin}') is null"
        ),
        format!("select pg_catalog.pg_replication_origin_session_setup('{origin}')"),
        format!(
            "do $$ begin if pg_catalog.to_regclass('{TABLE}') is not null then delete from {TABLE} where {filter}; end if; end $$"
        ),
        "select pg_catalog.pg_replication_origin_session_reset()".to_owned(),
        format!("select pg_catalog.pg_replication_origin_drop('{origin}')"),
    ];
    sql.extend(subscriptions.iter().map(|name| format!("ALTER SUBSCRIPTION {name} ENABLE")));
    sql
}

/// How applying goes on a node.
struct Applying {
    name: String,
    referee: ScriptedSession,
    /// Its enabled subscriptions, as identifiers.
    subscriptions: Vec<String>,
    errors: u64,
}

impl Applying {
    fn watch(site: &Site, node: usize) -> Result<Applying, HermitageError> {
        let mut referee = ScriptedSession::open("referee", &site.nodes[node])?;
        let names = referee.request(
            &mut Vec::new(),
            "select pg_catalog.quote_ident(subname) from pg_catalog.pg_subscription where subenabled order by 1",
        )?;
        let subscriptions = names.all_rows().map(crate::client::row_text).collect();
        let mut applying =
            Applying { name: site.nodes[node].name.clone(), referee, subscriptions, errors: 0 };
        applying.errors = applying.count()?;
        Ok(applying)
    }

    /// Errors of subscriptions so far. An engine that replicates by other means may run on a release without that view.
    fn count(&mut self) -> Result<u64, HermitageError> {
        if self.subscriptions.is_empty() {
            return Ok(0);
        }
        let sql =
            "select coalesce(sum(apply_error_count), 0)::int8 from pg_catalog.pg_stat_subscription_stats";
        Ok(self.referee.quietly(sql)?.parse().unwrap_or(0))
    }

    /// Whether replication has stopped since: a subscription was disabled, or retries continuously.
    fn has_stopped(&mut self) -> Result<bool, HermitageError> {
        if self.subscriptions.is_empty() {
            return Ok(false);
        }
        // A subscription with an error is counted first and disabled afterwards: enable it only after that.
        let sql = "select count(*) from pg_catalog.pg_subscription where subenabled";
        let enabled: usize = self.referee.quietly(sql)?.parse().unwrap_or(0);
        if enabled < self.subscriptions.len() {
            return Ok(true);
        }
        let sql = "select count(*) from pg_catalog.pg_subscription where subenabled and not subdisableonerr";
        let goes_on = self.referee.quietly(sql)? != "0";
        Ok(goes_on && self.count()? > self.errors)
    }
}

/// MC: both insert a row, and no node can hold both. Replication stops until each has deleted its own row.
fn same_key(
    site: &Site,
    nodes: [usize; 2],
    values: [&str; 2],
    filter: &str,
    answer: &mut Answer,
) -> Result<(), HermitageError> {
    let rows = Rows::make(site, nodes)?;
    let mut applying = [Applying::watch(site, nodes[0])?, Applying::watch(site, nodes[1])?];
    let mut undos = Vec::new();
    for (node, applying) in std::iter::zip(nodes, &applying) {
        undos.push(PendingUndo::note(site, node, forget(filter, &applying.subscriptions))?);
    }
    let insert = |values: &str| [format!("INSERT INTO {TABLE} {values}")];
    let (first, second) = (insert(values[0]), insert(values[1]));
    let ends = at_once(site, nodes, Isolation::ReadCommitted, [&first, &second], &mut answer.script)?;
    let is_both = ends.iter().all(|end| end == "COMMIT");
    let mut stopped = Vec::new();
    if is_both {
        // Either applying fails, or a resolver has made them agree.
        let deadline = std::time::Instant::now() + LIMIT;
        loop {
            stopped.clear();
            for one in &mut applying {
                if one.has_stopped()? {
                    stopped.push(one.name.clone());
                }
            }
            let [here, there] = held(site, nodes, "who", filter)?;
            if stopped.len() == 2 || here == there || std::time::Instant::now() > deadline {
                break;
            }
            std::thread::sleep(LOOK);
        }
    }
    let [here, there] = held(site, nodes, "who", filter)?;
    answer.happened = Some(is_both);
    answer.line = match is_both {
        true => format!(
            "both got COMMIT; {} keeps the row of the {here}, {} that of the {there}{}",
            applying[0].name,
            applying[1].name,
            match stopped.as_slice() {
                [] => String::new(),
                names => format!("; replication stopped on {}", names.join(" and ")),
            }
        ),
        false => format!("a {}, b {}", ends[0], ends[1]),
    };
    if stopped.is_empty() {
        // Replication continues, so nothing has to be deleted.
        undos.iter_mut().for_each(PendingUndo::waive);
    } else {
        answer.script.push("-- each node must delete its own row before replication continues".to_owned());
        for undo in &mut undos {
            undo.carry_out()?;
        }
    }
    rows.meet()?;
    rows.remove()
}

/// DD: a deadlock if it were on one node.
fn opposite_locks(site: &Site, nodes: [usize; 2], answer: &mut Answer) -> Result<(), HermitageError> {
    let rows = Rows::make(site, nodes)?;
    let update =
        |who: &str, id: u32| format!("UPDATE {TABLE} SET value = value + 1, who = '{who}' WHERE id = {id}");
    let (first, second) =
        ([update("first", 1), update("first", 2)], [update("second", 2), update("second", 1)]);
    let ends = at_once(site, nodes, Isolation::ReadCommitted, [&first, &second], &mut answer.script)?;
    rows.meet()?;
    let [here, there] = held(site, nodes, "value::text || ' by the ' || who", "id in (1, 2)")?;
    // Neither waited for ever; that both overwrote each other is the previous case.
    answer.happened = Some(false);
    answer.line = format!(
        "a {}, b {}: {}; {} holds {here}, {} holds {there}",
        ends[0],
        ends[1],
        match ends.iter().all(|end| end == "COMMIT") {
            true => "neither saw the other's locks",
            false => "one was refused",
        },
        site.nodes[nodes[0]].name,
        site.nodes[nodes[1]].name
    );
    rows.remove()
}

/// ST: write skew between two nodes.
fn write_skew(site: &Site, nodes: [usize; 2], answer: &mut Answer) -> Result<(), HermitageError> {
    let rows = Rows::make(site, nodes)?;
    let side = |id: u32| {
        [
            format!("SELECT sum(value) FROM {TABLE} WHERE id IN (1, 2)"),
            format!("UPDATE {TABLE} SET value = 1 WHERE id = {id}"),
        ]
    };
    let (first, second) = (side(1), side(2));
    let ends = at_once(site, nodes, Isolation::Serializable, [&first, &second], &mut answer.script)?;
    rows.meet()?;
    answer.happened = Some(ends.iter().all(|end| end == "COMMIT"));
    answer.line = format!("both read a sum of 0, each writes one row: a {}, b {}", ends[0], ends[1]);
    rows.remove()
}

/// Locks a row on a node, so that replicated changes to it wait.
fn hold(
    site: &Site,
    node: usize,
    id: u32,
    script: &mut Vec<String>,
) -> Result<ScriptedSession, HermitageError> {
    let mut holder = ScriptedSession::open("holder", &site.nodes[node])?;
    holder.request(script, "BEGIN")?;
    holder.request(script, &format!("SELECT value FROM {TABLE} WHERE id = {id} FOR UPDATE"))?;
    Ok(holder)
}

/// LF: each node shows its own write, and that of the other one is delayed for a moment.
fn long_fork(site: &Site, nodes: [usize; 2], answer: &mut Answer) -> Result<(), HermitageError> {
    let rows = Rows::make(site, nodes)?;
    let script = &mut answer.script;
    let mut holders = [hold(site, nodes[0], 2, script)?, hold(site, nodes[1], 1, script)?];
    let (mut a, mut b) = pair(site, nodes)?;
    let write = |id: u32| format!("UPDATE {TABLE} SET value = 1 WHERE id = {id}");
    let first = one(&mut a, script, &write(1))?;
    let second = one(&mut b, script, &write(2))?;
    let mut seen = [String::new(), String::new()];
    for (at, who) in ["c", "d"].into_iter().enumerate() {
        let mut reader = ScriptedSession::open(who, &site.nodes[nodes[at]])?;
        reader.request(script, &Isolation::RepeatableRead.begin())?;
        let both = format!("SELECT string_agg(value::text, ' ' ORDER BY id) FROM {TABLE}");
        seen[at] = reader.value(script, &both)?;
        reader.request(script, "COMMIT")?;
    }
    for holder in &mut holders {
        holder.request(script, "ROLLBACK")?;
    }
    let acknowledged = [&first, &second].iter().all(|end| end.is_some());
    late(&mut a, first)?;
    late(&mut b, second)?;
    answer.happened = Some(acknowledged && seen == ["1 0", "0 1"]);
    answer.line = format!(
        "{} showed ({}), {} showed ({}){}",
        site.nodes[nodes[0]].name,
        seen[0],
        site.nodes[nodes[1]].name,
        seen[1],
        if acknowledged { "" } else { "; a commit waits until the other node has it" }
    );
    rows.meet()?;
    rows.remove()
}

/// RYW: a write whose replication to the other node is delayed for a moment.
fn held_read(site: &Site, nodes: [usize; 2], answer: &mut Answer) -> Result<(), HermitageError> {
    let rows = Rows::make(site, nodes)?;
    let script = &mut answer.script;
    let mut holder = hold(site, nodes[1], 1, script)?;
    let (mut a, mut b) = pair(site, nodes)?;
    let got = one(&mut a, script, &format!("UPDATE {TABLE} SET value = 1 WHERE id = 1"))?;
    let seen = b.value(script, &format!("SELECT value FROM {TABLE} WHERE id = 1"))?;
    holder.request(script, "ROLLBACK")?;
    answer.happened = Some(got.is_some() && seen == "0");
    answer.line = match &got {
        Some(_) => format!("a got COMMIT for 1, b read {seen} afterwards"),
        None => "a gets COMMIT only after the other node has it".to_owned(),
    };
    late(&mut a, got)?;
    rows.meet()?;
    rows.remove()
}

fn by_chance(
    site: &Site,
    nodes: [usize; 2],
    time: Duration,
    stop: &AtomicBool,
    answer: &mut Answer,
) -> Result<(), HermitageError> {
    let rows = Rows::make(site, nodes)?;
    let between = (&site.nodes[nodes[0]], &site.nodes[nodes[1]]);
    stale_reads(answer, between, TABLE, time, stop)?;
    rows.meet()?;
    rows.remove()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tables::SCHEMA;

    #[test]
    fn the_table_is_the_one_of_our_schema() {
        assert_eq!(TABLE, format!("{SCHEMA}.{}", SHAPE.name));
        assert!(
            forget("id = 3", &[])
                .iter()
                .any(|sql| sql.contains("delete from pgfathom_prove.hermitage where id = 3"))
        );
    }
}
