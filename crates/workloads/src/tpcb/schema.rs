//! The four tables, and how many rows they have at a scale.
//!
//! | table | rows at scale S | key | other columns at the start |
//! |---|---|---|---|
//! | `pgbench_accounts` | 100,000 S | `aid`, from 1 | `bid` = (aid - 1) / 100,000 + 1, `abalance` 0, `filler` blank |
//! | `pgbench_tellers` | 10 S | `tid`, from 1 | `bid` = (tid - 1) / 10 + 1, `tbalance` 0, `filler` null |
//! | `pgbench_branches` | S | `bid`, from 1 | `bbalance` 0, `filler` null |
//! | `pgbench_history` | none | none | - |

/// Accounts of a branch.
pub(super) const ACCOUNTS_PER_BRANCH: u64 = 100_000;

/// Tellers of a branch.
pub(super) const TELLERS_PER_BRANCH: u64 = 10;

/// The highest scale: beyond it `pgbench -i` makes account numbers of 64 bits.
pub(super) const SCALE_MAX: u64 = 19_999;

/// The accounts.
pub const ACCOUNTS: &str = "pgbench_accounts";

/// The tellers.
pub(super) const TELLERS: &str = "pgbench_tellers";

/// The branches.
pub(super) const BRANCHES: &str = "pgbench_branches";

/// One row a transaction.
pub const HISTORY: &str = "pgbench_history";
