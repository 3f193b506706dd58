//! The sums of a workload beside counts and latencies: its own figures, which no other code interprets.
//!
//! A worker's tally, the collector and the account carry these sums without knowing what they are. A workload adds to its own sums when a transaction
//! ends; nothing is allocated after the first one.

use std::any::Any;
use std::fmt::Debug;

/// Sums of one workload.
pub trait Sums: Any + Clone + Debug + Default + Send {
    /// Adds `other`.
    fn add(&mut self, other: &Self);

    /// Empties it, keeping its memory.
    fn reset(&mut self);
}

/// [`Sums`] of any type.
trait AnySums: Debug + Send {
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
    fn boxed(&self) -> Box<dyn AnySums>;
    fn reset(&mut self);
    /// Adds `other`; false where its type is another one.
    fn try_add(&mut self, other: &dyn AnySums) -> bool;
}

impl<T: Sums> AnySums for T {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn boxed(&self) -> Box<dyn AnySums> {
        Box::new(self.clone())
    }

    fn reset(&mut self) {
        Sums::reset(self);
    }

    fn try_add(&mut self, other: &dyn AnySums) -> bool {
        let Some(other) = other.as_any().downcast_ref::<T>() else { return false };
        self.add(other);
        true
    }
}

/// The sums of all workloads of a run, one of each type. Empty until a workload first adds to its own.
#[derive(Debug, Default)]
pub struct Audits(Vec<Box<dyn AnySums>>);

impl Clone for Audits {
    fn clone(&self) -> Audits {
        Audits(self.0.iter().map(|sums| sums.boxed()).collect())
    }
}

impl Audits {
    /// The sums of type `T`, if a workload has added to them.
    pub fn find<T: Sums>(&self) -> Option<&T> {
        self.0.iter().find_map(|sums| sums.as_any().downcast_ref())
    }

    /// The sums of type `T`, empty if no workload has added to them.
    pub fn of<T: Sums>(&self) -> T {
        self.find().cloned().unwrap_or_default()
    }

    /// The sums of type `T`, to be added to.
    #[inline]
    pub fn entry<T: Sums>(&mut self) -> &mut T {
        let at = match self.0.iter().position(|sums| sums.as_any().is::<T>()) {
            Some(at) => at,
            None => self.insert::<T>(),
        };
        self.0[at].as_any_mut().downcast_mut().expect("the entry was found by its type")
    }

    #[cold]
    fn insert<T: Sums>(&mut self) -> usize {
        self.0.push(Box::new(T::default()));
        self.0.len() - 1
    }

    /// Adds `other`.
    pub fn add(&mut self, other: &Audits) {
        for theirs in &other.0 {
            if !self.0.iter_mut().any(|mine| mine.try_add(theirs.as_ref())) {
                self.0.push(theirs.boxed());
            }
        }
    }

    /// Empties all of them, keeping their memory.
    pub fn reset(&mut self) {
        self.0.iter_mut().for_each(|sums| sums.reset());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, Default, PartialEq)]
    struct Orders(u64);

    #[derive(Clone, Debug, Default, PartialEq)]
    struct Amounts(i64);

    impl Sums for Orders {
        fn add(&mut self, other: &Orders) {
            self.0 += other.0;
        }

        fn reset(&mut self) {
            self.0 = 0;
        }
    }

    impl Sums for Amounts {
        fn add(&mut self, other: &Amounts) {
            self.0 += other.0;
        }

        fn reset(&mut self) {
            self.0 = 0;
        }
    }

    #[test]
    fn each_workload_finds_its_own_sums_whatever_order_they_came_in() {
        let (mut one, mut other) = (Audits::default(), Audits::default());
        one.entry::<Orders>().0 = 3;
        other.entry::<Amounts>().0 = -5;
        other.entry::<Orders>().0 = 4;
        one.add(&other);
        assert_eq!((one.of::<Orders>(), one.of::<Amounts>()), (Orders(7), Amounts(-5)));
        assert_eq!(other.of::<Orders>(), Orders(4), "what was added stays as it was");
        one.reset();
        assert_eq!((one.find::<Orders>(), one.of::<Amounts>()), (Some(&Orders(0)), Amounts(0)));
        assert_eq!(Audits::default().find::<Orders>(), None);
    }
}
