//! Items while they are made: a judgement about one subject, before the node and the check are added.

use record::check::{Figure, Item, Limit, Unit, Verdict};
use record::escape;
use std::borrow::Cow;

/// Subjects that are named by one check of one node. The rest is counted.
pub(crate) const SUBJECTS_MAX: usize = 20;

/// An item without its node, check and area.
#[derive(Debug)]
pub(crate) struct Draft(Item);

/// A judgement. An empty subject is the whole node.
pub(crate) fn judged(verdict: Verdict, subject: impl Into<String>, claim: impl Into<String>) -> Draft {
    Draft(Item { verdict, subject: subject.into(), claim: claim.into(), ..Item::default() })
}

/// As it should be.
pub(crate) fn pass(claim: impl Into<String>) -> Draft {
    judged(Verdict::Pass, "", claim)
}

/// A fact without a judgement.
pub(crate) fn note(subject: impl Into<String>, claim: impl Into<String>) -> Draft {
    judged(Verdict::Note, subject, claim)
}

/// It will cost something.
pub(crate) fn warn(subject: impl Into<String>, claim: impl Into<String>) -> Draft {
    judged(Verdict::Warn, subject, claim)
}

/// It endangers the data or the run.
pub(crate) fn fail(subject: impl Into<String>, claim: impl Into<String>) -> Draft {
    judged(Verdict::Fail, subject, claim)
}

/// It could not be checked.
pub(crate) fn unknown(claim: impl Into<String>, missing: impl Into<String>) -> Draft {
    judged(Verdict::Unknown, "", claim).why(missing)
}

impl Draft {
    /// The measured value.
    pub(crate) fn figure(mut self, value: f64, unit: Unit) -> Draft {
        self.0.figure = value.is_finite().then_some(Figure { value, unit });
        self
    }

    /// The figure must not be above it.
    pub(crate) fn at_most(mut self, limit: f64) -> Draft {
        self.0.limit = Some(Limit::AtMost(limit));
        self
    }

    /// The figure must not be below it.
    pub(crate) fn at_least(mut self, limit: f64) -> Draft {
        self.0.limit = Some(Limit::AtLeast(limit));
        self
    }

    /// Why it matters, if the check's own reason does not fit.
    pub(crate) fn why(mut self, why: impl Into<String>) -> Draft {
        self.0.why = why.into();
        self
    }

    /// What to do, in words.
    pub(crate) fn advice(mut self, text: impl Into<String>) -> Draft {
        self.0.remedy.text = text.into();
        self
    }

    /// What to type.
    pub(crate) fn run(mut self, command: impl Into<String>) -> Draft {
        self.0.remedy.commands.push(command.into());
        self
    }

    /// The commands of a remedy, in their order.
    pub(crate) fn run_all(mut self, commands: Vec<String>) -> Draft {
        self.0.remedy.commands.extend(commands);
        self
    }

    /// The item, safe for a terminal.
    pub(crate) fn into_item(self) -> Item {
        let mut item = self.0;
        for text in [&mut item.subject, &mut item.claim, &mut item.why, &mut item.remedy.text] {
            if let Cow::Owned(safe) = escape::visible(text) {
                *text = safe;
            }
            // A line break in a name must not begin a line of the table.
            *text = text.replace(['\n', '\t'], " ");
        }
        let is_plain =
            |command: &String| !command.contains(|c| escape::is_active(c) || c == '\n' || c == '\t');
        let all = item.remedy.commands.len();
        item.remedy.commands.retain(is_plain);
        if item.remedy.commands.len() < all {
            item.remedy.text.push_str(" (a name contains characters that cannot be shown: find the object by its place in the catalog)");
        }
        item
    }
}

/// One draft per row, for the first [`SUBJECTS_MAX`] of `total`, and one that counts the rest in words (its number is no figure of the check); `none` if there
/// is no row.
pub(crate) fn each<T>(
    rows: &[T],
    total: u64,
    draft: impl FnMut(&T) -> Draft,
    none: impl FnOnce() -> Draft,
) -> Vec<Draft> {
    if rows.is_empty() {
        return vec![none()];
    }
    let mut drafts: Vec<Draft> = rows.iter().take(SUBJECTS_MAX).map(draft).collect();
    let rest = total.saturating_sub(drafts.len() as u64);
    if rest > 0 {
        let worst = drafts.iter().map(|draft| draft.0.verdict).max().unwrap_or_default();
        let claim = format!("{} more like these", record::number::count(rest));
        drafts.push(judged(worst, "", claim));
    }
    drafts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_counted_and_names_cannot_steer_a_terminal() {
        let rows: Vec<u32> = (0..25).collect();
        let drafts = each(&rows, 100_000, |row| warn(row.to_string(), "x"), || pass("none"));
        assert_eq!(drafts.len(), SUBJECTS_MAX + 1);
        let last = drafts.into_iter().next_back().expect("the rest").into_item();
        assert_eq!((last.verdict, last.claim.as_str()), (Verdict::Warn, "99,980 more like these"));
        let none = each(&[] as &[u32], 0, |_| warn("", ""), || pass("none"));
        assert_eq!(none.len(), 1);

        let item =
            warn("\u{1b}[2Ja\nb", "\u{202e}x").run("DROP INDEX \"\u{1b}[2J\";").run("SELECT 1;").into_item();
        assert_eq!((item.subject.as_str(), item.claim.as_str()), ("\\u001b[2Ja b", "\\u202ex"));
        assert_eq!(item.remedy.commands, ["SELECT 1;"]);
        assert!(item.remedy.text.contains("cannot be shown"));
    }
}
