//! Conversations with servers of third parties. `make lab NAME=third-party` installs and starts them.

use contract::Json;
use contract::model::{Content, FailureKind as K, FinishReason, Message, ModelItem, ReasoningParts, ToolCall};
use model_gateway::adapter::ProviderProtocol;
use model_gateway::reply::ModelReply;
use serde_json::{Value, json};

use super::dialect::PROTOCOLS;
use super::{call_at, figures, item};

/// URL of a server; `None` with a notice if it was not started.
fn server(variable: &str) -> Option<String> {
    let url = configuration::env(variable);
    if url.is_none() {
        figures(&format!("skipped: {variable} is not set; `make lab NAME=third-party` starts the server and sets it"));
    }
    url
}

fn base(protocol: ProviderProtocol, url: &str) -> String {
    match protocol {
        ProviderProtocol::OpenaiChat | ProviderProtocol::OpenaiResponses | ProviderProtocol::Anthropic => {
            format!("{url}/v1")
        }
        ProviderProtocol::Gemini => format!("{url}/v1beta"),
    }
}

fn tool(name: &str, properties: &Value) -> Json {
    let parameters = json!({"type": "object", "properties": properties});
    Json::of(&json!({"name": name, "description": format!("The tool {name}."), "parameters": parameters}))
}

/// A call with tools for files.
fn build_item(protocol: ProviderProtocol, streamed: bool, prompt: &str) -> ModelItem {
    let mut item = item(streamed);
    let model = match protocol {
        ProviderProtocol::OpenaiChat => "m/gpt-4o",
        ProviderProtocol::OpenaiResponses => "m/gpt-5",
        ProviderProtocol::Anthropic => "m/claude-sonnet-4",
        ProviderProtocol::Gemini => "m/gemini-2.5-flash",
    };
    model.clone_into(&mut item.model);
    item.streaming.first_byte = 60;
    item.streaming.idle = 60;
    item.messages = vec![
        Json::of(&Message::System { content: "You are a test.".to_owned() }),
        Json::of(&Message::User { content: Content::from(prompt) }),
    ];
    item.tools = vec![
        tool(
            "read_file",
            &json!({"path": {"type": "string"}, "lines": {"type": "array", "items": {"type": "integer"}}}),
        ),
        tool("list_files", &json!({})),
    ];
    item
}

/// Adds a reply and the results of its calls, as the orchestrator does for the next request.
fn add_results(item: &mut ModelItem, protocol: ProviderProtocol, reply: &ModelReply) {
    let calls: Vec<ToolCall> = (0..)
        .zip(reply.calls())
        .map(|(n, call)| ToolCall::new(&format!("c1-1-{n}"), &call.function.name, &call.function.arguments))
        .collect();
    let reasoning_parts = protocol.reasoning_name().filter(|_| !reply.replay.is_empty()).map(|name| ReasoningParts {
        family: name.to_owned(),
        model: "m/up-1".to_owned(),
        parts: reply.replay.clone(),
        positions: Vec::new(),
    });
    let (content, reasoning) = (reply.text.clone(), reply.reasoning.clone());
    let results: Vec<Json> = calls
        .iter()
        .map(|call| Json::of(&Message::Tool { tool_call_id: call.id.clone(), content: "{\"ok\":true}".to_owned() }))
        .collect();
    item.messages.push(Json::of(&Message::Assistant {
        content,
        reasoning,
        tool_calls: calls,
        replay: reasoning_parts,
    }));
    item.messages.extend(results);
}

async fn get_reply(protocol: ProviderProtocol, url: &str, item: ModelItem) -> ModelReply {
    let (reply, ended) = call_at(protocol, &base(protocol, url), item).await;
    ended.unwrap_or_else(|failure| panic!("{protocol:?}: {:?} {failure}", failure.kind));
    reply
}

