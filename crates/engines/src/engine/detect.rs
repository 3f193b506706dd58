//! Recognises an engine by its catalog, without trusting objects that any role could have created.

use connect::sql::literal;

use super::Engine;
use crate::profile::{Discovery, Layout, Own, Replication, Sets};

/// SQL: whether an extension has the relations and functions of these names in this schema, and no other role has put others of these names beside
/// them, or could do so: the schema is a superuser's, and no other role may create in it or rename it. Names alone prove nothing: a role that may create a
/// schema can name it as an extension does, and our queries would run the code in it.
macro_rules! extension_has {
    ($extension:literal, $schema:literal, $names:literal) => {
        concat!(
            "(select coalesce(pg_catalog.bool_and(o.is_of_superuser and s.nspowner in (select oid from pg_catalog.pg_roles where rolsuper) \
                       and not exists (select 1 from pg_catalog.aclexplode(s.nspacl) a left join pg_catalog.pg_roles g on g.oid = a.grantee \
                         where a.privilege_type = 'CREATE' and not coalesce(g.rolsuper, false)) \
                       and exists \
                         (select 1 from pg_catalog.pg_depend d \
                          join pg_catalog.pg_class k on k.oid = d.classid and k.relname = o.catalog \
                          join pg_catalog.pg_class x on x.oid = d.refclassid and x.relname = 'pg_extension' \
                          join pg_catalog.pg_extension e on e.oid = d.refobjid and e.extname = '",
            $extension,
            "' \
                          where d.objid = o.oid and d.deptype = 'e' \
                            and k.relnamespace = n.oid and x.relnamespace = n.oid)), false) \
              from (select c.oid, c.relnamespace as schema, c.relname as name, r.rolsuper as is_of_superuser, 'pg_class' as catalog \
                    from pg_catalog.pg_class c join pg_catalog.pg_roles r on r.oid = c.relowner \
                    union all select p.oid, p.pronamespace, p.proname, r.rolsuper, 'pg_proc' \
                    from pg_catalog.pg_proc p join pg_catalog.pg_roles r on r.oid = p.proowner) o \
              join pg_catalog.pg_namespace s on s.oid = o.schema and s.nspname = '",
            $schema,
            "' \
              join pg_catalog.pg_namespace n on n.nspname = 'pg_catalog' \
              where o.name in (",
            $names,
            "))"
        )
    };
}

pub(super) use extension_has;

/// The engine that an object in a server's catalog indicates.
#[derive(Clone, Copy, Debug)]
pub struct Signs {
    /// The engine.
    pub engine: Engine,
    /// The replication system, if the engine has several.
    pub replication: Option<&'static Replication>,
    /// SQL: a truth value.
    pub sql: &'static str,
}

impl Signs {
    /// What the engine or the replication makes for itself.
    pub fn own(&self) -> Own {
        match (self.replication, self.engine.discovery) {
            (Some(replication), _) => *replication.own,
            (None, Discovery::Catalog(catalog)) => *catalog.own,
            _ => Own::NOTHING,
        }
    }

    /// The query for its nodes, with the columns of [`crate::profile::Catalog::nodes`].
    pub(crate) fn nodes(&self) -> Option<&'static str> {
        match (self.replication, self.engine.discovery) {
            (Some(replication), _) => Some(replication.nodes),
            (None, Discovery::Catalog(catalog)) => Some(catalog.nodes),
            _ => None,
        }
    }

    /// What it is a sign of.
    pub fn name(&self) -> &'static str {
        self.replication.map_or(self.engine.name(), |replication| replication.name)
    }
}

/// The replication systems that `is_wanted` selects and whose signs `is_there` finds on a server.
///
/// # Errors
/// Those of `is_there`, which runs `select` and the text that it gets.
pub fn replications<E>(
    is_wanted: impl Fn(&Replication) -> bool,
    mut is_there: impl FnMut(&str) -> Result<bool, E>,
) -> Result<Vec<&'static Replication>, E> {
    let mut found = Vec::new();
    for sign in signs() {
        let Some(replication) = sign.replication.filter(|replication| is_wanted(replication)) else {
            continue;
        };
        if is_there(sign.sql)? {
            found.push(replication);
        }
    }
    Ok(found)
}

/// The replication systems of all engines.
pub(crate) fn known_replications() -> impl Iterator<Item = &'static Replication> {
    signs().into_iter().filter_map(|sign| sign.replication)
}

/// The statement after which the session makes schemas whose tables may be on several nodes, whatever its settings were. Servers without these settings ignore
/// it. `is_local`: until the end of the transaction.
pub fn plain_schemas(is_local: bool) -> String {
    let settings = Engine::ALL.iter().flat_map(|engine| engine.own()).filter_map(|own| own.plain_schemas);
    let settings = settings.map(|(name, value)| format!("when {} then {}", literal(name), literal(value)));
    let settings = settings.collect::<Vec<_>>().join(" ");
    format!(
        "select pg_catalog.set_config(s.name, s.wanted, {is_local}) \
         from (select name, case name {settings} end as wanted from pg_catalog.pg_settings) s where s.wanted is not null"
    )
}

/// The sets of PostgreSQL's own replication, which every server knows.
pub(crate) fn native_sets() -> &'static Sets {
    &super::sets::NATIVE
}

/// Whether this server belongs to an engine that spreads the rows of a table over its nodes by itself.
///
/// # Errors
/// When the catalog cannot be read.
pub fn is_spread(client: &mut impl postgres::GenericClient) -> Result<bool, postgres::Error> {
    for sign in signs().iter().filter(|sign| matches!(sign.engine.layout, Layout::Spread(_))) {
        let found = crate::catalog::rows(client, &format!("select {}", sign.sql))?;
        if found.first().is_some_and(|row| row.is_true(0)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// How the errors begin, on any engine, with which a node refuses every statement while it is no part of its cluster.
pub fn isolated() -> Vec<&'static str> {
    signs().iter().flat_map(|sign| sign.own().isolated).copied().collect()
}

/// The catalog objects that identify engines. One query reads them all: `select` and [`Signs::sql`] of each, separated by commas.
pub fn signs() -> Vec<Signs> {
    let mut signs = Vec::new();
    for engine in Engine::ALL {
        match engine.discovery {
            Discovery::Catalog(catalog) => {
                signs.push(Signs { engine, replication: None, sql: catalog.sign });
            }
            Discovery::Copies(replications) => signs.extend(replications.iter().map(|replication| Signs {
                engine,
                replication: Some(replication),
                sql: replication.sign,
            })),
            Discovery::Native | Discovery::None(_) => {}
        }
    }
    signs
}
