use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use proptest::prelude::*;

use super::spec::quoted;
use super::*;

mod others;

/// A folder that is removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pgfathom-conninfo-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

type Env<'a> = &'a [(&'a str, &'a str)];

fn resolve_in(request: &Request, env: Env<'_>, home: Option<&Path>) -> Result<Resolved, ConninfoError> {
    let lookup =
        |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let sources = Sources {
        env: &lookup,
        os_user: Some("os".to_owned()),
        home: home.map(Path::to_owned),
        socket_dirs: vec![PathBuf::from("/nowhere/sockets"), PathBuf::from("/")],
        sysconfdir: None,
    };
    resolve(request, &sources)
}

fn spec(target: &str) -> Result<ConnSpec, ConninfoError> {
    resolve_in(&Request::target(target), &[], None).map(|resolved| resolved.spec)
}

/// `user@host:port,host:port/dbname`, or the error's text.
fn short(target: &str) -> String {
    match spec(target) {
        Ok(spec) => {
            let hosts: Vec<String> = spec.hosts.iter().map(|h| format!("{}:{}", h.host, h.port)).collect();
            format!("{}@{}/{}", spec.user, hosts.join(","), spec.dbname)
        }
        Err(error) => format!("error: {error}"),
    }
}

/// No message contains a part of a password, even if the user did not encode or quote it.
#[test]
fn no_message_shows_a_part_of_a_password() {
    let halves = ["hunter", "secret"];
    for text in [
        "postgresql://joe:hunter@secret@db/shop",
        "postgresql://joe:hunter/secret@db/shop",
        "postgresql://joe:hunter/secret@db:5432/shop?sslmode=require",
        "postgresql://joe:hunter/secret@db",
        "postgresql://joe:12/secret@db/shop",
        "postgresql://joe:hunter?x/secret@db/shop",
        "postgresql://joe:a@hunter?secret@db/shop",
        "postgresql://joe:hunter%secret@db/shop",
        "postgresql://joe:hunter,secret@x@db/shop",
        "postgresql://db/shop?password=hunter&secret=1",
        "postgresql://db/shop?password=hunter&secret",
        "postgresql://db/shop?password=hunter=secret",
        "postgres:/joe:hunter@secret://db/shop",
        "postgre://joe:hunter@db/secret",
        "jdbc:postgresql://joe:hunter@db/secret",
        "host=db password=hunter secret user=joe",
        "host=db password=hunter secret=1 user=joe",
        "host=db password='hunter secret user=joe",
        "host=db password=hunter 'secret' user=joe",
    ] {
        let error = spec(text).expect_err(text);
        let detail = format!("{error} {:?} {error:?}", error.hint());
        assert!(halves.iter().all(|half| !detail.contains(half)), "{text}: {detail}");
    }
}

