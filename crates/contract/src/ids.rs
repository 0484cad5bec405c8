//! Ids, parsed and never spliced: each is one token of a subject.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Reason why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} must be 1 to {max} characters of {alphabet}, got {got:?}")]
pub struct IdError {
    kind: &'static str,
    max: usize,
    alphabet: &'static str,
    got: String,
}

/// The characters of an id beside `a-z`, `0-9` and `-`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Also {
    Nothing,
    Underscore,
    UpperAndUnderscore,
}

impl Also {
    /// The characters of an id, as people read them.
    const fn alphabet(self) -> &'static str {
        match self {
            Self::Nothing => "a-z 0-9 -",
            Self::Underscore => "a-z 0-9 _ -",
            Self::UpperAndUnderscore => "A-Z a-z 0-9 _ -",
        }
    }

    /// The same as a regular expression of at most `max` of them.
    fn pattern(self, max: usize) -> String {
        format!("^[{}]{{1,{max}}}$", self.alphabet().replace(' ', ""))
    }
}

fn check(kind: &'static str, max: usize, also: Also, text: &str) -> Result<Arc<str>, IdError> {
    let fits = |b: u8| match b {
        b'a'..=b'z' | b'0'..=b'9' | b'-' => true,
        b'_' => also != Also::Nothing,
        b'A'..=b'Z' => also == Also::UpperAndUnderscore,
        _ => false,
    };
    if (1..=max).contains(&text.len()) && text.bytes().all(fits) {
        return Ok(text.into());
    }
    Err(IdError { kind, max, alphabet: also.alphabet(), got: text.chars().take(80).collect() })
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $max:expr, $also:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Parses an id; the error says what is allowed.
            pub fn new(text: &str) -> Result<Self, IdError> {
                check($kind, $max, Also::$also, text).map(Self)
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(&text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0.as_ref().to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "pattern": Also::$also.pattern($max)})
            }
        }
    };
}

id!(
    /// Tenant, the owner of sessions. `[a-z0-9-]{1,32}`.
    TenantId, "tenant", 32, Nothing
);
id!(
    /// Id of one conversation: `[A-Za-z0-9_-]{1,64}`.
    SessionId, "session id", 64, UpperAndUnderscore
);
id!(
    /// One command, chosen by its sender; the same id may be sent again. `[A-Za-z0-9_-]{1,64}`.
    CommandId, "command id", 64, UpperAndUnderscore
);
id!(
    /// One model or tool call, unique within its session. `[A-Za-z0-9_-]{1,64}`.
    CallId, "call id", 64, UpperAndUnderscore
);
id!(
    /// Name of a tool: `[A-Za-z0-9_-]{1,64}`.
    ToolName, "tool name", 64, UpperAndUnderscore
);
id!(
    /// An agent: a key or an alias of `agents.yaml`. `[a-z0-9_-]{1,32}`.
    AgentId, "agent", 32, Underscore
);

id!(
    /// One set of streams, with services of its own: `[a-z0-9-]{1,32}`.
    CellName, "cell", 32, Nothing
);
id!(
    /// A mail, unique within its mailbox. `[A-Za-z0-9_-]{1,64}`.
    MailId, "mail id", 64, UpperAndUnderscore
);

impl Default for TenantId {
    fn default() -> Self {
        Self("default".into())
    }
}

impl Default for CellName {
    fn default() -> Self {
        Self("default".into())
    }
}

impl CallId {
    /// The id of a step's model call.
    pub fn model(turn: u32, step: u32) -> Self {
        Self(format!("m{turn}-{step}").into())
    }

    /// Whether people watch the reply grow: the model call of a step, not one for a summary or a verdict.
    pub fn is_watched(&self) -> bool {
        self.0.starts_with('m')
    }

    /// The turn that made the call. None for an id that the loop does not make.
    pub fn turn(&self) -> Option<u32> {
        let rest = self.0.strip_prefix(['m', 's', 'j', 'c'])?;
        rest.split_once('-')?.0.parse().ok()
    }

    /// The id of the request for a summary, number `index` of a turn.
    pub fn summary(turn: u32, index: u32) -> Self {
        Self(format!("s{turn}-{index}").into())
    }

    /// The id of the question to a judge about the reply of a step.
    pub fn judge(turn: u32, step: u32) -> Self {
        Self(format!("j{turn}-{step}").into())
    }

    /// The id of a step's tool call number `index`, counted from 1.
    pub fn tool(turn: u32, step: u32, index: u32) -> Self {
        Self(format!("c{turn}-{step}-{index}").into())
    }
}

