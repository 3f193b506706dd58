//! From texts to types: every value is checked, lists are matched, defaults and passwords filled in.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::parameter::{self, PARAMETERS, Treatment};
use super::passfile::Passfile;
use super::spec::{
    ConnSpec, Host, HostSpec, Keepalives, LoadBalance, PORT_DEFAULT, RootCert, SessionAttrs, SslMode,
    TlsOptions, TlsVersion,
};
use super::{
    AuthMethod, AuthMethods, ChannelBindingMode, Chosen, ConninfoError, Pinned, Resolved, Sources, Values,
    default_socket_dir,
};
use crate::Secret;

/// The default application name of sessions.
const APPLICATION_NAME: &str = "pgfathom";

/// The last step of resolving.
pub(super) fn build(
    values: &Values,
    sources: &Sources<'_>,
    chosen: Chosen<'_>,
) -> Result<Resolved, ConninfoError> {
    refuse_unsupported(values)?;
    let mut warnings = Vec::new();
    let user = values
        .given("user")
        .map(str::to_owned)
        .or_else(|| sources.os_user.clone())
        .ok_or(ConninfoError::NoUser)?;
    let dbname = values.given("dbname").unwrap_or(&user).to_owned();
    let mut hosts = hosts(values, sources)?;
    let password = values.given("password").map(Secret::new);
    let passfile = match &password {
        Some(_) => None,
        None => search_passfile(values, sources, chosen, (&mut hosts, &dbname, &user), &mut warnings),
    };
    let withheld = match chosen {
        Chosen::ByUser => None,
        Chosen::ByOthers(why) => Some(why.to_owned()),
    };
    let (sslmode, tls) = tls(values, sources)?;
    let session_settings = parameter::SESSION_ENVIRONMENT
        .iter()
        .filter_map(|(env, setting)| Some(((*setting).to_owned(), (sources.env)(env)?)))
        .collect();
    let spec = ConnSpec {
        hosts,
        user,
        dbname,
        password,
        passfile,
        withheld,
        sslmode,
        tls,
        channel_binding: one_of(values, "channel_binding", &CHANNEL_BINDING)?,
        require_auth: require_auth(values)?,
        require_peer: values.given("requirepeer").map(str::to_owned),
        target_session_attrs: one_of(values, "target_session_attrs", &SessionAttrs::ALL)?,
        load_balance_hosts: one_of(values, "load_balance_hosts", &LOAD_BALANCE)?,
        connect_timeout: number(values, "connect_timeout")?
            .and_then(|s| u64::try_from(s).ok())
            .filter(|s| *s > 0)
            .map(Duration::from_secs),
        application_name: values
            .given("application_name")
            .or(values.given("fallback_application_name"))
            .unwrap_or(APPLICATION_NAME)
            .to_owned(),
        options: values.given("options").map(str::to_owned),
        session_settings,
        // Callers that run the user's statements request the user's settings.
        pinned: Pinned::All,
        keepalives: keepalives(values)?,
    };
    Ok(Resolved { spec, warnings })
}

/// Looks in the password file for passwords of the hosts; gives its path if it has one.
fn search_passfile(
    values: &Values,
    sources: &Sources<'_>,
    chosen: Chosen<'_>,
    (hosts, dbname, user): (&mut [HostSpec], &str, &str),
    warnings: &mut Vec<String>,
) -> Option<PathBuf> {
    let named = values.given("passfile").map(PathBuf::from);
    let path = named.or_else(|| sources.home.as_ref().map(|home| home.join(".pgpass")))?;
    let file = Passfile::read(&path, warnings);
    for host in &mut *hosts {
        let name = passfile_name(host, sources);
        let port = host.port.to_string();
        host.password = match chosen {
            Chosen::ByUser => file.password(&name, &port, dbname, user),
            Chosen::ByOthers(_) => file.password_of_named(host, &port, dbname, user),
        };
    }
    hosts.iter().any(|host| host.password.is_some()).then_some(path)
}

/// Values that libpq supports and this client does not.
fn refuse_unsupported(values: &Values) -> Result<(), ConninfoError> {
    for parameter in PARAMETERS {
        let Some(value) = values.given(parameter.name) else { continue };
        let origin = values.origin(parameter.name);
        match parameter.treatment {
            Treatment::Used | Treatment::Ignored => {}
            Treatment::Only(allowed) if allowed.contains(&value) => {}
            Treatment::Only(_) => {
                return Err(ConninfoError::Unsupported {
                    parameter: parameter.name,
                    value: Some(value.to_owned()),
                    origin,
                });
            }
            Treatment::Refused => {
                return Err(ConninfoError::Unsupported { parameter: parameter.name, value: None, origin });
            }
        }
    }
    Ok(())
}