#[test]
fn uris_mean_what_they_mean_to_libpq() {
    for (uri, expected) in [
        ("postgresql://ann:pw@db.example:5433/shop", "ann@db.example:5433/shop"),
        ("postgres://", "os@/:5432/os"),
        ("postgresql://db.example", "os@db.example:5432/os"),
        ("postgresql://db.example/", "os@db.example:5432/os"),
        ("postgresql://db.example?user=ann", "ann@db.example:5432/ann"),
        ("postgresql://db.example:/shop", "os@db.example:5432/shop"),
        ("postgresql://:5433/shop", "os@/:5433/shop"),
        ("postgresql:///shop", "os@/:5432/shop"),
        ("postgresql:///shop?host=/tmp&port=5444", "os@/tmp:5444/shop"),
        ("postgresql:///shop?host=/tmp&", "os@/tmp:5432/shop"),
        ("postgresql://%2Ftmp%2Fpg:5444/shop", "os@/tmp/pg:5444/shop"),
        ("postgresql://ann@/shop", "ann@/:5432/shop"),
        ("postgresql://ann:@h/shop", "ann@h:5432/shop"),
        ("postgresql://:pw@h", "os@h:5432/os"),
        ("postgresql://a%40b:p%3Aw@h/d%2Fb", "a@b@h:5432/d/b"),
        ("postgresql://[2001:db8::1]:5433/shop", "os@2001:db8::1:5433/shop"),
        ("postgresql://[::1]/shop", "os@::1:5432/shop"),
        ("postgresql://[::1]", "os@::1:5432/os"),
        ("postgresql://[::1],[::2]:5433/shop", "os@::1:5432,::2:5433/shop"),
        ("postgresql://a:1,b:2,c/shop", "os@a:1,b:2,c:5432/shop"),
        ("postgresql://a,b/shop?target_session_attrs=primary", "os@a:5432,b:5432/shop"),
        ("postgresql://a:1/shop?port=7", "os@a:7/shop"),
        ("postgresql://h/shop?ssl=true", "os@h:5432/shop"),
        ("postgresql://h/?dbname=%73hop", "os@h:5432/shop"),
        ("postgresql://host%20name/x", "os@host name:5432/x"),
        ("postgresql://h/a:b@c", "os@h:5432/a:b@c"),
        ("postgresql://h:0/x", "error: invalid port value \"0\" in the connection URI"),
        ("postgresql://h:65536/x", "error: invalid port value \"65536\" in the connection URI"),
        ("postgresql://h:abc/x", "error: invalid port value \"abc\" in the connection URI"),
        ("postgresql://h/x?zzz=1", "error: unknown connection parameter \"zzz\" in the connection URI"),
        (
            "postgresql://h/x?user",
            "error: missing key/value separator \"=\" in query parameter 1 in the connection URI",
        ),
        (
            "postgresql://h/x?user=a=b",
            "error: extra key/value separator \"=\" in query parameter 1 in the connection URI",
        ),
        (
            "postgresql://h/x?&",
            "error: missing key/value separator \"=\" in query parameter 1 in the connection URI",
        ),
        (
            "postgresql://h/x?a&&b",
            "error: missing key/value separator \"=\" in query parameter 1 in the connection URI",
        ),
        ("postgresql://%zz/x", "error: an invalid percent-encoded token in the connection URI"),
        ("postgresql://h%1", "error: an invalid percent-encoded token in the connection URI"),
        ("postgresql://h/%00", "error: the forbidden value %00 in the connection URI"),
        ("postgresql://h/%ff", "error: a percent-encoded value that is not UTF-8 in the connection URI"),
        (
            "postgresql://[::1",
            "error: the end was reached when looking for the matching \"]\" of an IPv6 address in the connection URI",
        ),
        ("postgresql://[]/x", "error: an empty IPv6 address in the connection URI"),
        (
            "postgresql://[::1]z/x",
            "error: unexpected character \"z\" after \"]\" (expected \":\" or \"/\") in the connection URI",
        ),
    ] {
        assert_eq!(short(uri), expected, "{uri}");
    }
    let uri = spec("postgresql://a%40b:p%3Aw@h/d").unwrap();
    assert_eq!(uri.password.unwrap().reveal(), "p:w");
    assert_eq!(spec("postgresql://ann:@h/d").unwrap().password, None);
    assert_eq!(spec("postgresql://h/shop?ssl=true").unwrap().sslmode, SslMode::Require);
}

