//! A series of samples on the run's clock, in bounded memory.
//!
//! A watch of a week has 600,000 readings of every number. A series keeps at most [`POINTS_MAX`] points: when they are full, neighbours
//! are merged, and from then on each point stands for twice as many readings. Sums, means and maxima stay exact; only the times get
//! coarser, and no rule needs a week to the second.

use record::finding::Window;

/// Points that a series keeps at most.
pub(crate) const POINTS_MAX: usize = 4_096;

/// One or several readings in a row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Point {
    /// Begin of the first reading's interval.
    pub from_us: u64,
    /// The last reading's moment.
    pub to_us: u64,
    /// Intervals of all of them.
    pub interval_us: u64,
    /// Sum of the readings.
    pub sum: f64,
    /// The largest.
    pub max: f64,
    /// How many.
    pub count: u64,
}

impl Point {
    /// The mean reading.
    pub fn mean(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }

    /// Readings that are counts, per second; 0 where no interval is known.
    pub fn rate(&self) -> f64 {
        if self.interval_us == 0 { 0.0 } else { self.sum / (self.interval_us as f64 / 1e6) }
    }

    /// When it was.
    pub fn window(&self) -> Window {
        Window::new(self.from_us, self.to_us)
    }

    fn absorb(&mut self, next: Point) {
        self.to_us = self.to_us.max(next.to_us);
        self.interval_us = self.interval_us.saturating_add(next.interval_us);
        self.sum += next.sum;
        self.max = self.max.max(next.max);
        self.count = self.count.saturating_add(next.count);
    }
}

/// Readings in order of time.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    points: Vec<Point>,
    /// Readings per point, the last point possibly fewer.
    per_point: u64,
}

impl Default for Series {
    fn default() -> Series {
        Series { points: vec![], per_point: 1 }
    }
}

impl Series {
    /// Adds a reading for the interval that ends at `t_us`. Readings of the same moment are kept apart.
    pub fn push(&mut self, t_us: u64, interval_us: u64, value: f64) {
        let before = self.points.last().map_or(t_us, |last| last.to_us);
        let from_us = if interval_us > 0 { t_us.saturating_sub(interval_us) } else { before.min(t_us) };
        let point = Point { from_us, to_us: t_us, interval_us, sum: value, max: value, count: 1 };
        match self.points.last_mut() {
            Some(last) if last.count < self.per_point => last.absorb(point),
            _ => self.points.push(point),
        }
        if self.points.len() > POINTS_MAX {
            self.thin();
        }
    }

    /// Adds to the sample of this time, or begins it: for several lines of one tick.
    pub fn add(&mut self, t_us: u64, interval_us: u64, value: f64) {
        match self.points.last_mut() {
            Some(last) if last.to_us == t_us => {
                last.sum += value;
                last.max = last.max.max(value);
            }
            _ => self.push(t_us, interval_us, value),
        }
    }

    fn thin(&mut self) {
        self.per_point *= 2;
        let pairs = self.points.chunks(2).map(|pair| {
            let mut merged = pair[0];
            if let Some(next) = pair.get(1) {
                merged.absorb(*next);
            }
            merged
        });
        self.points = pairs.collect();
    }

    /// All points.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Nothing was read.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Readings, however many a point holds.
    pub fn readings(&self) -> u64 {
        self.points.iter().map(|point| point.count).sum()
    }

    /// The mean of each point.
    pub fn values(&self) -> Vec<f64> {
        self.points.iter().map(Point::mean).collect()
    }

    /// The rate of each point, per second.
    pub fn rates(&self) -> Vec<f64> {
        self.points.iter().map(Point::rate).collect()
    }

    /// Mean over all readings; 0 of nothing.
    pub fn mean(&self) -> f64 {
        self.sum() / self.readings().max(1) as f64
    }

    /// Sum of all readings.
    pub fn sum(&self) -> f64 {
        self.points.iter().map(|point| point.sum).sum()
    }

    /// The largest reading; 0 of nothing.
    pub fn max(&self) -> f64 {
        self.points.iter().map(|point| point.max).reduce(f64::max).unwrap_or(0.0)
    }

    /// Counts per second over the whole time; 0 where no interval is known.
    pub fn rate(&self) -> f64 {
        let interval_us = self.points.iter().map(|point| point.interval_us).fold(0, u64::saturating_add);
        if interval_us == 0 { 0.0 } else { self.sum() / (interval_us as f64 / 1e6) }
    }

    /// The first point's mean.
    pub fn first(&self) -> Option<f64> {
        self.points.first().map(Point::mean)
    }

    /// The last point's mean.
    pub fn last(&self) -> Option<f64> {
        self.points.last().map(Point::mean)
    }

    /// From the first to the last reading.
    pub fn window(&self) -> Window {
        match (self.points.first(), self.points.last()) {
            (Some(first), Some(last)) => Window::new(first.from_us, last.to_us),
            _ => Window::default(),
        }
    }

