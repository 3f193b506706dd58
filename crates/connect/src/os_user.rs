//! Users of the operating system.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A user of the operating system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsUser {
    /// Login name.
    pub name: String,
    /// User number.
    pub uid: u32,
    /// Number of the primary group.
    pub gid: u32,
    /// Home folder.
    pub home: PathBuf,
}

impl OsUser {
    /// Who we are; `None` when neither the password file nor `getent` has an entry.
    pub fn current() -> Option<OsUser> {
        OsUser::by_uid(rustix::process::geteuid().as_raw())
    }

    /// The user with this id: from `/etc/passwd`, else from `getent`, which also looks in directories such as LDAP.
    pub fn by_uid(uid: u32) -> Option<OsUser> {
        let find = |users: Vec<OsUser>| users.into_iter().find(|user| user.uid == uid);
        OsUser::all().ok().and_then(find).or_else(|| find(OsUser::by_getent(&uid.to_string())?))
    }

    /// Whether there is a user of this name, by the same sources.
    pub(crate) fn exists(name: &str) -> bool {
        let is_it = |users: Vec<OsUser>| users.iter().any(|user| user.name == name);
        // A name that getent would take for an option or a number is none.
        let is_plain = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        OsUser::all().is_ok_and(is_it) || is_plain && OsUser::by_getent(name).is_some_and(is_it)
    }

    fn by_getent(key: &str) -> Option<Vec<OsUser>> {
        let output = Command::new("getent").args(["passwd", key]).stdin(Stdio::null()).output().ok()?;
        Some(OsUser::parse(&String::from_utf8_lossy(&output.stdout)))
    }

    /// The users in `/etc/passwd`.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn all() -> io::Result<Vec<OsUser>> {
        Ok(OsUser::parse(&fs::read_to_string("/etc/passwd")?))
    }

    fn parse(passwd: &str) -> Vec<OsUser> {
        let user = |line: &str| {
            let fields: Vec<&str> = line.split(':').collect();
            let (uid, gid) = (fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?);
            Some(OsUser { name: fields[0].to_owned(), uid, gid, home: PathBuf::from(fields.get(5)?) })
        };
        passwd.lines().filter_map(user).collect()
    }

    /// Whether this group is the user's own: the primary one, in which no other user is. Of groups that are not in the files of this host, this is not known.
    pub(crate) fn is_alone_in(&self, gid: u32) -> bool {
        let groups = fs::read_to_string("/etc/group").unwrap_or_default();
        let users = OsUser::all().unwrap_or_default();
        gid == self.gid && self.is_alone_by(&groups, &users)
    }

    fn is_alone_by(&self, groups: &str, users: &[OsUser]) -> bool {
        let shares = |user: &OsUser| user.gid == self.gid && user.uid != self.uid;
        let members = groups.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            (fields.get(2)?.parse() == Ok(self.gid)).then_some(*fields.get(3)?)
        });
        let is_us = |name: &str| name.is_empty() || name == self.name;
        members.is_some_and(|names| names.split(',').all(|name| is_us(name.trim())))
            && !users.iter().any(shares)
    }

    /// Whether this user may enter `dir` and every folder above it.
    pub fn can_reach(&self, dir: &Path) -> bool {
        dir.ancestors().all(|folder| self.may_enter(folder))
    }

    /// Whether the folder's own mode permits this user.
    pub fn may_enter(&self, folder: &Path) -> bool {
        fs::metadata(folder).is_ok_and(|meta| {
            let shift = if meta.uid() == self.uid {
                6
            } else if meta.gid() == self.gid {
                3
            } else {
                0
            };
            meta.mode() >> shift & 0o1 != 0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_read_from_a_password_file() {
        let passwd = "root:x:0:0::/root:/bin/sh\nmy:bad\nann:x:101:104:a,b:/home/ann:/bin/sh\n";
        let users = OsUser::parse(passwd);
        assert_eq!(users.len(), 2);
        let home = PathBuf::from("/home/ann");
        assert_eq!(users[1], OsUser { name: "ann".into(), uid: 101, gid: 104, home });
        assert!(OsUser::current().is_some());
    }

    #[test]
    fn a_group_is_a_users_own_if_no_one_else_is_in_it() {
        let passwd = "ann:x:101:104::/home/ann:/bin/sh\nbob:x:102:105::/home/bob:/bin/sh\n";
        let users = OsUser::parse(passwd);
        for (groups, expected) in [
            ("ann:x:104:\nbob:x:105:ann\n", true),
            ("ann:x:104:ann\n", true),
            ("ann:x:104:ann,bob\n", false),
            ("ann:x:104:bob\n", false),
            ("other:x:9:\n", false),
            ("", false),
        ] {
            assert_eq!(users[0].is_alone_by(groups, &users), expected, "{groups:?}");
        }
        let both = OsUser::parse(&passwd.replace("105", "104"));
        assert!(!both[0].is_alone_by("ann:x:104:\n", &both), "the primary group of two users");
    }
}
