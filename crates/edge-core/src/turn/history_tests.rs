//! Histories of clients, and the turns that they end with.

use serde_json::{Value, json};

use super::*;

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn turn_of(builder: HistoryBuilder) -> (String, Value) {
    let turn = builder.into_turn().unwrap().with_instructions();
    (turn.prompt.text(), json!(turn.history))
}

#[test]
fn result_is_given_to_the_last_call_of_its_id() {
    let mut builder = HistoryBuilder::default();
    builder.push_user("Look.".into());
    builder.push_reply("I look.".to_owned());
    builder.push_call("1", "look", "{}");
    builder.push_call("1", "look", "{\"n\":2}");
    builder.push_result("1", "first".to_owned()).unwrap();
    builder.push_result("1", "second".to_owned()).unwrap();
    assert_eq!(builder.push_result("1", "third".to_owned()), Err(OrphanedResult));
    builder.push_call("1", "look", "{}");
    builder.push_call("2", "smell", "");
    builder.push_reply(String::new());
    builder.push_call("1", "look", "{\"n\":3}");
    builder.push_result("1", "last".to_owned()).unwrap();
    builder.push_result("2", "late".to_owned()).unwrap();
    assert_eq!(builder.push_result("1", "no more".to_owned()), Err(OrphanedResult));
    let (prompt, history) = turn_of(builder);
    assert_eq!(prompt, GO_ON);
    let calls = |index: usize| history[index]["tool_calls"].clone();
    assert_eq!(history[1]["content"], "I look.");
    assert_eq!(
        calls(1),
        json!([
            {"name": "look", "arguments": "{}", "result": "first"},
            {"name": "look", "arguments": "{\"n\":2}", "result": "second"},
        ])
    );
    let unanswered = json!({"name": "look", "arguments": "{}"});
    assert_eq!(calls(2), json!([unanswered, {"name": "smell", "arguments": "", "result": "late"}]));
    assert_eq!(calls(3), json!([{"name": "look", "arguments": "{\"n\":3}", "result": "last"}]));
}

#[test]
fn instructions_stand_where_they_hold() {
    let mut builder = HistoryBuilder::default();
    builder.push_instructions("Be brief.".to_owned());
    builder.push_user("Hi".into());
    builder.push_reply("Hello".to_owned());
    builder.push_instructions("The shell says 4.".to_owned());
    builder.push_reply("It is 4.".to_owned());
    builder.push_user("And now?".into());
    builder.push_instructions("Be kind.".to_owned());
    let (prompt, history) = turn_of(builder);
    assert_eq!(prompt, "Instructions of the application:\nBe kind.\n\nMessage of the user:\nAnd now?");
    let first = "Instructions of the application:\nBe brief.\n\nMessage of the user:\nHi";
    let between = "Instruction of the application:\nThe shell says 4.";
    let reply = |text: &str| json!({"role": "assistant", "content": text});
    assert_eq!(history, json!([user(first), reply("Hello"), user(between), reply("It is 4.")]));
}

#[test]
fn turn_that_ends_with_no_message_of_the_user_has_a_prompt() {
    let mut builder = HistoryBuilder::default();
    builder.push_user("Hi".into());
    builder.push_reply("One, two".to_owned());
    assert_eq!(turn_of(builder).0, GO_ON);

    let mut builder = HistoryBuilder::default();
    builder.push_user("Hi".into());
    builder.push_reply("I run it.".to_owned());
    builder.push_instructions("It says 4.".to_owned());
    let (prompt, history) = turn_of(builder);
    assert_eq!(
        (prompt.as_str(), history.as_array().unwrap().len()),
        ("Instruction of the application:\nIt says 4.", 2)
    );

    let mut builder = HistoryBuilder::default();
    builder.push_instructions("Write a poem.".to_owned());
    assert_eq!(turn_of(builder).0, "Instruction of the application:\nWrite a poem.");

    let mut builder = HistoryBuilder::default();
    builder.push_user("Hi".into());
    builder.push_reply("  ".to_owned());
    assert_eq!(turn_of(builder), ("Hi".to_owned(), json!([])));
    assert_eq!(HistoryBuilder::default().into_turn(), None);
}

#[test]
fn history_without_a_turn_keeps_all_instructions() {
    let mut builder = HistoryBuilder::default();
    builder.push_instructions("Be brief.".to_owned());
    builder.push_reply("Hello".to_owned());
    builder.push_instructions("Be kind.".to_owned());
    let texts = ["Instruction of the application:\nBe brief.", "Hello", "Instruction of the application:\nBe kind."];
    let found = json!(builder.into_history());
    let found: Vec<&str> = found.as_array().unwrap().iter().filter_map(|message| message["content"].as_str()).collect();
    assert_eq!(found, texts);
}
