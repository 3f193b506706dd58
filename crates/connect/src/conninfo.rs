//! libpq's rules for connection parameters, and the resulting [`ConnSpec`].
//!
//! A user who has a working `psql` command line, environment, service file or password file must get the same server, role and
//! database here. Hence the precedence is that of psql: a connection string (`-d` or the last argument) overrides the flags `-h -p -U`,
//! these override the service file, which overrides the `PG*` variables, which override the defaults (`PQconnectdbParams` with `expand_dbname`,
//! `conninfo_add_defaults`, `pqConnectOptions2` in `fe-connect.c`). This module does not read the process's environment: it gets
//! a [`Sources`].

mod error;
mod keyvalue;
mod parameter;
mod passfile;
mod pinned;
mod service;
mod spec;
mod typed;
mod uri;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use error::{ConninfoError, Origin};
pub use pinned::Pinned;
pub use spec::quoted;
pub use spec::{
    ConnSpec, Host, HostSpec, Keepalives, LoadBalance, PORT_DEFAULT, RootCert, SessionAttrs, SslMode,
    TlsOptions, TlsVersion,
};
pub use wire::startup::{AuthMethod, AuthMethods, ChannelBindingMode};

/// What the command line gives. All texts are as typed; empty ones count as not given, as in libpq.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// `-h`.
    pub host: Option<String>,
    /// `-p`.
    pub port: Option<String>,
    /// `-U`.
    pub user: Option<String>,
    /// `-d`: a database name, key=value string or URI.
    pub dbname: Option<String>,
    /// The last argument: the same.
    pub target: Option<String>,
}

impl Request {
    /// Only a database name, key=value string or URI.
    pub fn target(text: &str) -> Request {
        Request { target: Some(text.to_owned()), ..Request::default() }
    }

    /// Whether nothing was given: then the environment and the defaults decide.
    pub fn is_empty(&self) -> bool {
        *self == Request::default()
    }
}

/// Other sources of connection parameters.
pub struct Sources<'a> {
    /// Environment variables.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Name of the operating system's user, the default role.
    pub os_user: Option<String>,
    /// Home directory, for `.pgpass`, `.pg_service.conf` and `.postgresql/`.
    pub home: Option<PathBuf>,
    /// Folders of the sockets of a server on this host, most likely first. libpq has one compiled in: `/tmp`, or
    /// `/var/run/postgresql` as Debian and Red Hat build it.
    pub socket_dirs: Vec<PathBuf>,
    /// The folder of the system-wide `pg_service.conf`, unless `PGSYSCONFDIR` names another.
    pub sysconfdir: Option<PathBuf>,
}

impl std::fmt::Debug for Sources<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources")
            .field("os_user", &self.os_user)
            .field("home", &self.home)
            .finish_non_exhaustive()
    }
}

impl Sources<'static> {
    /// This process's environment and user.
    pub fn of_process() -> Sources<'static> {
        let env = |name: &str| std::env::var(name).ok();
        let user = crate::os_user::OsUser::current();
        Sources {
            env: &|name| std::env::var(name).ok(),
            home: env("HOME")
                .filter(|h| !h.is_empty())
                .map(PathBuf::from)
                .or(user.as_ref().map(|u| u.home.clone())),
            os_user: user.map(|user| user.name),
            socket_dirs: ["/var/run/postgresql", "/tmp"].map(PathBuf::from).to_vec(),
            // Debian's folder, then that of an installation from source.
            sysconfdir: ["/etc/postgresql-common", "/etc/sysconfig/pgsql", "/usr/local/pgsql/etc"]
                .map(PathBuf::from)
                .into_iter()
                .find(|dir| dir.join("pg_service.conf").exists()),
        }
    }
}

/// A resolved connection, and libpq's warnings about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// What to connect to.
    pub spec: ConnSpec,
    /// Lines for stderr.
    pub warnings: Vec<String>,
}

