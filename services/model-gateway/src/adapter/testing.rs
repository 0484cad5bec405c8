//! What a provider sends, fed to its reader in every way in which it may be cut.

use std::sync::LazyLock;

use contract::model::ModelItem;
use serde_json::{Map, Value};
use service::models::Quirks;

use super::{Family, Target};
use crate::failure::Failure;
use crate::reply::Reply;

/// A model that reasons, by this name.
pub(super) fn target(model: &str) -> Target<'_> {
    static NONE: LazyLock<Quirks> = LazyLock::new(Quirks::default);
    static BARE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    Target { model, voice: model, reasoning: true, max_output: None, quirks: &NONE, parameters: &BARE }
}

/// The same, with an item's parameters as they are.
pub(super) fn target_of<'a>(item: &'a ModelItem, model: &'a str) -> Target<'a> {
    Target { parameters: &item.parameters, ..target(model) }
}

/// What an answer comes to, fed in pieces.
fn read<'a>(family: Family, pieces: impl Iterator<Item = &'a [u8]>) -> Result<Reply, Failure> {
    let (mut answer, mut reply) = (family.answer(), Reply::default());
    for piece in pieces {
        for delta in answer.push(piece)? {
            reply.add(&delta)?;
        }
    }
    for delta in answer.finish()? {
        reply.add(&delta)?;
    }
    Ok(reply)
}

/// Reads an answer whole and cut at every byte; all of them must agree.
pub(super) fn check(family: Family, body: &str) -> Result<Reply, Failure> {
    let whole = read(family, std::iter::once(body.as_bytes()));
    let same = |what: &str, got: Result<Reply, Failure>| {
        assert_eq!(got.map_err(|f| f.kind), whole.clone().map_err(|f| f.kind), "{what}: {body}");
    };
    for cut in 1..body.len() {
        let (a, b) = body.as_bytes().split_at(cut);
        same(&format!("cut at {cut}"), read(family, [a, b].into_iter()));
    }
    same("byte by byte", read(family, body.as_bytes().chunks(1)));
    whole
}

/// The same where it was broken off after so many bytes.
pub(super) fn cut(family: Family, body: &str, at: usize) -> Result<Reply, Failure> {
    read(family, std::iter::once(&body.as_bytes()[..at]))
}

/// A stream of events, with their types as names, as providers write them.
pub(super) fn stream(events: &[Value]) -> String {
    let event = |value: &Value| match value["type"].as_str() {
        Some(name) => format!("event: {name}\ndata: {value}\n\n"),
        None => format!("data: {value}\n\n"),
    };
    events.iter().map(event).collect()
}
