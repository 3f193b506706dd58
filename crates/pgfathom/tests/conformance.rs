//! `prove engine`: the profile of an engine and a live cluster of it agree, and a cluster that is another one does not.

use std::collections::BTreeMap;
use std::path::Path;

use crate::support;
use lab::throwaway::{Throwaway, ThrowawayCluster, installations};
use serde_json::Value;
use support::{Ended, Folder, pgfathom};

/// The result of each check in `engine.json`.
pub(crate) fn claims(directory: &Path) -> BTreeMap<String, String> {
    let path = directory.join("engine.json");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file: Value = serde_json::from_str(&text).expect("engine.json is JSON");
    assert_eq!(file["format"], 1);
    assert!(file["server"].as_str().is_some_and(|server| server.contains("PostgreSQL")), "{file}");
    let checks = file["checks"].as_array().expect("checks");
    let of = |check: &Value, key: &str| check[key].as_str().unwrap_or_default().to_owned();
    for check in checks {
        let is_open = check["result"] == "not checked";
        assert_eq!(check["why"].is_string(), is_open, "only what could not be checked has a reason: {check}");
        assert_eq!(of(check, "found").is_empty(), is_open, "{check}");
    }
    let count = |result: &str| checks.iter().filter(|check| check["result"] == result).count();
    assert_eq!(file["agree"], count("agrees"));
    assert_eq!(file["differ"], count("differs"));
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
