//! What manages a server besides us: then it is not ours to start it, and a fault has to reach the manager as well.

use std::path::{Path, PathBuf};
use std::time::Duration;

use connect::os_user::OsUser;
use rustix::process::Signal;

use super::super::LocalError;
use super::super::folder;
use super::super::http::Request;
use super::super::job::{Job, MANAGER_FILE};
use super::config;

/// Patroni writes it into the data directory of each server that it manages.
const SIGN: &str = "patroni.dynamic.json";
/// How long a switchover may take: Patroni waits for the new primary before it answers.
const SWITCHOVER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a manager may take to say what its node is.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// The failover manager of a server.
#[derive(Clone, Debug)]
pub(in crate::local) enum Manager {
    /// `up` started it.
    Ours(Member),
    /// Another program did: its processes are unknown.
    Foreign,
}

/// One node of a cluster that `up patroni` made.
#[derive(Clone, Debug)]
pub(in crate::local) struct Member {
    cluster: PathBuf,
    node_dir: PathBuf,
}

impl Manager {
    /// The manager of the server in this data directory.
    pub(in crate::local) fn of(data_dir: &Path) -> Option<Manager> {
        let node_dir = data_dir.parent()?;
        let cluster = node_dir.parent()?;
        if folder::is_marked(cluster) && node_dir.join(MANAGER_FILE).is_file() {
            return Some(Manager::Ours(Member {
                cluster: cluster.to_owned(),
                node_dir: node_dir.to_owned(),
            }));
        }
        data_dir.join(SIGN).is_file().then_some(Manager::Foreign)
    }

    /// The member, if its processes are known.
    pub(in crate::local) fn member(&self) -> Option<&Member> {
        match self {
            Manager::Ours(member) => Some(member),
            Manager::Foreign => None,
        }
    }
}

impl Member {
    fn manager(&self) -> Job {
        Job::manager(&self.node_dir)
    }

    fn store(&self) -> Job {
        Job::store(&self.cluster)
    }

    /// Starts the manager, unless it runs.
    pub(in crate::local) fn start(&self, user: Option<&OsUser>) -> Result<(), LocalError> {
        self.manager().start(user)
    }

    /// Kills the manager.
    pub(in crate::local) fn kill(&self) -> Result<(), LocalError> {
        self.manager().kill()
    }

    /// Stops the manager (SIGSTOP) or lets it go on (SIGCONT).
    pub(in crate::local) fn signal(&self, signal: Signal) -> Result<(), LocalError> {
        self.manager().signal(signal)
    }

    /// Kills the store of the cluster's state.
    pub(in crate::local) fn kill_store(&self) -> Result<(), LocalError> {
        self.store().kill()
    }

    /// Starts it again, unless it runs.
    pub(in crate::local) fn start_store(&self, user: Option<&OsUser>) -> Result<(), LocalError> {
        self.store().start(user)
    }

    /// Whether the manager would let its node take over as one that commits wait for: it decides by what the store holds, which follows the server's own
    /// state by seconds.
    pub(in crate::local) fn calls_itself_synchronous(&self) -> bool {
        let file = self.node_dir.join(MANAGER_FILE);
        let rest = folder::text_of(&file).ok().and_then(|text| config::rest_in(&text));
        rest.is_some_and(|(port, ..)| {
            let (method, path) = ("GET", "/synchronous");
            let request = Request { method, port, path, login: None, body: "", timeout: STATUS_TIMEOUT };
            request.send().is_ok_and(|answer| answer.status == 200)
        })
    }

    /// Requests that another node takes over: `to`, or the one that the manager chooses.
    pub(in crate::local) fn switch_over(&self, from: &str, to: Option<&str>) -> Result<(), LocalError> {
        let file = self.node_dir.join(MANAGER_FILE);
        let text = folder::text_of(&file).map_err(LocalError::io("read", &file))?;
        let refused = |status: String, output: String| LocalError::Program {
            program: "the switchover".to_owned(),
            status,
            output,
        };
        let (port, user, password) = config::rest_in(&text)
            .ok_or_else(|| refused(format!("{} names no REST interface", file.display()), String::new()))?;
        let body = match to {
            Some(to) => format!(r#"{{"leader":"{from}","candidate":"{to}"}}"#),
            None => format!(r#"{{"leader":"{from}"}}"#),
        };
        let request = Request {
            method: "POST",
            port,
            path: "/switchover",
            login: Some((&user, &password)),
            body: &body,
            timeout: SWITCHOVER_TIMEOUT,
        };
        let answer = request.send().map_err(LocalError::io("ask the manager in", &self.node_dir))?;
        match answer.status {
            200 | 202 => Ok(()),
            status => Err(refused(status.to_string(), answer.body)),
        }
    }
}
