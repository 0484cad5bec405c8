//! Equal requests of one key: no client may meet the session of another one, and none is refused for being equal.

use ailoop_tests::http::{Http, read};
use ailoop_tests::model::{RecordedRequest, ScriptedReply};
use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use crate::hostile::attempts::Attempts;
use crate::hostile::keyed_fleet::{CHAT, KeyedFleet, RESPONSES, echo_user, sessions};

const KEYS: [(&str, &str); 1] = [("application", "scopes: [run, observe]")];
/// Equal requests: more than the edge ever numbered.
const EQUAL: usize = 40;

/// Calls the client's tool, and then repeats what it returned.
fn order(request: &RecordedRequest) -> ScriptedReply {
    match request.last_results().as_slice() {
        [] => ScriptedReply::calls(&[("lookup_orders", json!({}))]),
        results => ScriptedReply::signal(&format!("Your orders: {}", results.join(" ")), "TERMINATE"),
    }
}

/// Repeats the request of another user of the same key, whose first try never came.
pub(crate) async fn session_of_another_user(attempts: Attempts) -> anyhow::Result<()> {
    let fleet = KeyedFleet::start(&KEYS, &[], order).await?;
    let http = fleet.http("application")?;
    let tool = json!({"name": "lookup_orders", "parameters": {"type": "object"}});
    let chat = json!({
        "model": "a", "messages": [{"role": "user", "content": "Show my orders"}],
        "tools": [{"type": "function", "function": tool}],
    });
    let mut response_tool = tool.clone();
    response_tool["type"] = json!("function");
    let response = json!({"model": "a", "input": "Show my orders", "tools": [response_tool]});
    for (path, body) in [(CHAT, &chat), (RESPONSES, &response)] {
        let victim = send(&http, path, body, "0").await?;
        for count in ["1", "2"] {
            let other = send(&http, path, body, count).await?;
            attempts
                .check(other["id"] != victim["id"], || format!("{path}: try {count} got the answer of another user"));
        }
    }
    // Each user answers the call that it got. With a call of somebody else, the answers would go to one turn.
    let (victim, other) = (send(&http, CHAT, &chat, "0").await?, send(&http, CHAT, &chat, "1").await?);
    for (answer, orders) in [(&other, "three books"), (&victim, "one lamp")] {
        let message = answer["choices"][0]["message"].clone();
        let call = message["tool_calls"][0]["id"].clone();
        ensure!(call.is_string(), "no call: {answer}");
        let mut next = chat.clone();
        let messages = next["messages"].as_array_mut().context("messages")?;
        messages.extend([message, json!({"role": "tool", "tool_call_id": call, "content": orders})]);
        let (status, answer) = http.post(CHAT, &next).await?;
        let is_own = answer["choices"][0]["message"]["content"] == format!("Your orders: {orders}");
        attempts.check(status == 200 && is_own, || format!("the result {orders:?} led to {status} {answer}"));
    }
    Ok(())
}

/// Sends a request as the SDKs of OpenAI do, with the number of its earlier tries.
async fn send(http: &Http, path: &str, body: &Value, tries: &str) -> anyhow::Result<Value> {
    let (status, answer) = read(http.post_with(path, &[("x-stainless-retry-count", tries)], body).await?).await?;
    ensure!(status == 200, "{path}, try {tries}: {status} {answer}");
    Ok(answer)
}

/// Sends equal requests, as health checks and evaluations do.
pub(crate) async fn equal_requests(attempts: Attempts) -> anyhow::Result<()> {
    let fleet = KeyedFleet::start(&KEYS, &[], echo_user).await?;
    let http = fleet.http("application")?;
    let ping = json!({"model": "a", "messages": [{"role": "user", "content": "ping"}]});
    for number in 1..=EQUAL {
        let (status, answer) = http.post(CHAT, &ping).await?;
        attempts.check(status == 200, || format!("request {number}: {status} {answer}"));
    }
    let count = sessions(&http).await?.len();
    attempts.check(count == EQUAL, || format!("{count} sessions of {EQUAL} requests"));
    Ok(())
}
