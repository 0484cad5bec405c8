//! The API of OpenAI with a whole fleet.

use ailoop_tests::fleet::TestFleet;
use ailoop_tests::http::Http;
use ailoop_tests::model::{Gate, ModelServer, ScriptedReply};
use ailoop_tests::wait::eventually;
use anyhow::Context as _;
use serde_json::{Value, json};

const CHAT: &str = "/openai/v1/chat/completions";

fn chat(text: &str) -> Value {
    json!({"model": "e", "messages": [{"role": "user", "content": text}], "metadata": {"session": "shared"}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_to_a_busy_session_gets_the_answer_of_its_own_turn() -> anyhow::Result<()> {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ModelServer::start(move |request| {
        let reply = ScriptedReply::signal(&format!("re: {}", request.last_user()), "TERMINATE");
        if request.number == 0 { reply.before(&held) } else { reply }
    })
    .await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let http = Http::new(fleet.addresses().ws)?;
    let first = tokio::task::JoinSet::from_iter([{
        let http = http.clone();
        async move { http.post(CHAT, &chat("one")).await }
    }]);
    model.wait_for_requests(1).await;
    let mut streamed = chat("two");
    streamed["stream"] = json!(true);
    let later = async {
        let events = http.events(CHAT, &streamed).await?;
        anyhow::Ok(
            events.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect::<String>(),
        )
    };
    let opened = async {
        let (_, sessions) = http.get("/v1/sessions").await?;
        let session = sessions["sessions"][0]["session_id"].as_str().context("a session")?.to_owned();
        // The second message waits for the end of the first turn.
        eventually("the second message is accepted", async || {
            let found = http.get(&format!("/v1/sessions/{session}")).await;
            found.is_ok_and(|(_, found)| found["seq"].as_u64() >= Some(3))
        })
        .await?;
        gate.open();
        anyhow::Ok(())
    };
    let (later, opened) = tokio::join!(later, opened);
    opened?;
    let first = first.join_all().await.remove(0)?;
    assert_eq!((first.0, first.1["choices"][0]["message"]["content"].as_str()), (200, Some("re: one")));
    assert_eq!(later?, "re: two");
    fleet.end().await
}
