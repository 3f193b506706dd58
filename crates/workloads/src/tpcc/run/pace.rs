//! How often each profile comes (clauses 5.2.3 and 5.2.4), and how long a user keys in and thinks (clause 5.2.5).

use run::terminals::{Habits, REST_MAX};

/// The least share of each profile, in percent (clause 5.2.3). New-Order has none: it is what the others leave.
pub(crate) const MIX_PERCENT_MIN: [u64; 5] = [0, 43, 4, 4, 4];
/// The usual weights: the minima, and the rest for New-Order.
pub(crate) const WEIGHTS: [u64; 5] = [45, 43, 4, 4, 4];
/// The deck of clause 5.2.4.2: cards of each profile.
pub(crate) const DECK: [u64; 5] = [10, 10, 1, 1, 1];
/// Cards of the deck.
pub(crate) const DECK_CARDS: usize = 23;

/// Keying time of each profile in seconds: constant (clause 5.2.5.2).
pub(crate) const KEYING_S: [u64; 5] = [18, 3, 2, 2, 2];
/// Mean think time of each profile in seconds: exponential (clause 5.2.5.7).
pub(crate) const THINK_MEAN_S: [u64; 5] = [12, 12, 10, 5, 5];
/// A think time is cut off at so many means (clause 5.2.5.4).
pub(crate) const THINK_MEANS_MAX: u64 = 10;
/// The 90th percentile of response times may reach this, in seconds (clause 5.2.5.3).
pub(crate) const RESPONSE_LIMIT_S: [u64; 5] = [5, 5, 5, 5, 20];
/// The most New-Orders per minute and warehouse that the times above allow.
pub(crate) const TPMC_PER_WAREHOUSE_MAX: f64 = 12.86;

const _: () = assert!(DECK[0] + DECK[1] + DECK[2] + DECK[3] + DECK[4] == DECK_CARDS as u64);

/// How a terminal chooses its next transaction (clause 5.2.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mix {
    /// Independently, with [`WEIGHTS`]. Shares vary by chance around them.
    #[default]
    Weights,
    /// From a shuffled deck that each terminal goes through: its shares are exact after every 23 transactions.
    Deck,
}

impl Mix {
    /// Weights of the profiles.
    pub fn weights(&self) -> [u64; 5] {
        match self {
            Mix::Weights => WEIGHTS,
            Mix::Deck => DECK,
        }
    }

    /// What users at terminals do with it.
    pub const fn habits(self) -> Habits {
        match self {
            Mix::Weights => habits(&WEIGHTS, false),
            Mix::Deck => habits(&DECK, true),
        }
    }
}

const fn habits(weights: &'static [u64; 5], is_shuffled: bool) -> Habits {
    Habits {
        keying_s: &KEYING_S,
        think_mean_s: &THINK_MEAN_S,
        think_means_max: THINK_MEANS_MAX,
        weights,
        is_shuffled,
    }
}

const _: () = assert!(Mix::Deck.habits().rest_max() <= REST_MAX);
