//! All rules, in the order of the manual.

mod access;
pub(crate) mod applied;
mod asleep;
mod band;
mod behind;
mod branches;
mod built_in;
mod bursts;
mod capacity;
mod checked;
mod churn;
mod collated;
mod columns;
pub(crate) mod costly;
mod cpu;
mod cursor;
mod databases;
mod ddl;
mod decoders;
mod disk;
mod distribution;
mod elsewhere;
mod emptied;
mod estimate;
mod executor;
pub(crate) mod failing;
mod file;
mod filesystem;
mod form;
mod frozen;
pub(crate) mod generator;
mod growth;
mod hold;
mod inside;
mod inspect;
mod isolation;
mod limit;
pub(crate) mod lock;
mod locked;
mod login;
mod member;
pub(crate) mod memory;
mod moved;
mod network;
pub(crate) mod observer;
mod odd;
mod optimistic;
mod overhead;
mod overlap;
mod own;
mod paging;
mod paste;
mod peculiar;
mod pieces;
mod piped;
pub(crate) mod plan;
mod policy;
mod poll;
mod pool;
mod prepared;
pub(crate) mod profile;
mod queue;
mod raised;
mod reference;
mod relation;
mod remainder;
mod remote;
mod removed;
mod repeated;
pub(crate) mod replication;
mod rounds;
mod savepoints;
mod shadow;
mod shift;
mod siblings;
mod slice;
mod spread;
mod standby;
pub(crate) mod statement;
mod surroundings;
pub(crate) mod synchronous;
mod table;
mod temporary;
mod traced;
mod transaction;
mod unhashed;
mod unlike;
mod upsert;
pub(crate) mod vacuum;
mod versions;
mod volume;
pub(crate) mod waiting;
pub(crate) mod wal;
pub(crate) mod waste;

use crate::rule::Rule;
pub(crate) use paste::literal;

/// Those in front of the rules about plans.
const BEFORE: [&[Rule]; 46] = [
    generator::RULES,
    shift::RULES,
    spread::RULES,
    disk::RULES,
    filesystem::RULES,
    member::RULES,
    repeated::RULES,
    remote::RULES,
    file::RULES,
    odd::RULES,
    shadow::RULES,
    own::RULES,
    peculiar::RULES,
    memory::RULES,
    cpu::RULES,
    network::RULES,
    vacuum::RULES,
    transaction::RULES,
    overhead::RULES,
    failing::RULES,
    rounds::RULES,
    volume::RULES,
    upsert::RULES,
    profile::RULES,
    prepared::RULES,
    versions::RULES,
    locked::RULES,
    asleep::RULES,
    bursts::RULES,
    traced::RULES,
    columns::RULES,
    raised::RULES,
    piped::RULES,
    frozen::RULES,
    branches::RULES,
    collated::RULES,
    optimistic::RULES,
    login::RULES,
    churn::RULES,
    databases::RULES,
    emptied::RULES,
    lock::RULES,
    relation::RULES,
    ddl::RULES,
    slice::RULES,
    statement::RULES,
];

/// Those behind them.
const AFTER: [&[Rule]; 40] = [
    siblings::RULES,
    remainder::RULES,
    checked::RULES,
    paging::RULES,
    pieces::RULES,
    moved::RULES,
    policy::RULES,
    table::RULES,
    waste::RULES,
    inside::RULES,
    form::RULES,
    access::RULES,
    temporary::RULES,
    growth::RULES,
    band::RULES,
    elsewhere::RULES,
    estimate::RULES,
    inspect::RULES,
    surroundings::RULES,
    queue::RULES,
    pool::RULES,
    waiting::RULES,
    poll::RULES,
    overlap::RULES,
    limit::RULES,
    wal::RULES,
    behind::RULES,
    synchronous::RULES,
    replication::RULES,
    standby::RULES,
    applied::RULES,
    decoders::RULES,
    removed::RULES,
    unlike::RULES,
    unhashed::RULES,
    cursor::RULES,
    hold::RULES,
    capacity::RULES,
    distribution::RULES,
    observer::RULES,
];

/// The table.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    BEFORE.into_iter().chain(plan::ALL).chain(AFTER).flatten()
}
