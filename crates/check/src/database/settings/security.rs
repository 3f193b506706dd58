//! Settings that let others in.

use crate::database::draft::{note, pass, warn};
use crate::database::node::Node;
use crate::database::rule::{Check, Judged};
use record::check::Area;

pub(super) static CHECKS: &[Check] = &[
    Check {
        id: "settings.listen_addresses",
        area: Area::Settings,
        title: "listen_addresses",
        limits: "every address is a note",
        units: &[],
        needs: &[],
        why: "a server that listens on every address is protected by pg_hba.conf and the firewall alone",
        judge: listen,
    },
    Check {
        id: "settings.ssl",
        area: Area::Settings,
        title: "TLS where the server listens on a network",
        limits: "off while it listens on more than loopback addresses",
        units: &[],
        needs: &[],
        why: "rows, and passwords of the older methods, cross the network in plain text",
        judge: ssl,
    },
    Check {
        id: "settings.password_encryption",
        area: Area::Settings,
        title: "password_encryption",
        limits: "md5",
        units: &[],
        needs: &[],
        why: "an MD5 hash of a password is as good as the password; the method is deprecated since PostgreSQL 18",
        judge: password_encryption,
    },
];

/// Whether it listens on an address that others reach.
fn is_reachable(addresses: &str) -> bool {
    let local = |address: &str| {
        address.is_empty()
            || address == "localhost"
            || address.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
    };
    !addresses.split(',').map(str::trim).all(local)
}

fn listen(node: &mut Node<'_>) -> Judged {
    let setting = node.setting("listen_addresses")?;
    let all = setting.value.split(',').any(|address| ["*", "0.0.0.0", "::"].contains(&address.trim()));
    Ok(vec![if all {
        note("listen_addresses", setting.words())
            .advice("name the addresses that clients and other nodes use")
    } else {
        pass(setting.words())
    }])
}

fn ssl(node: &mut Node<'_>) -> Judged {
    let addresses = node.setting("listen_addresses")?.value.clone();
    let setting = node.setting("ssl")?;
    Ok(vec![if setting.is_on() || !is_reachable(&addresses) {
        pass(format!(
            "{}; listen_addresses is {}",
            setting.words(),
            if addresses.is_empty() { "empty" } else { &addresses }
        ))
    } else {
        warn("ssl", format!("{}; listen_addresses is {addresses}", setting.words()))
            .advice(
                "install a certificate (server.crt, server.key), turn it on, and use hostssl in pg_hba.conf",
            )
            .run_all(setting.change("on"))
    }])
}

fn password_encryption(node: &mut Node<'_>) -> Judged {
    let setting = node.setting("password_encryption")?;
    // Before 14, "on" and the like meant MD5.
    Ok(vec![if setting.value == "scram-sha-256" {
        pass(setting.words())
    } else {
        warn("password_encryption", setting.words())
            .advice("new passwords are then stored as SCRAM verifiers; set each password again before pg_hba.conf demands it")
            .run_all(setting.change("scram-sha-256"))
    }])
}

#[cfg(test)]
mod tests {
    use super::is_reachable;

    #[test]
    fn loopback_addresses_are_not_reachable() {
        for local in ["", "localhost", "127.0.0.1, ::1", "127.0.0.2"] {
            assert!(!is_reachable(local), "{local}");
        }
        for open in ["*", "0.0.0.0", "localhost,10.0.0.1", "db.example"] {
            assert!(is_reachable(open), "{open}");
        }
    }
}
