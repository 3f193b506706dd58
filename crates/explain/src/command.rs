//! Commands as they are printed, to be pasted: nothing of a name in them is executed.

/// What stands in the place of a command that could do something else.
const NOT_PRINTED: &str =
    "-- left out: a name in this command has characters that psql or a shell would act on";
/// Behind a command with a constant that is not recorded.
const HIDDEN: &str = "-- put the statement's own constants in the place of '***'";

/// A command as it is printed.
pub(crate) fn printable(command: &str) -> String {
    match () {
        () if !can_be_pasted(command) => NOT_PRINTED.to_string(),
        () if command.contains("'***'") => format!("{} {HIDDEN}", command.trim_end()),
        () => command.to_string(),
    }
}

/// Whether a command does nothing else than what it shows when it is pasted: no line ends in it, no quote stays open, and no backslash stands where psql takes
/// it for a command of its own. Commands for the shell quote their words themselves.
fn can_be_pasted(command: &str) -> bool {
    if command.contains(char::is_control) {
        return false;
    }
    if command.starts_with(['$', '#']) {
        return true;
    }
    let mut rest = command.chars().peekable();
    let mut before = ' ';
    while let Some(c) = rest.next() {
        match c {
            '-' if rest.peek() == Some(&'-') => return true,
            '\\' => return false,
            '\'' | '"' => {
                let has_escapes = c == '\'' && matches!(before, 'E' | 'e');
                let mut is_open = true;
                while let Some(inside) = rest.next() {
                    match inside {
                        '\\' if has_escapes => drop(rest.next()),
                        '\\' if c == '\'' && rest.peek() == Some(&'\'') => return false,
                        inside if inside == c => {
                            is_open = false;
                            break;
                        }
                        _ => {}
                    }
                }
                if is_open {
                    return false;
                }
            }
            _ => {}
        }
        before = c;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_does_more_than_it_shows_is_not_printed() {
        for fine in [
            r"SELECT 1 FROM pg_stats WHERE tablename LIKE 'a\_b'; -- it's fine",
            "DROP INDEX app.\"o.\".\"a;b\";",
            r"SELECT E'a\\''b'::regclass;",
            "$ pg_ctl restart -D '/srv/it'\\''s here' -m fast",
        ] {
            assert!(can_be_pasted(fine), "{fine}");
        }
        for bad in [
            r"ALTER TABLE public.orders ; \! id",
            r"SELECT 'o.\';alter role app superuser;--'::regclass;",
            "ANALYZE a; -- b\nDROP TABLE a;",
            "SELECT 'open",
        ] {
            assert!(!can_be_pasted(bad), "{bad}");
        }
    }
}