#[test]
fn key_value_strings_mean_what_they_mean_to_libpq() {
    for (text, expected) in [
        ("host=h port=5433 user=ann dbname=shop", "ann@h:5433/shop"),
        (" host = h\tport= 5433\nuser =ann ", "ann@h:5433/ann"),
        (
            "host='my host' dbname='it''s'",
            "error: missing \"=\" after the word at character 27 in the connection string",
        ),
        (r"host='my host' dbname='it\'s'", "os@my host:5432/it's"),
        (r"dbname=a\ b user=c\\d host=h", r"c\d@h:5432/a b"),
        ("host=h dbname='' user=ann", "ann@h:5432/ann"),
        ("host=a,b port=1,2 dbname=x", "os@a:1,b:2/x"),
        ("host=a,b port=7 dbname=x", "os@a:7,b:7/x"),
        ("host=a,,/tmp dbname=x", "os@a:5432,/:5432,/tmp:5432/x"),
        ("hostaddr=10.0.0.1,::1 dbname=x", "os@10.0.0.1:5432,::1:5432/x"),
        ("host=a host=b dbname=x", "os@b:5432/x"),
        ("dbname=x port=", "os@/:5432/x"),
        ("host=h dbname", "error: missing \"=\" after the word at character 8 in the connection string"),
        ("=h", "error: missing parameter name before \"=\" in the connection string"),
        ("host='h", "error: unterminated quoted string in the connection string"),
        ("hots=h", "error: unknown connection parameter \"hots\" in the connection string"),
        ("host=a,b hostaddr=::1", "error: could not match 1 hostaddr values to 2 hosts"),
        ("host=a,b port=1,2,3", "error: could not match 3 port numbers to 2 hosts"),
        ("hostaddr=nowhere", "error: invalid hostaddr value \"nowhere\" in the connection string"),
        ("sslmode=on", "error: invalid sslmode value \"on\" in the connection string"),
        ("connect_timeout=soon", "error: invalid connect_timeout value \"soon\" in the connection string"),
        (
            "sslnegotiation=direct",
            "error: sslnegotiation=direct in the connection string cannot be honoured by this client",
        ),
        (
            "gssencmode=require",
            "error: gssencmode=require in the connection string cannot be honoured by this client",
        ),
        (
            "sslpassword=geheim",
            "error: sslpassword in the connection string cannot be honoured by this client",
        ),
        (
            "replication=database",
            "error: replication=database in the connection string cannot be honoured by this client",
        ),
        (
            "sslmode=require sslrootcert=system",
            "error: weak sslmode \"require\" may not be used with sslrootcert=system",
        ),
        (
            "ssl_min_protocol_version=TLSv1.3 ssl_max_protocol_version=TLSv1.2",
            "error: invalid ssl_max_protocol_version value \"TLSv1.2\" in the connection string",
        ),
    ] {
        assert_eq!(short(text), expected, "{text}");
    }
}

#[test]
fn a_bare_word_is_a_database() {
    assert_eq!(short("shop"), "os@/:5432/shop");
    assert_eq!(short(""), "os@/:5432/os");
}

#[test]
fn mistakes_get_hints() {
    for (text, hint) in [
        ("hots=h", "did you mean host?"),
        ("database=h", "the parameter is called dbname"),
        ("sslmode=verify", "one of disable, allow, prefer, require, verify-ca, verify-full"),
        ("sslmode=verify_full", "did you mean verify-full?"),
        ("target_session_attrs=primry", "did you mean primary?"),
        ("port=70000", "a number from 1 to 65535"),
        ("sslnegotiation=direct", "sslnegotiation=postgres"),
        ("sslpassword=x", "openssl pkey"),
        ("postgresql://[", "percent-encoded"),
        ("host='", "quote values"),
        ("service=nope", "[nope]"),
    ] {
        let found = spec(text).unwrap_err().hint().unwrap();
        assert!(found.contains(hint), "{text}: {found}");
    }
    let both = Request { dbname: Some("a".into()), target: Some("b".into()), ..Request::default() };
    assert!(matches!(resolve_in(&both, &[], None), Err(ConninfoError::TwoTargets)));
}