/// Parameters by name, with their source.
#[derive(Clone, Debug, Default)]
struct Values(BTreeMap<&'static str, (String, Origin)>);

impl Values {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|(value, _)| value.as_str())
    }

    /// The value unless it is missing or empty.
    fn given(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    fn origin(&self, name: &str) -> Origin {
        self.0.get(name).map_or(Origin::Default, |(_, origin)| origin.clone())
    }

    /// Sets a parameter, which must be known.
    fn set(&mut self, name: &str, value: String, origin: Origin) -> Result<(), ConninfoError> {
        let parameter = parameter::find(name).ok_or_else(|| ConninfoError::UnknownParameter {
            name: name.to_owned(),
            origin: origin.clone(),
        })?;
        self.0.insert(parameter.name, (value, origin));
        Ok(())
    }

    /// Takes a parameter away if it came from there.
    fn forget(&mut self, name: &str, from: impl Fn(&Origin) -> bool) {
        self.0.retain(|known, (_, origin)| *known != name || !from(origin));
    }

    /// Sets the parameters of a connection string. After a password, the name of an unknown one is not shown.
    fn set_all(&mut self, pairs: Vec<(String, String)>, origin: &Origin) -> Result<(), ConninfoError> {
        let mut is_behind = false;
        for (name, value) in pairs {
            if is_behind && parameter::find(&name).is_none() {
                return Err(ConninfoError::BehindPassword { origin: origin.clone() });
            }
            is_behind |= matches!(name.as_str(), "password" | "sslpassword");
            self.set(&name, value, origin.clone())?;
        }
        Ok(())
    }

    fn set_if_missing(&mut self, name: &str, value: String, origin: Origin) -> Result<(), ConninfoError> {
        if self.0.contains_key(name) { Ok(()) } else { self.set(name, value, origin) }
    }
}

/// Who chose the host of a connection.
#[derive(Clone, Copy, Debug)]
enum Chosen<'a> {
    /// The user, who sends it the password at hand.
    ByUser,
    /// Others, as they can change the text that names it: only a password that the user keeps for this host is sent there. It holds why others can.
    ByOthers(&'a str),
}

/// Whether a text is a connection string, and not the name of a database.
pub fn is_string(text: &str) -> bool {
    uri::is_uri(text) || text.contains('=')
}

/// Merges all parameters of a connection.
pub fn resolve(request: &Request, sources: &Sources<'_>) -> Result<Resolved, ConninfoError> {
    typed::build(&merge(request, sources)?, sources, Chosen::ByUser)
}

/// The same for this database, whatever else is named: also the password file is searched for it.
pub fn resolve_to(request: &Request, dbname: &str, sources: &Sources<'_>) -> Result<Resolved, ConninfoError> {
    let mut values = merge(request, sources)?;
    values.set("dbname", dbname.to_owned(), Origin::Default)?;
    typed::build(&values, sources, Chosen::ByUser)
}

fn merge(request: &Request, sources: &Sources<'_>) -> Result<Values, ConninfoError> {
    let mut values = Values::default();
    let flags = [("host", "-h", &request.host), ("port", "-p", &request.port), ("user", "-U", &request.user)];
    for (name, flag, value) in flags {
        if let Some(value) = value.as_ref().filter(|v| !v.is_empty()) {
            values.set(name, value.clone(), Origin::Flag(flag))?;
        }
    }
    let (target, origin) = match (&request.target, &request.dbname) {
        (Some(_), Some(_)) => return Err(ConninfoError::TwoTargets),
        (Some(text), None) => (Some(text), Origin::Flag("the last argument")),
        (None, text) => (text.as_ref(), Origin::Flag("-d")),
    };
    match target.filter(|text| !text.is_empty()) {
        Some(text) if uri::is_uri(text) => {
            values.set_all(uri::parse(text)?, &Origin::Uri)?;
        }
        // As the name of a database it would be shown, including the password.
        Some(text)
            if text.contains("://") && !text.split("://").next().is_some_and(|word| word.contains('=')) =>
        {
            return Err(ConninfoError::OtherUri);
        }
        Some(text) if text.contains('=') => {
            values.set_all(keyvalue::parse(text)?, &Origin::String)?;
        }
        Some(name) => values.set("dbname", name.clone(), origin)?,
        None => {}
    }
    add_service(&mut values, sources)?;
    for parameter in parameter::PARAMETERS {
        if let Some(name) = parameter.env
            && let Some(value) = (sources.env)(name)
        {
            values.set_if_missing(parameter.name, value, Origin::Environment(name))?;
        }
    }
    Ok(values)
}

