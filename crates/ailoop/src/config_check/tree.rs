//! A YAML file as a tree whose values know where they stand.

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

/// A place in a text, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
}

/// A value and where it begins.
#[derive(Debug)]
pub(super) struct Tree {
    place: Place,
    node: Node,
}

#[derive(Debug)]
enum Node {
    Scalar(Value),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

/// What serde reads.
struct Raw(Node);

impl Tree {
    /// Reads a text; none where it is no YAML, or an empty text.
    pub(super) fn read(text: &str) -> Option<Self> {
        serde_saphyr::from_str::<Spanned<Raw>>(text).ok().map(Self::of)
    }

    fn of(spanned: Spanned<Raw>) -> Self {
        let usize = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let place = Place { line: usize(spanned.referenced.line()), column: usize(spanned.referenced.column()) };
        Self { place, node: spanned.value.0 }
    }

    /// As JSON has it.
    pub(super) fn value(&self) -> Value {
        match &self.node {
            Node::Scalar(value) => value.clone(),
            Node::List(items) => items.iter().map(Self::value).collect(),
            Node::Map(fields) => {
                Value::Object(fields.iter().map(|(key, tree)| (key.clone(), tree.value())).collect::<Map<_, _>>())
            }
        }
    }

    /// Where the value stands that a JSON pointer leads to; where the pointer breaks off, the last value on its way.
    pub(super) fn place(&self, pointer: &str) -> Place {
        let mut tree = self;
        for part in pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")) {
            let below = match &tree.node {
                Node::Map(fields) => fields.iter().find(|(key, _)| *key == part).map(|(_, below)| below),
                Node::List(items) => part.parse().ok().and_then(|index: usize| items.get(index)),
                Node::Scalar(_) => None,
            };
            let Some(below) = below else { break };
            tree = below;
        }
        tree.place
    }
}

/// Where a key stands in a text: its first occurrence at or below a line.
pub(super) fn key_place(text: &str, from: Place, key: &str) -> Option<Place> {
    let lines = text.lines().enumerate().skip(from.line.saturating_sub(1));
    for (index, line) in lines {
        for (at, _) in line.match_indices(key) {
            let before = line[..at].chars().next_back();
            let begins = before.is_none_or(|c| c.is_whitespace() || matches!(c, '{' | ',' | '"' | '\''));
            let rest = line[at + key.len()..].trim_start_matches(['"', '\'']).trim_start();
            if begins && rest.starts_with(':') {
                return Some(Place { line: index + 1, column: line[..at].chars().count() + 1 });
            }
        }
    }
    None
}

/// The text without the entries that begin on these lines, and what is indented below them. Every other line stays where
/// it is.
pub(super) fn blanked(text: &str, lines: &[usize]) -> String {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut hidden_below = None;
    let mut kept = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if lines.contains(&(index + 1)) {
            hidden_below = Some(indent(line));
            kept.push("");
        } else if hidden_below.is_some_and(|outer| line.trim().is_empty() || indent(line) > outer) {
            kept.push("");
        } else {
            hidden_below = None;
            kept.push(line);
        }
    }
    kept.join("\n") + "\n"
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Raw;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<Raw, E> {
                Ok(Raw(Node::Scalar(Value::Null)))
            }

            fn visit_none<E>(self) -> Result<Raw, E> {
                Ok(Raw(Node::Scalar(Value::Null)))
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
                Raw::deserialize(deserializer)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
                Ok(Raw(Node::Scalar(value.into())))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
                Ok(Raw(Node::Scalar(value.into())))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
                Ok(Raw(Node::Scalar(value.into())))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
                Ok(Raw(Node::Scalar(Number::from_f64(value).map_or(Value::Null, Value::Number))))
            }

            fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
                Ok(Raw(Node::Scalar(value.into())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Raw, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element::<Spanned<Raw>>()? {
                    items.push(Tree::of(item));
                }
                Ok(Raw(Node::List(items)))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
                let mut fields = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    fields.push((key, Tree::of(map.next_value::<Spanned<Raw>>()?)));
                }
                Ok(Raw(Node::Map(fields)))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "a:\n  b: [1, {c: x}]\n  d:\n    e: 2\nf: null\n";

    #[test]
    fn values_know_their_places() {
        let tree = Tree::read(TEXT).unwrap();
        assert_eq!(tree.value(), serde_json::json!({"a": {"b": [1, {"c": "x"}], "d": {"e": 2}}, "f": null}));
        assert_eq!(tree.place("/a/b/1/c"), Place { line: 2, column: 14 });
        assert_eq!(tree.place("/a/d/e"), Place { line: 4, column: 8 });
        assert_eq!(key_place(TEXT, tree.place("/a"), "d"), Some(Place { line: 3, column: 3 }));
        assert_eq!(key_place(TEXT, tree.place("/a/b"), "c"), Some(Place { line: 2, column: 11 }));
    }

    #[test]
    fn blanked_entry_takes_what_is_below_it() {
        assert_eq!(blanked(TEXT, &[3]), "a:\n  b: [1, {c: x}]\n\n\nf: null\n");
    }
}
