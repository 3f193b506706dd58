//! The password file (`passwordFromFile` in `fe-connect.c`).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::HostSpec;
use crate::Secret;

/// A password file that was read.
#[derive(Debug, Default)]
pub(super) struct Passfile {
    lines: Vec<Secret>,
}

impl Passfile {
    /// Reads it. A missing file is an empty one; one that others may read is ignored, with libpq's warning.
    pub(super) fn read(path: &Path, warnings: &mut Vec<String>) -> Passfile {
        let Ok(meta) = fs::metadata(path) else { return Passfile::default() };
        let shown = path.display();
        if !meta.is_file() {
            warnings.push(format!("password file \"{shown}\" is not a plain file"));
            return Passfile::default();
        }
        if meta.mode() & 0o077 != 0 {
            warnings.push(format!(
                "password file \"{shown}\" has group or world access; permissions should be u=rw (0600) or less"
            ));
            return Passfile::default();
        }
        match fs::read(path) {
            Ok(bytes) => Passfile::parse(&String::from_utf8_lossy(&bytes)),
            Err(error) => {
                warnings.push(format!("password file \"{shown}\" cannot be read: {error}"));
                Passfile::default()
            }
        }
    }

    pub(super) fn parse(text: &str) -> Passfile {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(Secret::new);
        Passfile { lines: lines.collect() }
    }

    /// The password of the first line that names this host, and not any. Others chose the host: a name with an address that they chose as well is no host of
    /// the user's, and neither is a folder of sockets that has another name here.
    pub(super) fn password_of_named(
        &self,
        host: &HostSpec,
        port: &str,
        dbname: &str,
        user: &str,
    ) -> Option<Secret> {
        let of_hosts = Passfile {
            lines: self.lines.iter().filter(|line| !line.reveal().starts_with("*:")).cloned().collect(),
        };
        of_hosts.password(&host.host.to_string(), port, dbname, user).filter(|_| host.address.is_none())
    }

    /// The password of the first matching line.
    pub(super) fn password(&self, host: &str, port: &str, dbname: &str, user: &str) -> Option<Secret> {
        self.lines.iter().find_map(|line| {
            let mut rest = line.reveal();
            for token in [host, port, dbname, user] {
                rest = after_match(rest, token)?;
            }
            let mut password = String::new();
            let mut chars = rest.chars();
            while let Some(c) = chars.next() {
                match c {
                    ':' => break,
                    '\\' => password.push(chars.next().unwrap_or('\\')),
                    c => password.push(c),
                }
            }
            Some(Secret::new(password))
        })
    }
}

/// The rest of `line` after its first field, if that is `*` or, with escapes resolved, `token`.
fn after_match<'a>(line: &'a str, token: &str) -> Option<&'a str> {
    if let Some(rest) = line.strip_prefix("*:") {
        return Some(rest);
    }
    let mut wanted = token.chars();
    let mut chars = line.char_indices();
    while let Some((at, c)) = chars.next() {
        let c = match c {
            ':' => return wanted.next().is_none().then(|| &line[at + 1..]),
            '\\' => chars.next()?.1,
            c => c,
        };
        if wanted.next() != Some(c) {
            return None;
        }
    }
    None
}