/// The variables that say which server and database, and as whom; those of services may say anything.
const PLACE_VARIABLES: [&str; 10] = [
    "PGHOST",
    "PGHOSTADDR",
    "PGPORT",
    "PGUSER",
    "PGDATABASE",
    "PGSERVICE",
    "PGSERVICEFILE",
    "PGSYSCONFDIR",
    "PGTARGETSESSIONATTRS",
    "PGLOADBALANCEHOSTS",
];

/// A connection string as `cluster.toml` holds it. Where it leads is in the string alone; password, TLS, timeouts and settings of the session that it does not
/// have come from the environment, as those of any connection.
///
/// `others` is how others can change the file, if they can. Then they choose the host, and the user's password must not follow them: it is sent only where a
/// line of the user's password file names that host.
pub(crate) fn parse_of_node(
    text: &str,
    sources: &Sources<'_>,
    others: Option<&str>,
) -> Result<Resolved, ConninfoError> {
    let env = |name: &str| (sources.env)(name).filter(|_| !PLACE_VARIABLES.contains(&name));
    let Some(why) = others else { return parse_with(text, sources, &env) };
    let env = |name: &str| env(name).filter(|_| name != "PGPASSWORD");
    let bare = bare(sources, &env);
    let mut values = merge(&Request::target(text), &bare)?;
    values.forget("password", |origin| matches!(origin, Origin::Service(_)));
    values.forget("passfile", |origin| !matches!(origin, Origin::Environment(_)));
    if let Some(path) = env("PGPASSFILE") {
        values.set_if_missing("passfile", path, Origin::Environment("PGPASSFILE"))?;
    }
    typed::build(&values, &bare, Chosen::ByOthers(why))
}

/// A connection string on its own: no flags, no environment, no files except the password file.
pub fn parse(text: &str, sources: &Sources<'_>) -> Result<Resolved, ConninfoError> {
    parse_with(text, sources, &|_| None)
}

/// The same for another way to the servers of `known`: the role and the database that the text does not name are those of that connection.
///
/// # Errors
/// As [`parse`].
pub fn parse_beside(text: &str, sources: &Sources<'_>, known: &ConnSpec) -> Result<Resolved, ConninfoError> {
    parse_with(text, sources, &|name| match name {
        "PGUSER" => Some(known.user.clone()),
        "PGDATABASE" => Some(known.dbname.clone()),
        _ => None,
    })
}

fn parse_with(
    text: &str,
    sources: &Sources<'_>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Resolved, ConninfoError> {
    resolve(&Request::target(text), &bare(sources, env))
}

/// The same sources with this environment, and without the services of the system.
fn bare<'a>(sources: &Sources<'_>, env: &'a dyn Fn(&str) -> Option<String>) -> Sources<'a> {
    Sources {
        env,
        os_user: sources.os_user.clone(),
        home: sources.home.clone(),
        socket_dirs: sources.socket_dirs.clone(),
        sysconfdir: None,
    }
}

/// Adds the parameters of the service file, if a service is named.
fn add_service(values: &mut Values, sources: &Sources<'_>) -> Result<(), ConninfoError> {
    let env = |name: &str| (sources.env)(name).filter(|v| !v.is_empty());
    let Some(service) = values.given("service").map(str::to_owned).or_else(|| env("PGSERVICE")) else {
        return Ok(());
    };
    let named =
        values.given("servicefile").map(str::to_owned).or_else(|| env("PGSERVICEFILE")).map(PathBuf::from);
    let sysconfdir = env("PGSYSCONFDIR").map(PathBuf::from).or_else(|| sources.sysconfdir.clone());
    let (path, pairs) =
        service::find(&service, named.as_deref(), sources.home.as_deref(), sysconfdir.as_deref())?;
    for (name, value) in pairs {
        values.set_if_missing(&name, value, Origin::Service(path.clone()))?;
    }
    Ok(())
}

/// The most likely folder for the socket of a server on this host: the first one that contains one for this port,
/// else the first one that exists.
fn default_socket_dir(dirs: &[PathBuf], port: u16) -> PathBuf {
    let socket = format!(".s.PGSQL.{port}");
    dirs.iter()
        .find(|dir| dir.join(&socket).exists())
        .or_else(|| dirs.iter().find(|dir| dir.is_dir()))
        .map_or_else(|| PathBuf::from("/tmp"), |dir| Path::to_owned(dir))
}

#[cfg(test)]
mod tests;