#[test]
fn the_order_of_authority_is_psqls() {
    let home = Folder::new("authority");
    home.write(".pg_service.conf", "[s]\nhost=service\nport=3\nuser=service\ndbname=service\n", 0o644);
    let flags = Request {
        host: Some("flag".into()),
        port: Some("1".into()),
        user: Some("flag".into()),
        ..Request::default()
    };
    let env = [
        ("PGHOST", "env"),
        ("PGPORT", "9"),
        ("PGUSER", "env"),
        ("PGDATABASE", "env"),
        ("PGCONNECT_TIMEOUT", "7"),
    ];
    let show = |request: &Request, env: Env<'_>| {
        let spec = resolve_in(request, env, Some(&home.0)).unwrap().spec;
        format!("{}@{}:{}/{}", spec.user, spec.hosts[0].host, spec.hosts[0].port, spec.dbname)
    };
    let service = [env.as_slice(), &[("PGSERVICE", "s")]].concat();
    assert_eq!(show(&Request::default(), &[]), "os@/:5432/os");
    assert_eq!(show(&Request::default(), &env), "env@env:9/env");
    assert_eq!(show(&Request::default(), &service), "service@service:3/service");
    assert_eq!(show(&flags, &service), "flag@flag:1/service");
    // psql's manual about -d: "connection string parameters will override any conflicting command line options".
    let string = Request { dbname: Some("host=string dbname=string".into()), ..flags.clone() };
    assert_eq!(show(&string, &service), "flag@string:1/string");
    let last = Request { target: Some("postgresql://uri:2/".into()), ..flags };
    assert_eq!(show(&last, &service), "flag@uri:2/service");
    // An empty value in a string means the default and keeps the environment out.
    assert_eq!(show(&Request::target("host='' dbname=x"), &env), "env@/:9/x");
    let spec = resolve_in(&Request::default(), &env, None).unwrap().spec;
    assert_eq!(spec.connect_timeout, Some(Duration::from_secs(7)));
}

#[test]
fn the_place_of_a_node_is_in_its_string_and_what_its_sessions_are_may_come_from_the_environment() {
    let env = |name: &str| match name {
        "PGOPTIONS" => Some("-c search_path=app".to_owned()),
        "PGPASSWORD" => Some("tiger".to_owned()),
        "PGTZ" => Some("UTC".to_owned()),
        name if PLACE_VARIABLES.contains(&name) => Some("elsewhere".to_owned()),
        _ => None,
    };
    let sources = Sources { env: &env, os_user: None, home: None, socket_dirs: vec![], sysconfdir: None };
    let spec = parse_of_node("host=db port=5433 user=u dbname=d", &sources, None).unwrap().spec;
    assert_eq!((spec.user.as_str(), spec.dbname.as_str()), ("u", "d"));
    assert_eq!((spec.hosts.len(), spec.hosts[0].port), (1, 5433));
    assert_eq!(spec.options.as_deref(), Some("-c search_path=app"));
    assert_eq!(spec.password.as_ref().unwrap().reveal(), "tiger");
    assert_eq!(spec.session_settings.len(), 1);
    // The string comes first.
    let own = parse_of_node("host=db user=u options='-c geqo=off'", &sources, None).unwrap().spec;
    assert_eq!(own.options.as_deref(), Some("-c geqo=off"));
    assert_eq!(parse("host=db user=u", &sources).unwrap().spec.options, None);
}

#[test]
fn every_variable_is_read() {
    let env = [
        ("PGHOST", "a,b"),
        ("PGHOSTADDR", "10.0.0.1,10.0.0.2"),
        ("PGPASSWORD", "tiger"),
        ("PGSSLMODE", "verify-ca"),
        ("PGSSLROOTCERT", "/r"),
        ("PGSSLCERT", "/c"),
        ("PGSSLKEY", "/k"),
        ("PGSSLCRL", "/l"),
        ("PGSSLSNI", "0"),
        ("PGSSLMINPROTOCOLVERSION", "TLSv1.3"),
        ("PGCHANNELBINDING", "require"),
        ("PGREQUIREAUTH", "scram-sha-256,md5"),
        ("PGREQUIREPEER", "postgres"),
        ("PGOPTIONS", "-c geqo=off"),
        ("PGAPPNAME", "mine"),
        ("PGTARGETSESSIONATTRS", "prefer-standby"),
        ("PGLOADBALANCEHOSTS", "random"),
        ("PGCLIENTENCODING", "LATIN1"),
        ("PGTZ", "UTC"),
    ];
    let spec = resolve_in(&Request::default(), &env, Some(Path::new("/home/os"))).unwrap().spec;
    assert_eq!(spec.hosts[1].address, Some("10.0.0.2".parse().unwrap()));
    assert_eq!(spec.password.as_ref().unwrap().reveal(), "tiger");
    assert_eq!(spec.sslmode, SslMode::VerifyCa);
    assert_eq!(spec.tls.root_cert, RootCert::File("/r".into()));
    assert_eq!(
        (spec.tls.cert, spec.tls.key, spec.tls.crl),
        (Some("/c".into()), Some("/k".into()), Some("/l".into()))
    );
    assert!(!spec.tls.sni);
    assert_eq!(spec.tls.min_version, TlsVersion::V1_3);
    assert_eq!(spec.tls.default_dir, Some("/home/os/.postgresql".into()));
    assert_eq!(spec.channel_binding, ChannelBindingMode::Require);
    assert_eq!(spec.require_auth.to_string(), "md5,scram-sha-256");
    assert_eq!(spec.require_peer.as_deref(), Some("postgres"));
    assert_eq!(spec.options.as_deref(), Some("-c geqo=off"));
    assert_eq!(spec.application_name, "mine");
    assert_eq!(spec.target_session_attrs, SessionAttrs::PreferStandby);
    assert_eq!(spec.load_balance_hosts, LoadBalance::Random);
    assert_eq!(spec.session_settings, [("timezone".to_owned(), "UTC".to_owned())]);
}

