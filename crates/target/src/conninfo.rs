//! libpq's rules for what to connect to, and the [`ConnSpec`] they end in.

mod spec;

pub use spec::{
    ConnSpec, Host, HostSpec, Keepalives, LoadBalance, PORT_DEFAULT, RootCert, SessionAttrs, SslMode, TlsOptions,
    TlsVersion,
};
pub use wire::startup::{AuthMethods, ChannelBindingMode};