/// The host list with addresses and ports.
fn hosts(values: &Values, sources: &Sources<'_>) -> Result<Vec<HostSpec>, ConninfoError> {
    let split =
        |name: &str| values.given(name).map(|list| list.split(',').map(str::trim).collect::<Vec<_>>());
    let (names, addresses) = (split("host"), split("hostaddr"));
    let count = match (&names, &addresses) {
        (Some(names), Some(addresses)) if names.len() != addresses.len() => {
            return Err(ConninfoError::CountMismatch {
                what: "hostaddr values",
                count: addresses.len(),
                hosts: names.len(),
            });
        }
        (_, Some(list)) | (Some(list), None) => list.len(),
        (None, None) => 1,
    };
    let ports = split("port").unwrap_or_else(|| vec![""]);
    if ports.len() != 1 && ports.len() != count {
        return Err(ConninfoError::CountMismatch { what: "port numbers", count: ports.len(), hosts: count });
    }
    let mut hosts = Vec::with_capacity(count);
    for index in 0..count {
        let port = port(values, ports[if ports.len() == 1 { 0 } else { index }])?;
        let name = names.as_ref().map_or("", |names| names[index]);
        let text = addresses.as_ref().map_or("", |addresses| addresses[index]);
        let address: Option<IpAddr> = match text {
            "" => None,
            text => Some(text.parse().map_err(|_| {
                invalid(values, "hostaddr", text, "an IP address, such as 10.0.0.5 or 2001:db8::1")
            })?),
        };
        let host = match (name, address) {
            ("", Some(address)) => Host::Tcp(address.to_string()),
            ("", None) => Host::Unix(default_socket_dir(&sources.socket_dirs, port)),
            (name, _) => Host::parse(name),
        };
        hosts.push(HostSpec { host, address, port, password: None });
    }
    Ok(hosts)
}

fn port(values: &Values, text: &str) -> Result<u16, ConninfoError> {
    match text {
        "" => Ok(PORT_DEFAULT),
        text => text
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or_else(|| invalid(values, "port", text, "a number from 1 to 65535")),
    }
}

/// The name under which a password file lists a host: `localhost` for the default socket.
fn passfile_name(host: &HostSpec, sources: &Sources<'_>) -> String {
    match &host.host {
        Host::Unix(dir) if sources.socket_dirs.contains(dir) => "localhost".to_owned(),
        host => host.to_string(),
    }
}

const CHANNEL_BINDING: [(&str, ChannelBindingMode); 3] = [
    ("prefer", ChannelBindingMode::Prefer),
    ("disable", ChannelBindingMode::Disable),
    ("require", ChannelBindingMode::Require),
];

const LOAD_BALANCE: [(&str, LoadBalance); 2] =
    [("disable", LoadBalance::Disable), ("random", LoadBalance::Random)];

const TLS_VERSION: [(&str, TlsVersion); 2] = [("TLSv1.2", TlsVersion::V1_2), ("TLSv1.3", TlsVersion::V1_3)];

/// A value out of a list; the type's default when it is not given.
fn one_of<T: Copy + Default>(
    values: &Values,
    name: &'static str,
    choices: &[(&str, T)],
) -> Result<T, ConninfoError> {
    let Some(value) = values.given(name) else { return Ok(T::default()) };
    choices.iter().find(|(known, _)| *known == value).map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(known, _)| *known).collect();
        let near = parameter::nearest_of(value, names.iter().copied());
        let meant = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        invalid(values, name, value, &format!("one of {}{meant}", names.join(", ")))
    })
}

/// An integer, `None` when it is not given.
fn number(values: &Values, name: &'static str) -> Result<Option<i32>, ConninfoError> {
    values
        .given(name)
        .map(|value| value.trim().parse().map_err(|_| invalid(values, name, value, "a whole number")))
        .transpose()
}

fn invalid(values: &Values, parameter: &'static str, value: &str, expected: &str) -> ConninfoError {
    ConninfoError::InvalidValue {
        parameter,
        value: value.to_owned(),
        origin: values.origin(parameter),
        expected: expected.to_owned(),
    }
}

