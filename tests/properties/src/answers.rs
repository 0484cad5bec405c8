//! What providers send.

use model_gateway::adapter::Family;
use model_gateway::reply::Reply;

const FAMILIES: [Family; 4] = [Family::OpenaiChat, Family::OpenaiResponses, Family::Anthropic, Family::Gemini];

/// What an answer comes to, fed in pieces of so many bytes: a reply, or what kind of failure.
fn read(family: Family, bytes: &[u8], piece: usize) -> Result<Reply, contract::model::FailureKind> {
    let (mut answer, mut reply) = (family.answer(), Reply::default());
    for piece in bytes.chunks(piece.max(1)) {
        for delta in answer.push(piece).map_err(|failure| failure.kind)? {
            reply.add(&delta).map_err(|failure| failure.kind)?;
        }
    }
    for delta in answer.finish().map_err(|failure| failure.kind)? {
        reply.add(&delta).map_err(|failure| failure.kind)?;
    }
    Ok(reply)
}

/// An answer of any provider is the same however it is cut, and a reply only where it came to an end. The first byte says whose
/// it is, and how it is cut.
pub fn answer(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else { return };
    let family = FAMILIES[usize::from(first % 4)];
    let whole = read(family, bytes, bytes.len());
    assert_eq!(read(family, bytes, usize::from(first / 4)), whole, "{family:?} in pieces of {}", first / 4);
    if let Ok(reply) = whole {
        assert!(reply.finish.is_some(), "a reply without an end: {reply:?}");
    }
}
