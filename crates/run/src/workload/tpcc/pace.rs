//! How often each profile comes (clauses 5.2.3 and 5.2.4), and how long a user keys in and thinks (clause 5.2.5).

use super::Profile;
use crate::engine::{NANOS_PER_SECOND, Nanos};
use crate::random::Random;

/// The least share of each profile, in percent (clause 5.2.3). New-Order has none: it is what the others leave.
pub const MIX_PERCENT_MIN: [u64; 5] = [0, 43, 4, 4, 4];
/// The usual weights: the minima, and the rest for New-Order.
pub const WEIGHTS: [u64; 5] = [45, 43, 4, 4, 4];
/// The deck of clause 5.2.4.2: cards of each profile.
pub const DECK: [u64; 5] = [10, 10, 1, 1, 1];
/// Cards of the deck.
pub const DECK_CARDS: usize = 23;

/// Keying time of each profile in seconds: constant (clause 5.2.5.2).
pub const KEYING_S: [u64; 5] = [18, 3, 2, 2, 2];
/// Mean think time of each profile in seconds: exponential (clause 5.2.5.7).
pub const THINK_MEAN_S: [u64; 5] = [12, 12, 10, 5, 5];
/// A think time is cut off at so many means (clause 5.2.5.4).
pub const THINK_MEANS_MAX: f64 = 10.0;
/// The 90th percentile of response times may reach this, in seconds (clause 5.2.5.3).
pub const RESPONSE_LIMIT_S: [u64; 5] = [5, 5, 5, 5, 20];
/// The most New-Orders per minute and warehouse that the times above allow.
pub const TPMC_PER_WAREHOUSE_MAX: f64 = 12.86;

const _: () = assert!(DECK[0] + DECK[1] + DECK[2] + DECK[3] + DECK[4] == DECK_CARDS as u64);

/// How a terminal chooses its next transaction (clause 5.2.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Independently, with these weights. Shares vary by chance around them.
    Weights([u64; 5]),
    /// From a shuffled deck that each terminal goes through: its shares are exact after every 23 transactions.
    Deck,
}

impl Default for Mix {
    fn default() -> Mix {
        Mix::Weights(WEIGHTS)
    }
}

impl Mix {
    /// Weights of the profiles.
    pub fn weights(&self) -> [u64; 5] {
        match self {
            Mix::Weights(weights) => *weights,
            Mix::Deck => DECK,
        }
    }

    /// The profile of transaction `number` of a terminal, or of a session that stands for several. `random` is that transaction's own.
    pub fn profile(&self, seed: u64, terminal: u64, number: u64, random: &mut Random) -> Profile {
        match self {
            Mix::Weights(weights) => by_weight(weights, random),
            Mix::Deck => {
                let round = number / DECK_CARDS as u64;
                // Streams of decks are apart from those of transactions, whose sessions are numbered from 0 up.
                let mut shuffle = Random::for_transaction(seed, u64::MAX - 1 - terminal, round);
                let mut cards = [0u8; DECK_CARDS];
                let mut at = 0;
                for (profile, count) in DECK.iter().enumerate() {
                    for _ in 0..*count {
                        cards[at] = profile as u8;
                        at += 1;
                    }
                }
                for last in (1..DECK_CARDS).rev() {
                    cards.swap(last, shuffle.below(last as u64 + 1) as usize);
                }
                Profile::ALL[cards[(number % DECK_CARDS as u64) as usize] as usize]
            }
        }
    }
}

fn by_weight(weights: &[u64; 5], random: &mut Random) -> Profile {
    let mut drawn = random.below(weights.iter().sum());
    for (profile, weight) in Profile::ALL.into_iter().zip(weights) {
        if drawn < *weight {
            return profile;
        }
        drawn -= weight;
    }
    Profile::NewOrder
}

/// Keying time (clause 5.2.5.2).
pub fn keying(profile: Profile) -> Nanos {
    KEYING_S[profile as usize] * NANOS_PER_SECOND
}

/// Think time (clause 5.2.5.4): T = -log(r) * mean, cut off at ten means.
pub fn thinking(profile: Profile, random: &mut Random) -> Nanos {
    let mean_s = THINK_MEAN_S[profile as usize] as f64;
    let seconds = random.exponential(mean_s).min(THINK_MEANS_MAX * mean_s);
    (seconds * NANOS_PER_SECOND as f64) as Nanos
}

/// The longest time between the end of a transaction and the next one of the same terminal.
pub const REST_MAX: Nanos = (18 + 10 * 12) * NANOS_PER_SECOND;

/// A terminal found at a random moment of its life: how long until its next transaction, and which. Terminals that begin like this are
/// staggered, and the rate is steady from the first second on. The moment falls into a keying or a think time as often as these are
/// long; a keying time has a random rest left, an exponential think time has no memory.
pub fn at_random_moment(weights: &[u64; 5], random: &mut Random) -> (Nanos, Profile) {
    let time = |seconds: [u64; 5], at: usize| seconds[at] * weights[at];
    let total: u64 = (0..5).map(|at| time(KEYING_S, at) + time(THINK_MEAN_S, at)).sum();
    let mut drawn = random.below(total);
    for (at, profile) in Profile::ALL.into_iter().enumerate() {
        if drawn < time(KEYING_S, at) {
            return ((random.uniform() * keying(profile) as f64) as Nanos, profile);
        }
        drawn -= time(KEYING_S, at);
        if drawn < time(THINK_MEAN_S, at) {
            let rest = thinking(profile, random);
            let next = by_weight(weights, random);
            return (rest + keying(next), next);
        }
        drawn -= time(THINK_MEAN_S, at);
    }
    (0, Profile::NewOrder)
}
