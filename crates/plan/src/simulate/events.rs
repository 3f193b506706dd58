//! The queue of events: the earliest first, those of one time in the order in which they were planned.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// What can happen next.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Event {
    /// A node has copied so many rows.
    Piece(usize, f64),
    /// Something of the scenario, by its place there.
    WhatIf(usize),
    /// The vacuum of this number ends.
    VacuumEnds(usize),
    /// A partition has arrived.
    MoveEnds { partition: u64, from: usize, to: usize },
    /// A point of the forecast.
    Tick,
}

#[derive(Debug)]
struct Planned {
    at_s: f64,
    number: u64,
    event: Event,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Planned) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Planned) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Planned) -> Ordering {
        // A heap gives its largest first.
        other.at_s.total_cmp(&self.at_s).then(other.number.cmp(&self.number))
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Planned>,
    number: u64,
    /// Events that are no ticks.
    others: usize,
}

impl Queue {
    pub(super) fn push(&mut self, at_s: f64, event: Event) {
        self.others += usize::from(event != Event::Tick);
        self.number += 1;
        self.heap.push(Planned { at_s, number: self.number, event });
    }

    pub(super) fn pop(&mut self) -> Option<(f64, Event)> {
        let Planned { at_s, event, .. } = self.heap.pop()?;
        self.others -= usize::from(event != Event::Tick);
        Some((at_s, event))
    }

    pub(super) fn holds_only_ticks(&self) -> bool {
        self.others == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_equal_times_keep_their_order() {
        let mut queue = Queue::default();
        for (at, event) in
            [(2.0, Event::WhatIf(0)), (1.0, Event::WhatIf(1)), (2.0, Event::WhatIf(2)), (1.5, Event::Tick)]
        {
            queue.push(at, event);
        }
        let mut order = vec![];
        while let Some((_, event)) = queue.pop() {
            order.push(event);
            if order.len() == 3 {
                assert!(!queue.holds_only_ticks());
            }
        }
        assert_eq!(order, [Event::WhatIf(1), Event::Tick, Event::WhatIf(0), Event::WhatIf(2)]);
        assert!(queue.holds_only_ticks());
    }
}
