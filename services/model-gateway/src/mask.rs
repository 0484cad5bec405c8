//! Keeps the provider's key out of what the provider says: out of replies, however they are cut, and out of errors.

use serde_json::Value;
use service::Secret;
use service::models::ProviderEntry;

use crate::failure::Failure;
use crate::reply::{CallDelta, Delta};

/// What stands in place of a key.
pub const MASKED: &str = "[key]";
/// Bytes of a key that is looked for in replies: a shorter one is a placeholder, and may be a word.
const KEY_BYTES_MIN: usize = 8;
/// Characters of a secret by whose beginning a message is known to have been cut within it.
const BEGINNING_MIN: usize = 4;
/// Words in the name of a header whose value is a key.
const KEY_HEADERS: &[&str] = &["auth", "key", "token", "secret", "cookie"];

/// The secrets of one provider.
#[derive(Debug)]
pub struct Secrets {
    /// All of them, for errors.
    all: Vec<String>,
    /// Keys, the longest first, for replies.
    keys: Vec<String>,
}

impl Secrets {
    /// Those that a request to this provider carries.
    pub fn new(key: Option<&Secret>, entry: &ProviderEntry) -> Self {
        let all = key.into_iter().chain(entry.headers.values()).map(|secret| secret.expose().to_owned()).collect();
        let is_key = |name: &str| KEY_HEADERS.iter().any(|word| name.to_ascii_lowercase().contains(word));
        let headers = entry.headers.iter().filter(|(name, _)| is_key(name)).map(|(_, value)| value.expose());
        // `Bearer <key>`: the key alone is one too.
        let own = headers.map(|value| value.rsplit(' ').next().unwrap_or(value));
        let mut keys: Vec<String> = key.map(Secret::expose).into_iter().chain(own).map(str::to_owned).collect();
        keys.retain(|key| key.len() >= KEY_BYTES_MIN);
        keys.sort_by_key(|key| std::cmp::Reverse(key.len()));
        Self { all, keys }
    }

    /// All of them.
    pub fn all(&self) -> &[String] {
        &self.all
    }

    /// An error without them.
    pub fn hide(&self, mut failure: Failure) -> Failure {
        for secret in &self.all {
            failure.message = without(&failure.message, secret);
            failure.cause = without(&failure.cause, secret);
        }
        failure
    }

    /// A text that is whole, without the keys.
    fn replaced(&self, text: &str) -> String {
        self.keys.iter().fold(text.to_owned(), |text, key| text.replace(key.as_str(), MASKED))
    }

    fn replaced_in(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.replaced(text)),
            Value::Array(items) => items.iter().map(|item| self.replaced_in(item)).collect(),
            Value::Object(fields) => Value::Object(
                fields.iter().map(|(name, field)| (self.replaced(name), self.replaced_in(field))).collect(),
            ),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    /// Bytes at a text's end with which a key may begin.
    fn beginning(&self, text: &str) -> usize {
        let of = |key: &String| {
            (1..key.len()).rev().find(|length| key.get(..*length).is_some_and(|head| text.ends_with(head)))
        };
        self.keys.iter().filter_map(of).max().unwrap_or(0)
    }

    /// Whether a text is so much of a key that it must not be shown either.
    fn is_most_of_a_key(&self, text: &str) -> bool {
        let most = |key: &String| text.len() >= BEGINNING_MIN && 2 * text.len() >= key.len();
        self.keys.iter().any(|key| key.starts_with(text) && most(key))
    }
}

/// A message without a secret, and without the beginning of one at its end: it may have been cut there.
fn without(text: &str, secret: &str) -> String {
    if secret.is_empty() {
        return text.to_owned();
    }
    let text = text.replace(secret, MASKED);
    let ends = |length: &usize| secret.get(..*length).is_some_and(|beginning| text.ends_with(beginning));
    match (BEGINNING_MIN.min(secret.len())..secret.len()).rev().find(ends) {
        Some(length) => format!("{}{MASKED}", &text[..text.len() - length]),
        None => text,
    }
}

/// Where a piece of a reply belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Text,
    Reasoning,
    Arguments(u32),
}

/// Masks one reply as it grows. Of each part it holds back what a key may begin with: fewer bytes than the key has.
#[derive(Debug)]
pub struct Mask<'a> {
    secrets: &'a Secrets,
    held: Vec<(Place, String)>,
}

impl<'a> Mask<'a> {
    /// A mask of a reply of which nothing has come.
    pub fn new(secrets: &'a Secrets) -> Self {
        Self { secrets, held: Vec::new() }
    }

    /// What of these deltas may be shown now.
    pub fn push(&mut self, deltas: Vec<Delta>) -> Vec<Delta> {
        if self.secrets.keys.is_empty() {
            return deltas;
        }
        deltas.into_iter().filter_map(|delta| self.one(delta)).collect()
    }

