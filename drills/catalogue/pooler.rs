//! A pgbouncer in front of the server of an entry. It ends with the value.

use super::entry;
use super::load::Place;
use crate::sys;
use lab::throwaway::Throwaway;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use testing::needs;

pub(crate) const PROGRAM: &str = "pgbouncer";
/// The longest start.
const START_TIMEOUT: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);
/// Clients of a pool that is too small still connect.
const CLIENTS_MAX: usize = 400;
/// What the file and those of its roles are called, in the folder of the entry.
const INI: &str = "pgbouncer.ini";
const USERS: &str = "pgbouncer.users";
const LOG: &str = "pgbouncer.log";

/// A line for each role that may log in, with an empty password.
const ROLES: &str = r#"SELECT '"' || replace(rolname, '"', '""') || '" ""' FROM pg_roles WHERE rolcanlogin"#;

/// A running pgbouncer.
pub(crate) struct Pooler {
    child: Child,
    /// How loads connect through it.
    pub(crate) place: Place,
}

impl Pooler {
    /// Starts it for all roles that may log in, as the user of the server and with its console on the server's socket folder.
    pub(crate) fn start(
        how: &entry::Pooler,
        server: &Throwaway,
        direct: &Place,
        folder: &Path,
    ) -> Result<Pooler, String> {
        let program = needs::program(PROGRAM).map_err(|lack| lack.to_string())?;
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let port = port.map_err(|error| error.to_string())?.port();
        let open = |name: &str, text: &str, mode: u32| {
            let path = folder.join(name);
            let written = fs::write(&path, text)
                .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(mode)));
            written.map_err(|error| format!("{}: {error}", path.display()))
        };
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(|error| error.to_string())?;
        let roles = server.execute(ROLES).map_err(|error| error.to_string())?;
        let roles: Vec<String> = roles.into_iter().flatten().flatten().collect();
        open(INI, &ini(how, server, port, &folder.join(USERS)), 0o644)?;
        open(USERS, &roles.join("\n"), 0o644)?;
        open(LOG, "", 0o666)?;
        let log = fs::OpenOptions::new().append(true).open(folder.join(LOG));
        let mut command = Command::new(program);
        command.arg(folder.join(INI)).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(log.map_err(|error| error.to_string())?);
        direct.set_owner(&mut command)?;
        sys::end_with_us(&mut command);
        let child = command.spawn().map_err(|error| format!("{PROGRAM}: {error}"))?;
        let place = Place { host: "127.0.0.1".to_owned(), port, ..direct.clone() };
        let mut pooler = Pooler { child, place };
        pooler.wait().map_err(|why| {
            format!("{PROGRAM}: {why}: {}", fs::read_to_string(folder.join(LOG)).unwrap_or_default())
        })?;
        Ok(pooler)
    }

    fn wait(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.place.port)).is_err() {
            if let Some(status) = self.child.try_wait().map_err(|error| error.to_string())? {
                return Err(status.to_string());
            }
            if begun.elapsed() > START_TIMEOUT {
                return Err("it does not listen".to_owned());
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The content of `pgbouncer.ini`.
fn ini(how: &entry::Pooler, server: &Throwaway, port: u16, users: &Path) -> String {
    let socket = server.socket_dir().display();
    let mut lines = vec![
        "[databases]".to_owned(),
        format!("postgres = host={socket} port={} dbname=postgres", server.port()),
        "[pgbouncer]".to_owned(),
        "listen_addr = 127.0.0.1".to_owned(),
        format!("listen_port = {port}"),
        format!("unix_socket_dir = {socket}"),
        "auth_type = trust".to_owned(),
        format!("auth_file = {}", users.display()),
        "admin_users = postgres".to_owned(),
        format!("pool_mode = {}", how.mode),
        format!("default_pool_size = {}", how.size),
        format!("max_client_conn = {CLIENTS_MAX}"),
        "ignore_startup_parameters = extra_float_digits".to_owned(),
    ];
    lines.extend(how.settings.iter().map(|(name, value)| format!("{name} = {value}")));
    lines.join("\n") + "\n"
}
