//! AG-UI with a whole fleet: calls of every kind in one reply, answers to interrupts, failures, a stop.

use ailoop_tests::fleet::TestFleet;
use ailoop_tests::http::Http;
use ailoop_tests::judge;
use ailoop_tests::model::{Gate, ModelServer, ScriptedReply};
use ailoop_tests::tool_server::{ToolAnswer, ToolServerBuilder};
use ailoop_tests::wait::{eventually, soon};
use ailoop_tool::{Approval, Effect, Tool};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::event_order;

/// A front end with one thread, and the messages that it has.
struct FrontEnd {
    http: Http,
    messages: Vec<Value>,
    run: u32,
}

impl FrontEnd {
    fn new(fleet: &TestFleet) -> anyhow::Result<Self> {
        Ok(Self { http: Http::new(fleet.addresses().ws)?, messages: Vec::new(), run: 0 })
    }

    fn say(&mut self, text: &str) {
        self.messages.push(json!({"id": format!("m{}", self.messages.len()), "role": "user", "content": text}));
    }

    /// Runs the agent with further fields of the input, and checks the order of the events.
    async fn run(&mut self, more: &Value) -> anyhow::Result<Vec<Value>> {
        self.run += 1;
        let mut input = json!({
            "threadId": "t", "runId": format!("r{}", self.run), "protocolVersion": "1.0", "messages": self.messages,
            "tools": [{"name": "click", "description": "Clicks a button.", "parameters": {"type": "object"}}],
        });
        for (name, value) in more.as_object().context("fields")? {
            input[name] = value.clone();
        }
        let events = self.http.events("/ag-ui/e", &input).await?;
        event_order::check(&events).map_err(anyhow::Error::msg)?;
        if let Some(snapshot) = of(&events, "MESSAGES_SNAPSHOT").first() {
            self.messages.clone_from(snapshot["messages"].as_array().context("messages")?);
        }
        Ok(events)
    }
}

fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

fn end(events: &[Value]) -> &Value {
    events.last().unwrap_or(&Value::Null)
}

fn text(events: &[Value]) -> String {
    of(events, "TEXT_MESSAGE_CONTENT").iter().filter_map(|event| event["delta"].as_str()).collect()
}