impl SessionId {
    /// The session that performs a call of another one. It follows from the call, so that it is started once.
    pub fn child(tenant: &TenantId, parent: &Self, call: &CallId) -> Self {
        let digest = crate::hash::sha256_hex(format!("{tenant}/{parent}/{call}").as_bytes());
        Self(format!("child-{}", digest.get(..CHILD_DIGITS).unwrap_or(&digest)).into())
    }

    /// The short form of a generated id: its last characters, which are random. It does not begin with the first ones,
    /// since they are a time, which all sessions of a minute share. An id that people chose has none.
    pub fn short(&self) -> Option<&str> {
        let generated = self.0.get(self.0.len().checked_sub(GENERATED_DIGITS)?..)?;
        let is_generated = generated.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        is_generated.then(|| &generated[GENERATED_DIGITS - Self::SHORT_CHARS..])
    }

    /// Characters of the short form.
    pub const SHORT_CHARS: usize = 8;
}

/// Hexadecimal digits with which every generated id ends: a UUID, and a name with a digest.
const GENERATED_DIGITS: usize = 12;

/// Hexadecimal digits that tell one child session from another.
const CHILD_DIGITS: usize = 32;

impl MailId {
    /// Hex digits: few enough for a model to copy, and enough that no two mails of a mailbox meet.
    const DIGITS: usize = 16;

    /// The id of the mail that a call sends, by the call's id in the fleet: the same for every try.
    pub fn sent_by(call: &str) -> Self {
        Self::hashed(&format!("sent {call}"))
    }

    /// The id of the one answer that an agent can give to a mail in its mailbox.
    pub fn answer_to(agent: &AgentId, mail: &Self) -> Self {
        Self::hashed(&format!("answer {agent} {mail}"))
    }

    fn hashed(text: &str) -> Self {
        Self(crate::hash::sha256_hex(text.as_bytes())[..Self::DIGITS].into())
    }
}

/// One try of a call, written `<call>.<attempt>` in a commit's list of open calls.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallAttempt {
    /// Id of the call: unique in its session.
    pub call: CallId,
    /// The orchestrator's attempt, from 1.
    pub attempt: u32,
}

impl fmt::Display for CallAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.call, self.attempt)
    }
}

/// Whether two ids may name one commit. An older version names none, and is believed.
pub fn may_be_same_commit(one: &str, other: &str) -> bool {
    one.is_empty() || other.is_empty() || one == other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i6_an_id_is_one_token() {
        let long = "a".repeat(65);
        for bad in ["", "a.b", "*", ">", "a b", "a\n", "ä", "a/b", "\0", long.as_str()] {
            assert!(SessionId::new(bad).is_err(), "{bad:?}");
            assert!(TenantId::new(bad).is_err(), "{bad:?}");
        }
        assert!(TenantId::new("Upper").is_err() && TenantId::new("two_words").is_err());
        assert!(AgentId::new("Upper").is_err() && AgentId::new("agent_patricia").is_ok());
        assert_eq!(SessionId::new("S_1-x").unwrap().as_str(), "S_1-x");
        assert!(serde_json::from_str::<ToolName>("\"a.b\"").is_err());
    }

    #[test]
    fn short_form_of_a_session_id_is_the_random_end_of_a_generated_one() {
        let rows = [
            ("01a21797-7c14-70e7-869b-6a0b2b14e2cd", Some("2b14e2cd")),
            ("chat-2e847cc85474f77d2d33714fc9030fb4", Some("c9030fb4")),
            ("child-2e847cc85474f77d2d33714fc9030fb4", Some("c9030fb4")),
            ("invoices-of-may", None),
            ("S-2026-11-27", None),
            ("c9030fb4", None),
        ];
        for (id, short) in rows {
            assert_eq!(SessionId::new(id).unwrap().short(), short, "{id}");
        }
    }

    #[test]
    fn mail_id_follows_from_its_call_or_the_answered_mail() {
        let (p, e) = (AgentId::new("p").unwrap(), AgentId::new("e").unwrap());
        let sent = MailId::sent_by("s1-c1-1-1");
        assert_eq!(sent, MailId::sent_by("s1-c1-1-1"));
        assert!(MailId::new(sent.as_str()).is_ok());
        let others = [MailId::sent_by("s1-c1-1-2"), MailId::answer_to(&p, &sent), MailId::answer_to(&e, &sent)];
        let all: std::collections::BTreeSet<_> = others.iter().chain([&sent]).collect();
        assert_eq!(all.len(), 4);
    }
}
