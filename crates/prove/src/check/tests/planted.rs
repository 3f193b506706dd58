//! One planted anomaly of every class: found, named, and refuting exactly the levels that it must.

use super::*;

const ALL: [Base; 6] = Base::ALL;

fn expect(notes: &Notes, code: &str, weakest: &[Base]) -> Report {
    let report = notes.check();
    assert_found(&report, code);
    assert_refuted(&report, &weakest.iter().map(|base| plain(*base)).collect::<Vec<_>>());
    report
}

#[test]
fn nothing_is_refuted_by_nothing() {
    for model in [Model::VersionedRegister, Model::Append, Model::Register] {
        let report = check(&History::new(model), &Options::default());
        assert!(report.refuted.is_empty());
        assert_eq!(report.strongest_left(), [Level::new(Base::Serializable, Order::RealTime)]);
    }
}

#[test]
fn g0_dirty_write() {
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.beside(1, &[w(1, 1), w(2, 2)]);
    notes.beside(2, &[w(1, 2), w(2, 1)]);
    let report = expect(&notes, "G0", &[Base::ReadUncommitted]);
    let text = report.witnesses[0].text.join("\n");
    assert!(text.contains("T1 < T2 because T1 wrote version 1 (token 1001) of key 1, and T2 wrote version 2 (token 1002) over it"), "{text}");
    assert!(text.contains("but T2 < T1 because T2 wrote version 1 (token 2001) of key 2"), "{text}");
    assert!(
        text.contains("UPDATE kv SET ver = ver + 1, tok = 1001 WHERE k = 1 RETURNING ver;  -- 1"),
        "{text}"
    );
}

#[test]
fn g1a_aborted_read() {
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.ending(1, Outcome::Fail, &[w(1, 1)]);
    notes.beside(2, &[r(1, 1)]);
    expect(&notes, "G1a", &[Base::ReadCommitted]);
}

#[test]
fn dirty_update() {
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.ending(1, Outcome::Fail, &[w(1, 1)]);
    notes.beside(2, &[w(1, 2)]);
    expect(&notes, "dirty-update", &[Base::ReadCommitted]);
    // A transaction of unknown outcome may have counted the same version.
    notes.ending(3, Outcome::Info, &[Op { tok: 7, ..w(1, 1) }]);
    assert_refuted(&notes.check(), &[]);
}

#[test]
fn g1b_intermediate_read() {
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.beside(1, &[w(1, 1), w(1, 2)]);
    notes.beside(2, &[r(1, 1)]);
    expect(&notes, "G1b", &[Base::ReadCommitted]);
}

#[test]
fn g1c_circular_flow() {
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.beside(1, &[w(1, 1), r(2, 1)]);
    notes.beside(2, &[w(2, 1), r(1, 1)]);
    expect(&notes, "G1c", &[Base::ReadCommitted]);
}

#[test]
fn internal_future_and_garbage() {
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.after(1, &[w(1, 1), r(1, 0)]);
    expect(&notes, "internal", &[Base::ReadUncommitted]);
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.after(1, &[r(1, 1), w(1, 1)]);
    expect(&notes, "future-read", &[Base::ReadUncommitted]);
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.after(1, &[w(1, 1)]);
    notes.after(1, &[Op { tok: 77, ..r(1, 1) }]);
    expect(&notes, "garbage", &[Base::ReadUncommitted]);
    // If the end of the history is missing, the writer may be in that part.
    notes.history.is_cut = true;
    assert_refuted(&notes.check(), &[]);
    // No memory is allocated for a version that no counter can have reached.
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.after(1, &[w(1, 1), w(u32::MAX, 1)]);
    notes.after(1, &[Op { tok: 77, ..r(1, u32::MAX) }]);
    expect(&notes, "garbage", &[Base::ReadUncommitted]);
}

