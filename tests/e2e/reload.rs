//! Configuration that changes while a fleet runs.

use ailoop_tests::fleet::{TestFleet, key};
use ailoop_tests::judge;
use ailoop_tests::model::{ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tests::wait::eventually;

/// The first line of the system prompt that a model was asked with.
fn begins(request: &RecordedRequest) -> &str {
    request.messages()[0]["content"].as_str().unwrap().lines().next().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_changed_on_disk_applies_to_new_sessions_only() -> anyhow::Result<()> {
    let model = ModelServer::start(|_| ScriptedReply::signal("Yes.", "TERMINATE")).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let prompt = "prompts/agents/eamonn_executioner.md";
    let client = fleet.client().await?;
    client.start_interactive("old", "Hello?").await?;
    let mut old = client.watch("old").await?;
    old.until("turn.completed", |_| true).await?;
    let shipped = begins(&model.requests()[0]).to_owned();

    // Starts sessions until one has the new prompt.
    let mut sessions = 0;
    let mut until = async |word: &str| {
        eventually(word, async || {
            sessions += 1;
            let id = format!("s{sessions}");
            client.start(&id, "Hello?").await.unwrap();
            client.watch(&id).await.unwrap().to_end().await.unwrap();
            begins(model.requests().last().unwrap()) == word
        })
        .await
    };
    fleet.write(prompt, "I am new.\n")?;
    until("I am new.").await?;
    // A new model, and an agent that uses it: composer and gateway both reload.
    let models = format!(
        "providers: {{test: {{kind: openai_chat, base_url: '{}'}}}}\nmodels: {{fresh: {{provider: test}}, test: {{provider: test}}}}\n",
        model.base_url()
    );
    fleet.write("models.yaml", &models)?;
    fleet.write("agents.yaml", "default_agent: e\nagents:\n  e: {name: Eve, prompt_file: eve.md, model: fresh}\n")?;
    fleet.write("prompts/agents/eve.md", "I am Eve.\n")?;
    until("I am Eve.").await?;
    assert_eq!(model.requests().last().unwrap().body["model"], "fresh");

    client.send("old", "And now?", "queue").await?;
    let ended = old.until("turn.completed", |_| true).await?;
    assert_eq!(ended.data["stop_reason"], "completed", "{:?}", ended.data);
    let requests = model.requests();
    assert_eq!(
        (begins(requests.last().unwrap()), &requests.last().unwrap().body["model"]),
        (&*shipped, &"test".into())
    );
    judge::log(&fleet.bus, &key("old")?, 10).await?;
    fleet.end().await
}
