//! Service files (`parseServiceInfo` in `fe-connect.c`).

use std::fs;
use std::path::{Path, PathBuf};

use super::{ConninfoError, parameter};

/// The parameters of `service` and the file they are in.
///
/// `named` is the file that the user named; without it `~/.pg_service.conf` is looked at when it exists. When the service is not in there,
/// the system-wide file is read.
pub(super) fn find(
    service: &str,
    named: Option<&Path>,
    home: Option<&Path>,
    sysconfdir: Option<&Path>,
) -> Result<(PathBuf, Vec<(String, String)>), ConninfoError> {
    let personal = home.map(|home| home.join(".pg_service.conf")).filter(|path| path.exists());
    let system = sysconfdir.map(|dir| dir.join("pg_service.conf")).filter(|path| path.exists());
    let searched: Vec<PathBuf> = named.map(Path::to_owned).or(personal).into_iter().chain(system).collect();
    for path in &searched {
        let text = fs::read_to_string(path)
            .map_err(|source| ConninfoError::ServiceFile { path: path.clone(), source })?;
        if let Some(pairs) = section(&text, service, path)? {
            return Ok((path.clone(), pairs));
        }
    }
    Err(ConninfoError::ServiceNotFound { name: service.to_owned(), searched })
}

/// The pairs of section `[service]`; the first of a name counts. `None`: no such section.
fn section(text: &str, service: &str, path: &Path) -> Result<Option<Vec<(String, String)>>, ConninfoError> {
    let mut found: Option<Vec<(String, String)>> = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let wrong = |problem: String| ConninfoError::ServiceSyntax {
            path: path.to_owned(),
            line: index + 1,
            problem,
        };
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            if found.is_some() {
                break;
            }
            if name.strip_suffix(']') == Some(service) {
                found = Some(Vec::new());
            }
            continue;
        }
        let Some(pairs) = &mut found else { continue };
        let Some((name, value)) = line.split_once('=') else {
            return Err(wrong("a line that is not parameter=value".to_owned()));
        };
        if name == "service" || name == "servicefile" {
            return Err(wrong(format!("nested \"{name}\"")));
        }
        if parameter::find(name).is_none() {
            let near =
                parameter::nearest(name).map(|near| format!(", did you mean {near}?,")).unwrap_or_default();
            return Err(wrong(format!("unknown connection parameter \"{name}\"{near}")));
        }
        if !pairs.iter().any(|(known, _)| known == name) {
            pairs.push((name.to_owned(), value.to_owned()));
        }
    }
    Ok(found)
}
