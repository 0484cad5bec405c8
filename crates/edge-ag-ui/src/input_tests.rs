//! Inputs of runs, and what an agent takes of them.

use contract::model::HistoryMessage;
use serde_json::{Value, json};

use super::*;

fn input(messages: &Value, more: &Value) -> RunInput {
    let mut input = json!({"threadId": "t", "runId": "r", "messages": messages, "forwardedProps": {"x": 1}});
    input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    RunInput::parse(input.to_string().as_bytes()).unwrap()
}

fn turn(messages: &Value, more: &Value) -> Result<NewTurn, ApiError> {
    input(messages, more).turn(AgentId::new("e").unwrap())
}

#[test]
fn last_message_of_the_user_is_the_prompt_and_the_rest_is_history() {
    let messages = json!([
        {"id": "1", "role": "system", "content": "Be brief."},
        {"id": "2", "role": "user", "content": "Hi", "name": null},
        {"id": "3", "role": "reasoning", "content": "Hm"},
        {"id": "4", "role": "assistant", "content": "Hello", "toolCalls": []},
        {"id": "5", "role": "activity", "activityType": "plan", "content": {"steps": []}},
        {"id": "6", "role": "user", "content": [
            {"type": "text", "text": "And this?"},
            {"type": "image", "source": {"type": "data", "value": "QUJD", "mimeType": "image/jpeg"}},
        ]},
        {"id": "7", "role": "developer", "content": "Be kind."},
    ]);
    let more = json!({
        "context": [{"description": "The page", "value": "Prices"}],
        "tools": [{"name": "click", "description": "Clicks."}], "state": null, "resume": null,
    });
    let NewTurn { prompt, history, client_tools, .. } = turn(&messages, &more).unwrap();
    let Content::Parts(parts) = &prompt else { panic!("{prompt:?}") };
    let image = Part::ImageUrl { image_url: ImageUrl { url: "data:image/jpeg;base64,QUJD".to_owned() } };
    assert_eq!(parts[1], image);
    let texts: Vec<String> =
        history.iter().map(|message| serde_json::to_value(message).unwrap()["content"].to_string()).collect();
    let first = "\"Instructions of the application:\\nBe brief.\\n\\nBe kind.\\n\\nThe page: Prices\\n\\nMessage of the user:\\nHi\"";
    assert_eq!(texts, [first, "\"Hello\""]);
    assert_eq!((client_tools.len(), client_tools[0].name.as_str()), (1, "click"));
}

#[test]
fn part_that_no_agent_takes_is_refused_in_the_last_message_only() {
    let audio = json!({"role": "user", "content": [{"type": "audio", "source": {"type": "url", "value": "x"}}]});
    let refused = turn(&json!([audio]), &json!({})).unwrap_err();
    assert!(refused.message.contains("\"audio\""), "{refused}");
    let taken = turn(&json!([audio, {"role": "user", "content": "And now?"}]), &json!({})).unwrap();
    let HistoryMessage::User { content } = &taken.history[0] else { panic!("{:?}", taken.history) };
    assert_eq!(content.text(), "[a part that the agent cannot read]");
}

#[test]
fn only_results_that_the_client_made_are_answers() {
    let results = |messages: &Value| input(messages, &json!({})).call_results();
    let found = results(&json!([
        {"id": "a", "role": "tool", "toolCallId": "call_s_c1-1-1", "content": "old"},
        {"id": "b", "role": "assistant", "content": ""},
        {"id": "result_s_c1-2-1", "role": "tool", "toolCallId": "call_s_c1-2-1", "content": "of the fleet"},
        {"id": "c", "role": "tool", "toolCallId": "call_s_c1-2-2", "content": [{"type": "text", "text": "4"}]},
        {"id": "d", "role": "tool", "toolCallId": "call_s_c1-2-3", "content": "", "error": "no mouse"},
        {"id": "e", "role": "system", "content": "Be brief."},
    ]));
    let found: Vec<_> =
        found.unwrap().into_iter().map(|one| (one.call.to_string(), one.outcome, one.content)).collect();
    let wanted = [
        ("c1-2-2".to_owned(), ClientOutcome::Ok, "4".to_owned()),
        ("c1-2-3".to_owned(), ClientOutcome::Error, "no mouse".to_owned()),
    ];
    assert_eq!(found, wanted);
    assert!(results(&json!([{"id": "a", "role": "tool", "content": "x"}])).is_err());
    assert_eq!(results(&json!([{"role": "tool", "content": "x"}, {"role": "user", "content": "x"}])).unwrap(), []);
}
