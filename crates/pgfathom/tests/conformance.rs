//! `prove engine`: the profile of an engine and a live cluster of it agree, and a cluster that is another one does not.

use std::collections::BTreeMap;
use std::path::Path;

use crate::engines::values;
use crate::labs::ClusterLab;
use crate::support;
use ::engines::profile::{EntryPoints, Expectation, NodeLinks, Profile};
use lab::throwaway::{Throwaway, ThrowawayCluster, installations};
use serde_json::Value;
use support::{Ended, Folder, pgfathom};

/// The result of each check in `engine.json`.
pub(crate) fn claims(directory: &Path) -> BTreeMap<String, String> {
    let path = directory.join("engine.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file: Value = serde_json::from_str(&text).expect("engine.json is JSON");
    assert_eq!(file["format"], 2);
    assert!(file["server"].as_str().is_some_and(|server| server.contains("PostgreSQL")), "{file}");
    let checks = file["checks"].as_array().expect("checks");
    let of = |check: &Value, key: &str| check[key].as_str().unwrap_or_default().to_owned();
    for check in checks {
        let is_open = check["result"] == "not checked";
        assert_eq!(check["why"].is_string(), is_open, "only what could not be checked has a reason: {check}");
        assert_eq!(of(check, "found").is_empty(), is_open || check["result"] == "note", "{check}");
    }
    let count = |result: &str| checks.iter().filter(|check| check["result"] == result).count();
    assert_eq!(file["agree"], count("agrees"));
    assert_eq!(file["differ"], count("differs"));
    assert_eq!((&file["no_claim"], &file["notes"]), (&count("no claim").into(), &count("note").into()));
    let open = checks.iter().filter_map(|check| check["why"].as_str());
    assert!(!open.clone().any(|why| why.contains("for people") || why.contains("claims nothing")), "{file}");
    checks.iter().map(|check| (of(check, "check"), of(check, "result"))).collect()
}

fn prove(folder: &Folder, file: &Path) -> Ended {
    let mut command = pgfathom(folder.path());
    command.args(["prove", "engine", "-o", "profile", "--cluster"]).arg(file);
    command.output().expect("the command starts").into()
}

fn newest() -> lab::throwaway::Installation {
    installations().into_iter().max_by_key(|one| one.version.major).expect("there is a PostgreSQL")
}

#[test]
fn postgres_does_what_its_profile_claims() {
    let server = Throwaway::start(&newest(), &[]).expect("a throwaway server starts");
    let folder = Folder::new();
    let mut command = pgfathom(folder.path());
    command.args(["prove", "engine", "-o", "profile", "-h"]).arg(server.socket_dir());
    command.args(["-p", &server.port().to_string(), "-U", "postgres", "postgres"]);
    let ended: Ended = command.output().expect("the command starts").into();
    assert_eq!(ended.exit, Some(0), "{}{}", ended.stdout, ended.stderr);
    let claims = claims(&folder.path().join("profile"));
    for check in [
        "discovery: node 1",
        "routing: uuid",
        "rows: bigint",
        "hash functions",
        "copy: text",
        "copy: binary",
        "parameters: binary",
        "prepared statements",
        "savepoints",
        "sizes",
        "wal",
        "isolation: G2-item at SERIALIZABLE",
    ] {
        assert_eq!(claims.get(check).map(String::as_str), Some("agrees"), "{check}: {claims:#?}");
    }
    let left = server.value("select count(*) from pg_namespace where nspname = 'pgfathom_prove'");
    assert_eq!(left.expect("it answers").as_deref(), Some("0"), "nothing is left");
}

/// What the profile of PostgreSQL claims about a primary and its standby, turned into the opposite value by value.
#[test]
fn values_of_postgresql_that_its_servers_refute_are_found() {
    let servers =
        ThrowawayCluster::replicated(&newest(), 1, "FIRST 1 (s1)").expect("a throwaway cluster starts");
    let lab = ClusterLab::new(servers);
    let engine = ::engines::Engine::parse("postgres").expect("an engine has this name");
    let opposite =
        |known: &Expectation| Expectation { may_happen: known.may_happen.map(|may| !may), ..*known };
    let profile = Profile {
        sizes: values::WRONG_SIZES,
        links: NodeLinks::ForeignServers,
        entry: EntryPoints::EveryNode,
        expectations: engine.expectations.iter().map(opposite).collect::<Vec<_>>().leak(),
        ..*engine
    };
    let lines = values::lines(&lab, profile);
    values::found(&lines, &["sizes", "links", "entry: node 2"]);
}

#[test]
fn a_database_that_replicates_every_new_table_is_left_alone() {
    let server = Throwaway::start(&newest(), &[("wal_level", "logical")]).expect("a throwaway server starts");
    server.execute("create publication everything for all tables").expect("created");
    let slot = "select pg_create_logical_replication_slot('subscriber', 'pgoutput')::text";
    server.value(slot).expect("created");
    let folder = Folder::new();
    for what in ["engine", "bank -T 1", "hermitage"] {
        let mut command = pgfathom(folder.path());
        command.arg("prove").args(what.split(' ')).arg("-h").arg(server.socket_dir());
        command.args(["-p", &server.port().to_string(), "-U", "postgres", "postgres"]);
        let ended: Ended = command.output().expect("the command starts").into();
        assert_ne!(ended.exit, Some(0), "{}{}", ended.stdout, ended.stderr);
        assert!(ended.stderr.contains("the publication everything"), "{}", ended.stderr);
        let left = server.value("select count(*) from pg_namespace where nspname = 'pgfathom_prove'");
        assert_eq!(left.expect("it answers").as_deref(), Some("0"), "{what}");
    }
    // A subscriber may have the tables of a load.
    let mut command = pgfathom(folder.path());
    command.args(["load", "ycsb", "--rows", "100", "--watch", "off", "-h"]).arg(server.socket_dir());
    command.args(["-p", &server.port().to_string(), "-U", "postgres", "postgres"]);
    let ended: Ended = command.output().expect("the command starts").into();
    let warned = "the publication everything is for all tables, and the slot subscriber may read it";
    assert!(ended.exit == Some(0) && ended.stderr.contains(warned), "{}{}", ended.stdout, ended.stderr);
}

/// Proofs refresh the subscriptions of the cluster, by their names; those of users stay as they are, whatever they are called.
#[test]
fn subscriptions_of_users_are_not_touched() {
    let cluster = ThrowawayCluster::multimaster(&newest(), 2).expect("a throwaway cluster starts");
    let (first, second) = (cluster.node(0), cluster.node(1));
    first.execute("create table b (k int primary key); insert into b values (1); create publication mine for table b").expect("made");
    let name = "x enable; create table taken (); --";
    second
        .execute(&format!(
            "create table b (k int primary key); create role mallory; \
             create subscription \"{name}\" connection 'host=nowhere' publication mine with (connect = false, slot_name = 'inj')"
        ))
        .expect("made");
    let folder = Folder::new();
    let mut command = pgfathom(folder.path());
    command.args(["prove", "bank", "-T", "1", "-c", "2", "--cluster"]).arg(cluster.cluster_toml());
    let ended: Ended = command.output().expect("the command starts").into();
    assert!(matches!(ended.exit, Some(0 | 3 | 4)), "{}{}", ended.stdout, ended.stderr);
    let taken = second.value("select count(*) from pg_class where relname = 'taken'").expect("it answers");
    assert_eq!(taken.as_deref(), Some("0"), "the name was run as SQL");
    let known = second.value("select count(*) from pg_subscription_rel r join pg_subscription s on s.oid = r.srsubid where s.subname like 'x %'");
    assert_eq!(known.expect("it answers").as_deref(), Some("0"), "the subscription was refreshed");
}

#[test]
fn a_sharded_cluster_does_what_its_profile_claims_and_another_engine_does_not() {
    let cluster = ThrowawayCluster::sharded(&newest(), 3, 3).expect("a throwaway cluster starts");
    let folder = Folder::new();
    let ended = prove(&folder, &cluster.cluster_toml());
    assert_eq!(ended.exit, Some(0), "{}{}", ended.stdout, ended.stderr);
    let found = claims(&folder.path().join("profile"));
    for check in
        ["discovery: node 3", "routing: text", "rows: text", "links", "commit: rows on 3 of the nodes"]
    {
        assert_eq!(found.get(check).map(String::as_str), Some("agrees"), "{check}: {found:#?}");
    }
    // Nothing of the delays between the nodes stays, also not where the servers belong to another process.
    let open = "select srvoptions::text from pg_foreign_server order by srvname limit 1";
    let options = cluster.node(0).value(open).expect("a value").expect("a foreign server");
    assert!(options.contains(&format!("port={}", cluster.node(1).port())), "{options}");
    // The same servers under the name of another engine.
    let text = std::fs::read_to_string(cluster.cluster_toml()).expect("a cluster file");
    let other = folder.path().join("other.toml");
    std::fs::write(&other, text.replacen("fdw-sharded", "citus", 1)).expect("written");
    std::fs::remove_dir_all(folder.path().join("profile")).expect("removed");
    let ended = prove(&folder, &other);
    assert_eq!(ended.exit, Some(3), "{}{}", ended.stdout, ended.stderr);
    let found = claims(&folder.path().join("profile"));
    for check in ["discovery: node 1", "routing: text", "table", "sizes"] {
        assert_eq!(found.get(check).map(String::as_str), Some("differs"), "{check}: {found:#?}");
    }
}
