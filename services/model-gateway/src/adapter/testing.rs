//! What a provider sends, fed to its reader in every way in which it may be cut.

use std::sync::LazyLock;

use contract::model::ModelItem;
use serde_json::{Map, Value};
use service::models::Quirks;

use super::{Protocol, RequestTarget};
use crate::failure::CallFailure;
use crate::reply::ModelReply;

/// A model that reasons, by this name.
pub(super) fn target(model: &str) -> RequestTarget<'_> {
    static NONE: LazyLock<Quirks> = LazyLock::new(Quirks::default);
    static BARE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    RequestTarget { model, signer_id: model, reasoning: true, max_output: None, quirks: &NONE, parameters: &BARE }
}

/// The same, with an item's parameters as they are.
pub(super) fn target_of<'a>(item: &'a ModelItem, model: &'a str) -> RequestTarget<'a> {
    RequestTarget { parameters: &item.parameters, ..target(model) }
}

/// What an answer comes to, fed in pieces.
fn read<'a>(protocol: Protocol, pieces: impl Iterator<Item = &'a [u8]>) -> Result<ModelReply, CallFailure> {
    let (mut reader, mut reply) = (protocol.response_reader(), ModelReply::default());
    for piece in pieces {
        for delta in reader.push(piece)? {
            reply.add(&delta)?;
        }
    }
    for delta in reader.finish()? {
        reply.add(&delta)?;
    }
    Ok(reply)
}

/// Reads an answer whole and cut at every byte; all of them must agree.
pub(super) fn check(protocol: Protocol, body: &str) -> Result<ModelReply, CallFailure> {
    let whole = read(protocol, std::iter::once(body.as_bytes()));
    let same = |what: &str, got: Result<ModelReply, CallFailure>| {
        assert_eq!(got.map_err(|f| f.kind), whole.clone().map_err(|f| f.kind), "{what}: {body}");
    };
    for cut in 1..body.len() {
        let (a, b) = body.as_bytes().split_at(cut);
        same(&format!("cut at {cut}"), read(protocol, [a, b].into_iter()));
    }
    same("byte by byte", read(protocol, body.as_bytes().chunks(1)));
    whole
}

/// The same where it was broken off after so many bytes.
pub(super) fn cut(protocol: Protocol, body: &str, at: usize) -> Result<ModelReply, CallFailure> {
    read(protocol, std::iter::once(&body.as_bytes()[..at]))
}

/// A stream of events, with their types as names, as providers write them.
pub(super) fn stream(events: &[Value]) -> String {
    let event = |value: &Value| match value["type"].as_str() {
        Some(name) => format!("event: {name}\ndata: {value}\n\n"),
        None => format!("data: {value}\n\n"),
    };
    events.iter().map(event).collect()
}
