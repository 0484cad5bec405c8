//! Dead letters: list, show, retry and drop.

use std::time::Duration;

use bus::{Delivery, Inbox};
use contract::streams::Objects;
use contract::subject::{self, SessionKey};
use contract::{CommandId, ErrorCode, TenantId, Timestamp};
use prost::{Message, Name};
use proto::json::from_value;
use proto::{DropDeadLetterRequest, GetDeadLetterRequest, ListDeadLettersRequest, RetryDeadLetterRequest};
use serde_json::{Value, json};

use crate::support::{Fixture, key, read_code, wait_until};

/// Writes a dead letter for a message on a subject.
pub(crate) async fn write_dead_letter(fixture: &Fixture, at: &subject::Subject, body: &str, code: ErrorCode) {
    let delivery = Delivery {
        subject: at.to_string(),
        seq: 7,
        delivered: 3,
        stored_at: Timestamp::from_millis(1_767_225_600_000),
        waited: Duration::ZERO,
        connected_for: Duration::MAX,
        generation: 1,
        headers: Vec::new(),
        payload: body.to_owned().into(),
        ack: String::new(),
    };
    fixture.bus.write_dead_letter(&delivery, code, "it could not be handled").await.unwrap();
}

fn message(text: &str) -> String {
    let meta = json!({"v": 1, "time": "2026-01-01T00:00:00.000Z", "edge": "somebody"});
    json!({"meta": meta, "content": text, "mode": "steer"}).to_string()
}

pub(crate) fn control(key: &SessionKey, id: &str) -> subject::Subject {
    subject::control(key, contract::command::Verb::SendUserMessage, &CommandId::new(id).unwrap())
}

/// Returns the request of any method for one letter.
fn letter<M: Message + Name + Default>(kind: &str, id: &str) -> M {
    from_value(json!({"session_id": "s", "kind": kind, "id": id})).unwrap()
}

#[tokio::test]
async fn dead_command_is_listed_retried_and_removed() {
    let fixture = Fixture::new().await;
    let mut client = fixture.grpc().await.0;
    client
        .start_session(proto::StartSessionRequest {
            session_id: Some("s".to_owned()),
            prompt: Some("go".to_owned().into()),
            interactive: Some(true),
            ..Default::default()
        })
        .await
        .unwrap();
    write_dead_letter(&fixture, &control(&key("s"), "lost"), &message("once more"), ErrorCode::Poison).await;
    write_dead_letter(&fixture, &control(&key("other"), "lost"), &message("not mine"), ErrorCode::Poison).await;

    let all = client.list_dead_letters(ListDeadLettersRequest::default()).await.unwrap().into_inner().dead;
    assert_eq!(all.len(), 2);
    let of_session = ListDeadLettersRequest { session_id: Some("s".to_owned()) };
    let own = client.list_dead_letters(of_session).await.unwrap().into_inner().dead;
    assert_eq!(own.len(), 1);
    assert_eq!((&*own[0].kind, &*own[0].id, &*own[0].code), ("control", "lost", "poison"));
    assert_eq!(own[0].body_json, None, "a list shows no contents");
    let shown = client.get_dead_letter(letter::<GetDeadLetterRequest>("control", "lost")).await.unwrap().into_inner();
    assert!(shown.body_json.unwrap().contains("once more"));

    let retried =
        client.retry_dead_letter(letter::<RetryDeadLetterRequest>("control", "lost")).await.unwrap().into_inner();
    assert_ne!(retried.command_id, "lost", "the session may know the old id as handled");
    wait_until("the message is in the log", async || {
        let log = fixture.bus.history(&key("s"), 0).await.unwrap();
        format!("{log:?}").contains("once more")
    })
    .await;
    // If the response is lost before the letter is removed, a repeated retry sends the same command.
    write_dead_letter(&fixture, &control(&key("s"), "lost"), &message("once more"), ErrorCode::Poison).await;
    let again =
        client.retry_dead_letter(letter::<RetryDeadLetterRequest>("control", "lost")).await.unwrap().into_inner();
    assert_eq!(again.command_id, retried.command_id);
    let gone = client.retry_dead_letter(letter::<RetryDeadLetterRequest>("control", "lost")).await.unwrap_err();
    assert!(gone.message().contains("there is no dead letter s/control/lost"), "{}", gone.message());
}

