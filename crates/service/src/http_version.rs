//! The versions of HTTP that a listener may speak.

/// Version of HTTP that a listener serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1, with upgrades to WebSocket.
    Http1,
    /// HTTP/2 with prior knowledge or by ALPN, with at most so many streams on one connection.
    Http2 {
        /// Streams of one connection.
        streams_max: u32,
    },
}
