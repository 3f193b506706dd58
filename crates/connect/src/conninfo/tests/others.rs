//! Passwords for hosts that other users chose.

use super::*;

#[test]
fn the_password_does_not_follow_a_file_that_others_can_change() {
    let home = Folder::new("others");
    home.write(".pgpass", "real:5432:*:u:kept\nlocalhost:5432:*:u:local\n*:*:*:u:any\n", 0o600);
    home.write(".pg_service.conf", "[prod]\npassword=service\n", 0o600);
    let theirs = home.write("theirs", "evil:5432:*:u:theirs\n", 0o600).display().to_string();
    let tiger = |name: &str| (name == "PGPASSWORD").then(|| "tiger".to_owned());
    let none = |_: &str| None;
    let sources_of = |env| Sources {
        env,
        os_user: None,
        home: Some(home.0.clone()),
        socket_dirs: vec![PathBuf::from("/tmp")],
        sysconfdir: None,
    };
    let (sources, no_env) = (sources_of(&tiger), sources_of(&none));
    let password = |text: &str, others: Option<&str>, sources: &Sources<'_>| {
        let spec = parse_of_node(text, sources, others).unwrap().spec;
        assert_eq!(spec.withheld.as_deref(), others);
        spec.password_for(&spec.hosts[0]).map_or("-".to_owned(), |password| password.reveal().to_owned())
    };
    for (text, ours, of_others) in [
        ("host=evil user=u", ["tiger", "any"], "-"),
        ("host=real user=u", ["tiger", "kept"], "kept"),
        ("host=real hostaddr=10.6.6.6 user=u", ["tiger", "kept"], "-"),
        ("host=/tmp user=u", ["tiger", "local"], "-"),
        ("host=localhost user=u", ["tiger", "local"], "local"),
        ("host=evil user=u service=prod", ["service", "service"], "-"),
        ("host=evil user=u password=own", ["own", "own"], "own"),
        (&format!("host=evil user=u passfile={theirs}"), ["tiger", "theirs"], "-"),
    ] {
        assert_eq!(password(text, None, &sources), ours[0], "{text}");
        assert_eq!(password(text, None, &no_env), ours[1], "{text}");
        assert_eq!(password(text, Some("it belongs to user 9"), &sources), of_others, "{text}");
        assert_eq!(password(text, Some("it belongs to user 9"), &no_env), of_others, "{text}");
    }
}
