//! A few requests to servers on this host that speak HTTP: the REST interface of a failover manager, and the store that it keeps its state in.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// The time limit for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The most of an answer that is read.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// 200 and so on.
    pub(super) status: u16,
    /// The text after the headers.
    pub(super) body: String,
}

/// A request to a port on this host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    /// `GET`, `POST`.
    pub(super) method: &'a str,
    /// The port on 127.0.0.1.
    pub(super) port: u16,
    /// With the slash.
    pub(super) path: &'a str,
    /// User and password, where the server asks for them.
    pub(super) login: Option<(&'a str, &'a str)>,
    /// JSON; empty: none.
    pub(super) body: &'a str,
    /// How long the answer may take.
    pub(super) timeout: Duration,
}

impl Request<'_> {
    /// Sends it and reads the answer to its end.
    ///
    /// # Errors
    /// When nothing listens there, or what comes is not HTTP.
    pub(super) fn send(&self) -> io::Result<Answer> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let mut stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        // HTTP/1.0: the answer comes in one piece, and its end is that of the connection.
        let mut text = format!(
            "{} {} HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n",
            self.method,
            self.path,
            self.body.len()
        );
        if let Some((user, password)) = self.login {
            let word = base64(format!("{user}:{password}").as_bytes());
            let _ = write!(text, "Authorization: Basic {word}\r\n");
        }
        text.push_str("\r\n");
        text.push_str(self.body);
        stream.write_all(text.as_bytes())?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
        parse(&String::from_utf8_lossy(&answer)).ok_or_else(|| io::Error::other("the reply is not HTTP"))
    }
}

fn parse(text: &str) -> Option<Answer> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut words = head.split_whitespace();
    words.next().filter(|version| version.starts_with("HTTP/"))?;
    let status = words.next()?.parse().ok()?;
    Some(Answer { status, body: body.trim().to_owned() })
}

/// RFC 4648, with padding.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let three = [0, 1, 2].map(|at| u32::from(chunk.get(at).copied().unwrap_or(0)));
        let bits = three[0] << 16 | three[1] << 8 | three[2];
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at) & 63) as usize];
            text.push(if at <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_apart() {
        let answer =
            parse("HTTP/1.0 503 Service Unavailable\r\nServer: x\r\n\r\n{\"role\": \"replica\"}\n").unwrap();
        assert_eq!(answer, Answer { status: 503, body: "{\"role\": \"replica\"}".to_owned() });
        assert_eq!(parse("HTTP/1.1 200 OK\r\n\r\n").unwrap().status, 200);
        for text in ["", "HTTP/1.1 200 OK\r\n", "SSH-2.0-x\r\n\r\n", "HTTP/1.1 many\r\n\r\n"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    /// The test vectors of RFC 4648.
    #[test]
    fn logins_are_encoded() {
        let vectors = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (text, encoded) in vectors {
            assert_eq!(base64(text.as_bytes()), encoded, "{text}");
        }
    }
}