    /// What was held back, at the end of the reply.
    pub fn finish(&mut self) -> Vec<Delta> {
        let held = std::mem::take(&mut self.held);
        let shown = |text: String| if self.secrets.is_most_of_a_key(&text) { MASKED.to_owned() } else { text };
        held.into_iter().map(|(place, text)| delta(place, shown(text))).collect()
    }

    fn one(&mut self, delta: Delta) -> Option<Delta> {
        Some(match delta {
            Delta::Text(text) => Delta::Text(self.grown(Place::Text, &text)?),
            Delta::Reasoning(text) => Delta::Reasoning(self.grown(Place::Reasoning, &text)?),
            Delta::Call(call) => Delta::Call(CallDelta {
                slot: call.slot,
                id: call.id.map(|id| self.secrets.replaced(&id)),
                name: call.name.map(|name| self.secrets.replaced(&name)),
                arguments: self.grown(Place::Arguments(call.slot), &call.arguments).unwrap_or_default(),
            }),
            Delta::Replay(part) => Delta::Replay(self.secrets.replaced_in(&part)),
            Delta::Model(model) => Delta::Model(self.secrets.replaced(&model)),
            Delta::Finish { reason, raw } => Delta::Finish { reason, raw: self.secrets.replaced(&raw) },
            Delta::Usage(usage) => Delta::Usage(usage),
        })
    }

    /// More of one part; none where all of it is held back.
    fn grown(&mut self, place: Place, more: &str) -> Option<String> {
        let held = self.held.iter().position(|(held, _)| *held == place);
        let before = held.map(|at| self.held.swap_remove(at).1).unwrap_or_default();
        let mut text = self.secrets.replaced(&(before + more));
        let held = text.split_off(text.len() - self.secrets.beginning(&text));
        if !held.is_empty() {
            self.held.push((place, held));
        }
        Some(text).filter(|text| !text.is_empty())
    }
}

fn delta(place: Place, text: String) -> Delta {
    match place {
        Place::Text => Delta::Text(text),
        Place::Reasoning => Delta::Reasoning(text),
        Place::Arguments(slot) => Delta::Call(CallDelta { slot, arguments: text, ..CallDelta::default() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "sk-proj-0123456789";

    fn secrets(keys: &[&str]) -> Secrets {
        let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
        Secrets { all: keys.clone(), keys }
    }

    #[test]
    fn no_part_of_a_secret_is_left_in_a_message() {
        for (text, expected) in [
            ("wrong: sk-proj-0123456789!", "wrong: [key]!"),
            ("cut: sk-proj-0123", "cut: [key]"),
            ("cut: sk-p", "cut: [key]"),
            ("a sk-", "a sk-"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(without(text, KEY), expected);
        }
        assert_eq!(without("all of it", ""), "all of it");
    }

    #[test]
    fn key_in_a_reply_is_masked_at_every_cut_and_nothing_else_is_lost() {
        let secrets = secrets(&[KEY]);
        for (whole, expected) in [
            (format!("a {KEY}, s"), "a [key], s"),
            (format!("{KEY}{KEY}"), "[key][key]"),
            (format!("sk-{KEY}"), "sk-[key]"),
            ("sk-proj-0123 and more".to_owned(), "sk-proj-0123 and more"),
            ("cut in sk-proj-01234".to_owned(), "cut in [key]"),
            ("ends with sk".to_owned(), "ends with sk"),
            ("\u{e4}s\u{f6}".to_owned(), "\u{e4}s\u{f6}"),
        ] {
            for cut in (1..whole.len()).filter(|cut| whole.is_char_boundary(*cut)) {
                let mut mask = Mask::new(&secrets);
                let pieces = [&whole[..cut], &whole[cut..]].map(|piece| Delta::Text(piece.to_owned()));
                let mut shown = mask.push(vec![pieces[0].clone()]);
                shown.extend(mask.push(vec![pieces[1].clone()]));
                assert!(mask.held.iter().all(|(_, held)| held.len() < KEY.len()));
                shown.extend(mask.finish());
                let text = |delta: &Delta| if let Delta::Text(text) = delta { text.clone() } else { String::new() };
                assert_eq!(shown.iter().map(text).collect::<String>(), expected, "{whole} cut at {cut}");
            }
        }
    }

    #[test]
    fn placeholder_of_a_key_is_no_key() {
        let text = "providers: {p: {kind: openai_chat, base_url: 'http://p', headers: {x-title: a-long-title, \
                    x-api-key: 'Bearer abcdefgh'}}}";
        let file = service::paths::TextFile { origin: "models.yaml".to_owned(), text: text.to_owned() };
        let models = service::models::parse(&file).unwrap();
        let secrets = Secrets::new(Some(&Secret::new("none")), &models.providers["p"]);
        assert_eq!(secrets.keys, ["abcdefgh"]);
    }
}
