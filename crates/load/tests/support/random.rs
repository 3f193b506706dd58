//! Numbers for tests that kill at any moment.

/// A number that differs from call to call, as good as a test needs. The seed is printed when a test fails.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Random {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let seed = now.as_nanos() as u64;
        println!("seed of this run: {seed}");
        Random(seed)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}