#[tokio::test]
async fn letter_that_cannot_be_retried_names_reason_and_can_be_dropped() {
    let fixture = Fixture::new().await;
    let mut client = fixture.grpc().await.0;
    let call = contract::ids::CallAttempt { call: contract::CallId::model(1, 1), attempt: 1 };
    write_dead_letter(&fixture, &subject::model_item(&key("s"), &call), "{}", ErrorCode::TooManyDeliveries).await;
    write_dead_letter(&fixture, &control(&key("s"), "garbage"), "{not json", ErrorCode::BadRequest).await;
    for (kind, id, why) in [("model", "m1-1-1", "recovered from its loss"), ("control", "garbage", "cannot be read")] {
        let refused = client.retry_dead_letter(letter::<RetryDeadLetterRequest>(kind, id)).await.unwrap_err();
        assert_eq!(read_code(&refused), "not_now");
        assert!(refused.message().contains(why), "{}", refused.message());
        client.drop_dead_letter(letter::<DropDeadLetterRequest>(kind, id)).await.unwrap();
        assert_eq!(
            read_code(&client.drop_dead_letter(letter::<DropDeadLetterRequest>(kind, id)).await.unwrap_err()),
            "unknown_dead_letter",
            "it is gone"
        );
    }

    // JSON-RPC gives the same answers, and no letter of another tenant.
    let other = SessionKey { tenant: TenantId::new("other").unwrap(), session: key("s").session };
    write_dead_letter(&fixture, &control(&other, "theirs"), &message("x"), ErrorCode::Poison).await;
    let mut ws = fixture.ws().await;
    assert_eq!(ws.expect_ok("dead.list", json!({})).await["dead"], json!([]));
    let params = json!({"session_id": "s", "kind": "control", "id": "theirs"});
    assert_eq!(ws.expect_code("dead.show", params.clone()).await, "unknown_dead_letter");
    assert_eq!(ws.expect_code("dead.drop", params).await, "unknown_dead_letter");
    assert_eq!(ws.expect_code("dead.show", json!({"session_id": "s", "kind": "wish", "id": "x"})).await, "bad_request");
}

#[tokio::test]
async fn dead_command_stored_by_reference_is_sent_again_with_its_body() {
    let fixture = Fixture::new().await;
    let mut client = fixture.grpc().await.0;
    let start = proto::StartSessionRequest {
        session_id: Some("s".to_owned()),
        prompt: Some("go".to_owned().into()),
        interactive: Some(true),
        ..Default::default()
    };
    client.start_session(start).await.unwrap();
    fixture.fake_loop.pause();
    let text = "x".repeat(contract::limits::INLINE_BYTES_MAX);
    let sealed = fixture.bus.offload_body(Objects::Work, message(&text).into()).await.unwrap();
    let reference = String::from_utf8(sealed.to_vec()).unwrap();
    assert!(reference.contains("$blob"));
    write_dead_letter(&fixture, &control(&key("s"), "large"), &reference, ErrorCode::Poison).await;
    client.retry_dead_letter(letter::<RetryDeadLetterRequest>("control", "large")).await.unwrap();

    let Inbox::Messages(waiting) = fixture.bus.inbox(&key("s")).await.unwrap() else { panic!("too many") };
    let body = fixture.bus.open(Objects::Work, waiting[0].payload.clone()).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["content"], json!(text));
    assert_eq!(body["meta"].get("edge"), None, "no replica waits for the command any more");
    assert_ne!(body["meta"]["time"], "2026-01-01T00:00:00.000Z", "the time of the command is the time of the retry");
}

#[tokio::test]
async fn dead_command_whose_stored_body_is_gone_is_refused() {
    let fixture = Fixture::new().await;
    let reference = json!({"meta": {"v": 1}, "$blob": "0".repeat(64), "bytes": 300_000}).to_string();
    write_dead_letter(&fixture, &control(&key("s"), "gone"), &reference, ErrorCode::Poison).await;
    let mut client = fixture.grpc().await.0;
    let refused = client.retry_dead_letter(letter::<RetryDeadLetterRequest>("control", "gone")).await.unwrap_err();
    assert_eq!(read_code(&refused), "not_now");
    assert!(refused.message().contains("body is gone"), "{}", refused.message());
    client.get_dead_letter(letter::<GetDeadLetterRequest>("control", "gone")).await.unwrap();
}