#[test]
fn duplicate_version_and_lost_update() {
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.beside(1, &[w(1, 1)]);
    notes.beside(2, &[Op { tok: 9, ..w(1, 1) }]);
    let report = expect(&notes, "duplicate-version", &[Base::ReadUncommitted]);
    assert!(report.witnesses[0].text.join("\n").contains("one of the two is lost"));
    // The same by clients that compute the version: legal at READ COMMITTED, not above.
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.beside(1, &[r(1, 0), Op { kind: Kind::Write, ..w(1, 1) }]);
    notes.beside(2, &[r(1, 0), Op { kind: Kind::Write, tok: 9, ..w(1, 1) }]);
    let report = notes.check();
    assert_found(&report, "lost-update");
    assert!(report.refutes(plain(Base::SnapshotIsolation)) && report.refutes(plain(Base::RepeatableRead)));
    assert!(!report.refutes(plain(Base::MonotonicAtomicView)), "{report:#?}");
    // With versions in order it is a cycle, and the same anomaly.
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.beside(1, &[r(1, 0), w(1, 1)]);
    notes.beside(2, &[r(1, 0), w(1, 2)]);
    expect(&notes, "lost-update", &[Base::RepeatableRead, Base::SnapshotIsolation]);
    assert_found(&notes.check(), "G-single");
}

#[test]
fn g_single_read_skew() {
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.beside(1, &[w(1, 1), w(2, 1)]);
    notes.beside(2, &[w(1, 2)]);
    notes.beside(3, &[w(2, 2), r(1, 2)]);
    notes.beside(4, &[r(1, 1), r(2, 2)]);
    expect(&notes, "G-single", &[Base::RepeatableRead, Base::SnapshotIsolation]);
}

#[test]
fn fractured_read_by_how_it_is_seen() {
    let writer = [w(1, 1), w(2, 1)];
    // Old before new: legal at READ COMMITTED, where every statement has its own snapshot.
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.beside(1, &writer);
    notes.beside(2, &[r(1, 0), r(2, 1)]);
    expect(&notes, "fractured-read", &[Base::RepeatableRead, Base::SnapshotIsolation]);
    // Old after new: a view that goes backwards.
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.beside(1, &writer);
    notes.beside(2, &[r(2, 1), r(1, 0)]);
    expect(&notes, "non-monotonic-view", &[Base::MonotonicAtomicView]);
    // Both in one statement: not even READ COMMITTED.
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.beside(1, &writer);
    notes.beside(2, &[Op { statement: 5, ..r(1, 0) }, Op { statement: 5, ..r(2, 1) }]);
    let report = expect(&notes, "fractured-statement", &[Base::ReadCommitted]);
    assert!(report.witnesses.iter().any(|witness| {
        let text = witness.text.join("\n");
        text.contains("T1 saw T2 in version 1 (token 2001) of key 2, but read version 0 of key 1, where T2 had written version 1 (token 1001)")
    }), "{report:#?}");
}

#[test]
fn non_repeatable_read() {
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.beside(1, &[w(1, 1)]);
    notes.beside(2, &[r(1, 0), r(1, 1)]);
    expect(&notes, "non-repeatable-read", &[Base::RepeatableRead, Base::SnapshotIsolation]);
}

#[test]
fn long_fork() {
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.history.names.nodes = vec!["primary".into(), "standby".into()];
    notes.beside(1, &[w(1, 1)]);
    notes.beside(2, &[w(2, 1)]);
    notes.beside(3, &[r(1, 1), r(2, 0)]);
    notes.beside(4, &[Op { node: 1, ..r(1, 0) }, Op { node: 1, ..r(2, 1) }]);
    let report = expect(&notes, "G-nonadjacent", &[Base::RepeatableRead, Base::SnapshotIsolation]);
    let text = report.witnesses[0].text.join("\n");
    assert!(text.contains("standby") && text.contains("primary"), "{text}");
}

#[test]
fn write_skew() {
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.beside(1, &[r(1, 0), r(2, 0), w(1, 1)]);
    notes.beside(2, &[r(1, 0), r(2, 0), w(2, 1)]);
    expect(&notes, "G2-item", &[Base::RepeatableRead]);
    assert!(!notes.check().refutes(Level::new(Base::SnapshotIsolation, Order::RealTime)));
}

#[test]
fn stale_read_in_real_time() {
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.after(1, &[w(1, 1)]);
    notes.after(2, &[r(1, 0)]);
    let report = notes.check();
    assert_found(&report, "G-single-realtime");
    let weakest =
        [Base::RepeatableRead, Base::SnapshotIsolation].map(|base| Level::new(base, Order::RealTime));
    assert_refuted(&report, &weakest);
    assert!(
        report.witnesses[0].text.join("\n").contains("T2 < T1 because T1 read")
            || report.witnesses[0].text.join("\n").contains("had ended 5 ns before")
    );
    // A clock with such an error proves nothing.
    assert_refuted(&check(&notes.history, &Options { epsilon_ns: 5, ..Options::default() }), &[]);
    assert_refuted(&check(&notes.history, &Options { epsilon_ns: 4, ..Options::default() }), &weakest);
}

