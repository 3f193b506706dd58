//! A throwaway server or cluster, and a folder to type commands in.

use crate::support::{Ended, Folder, pgfathom};
use lab::throwaway::{SUPERUSER, Throwaway, ThrowawayCluster};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// One server. Commands find it through the environment, as a user would set it.
pub(crate) struct ServerLab {
    pub(crate) server: Throwaway,
    pub(crate) folder: Folder,
}

impl ServerLab {
    pub(crate) fn new(server: Throwaway) -> ServerLab {
        ServerLab { server, folder: Folder::new() }
    }

    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = pgfathom(self.folder.path());
        self.describe(&mut command);
        command.args(arguments.split_whitespace());
        command
    }

    /// Describes the server to a command.
    pub(crate) fn describe(&self, command: &mut Command) {
        describe(command, self.server.socket_dir(), self.server.port());
    }

    pub(crate) fn typed(&self, arguments: &str) -> Ended {
        typed(self.command(arguments), arguments)
    }

    /// Types a command, which must end with this code.
    pub(crate) fn expect(&self, exit: i32, arguments: &str) -> Ended {
        expect(exit, self.command(arguments), arguments)
    }

    pub(crate) fn sql(&self, sql: &str) -> String {
        self.server.value(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).unwrap_or_default()
    }

    /// The `run.json` of a run directory.
    pub(crate) fn run_json(&self, directory: &str) -> Value {
        json(&self.folder.path().join(directory).join("run.json"))
    }
}

/// Several servers, described by a cluster file.
pub(crate) struct ClusterLab {
    pub(crate) servers: ThrowawayCluster,
    pub(crate) folder: Folder,
}

impl ClusterLab {
    pub(crate) fn new(servers: ThrowawayCluster) -> ClusterLab {
        ClusterLab { servers, folder: Folder::new() }
    }

    /// A command about the cluster as its file names it.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = pgfathom(self.folder.path());
        command.args(arguments.split_whitespace()).arg("--cluster").arg(self.servers.cluster_toml());
        command
    }

    /// Types a command about the cluster, which must end with this code.
    pub(crate) fn expect(&self, exit: i32, arguments: &str) -> Ended {
        expect(exit, self.command(arguments), arguments)
    }

    /// A command in which CLUSTER stands for the cluster file.
    pub(crate) fn command_with_file(&self, arguments: &str) -> Command {
        let mut command = pgfathom(self.folder.path());
        let file = self.servers.cluster_toml().display().to_string();
        command.args(arguments.split_whitespace().map(|word| word.replace("CLUSTER", &file)));
        command
    }

    /// Types a command about one node, from which the others are found.
    pub(crate) fn expect_at(&self, exit: i32, arguments: &str, node: usize) -> Ended {
        expect(exit, self.command_at(arguments, node), arguments)
    }

    /// The command for that.
    pub(crate) fn command_at(&self, arguments: &str, node: usize) -> Command {
        let server = self.servers.node(node);
        let mut command = pgfathom(self.folder.path());
        command.args(arguments.split_whitespace()).arg("-h").arg(server.socket_dir());
        command.args(["-p", &server.port().to_string(), "-U", SUPERUSER, "-d", "postgres"]);
        command
    }

    pub(crate) fn execute(&self, node: usize, sql: &str) {
        self.servers.node(node).execute(sql).unwrap_or_else(|error| panic!("n{}: {sql}: {error}", node + 1));
    }

    pub(crate) fn sql(&self, node: usize, sql: &str) -> String {
        let value = self.servers.node(node).value(sql);
        value.unwrap_or_else(|error| panic!("n{}: {sql}: {error}", node + 1)).unwrap_or_default()
    }

    /// The `run.json` of a run directory.
    pub(crate) fn run_json(&self, directory: &str) -> Value {
        json(&self.folder.path().join(directory).join("run.json"))
    }
}

/// Servers on which other roles have planted traps: no command may spring one.
pub(crate) struct TrapLab<'a> {
    /// Arguments that name the target.
    pub(crate) connection: Vec<String>,
    pub(crate) servers: Vec<&'a Throwaway>,
    pub(crate) folder: Folder,
    /// What the log of a server tells of sprung traps.
    sprung: fn(&Throwaway) -> Vec<String>,
}

impl<'a> TrapLab<'a> {
    pub(crate) fn of(server: &'a Throwaway, sprung: fn(&Throwaway) -> Vec<String>) -> TrapLab<'a> {
        let (host, port) = (server.socket_dir().display().to_string(), server.port().to_string());
        let connection = ["-h", &host, "-p", &port, "-U", SUPERUSER, "-d", "postgres"].map(str::to_owned);
        TrapLab::new(connection.to_vec(), vec![server], sprung)
    }

    pub(crate) fn new(
        connection: Vec<String>,
        servers: Vec<&'a Throwaway>,
        sprung: fn(&Throwaway) -> Vec<String>,
    ) -> TrapLab<'a> {
        TrapLab { connection, servers, folder: Folder::new(), sprung }
    }

    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = pgfathom(self.folder.path());
        command.args(arguments.split_whitespace()).args(&self.connection);
        command
    }

    /// Runs a command, which must spring no trap on any server.
    pub(crate) fn typed(&self, command: Command, arguments: &str) -> Ended {
        let ended = typed(command, arguments);
        let sprung: Vec<String> = self.servers.iter().flat_map(|server| (self.sprung)(server)).collect();
        assert!(
            sprung.is_empty(),
            "$ pgfathom {arguments}\n{}{}{}",
            ended.stdout,
            ended.stderr,
            sprung.join("\n")
        );
        ended
    }

    /// Types a command, which must end with this code.
    pub(crate) fn expect(&self, exit: i32, arguments: &str) -> Ended {
        ended_with(exit, self.typed(self.command(arguments), arguments), arguments)
    }
}

/// Describes a server to a command through the environment, as a user would.
pub(crate) fn describe(command: &mut Command, host: impl AsRef<OsStr>, port: u16) {
    command
        .env("PGHOST", host)
        .env("PGPORT", port.to_string())
        .env("PGUSER", SUPERUSER)
        .env("PGDATABASE", "postgres");
}

/// Runs a command and prints what it wrote.
pub(crate) fn typed(mut command: Command, arguments: &str) -> Ended {
    let ended: Ended = command.output().expect("the command starts").into();
    eprintln!("$ pgfathom {arguments}\n{}{}", ended.stdout, ended.stderr);
    ended
}

/// Runs a command, which must end with this code.
pub(crate) fn expect(exit: i32, command: Command, arguments: &str) -> Ended {
    ended_with(exit, typed(command, arguments), arguments)
}

/// Checks the exit code.
pub(crate) fn ended_with(exit: i32, ended: Ended, arguments: &str) -> Ended {
    assert_eq!(ended.exit, Some(exit), "$ pgfathom {arguments}\n{}{}", ended.stdout, ended.stderr);
    ended
}

/// A file of JSON.
pub(crate) fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