#[tokio::test]
async fn third_party_aimock_with_each_protocol_answers_as_scripted() {
    let Some(url) = server("AILOOP_AIMOCK_URL") else { return };
    for protocol in PROTOCOLS {
        for streamed in [true, false] {
            let hello = get_reply(protocol, &url, build_item(protocol, streamed, "hello")).await;
            assert_eq!(hello.text, "Hello there, \u{4f60}\u{597d} \u{1F44B}!", "{protocol:?} {streamed}");
            assert_eq!(
                hello.finish.as_ref().map(|finish| finish.0),
                Some(FinishReason::Stop),
                "{protocol:?} {streamed}"
            );

            let thought = get_reply(protocol, &url, build_item(protocol, streamed, "think first")).await;
            assert_eq!(thought.text, "It is 42.", "{protocol:?} {streamed}");
            assert_eq!(thought.reasoning, "Let me see: 2 and 40.", "{protocol:?} {streamed}");

            let mut item = build_item(protocol, streamed, "two tools");
            let called = get_reply(protocol, &url, item.clone()).await;
            let calls: Vec<(String, Value)> = called
                .calls()
                .into_iter()
                .map(|call| (call.function.name, serde_json::from_str(&call.function.arguments).unwrap()))
                .collect();
            let path = json!({"path": "a/\u{fc}.md", "lines": [1, 2]});
            assert_eq!(calls, [("read_file".to_owned(), path), ("list_files".to_owned(), json!({}))], "{protocol:?}");
            assert_eq!(called.text, "I look at both.", "{protocol:?} {streamed}");
            assert_eq!(called.finish.as_ref().map(|finish| finish.0), Some(FinishReason::ToolCalls), "{protocol:?}");
            add_results(&mut item, protocol, &called);
            assert_eq!(get_reply(protocol, &url, item).await.text, "Both are done.", "{protocol:?} {streamed}");

            for (prompt, kind) in [("slow down", K::RateLimited), ("too busy", K::Overloaded), ("no key", K::Auth)] {
                let (_, ended) = call_at(protocol, &base(protocol, &url), build_item(protocol, streamed, prompt)).await;
                let failure = ended.unwrap_err();
                assert_eq!(failure.kind, kind, "{protocol:?} {streamed} {prompt}: {failure}");
            }
        }
        let (reply, ended) = call_at(protocol, &base(protocol, &url), build_item(protocol, true, "break off")).await;
        // The reset may overtake the bytes before it.
        let kind = ended.unwrap_err().kind;
        assert!(matches!(kind, K::Truncated | K::Unreachable), "{protocol:?}: {kind:?} {reply:?}");
        let what = "text, reasoning, calls and their results, errors and a break, streamed and whole";
        figures(&format!("aimock: {protocol:?}: {what}"));
    }
}

#[tokio::test]
async fn third_party_llama_cpp_with_a_real_model_streams_a_reply() {
    let Some(url) = server("AILOOP_LLAMACPP_URL") else { return };
    for protocol in [ProviderProtocol::OpenaiChat, ProviderProtocol::OpenaiResponses, ProviderProtocol::Anthropic] {
        for streamed in [true, false] {
            let mut item = build_item(protocol, streamed, "Say hello in one short sentence.");
            item.tools.clear();
            item.parameters.insert("max_tokens".to_owned(), json!(48));
            item.parameters.insert("temperature".to_owned(), json!(0.0));
            let reply = get_reply(protocol, &url, item.clone()).await;
            assert!(!reply.text.trim().is_empty(), "{protocol:?} {streamed}: {reply:?}");
            let usage = reply.usage.unwrap_or_else(|| panic!("{protocol:?} {streamed}: no usage"));
            assert!(usage.input > 0 && (1..=48).contains(&usage.output), "{protocol:?} {streamed}: {usage:?}");
            let how = if streamed { "streamed" } else { "whole" };
            figures(&format!("llama.cpp: {protocol:?}, {how}: {:?}", reply.text.trim()));
            // The reply is cut at its limit. In Responses, this server reports it as complete.
            item.parameters.insert("max_tokens".to_owned(), json!(2));
            let cut = get_reply(protocol, &url, item).await;
            let reported =
                if protocol == ProviderProtocol::OpenaiResponses { FinishReason::Stop } else { FinishReason::Length };
            assert_eq!(cut.finish.map(|finish| finish.0), Some(reported), "{protocol:?} {streamed}");
            assert_eq!(cut.usage.map(|usage| usage.output), Some(2), "{protocol:?} {streamed}");
        }
    }
}