#[test]
fn session_violation() {
    let mut notes = Notes::new(Model::VersionedRegister);
    let mut push = |session, ops: &[Op]| notes.history.push(Txn::ok(session), ops);
    push(1, &[w(1, 1)]);
    push(1, &[r(1, 0)]);
    let report = notes.check();
    assert_found(&report, "G-single-process");
    assert_refuted(
        &report,
        &[Base::RepeatableRead, Base::SnapshotIsolation].map(|base| Level::new(base, Order::Session)),
    );
    assert!(report.notes.iter().any(|note| note.contains("no transaction has a time")));
}

#[test]
fn orders_of_every_class() {
    // Each class as a cycle that only session order or real time closes.
    for order in [Order::Session, Order::RealTime] {
        let second = if order == Order::Session { 1 } else { 2 };
        let ending = if order == Order::Session { "-process" } else { "-realtime" };
        let has_time = order == Order::RealTime;
        let build = |steps: &[(u32, Vec<Op>)]| {
            let mut notes = Notes::new(Model::VersionedRegister);
            for (session, ops) in steps {
                if has_time {
                    notes.after(*session, ops);
                } else {
                    notes.history.push(Txn::ok(*session), ops);
                }
            }
            notes.check()
        };
        let report = build(&[(1, vec![w(1, 2)]), (second, vec![w(1, 1)])]);
        assert_found(&report, &format!("G0{ending}"));
        assert_refuted(&report, &[Level::new(Base::ReadUncommitted, order)]);
        let report = build(&[(1, vec![r(1, 1)]), (second, vec![w(1, 1)])]);
        assert_found(&report, &format!("G1c{ending}"));
        assert_refuted(&report, &[Level::new(Base::ReadCommitted, order)]);
    }
}

#[test]
fn lists() {
    let mut notes = Notes::new(Model::Append);
    let a = |key, element| Op::new(Kind::Append, key, 1, element);
    let forked = [notes.history.read_list(1, &[1, 2]), notes.history.read_list(1, &[2])];
    notes.beside(1, &[a(1, 1)]);
    notes.beside(2, &[a(1, 2)]);
    notes.beside(3, &[forked[0]]);
    notes.beside(4, &[forked[1]]);
    expect(&notes, "incompatible-order", &[Base::ReadCommitted]);

    let mut notes = Notes::new(Model::Append);
    let twice = notes.history.read_list(1, &[1, 1]);
    notes.beside(1, &[a(1, 1)]);
    notes.beside(2, &[twice]);
    expect(&notes, "duplicate-element", &[Base::ReadUncommitted]);

    let mut notes = Notes::new(Model::Append);
    let dirty = notes.history.read_list(1, &[1, 2]);
    notes.ending(1, Outcome::Fail, &[a(1, 1)]);
    notes.beside(2, &[a(1, 2)]);
    notes.beside(3, &[dirty]);
    let report = expect(&notes, "dirty-update", &[Base::ReadCommitted]);
    assert_found(&report, "G1a");

    // Elements that were never read come after all that were.
    let mut notes = Notes::new(Model::Append);
    let empty = [notes.history.read_list(1, &[]), notes.history.read_list(2, &[])];
    notes.beside(1, &[empty[0], a(2, 1)]);
    notes.beside(2, &[empty[1], a(1, 1)]);
    expect(&notes, "G2-item", &[Base::RepeatableRead]);
}

