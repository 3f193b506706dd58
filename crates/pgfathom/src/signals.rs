//! SIGINT and SIGTERM: each is one request to stop. The handler only writes a byte into a socket; a thread of our own does the rest.

use app::stop::{Reply, Stop};
use record::Exit;
use std::io::{Read, Write as _};
use std::os::unix::net::UnixStream;

/// Takes SIGINT and SIGTERM over, and starts the thread that counts them. `draining` is what the verb does at the first request.
///
/// # Errors
/// When the system refuses the handler, a socket pair or the thread.
pub fn install(draining: &'static str) -> std::io::Result<Stop> {
    let stop = Stop::default();
    let (mut reader, writer) = UnixStream::pair()?;
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
    }
    // A write past the limit on file sizes (ulimit -f) returns an error: the signal alone would end the program without a message.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, std::sync::Arc::default())?;
    let requested = stop.clone();
    std::thread::Builder::new().name("signals".to_string()).spawn(move || {
        let mut byte = [0u8; 1];
        while matches!(reader.read(&mut byte), Ok(1)) {
            requested.request_with(|reply| answer(reply, draining));
        }
    })?;
    Ok(stop)
}

/// Reports the effect of a signal. The terminal may be closed, and a panic here would leave later signals without effect.
fn answer(reply: Reply, draining: &str) {
    match reply {
        Reply::NothingBegun => {
            let _ = writeln!(std::io::stderr(), "\ninterrupted");
        }
        Reply::Draining => {
            let _ = writeln!(std::io::stderr(), "\ninterrupted: {draining}; press again to stop at once");
        }
        Reply::Stopping => {
            let _ = writeln!(std::io::stderr(), "\nstopping at once: what is in flight is given up");
        }
        Reply::Leave => std::process::exit(i32::from(Exit::Interrupted.code())),
    }
}
