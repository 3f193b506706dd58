//! Certificates, servers that use them, and the three clients that are compared.

use connect::conninfo::{ChannelBindingMode, RootCert};
use connect::{ConnSpec, ConnectError, Secret, control, hot};
use lab::local::Installation;
use lab::throwaway::{Options, Throwaway};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
    SignatureAlgorithm,
};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What must never be seen.
pub(super) const PASSWORD: &str = "geheim-7391";

pub(super) type Ca = CertifiedIssuer<'static, KeyPair>;

pub(super) fn authority(name: &str) -> Ca {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Certificate and key, signed by `ca`.
pub(super) fn leaf(
    ca: &Ca,
    names: &[&str],
    common_name: &str,
    algorithm: &'static SignatureAlgorithm,
) -> (String, String) {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let certificate = leaf_params(names, common_name).signed_by(&key, ca).unwrap();
    (certificate.pem(), key.serialize_pem())
}

pub(super) fn leaf_params(names: &[&str], common_name: &str) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

/// A folder for certificate files that goes away.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("pgfathom-tls-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(super) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        let mut file =
            fs::File::options().create(true).write(true).truncate(true).mode(0o600).open(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server with TLS, and roles for every way to be let in.
pub(super) fn server(installation: &Installation, root: &str, certificate: &str, key: &str) -> Throwaway {
    let hba = "\
        local all scram scram-sha-256\n\
        local all md5 md5\n\
        local all password password\n\
        local all all trust\n\
        hostssl all cert all cert\n\
        hostnossl all cert all reject\n\
        hostssl all sslonly all trust\n\
        hostnossl all nossl all trust\n\
        host all sslonly,nossl all reject\n\
        host all scram all scram-sha-256\n\
        host all md5 all md5\n\
        host all password all password\n\
        host all all all trust\n";
    let settings =
        [("ssl", "on"), ("ssl_ca_file", "root.crt")].map(|(n, v)| (n.to_owned(), v.to_owned())).to_vec();
    let files = [("root.crt", root), ("server.crt", certificate), ("server.key", key)]
        .map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()))
        .to_vec();
    let cluster = Options { tcp: true, hba: Some(hba.to_owned()), settings, files, ..Options::default() }
        .start(installation)
        .unwrap();
    let mut sql = String::from("set password_encryption = 'scram-sha-256';");
    for role in ["scram", "password", "trust", "cert", "sslonly", "nossl"] {
        sql.push_str(&format!("create role {role} login password '{PASSWORD}';"));
    }
    sql.push_str(&format!("set password_encryption = 'md5'; create role md5 login password '{PASSWORD}'"));
    cluster.execute(&sql).unwrap();
    cluster
}

/// Over TCP by the name `host`, without asking a name server.
pub(super) fn tcp(cluster: &Throwaway, host: &str, user: &str) -> ConnSpec {
    let mut spec = ConnSpec::new(host, cluster.port(), user, "postgres");
    spec.hosts[0].address = Some("127.0.0.1".parse().unwrap());
    spec.password = Some(Secret::new(PASSWORD));
    spec
}

/// Whether the session is encrypted as the server sees it, or the error.
pub(super) fn try_hot(spec: &ConnSpec) -> Result<bool, ConnectError> {
    let mut session = hot::connect(spec)?;
    let rows = session.simple_query("select ssl from pg_stat_ssl where pid = pg_backend_pid()").unwrap();
    let encrypted = rows[0][0].as_deref() == Some(b"t");
    assert_eq!(session.link().is_encrypted(), encrypted);
    if spec.channel_binding == ChannelBindingMode::Require {
        assert!(session.authentication().1, "channel_binding=require was not kept");
    }
    Ok(encrypted)
}

pub(super) fn try_control(spec: &ConnSpec) -> Result<bool, ConnectError> {
    let mut session = control::connect(spec)?;
    let row = session.query_one("select ssl from pg_stat_ssl where pid = pg_backend_pid()", &[]).unwrap();
    let encrypted = row.get(0);
    assert_eq!(session.link().is_encrypted(), encrypted);
    Ok(encrypted)
}

/// The same with psql, as an exit status and a word.
pub(super) fn try_psql(psql: &Path, home: &Path, spec: &ConnSpec) -> Result<bool, String> {
    let mut conninfo = spec.describe();
    conninfo.push_str(&format!(" sslmode={}", spec.sslmode.name()));
    let binding = match spec.channel_binding {
        ChannelBindingMode::Disable => "disable",
        ChannelBindingMode::Prefer => "prefer",
        ChannelBindingMode::Require => "require",
    };
    conninfo.push_str(&format!(" channel_binding={binding}"));
    let mut file = |name: &str, path: Option<&PathBuf>| {
        if let Some(path) = path {
            conninfo.push_str(&format!(" {name}={}", path.display()));
        }
    };
    match &spec.tls.root_cert {
        RootCert::File(path) => file("sslrootcert", Some(path)),
        _ => file("sslrootcert", None),
    }
    file("sslcert", spec.tls.cert.as_ref());
    file("sslkey", spec.tls.key.as_ref());
    let output = Command::new(psql)
        .args(["-XAtw", "-d", &conninfo, "-c", "select ssl from pg_stat_ssl where pid = pg_backend_pid()"])
        .env_clear()
        .env("HOME", home)
        .env("PGPASSWORD", PASSWORD)
        .output()
        .unwrap();
    match String::from_utf8_lossy(&output.stdout).trim() {
        "t" => Ok(true),
        "f" => Ok(false),
        _ => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Gives a running server another certificate.
pub(super) fn change_certificate(cluster: &Throwaway, root: &str, certificate: &str, key: &str) {
    for (name, text) in [("root.crt", root), ("server.crt", certificate), ("server.key", key)] {
        cluster.write_file(name, text.as_bytes()).unwrap();
    }
    let loads = || cluster.log().matches("reloading configuration files").count();
    let before = loads();
    cluster.reload().unwrap();
    testing::wait_for("the new configuration", || loads() > before);
    // The postmaster writes that line before it loads the certificate, and forks no session until it is done.
    assert!(!cluster.log().contains("could not load"), "{}", cluster.log());
}

pub(super) fn fixture(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/certificates").join(name)).unwrap()
}
