//! Masks the key of a provider in its replies, even if it is split between deltas, and in its errors.

use configuration::Secret;
use configuration::models::ProviderEntry;
use serde_json::Value;

use crate::failure::CallFailure;
use crate::reply::{CallDelta, Delta};

pub(crate) const MASKED: &str = "[key]";
/// Minimum bytes of a key that is masked in replies: a shorter one is a placeholder, and may be a word.
const KEY_BYTES_MIN: usize = 8;
/// Minimum characters of a partial key that is masked at the end of a text.
const PARTIAL_KEY_CHARS_MIN: usize = 4;
/// Parts of the names of headers whose values are keys.
const KEY_HEADERS: &[&str] = &["auth", "key", "token", "secret", "cookie"];

/// Secrets of one provider.
#[derive(Debug)]
pub(crate) struct ProviderSecrets {
    /// All secrets, masked in errors.
    all: Vec<String>,
    /// Keys, the longest first, masked in replies.
    keys: Vec<String>,
}

impl ProviderSecrets {
    /// The secrets that a request to this provider has.
    pub(crate) fn new(key: Option<&Secret>, entry: &ProviderEntry) -> Self {
        let all = key.into_iter().chain(entry.headers.values()).map(|secret| secret.expose().to_owned()).collect();
        let is_key = |name: &str| KEY_HEADERS.iter().any(|word| name.to_ascii_lowercase().contains(word));
        let headers = entry.headers.iter().filter(|(name, _)| is_key(name)).map(|(_, value)| value.expose());
        // `Bearer <key>`: take the key alone.
        let own = headers.map(|value| value.rsplit(' ').next().unwrap_or(value));
        let mut keys: Vec<String> = key.map(Secret::expose).into_iter().chain(own).map(str::to_owned).collect();
        keys.retain(|key| key.len() >= KEY_BYTES_MIN);
        keys.sort_by_key(|key| std::cmp::Reverse(key.len()));
        Self { all, keys }
    }

    pub(crate) fn all(&self) -> &[String] {
        &self.all
    }

    /// Masks the secrets in a failure.
    pub(crate) fn redact(&self, mut failure: CallFailure) -> CallFailure {
        for secret in &self.all {
            failure.message = redact_secret(&failure.message, secret);
            failure.cause = redact_secret(&failure.cause, secret);
        }
        failure
    }

    /// Masks the keys in a complete text.
    fn mask_keys(&self, text: &str) -> String {
        self.keys.iter().fold(text.to_owned(), |text, key| text.replace(key.as_str(), MASKED))
    }

    fn mask_keys_in(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.mask_keys(text)),
            Value::Array(items) => items.iter().map(|item| self.mask_keys_in(item)).collect(),
            Value::Object(fields) => Value::Object(
                fields.iter().map(|(name, field)| (self.mask_keys(name), self.mask_keys_in(field))).collect(),
            ),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    /// Bytes at the end of a text that may be the start of a key.
    fn partial_key_bytes(&self, text: &str) -> usize {
        let of = |key: &String| {
            (1..key.len()).rev().find(|length| key.get(..*length).is_some_and(|head| text.ends_with(head)))
        };
        self.keys.iter().filter_map(of).max().unwrap_or(0)
    }

    /// Whether a text is so much of a key that it must be masked too.
    fn is_most_of_a_key(&self, text: &str) -> bool {
        let most = |key: &String| text.len() >= PARTIAL_KEY_CHARS_MIN && 2 * text.len() >= key.len();
        self.keys.iter().any(|key| key.starts_with(text) && most(key))
    }
}

/// Masks a secret in a message, also a partial one at its end, where the message may have been cut.
fn redact_secret(text: &str, secret: &str) -> String {
    if secret.is_empty() {
        return text.to_owned();
    }
    let text = text.replace(secret, MASKED);
    let ends = |length: &usize| secret.get(..*length).is_some_and(|beginning| text.ends_with(beginning));
    match (PARTIAL_KEY_CHARS_MIN.min(secret.len())..secret.len()).rev().find(ends) {
        Some(length) => format!("{}{MASKED}", &text[..text.len() - length]),
        None => text,
    }
}

/// The part of a reply that a delta belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplyPart {
    Text,
    Reasoning,
    Arguments(u32),
}

/// Masks one reply while it grows. Of each part it withholds what may be the start of a key, which is shorter than the
/// key.
#[derive(Debug)]
pub(crate) struct ReplyMask<'a> {
    secrets: &'a ProviderSecrets,
    withheld: Vec<(ReplyPart, String)>,
}

impl<'a> ReplyMask<'a> {
    pub(crate) fn new(secrets: &'a ProviderSecrets) -> Self {
        Self { secrets, withheld: Vec::new() }
    }

