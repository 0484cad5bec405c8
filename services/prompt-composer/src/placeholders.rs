//! Replaces placeholders `{{{name}}}` in prompts, once each, and never within a value.

use std::collections::{BTreeMap, BTreeSet};

/// Longest composed prompt in bytes: a reply must fit into one message of a server with default limits.
pub(crate) const PROMPT_BYTES_MAX: usize = 512 << 10;

const OPEN: &str = "{{{";
const CLOSE: &str = "}}}";
/// Longest name in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Unknown names that are reported.
const UNKNOWN_MAX: usize = 32;

/// Replaces each `{{{name}}}` by its value. An unknown one stays, and its name is added to `unknown`. It stops as soon
/// as the text is too long for a prompt, since a few bytes can stand for very many.
pub(crate) fn substitute(text: &str, values: &BTreeMap<String, String>, unknown: &mut BTreeSet<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(OPEN) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        // Braces without a name, as in JSON. The first one is text, and the next one may open a name.
        let Some((name, after)) = parse_name(from) else {
            out.push('{');
            rest = from.get(1..).unwrap_or_default();
            continue;
        };
        if let Some(value) = values.get(name) {
            out.push_str(value);
        } else {
            out.extend([OPEN, name, CLOSE]);
            if unknown.len() < UNKNOWN_MAX {
                unknown.insert(name.to_owned());
            }
        }
        if out.len() > PROMPT_BYTES_MAX {
            return out;
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Splits `{{{name}}}…` into the name and the rest.
fn parse_name(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix(OPEN)?;
    let end = inner
        .bytes()
        .take(NAME_BYTES_MAX + 1)
        .position(|b| !matches!(b, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.'))?;
    let (name, rest) = inner.split_at(end);
    let after = rest.strip_prefix(CLOSE)?;
    (!name.is_empty()).then_some((name, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_known_and_unknown_are_replaced_or_kept() {
        let values: BTreeMap<_, _> =
            [("a", "A"), ("loop", "{{{a}}}"), ("half", "{{{"), ("empty", "")].map(|(k, v)| (k.into(), v.into())).into();
        let check = |text: &str, expect: &str, unknown: &[&str]| {
            let mut found = BTreeSet::new();
            assert_eq!(substitute(text, &values, &mut found), expect, "{text}");
            assert_eq!(found.iter().map(String::as_str).collect::<Vec<_>>(), unknown, "{text}");
        };
        check("", "", &[]);
        check("no braces", "no braces", &[]);
        check("{{{a}}}", "A", &[]);
        check("x{{{a}}}y{{{a}}}z", "xAyAz", &[]);
        check("{{{loop}}}", "{{{a}}}", &[]);
        check("{{{half}}}a}}}", "{{{a}}}", &[]);
        check("{{{empty}}}", "", &[]);
        check("{{{b}}} {{{a}}} {{{b}}}", "{{{b}}} A {{{b}}}", &["b"]);
        check("{{{{a}}}}", "{A}", &[]);
        check("{{{ a }}}", "{{{ a }}}", &[]);
        check("{{{}}}", "{{{}}}", &[]);
        check("{{a}} {a} {% a %}", "{{a}} {a} {% a %}", &[]);
        check(r#"{"x":{"y":{"a":{{{a}}}}}}"#, r#"{"x":{"y":{"a":A}}}"#, &[]);
        check(r#"{{{"json": 1}}}"#, r#"{{{"json": 1}}}"#, &[]);
        check("{{{a", "{{{a", &[]);
        check("ä{{{ä}}}ö{{{a}}}", "ä{{{ä}}}öA", &[]);
    }
}
