use proptest::prelude::*;

use super::*;

fn options() -> StartupOptions {
    StartupOptions {
        user: "ann".into(),
        parameters: vec![("database".into(), "shop".into())],
        password: Some(b"tiger".to_vec()),
        ..StartupOptions::default()
    }
}

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn auth(kind: u32, body: &[u8]) -> Vec<u8> {
    message(b'R', &[&kind.to_be_bytes()[..], body].concat())
}

fn rest_of_greeting() -> Vec<u8> {
    [
        message(b'S', b"server_version\x0018.4\0"),
        message(b'N', b"SWARNING\0C01000\0Mmind the gap\0\0"),
        message(b'K', &[0, 0, 0, 7, 1, 2, 3, 4]),
        message(b'Z', b"I"),
    ]
    .concat()
}

fn feed(options: StartupOptions, bytes: &[u8]) -> Result<(Established, Vec<u8>), StartupError> {
    let mut out = Vec::new();
    let mut startup = Startup::new(options, &mut out);
    out.clear();
    let progress = startup.receive(bytes, &mut out)?;
    assert!(progress.done, "the handshake is not over");
    assert_eq!(progress.consumed, bytes.len());
    Ok((startup.into_established(), out))
}

#[test]
fn the_startup_message_is_as_documented() {
    let mut out = Vec::new();
    Startup::new(options(), &mut out);
    assert_eq!(out, b"\0\0\0\x20\0\x03\0\0user\0ann\0database\0shop\0\0");
    out.clear();
    ssl_request(&mut out);
    assert_eq!(out, [0, 0, 0, 8, 4, 210, 22, 47]);
}

#[test]
fn trust_ends_with_parameters_and_a_key() {
    let (established, out) = feed(options(), &[auth(0, b""), rest_of_greeting()].concat()).unwrap();
    assert!(out.is_empty());
    assert_eq!(established.parameters["server_version"], "18.4");
    assert_eq!(established.process_id, 7);
    assert_eq!(established.secret_key, [1, 2, 3, 4]);
    assert_eq!(established.method, AuthMethod::None);
    assert_eq!(established.notices[0].message, "mind the gap");
}

#[test]
fn the_greeting_may_arrive_byte_by_byte() {
    let bytes = [auth(3, b""), auth(0, b""), rest_of_greeting()].concat();
    let mut out = Vec::new();
    let mut startup = Startup::new(options(), &mut out);
    out.clear();
    let mut buffer = Vec::new();
    for (i, byte) in bytes.iter().enumerate() {
        buffer.push(*byte);
        let progress = startup.receive(&buffer, &mut out).unwrap();
        buffer.drain(..progress.consumed);
        assert_eq!(progress.done, i + 1 == bytes.len());
    }
    assert_eq!(out, message(b'p', b"tiger\0"));
}

#[test]
fn md5_answers_the_challenge() {
    // The expected text is md5(md5('tiger' || 'ann') || 0x01020304).
    let (_, out) =
        feed(options(), &[auth(5, &[1, 2, 3, 4]), auth(0, b""), rest_of_greeting()].concat()).unwrap();
    assert_eq!(out, message(b'p', b"md59f72794e17f1e1ec4b0677ad9df11f1d\0"));
}

#[test]
fn missing_and_empty_passwords_are_reported() {
    for password in [None, Some(Vec::new())] {
        for (request, method) in [
            (auth(3, b""), "password"),
            (auth(5, b"abcd"), "md5"),
            (auth(10, b"SCRAM-SHA-256\0\0"), "scram-sha-256"),
        ] {
            let error =
                feed(StartupOptions { password: password.clone(), ..options() }, &request).unwrap_err();
            assert_eq!(error, StartupError::PasswordMissing { method });
        }
    }
}

#[test]
fn require_auth_rules_out() {
    let only = |m| AuthMethods::EMPTY.with(m);
    for (allowed, request, refused) in [
        (only(AuthMethod::ScramSha256), auth(3, b""), Some("password")),
        (only(AuthMethod::ScramSha256), auth(5, b"abcd"), Some("md5")),
        (only(AuthMethod::ScramSha256), auth(0, b""), Some("none")),
        (
            AuthMethods::ALL.without(AuthMethod::ScramSha256),
            auth(10, b"SCRAM-SHA-256\0\0"),
            Some("scram-sha-256"),
        ),
        (only(AuthMethod::Password), [auth(3, b""), auth(0, b"")].concat(), None),
    ] {
        let result = feed(
            StartupOptions { require_auth: allowed, ..options() },
            &[request, rest_of_greeting()].concat(),
        );
        match refused {
            Some(method) => assert_eq!(result.unwrap_err(), StartupError::MethodRefused { method }),
            None => assert!(result.is_ok()),
        }
    }
}

