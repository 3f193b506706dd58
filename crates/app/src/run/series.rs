//! Numbers of sessions as they are typed: `8`, `1,2,4,8`, `1,2,4,...,256`.
//!
//! Three dots continue the numbers before them, by one ratio or by one step, and must reach the number behind them exactly: otherwise
//! a wrong list would be noticed only after hours.

use super::Sessions;
use crate::quantity::ValueError;

/// Most numbers of one list: each of them is a step of minutes.
const LISTED_MAX: usize = 200;
/// The ways to write three dots.
const DOTS: [&str; 3] = ["...", "..", "…"];

const HINT: &str = "write one number, a list as 1,2,4,8, or a series, as 1,2,4,...,256 or 10,20,30,...,100";

/// Reads the list; `number` reads one number of it.
///
/// # Errors
/// A [`ValueError`] that names what is wrong with the text.
pub fn parse(text: &str, number: impl Fn(&str) -> Result<u64, ValueError>) -> Result<Sessions, ValueError> {
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    let mut all: Vec<u64> = Vec::new();
    let mut dotted = false;
    for word in &words {
        if DOTS.contains(word) {
            if dotted || all.len() < 2 {
                return Err(ValueError::new(
                    format!("{text:?}: a series needs two or three numbers before the dots"),
                    HINT,
                ));
            }
            dotted = true;
            continue;
        }
        if words.len() > 1 && word.is_empty() {
            return Err(ValueError::new(format!("{text:?} has one comma too many"), HINT));
        }
        let last = number(word)?;
        if std::mem::take(&mut dotted) {
            let row = continued(text, &all, last)?;
            all.extend(row);
        } else {
            all.push(last);
        }
        if all.len() > LISTED_MAX {
            return Err(ValueError::new(
                format!("{text:?} is more than {LISTED_MAX} numbers of sessions"),
                "use larger steps: doubling, as in 1,2,4,...,256, shows the same curve",
            ));
        }
    }
    if dotted {
        return Err(ValueError::new(format!("{text:?} has no last number"), HINT));
    }
    for (at, sessions) in all.iter().enumerate() {
        if all[..at].contains(sessions) {
            return Err(ValueError::new(
                format!("{text:?} has {sessions} twice"),
                "name each number once; --repeat 2 runs all of them twice",
            ));
        }
    }
    Ok(Sessions::of(all))
}

/// How a row goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// By this factor.
    Ratio(u64, u64),
    /// By this much.
    Step(i128),
}

impl Rule {
    fn after(self, number: u64) -> Option<u64> {
        match self {
            Rule::Ratio(from, to) => {
                let product = u128::from(number) * u128::from(to);
                (product % u128::from(from) == 0).then(|| u64::try_from(product / u128::from(from)).ok())?
            }
            Rule::Step(step) => u64::try_from(i128::from(number) + step).ok(),
        }
    }

    /// The numbers behind `from`, up to and including `to`; else the last before it and the first beyond.
    fn row(self, from: u64, to: u64) -> Result<Vec<u64>, (u64, Option<u64>)> {
        let (mut row, mut at) = (Vec::new(), from);
        loop {
            match self.after(at) {
                Some(next) if next == to => {
                    row.push(to);
                    return Ok(row);
                }
                // In the right direction, short of the end.
                Some(next) if (next > at) == (to > next) && next != at && next > 0 => {
                    row.push(next);
                    at = next;
                    // Longer than allowed anyway.
                    if row.len() > LISTED_MAX {
                        return Ok(row);
                    }
                }
                next => return Err((at, next.filter(|next| *next > 0))),
            }
        }
    }
}