#[test]
fn smaller_rules() {
    assert_eq!(spec("sslrootcert=system").unwrap().sslmode, SslMode::VerifyFull);
    assert_eq!(spec("connect_timeout=0").unwrap().connect_timeout, None);
    assert_eq!(spec("connect_timeout=-1").unwrap().connect_timeout, None);
    assert_eq!(spec("fallback_application_name=f").unwrap().application_name, "f");
    assert_eq!(spec("fallback_application_name=f application_name=a").unwrap().application_name, "a");
    assert_eq!(spec("dbname=x").unwrap().application_name, "pgfathom");
    let keepalives = spec("keepalives=0 keepalives_idle=9 tcp_user_timeout=1500").unwrap().keepalives;
    assert!(!keepalives.enabled);
    assert_eq!(keepalives.idle, Some(Duration::from_secs(9)));
    assert_eq!(keepalives.user_timeout, Some(Duration::from_millis(1500)));
    for (text, set) in [("!md5,!password", "none,scram-sha-256"), ("none", "none"), ("gss", "")] {
        assert_eq!(spec(&format!("require_auth={text}")).unwrap().require_auth.to_string(), set);
    }
    for wrong in ["md5,!none", "md5,md5", "tls"] {
        assert!(spec(&format!("require_auth={wrong}")).is_err(), "{wrong}");
    }
    let resolved = resolve_in(&Request::default(), &[("PGREQUIRESSL", "1")], None).unwrap();
    assert_eq!(resolved.spec.sslmode, SslMode::Require);
    let no_source =
        Sources { env: &|_| None, os_user: None, home: None, socket_dirs: vec![], sysconfdir: None };
    assert!(matches!(resolve(&Request::default(), &no_source), Err(ConninfoError::NoUser)));
    assert_eq!(resolve(&Request::target("user=u"), &no_source).unwrap().spec.dbname, "u");
}

#[test]
fn service_files_are_read_as_libpq_does() {
    let home = Folder::new("service");
    let file = home.write(
        "services",
        "# comment\n\n[other]\nhost=wrong\n[s]\n host=h\nhost=second\nport=77\nnonsense here\n[t]\nhots=x\n[u]\nservice=s\n[v]\ndbname=v\n",
        0o644,
    );
    let system = Folder::new("system");
    system.write("pg_service.conf", "[sys]\nhost=sys\n", 0o644);
    let path = file.display().to_string();
    let env = [("PGSERVICEFILE", path.as_str()), ("PGSYSCONFDIR", system.0.to_str().unwrap())];
    let resolve_service = |name: &str| resolve_in(&Request::target(&format!("service={name}")), &env, None);
    let error = |name: &str| resolve_service(name).unwrap_err().to_string();
    assert_eq!(error("s"), format!("a line that is not parameter=value in service file {path}, line 9"));
    assert_eq!(
        error("t"),
        format!("unknown connection parameter \"hots\", did you mean host?, in service file {path}, line 11")
    );
    assert_eq!(error("u"), format!("nested \"service\" in service file {path}, line 13"));
    assert_eq!(resolve_service("v").unwrap().spec.dbname, "v");
    assert_eq!(resolve_service("sys").unwrap().spec.hosts[0].host, Host::Tcp("sys".into()));
    assert_eq!(error("gone"), "definition of service \"gone\" not found");
    assert_eq!(resolve_service("other").unwrap().spec.hosts[0].host, Host::Tcp("wrong".into()));
    let missing = resolve_in(&Request::target("service=x servicefile=/nowhere/f"), &[], None).unwrap_err();
    assert!(missing.to_string().contains("/nowhere/f"), "{missing}");
}