#[test]
fn registers() {
    let mut notes = Notes::new(Model::Register);
    let put = |key, value| Op::new(Kind::Write, key, 1, value);
    let get = |key, value: u64| Op::new(Kind::Read, key, u32::from(value > 0), value);
    notes.beside(1, &[get(1, 0), put(2, 1)]);
    notes.beside(2, &[get(2, 0), put(1, 2)]);
    expect(&notes, "G2-item", &[Base::RepeatableRead]);

    let mut notes = Notes::new(Model::Register);
    notes.beside(1, &[put(1, 1)]);
    notes.beside(2, &[get(1, 1), put(1, 2)]);
    notes.beside(3, &[get(1, 1), put(1, 3)]);
    let report = notes.check();
    assert_found(&report, "lost-update");
    assert!(report.refutes(plain(Base::SnapshotIsolation)));
    assert!(!report.refutes(plain(Base::ReadCommitted)), "{report:#?}");

    let mut notes = Notes::new(Model::Register);
    notes.beside(1, &[put(1, 1)]);
    notes.beside(2, &[put(1, 1)]);
    let report = notes.check();
    assert_found(&report, "ambiguous-write");
    assert_refuted(&report, &[]);
}

#[test]
fn what_is_unknown_counts_only_when_it_was_seen() {
    // Two transactions of unknown outcome that would be a cycle, if they had happened.
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.ending(1, Outcome::Info, &[w(1, 1), w(2, 2)]);
    notes.ending(2, Outcome::Partial, &[w(1, 2), w(2, 1)]);
    assert_refuted(&notes.check(), &[]);
    // One was seen, so it was committed; the other may not have been.
    notes.beside(3, &[r(1, 1)]);
    let report = notes.check();
    assert_eq!(report.joined, 1);
    assert_refuted(&report, &[]);
    // Both are seen.
    notes.beside(4, &[r(2, 1)]);
    let report = notes.check();
    assert_eq!(report.joined, 2);
    assert_found(&report, "G0");
    // A client that lost its connection does not know the version; its reader does.
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.ending(1, Outcome::Info, &[Op { ver: 0, ..w(1, 1) }]);
    notes.beside(2, &[r(1, 1), w(2, 1)]);
    notes.beside(3, &[r(2, 1), r(1, 0)]);
    expect(&notes, "G-single", &[Base::RepeatableRead, Base::SnapshotIsolation]);
}

#[test]
fn every_level_has_its_name() {
    for level in Level::all() {
        assert_eq!(Level::parse(&level.name()), Some(level));
        for base in ALL {
            let weaker = Level::new(base, Order::Data);
            assert_eq!(weaker.is_implied_by(level), base == level.base || base.is_implied_by(level.base));
        }
    }
    assert_eq!(Level::parse("SI"), Some(plain(Base::SnapshotIsolation)));
    assert_eq!(Level::parse("Read Committed"), Some(plain(Base::ReadCommitted)));
    assert_eq!(Level::parse("strong"), None);
    assert!(!plain(Base::RepeatableRead).is_implied_by(plain(Base::SnapshotIsolation)));
}

/// READ COMMITTED is judged statement by statement: two statements of a transaction may see different states, one statement may not.
#[test]
fn statements_have_snapshots_at_read_committed() {
    let chain = |second: u16| {
        let mut notes = Notes::new(Model::VersionedRegister);
        // The second writer builds on the first, so a reader that saw the second has to see the first.
        notes.beside(1, &[w(1, 1)]);
        notes.beside(2, &[Op { statement: 1, ..r(1, 1) }, Op { statement: 2, ..w(2, 1) }]);
        notes.beside(3, &[Op { statement: 1, ..r(1, 0) }, Op { statement: second, ..r(2, 1) }]);
        notes
    };
    let report = expect(&chain(1), "fractured-statement", &[Base::ReadCommitted]);
    let text = report.witnesses[0].text.join("\n");
    assert!(text.contains("in the same statement") && text.contains("because T"), "{text}");
    // In two statements it is read skew, which READ COMMITTED allows.
    let report = expect(&chain(2), "G-single", &[Base::RepeatableRead, Base::SnapshotIsolation]);
    assert!(!report.counts.contains_key("fractured-statement"), "{report:#?}");

    let fork = |second: u16| {
        let mut notes = Notes::new(Model::VersionedRegister);
        notes.beside(1, &[w(1, 1)]);
        notes.beside(2, &[w(2, 1)]);
        notes.beside(3, &[Op { statement: 1, ..r(1, 1) }, Op { statement: second, ..r(2, 0) }]);
        notes.beside(4, &[Op { statement: 1, ..r(1, 0) }, Op { statement: second, ..r(2, 1) }]);
        notes
    };
    let report = expect(&fork(1), "statement-fork", &[Base::ReadCommitted]);
    assert!(report.counts.contains_key("G-nonadjacent"), "{report:#?}");
    expect(&fork(2), "G-nonadjacent", &[Base::RepeatableRead, Base::SnapshotIsolation]);

    // A statement that writes reads rows again: it is not a snapshot, and refutes nothing here.
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.beside(1, &[w(1, 1), w(2, 1)]);
    notes.beside(2, &[Op { statement: 1, ..r(1, 0) }, Op { statement: 1, ..w(2, 2) }]);
    let report = notes.check();
    assert!(!report.refutes(plain(Base::ReadCommitted)), "{report:#?}");

    // Two statements that overtake no other: what each saw, it may see.
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.beside(1, &[w(1, 1), w(2, 1)]);
    notes.beside(2, &[w(1, 2), w(2, 2)]);
    let reads = |ver: u32, statement: u16| [Op { statement, ..r(1, ver) }, Op { statement, ..r(2, ver) }];
    notes.beside(3, &[reads(0, 1), reads(1, 2), reads(2, 3)].concat());
    let report = notes.check();
    assert!(!report.refutes(plain(Base::MonotonicAtomicView)), "{report:#?}");
    assert!(report.refutes(plain(Base::SnapshotIsolation)), "{report:#?}");
}

