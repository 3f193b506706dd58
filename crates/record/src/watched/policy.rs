//! Policies of row-level security, as facts of the topic [`TOPIC`]: the value is a [`Policy`] as JSON.

use serde::{Deserialize, Serialize};

/// The topic. The name is that of the table, as the server quotes it, a blank, and that of the policy.
pub const TOPIC: &str = "policy";

/// A policy. A plan of a role that policies do not apply to has none of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// The table, as the server quotes it.
    pub relation: String,
    /// Its name, likewise.
    pub name: String,
    /// `ALL`, `SELECT`, `INSERT`, `UPDATE`, `DELETE`.
    pub command: String,
    /// The roles that it is for; empty: for all.
    pub roles: Vec<String>,
    /// Roles that can log in and that no policy of the table applies to: superusers, those with BYPASSRLS, its owner unless that is forced.
    pub exempt: Vec<String>,
    /// The condition for rows to be seen, without constants; names have their schema in front.
    pub condition: String,
    /// The functions of users in the condition.
    pub functions: Vec<Function>,
}

/// A function that a policy calls.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Function {
    /// Its name with its schema, as conditions have it.
    pub name: String,
    /// The same with the types of its arguments.
    pub signature: String,
    /// Its language.
    pub language: String,
    /// `VOLATILE`, `STABLE` or `IMMUTABLE`.
    pub volatility: String,
    /// Whether it is `LEAKPROOF`.
    pub leakproof: bool,
}
