//! What no view of statements has, and what a look must not disturb: statements that never end, tables that a session has for itself, definitions of views.

use super::plans::{PRELOAD, end, nodes};
use super::watched::{Watch, client, on_each};
use record::event;
use record::watched::{Sampled, VIEW_TEXT};
use std::time::Duration;

/// The texts of statements that were recorded.
fn texts(watch: &Watch) -> Vec<(String, bool)> {
    let queries = watch.seen.events.iter().filter(|event| event.kind == event::QUERY);
    let of = |event: &event::Event, name: &str| {
        event.more.get(name).and_then(|value| value.as_str()).unwrap_or_default().to_string()
    };
    queries.map(|event| (of(event, "text"), of(event, "from") == "sessions")).collect()
}

#[test]
fn a_statement_that_is_always_cancelled_has_its_text_and_its_plan() {
    on_each(&[PRELOAD], |server| {
        let mut setup = client(server, "setup");
        setup
            .batch_execute(
                "create extension pg_stat_statements; create table track (id int, parcel int); \
                 insert into track select g, g % 1000 from generate_series(1, 200000) g; analyze track",
            )
            .unwrap();
        let version: i32 =
            setup.query_one("select current_setting('server_version_num')::int", &[]).unwrap().get(0);
        let text = "select count(*) from track a, track b where a.parcel < b.id and a.id + b.id > 4711";
        let mut portal = client(server, "portal");
        portal.batch_execute("set statement_timeout = '8s'").unwrap();
        let work = std::thread::spawn(move || portal.batch_execute(text));
        let mut watch = Watch::of(&server.spec());
        for _ in 0..8 {
            watch.tick();
            watch.skip(Duration::from_secs(3));
            std::thread::sleep(Duration::from_millis(300));
        }
        end(&mut watch);
        assert!(work.join().unwrap().is_err(), "cancelled");
        // Sessions have the id of their statement since PostgreSQL 14.
        if version < 140_000 {
            return;
        }
        let found = texts(&watch);
        let own = found.iter().find(|(text, _)| text.contains("from track a")).expect("its text");
        assert!(own.1 && !own.0.contains("4711"), "of sessions, without constants: {own:?}");
        assert!(
            nodes(&watch).iter().any(|node| node.relation == "public.track"),
            "{}",
            watch.why_missing("plans")
        );
    });
}

#[test]
fn tables_that_a_session_has_for_itself_are_left_alone() {
    on_each(&[PRELOAD, ("log_min_error_statement", "error")], |server| {
        let mut setup = client(server, "setup");
        setup
            .batch_execute(
                "create extension pg_stat_statements; create table invoice (id int, total int default 7) partition by range (id); \
                 create table invoice_1 partition of invoice for values from (0) to (100000); \
                 insert into invoice select g from generate_series(1, 50000) g; analyze invoice; \
                 create view totals as select total, count(*) n from invoice where total <> 4711 group by total",
            )
            .unwrap();
        for _ in 0..50 {
            setup
                .batch_execute(
                    "select count(*) from invoice where total = 3; select n from totals where total = 3",
                )
                .unwrap();
        }
        let mut holder = client(server, "holder");
        holder.batch_execute("begin; lock table invoice in access exclusive mode").unwrap();
        let mut watch = Watch::of(&server.spec());
        for _ in 0..4 {
            watch.tick();
            watch.skip(Duration::from_secs(10));
        }
        holder.batch_execute("rollback").unwrap();
        let log = server.log();
        let ours: Vec<&str> = log.lines().filter(|line| line.contains("lock timeout")).collect();
        assert!(ours.is_empty(), "{ours:?}");
        for _ in 0..50 {
            setup
                .batch_execute(
                    "select count(*) from invoice where total = 4; select n from totals where total = 4",
                )
                .unwrap();
        }
        watch.tick();
        end(&mut watch);
        let is_view = |line: &Sampled| match line {
            Sampled::Fact(fact) => {
                (fact.topic == VIEW_TEXT && fact.name == "public.totals").then(|| fact.value.clone())
            }
            _ => None,
        };
        let view = watch.seen.lines.iter().find_map(|(_, _, line)| is_view(line)).expect("the view");
        assert!(view.contains("GROUP BY") && !view.contains("4711"), "{view}");
    });
}

#[test]
fn the_memory_of_sessions_is_read_by_application() {
    on_each(&[], |server| {
        // A prepared statement of its own for each request is kept until the session ends.
        let mut billing = client(server, "billing");
        let mut quiet = client(server, "quiet");
        quiet.batch_execute("select 1").unwrap();
        let mut watch = Watch::of(&server.spec());
        let mut next = 0;
        for _ in 0..5 {
            for _ in 0..200 {
                next += 1;
                let columns: Vec<String> = (0..40).map(|at| format!("g + {at} as c{at}")).collect();
                let text = format!(
                    "prepare p{next} as select {} from generate_series(1, {next}) g",
                    columns.join(", ")
                );
                billing.batch_execute(&format!("{text}; execute p{next}")).unwrap();
            }
            watch.tick();
            watch.skip(Duration::from_secs(5));
        }
        let of = |application: &str| -> Vec<u64> {
            let lines = watch.seen.lines.iter().filter_map(|(_, _, line)| match line {
                Sampled::SessionMemory(line) if line.application == application => line.private_bytes,
                _ => None,
            });
            lines.collect()
        };
        let (billing, quiet) = (of("billing"), of("quiet"));
        assert!(billing.len() >= 3 && quiet.len() >= 3, "{billing:?} {quiet:?}");
        assert!(billing.windows(2).all(|pair| pair[1] > pair[0]), "{billing:?}");
        assert!(billing.last() > billing.first().map(|first| first + 4_000_000).as_ref(), "{billing:?}");
        assert!(quiet.last() < quiet.first().map(|first| first + 2_000_000).as_ref(), "{quiet:?}");
    });
}
