//! Counters that are added up over all databases.

use super::watched::{PATIENCE, Watch, client, on_each};
use lab::throwaway::Throwaway;
use postgres::Client;
use record::event;
use std::time::{Duration, Instant};

/// Fills a table of a database that will be dropped, until the server has counted its rows.
fn fill(server: &Throwaway, setup: &mut Client) {
    setup.batch_execute("create database trial").expect("it runs");
    let (socket, port) = (server.socket_dir().display(), server.port());
    let mut other = Client::connect(&format!("host='{socket}' port={port} user=postgres dbname=trial"))
        .expect("connects");
    other
        .batch_execute("create table t as select generate_series(1, 100000) n; select count(*) from t")
        .expect("it runs");
    drop(other);
    let counted = "select tup_returned >= 100000 from pg_stat_database where datname = 'trial'";
    let start = Instant::now();
    while !setup.query_one(counted, &[]).expect("it runs").get::<_, bool>(0) {
        assert!(start.elapsed() < PATIENCE, "the rows were not counted");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn resets(watch: &Watch) -> usize {
    watch.seen.events.iter().filter(|event| event.kind == event::RESET).count()
}

#[test]
fn a_database_that_is_dropped_takes_its_counters_away_which_is_no_reset() {
    on_each(&[], |server| {
        let mut setup = client(server, "setup");
        fill(server, &mut setup);
        let mut watch = Watch::of(&server.spec());
        watch.tick();
        watch.tick();
        setup.batch_execute("drop database trial").expect("it runs");
        watch.tick();
        watch.tick();
        assert_eq!(resets(&watch), 0, "{:#?}", watch.seen.events);
        setup.batch_execute("select pg_stat_reset()").expect("it runs");
        watch.until_event("the reset", |event| event.kind == event::RESET);
    });
}
