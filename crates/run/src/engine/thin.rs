//! The parts of a long reply that need not be kept: rows that nothing reads, notices, and the ends of long errors. So memory does not grow with the
//! length of a result.

use wire::backend::{HEADER_BYTES, tag};
use wire::error::ServerError;

/// Replies shorter than this are kept as they came: nothing is gained with them.
pub(super) const THIN_FROM: usize = 256 << 10;
/// What is kept of an error's fields: severity and code come first, then the message.
const TEXT_KEPT: usize = 16 << 10;
/// Enough of a long error to cut it here.
const TEXT_MIN: usize = 1 << 10;
/// The longest message that PostgreSQL sends. What claims to be longer is damaged.
const SENT_BYTES_MAX: usize = 1 << 30;

/// What is left of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Thinned {
    /// Bytes at the front that are kept.
    pub(super) kept: usize,
    /// Bytes that are still to come, directly behind them, and belong to a message that is not kept.
    pub(super) skip: usize,
    /// A long error has begun, of which more has to come before it can be cut.
    pub(super) waits: bool,
}

/// Moves what has to be kept of a reply to the front. It begins with `bytes` and may be incomplete; what follows it is kept.
pub(super) fn thin(bytes: &mut [u8], drops_rows: bool) -> Thinned {
    let (mut at, mut kept) = (0, 0);
    let mut waits = false;
    while let Some(header) = bytes[at..].first_chunk::<HEADER_BYTES>() {
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
        let (kind, total, here) = (header[0], length + 1, bytes.len() - at);
        if length < 4 || total > SENT_BYTES_MAX || kind == tag::READY_FOR_QUERY {
            break;
        }
        let is_dropped = match kind {
            tag::DATA_ROW => drops_rows,
            // A warning that takes back a part of a commit is short, and comes whole.
            tag::NOTICE_RESPONSE if total > TEXT_KEPT => true,
            tag::NOTICE_RESPONSE => {
                here >= total && !ServerError::is_cancelled_wait(&bytes[at + HEADER_BYTES..at + total])
            }
            tag::NOTIFICATION_RESPONSE => true,
            _ => false,
        };
        let is_cut = kind == tag::ERROR_RESPONSE && total > TEXT_KEPT;
        if is_cut {
            let cut = here.min(TEXT_KEPT);
            if cut < TEXT_MIN {
                waits = true;
                break;
            }
            bytes.copy_within(at..at + cut, kept);
            bytes[kept + 1..kept + HEADER_BYTES].copy_from_slice(&(cut as u32 - 1).to_be_bytes());
            // The end of the field, and of the fields.
            bytes[kept + cut - 2..kept + cut].fill(0);
            kept += cut;
        }
        if is_dropped || is_cut {
            if here < total {
                return Thinned { kept, skip: total - here, waits: false };
            }
        } else {
            if here < total {
                break;
            }
            bytes.copy_within(at..at + total, kept);
            kept += total;
        }
        at += total;
    }
    bytes.copy_within(at.., kept);
    Thinned { kept: kept + bytes.len() - at, skip: 0, waits }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    fn error(text: usize) -> Vec<u8> {
        let fields = format!("SERROR\0VERROR\0CP0001\0M{}\0\0", "x".repeat(text));
        message(tag::ERROR_RESPONSE, fields.as_bytes())
    }

    #[test]
    fn what_is_kept_is_the_same_wherever_the_reply_is_cut() {
        let cancelled = message(tag::NOTICE_RESPONSE, b"SWARNING\0RSyncRepWaitForLSN\0\0");
        let parts = [
            (message(tag::ROW_DESCRIPTION, b"shape"), true),
            (message(tag::DATA_ROW, &[7; 3_000]), false),
            (message(tag::NOTICE_RESPONSE, &[b'n'; 20_000]), false),
            (message(tag::NOTICE_RESPONSE, b"SNOTICE\0\0"), false),
            (cancelled, true),
            (message(tag::COMMAND_COMPLETE, b"SELECT 1\0"), true),
            (message(tag::READY_FOR_QUERY, b"I"), true),
            (message(tag::DATA_ROW, &[8; 100]), true),
        ];
        let whole: Vec<u8> = parts.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
        let wanted: Vec<u8> =
            parts.iter().filter(|(_, kept)| *kept).flat_map(|(bytes, _)| bytes.clone()).collect();
        for split in (0..whole.len()).step_by(61) {
            let mut buffer = whole[..split].to_vec();
            let first = thin(&mut buffer, true);
            buffer.truncate(first.kept);
            buffer.extend_from_slice(&whole[split + first.skip..]);
            let second = thin(&mut buffer, true);
            buffer.truncate(second.kept);
            assert_eq!((buffer == wanted, second.skip), (true, 0), "{split}");
        }
        let mut all = whole.clone();
        let with_rows = thin(&mut all, false);
        assert_eq!(with_rows.kept, wanted.len() + 3_005, "a session that reads rows has them");
    }

    #[test]
    fn a_long_error_keeps_its_code_and_the_beginning_of_its_words() {
        for here in [TEXT_MIN, 5_000, 100_000, 5_000_000] {
            let long = error(5_000_000);
            let mut buffer = long[..here.min(long.len())].to_vec();
            let thinned = thin(&mut buffer, false);
            assert_eq!(thinned.skip, long.len() - buffer.len());
            let frame = wire::backend::Frames::new(&buffer[..thinned.kept]).next().unwrap();
            let reported = ServerError::parse(frame.body);
            assert_eq!(reported.sqlstate.as_str(), "P0001");
            assert!(reported.message.len() > 900 && reported.message.starts_with("xxx"));
        }
        let mut begun = error(5_000_000)[..100].to_vec();
        assert!(thin(&mut begun, false).waits);
    }
}