#[test]
fn a_console_has_its_own_database_and_all_else_as_any_connection() {
    let home = Folder::new("console");
    home.write(".pgpass", "pool:6432:pgbouncer:ann:console\npool:6432:shop:ann:server\n", 0o600);
    let env = [("PGUSER", "ann"), ("PGDATABASE", "shop"), ("PGPORT", "6432")];
    let lookup =
        |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let sources = Sources {
        env: &lookup,
        os_user: None,
        home: Some(home.0.clone()),
        socket_dirs: vec![],
        sysconfdir: None,
    };
    for text in ["host=pool", "host=pool dbname=shop", "postgresql://pool/shop"] {
        assert!(is_string(text));
        let spec = resolve_to(&Request::target(text), "pgbouncer", &sources).unwrap().spec;
        assert_eq!((spec.dbname.as_str(), spec.user.as_str()), ("pgbouncer", "ann"), "{text}");
        assert_eq!(spec.password_for(&spec.hosts[0]).unwrap().reveal(), "console", "{text}");
    }
    assert!(!is_string("xyz") && !is_string(""));
}

#[test]
fn passwords_come_from_the_password_file() {
    let home = Folder::new("passfile");
    let text = concat!(
        "# comment\n",
        "h:5432:shop:ann:exact\n",
        "h:*:*:ann:h-ann\n",
        "localhost:*:*:*:local\n",
        "/tmp/x:*:*:*:socket\n",
        "we\\:ird:*:*:a\\\\b:pass\\:word\\\\x:ignored\n",
        "10.0.0.1:*:*:*:address\r\n",
        "broken\n",
        "*:*:special:*:any\n",
    );
    home.write(".pgpass", text, 0o600);
    let password = |target: &str| {
        let spec = resolve_in(&Request::target(target), &[], Some(&home.0)).unwrap().spec;
        let words: Vec<String> = spec
            .hosts
            .iter()
            .map(|host| spec.password_for(host).map_or("-".to_owned(), |p| p.reveal().to_owned()))
            .collect();
        words.join(",")
    };
    for (target, expected) in [
        ("host=h user=ann dbname=shop", "exact"),
        ("host=h user=ann dbname=other", "h-ann"),
        ("host=h user=bob dbname=other", "-"),
        ("user=bob", "local"),
        ("host=/nowhere/sockets", "local"),
        ("host=/tmp/x", "socket"),
        ("host=/tmp/y", "-"),
        (r"host=we:ird user=a\\b", r"pass:word\x"),
        ("hostaddr=10.0.0.1", "address"),
        ("host=name hostaddr=10.0.0.1", "-"),
        ("host=q dbname=special", "any"),
        ("host=h,q,localhost user=ann dbname=x", "h-ann,-,local"),
        ("host=h user=ann password=given", "given"),
        ("host=h user=ann password=''", "h-ann"),
    ] {
        assert_eq!(password(target), expected, "{target}");
    }
    let other = home.write("other", "*:*:*:*:other\n", 0o600);
    let env = [("PGPASSFILE", other.to_str().unwrap())];
    let spec = resolve_in(&Request::target("host=h"), &env, Some(&home.0)).unwrap().spec;
    assert_eq!(spec.hosts[0].password.as_ref().unwrap().reveal(), "other");
    assert_eq!(spec.passfile, Some(other));
}