/// The numbers that three dots and the number behind them stand for.
fn continued(text: &str, before: &[u64], to: u64) -> Result<Vec<u64>, ValueError> {
    let last = before[before.len() - 1];
    let rules = match before {
        [.., a, b, c] => {
            let ratio = u128::from(*b) * u128::from(*b) == u128::from(*a) * u128::from(*c);
            let step = i128::from(*b) - i128::from(*a) == i128::from(*c) - i128::from(*b);
            match (ratio, step) {
                (true, _) => vec![Rule::Ratio(*b, *c)],
                (_, true) => vec![Rule::Step(i128::from(*c) - i128::from(*b))],
                _ => {
                    return Err(ValueError::new(
                        format!("{text:?}: {a}, {b}, {c} have neither a constant ratio nor a constant step"),
                        HINT,
                    ));
                }
            }
        }
        [a, b] => vec![Rule::Ratio(*a, *b), Rule::Step(i128::from(*b) - i128::from(*a))],
        _ => vec![],
    };
    let rows: Vec<_> = rules.iter().map(|rule| (rule, rule.row(last, to))).collect();
    let mut leading = rows.iter().filter_map(|(_, row)| row.as_ref().ok());
    match (leading.next(), leading.next()) {
        (Some(row), None) => Ok(row.clone()),
        (Some(one), Some(other)) if one == other => Ok(one.clone()),
        (Some(one), Some(other)) => {
            let third = |row: &[u64]| row.first().map_or(String::new(), u64::to_string);
            let begun = format!("{},{last}", before[before.len() - 2]);
            Err(ValueError::new(
                format!("{text:?} is ambiguous"),
                format!(
                    "write a third number: {begun},{},...,{to} or {begun},{},...,{to}",
                    third(one),
                    third(other)
                ),
            ))
        }
        (None, _) => {
            let ends: Vec<u64> = match rows.first() {
                Some((_, Err((near, beyond)))) => {
                    [Some(*near), *beyond].into_iter().flatten().filter(|end| !before.contains(end)).collect()
                }
                _ => vec![],
            };
            let ends: Vec<String> = ends.iter().map(u64::to_string).collect();
            let hint = match ends.as_slice() {
                [] => HINT.to_string(),
                ends => format!("end with {}, or list the numbers", ends.join(" or ")),
            };
            Err(ValueError::new(format!("{text:?}: the series does not reach {to}"), hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<u64>, String> {
        parse(text, crate::quantity::positive_count)
            .map(|sessions| sessions.all().to_vec())
            .map_err(|error| error.message)
    }

    #[test]
    fn lists_and_rows_are_read() {
        let rows: [(&str, &[u64]); 14] = [
            ("8", &[8]),
            ("1,2,4,8", &[1, 2, 4, 8]),
            ("1, 2, 4", &[1, 2, 4]),
            ("8,1,4", &[8, 1, 4]),
            ("1,2,4,...,256", &[1, 2, 4, 8, 16, 32, 64, 128, 256]),
            ("1,2,4,..,16", &[1, 2, 4, 8, 16]),
            ("1,2,4,…,16", &[1, 2, 4, 8, 16]),
            ("1,2,3,...,6", &[1, 2, 3, 4, 5, 6]),
            ("10,20,...,50", &[10, 20, 30, 40, 50]),
            ("1,10,20,30,...,50", &[1, 10, 20, 30, 40, 50]),
            ("8,12,18,...,27", &[8, 12, 18, 27]),
            ("64,32,16,...,4", &[64, 32, 16, 8, 4]),
            ("30,20,10", &[30, 20, 10]),
            ("1,2,4,...,16,32,48,...,80", &[1, 2, 4, 8, 16, 32, 48, 64, 80]),
        ];
        for (text, expected) in rows {
            assert_eq!(read(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn rows_that_do_not_say_what_they_mean_are_refused() {
        let rows = [
            ("1,2,...,256", "is ambiguous"),
            ("1,2,4,...,100", "the series does not reach 100"),
            ("10,20,30,...,95", "the series does not reach 95"),
            ("1,5,7,...,100", "1, 5, 7 have neither a constant ratio nor a constant step"),
            ("1,...,8", "two or three numbers before the dots"),
            ("...,8", "two or three numbers before the dots"),
            ("1,2,4,...", "has no last number"),
            ("1,2,4,...,...,64", "two or three numbers before the dots"),
            ("1,2,,4", "one comma too many"),
            ("1,2,", "one comma too many"),
            ("1,2,2", "has 2 twice"),
            ("1,1,...,4", "does not reach 4"),
            ("1,2,4,...,4", "does not reach 4"),
            ("4,2,1,...,8", "does not reach 8"),
            ("1,2,3,...,5000", "is more than 200 numbers"),
            ("1,x", "\"x\" is not a number"),
            ("1,0", "must be at least 1"),
        ];
        for (text, expected) in rows {
            let error = read(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
        let hint = |text| parse(text, crate::quantity::positive_count).expect_err(text).hint;
        assert_eq!(hint("1,2,...,256"), "write a third number: 1,2,4,...,256 or 1,2,3,...,256");
        assert_eq!(hint("1,2,4,...,100"), "end with 64 or 128, or list the numbers");
    }

    #[test]
    fn a_row_written_with_dots_is_the_row() {
        for (first, grow) in (1u64..20).flat_map(|first| (1u64..30).map(move |grow| (first, grow))) {
            let count = 4 + (first % 5) as usize;
            for doubling in [true, false] {
                let next =
                    |number: &u64| Some(if doubling { number * (grow % 3 + 2) } else { number + grow });
                let row: Vec<u64> = std::iter::successors(Some(first), next).take(count).collect();
                let text = format!("{},{},{},...,{}", row[0], row[1], row[2], row[count - 1]);
                assert_eq!(read(&text), Ok(row), "{text}");
            }
        }
    }
}
