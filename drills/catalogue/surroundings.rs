//! Tests of what an entry may have around its server: a pooler, work on its files, little shared memory.

use super::entry::{self, Entry};
use super::host::{self, Foreign};
use super::runner::Stage;
use crate::island::{Own, alone};
use crate::support::Folder;
use rustix::fs::statvfs;
use testing::{needs, skip};

fn entry_of(text: &str) -> Result<Entry, String> {
    let head = "[[control]]\nname = \"one\"\ncause = \"a server with its surroundings\"\n";
    entry::chapter("test", &format!("{head}{text}")).map(|mut all| all.remove(0))
}

#[test]
fn the_files_of_a_stopped_server_can_be_changed() {
    let entry = entry_of(
        "offline = 'test ! -e $PGDATA/postmaster.pid && echo \"work_mem = 7MB\" >> $PGDATA/postgresql.auto.conf'",
    )
    .expect("an entry");
    let (folder, foreign) = (Folder::new(), Foreign::new());
    let stage = Stage::set(&entry, folder.path(), &foreign, None).expect("a server");
    let value = stage.server().expect("it runs").value("SHOW work_mem").expect("it answers");
    assert_eq!(value.as_deref(), Some("7MB"));
}

#[test]
fn loads_share_the_connections_of_the_pooler() {
    if let Err(lack) = needs::program(super::pooler::PROGRAM) {
        return skip(&lack);
    }
    let text = "prepare = ['CREATE ROLE \"web-shop\" LOGIN']\npooler = { mode = 'transaction', size = 1 }\n\
        [[control.load]]\npooled = true\nuser = 'web-shop'\nrepeat = 'SELECT 1'\n";
    let entry = entry_of(text).expect("an entry");
    let (folder, foreign) = (Folder::new(), Foreign::new());
    let stage = Stage::set(&entry, folder.path(), &foreign, None).expect("a server and a pooler");
    let place = stage.place_of(&entry.load[0]).expect("the pooler's");
    let pid = |session: &mut postgres::Client| {
        let rows = session.simple_query("SELECT pg_backend_pid()").expect("it answers");
        let values = rows.iter().filter_map(|message| match message {
            postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        values.collect::<Vec<String>>()
    };
    let mut sessions: Vec<postgres::Client> =
        (0..3).map(|_| place.session("web-shop").expect("it connects")).collect();
    let pids: Vec<_> = sessions.iter_mut().map(pid).collect();
    assert!(pids[0].len() == 1 && pids.iter().all(|one| *one == pids[0]), "{pids:?}");
}

#[test]
fn shared_memory_is_as_small_as_the_entry_wants_it() {
    alone(Own::Mounts, &[needs::mounts], &["TXN-13"], |_| {
        host::shrink_shared_memory(3)?;
        let there = statvfs("/dev/shm").map_err(|error| error.to_string())?;
        let bytes = there.f_blocks * there.f_frsize;
        if bytes == 3 << 20 { Ok(()) } else { Err(format!("{bytes} bytes")) }
    });
}

#[test]
fn surroundings_that_cannot_be_are_refused() {
    let why = entry_of("[[control.load]]\npooled = true\nrepeat = 'SELECT 1'\n").expect_err("no pooler");
    assert!(why.contains("pooler that is not described"), "{why}");
    for text in ["offline = 'true'", "watch_user = 'reader'", "pooler = { mode = 'session', size = 2 }"] {
        let why = entry_of(&format!("standby = 'async'\n{text}\n")).expect_err("two servers");
        assert!(why.contains("single server"), "{why}");
    }
}
