//! Vacuum against wraparound.

use crate::ground::Ground;

#[test]
fn vacuum_against_wraparound_sleeps() {
    let ground = Ground::new(&[
        ("autovacuum_freeze_max_age", "100000"),
        ("autovacuum", "off"),
        ("autovacuum_naptime", "1s"),
        ("autovacuum_vacuum_cost_delay", "50ms"),
        ("vacuum_cost_page_dirty", "200"),
    ]);
    ground.sql(
        "CREATE TABLE big (id int, v text); INSERT INTO big SELECT i, repeat('x', 500) FROM generate_series(1, 60000) i;
         CREATE TABLE burnt (i int);",
    );
    ground.watch("healthy").is_silent(&["VAC-01"]);
    let burn = "DO $$ BEGIN FOR i IN 1..60000 LOOP BEGIN INSERT INTO burnt VALUES (i); EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$;";
    ground.sql(burn);
    ground.sql(burn);
    ground.sql("ALTER SYSTEM SET autovacuum = on");
    ground.sql("SELECT pg_reload_conf()");
    ground.watch("storm").until(&["VAC-01"]);
}
