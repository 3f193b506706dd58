//! Any bytes as what a server sends: the decoders never panic, never keep more than they were given, and decide the same however the
//! bytes are torn.

use wire::MESSAGE_BYTES_MAX;
use wire::backend::{
    Columns, Frames, HEADER_BYTES, ProtocolError, ReplyScanner, Scan, column_names, command_tag,
    rows_affected,
};
use wire::copy::{Fields, strip_header};
use wire::error::ServerError;
use wire::startup::{
    AuthMethod, AuthMethods, ChannelBindingMode, Established, GREETING_BYTES_MAX, Startup, StartupError,
    StartupOptions,
};

/// A byte that is no UTF-8 becomes a replacement character of three.
const TEXT_GROWTH: usize = 3;
/// What answers need beyond what they repeat of the server's words.
const ANSWER_BYTES: usize = 1024;
/// Stands in an input for the nonce that the client has drawn, which no input can know. As long as the nonce, so that lengths stay right.
const NONCE: &[u8; 24] = b"NNNNNNNNNNNNNNNNNNNNNNNN";

/// The first byte chooses what the handshake is told, the second how the bytes are torn.
pub(crate) fn exercise(data: &[u8]) {
    let Some((&[wishes, piece], bytes)) = data.split_first_chunk::<2>() else { return };
    let piece = usize::from(piece) + 1;
    reply(bytes, piece);
    for frame in Frames::new(bytes) {
        body(frame.body);
    }
    body(bytes);
    handshake(wishes, bytes, piece);
}

fn reply(bytes: &[u8], piece: usize) {
    let whole = scan(bytes, bytes.len().max(1));
    assert_eq!(whole, scan(bytes, piece));
    let framed: usize = Frames::new(bytes).map(|frame| HEADER_BYTES + frame.body.len()).sum();
    assert!(framed <= bytes.len());
    match whole {
        Ok(Scan::Complete { end, .. } | Scan::Copy { end }) => assert!(end <= framed),
        Ok(Scan::Incomplete { wanted }) => {
            assert!(wanted > bytes.len() && wanted <= framed + MESSAGE_BYTES_MAX + 1);
        }
        Err(_) => {}
    }
}

/// Scans a buffer that grows by `piece` bytes at a time.
fn scan(bytes: &[u8], piece: usize) -> Result<Scan, ProtocolError> {
    let mut scanner = ReplyScanner::default();
    let mut length = 0;
    loop {
        length = (length + piece).min(bytes.len());
        let scan = scanner.scan(&bytes[..length])?;
        if length == bytes.len() || !matches!(scan, Scan::Incomplete { .. }) {
            return Ok(scan);
        }
    }
}

fn body(bytes: &[u8]) {
    if let Ok(names) = column_names(bytes) {
        assert!(names.iter().map(String::len).sum::<usize>() <= TEXT_GROWTH * bytes.len());
    }
    if let Ok(mut columns) = Columns::new(bytes) {
        let mut read = 0;
        while let Ok(Some(value)) = columns.next_column() {
            read += 4 + value.map_or(0, <[u8]>::len);
        }
        assert!(read <= bytes.len());
    }
    assert!(command_tag(bytes).len() <= bytes.len());
    let _ = rows_affected(bytes);
    let error = ServerError::parse(bytes);
    assert!(text_bytes(&error) <= TEXT_GROWTH * bytes.len());
    assert_eq!(error.sqlstate.as_str().len(), 5);
    assert_eq!(ServerError::sqlstate_of(bytes).as_str().len(), 5);
    if let Ok(Some(mut fields)) = Fields::parse(strip_header(bytes).unwrap_or(bytes)) {
        let mut read = 0;
        while let Ok(Some(value)) = fields.next_field() {
            read += 4 + value.map_or(0, <[u8]>::len);
        }
        assert!(read <= bytes.len());
    }
}

fn text_bytes(error: &ServerError) -> usize {
    let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    error.severity.len() + error.message.len() + optional(&error.detail) + optional(&error.hint)
}

fn options(wishes: u8) -> StartupOptions {
    let has = |bit: u8| wishes & 1 << bit != 0;
    StartupOptions {
        user: "ann".into(),
        parameters: vec![("database".into(), "shop".into())],
        password: has(0).then(|| b"tiger".to_vec()),
        channel_binding: match wishes >> 1 & 3 {
            0 => ChannelBindingMode::Disable,
            1 => ChannelBindingMode::Require,
            _ => ChannelBindingMode::Prefer,
        },
        require_auth: if has(3) {
            AuthMethods::EMPTY.with(AuthMethod::ScramSha256)
        } else {
            AuthMethods::ALL
        },
        encrypted: has(4),
        end_point: has(5).then(|| vec![9; 32]),
    }
}

/// How far a handshake came: what was established, what went wrong, or neither yet.
type Outcome = Result<Option<Established>, StartupError>;

fn handshake(wishes: u8, bytes: &[u8], piece: usize) {
    let whole = feed(wishes, bytes, bytes.len().max(1));
    let torn = feed(wishes, bytes, piece);
    // A bare text ends where the bytes that have come end; and a nonce is filled in between two pieces.
    if !matches!(whole, Err(StartupError::BareText(_) | StartupError::Scram(_))) {
        assert_eq!(whole, torn);
    }
    if let Ok(Some(established)) = whole {
        let parameters = established.parameters.iter().map(|(name, value)| name.len() + value.len());
        let notices = established.notices.iter().map(text_bytes);
        let kept = parameters.chain(notices).sum::<usize>();
        assert!(kept <= TEXT_GROWTH * bytes.len().min(GREETING_BYTES_MAX));
        assert!(established.notices.len() <= GREETING_BYTES_MAX / HEADER_BYTES);
    }
}

/// Feeds a handshake as a connection does: what is consumed leaves the buffer, `piece` bytes come at a time.
fn feed(wishes: u8, bytes: &[u8], piece: usize) -> Outcome {
    let mut bytes = bytes.to_vec();
    let mut out = Vec::new();
    let mut startup = Startup::new(options(wishes), &mut out);
    out.clear();
    let (mut from, mut length) = (0, 0);
    loop {
        let progress = startup.receive(&bytes[from..length], &mut out)?;
        assert!(progress.consumed <= length - from && out.len() <= ANSWER_BYTES + 2 * bytes.len());
        from += progress.consumed;
        assert!(length - from <= GREETING_BYTES_MAX + piece);
        if progress.done {
            return Ok(Some(startup.into_established()));
        }
        if let Some(nonce) = nonce(&out) {
            fill_in(&mut bytes[from..], nonce);
        }
        if length == bytes.len() {
            return Ok(None);
        }
        length = (length + piece).min(bytes.len());
    }
}

/// The client's nonce in its first SCRAM message.
fn nonce(out: &[u8]) -> Option<[u8; NONCE.len()]> {
    const BEFORE: &[u8] = b"n=,r=";
    let at = out.windows(BEFORE.len()).position(|window| window == BEFORE)? + BEFORE.len();
    out[at..].first_chunk().copied()
}

/// Writes the nonce into the first message that asks for it. Headers stay: the same messages come, whenever it is written.
fn fill_in(bytes: &mut [u8], nonce: [u8; NONCE.len()]) {
    let mut begin = 0;
    let place = Frames::new(bytes).find_map(|frame| {
        let body = begin + HEADER_BYTES;
        begin = body + frame.body.len();
        frame.body.windows(NONCE.len()).position(|window| window == NONCE).map(|at| body + at)
    });
    if let Some(place) = place {
        bytes[place..place + NONCE.len()].copy_from_slice(&nonce);
    }
}
