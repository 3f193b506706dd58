//! The list of benchmarks whose consistency conditions `prove` judges.

use prove::conditions::{Condition, Conditions};

/// All of them, in the order in which help names them.
pub static CONDITIONS: &[&dyn Conditions] =
    &[&crate::tpcc::conditions::TpccConditions, &crate::tpcb::conditions::TpcbConditions];

/// The conditions of the benchmark of this name.
pub fn named(name: &str) -> Option<&'static dyn Conditions> {
    CONDITIONS.iter().copied().find(|conditions| conditions.name() == name)
}

/// The condition of any benchmark that has this code.
pub fn condition(code: &str) -> Option<Condition> {
    CONDITIONS.iter().find_map(|conditions| conditions.condition(code))
}

/// What `of` gives for each benchmark, in one line.
pub fn of_each(of: impl Fn(&dyn Conditions) -> String) -> String {
    CONDITIONS.iter().map(|one| of(*one)).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_back_and_each_stands_for_one_condition() {
        for condition in CONDITIONS.iter().flat_map(|conditions| conditions.all()) {
            assert_eq!(super::condition(condition.code()), Some(*condition));
            assert_eq!(super::condition(&condition.code().to_lowercase()), Some(*condition));
        }
        assert!(super::condition("C13").is_none() && super::condition("X26").is_none());
    }
}
