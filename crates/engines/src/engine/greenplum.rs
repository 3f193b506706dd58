//! Greenplum 6 and 7 and their relatives: Arenadata DB, Greengage, Cloudberry. Catalog by documentation and sources; never tried on a live server.

use crate::profile::short::{A, F, N};
use crate::profile::{
    Arrangement, Case, Catalog, Commit, Discovery, EntryPoints, Expectation, Isolation, Layout, Levels,
    LoadPath, NodeLinks, Oracle, Own, Profile, Promise, Protocol, Reasons, Sizes, Spread, Statements,
    Storage, Tried,
};

/// Content -1 is the coordinator, the others are segments. Only acting primaries; mirrors take no sessions.
const NODES: &str = "\
    select content::text, case when content = -1 then 'coordinator' else 'seg' || content end, address, port::text, null, \
           case when content = -1 then 'coordinator' else 'worker' end, (content = -1)::text, \
           case when status <> 'u' then 'down' end \
    from pg_catalog.gp_segment_configuration where role = 'p' order by content";

/// `policytype` r: replicated to all segments. No key columns: rows are distributed randomly.
const TABLE: &str = "\
    select case when p.policytype = 'r' then 'everywhere' \
                when a.attname is null then 'rows are distributed randomly' else 'segment' end, \
           a.attname::text, pg_catalog.format_type(a.atttypid, -1), o.opcname::text, 'true', p.numsegments::text \
    from pg_catalog.gp_distribution_policy p \
    left join lateral unnest(p.distkey::int2[], p.distclass::oid[]) with ordinality as k (attnum, class, place) on true \
    left join pg_catalog.pg_attribute a on a.attrelid = p.localoid and a.attnum = k.attnum \
    left join pg_catalog.pg_opclass o on o.oid = k.class \
    where p.localoid = pg_catalog.to_regclass({relation}) order by k.place";

/// Each segment has the table under its own name.
const LEAVES: &str = "\
    select {schema}, {table}, s.content::text, s.content::text, null, \
           case when s.status <> 'u' then 'on a segment that is down' end, s.content::text, '0' \
    from pg_catalog.gp_distribution_policy p \
    join pg_catalog.gp_segment_configuration s on s.role = 'p' and s.content >= 0 and s.content < p.numsegments \
    where p.localoid = pg_catalog.to_regclass({relation}) order by s.content";

const ONE_SNAPSHOT: &str = "one distributed snapshot";
const MIRRORS: &str = "on mirrors";
const TWO_PHASE: &str = "two-phase commit";

pub(super) static PROFILE: Profile = Profile {
    name: "greenplum",
    aliases: &["arenadata", "greengage", "cloudberry"],
    title: "Greenplum, Arenadata DB, Greengage, Cloudberry",
    tried: Tried::RecordedCatalogs,
    discovery: Discovery::Catalog(Catalog {
        sign: "exists (select 1 from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
                       where n.nspname = 'pg_catalog' and c.relname = 'gp_segment_configuration')",
        nodes: NODES,
        coordinator: None,
        is_blind: None,
        reach_nodes: false,
        table: TABLE,
        leaves: LEAVES,
        places: None,
        part_hash: None,
        oracle: Oracle::Row("select gp_segment_id::text from {name} where {where} limit 1"),
        own: &Own::NOTHING,
    }),
    layout: Layout::Spread(Spread::ByItself),
    storage: Storage::Pages,
    sizes: Sizes::OF_ONE_NODE,
    entry: EntryPoints::Coordinator,
    load: LoadPath::Table,
    links: NodeLinks::Own,
    keyed_trips: None,
    has_wal: false,
    node_lost: &[],
    commit: Commit { protocol: Protocol::TwoPhase { one_node_alone: true }, error_undoes: false },
    levels: Levels::Derived,
    statements: Statements::Unknown,
    promises: &[
        Promise {
            levels: &[Isolation::ReadCommitted],
            at: Arrangement::Plain,
            title: "Greenplum, READ COMMITTED",
            verdicts: [F.noted(ONE_SNAPSHOT), F, A, A, N, A, A.noted(MIRRORS), F.noted(TWO_PHASE), F],
        },
        Promise {
            levels: &[Isolation::RepeatableRead, Isolation::Serializable],
            at: Arrangement::Plain,
            title: "Greenplum, REPEATABLE READ; SERIALIZABLE is the same",
            verdicts: [F.noted(ONE_SNAPSHOT), F, F, F, N, A, A.noted(MIRRORS), F.noted(TWO_PHASE), F],
        },
    ],
    expectations: &[Expectation {
        case: Case::Deadlock,
        may_happen: None,
        why: "a deadlock detector for all nodes has to be enabled by a setting",
        change: "lock in the same order everywhere, or turn the detector on",
    }],
    reasons: Reasons::GENERAL,
    limits: &[
        "a session with a segment (-c gp_role=utility, before 7 -c gp_session_role=utility) bypasses the cluster's transactions: pgfathom never loads that way",
        "the segment of a key can be queried only for existing rows (gp_segment_id)",
        "releases up to 5 have a different gp_distribution_policy, which pgfathom does not read",
        "concurrent updates of one table need the global deadlock detector",
        "each prepared statement is dispatched to all segments",
        "SKIP LOCKED exists from 7 on; advisory locks apply to the coordinator",
    ],
};