    /// The points whose end lies in one of the windows.
    pub fn within(&self, windows: &[Window]) -> Series {
        let inside = |point: &&Point| windows.iter().any(|window| window.holds(point.to_us));
        Series { points: self.points.iter().filter(inside).copied().collect(), per_point: self.per_point }
    }

    /// The same with points of at least this length; a shorter rest at the end is left out. A server publishes its counters about once a second:
    /// samples of that length show nothing in one and twice as much in the next.
    pub fn coarse(&self, least_us: u64) -> Series {
        let mut points: Vec<Point> = vec![];
        for point in &self.points {
            match points.last_mut() {
                Some(last) if last.interval_us < least_us => last.absorb(*point),
                _ => points.push(*point),
            }
        }
        if points.last().is_some_and(|last| last.interval_us < least_us) {
            points.pop();
        }
        Series { points, per_point: self.per_point }
    }

    /// Change of the mean per second, by a line through the points.
    pub(crate) fn slope(&self) -> Option<f64> {
        let points: Vec<(f64, f64)> =
            self.points.iter().map(|point| (point.to_us as f64 / 1e6, point.mean())).collect();
        crate::statistics::slope(&points)
    }

    /// Stretches of at least `least_us` in which every point fits. A gap of more than three usual distances ends a stretch.
    pub(crate) fn stretches(&self, least_us: u64, fits: impl Fn(&Point) -> bool) -> Vec<Window> {
        let usual = crate::statistics::median(
            self.points.windows(2).map(|pair| pair[1].to_us.saturating_sub(pair[0].to_us) as f64),
        );
        let hole_us = usual.map_or(u64::MAX, |usual| (usual * 3.0) as u64);
        let mut found: Vec<Window> = vec![];
        let mut open: Option<Window> = None;
        for point in &self.points {
            let torn = open.is_some_and(|window| point.to_us.saturating_sub(window.to_us) > hole_us);
            if torn || !fits(point) {
                found.extend(open.take());
            }
            if fits(point) {
                open = Some(match open {
                    Some(window) => Window::new(window.from_us, point.to_us),
                    None => point.window(),
                });
            }
        }
        found.extend(open);
        found.retain(|window| window.length_us() >= least_us);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn a_week_of_seconds_keeps_its_sum_and_its_peak_in_bounded_memory() {
        let mut series = Series::default();
        for second in 1..=604_800u64 {
            let value = if second == 300_000 { 1_000.0 } else { 1.0 };
            series.push(second * SECOND, SECOND, value);
        }
        assert!(series.points().len() <= POINTS_MAX);
        assert_eq!((series.sum(), series.max(), series.readings()), (604_800.0 + 999.0, 1_000.0, 604_800));
        assert_eq!(series.window(), Window::new(0, 604_800 * SECOND));
        assert!((series.rate() - 1.0).abs() < 0.01);
    }

    #[test]
    fn stretches_are_long_enough_and_end_at_holes() {
        let mut series = Series::default();
        for second in (1..=20u64).chain(40..=45) {
            series.push(
                second * SECOND,
                SECOND,
                if (5..=14).contains(&second) || second >= 40 { 9.0 } else { 1.0 },
            );
        }
        let high = |point: &Point| point.mean() > 5.0;
        assert_eq!(series.stretches(8 * SECOND, high), [Window::new(4 * SECOND, 14 * SECOND)]);
        assert_eq!(series.stretches(SECOND, high).len(), 2);
        assert_eq!(Series::default().stretches(0, |_| true), []);
    }

    #[test]
    fn coarse_points_even_out_what_is_handed_in_late() {
        let mut series = Series::default();
        for half in 1..=45u64 {
            series.push(half * SECOND / 2, SECOND / 2, if half % 2 == 0 { 100.0 } else { 0.0 });
        }
        let coarse = series.coarse(10 * SECOND);
        assert_eq!(coarse.rates(), [100.0, 100.0]);
        assert_eq!(coarse.window(), Window::new(0, 20 * SECOND));
    }

    #[test]
    fn lines_of_one_tick_add_up() {
        let mut series = Series::default();
        for value in [1.0, 2.0, 3.0] {
            series.add(SECOND, SECOND, value);
        }
        series.add(2 * SECOND, SECOND, 5.0);
        assert_eq!(series.values(), [6.0, 5.0]);
    }

    proptest! {
        #[test]
        fn thinning_loses_no_reading(count in 1usize..20_000) {
            let mut series = Series::default();
            for index in 0..count {
                series.push(index as u64 * SECOND, SECOND, 2.0);
            }
            prop_assert_eq!(series.readings(), count as u64);
            prop_assert_eq!(series.sum(), count as f64 * 2.0);
            prop_assert!(series.points().len() <= POINTS_MAX);
        }
    }
}
