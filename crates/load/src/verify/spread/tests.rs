//! Catalogs that agree, and catalogs that do not.

use super::*;

const NODES: [&str; 3] = ["n1", "n2", "n3"];

fn leaf_names() -> Vec<String> {
    (0..3).map(|leaf| format!("usertable_p{leaf}")).collect()
}

fn local(remainder: usize) -> Local {
    Local { schema: "public".into(), name: format!("usertable_p{remainder}"), blocks: 7 }
}

fn foreign(remainder: usize, node: usize) -> Attached {
    let name = format!("usertable_p{remainder}");
    Attached::Foreign { node: Ok(node), target: ("public".into(), name) }
}

/// Leaf r on node r, everybody knows it.
fn views() -> Vec<View> {
    (0..3)
        .map(|node| View {
            has_table: true,
            leaves: (0..3)
                .map(|r| (r, if r == node { Attached::Local(local(r)) } else { foreign(r, r) }))
                .collect(),
            ..View::default()
        })
        .collect()
}

/// Every table of a leaf's name that any node has.
fn there(views: &[View]) -> Vec<Vec<(String, String)>> {
    let names = |view: &View| {
        let attached = view.leaves.keys().map(|r| format!("usertable_p{r}"));
        let loose = view.loose.iter().map(|local| local.name.clone());
        attached.chain(loose).map(|name| ("public".to_owned(), name)).collect()
    };
    views.iter().map(names).collect()
}

fn found(views: &[View]) -> (Vec<String>, Vec<String>) {
    let spread = resolve(&NODES, &leaf_names(), views, &there(views)).unwrap();
    let all = || [&spread.leaves, &spread.strays, &spread.loose].into_iter().flatten();
    for leaf in all() {
        assert_eq!(leaf.name.node.as_deref(), Some(NODES[leaf.site]));
    }
    let text = |problem: &Problem| problem.to_string();
    (all().map(|leaf| leaf.name.to_string()).collect(), spread.problems.iter().map(text).collect())
}

const HOMES: [&str; 3] = ["usertable_p0 on n1", "usertable_p1 on n2", "usertable_p2 on n3"];

#[test]
fn agreement_is_no_problem() {
    assert_eq!(found(&views()), (HOMES.map(str::to_owned).to_vec(), vec![]));
}

#[test]
fn the_wrong_catalog_is_named() {
    type Damage = fn(&mut Vec<View>);
    let cases: [(Damage, &str); 5] = [
        (
            |views| {
                views[0].leaves.insert(2, foreign(2, 1));
            },
            "usertable_p2: the catalog of n1 points to usertable_p2 on n2, but it is on n3",
        ),
        (
            |views| {
                let target = ("public".into(), "other".into());
                views[0].leaves.insert(2, Attached::Foreign { node: Ok(2), target });
            },
            "usertable_p2: the catalog of n1 points to other on n3, but there is no such table",
        ),
        (
            |views| {
                let target = ("public".into(), "usertable_p2".into());
                let node = Err(UnlistedServer { name: "elsewhere".into(), unseen: None });
                views[0].leaves.insert(2, Attached::Foreign { node, target });
            },
            "usertable_p2: the catalog of n1 points to the server elsewhere, which is not a node of this cluster, but it is on n3",
        ),
        (
            |views| {
                views[1].leaves.remove(&0);
            },
            "usertable_p0 is not a partition on n2: its rows cannot be reached through that node",
        ),
        (
            // Detached on its owner: the table is there, and the others read it.
            |views| {
                views[1].leaves.remove(&1);
                views[1].loose.push(local(1));
            },
            "usertable_p1 is not a partition on n2: its rows cannot be reached through that node",
        ),
    ];
    for (damage, problem) in cases {
        let mut views = views();
        damage(&mut views);
        assert_eq!(found(&views), (HOMES.map(str::to_owned).to_vec(), vec![problem.to_owned()]));
    }
}

#[test]
fn the_owner_is_who_others_take_for_it() {
    let mut views = views();
    views[0].leaves.insert(2, Attached::Local(Local { blocks: 1000, ..local(2) }));
    let (names, problems) = found(&views);
    assert_eq!(
        names,
        [&HOMES[..], &["usertable_p2 on n1"]].concat(),
        "the copy is read, and should be empty"
    );
    assert_eq!(problems, ["usertable_p2 is a table on n1 as well as on n3"]);
}

#[test]
fn what_is_left_over_is_read_too() {
    let mut views = views();
    views[0].loose.push(Local { name: "usertable_p2_old".into(), ..local(2) });
    assert_eq!(
        found(&views),
        (
            [&HOMES[..], &["usertable_p2_old on n1"]]
                .concat()
                .iter()
                .map(|name| (*name).to_owned())
                .collect(),
            vec![]
        )
    );
}

#[test]
fn a_leaf_that_no_node_has_belongs_where_others_look() {
    let mut views = views();
    views[2].leaves.remove(&2);
    let mut there = there(&views);
    there[2].retain(|(_, name)| name != "usertable_p2");
    let spread = resolve(&NODES, &leaf_names(), &views, &there).unwrap();
    assert_eq!((spread.leaves[2].site, &spread.leaves[2].relation), (2, &None));
    assert_eq!(spread.problems, [Problem::NoOwner { leaf: "usertable_p2".into() }]);
}

fn unseen(name: &str) -> Attached {
    let unseen = Some("host=db9 port=5432 dbname=postgres".to_owned());
    let node = Err(UnlistedServer { name: name.to_owned(), unseen });
    Attached::Foreign { node, target: ("public".into(), "usertable_p2".into()) }
}

/// A server that could not be looked at may be the owner: nothing is wrong then, and nothing is proved.
#[test]
fn a_server_that_was_not_looked_at_is_a_doubt() {
    let mut views = views();
    views[0].leaves.insert(2, unseen("n3"));
    let spread = resolve(&NODES, &leaf_names(), &views, &there(&views)).unwrap();
    assert_eq!(spread.problems.len(), 1);
    let (problem, words) = (&spread.problems[0], spread.problems[0].to_string());
    assert!(problem.is_doubt() && !problem.is_of_time(), "{words}");
    assert!(words.contains("also = [\"host=db9 port=5432 dbname=postgres\"]"), "{words}");
}

/// The rows of a leaf whose owner is missing from the file are not lost.
#[test]
fn a_leaf_on_a_server_that_is_no_node_is_refused() {
    let mut views = views();
    views.truncate(2);
    for view in &mut views {
        view.leaves.insert(2, unseen("n3"));
    }
    let error = resolve(&NODES[..2], &leaf_names(), &views, &there(&views)).unwrap_err();
    assert!(error.to_string().contains("usertable_p2 is on the server n3"), "{error}");
    assert!(error.hint().unwrap().contains("host=db9"), "{:?}", error.hint());
    // If another node knows it at a node of the cluster, it is gone there.
    views[1].leaves.insert(2, foreign(2, 0));
    let spread = resolve(&NODES[..2], &leaf_names(), &views, &there(&views)).unwrap();
    assert!(spread.problems.contains(&Problem::NoOwner { leaf: "usertable_p2".into() }));
}

#[test]
fn a_node_without_the_table_is_reported_once() {
    let mut views = views();
    views[1].has_table = false;
    views[1].leaves.clear();
    let (names, problems) = found(&views);
    assert_eq!(names[1], "usertable_p1 on n2", "where the others look for it");
    assert_eq!(problems, ["n2 has no table of the dataset", "usertable_p1 is not a table on any node"]);
}
