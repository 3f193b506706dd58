//! Connection URIs (`conninfo_uri_parse_options` in `fe-connect.c`).

use super::ConninfoError;

const PREFIXES: [&str; 2] = ["postgresql://", "postgres://"];

/// Whether the text is a URI.
pub(super) fn is_uri(text: &str) -> bool {
    PREFIXES.iter().any(|prefix| text.starts_with(prefix))
}

/// The parameters in their order; a later one overrides an earlier one of the same name.
///
/// `postgresql://[user[:password]@][host[:port][,host[:port]]...][/dbname][?name=value[&...]]`
pub(super) fn parse(uri: &str) -> Result<Vec<(String, String)>, ConninfoError> {
    let mut rest = PREFIXES.iter().find_map(|prefix| uri.strip_prefix(prefix)).unwrap_or(uri);
    let mut pairs = Vec::new();
    let mut store = |name: &str, value: &str| -> Result<(), ConninfoError> {
        if !value.is_empty() {
            pairs.push((name.to_owned(), decode(value)?));
        }
        Ok(())
    };
    refuse_bare_password(rest)?;
    if let Some(at) = rest.find(['@', '/'])
        && rest[at..].starts_with('@')
    {
        let (user, password) = rest[..at].split_once(':').unwrap_or((&rest[..at], ""));
        store("user", user)?;
        store("password", password)?;
        rest = &rest[at + 1..];
    }
    let (hosts, ports, after) = parse_hosts(rest)?;
    store("host", &hosts)?;
    store("port", &ports)?;
    let (path, query) = after.split_once('?').map_or((after, None), |(path, query)| (path, Some(query)));
    store("dbname", path.strip_prefix('/').unwrap_or(path))?;
    if let Some(query) = query {
        parse_query(query, &mut pairs)?;
    }
    Ok(pairs)
}

/// Refuses a URI in which a part of the password would be taken for a host, a port or a database, and be shown in messages about them. No host
/// has an `@` in its name, and the few databases and sockets that have one are percent-encoded.
fn refuse_bare_password(rest: &str) -> Result<(), ConninfoError> {
    let authority = rest.split('/').next().unwrap_or_default();
    let Some((userinfo, hosts)) = authority.split_once('@') else {
        let path = rest[authority.len()..].split('?').next().unwrap_or_default();
        // Without a colon there is no password.
        return match authority.contains(':') && path.contains('@') {
            true => Err(syntax(
                "a \"/\" in the user or the password (it is written %2F), or a \"@\" in the database (%40),",
            )),
            false => Ok(()),
        };
    };
    let (hosts, query) = hosts.split_once('?').unwrap_or((hosts, ""));
    let has_cut_query = query.split_once('@').is_some_and(|(before, _)| !before.contains('='));
    if hosts.contains('@') || has_cut_query {
        let whose = if userinfo.contains(':') { "password" } else { "user" };
        return Err(syntax(&format!("a second \"@\" before the host (in a {whose} it is written %40)")));
    }
    Ok(())
}

/// The host list, the port list, and the rest, which is empty or starts with `/` or `?`.
fn parse_hosts(mut rest: &str) -> Result<(String, String, &str), ConninfoError> {
    let (mut hosts, mut ports) = (String::new(), String::new());
    loop {
        let host = if let Some(inside) = rest.strip_prefix('[') {
            let end = inside.find(']').ok_or_else(|| {
                syntax("the end was reached when looking for the matching \"]\" of an IPv6 address")
            })?;
            if end == 0 {
                return Err(syntax("an empty IPv6 address"));
            }
            rest = &inside[end + 1..];
            if let Some(c) = rest.chars().next()
                && !":/?,".contains(c)
            {
                return Err(syntax(&format!(
                    "unexpected character \"{c}\" after \"]\" (expected \":\" or \"/\")"
                )));
            }
            &inside[..end]
        } else {
            let end = rest.find([':', '/', '?', ',']).unwrap_or(rest.len());
            let host = &rest[..end];
            rest = &rest[end..];
            host
        };
        hosts.push_str(host);
        if let Some(after) = rest.strip_prefix(':') {
            let end = after.find(['/', '?', ',']).unwrap_or(after.len());
            ports.push_str(&after[..end]);
            rest = &after[end..];
        }
        match rest.strip_prefix(',') {
            Some(after) => {
                hosts.push(',');
                ports.push(',');
                rest = after;
            }
            None => return Ok((hosts, ports, rest)),
        }
    }
}

fn parse_query(query: &str, pairs: &mut Vec<(String, String)>) -> Result<(), ConninfoError> {
    // As in libpq, an ampersand at the end is ignored; one in the middle is a parameter without a name.
    let query = query.strip_suffix('&').filter(|rest| !rest.is_empty()).unwrap_or(query);
    for (index, pair) in query.split('&').enumerate().filter(|_| !query.is_empty()) {
        // Its text is not shown: it may be a part of a password that is not percent-encoded.
        let number = index + 1;
        let Some((name, value)) = pair.split_once('=') else {
            return Err(syntax(&format!("missing key/value separator \"=\" in query parameter {number}")));
        };
        if value.contains('=') {
            return Err(syntax(&format!("extra key/value separator \"=\" in query parameter {number}")));
        }
        let (name, value) = (decode(name)?, decode(value)?);
        // JDBC's spelling, accepted by libpq.
        if name == "ssl" && value == "true" {
            pairs.push(("sslmode".to_owned(), "require".to_owned()));
        } else {
            pairs.push((name, value));
        }
    }
    Ok(())
}

/// Resolves `%XX`. Messages do not quote the text: it may be a password.
fn decode(text: &str) -> Result<String, ConninfoError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |b: Option<u8>| b.and_then(|b| char::from(b).to_digit(16));
        match (digit(rest.next()), digit(rest.next())) {
            (Some(0), Some(0)) => return Err(syntax("the forbidden value %00")),
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => return Err(syntax("an invalid percent-encoded token")),
        }
    }
    String::from_utf8(bytes).map_err(|_| syntax("a percent-encoded value that is not UTF-8"))
}

fn syntax(problem: &str) -> ConninfoError {
    ConninfoError::UriSyntax(problem.to_owned())
}
