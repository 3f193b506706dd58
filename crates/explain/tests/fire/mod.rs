//! For each rule a change that makes its condition true, and the proof level it must reach on it.

pub(crate) mod again;
pub(crate) mod alike;
mod around;
pub(crate) mod aside;
pub(crate) mod beside;
mod definitions;
mod doubt;
pub(crate) mod each;
pub(crate) mod first;
pub(crate) mod fit;
pub(crate) mod form;
mod general;
mod harmless;
pub(crate) mod hidden;
mod inside;
pub(crate) mod live;
mod narrow;
pub(crate) mod outside;
pub(crate) mod plan;
pub(crate) mod rewritten;
pub(crate) mod rows;
pub(crate) mod sampled;
mod scope;
pub(crate) mod search;
mod shift;
mod spread;
mod steps;
pub(crate) mod surplus;
mod time;
pub(crate) mod unserved;
pub(crate) mod work;

pub(crate) use again::HARMLESS as HARMLESS_AGAIN;
pub(crate) use alike::HARMLESS as HARMLESS_ALIKE;
pub(crate) use around::HARMLESS as HARMLESS_AROUND;
pub(crate) use definitions::HARMLESS as HARMLESS_DEFINITIONS;
pub(crate) use each::HARMLESS as HARMLESS_EACH;
pub(crate) use fit::HARMLESS as HARMLESS_FIT;
pub(crate) use form::HARMLESS as HARMLESS_FORMS;
pub(crate) use harmless::HARMLESS;
pub(crate) use hidden::HARMLESS as HARMLESS_HIDDEN;
pub(crate) use narrow::HARMLESS as HARMLESS_NARROW;
pub(crate) use plan::HARMLESS as HARMLESS_PLANS;
pub(crate) use rows::HARMLESS as HARMLESS_ROWS;
pub(crate) use sampled::HARMLESS as HARMLESS_SAMPLED;
pub(crate) use scope::HARMLESS as HARMLESS_SCOPES;
pub(crate) use shift::HARMLESS as HARMLESS_SHIFTS;
pub(crate) use spread::HARMLESS as HARMLESS_SPREAD;
pub(crate) use steps::HARMLESS as HARMLESS_STEPS;
pub(crate) use surplus::HARMLESS as HARMLESS_SURPLUS;

use crate::scene::Scene;
use record::finding::Level;

/// What is done to a healthy scene.
pub(crate) type Change = fn(&mut Scene);

use Level::{CoOccurrence as Co, DiscriminatingCounter as Counter};

/// A rule, the level of its proof, and the change that makes its condition true.
pub(crate) type Fires = (&'static str, Level, Change);

/// Of all rules.
pub(crate) fn all() -> impl Iterator<Item = &'static Fires> {
    general::CASES
        .iter()
        .chain(time::CASES)
        .chain(inside::CASES)
        .chain(plan::CASES)
        .chain(around::CASES)
        .chain(live::CASES)
        .chain(form::CASES)
        .chain(steps::CASES)
        .chain(scope::CASES)
        .chain(narrow::CASES)
        .chain(sampled::CASES)
        .chain(alike::CASES)
        .chain(shift::CASES)
        .chain(spread::CASES)
        .chain(again::CASES)
        .chain(surplus::CASES)
        .chain(fit::CASES)
        .chain(each::CASES)
        .chain(search::CASES)
        .chain(work::CASES)
        .chain(work::LISTS)
        .chain(beside::CASES)
        .chain(rows::CASES)
        .chain(definitions::CASES)
        .chain(outside::CASES)
        .chain(unserved::CASES)
        .chain(first::CASES)
        .chain(hidden::CASES)
        .chain(rewritten::CASES)
        .chain(aside::CASES)
}
