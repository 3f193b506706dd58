//! Checks that the balances are consistent after any runs.
//!
//! A transaction of TPC-B adds one amount to an account, a teller and a branch, and records it in the history. So the three sums of balances
//! and the history's agree, and an account's balance is the sum of its history. Two habits break parts of this on purpose: `pgbench` empties the
//! history when it starts (unless with `-n`), and its built-in `simple-update` leaves tellers and branches out. What they explain cannot be distinguished from
//! damage, and the message names them; any other difference is an error.

use load::dataset::{Audit, Auditor};
use load::verify::VerifyError;

/// Accounts of a leaf whose balance is not the sum of their history.
const ACCOUNTS_OFF: &str = "
select count(*) from only {pgbench_accounts} a
left join (select aid, sum(delta) as total from only {pgbench_history} group by aid) h using (aid)
where a.abalance is distinct from coalesce(h.total, 0)";

/// Sums over all branches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sums {
    accounts: i128,
    tellers: i128,
    branches: i128,
    history: i128,
    /// Rows of the history.
    transactions: i128,
    /// Accounts whose balance is not the sum of their history.
    accounts_off: i128,
}

pub(super) fn audit(auditor: &mut dyn Auditor) -> Result<Audit, VerifyError> {
    let mut sum = |expression: &str, table: &str| {
        auditor.sum(&format!("select coalesce(sum({expression}), 0) from only {{{table}}}"))
    };
    let sums = Sums {
        accounts: sum("abalance", "pgbench_accounts")?,
        tellers: sum("tbalance", "pgbench_tellers")?,
        branches: sum("bbalance", "pgbench_branches")?,
        history: sum("delta", "pgbench_history")?,
        transactions: sum("1", "pgbench_history")?,
        accounts_off: auditor.sum(ACCOUNTS_OFF)?,
    };
    Ok(judge(sums))
}

fn judge(sums: Sums) -> Audit {
    let Sums { accounts, tellers, branches, history, transactions, accounts_off } = sums;
    let mut audit = Audit::default();
    let figures = format!(
        "balances: accounts {accounts}, tellers {tellers}, branches {branches}; history {history} in {transactions} transactions"
    );
    if tellers != branches {
        // Every transaction that changes one of them changes the other.
        audit.broken.push(format!("the balances of tellers and branches differ: {figures}"));
    } else if accounts == branches && history == branches {
        match accounts_off {
            0 => audit.kept.push(figures),
            off => audit.broken.push(format!(
                "{off} accounts have a balance that is not the sum of their history: {figures}"
            )),
        }
    } else if history == branches {
        audit.broken.push(format!(
            "the balances of accounts differ from those of branches and from the history: {figures}"
        ));
    } else if accounts == branches {
        audit.unknown.push(format!(
            "the history does not account for the balances: pgbench empties it when it starts, unless with -n; {figures}"
        ));
    } else if accounts == history && accounts_off == 0 {
        audit.unknown.push(format!(
            "accounts agree with the history, tellers and branches do not: simple-update leaves them out; {figures}"
        ));
    } else {
        audit.unknown.push(format!(
            "neither branches nor the history account for the balances of accounts: pgbench empties the history unless with -n, and simple-update \
             leaves branches out; {figures}"
        ));
    }
    audit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_told_from_what_pgbench_does() {
        let fresh =
            Sums { accounts: 0, tellers: 0, branches: 0, history: 0, transactions: 0, accounts_off: 0 };
        let run = Sums { accounts: 7, tellers: 7, branches: 7, history: 7, transactions: 3, ..fresh };
        for kept in [fresh, run] {
            let audit = judge(kept);
            assert_eq!((audit.kept.len(), audit.broken.len(), audit.unknown.len()), (1, 0, 0), "{kept:?}");
        }
        for broken in [
            Sums { tellers: 8, ..run },
            Sums { branches: 8, ..run },
            Sums { accounts: 8, ..run },
            Sums { accounts_off: 2, ..run },
        ] {
            assert_eq!(judge(broken).broken.len(), 1, "{broken:?}");
        }
        for unknown in [
            Sums { history: 2, accounts_off: 4, ..run },
            Sums { accounts: 9, history: 9, ..run },
            Sums { accounts: 9, history: 1, accounts_off: 3, ..run },
        ] {
            let audit = judge(unknown);
            assert!(audit.broken.is_empty() && audit.unknown.len() == 1, "{unknown:?}");
        }
    }
}