/// A transaction appends 1, then 2, and every reader sees 2 before 1.
#[test]
fn own_appends_in_reverse_order_are_refuted() {
    for list in [&[2, 1][..], &[2, 1, 3], &[2, 3, 1]] {
        let mut notes = Notes::new(Model::Append);
        let a = |element| Op::new(Kind::Append, 1, 1, element);
        let read = notes.history.read_list(1, list);
        notes.beside(1, &[a(1), a(2)]);
        notes.beside(2, &[a(3)]);
        notes.beside(3, &[read]);
        let report = notes.check();
        assert_found(&report, "reordered-writes");
        assert!(report.refutes(plain(Base::ReadCommitted)), "{report:#?}");
    }
    // The same with versions, and with a transaction of unknown outcome that was seen.
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.ending(1, Outcome::Info, &[w(1, 2), w(1, 1)]);
    notes.beside(2, &[r(1, 2)]);
    assert_found(&notes.check(), "reordered-writes");
}

fn put(key: u32, value: u64) -> Op {
    Op::new(Kind::Write, key, 1, value)
}

fn get(key: u32, value: u64) -> Op {
    Op::new(Kind::Read, key, u32::from(value > 0), value)
}

/// Sessions and real time order two blind writes only for the levels that promise these orders.
#[test]
fn a_stale_register_is_refuted_by_sessions_and_time() {
    let both = [Base::RepeatableRead, Base::SnapshotIsolation];
    let mut notes = Notes::new(Model::Register);
    for ops in [put(1, 1), put(1, 2), get(1, 1)] {
        notes.after(7, &[ops]);
    }
    let report = notes.check();
    assert_refuted(&report, &both.map(|base| Level::new(base, Order::Session)));
    assert_found(&report, "G-single-process");
    let text = report.witnesses[0].text.join("\n");
    assert!(text.contains("session 7 wrote them in this order"), "{text}");
    assert!(report.incomplete.levels.is_empty(), "{report:#?}");
    // Three sessions: only real time orders them.
    let mut notes = Notes::new(Model::Register);
    for (session, ops) in [(1, put(1, 1)), (2, put(1, 2)), (3, get(1, 1))] {
        notes.after(session, &[ops]);
    }
    let report = notes.check();
    assert_refuted(&report, &both.map(|base| Level::new(base, Order::RealTime)));
    assert_found(&report, "G-single-realtime");
    // A clock with such an error proves nothing.
    assert_refuted(&check(&notes.history, &Options { epsilon_ns: 5, ..Options::default() }), &[]);
}

/// The order from other keys: a transaction that read y from the writer of x = 1 wrote x = 2 after it.
#[test]
fn the_order_of_registers_is_learnt_from_other_keys() {
    let mut notes = Notes::new(Model::Register);
    notes.beside(1, &[put(1, 1), put(2, 1)]);
    notes.beside(2, &[get(2, 1), put(1, 2), put(3, 1)]);
    notes.beside(3, &[get(1, 1), get(3, 1)]);
    let report = notes.check();
    assert_refuted(&report, &[plain(Base::RepeatableRead), plain(Base::SnapshotIsolation)]);
    assert_found(&report, "G-single");
}

