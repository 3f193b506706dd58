//! Who may change a file, or what is in a folder, besides us and root.

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// Only the owner of an entry may remove or rename it.
const STICKY: u32 = 0o1000;
/// The group may write.
const BY_GROUP: u32 = 0o020;
/// Every user may write.
const BY_ALL: u32 = 0o002;

/// Whether this is a folder that users share, such as `/tmp`: each removes and renames only what is his own.
pub fn is_shared(folder: &Metadata) -> bool {
    folder.is_dir() && folder.mode() & STICKY != 0
}

/// Whether every user may put a file into this folder, or write this file.
pub fn is_open_to_all(there: &Metadata) -> bool {
    there.mode() & BY_ALL != 0
}

/// Whether every user may remove and rename what others have in this folder.
pub fn is_renamed_by_all(folder: &Metadata) -> bool {
    is_open_to_all(folder) && !is_shared(folder)
}

/// Others who may change what lies somewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Others {
    /// It belongs to this user.
    Owner(u32),
    /// This group may write, and so may an access control list say.
    Group(u32),
    /// Every user may write.
    Everyone,
}

impl Others {
    /// Of a file, or of a folder and the names in it, if it is to be that of one of `owners`.
    pub fn of(there: &Metadata, owners: &[u32]) -> Option<Others> {
        match there.mode() {
            _ if !owners.contains(&there.uid()) => Some(Others::Owner(there.uid())),
            _ if is_shared(there) => None,
            mode if mode & BY_ALL != 0 => Some(Others::Everyone),
            mode if mode & BY_GROUP != 0 => Some(Others::Group(there.gid())),
            _ => None,
        }
    }
}

impl fmt::Display for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Others::Owner(user) => write!(f, "it belongs to user {user}"),
            Others::Group(group) => write!(f, "group {group} may write into it"),
            Others::Everyone => f.write_str("every user may write into it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn who_may_change_a_path_follows_from_owner_and_mode() {
        let folder = std::env::temp_dir().join(format!("pgfathom-owner-{}", std::process::id()));
        fs::create_dir(&folder).expect("made");
        let us = rustix::process::geteuid().as_raw();
        for (mode, expected) in [
            (0o700, "-"),
            (0o755, "-"),
            (0o1777, "-"),
            (0o777, "every user may write into it"),
            (0o770, "group G may write into it"),
        ] {
            fs::set_permissions(&folder, Permissions::from_mode(mode)).expect("changed");
            let there = fs::metadata(&folder).expect("there");
            let found = Others::of(&there, &[us]).map_or("-".to_owned(), |others| others.to_string());
            assert_eq!(found.replace(&there.gid().to_string(), "G"), expected, "{mode:o}");
            assert_eq!(Others::of(&there, &[us + 1]), Some(Others::Owner(us)));
            assert_eq!(is_renamed_by_all(&there), mode == 0o777, "{mode:o}");
            assert_eq!(is_open_to_all(&there), mode & 0o007 == 0o007, "{mode:o}");
        }
        fs::remove_dir(&folder).expect("removed");
    }
}
