//! What a simulated user does next, and how long the user keys in and thinks. A workload describes its users with a [`Habits`] value.

use crate::engine::{NANOS_PER_SECOND, Nanos};
use crate::random::Random;

/// Most cards of a deck.
const CARDS_MAX: usize = 64;

/// How users spend their time, by transaction type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habits {
    /// Seconds that a user keys in before a transaction: constant.
    pub keying_s: &'static [u64],
    /// Mean seconds that a user thinks after a transaction: exponential.
    pub think_mean_s: &'static [u64],
    /// A think time is cut off at so many means.
    pub think_means_max: u64,
    /// How often each type comes: its weight, or its cards in the deck.
    pub weights: &'static [u64],
    /// Types come from a shuffled deck and are not chosen independently: shares are exact after each deck.
    pub is_shuffled: bool,
}

impl Habits {
    /// The type of a user's transaction number `number`. `random` is that transaction's own stream.
    pub fn choose(&self, seed: u64, user: u64, number: u64, random: &mut Random) -> usize {
        if self.is_shuffled {
            from_deck(self.weights, seed, user, number)
        } else {
            by_weight(self.weights, random)
        }
    }

    /// Keying time.
    pub fn keying(&self, item: usize) -> Nanos {
        self.keying_s[item] * NANOS_PER_SECOND
    }

    /// Think time: -log(r) * mean, cut off.
    pub fn thinking(&self, item: usize, random: &mut Random) -> Nanos {
        let mean_s = self.think_mean_s[item] as f64;
        let seconds = random.exponential(mean_s).min(self.think_means_max as f64 * mean_s);
        (seconds * NANOS_PER_SECOND as f64) as Nanos
    }

    /// The longest time between the end of a transaction and the next one of the same user.
    pub const fn rest_max(&self) -> Nanos {
        let (mut keying, mut thinking, mut item) = (0, 0, 0);
        while item < self.keying_s.len() {
            if self.keying_s[item] > keying {
                keying = self.keying_s[item];
            }
            if self.think_mean_s[item] > thinking {
                thinking = self.think_mean_s[item];
            }
            item += 1;
        }
        (keying + self.think_means_max * thinking) * NANOS_PER_SECOND
    }

    /// A user found at a random moment: how long until the next transaction, and its type. Users that begin like this are staggered, and
    /// the rate is steady from the first second on. The moment falls into a keying or a think time as often as these are long; a keying
    /// time has a random rest left, an exponential think time has no memory.
    pub(crate) fn at_random_moment(&self, random: &mut Random) -> (Nanos, usize) {
        let time = |seconds: &[u64], at: usize| seconds[at] * self.weights[at];
        let types = self.weights.len();
        let total: u64 = (0..types).map(|at| time(self.keying_s, at) + time(self.think_mean_s, at)).sum();
        let mut drawn = random.below(total);
        for at in 0..types {
            if drawn < time(self.keying_s, at) {
                return ((random.uniform() * self.keying(at) as f64) as Nanos, at);
            }
            drawn -= time(self.keying_s, at);
            if drawn < time(self.think_mean_s, at) {
                let rest = self.thinking(at, random);
                let next = by_weight(self.weights, random);
                return (rest + self.keying(next), next);
            }
            drawn -= time(self.think_mean_s, at);
        }
        (0, 0)
    }
}

fn by_weight(weights: &[u64], random: &mut Random) -> usize {
    let mut drawn = random.below(weights.iter().sum());
    for (item, weight) in weights.iter().enumerate() {
        if drawn < *weight {
            return item;
        }
        drawn -= weight;
    }
    0
}

/// The card number `number` of a user who goes through one shuffled deck after the other.
fn from_deck(counts: &[u64], seed: u64, user: u64, number: u64) -> usize {
    let mut cards = [0u8; CARDS_MAX];
    let mut length = 0;
    for (item, count) in counts.iter().enumerate() {
        for _ in 0..*count {
            cards[length] = item as u8;
            length += 1;
        }
    }
    let round = number / length as u64;
    // Streams of decks are apart from those of transactions, whose sessions are numbered from 0 up.
    let mut shuffle = Random::for_transaction(seed, u64::MAX - 1 - user, round);
    for last in (1..length).rev() {
        cards.swap(last, shuffle.below(last as u64 + 1) as usize);
    }
    usize::from(cards[(number % length as u64) as usize])
}
