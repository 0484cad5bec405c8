//! Commands: each takes effect once, and errors have their stable codes.

use ailoop_client::proto::ListSessionsRequest;
use ailoop_client::{Client, ErrorKind, TurnStopReason};
use ailoop_tests::fleet::TestFleet;
use ailoop_tests::model::{Gate, ModelServer, ScriptedReply};
use ailoop_tests::relay::Relay;
use ailoop_tests::wait::{eventually, soon};

use super::{all_events, of, open_after_messages, read_until};

/// The replies to a start and to a message are lost after the fleet has handled them; both are sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_whose_reply_is_lost_is_repeated_and_happens_once() -> anyhow::Result<()> {
    let model = ModelServer::start(|request| ScriptedReply::signal(request.last_user(), "TERMINATE")).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let grpc = fleet.addresses().grpc;
    let relay = Relay::before(grpc).await?;
    let (client, witness) = (Client::connect(relay.url()).await?, Client::connect(fleet.url()).await?);

    relay.lose_replies();
    let lose = async |session: Option<&str>| {
        eventually("the fleet has handled the command", async || match session {
            Some(session) => witness.session(session).get().await.is_ok_and(|info| info.turn == 1),
            None => witness.list(ListSessionsRequest::default()).await.is_ok_and(|list| list.sessions.len() == 1),
        })
        .await?;
        relay.cut(grpc);
        anyhow::Ok(())
    };
    let (session, handled) = tokio::join!(client.start(), lose(None));
    let (session, ()) = (session?, handled?);
    relay.lose_replies();
    let (result, handled) = tokio::join!(session.turn("hello"), lose(Some(session.id())));
    let (result, ()) = (result?, handled?);
    assert_eq!((result.turn, result.text.as_str()), (1, "hello"));
    session.stop("the test is over").await?;

    let events = all_events(&client, session.id()).await?;
    let counts = ["session_started", "message.user_processed", "turn.completed"].map(|topic| of(&events, topic).len());
    assert_eq!(counts, [1, 1, 1]);
    assert_eq!(model.requests().len(), 1);
    assert_eq!(witness.list(ListSessionsRequest::default()).await?.sessions.len(), 1);
    fleet.end().await
}

/// Pause, steer, cancel, resume, stop, and what can be read of a session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_is_controlled_and_read() -> anyhow::Result<()> {
    let (gate, unread) = (Gate::new(), Gate::new());
    let (faster, again) = (ScriptedReply::text("Fast.").and_gate(&unread), ScriptedReply::signal("Done.", "TERMINATE"));
    let replies = vec![ScriptedReply::text("never ").and_gate(&gate), faster, again];
    let model = ModelServer::with_replies(replies).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let client = Client::connect(fleet.url()).await?;
    let session = client.start().idempotency_key("of-this-task").await?;
    assert_eq!(session.id(), "of-this-task");
    let mut turn = session.turn("go").follow();
    read_until(&mut turn, &mut String::new(), "never").await?;
    assert_eq!(session.steer("faster").await?.turn, None, "it is read in the turn that runs");
    session.pause("a break").await?;
    assert_eq!(session.get().await?.phase, "paused");
    let twice = session.pause("a break").await.unwrap_err();
    assert_eq!((twice.code(), twice.kind()), ("not_now", ErrorKind::Conflict));
    session.resume("on").await?;
    session.cancel_turn("enough").await?;
    assert_eq!(soon("the end of the turn", turn.result()).await??.stop_reason, TurnStopReason::Stopped);
    // The cancelled turn has not read the second message, which begins a turn; this one waits for it.
    let mut again = session.turn("again").follow();
    let both = async { tokio::join!(again.result(), open_after_messages(&session, 3, &unread)) };
    let (result, opened) = soon("the turn of the last message", both).await?;
    opened?;
    let result = result?;
    assert_eq!((result.turn, result.text.as_str()), (3, "Done."));

    let transcript = session.transcript(0, 0).await?;
    let texts: Vec<&str> = transcript.turns.iter().flat_map(|turn| &turn.messages).map(|m| m.text.as_str()).collect();
    assert_eq!((texts, transcript.next_after), (vec!["go", "never ", "faster", "Fast.", "again", "Done."], None));
    assert!(session.history().await?.iter().any(|message| message["content"] == "again"));
    assert!(client.agents().await?.iter().any(|agent| agent.id == "e" && agent.is_default));
    assert_eq!(client.models().await?.len(), 1);
    session.stop("done").await?;
    let ended = session.send("too late").await.unwrap_err();
    assert_eq!((ended.code(), ended.kind()), ("session_ended", ErrorKind::Conflict));
    assert_eq!(client.session("no-such").get().await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(client.start().agent("nobody").await.unwrap_err().code(), "unknown_agent");
    fleet.end().await
}

/// A turn that could not go on fails with the code of the failure, each time it is asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turn_that_cannot_go_on_fails_with_the_code_of_the_failure() -> anyhow::Result<()> {
    let model =
        ModelServer::with_replies(vec![ScriptedReply::status(401, r#"{"error":{"message":"no key"}}"#)]).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let client = Client::connect(fleet.url()).await?;
    let session = client.start().await?;
    let mut turn = session.turn("go").follow();
    for _ in 0..2 {
        let failed = soon("the failure", turn.result()).await?.unwrap_err();
        assert_eq!((failed.code(), failed.kind()), ("model_auth", ErrorKind::TurnFailed));
        assert!(!failed.is_retryable());
    }
    fleet.end().await
}