    /// Masks deltas, and returns what may be published now.
    pub(crate) fn push(&mut self, deltas: Vec<Delta>) -> Vec<Delta> {
        if self.secrets.keys.is_empty() {
            return deltas;
        }
        deltas.into_iter().filter_map(|delta| self.mask_delta(delta)).collect()
    }

    /// Returns the withheld text at the end of the reply.
    pub(crate) fn finish(&mut self) -> Vec<Delta> {
        let withheld = std::mem::take(&mut self.withheld);
        let masked = |text: String| if self.secrets.is_most_of_a_key(&text) { MASKED.to_owned() } else { text };
        withheld.into_iter().map(|(part, text)| to_delta(part, masked(text))).collect()
    }

    fn mask_delta(&mut self, delta: Delta) -> Option<Delta> {
        Some(match delta {
            Delta::Text(text) => Delta::Text(self.mask_part(ReplyPart::Text, &text)?),
            Delta::Reasoning(text) => Delta::Reasoning(self.mask_part(ReplyPart::Reasoning, &text)?),
            Delta::Call(call) => Delta::Call(CallDelta {
                slot: call.slot,
                id: call.id.map(|id| self.secrets.mask_keys(&id)),
                name: call.name.map(|name| self.secrets.mask_keys(&name)),
                arguments: self.mask_part(ReplyPart::Arguments(call.slot), &call.arguments).unwrap_or_default(),
            }),
            Delta::Replay(value) => Delta::Replay(self.secrets.mask_keys_in(&value)),
            Delta::Model(model) => Delta::Model(self.secrets.mask_keys(&model)),
            Delta::Finish { reason, raw } => Delta::Finish { reason, raw: self.secrets.mask_keys(&raw) },
            Delta::Usage(usage) => Delta::Usage(usage),
        })
    }

    /// Masks more of one part; returns `None` if all of it is withheld.
    fn mask_part(&mut self, part: ReplyPart, more: &str) -> Option<String> {
        let withheld = self.withheld.iter().position(|(withheld, _)| *withheld == part);
        let before = withheld.map(|at| self.withheld.swap_remove(at).1).unwrap_or_default();
        let mut text = self.secrets.mask_keys(&(before + more));
        let withheld = text.split_off(text.len() - self.secrets.partial_key_bytes(&text));
        if !withheld.is_empty() {
            self.withheld.push((part, withheld));
        }
        Some(text).filter(|text| !text.is_empty())
    }
}

fn to_delta(part: ReplyPart, text: String) -> Delta {
    match part {
        ReplyPart::Text => Delta::Text(text),
        ReplyPart::Reasoning => Delta::Reasoning(text),
        ReplyPart::Arguments(slot) => Delta::Call(CallDelta { slot, arguments: text, ..CallDelta::default() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "sk-proj-0123456789";

    fn secrets(keys: &[&str]) -> ProviderSecrets {
        let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
        ProviderSecrets { all: keys.clone(), keys }
    }

    #[test]
    fn message_with_a_whole_or_partial_secret_is_masked() {
        for (text, expected) in [
            ("wrong: sk-proj-0123456789!", "wrong: [key]!"),
            ("cut: sk-proj-0123", "cut: [key]"),
            ("cut: sk-p", "cut: [key]"),
            ("a sk-", "a sk-"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(redact_secret(text, KEY), expected);
        }
        assert_eq!(redact_secret("all of it", ""), "all of it");
    }

    #[test]
    fn key_split_between_deltas_is_masked_and_other_text_is_kept() {
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
                let mut mask = ReplyMask::new(&secrets);
                let pieces = [&whole[..cut], &whole[cut..]].map(|piece| Delta::Text(piece.to_owned()));
                let mut masked = mask.push(vec![pieces[0].clone()]);
                masked.extend(mask.push(vec![pieces[1].clone()]));
                assert!(mask.withheld.iter().all(|(_, withheld)| withheld.len() < KEY.len()));
                masked.extend(mask.finish());
                let text = |delta: &Delta| if let Delta::Text(text) = delta { text.clone() } else { String::new() };
                assert_eq!(masked.iter().map(text).collect::<String>(), expected, "{whole} cut at {cut}");
            }
        }
    }

    #[test]
    fn key_shorter_than_the_minimum_is_not_masked() {
        let text = "providers: {p: {kind: openai_chat, base_url: 'http://p', headers: {x-title: a-long-title, \
                    x-api-key: 'Bearer abcdefgh'}}}";
        let file = configuration::TextFile { origin: "models.yaml".to_owned(), text: text.to_owned() };
        let models = configuration::models::parse(&file).unwrap();
        let secrets = ProviderSecrets::new(Some(&Secret::new("none")), &models.providers["p"]);
        assert_eq!(secrets.keys, ["abcdefgh"]);
    }
}