fn call_of(events: &[Value], tool: &str) -> Value {
    let starts = of(events, "TOOL_CALL_START");
    let found = starts.into_iter().find(|start| start["toolCallName"] == tool);
    found.map(|start| start["toolCallId"].clone()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_the_fleet_of_the_client_and_of_a_person_go_on_in_the_next_run() -> anyhow::Result<()> {
    let calls =
        [("measure", json!({"what": "x"})), ("launch", json!({"to": "ann"})), ("click", json!({"button": "Buy"}))];
    let replies = vec![
        ScriptedReply::text("Let me see.").and_reasoning("Hm.").and_calls(&calls),
        ScriptedReply::signal("Done.", "TERMINATE"),
    ];
    let model = ModelServer::with_replies(replies).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let launch = Tool::new("launch").effect(Effect::AtMostOnce).approval(Approval::Always);
    let tools = ToolServerBuilder::at(&fleet.nats.url())
        .await?
        .with(launch, |call| ToolAnswer::Json(call.arguments.clone()))
        .tool("measure", Effect::Pure, |_| ToolAnswer::Text("3 m".to_owned()))
        .open()
        .await?;
    fleet.wait_for_tools(&["launch", "measure"]).await?;
    let mut front_end = FrontEnd::new(&fleet)?;
    front_end.say("go");
    let first = front_end.run(&json!({})).await?;
    assert_eq!(text(&first), "Let me see.");
    assert_eq!(of(&first, "REASONING_MESSAGE_CONTENT").len(), 1, "{first:?}");
    let results = of(&first, "TOOL_CALL_RESULT");
    let measured = (&results[0]["toolCallId"], &results[0]["content"]);
    assert_eq!((results.len(), measured), (1, (&call_of(&first, "measure"), &json!("3 m"))));
    let interrupts = end(&first)["outcome"]["interrupts"].as_array().context("interrupts")?.clone();
    let [interrupt] = &interrupts[..] else { panic!("{interrupts:?}") };
    assert_eq!(interrupt["toolCallId"], call_of(&first, "launch"));
    assert!(tools.calls().iter().all(|call| call.tool != "launch"), "it runs without an approval");

    let refused = front_end.run(&json!({})).await?;
    assert_eq!(end(&refused)["code"], "not_now");
    let clicked = json!({"id": "own", "role": "tool", "toolCallId": call_of(&first, "click"), "content": "clicked"});
    front_end.messages.push(clicked);
    let answer = json!({"approved": true, "editedArgs": {"to": "bob"}});
    let resume = json!([{"interruptId": interrupt["id"], "status": "resolved", "payload": answer}]);
    let second = front_end.run(&json!({"resume": resume})).await?;
    assert_eq!(text(&second), "Done.");
    let results = of(&second, "TOOL_CALL_RESULT");
    assert_eq!((results.len(), &results[0]["toolCallId"]), (1, &call_of(&first, "launch")), "{second:?}");
    assert_eq!(end(&second)["result"]["stopReason"], "completed");
    assert_eq!(end(&second)["usage"][0]["inputTokens"], 10);
    let launched: Vec<Value> =
        tools.calls().into_iter().filter(|call| call.tool == "launch").map(|call| call.arguments).collect();
    assert_eq!(launched, [json!({"to": "bob"})]);
    assert_eq!(model.requests()[1].last_results().len(), 3);
    // The same run again is the same turn, and finds the end of it.
    front_end.run -= 1;
    assert_eq!(text(&front_end.run(&json!({"resume": resume})).await?), "Done.");
    assert_eq!(model.requests().len(), 2);
    judge::requests(&model.requests())?;
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn question_is_answered_by_the_next_run_and_a_tool_of_the_client_by_its_messages() -> anyhow::Result<()> {
    let question = json!({"question": "Which colour?", "choices": ["blue"]});
    let replies = vec![
        ScriptedReply::calls(&[("ask_user", question)]),
        ScriptedReply::calls(&[("click", json!({"button": "Blue"}))]),
        ScriptedReply::signal("Done.", "TERMINATE"),
    ];
    let model = ModelServer::with_replies(replies).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let mut front_end = FrontEnd::new(&fleet)?;
    front_end.say("go");
    let asked = front_end.run(&json!({})).await?;
    let interrupt = &end(&asked)["outcome"]["interrupts"][0];
    assert_eq!((&interrupt["message"], &interrupt["metadata"]["choices"]), (&json!("Which colour?"), &json!(["blue"])));
    let resume = json!([{"interruptId": interrupt["id"], "status": "resolved", "payload": {"answer": "blue"}}]);
    let answered = front_end.run(&json!({"resume": resume})).await?;
    let click = call_of(&answered, "click");
    assert_eq!(end(&answered)["outcome"], json!({"type": "success", "pendingToolCallIds": [click]}));
    front_end
        .messages
        .push(json!({"id": "own", "role": "tool", "toolCallId": click, "content": "", "error": "no mouse"}));
    let done = front_end.run(&json!({})).await?;
    assert_eq!((text(&done), of(&done, "TOOL_CALL_RESULT").len()), ("Done.".to_owned(), 0));
    let read: Vec<Vec<String>> = model
        .requests()
        .iter()
        .map(|request| request.last_results().into_iter().map(str::to_owned).collect())
        .collect();
    assert_eq!(read[1..], [["blue".to_owned()], ["error tool_error: no mouse".to_owned()]]);
    fleet.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_turn_is_a_run_error_and_a_stopped_one_is_cancelled() -> anyhow::Result<()> {
    let gate = Gate::new();
    let held = gate.clone();
    let model = ModelServer::start(move |request| {
        if request.last_user().contains("fail") {
            ScriptedReply::status(401, "{}")
        } else {
            ScriptedReply::signal("Good day.", "TERMINATE").before(&held)
        }
    })
    .await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let mut front_end = FrontEnd::new(&fleet)?;
    front_end.say("fail");
    let failed = front_end.run(&json!({})).await?;
    assert_eq!((&end(&failed)["type"], &end(&failed)["code"]), (&json!("RUN_ERROR"), &json!("model_auth")));
    front_end.say("wait");
    let http = front_end.http.clone();
    let stop = async {
        soon("the model is asked", model.wait_for_requests(2)).await?;
        eventually("the turn is cancelled", async || {
            let stopped = http.post("/ag-ui/agent/e/stop/t", &json!({})).await;
            stopped.is_ok_and(|(status, answer)| status == 200 && answer["stopped"] == true)
        })
        .await
    };
    let more = json!({});
    let (stopped, outcome) = tokio::join!(front_end.run(&more), stop);
    outcome?;
    let stopped = stopped?;
    assert_eq!(end(&stopped)["outcome"]["type"], "cancelled", "{stopped:?}");
    gate.open();
    front_end.say("and now?");
    let next = front_end.run(&json!({})).await?;
    ensure!(text(&next) == "Good day." && next[1] == stopped[1], "the session goes on: {next:?}");
    let (_, shown) = front_end.http.get("/ag-ui/info").await?;
    assert!(shown["agents"]["e"].is_object(), "{shown}");
    let input = json!({"threadId": "t", "runId": "c", "messages": []});
    let connected = front_end.http.events("/ag-ui/agent/e/connect", &input).await?;
    event_order::check(&connected).map_err(anyhow::Error::msg)?;
    let texts: Vec<&Value> = of(&connected, "MESSAGES_SNAPSHOT")[0]["messages"]
        .as_array()
        .context("messages")?
        .iter()
        .map(|message| &message["content"])
        .collect();
    assert_eq!(texts.last(), Some(&&json!("Good day.")), "{texts:?}");
    fleet.end().await
}
