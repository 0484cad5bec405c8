//! A YAML file as a tree whose values have their positions.

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

/// A position in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TextPosition {
    /// From 1; 0 if unknown.
    pub(super) line: usize,
    /// From 1; 0 if unknown.
    pub(super) column: usize,
}

impl TextPosition {
    pub(super) const START: Self = Self { line: 1, column: 1 };
}

/// A value with its position.
#[derive(Debug)]
pub(super) struct Tree {
    position: TextPosition,
    node: Node,
}

#[derive(Debug)]
enum Node {
    Scalar(Value),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

/// A node without a position, which serde reads.
struct RawNode(Node);

impl Tree {
    /// Reads a text. Returns `None` if it is empty or no YAML.
    pub(super) fn read(text: &str) -> Option<Self> {
        serde_saphyr::from_str::<Spanned<RawNode>>(text).ok().map(Self::from_spanned)
    }

    fn from_spanned(spanned: Spanned<RawNode>) -> Self {
        let usize = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let position =
            TextPosition { line: usize(spanned.referenced.line()), column: usize(spanned.referenced.column()) };
        Self { position, node: spanned.value.0 }
    }

    /// Returns the tree as JSON.
    pub(super) fn to_json(&self) -> Value {
        match &self.node {
            Node::Scalar(value) => value.clone(),
            Node::List(items) => items.iter().map(Self::to_json).collect(),
            Node::Map(fields) => {
                Value::Object(fields.iter().map(|(key, tree)| (key.clone(), tree.to_json())).collect::<Map<_, _>>())
            }
        }
    }

    /// Returns the position of the value at a JSON pointer, or else of the last value on its path.
    pub(super) fn position(&self, pointer: &str) -> TextPosition {
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
        tree.position
    }
}

/// Finds a key in a text: its first occurrence on the line of `from` or below it.
pub(super) fn find_key(text: &str, from: TextPosition, key: &str) -> Option<TextPosition> {
    let lines = text.lines().enumerate().skip(from.line.saturating_sub(1));
    for (index, line) in lines {
        for (at, _) in line.match_indices(key) {
            let before = line[..at].chars().next_back();
            let begins = before.is_none_or(|c| c.is_whitespace() || matches!(c, '{' | ',' | '"' | '\''));
            let rest = line[at + key.len()..].trim_start_matches(['"', '\'']).trim_start();
            if begins && rest.starts_with(':') {
                return Some(TextPosition { line: index + 1, column: line[..at].chars().count() + 1 });
            }
        }
    }
    None
}

/// Blanks the entries that begin on these lines, with everything that is indented below them. The other lines keep
/// their numbers.
pub(super) fn blank_entries(text: &str, lines: &[usize]) -> String {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut hidden_below = None;
    let mut out = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if lines.contains(&(index + 1)) {
            hidden_below = Some(indent(line));
            out.push("");
        } else if hidden_below.is_some_and(|outer| line.trim().is_empty() || indent(line) > outer) {
            out.push("");
        } else {
            hidden_below = None;
            out.push(line);
        }
    }
    out.join("\n") + "\n"
}

/// Returns the keys with which these lines begin.
pub(super) fn keys_of<'a>(text: &'a str, lines: &'a [usize]) -> impl Iterator<Item = &'a str> {
    let begins = text.lines().enumerate().filter(|(index, _)| lines.contains(&(index + 1)));
    begins.filter_map(|(_, line)| Some(line.split_once(':')?.0.trim().trim_matches(['"', '\''])))
}

impl<'de> Deserialize<'de> for RawNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = RawNode;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E>(self) -> Result<RawNode, E> {
                Ok(RawNode(Node::Scalar(Value::Null)))
            }

            fn visit_none<E>(self) -> Result<RawNode, E> {
                Ok(RawNode(Node::Scalar(Value::Null)))
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<RawNode, D::Error> {
                RawNode::deserialize(deserializer)
            }

            fn visit_bool<E>(self, value: bool) -> Result<RawNode, E> {
                Ok(RawNode(Node::Scalar(value.into())))
            }

            fn visit_i64<E>(self, value: i64) -> Result<RawNode, E> {
                Ok(RawNode(Node::Scalar(value.into())))
            }

            fn visit_u64<E>(self, value: u64) -> Result<RawNode, E> {
                Ok(RawNode(Node::Scalar(value.into())))
            }

            fn visit_f64<E>(self, value: f64) -> Result<RawNode, E> {
                Ok(RawNode(Node::Scalar(Number::from_f64(value).map_or(Value::Null, Value::Number))))
            }

            fn visit_str<E>(self, value: &str) -> Result<RawNode, E> {
                Ok(RawNode(Node::Scalar(value.into())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<RawNode, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element::<Spanned<RawNode>>()? {
                    items.push(Tree::from_spanned(item));
                }
                Ok(RawNode(Node::List(items)))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawNode, A::Error> {
                let mut fields = Vec::new();
                while let Some(key) = map.next_key::<String>()? {
                    fields.push((key, Tree::from_spanned(map.next_value::<Spanned<RawNode>>()?)));
                }
                Ok(RawNode(Node::Map(fields)))
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
    fn value_in_tree_has_its_position() {
        let tree = Tree::read(TEXT).unwrap();
        assert_eq!(tree.to_json(), serde_json::json!({"a": {"b": [1, {"c": "x"}], "d": {"e": 2}}, "f": null}));
        assert_eq!(tree.position("/a/b/1/c"), TextPosition { line: 2, column: 14 });
        assert_eq!(tree.position("/a/d/e"), TextPosition { line: 4, column: 8 });
        assert_eq!(find_key(TEXT, tree.position("/a"), "d"), Some(TextPosition { line: 3, column: 3 }));
        assert_eq!(find_key(TEXT, tree.position("/a/b"), "c"), Some(TextPosition { line: 2, column: 11 }));
    }

    #[test]
    fn blanked_entry_nested_lines_are_blanked_too() {
        assert_eq!(blank_entries(TEXT, &[3]), "a:\n  b: [1, {c: x}]\n\n\nf: null\n");
    }
}