/// A level without promises about reads must not use the order of versions that reads before writes imply.
#[test]
fn registers_that_read_each_other_do_not_refute_read_uncommitted() {
    let mut notes = Notes::new(Model::Register);
    notes.beside(1, &[get(1, 2), put(1, 1)]);
    notes.beside(2, &[get(1, 1), put(1, 2)]);
    assert_refuted(&notes.check(), &[plain(Base::ReadCommitted)]);
}

/// Write skew over blind writes whose order is unknown: in some order it is none, so it is not refuted; where no order can be shown to fit, the report is
/// "incomplete".
#[test]
fn blind_writes_are_refuted_or_possible_or_incomplete() {
    // Each reads the first value of what the other overwrites: the order is known, since both first values were read before.
    let mut notes = Notes::new(Model::Register);
    notes.after(1, &[put(1, 1), put(2, 1)]);
    notes.beside(2, &[get(1, 1), put(2, 2)]);
    notes.beside(3, &[get(2, 1), put(1, 2)]);
    let report = notes.check();
    assert!(!report.refutes(plain(Base::SnapshotIsolation)), "{report:#?}");
    let level = plain(Base::Serializable);
    assert!(
        report.refutes(level) || report.is_open(level) || report.incomplete.levels.is_empty(),
        "{report:#?}"
    );
    // A value that two writes have set: it is unknown which one was read, and the report does not claim to know.
    let mut notes = Notes::new(Model::Register);
    notes.after(1, &[put(1, 1)]);
    notes.after(2, &[put(1, 2)]);
    notes.after(3, &[put(1, 1)]);
    notes.after(4, &[get(1, 1)]);
    let report = notes.check();
    assert_refuted(&report, &[]);
    assert_eq!(report.incomplete.keys, 1);
    assert!(report.is_open(Level::new(Base::Serializable, Order::RealTime)));
}

/// Two transactions append to a list that nothing reads, and each missed what the other did elsewhere: in either order of the appends an update is lost.
#[test]
fn unread_appends_may_refute_snapshot_isolation() {
    let mut notes = Notes::new(Model::Append);
    let a = |key, element| Op::new(Kind::Append, key, 1, element);
    let empty = [notes.history.read_list(1, &[]), notes.history.read_list(2, &[])];
    notes.beside(1, &[empty[0], a(2, 1), a(3, 1)]);
    notes.beside(2, &[empty[1], a(1, 1), a(3, 2)]);
    let report = notes.check();
    assert!(report.refutes(plain(Base::SnapshotIsolation)), "{report:#?}");
    assert!(!report.refutes(plain(Base::MonotonicAtomicView)), "{report:#?}");
}

/// A view that goes back on one row: no later statement may show less.
#[test]
fn a_row_that_goes_back_is_no_monotonic_view() {
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.beside(1, &[w(1, 1)]);
    notes.beside(2, &[r(1, 1), r(1, 0)]);
    expect(&notes, "non-monotonic-view", &[Base::MonotonicAtomicView]);
}

/// The same element appended twice: its position is unknown, so it refutes nothing.
#[test]
fn an_element_of_two_writers_is_no_anomaly() {
    let mut notes = Notes::new(Model::Append);
    let a = |element| Op::new(Kind::Append, 1, 1, element);
    let read = notes.history.read_list(1, &[1, 2]);
    notes.ending(1, Outcome::Fail, &[a(1)]);
    notes.after(2, &[a(1)]);
    notes.after(3, &[a(2)]);
    notes.after(4, &[read]);
    let report = notes.check();
    assert_refuted(&report, &[]);
    assert_found(&report, "ambiguous-write");
    assert_eq!(report.incomplete.keys, 1);
}

/// A transaction of unknown outcome comes after the earlier ones of its session.
#[test]
fn a_session_comes_before_what_it_did_not_see_end() {
    let mut notes = Notes::new(Model::VersionedRegister);
    notes.history.push(Txn::ok(1), &number(&[r(1, 1)]));
    notes.history.push(Txn::ok(1).ending(Outcome::Info), &number(&[w(1, 1)]));
    let report = notes.check();
    assert_refuted(&report, &[Level::new(Base::ReadCommitted, Order::Session)]);
    assert_found(&report, "G1c-process");
}