#[test]
fn channel_binding_is_demanded_chosen_and_refused() {
    use ChannelBindingMode::{Disable, Prefer, Require};
    const BOTH: &[u8] = b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0";
    const PLAIN: &[u8] = b"SCRAM-SHA-256\0\0";
    /// Mode, encrypted, end point, offered, mechanism and gs2 header or the error's words.
    type Case = (ChannelBindingMode, bool, bool, &'static [u8], Result<&'static str, &'static str>);
    let cases: [Case; 10] = [
        (Prefer, true, true, BOTH, Ok("SCRAM-SHA-256-PLUS\0p=tls-server-end-point,,")),
        (Require, true, true, BOTH, Ok("SCRAM-SHA-256-PLUS\0p=tls-server-end-point,,")),
        (Disable, true, true, BOTH, Ok("SCRAM-SHA-256\0n,,")),
        (Prefer, true, true, PLAIN, Ok("SCRAM-SHA-256\0y,,")),
        (Prefer, true, false, BOTH, Ok("SCRAM-SHA-256\0n,,")),
        (Prefer, false, false, PLAIN, Ok("SCRAM-SHA-256\0n,,")),
        (Require, true, true, PLAIN, Err("did not offer it")),
        (Require, true, false, BOTH, Err("without a single hash")),
        (Require, false, false, PLAIN, Err("no TLS")),
        (Prefer, false, false, BOTH, Err("without TLS")),
    ];
    for (mode, encrypted, has_end_point, offered, expected) in cases {
        let options = StartupOptions {
            channel_binding: mode,
            encrypted,
            end_point: has_end_point.then(|| vec![9; 32]),
            ..options()
        };
        let mut out = Vec::new();
        let mut startup = Startup::new(options, &mut out);
        out.clear();
        let result = startup.receive(&auth(10, offered), &mut out);
        match expected {
            Ok(text) => {
                result.unwrap();
                let sent = String::from_utf8_lossy(&out[5..]).into_owned();
                let (mechanism, header) = text.split_once('\0').unwrap();
                assert!(
                    sent.starts_with(&format!("{mechanism}\0")) && sent.contains(header),
                    "{mode:?}: {sent}"
                );
            }
            Err(words) => {
                let text = result.unwrap_err().to_string();
                assert!(text.contains(words), "{mode:?}: {text}");
            }
        }
    }
    for request in [auth(0, b""), auth(3, b""), auth(5, b"abcd")] {
        let error = feed(StartupOptions { channel_binding: Require, ..options() }, &request).unwrap_err();
        assert!(matches!(error, StartupError::ChannelBinding(_)), "{error}");
    }
}

#[test]
fn a_server_that_skips_its_proof_is_refused() {
    let mut out = Vec::new();
    let mut startup = Startup::new(options(), &mut out);
    startup.receive(&auth(10, b"SCRAM-SHA-256\0\0"), &mut out).unwrap();
    // AuthenticationOk straight after the first message: a fake server that does not know the password.
    let error = startup.receive(&auth(0, b""), &mut out).unwrap_err();
    assert_eq!(error, StartupError::Protocol(ProtocolError::Unexpected { tag: b'R' }));
}

#[test]
fn errors_of_the_server_come_through() {
    let body = b"SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed for user \"ann\"\0\0";
    let error = feed(options(), &message(b'E', body)).unwrap_err();
    let StartupError::Server(server) = error else { panic!("{error}") };
    assert_eq!(server.sqlstate.as_str(), "28P01");
    let error = feed(options(), b"Ecould not fork new process for connection: no memory\n\0").unwrap_err();
    assert_eq!(error, StartupError::BareText("could not fork new process for connection: no memory".into()));
    let error = feed(options(), b"HTTP/1.1 400 Bad Request\r\n").unwrap_err();
    assert!(matches!(error, StartupError::Protocol(ProtocolError::Length { tag: b'H', .. })), "{error}");
    for (kind, name) in [(2, "Kerberos V5"), (7, "GSSAPI"), (9, "SSPI"), (77, "code 77")] {
        let text = feed(options(), &auth(kind, b"")).unwrap_err().to_string();
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn a_greeting_without_an_end_is_refused() {
    let notice = message(b'N', &[&b"SNOTICE\0M"[..], &[b'x'; 60_000], b"\0\0"].concat());
    let mut startup = Startup::new(options(), &mut Vec::new());
    startup.receive(&auth(0, b""), &mut Vec::new()).unwrap();
    let taken = (1..).find_map(|count| {
        startup.receive(&notice, &mut Vec::new()).err().map(|error| (count * notice.len(), error))
    });
    let (bytes, error) = taken.unwrap();
    assert_eq!(error, StartupError::Protocol(ProtocolError::Greeting { limit: GREETING_BYTES_MAX }));
    assert!(bytes > GREETING_BYTES_MAX - notice.len() && bytes <= GREETING_BYTES_MAX + notice.len());
    // A long message is refused as soon as its header is there.
    let mut startup = Startup::new(options(), &mut Vec::new());
    let header = [&b"N"[..], &(GREETING_BYTES_MAX as u32).to_be_bytes()].concat();
    assert!(startup.receive(&header, &mut Vec::new()).is_err());
}

#[test]
fn no_password_is_ever_printed() {
    let mut out = Vec::new();
    let startup = Startup::new(options(), &mut out);
    assert!(!format!("{startup:?} {:?}", options()).contains("tiger"));
}

proptest! {
    #[test]
    fn no_bytes_make_the_handshake_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut out = Vec::new();
        let _ = Startup::new(options(), &mut out).receive(&bytes, &mut out);
    }

    #[test]
    fn no_authentication_body_makes_the_handshake_panic(
        steps in proptest::collection::vec((0u32..14, proptest::collection::vec(any::<u8>(), 0..60)), 0..4),
    ) {
        let mut out = Vec::new();
        let mut startup = Startup::new(options(), &mut out);
        for (kind, body) in steps {
            if startup.receive(&auth(kind, &body), &mut out).is_err() {
                break;
            }
        }
    }
}
