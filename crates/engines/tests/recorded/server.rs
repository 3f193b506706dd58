//! One side of the protocol, for servers that replay what was written down.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Codes of what comes instead of a startup message.
const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;

/// The answer to one question.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Rows(Vec<Vec<Option<String>>>),
    Error(String, String),
}

/// A row as it is written down: columns between `|`, `\N` for NULL.
pub(crate) fn row(line: &str) -> Vec<Option<String>> {
    line.split('|').map(|text| (text != "\\N").then(|| text.to_owned())).collect()
}

/// The settings of a startup packet, those among its options, too.
fn settings(packet: &[u8]) -> BTreeMap<String, String> {
    let words = String::from_utf8_lossy(packet.get(4..).unwrap_or_default()).into_owned();
    let words: Vec<&str> = words.split('\0').collect();
    let mut settings: BTreeMap<String, String> =
        words.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect();
    let options = settings.remove("options").unwrap_or_default();
    for option in
        options.split(" -c").filter_map(|option| option.trim().trim_start_matches("-c").split_once('='))
    {
        settings.insert(option.0.trim().to_lowercase(), option.1.replace('\\', ""));
    }
    settings
}

/// The answer to a question for settings alone; `None`: it asks for something else.
fn settings_row(sql: &str, settings: &BTreeMap<String, String>) -> Option<Answer> {
    let values = sql.strip_prefix("select ")?.split("), ").map(|value| {
        let name = value.strip_prefix("pg_catalog.current_setting('")?.split('\'').next()?;
        Some(settings.get(name).cloned())
    });
    Some(Answer::Rows(vec![values.collect::<Option<Vec<_>>>()?]))
}

/// Speaks with one client until that leaves; `find` knows the answers to what is not a question for the session's own settings.
pub(crate) fn serve(
    mut stream: TcpStream,
    mut find: impl FnMut(&str) -> Option<Answer>,
) -> std::io::Result<()> {
    let settings = loop {
        let body = body(&mut stream)?;
        let code = body.first_chunk::<4>().map_or(0, |code| u32::from_be_bytes(*code));
        if code != SSL_REQUEST && code != GSS_REQUEST {
            break settings(&body);
        }
        stream.write_all(b"N")?;
    };
    let mut out = Vec::new();
    message(&mut out, b'R', &0u32.to_be_bytes());
    for (name, value) in
        [("client_encoding", "UTF8"), ("server_version", "13.0"), ("standard_conforming_strings", "on")]
    {
        message(&mut out, b'S', format!("{name}\0{value}\0").as_bytes());
    }
    message(&mut out, b'K', &[0, 0, 0, 1, 0, 0, 0, 2]);
    message(&mut out, b'Z', b"I");
    stream.write_all(&out)?;
    loop {
        let mut tag = [0];
        stream.read_exact(&mut tag)?;
        let body = body(&mut stream)?;
        out.clear();
        match tag[0] {
            b'X' => return Ok(()),
            b'Q' => {
                let sql = String::from_utf8_lossy(body.strip_suffix(&[0]).unwrap_or(&body)).into_owned();
                let found = settings_row(&sql, &settings).or_else(|| find(&sql));
                answer(&mut out, &sql, found.as_ref());
            }
            other => panic!("the client says {:?}; catalogs are asked by simple queries", char::from(other)),
        }
        message(&mut out, b'Z', b"I");
        stream.write_all(&out)?;
    }
}

fn answer(out: &mut Vec<u8>, sql: &str, answer: Option<&Answer>) {
    match answer {
        Some(Answer::Rows(rows)) => {
            let columns = rows.first().map_or(0, Vec::len) as u16;
            let mut description = columns.to_be_bytes().to_vec();
            for column in 0..columns {
                description.extend(format!("c{column}\0").as_bytes());
                description.extend([0; 6]);
                description.extend(25u32.to_be_bytes());
                description.extend([0xff; 6]);
                description.extend([0; 2]);
            }
            message(out, b'T', &description);
            for row in rows {
                let mut body = (row.len() as u16).to_be_bytes().to_vec();
                for value in row {
                    match value {
                        None => body.extend((-1i32).to_be_bytes()),
                        Some(text) => {
                            body.extend((text.len() as u32).to_be_bytes());
                            body.extend(text.as_bytes());
                        }
                    }
                }
                message(out, b'D', &body);
            }
            message(out, b'C', b"SELECT\0");
        }
        Some(Answer::Error(code, text)) => error(out, code, text),
        None => error(out, "XX000", &format!("not in the recording: {sql}")),
    }
}

fn error(out: &mut Vec<u8>, code: &str, text: &str) {
    message(out, b'E', format!("SERROR\0VERROR\0C{code}\0M{text}\0\0").as_bytes());
}

fn message(out: &mut Vec<u8>, tag: u8, body: &[u8]) {
    out.push(tag);
    out.extend((body.len() as u32 + 4).to_be_bytes());
    out.extend(body);
}

/// A length and what it counts, as after every tag and at the start.
fn body(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut body = vec![0; (u32::from_be_bytes(length) as usize).saturating_sub(4)];
    stream.read_exact(&mut body)?;
    Ok(body)
}