/// `require_auth`: a list of methods, or a list of methods with `!`.
fn require_auth(values: &Values) -> Result<AuthMethods, ConninfoError> {
    const NAME: &str = "require_auth";
    /// Methods that libpq knows and this client does not: a requirement of only these cannot be met.
    const FOREIGN: [&str; 3] = ["gss", "sspi", "oauth"];
    let Some(list) = values.given(NAME) else { return Ok(AuthMethods::ALL) };
    let wrong = |expected: &str| invalid(values, NAME, list, expected);
    let mut seen: Vec<&str> = Vec::new();
    let negative = list.trim_start().starts_with('!');
    let mut set = if negative { AuthMethods::ALL } else { AuthMethods::EMPTY };
    for part in list.split(',').map(str::trim) {
        if part.starts_with('!') != negative {
            return Err(wrong("either methods or !methods, not both"));
        }
        let name = part.trim_start_matches('!');
        if seen.contains(&name) {
            return Err(wrong("each method once"));
        }
        seen.push(name);
        let known = [AuthMethod::None, AuthMethod::Password, AuthMethod::Md5, AuthMethod::ScramSha256];
        match known.into_iter().find(|method| method.name() == name) {
            Some(method) => set = if negative { set.without(method) } else { set.with(method) },
            None if FOREIGN.contains(&name) => {}
            None => return Err(wrong("a list of password, md5, scram-sha-256, gss, sspi, oauth, none")),
        }
    }
    Ok(set)
}

fn tls(values: &Values, sources: &Sources<'_>) -> Result<(SslMode, TlsOptions), ConninfoError> {
    let root_cert = match values.given("sslrootcert") {
        None => RootCert::Default,
        Some("system") => RootCert::System,
        Some(path) => RootCert::File(PathBuf::from(path)),
    };
    let mut sslmode = one_of(values, "sslmode", &SslMode::ALL)?;
    let require_env = (sources.env)("PGREQUIRESSL").is_some_and(|v| v.starts_with('1'));
    if values.given("sslmode").is_none() {
        if root_cert == RootCert::System {
            sslmode = SslMode::VerifyFull;
        } else if require_env {
            sslmode = SslMode::Require;
        }
    }
    if root_cert == RootCert::System && sslmode != SslMode::VerifyFull {
        return Err(ConninfoError::WeakSslMode { sslmode: sslmode.name() });
    }
    let version = |name: &'static str| -> Result<Option<TlsVersion>, ConninfoError> {
        match values.given(name) {
            // Older versions are not supported here; as a minimum they require no more than 1.2 offers.
            Some("TLSv1" | "TLSv1.1") if name == "ssl_min_protocol_version" => Ok(Some(TlsVersion::V1_2)),
            Some(value) => TLS_VERSION
                .iter()
                .find(|(known, _)| known.eq_ignore_ascii_case(value))
                .map(|(_, version)| Some(*version))
                .ok_or_else(|| invalid(values, name, value, "TLSv1.2 or TLSv1.3")),
            None => Ok(None),
        }
    };
    let min_version = version("ssl_min_protocol_version")?.unwrap_or(TlsVersion::V1_2);
    let max_version = version("ssl_max_protocol_version")?;
    if let Some(max) = max_version
        && max < min_version
    {
        let value = values.given("ssl_max_protocol_version").unwrap_or_default();
        return Err(invalid(values, "ssl_max_protocol_version", value, "at least ssl_min_protocol_version"));
    }
    let path = |name: &str| values.given(name).map(PathBuf::from);
    let options = TlsOptions {
        root_cert,
        cert: path("sslcert"),
        key: path("sslkey"),
        client_cert: values.given("sslcertmode") != Some("disable"),
        crl: path("sslcrl"),
        sni: values.given("sslsni") != Some("0"),
        min_version,
        max_version,
        default_dir: sources.home.as_ref().map(|home| home.join(".postgresql")),
    };
    Ok((sslmode, options))
}

fn keepalives(values: &Values) -> Result<Keepalives, ConninfoError> {
    let positive = |name: &'static str| -> Result<Option<u32>, ConninfoError> {
        Ok(number(values, name)?.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0))
    };
    let seconds = |n: Option<u32>| n.map(|n| Duration::from_secs(n.into()));
    Ok(Keepalives {
        enabled: number(values, "keepalives")?.is_none_or(|n| n != 0),
        idle: seconds(positive("keepalives_idle")?),
        interval: seconds(positive("keepalives_interval")?),
        count: positive("keepalives_count")?,
        user_timeout: positive("tcp_user_timeout")?.map(|ms| Duration::from_millis(ms.into())),
    })
}
