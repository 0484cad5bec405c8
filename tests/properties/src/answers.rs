//! Answers of providers.

use model_gateway::adapter::ProviderProtocol;
use model_gateway::reply::ModelReply;

const PROTOCOLS: [ProviderProtocol; 4] = [
    ProviderProtocol::OpenaiChat,
    ProviderProtocol::OpenaiResponses,
    ProviderProtocol::Anthropic,
    ProviderProtocol::Gemini,
];

/// Reads an answer in pieces of `piece` bytes: a reply, or the kind of failure.
fn read(protocol: ProviderProtocol, bytes: &[u8], piece: usize) -> Result<ModelReply, contract::model::FailureKind> {
    let (mut reader, mut reply) = (protocol.response_reader(), ModelReply::default());
    for piece in bytes.chunks(piece.max(1)) {
        for delta in reader.push(piece).map_err(|failure| failure.kind)? {
            reply.add(&delta).map_err(|failure| failure.kind)?;
        }
    }
    for delta in reader.finish().map_err(|failure| failure.kind)? {
        reply.add(&delta).map_err(|failure| failure.kind)?;
    }
    Ok(reply)
}

/// An answer gives the same result however it is cut, and a reply only if it is complete. The first byte selects the
/// protocol and the size of the pieces.
pub fn answer(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else { return };
    let protocol = PROTOCOLS[usize::from(first % 4)];
    let whole = read(protocol, bytes, bytes.len());
    assert_eq!(read(protocol, bytes, usize::from(first / 4)), whole, "{protocol:?} in pieces of {}", first / 4);
    if let Ok(reply) = whole {
        assert!(reply.finish.is_some(), "a reply without an end: {reply:?}");
    }
}
