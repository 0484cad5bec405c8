//! Large bodies: stored apart, and read as they were.

use bus::BusError;
use bus_memory::MemoryServer;
use bytes::Bytes;
use contract::limits;
use contract::streams::Objects;

#[tokio::test]
async fn large_body_is_offloaded_keeps_its_meta_and_loads_whole() {
    let bus = MemoryServer::new().bus();
    let text = format!(r#"{{"meta":{{"v":1}},"text":"{}"}}"#, "x".repeat(limits::INLINE_BYTES_MAX));
    let body = Bytes::from(text);
    let reference = bus.offload_body(Objects::Work, body.clone()).await.unwrap();
    assert!(reference.starts_with(br#"{"meta":{"v":1},"$blob":""#) && reference.len() < 200);
    assert_eq!(bus.open(Objects::Work, reference.clone()).await.unwrap(), body);
    assert!(matches!(bus.open(Objects::Blobs, reference).await, Err(BusError::BodyMissing { .. })));
}

#[tokio::test]
async fn body_contains_a_reference_is_not_taken_for_one() {
    let bus = MemoryServer::new().bus();
    for body in [r#"{"a":{"$blob":"00","bytes":1}}"#, r#""\"$blob\"""#, "not json \"$blob\"", ""] {
        assert_eq!(bus.open(Objects::Work, Bytes::from(body)).await.unwrap(), body);
    }
}
