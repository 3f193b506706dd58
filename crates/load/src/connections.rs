//! How this crate connects: with the settings that [`Pinned`](connect::conninfo::Pinned) fixes, and [`SETTINGS`].

use connect::ConnSpec;
use connect::control::{self, Control};
use connect::hot::{self, HotConnection};
use engines::cluster::Cluster;
use engines::profile::{LoadPath, Replication};
use wire::error::SqlState;

use crate::error::LoadError;

/// Settings that not every server knows, so that they cannot be part of the startup message.
///
/// With `row_security` off a statement fails where a policy would hide rows from this role, instead of counting fewer. Views of users are never
/// read, even if one takes the place of a table between a look at the catalog and the statement.
pub(crate) const SETTINGS: &str = "select set_config(name, case name when 'row_security' then 'off' else 'view' end, false) \
     from pg_settings where name in ('row_security', 'restrict_nonsystem_relation_kind')";

/// A control connection.
pub(crate) fn control(spec: &ConnSpec) -> Result<Control, LoadError> {
    let mut control = control::connect(&spec.pinned()).map_err(LoadError::connect)?;
    let set = control.batch_execute(SETTINGS);
    set.map_err(|source| LoadError::sql("setting up the session", source))?;
    Ok(control)
}

/// The same for the few statements that need no session: also through a pool that shares server processes, which no setting may stay with.
pub(crate) fn shared(spec: &ConnSpec) -> Result<Control, LoadError> {
    let mut control = control::connect_shared(&spec.pinned()).map_err(LoadError::connect)?;
    if !control.is_shared() {
        let set = control.batch_execute(SETTINGS);
        set.map_err(|source| LoadError::sql("setting up the session", source))?;
    }
    Ok(control)
}

/// The connection to a node that is filled separately: its writes stay there, also where an extension sends those of other sessions to the other
/// nodes at once. `control` is connected to the node.
pub(crate) fn of_node(
    cluster: &Cluster,
    spec: &ConnSpec,
    control: &mut postgres::Client,
) -> Result<ConnSpec, LoadError> {
    let found_at = spec.clone();
    let mut spec = spec.clone();
    if cluster.engine.load != LoadPath::EachNode || !cluster.is_clustered() {
        return Ok(spec);
    }
    let keeps = |replication: &Replication| replication.local_writes.is_some();
    let found = engines::engine::replications(keeps, |sign| {
        Ok(control.query_one(&format!("select {sign}"), &[])?.get::<_, bool>(0))
    });
    let found = found.map_err(|source| LoadError::sql("reading the extensions", source))?;
    let settings: Vec<(String, String)> = found
        .iter()
        .filter_map(|replication| replication.local_writes)
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    spec.session_settings.extend(settings.iter().cloned());
    match shared(&spec) {
        // A pooler does not pass them on, and the node's own address does.
        Err(error) if error.sqlstate() == Some(TOO_LATE) => {
            let way = found.iter().find_map(|one| cluster.direct_way(&found_at, control, one));
            let mut direct = way.ok_or(error)?;
            direct.session_settings.extend(settings);
            Ok(direct)
        }
        _ => Ok(spec),
    }
}

/// `cant_change_runtime_param`: a session must begin with the setting.
const TOO_LATE: SqlState = SqlState(*b"55P02");

/// A hot connection, without [`SETTINGS`].
pub(crate) fn hot(spec: &ConnSpec) -> Result<HotConnection, connect::ConnectError> {
    hot::connect(&spec.pinned())
}

/// The schema in which the user's own session would create a table: the first one of its search path that exists.
pub(crate) fn users_schema(spec: &ConnSpec) -> Result<String, LoadError> {
    let spec = spec.clone().with_pinned(connect::conninfo::Pinned::Nothing);
    let mut control = control::connect(&spec).map_err(LoadError::connect)?;
    // No name in this statement is looked up along that path.
    let row = control.query_one("select pg_catalog.current_schema()::pg_catalog.text", &[]);
    let schema: Option<String> =
        row.map_err(|source| LoadError::sql("reading the schema of new tables", source))?.get(0);
    schema.ok_or(LoadError::NoSchema)
}
