//! Feeds responses to readers, split in each possible way.

use std::sync::LazyLock;

use configuration::models::Quirks;
use contract::model::ModelItem;
use serde_json::{Map, Value};

use super::{ProviderProtocol, RequestTarget};
use crate::failure::CallFailure;
use crate::reply::ModelReply;

/// A target with a model that reasons.
pub(super) fn target(model: &str) -> RequestTarget<'_> {
    static NONE: LazyLock<Quirks> = LazyLock::new(Quirks::default);
    static BARE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    RequestTarget {
        model,
        signer_id: model,
        reasoning: true,
        max_output: None,
        quirks: &NONE,
        parameters: &BARE,
        parts: &[],
    }
}

/// A target with the parameters of an item.
pub(super) fn target_of<'a>(item: &'a ModelItem, model: &'a str) -> RequestTarget<'a> {
    RequestTarget { parameters: &item.parameters, ..target(model) }
}

/// Reads a response in chunks.
fn read<'a>(protocol: ProviderProtocol, pieces: impl Iterator<Item = &'a [u8]>) -> Result<ModelReply, CallFailure> {
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

/// Reads a response whole and split at each byte, and checks that the results are equal.
pub(super) fn check(protocol: ProviderProtocol, body: &str) -> Result<ModelReply, CallFailure> {
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

/// Reads a response that was cut after so many bytes.
pub(super) fn cut(protocol: ProviderProtocol, body: &str, at: usize) -> Result<ModelReply, CallFailure> {
    read(protocol, std::iter::once(&body.as_bytes()[..at]))
}

/// Writes events as a stream, with their types as names.
pub(super) fn stream(events: &[Value]) -> String {
    let event = |value: &Value| match value["type"].as_str() {
        Some(name) => format!("event: {name}\ndata: {value}\n\n"),
        None => format!("data: {value}\n\n"),
    };
    events.iter().map(event).collect()
}
