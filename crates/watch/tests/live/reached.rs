//! Servers that are hard to look at: they write at each login, or forget their statements before anybody can read them.

use super::watched::{Watch, client, major, on_each};
use record::watched::Sampled;

/// An event trigger that writes down each login refuses a session that only reads from its begin.
#[test]
fn a_server_that_writes_at_each_login_is_watched_by_a_session_that_only_reads() {
    on_each(&[], |server| {
        // Before there was no such event.
        if major(server) < 17 {
            return;
        }
        let mut setup = client(server, "setup");
        setup
            .batch_execute(
                "create table login (who text); \
                 create function greets() returns event_trigger language plpgsql as 'begin insert into public.login values (session_user); end'; \
                 create event trigger greets on login execute function greets(); alter event trigger greets enable always",
            )
            .unwrap();
        let mut watch = Watch::of(&server.spec());
        let commits = watch.until("the server", |line| match line {
            Sampled::Server(server) => server.xact_commit,
            _ => None,
        });
        assert!(commits < 1_000, "{commits}");
        let mut count =
            || setup.query_one("select count(*) from login", &[]).expect("it runs").get::<_, i64>(0);
        let begun = count();
        assert!(begun > 0, "the trigger has seen our session");
        let only_reads: bool = client(server, "look")
            .query_one(
                "select count(*) = 0 from pg_stat_activity where application_name = 'pgfathom watch' and backend_xid is not null",
                &[],
            )
            .unwrap()
            .get(0);
        assert!(only_reads);
        watch.tick();
        // Its sessions are not opened anew for each look.
        assert!(count() <= begun + 2, "{begun}");
    });
}

/// Statements of more forms than the extension keeps.
#[test]
fn entries_that_are_thrown_away_are_counted() {
    let settings = [("shared_preload_libraries", "pg_stat_statements"), ("pg_stat_statements.max", "100")];
    on_each(&settings, |server| {
        let mut setup = client(server, "setup");
        setup.batch_execute("create extension pg_stat_statements; create table item (n int)").unwrap();
        let mut watch = Watch::of(&server.spec());
        watch.tick();
        for columns in 1..=400 {
            let list = vec!["n"; columns].join(" + ");
            setup.batch_execute(&format!("select {list} from item")).unwrap();
        }
        watch.skip(std::time::Duration::from_secs(10));
        let batch = watch.tick();
        let evictions = batch.lines.iter().find_map(|(_, _, line)| match line {
            Sampled::StatementRest(rest) => rest.evictions,
            _ => None,
        });
        let is_counted = major(server) >= 14;
        assert_eq!(evictions.is_some_and(|count| count > 5), is_counted, "{evictions:?}");
    });
}