#[test]
fn a_password_file_that_others_may_read_is_ignored_with_a_warning() {
    let home = Folder::new("open-passfile");
    let path = home.write(".pgpass", "*:*:*:*:seen\n", 0o640);
    let resolved = resolve_in(&Request::target("host=h"), &[], Some(&home.0)).unwrap();
    assert_eq!(resolved.spec.hosts[0].password, None);
    let expected = format!(
        "password file \"{}\" has group or world access; permissions should be u=rw (0600) or less",
        path.display()
    );
    assert_eq!(resolved.warnings, [expected]);
    let folder = format!("host=h passfile={}", home.0.display());
    let resolved = resolve_in(&Request::target(&folder), &[], None).unwrap();
    assert!(resolved.warnings[0].ends_with("is not a plain file"));
    let missing = resolve_in(&Request::target("host=h passfile=/nowhere"), &[], None).unwrap();
    assert!(missing.warnings.is_empty());
}

#[test]
fn no_password_is_ever_shown() {
    let home = Folder::new("secret");
    home.write(".pgpass", "*:*:*:*:tiger\n", 0o600);
    let from_file = resolve_in(&Request::target("host=h"), &[], Some(&home.0)).unwrap();
    let from_env = resolve_in(&Request::default(), &[("PGPASSWORD", "tiger")], None).unwrap();
    let from_uri = resolve_in(&Request::target("postgresql://u:tiger@h/d"), &[], None).unwrap();
    for resolved in [from_file, from_env, from_uri] {
        assert!(resolved.spec.password_for(&resolved.spec.hosts[0]).is_some());
        let shown =
            format!("{resolved:?} {:#?} {} {}", resolved.spec, resolved.spec, resolved.spec.describe());
        assert!(!shown.contains("tiger"), "{shown}");
    }
    for broken in [
        "postgresql://u:tiger%@h",
        "password='tiger",
        "password=x tiger",
        "postgresql://u@h/?password=x&tiger",
        "postgresql://u@h/?password=x=tiger",
        "postgresql://u:tiger@h?zz=1",
    ] {
        let error = spec(broken).unwrap_err();
        assert!(!format!("{error} {error:?} {:?}", error.hint()).contains("tiger"), "{broken}: {error}");
    }
}

#[test]
fn another_way_to_known_servers_has_their_role_and_database_unless_it_names_others() {
    let known = ConnSpec::new("db1", 5433, "ann", "shop");
    let sources = Sources {
        env: &|name| Some(format!("another {name}")),
        os_user: Some("root".to_owned()),
        home: None,
        socket_dirs: vec![],
        sysconfdir: None,
    };
    for (text, host, port, user, dbname) in [
        ("host=/run/proxy port=6432", "/run/proxy", 6432, "ann", "shop"),
        ("postgresql://proxy:6432", "proxy", 6432, "ann", "shop"),
        ("postgresql://bob@proxy/other", "proxy", 5432, "bob", "other"),
        ("host=proxy user=bob", "proxy", 5432, "bob", "shop"),
    ] {
        let found = parse_beside(text, &sources, &known).unwrap().spec;
        let expected = ConnSpec::new(host, port, user, dbname);
        assert_eq!(
            (&found.hosts[0], &found.user, &found.dbname),
            (&expected.hosts[0], &expected.user, &expected.dbname),
            "{text}"
        );
    }
}

#[test]
fn what_is_described_can_be_resolved_again() {
    for text in [
        "host=h port=5433 user=ann dbname=shop",
        "host=/tmp/a dbname='my db' user='it\\'s'",
        "host=a,b port=1,2 sslmode=require target_session_attrs=primary dbname=x",
        "host=name hostaddr=::1 dbname=x",
    ] {
        let first = spec(text).unwrap();
        assert_eq!(spec(&first.describe()).unwrap(), first, "{}", first.describe());
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_parsers_panic(text in "(postgres(ql)?://)?[a-z0-9 '\\\\=%:@/?&,\\[\\]é]{0,40}") {
        let _ = spec(&text);
    }

    #[test]
    fn any_value_survives_quoting(value in "[^\\x00]{1,30}") {
        let pairs = keyvalue::parse(&format!("dbname={} host=h", quoted(&value))).unwrap();
        prop_assert_eq!(&pairs[0].1, &value);
        prop_assert_eq!(&pairs[1].1, "h");
    }
}
