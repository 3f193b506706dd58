//! What measures on a host. It reads requests and writes replies, one JSON line each, so that it can run at the other end of an ssh
//! connection; on the local host it runs in a thread.
//!
//! The end of the requests stops a measurement in progress: when the process that wanted it is gone, nothing keeps running.

pub mod disk;
pub mod facts;
pub mod memory;
pub mod message;
pub mod network;
pub mod place;
pub mod processor;
pub mod scratch;
mod sys;

use message::{PROTOCOL, Reply, Request};
use network::Listener;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

/// The flag of a probe that is a copy: it removes itself.
pub(crate) const REMOVE_FLAG: &str = "--remove-program";
/// The beginning of the name of the folder of such a copy.
pub(crate) const COPY_FOLDER: &str = "pgfathom-check.";
/// A request line is cut here.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Serves requests until there are no more.
pub fn serve(requests: impl Read + Send + 'static, replies: impl Write) {
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, received) = channel();
    let ended = Arc::clone(&stop);
    // This thread reads ahead, so that the end is noticed during a measurement. It ends with its input, or with the process.
    std::thread::spawn(move || {
        let mut reader = BufReader::new(requests);
        let mut line = vec![];
        loop {
            line.clear();
            match reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
                Ok(count) if count > 0 && line.ends_with(b"\n") => {}
                _ => break,
            }
            if sender.send(serde_json::from_slice::<Request>(&line)).is_err() {
                break;
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    let mut replies = replies;
    let hello = Reply::Hello { protocol: PROTOCOL, pid: std::process::id() };
    if send(&mut replies, &hello).is_err() {
        return;
    }
    let mut probe = Probe { stop, listener: None };
    while let Ok(request) = received.recv() {
        let reply = match request {
            Ok(request) => probe.answer(request),
            Err(error) => Reply::Failed(format!("the request is not understood: {error}")),
        };
        if probe.stop.load(Ordering::Relaxed) || send(&mut replies, &reply).is_err() {
            return;
        }
    }
}

/// Removes the program that runs, if it is a copy that `check` made: it needs no file any more.
pub fn remove_program() {
    let Ok(program) = std::env::current_exe() else { return };
    let Some(folder) = program.parent() else { return };
    let is_ours = folder.file_name().is_some_and(|name| name.to_string_lossy().starts_with(COPY_FOLDER));
    if is_ours {
        // What remains is removed by the shell that started it.
        let _ = std::fs::remove_file(&program);
        let _ = std::fs::remove_dir(folder);
    }
}

fn send(replies: &mut impl Write, reply: &Reply) -> std::io::Result<()> {
    serde_json::to_writer(&mut *replies, reply)?;
    replies.write_all(b"\n")?;
    replies.flush()
}

/// What a probe keeps between two requests.
#[derive(Debug)]
struct Probe {
    stop: Arc<AtomicBool>,
    listener: Option<Listener>,
}

impl Probe {
    fn answer(&mut self, request: Request) -> Reply {
        match request {
            Request::Disk(plan) => Reply::Disk(Box::new(disk::measure(&plan, &self.stop))),
            Request::Facts => Reply::Facts(Box::new(facts::of_this_host(&self.stop))),
            Request::Clock => Reply::Clock { wall_us: record::clock::wall_us() },
            Request::Processor { time_ms } => {
                Reply::Processor(processor::measure(Duration::from_millis(time_ms), &self.stop))
            }
            Request::Memory { time_ms } => {
                Reply::Memory(memory::measure(Duration::from_millis(time_ms), &self.stop))
            }
            Request::Listen => self.listen(),
            Request::Network { address, listening, time_ms } => {
                let time = Duration::from_millis(time_ms);
                match network::measure(&address, &listening, time, &self.stop) {
                    Ok(pair) => Reply::Network(Box::new(pair)),
                    Err(error) => Reply::Failed(format!("{address} port {}: {error}", listening.port)),
                }
            }
        }
    }

    fn listen(&mut self) -> Reply {
        if self.listener.is_none() {
            match Listener::start() {
                Ok(listener) => self.listener = Some(listener),
                Err(error) => return Reply::Failed(format!("cannot listen: {error}")),
            }
        }
        match &self.listener {
            Some(listener) => Reply::Listening(listener.listening.clone()),
            None => Reply::Failed("cannot listen".to_string()),
        }
    }
}
