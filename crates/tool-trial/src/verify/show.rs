//! Formats checks as text and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};
use terminal::format;

use super::{Check, Mark, has_passed};

/// Formats checks for people, with a summary line.
pub fn to_text(checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.name.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for check in checks {
        let sign = match check.mark {
            Mark::Pass => '√',
            Mark::Note => '‼',
            Mark::Fail => '×',
            Mark::Skip => '-',
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{sign} {:width$}  {}", check.name, format::join_words(&check.finding));
        if let Some(hint) = &check.hint {
            let _ = writeln!(text, "  {:width$}  → {hint}", "");
        }
    }
    let count = |mark| checks.iter().filter(|check| check.mark == mark).count();
    let (passed, notes, failed) = (count(Mark::Pass), count(Mark::Note), count(Mark::Fail));
    let _ = writeln!(text, "{passed} passed, {notes} to look at, {failed} failed");
    text
}

/// Formats checks as one JSON value.
pub fn to_json(tool: &str, checks: &[Check]) -> Value {
    let check =
        |check: &Check| json!({"check": check.name, "mark": check.mark, "told": check.finding, "hint": check.hint});
    json!({"tool": tool, "holds": has_passed(checks), "checks": checks.iter().map(check).collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_formatted_for_people_and_programs() {
        let checks = [
            Check::pass("described", "pure"),
            Check::note("replicas", "one", "start a second one"),
            Check::fail("garbage", "no answer\nwithin 10 s", "catch what is thrown"),
            Check::skip("repeated", "not asked"),
        ];
        assert_eq!(
            to_text(&checks),
            "√ described  pure\n\
             ‼ replicas   one\n             → start a second one\n\
             × garbage    no answer within 10 s\n             → catch what is thrown\n\
             - repeated   not asked\n\
             1 passed, 1 to look at, 1 failed\n"
        );
        assert_eq!(to_json("t", &checks)["holds"], false);
        assert_eq!(to_json("t", &checks)["checks"][1]["hint"], "start a second one");
        assert_eq!(to_json("t", &checks[..2])["holds"], true);
    }
}
