//! Definition of a route: a path and a verb for a method, with its parameters.

use crate::method::Method;

/// The verb of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HttpVerb {
    Get,
    Post,
    Delete,
}

impl HttpVerb {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Post => "post",
            Self::Delete => "delete",
        }
    }
}

/// A route to a method. The variables of its path are parameters of the method too.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) verb: HttpVerb,
    pub(super) path: &'static str,
    pub(super) method: Method,
    /// One sentence for the document.
    pub(super) about: &'static str,
    /// Parameters of the query of a GET, or of the body of a POST.
    pub(super) fields: &'static [Field],
}

impl Route {
    /// Returns the variables of the path, with what they hold.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&'static str, FieldKind)> {
        let names = self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        names.map(|name| match name {
            "kind" => (name, FieldKind::OneOf(&["control", "model", "tool", "timer", "item"])),
            "agent" => (name, FieldKind::Agent),
            "id" if self.path.starts_with("/v1/mail") => (name, FieldKind::Words),
            name => (name, FieldKind::Id),
        })
    }
}

/// A parameter of a method.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: FieldKind,
    pub(super) is_required: bool,
    pub(super) about: &'static str,
}

/// Kind of the value of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldKind {
    /// A text, which may be empty.
    Text,
    /// A text that is more than white space.
    Words,
    /// An id of a session, a command or a call.
    Id,
    /// Key or alias of an agent, or a mailbox.
    Agent,
    /// A hash in hexadecimal digits.
    Sha256,
    Count,
    /// A number that is not negative, such as an amount of money.
    Amount,
    Flag,
    /// A time as RFC 3339 has it.
    Time,
    /// `next_cursor` of a list.
    Cursor,
    /// A session and a slot of its log.
    SessionPoint,
    /// A text, or a list of parts.
    Content,
    Object,
    /// Tools with `name`, `description` and `parameters`.
    ClientTools,
    /// Messages with `role` and `content`.
    Messages,
    Names,
    /// One of these words.
    OneOf(&'static [&'static str]),
}

pub(super) const fn optional(name: &'static str, kind: FieldKind, about: &'static str) -> Field {
    Field { name, kind, is_required: false, about }
}

pub(super) const fn required(name: &'static str, kind: FieldKind, about: &'static str) -> Field {
    Field { name, kind, is_required: true, about }
}
