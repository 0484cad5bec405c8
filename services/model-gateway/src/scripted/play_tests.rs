//! Plays scripts over transcripts, also the shipped rehearsal to its end.

use configuration::TextFile;
use contract::model::{Content, ItemMeta, Message, Streaming, ToolCall};
use contract::{CallId, Json};

use super::*;
use crate::reply::ModelReply;

const REHEARSAL: &str = include_str!("../../../../config/scripts/rehearsal.yaml");
const FILE_TOOLS: &[&str] = &["list_files", "read_file", "search_text", "write_file", SIGNAL_TOOL];

fn player(text: &str) -> ScriptPlayer {
    let file = TextFile { origin: "script.yaml".to_owned(), text: text.to_owned() };
    ScriptPlayer::new(Script::parse(&file).unwrap())
}

/// A session that plays a script as the orchestrator does.
struct Session {
    item: ModelItem,
}

impl Session {
    fn new(tools: &[&str]) -> Self {
        let tool = |name: &&str| Json::of(&json!({"name": name, "description": "", "parameters": {}}));
        let meta = ItemMeta {
            v: 1,
            slot: 1,
            turn: 0,
            step: 0,
            call: CallId::model(1, 1),
            attempt: 1,
            deadline: contract::Timestamp::default(),
            agent: "a".to_owned(),
        };
        let item = ModelItem {
            response_format: None,
            meta,
            model: "rehearsal".to_owned(),
            messages: vec![Json::of(&Message::System { content: "system".to_owned() })],
            after: None,
            tools: tools.iter().map(tool).collect(),
            parallel_tool_calls: true,
            parameters: Map::new(),
            streaming: Streaming::default(),
            signal: contract::model::SignalForm::Text,
            opened_by: String::new(),
        };
        Self { item }
    }

    fn add_user_message(&mut self, text: &str) {
        self.item.meta.turn += 1;
        self.item.meta.step = 0;
        self.push(&Message::User { content: Content::from(text) });
    }

    fn push(&mut self, message: &Message) {
        self.item.messages.push(Json::of(message));
    }

    /// Plays one step. Returns the reply, and the status of its signal if it has one.
    fn run_step(&mut self, player: &ScriptPlayer, tool: impl Fn(&ToolCall) -> String) -> (ModelReply, Option<String>) {
        self.item.meta.step += 1;
        let mut reply = ModelReply::default();
        for delta in player.build_reply(&self.item).unwrap().0 {
            reply.add(&delta).unwrap();
        }
        let mut status = None;
        let calls: Vec<ToolCall> = (1..)
            .zip(reply.calls())
            .map(|(n, call)| {
                let id = CallId::tool(self.item.meta.turn, self.item.meta.step, n);
                ToolCall::new(id.as_str(), &call.function.name, &call.function.arguments)
            })
            .collect();
        let (content, reasoning) = (reply.text.clone(), String::new());
        self.push(&Message::Assistant { content, reasoning, tool_calls: calls.clone(), replay: None });
        for call in &calls {
            let arguments: Value = serde_json::from_str(&call.function.arguments).unwrap();
            let content = if call.function.name == SIGNAL_TOOL {
                status = Some(arguments["status"].as_str().unwrap().to_owned());
                "noted".to_owned()
            } else {
                tool(call)
            };
            self.push(&Message::Tool { tool_call_id: call.id.clone(), content });
        }
        if calls.iter().all(|call| call.function.name == SIGNAL_TOOL) && status.as_deref() == Some("CONTINUE") {
            self.push(&Message::User { content: Content::from("Go on: the report.") });
        }
        (reply, status)
    }

    /// Plays a turn: returns its replies up to the first one without tool calls that does not continue.
    fn run_turn(&mut self, player: &ScriptPlayer, tool: impl Fn(&ToolCall) -> String) -> Vec<ModelReply> {
        let mut replies = Vec::new();
        for _ in 0..10 {
            let (reply, status) = self.run_step(player, &tool);
            let done = tool_names(&reply).is_empty() && status.as_deref() != Some("CONTINUE");
            replies.push(reply);
            if done {
                return replies;
            }
        }
        panic!("the turn does not end: {replies:?}");
    }
}

/// Names of the called tools, without the signal.
fn tool_names(reply: &ModelReply) -> Vec<String> {
    reply.calls().into_iter().map(|call| call.function.name).filter(|name| name != SIGNAL_TOOL).collect()
}

fn file_tools(call: &ToolCall) -> String {
    let arguments: Value = serde_json::from_str(&call.function.arguments).unwrap();
    let path = &arguments["path"];
    match call.function.name.as_str() {
        "list_files" => json!({"root": "demo", "files": [
            {"path": "README.md", "bytes": 120}, {"path": "logo.png", "bytes": 90_000}, {"path": "src/a.rs", "bytes": 500},
            {"path": "src/b.rs", "bytes": 700}, {"path": "src/c.rs", "bytes": 300}, {"path": "src/d \"q\".rs", "bytes": 600},
            {"path": "Makefile", "bytes": 10}],
            "total": 7, "total_bytes": 92_230, "by_extension": {"": 1, "md": 1, "png": 1, "rs": 4}, "truncated": false}),
        "read_file" => json!({"path": path, "lines": 7, "bytes": 120, "content": "\n# Hello\nworld\n", "truncated": false}),
        "search_text" => json!({"pattern": arguments["pattern"], "matches": [
            {"path": "src/a.rs", "line": 3, "text": "    // TODO: this"}], "total": 1, "files": 1, "truncated": false}),
        "write_file" => json!({"path": "survey.md", "bytes": arguments["content"].as_str().unwrap().len()}),
        other => panic!("no such tool: {other}"),
    }
    .to_string()
}

#[test]
fn rehearsal_with_file_tools_surveys_a_directory() {
    let player = player(REHEARSAL);
    let mut session = Session::new(FILE_TOOLS);
    session.add_user_message("What is this?");
    let replies = session.run_turn(&player, file_tools);
    let calls: Vec<Vec<String>> = replies.iter().map(tool_names).collect();
    let (read, search) = ("read_file".to_owned(), "search_text".to_owned());
    assert_eq!(
        calls,
        [
            vec!["list_files".to_owned()],
            vec![read.clone(), read.clone(), read.clone(), read, search.clone(), search],
            vec![],
            vec!["write_file".to_owned()],
            vec![]
        ]
    );
    let read: Vec<Value> = replies[1].calls()[..4]
        .iter()
        .map(|call| serde_json::from_str::<Value>(&call.function.arguments).unwrap()["path"].clone())
        .collect();
    assert_eq!(read, ["README.md", "src/b.rs", "src/d \"q\".rs", "src/a.rs"]);
    assert!(replies[0].text.contains("scripted rehearsal"));
    assert!(replies[2].text.contains("- 7 files, 92230 bytes, 4 kinds"), "{}", replies[2].text);
    assert!(replies[2].text.contains("`README.md`: 7 lines, 120 bytes"), "{}", replies[2].text);
    assert!(replies[2].text.contains("`TODO|FIXME`: 1 matches in 1 files"), "{}", replies[2].text);
    let report: Value = serde_json::from_str(&replies[3].calls()[0].function.arguments).unwrap();
    let report = report["content"].as_str().unwrap();
    for line in [
        "# Survey of `demo`",
        "7 files, 92230 bytes.",
        "| rs | 4 | 2100 |",
        "| (none) | 1 | 10 |",
        "| `logo.png` | 90000 |",
        "- `README.md`: 7 lines, 120 bytes; it begins with “# Hello”",
        "- `src/a.rs:3` // TODO: this",
    ] {
        assert!(report.lines().any(|l| l == line), "{line:?} is not in\n{report}");
    }
    assert!(!report.contains("\n\n\n"), "{report}");
    let end = &replies[4].text;
    assert!(end.contains("I wrote `survey.md`") && end.contains("7 files with 92230 bytes"), "{end}");
    assert!(end.contains("I read\n4 of them and found 1 matches of `TODO|FIXME`"), "{end}");

    session.add_user_message("And now?");
    let replies = session.run_turn(&player, |_| panic!("no tool is called in a later turn"));
    assert_eq!(replies.len(), 1);
    assert!(replies[0].text.starts_with("You wrote: And now?") && replies[0].text.contains("8\ntool results"));
}

#[test]
fn rehearsal_with_missing_or_failing_tools_ends_with_an_explanation() {
    let player = player(REHEARSAL);
    let run = |tools: &[&str], tool: &dyn Fn(&ToolCall) -> String| {
        let mut session = Session::new(tools);
        session.add_user_message("Survey!");
        session.run_turn(&player, tool)
    };
    let last = |replies: &[ModelReply]| replies.last().unwrap().text.clone();

    let plain = run(&[], &|_| unreachable!());
    assert!(plain.len() == 1 && plain[0].text.contains("no tools") && plain[0].text.contains("config/models.yaml"));
    // Without the pseudo-tool, the signal is at the end of the text.
    assert!(plain[0].text.ends_with("```") && plain[0].text.contains(r#""status":"TERMINATE""#), "{}", plain[0].text);

    let blind = run(&["read_file", SIGNAL_TOOL], &|_| unreachable!());
    assert!(blind.len() == 1 && blind[0].text.contains("list_files is not"));

    let nobody = run(FILE_TOOLS, &|_| "error no_tool_available: nobody serves list_files".to_owned());
    assert!(nobody.len() == 2 && last(&nobody).contains("no_tool_available"), "{nobody:?}");

    let empty = |_: &ToolCall| {
        json!({"root": "d", "files": [], "total": 0, "total_bytes": 0, "by_extension": {}, "truncated": false})
            .to_string()
    };
    let empty = run(FILE_TOOLS, &empty);
    assert!(empty.len() == 2 && last(&empty).contains("empty"));

    let refused = run(FILE_TOOLS, &|call| match call.function.name.as_str() {
        "write_file" => "denied: not today".to_owned(),
        "read_file" => "error tool_error: not UTF-8".to_owned(),
        _ => file_tools(call),
    });
    assert!(refused.len() == 5 && last(&refused).contains("could not be written: denied: not today"), "{refused:?}");
    assert!(last(&refused).contains("I read\n0 of them"), "{}", last(&refused));
    assert!(refused[2].text.contains("read_file did not work: error tool_error: not UTF-8"));

    let reader = run(&["list_files", SIGNAL_TOOL], &file_tools);
    assert!(last(&reader).contains("write_file is not"), "{reader:?}");

    let cut = run(FILE_TOOLS, &|call| match call.function.name.as_str() {
        "read_file" | "search_text" => "{\"path\": \"cut in the mid".to_owned(),
        _ => file_tools(call),
    });
    assert_eq!(cut.len(), 5, "{cut:?}");
}

#[test]
fn steps_with_position_and_condition_first_match_is_played() {
    let player = player(
        "steps:
          - {at: 2, text: second}
          - {when: \"prompt == 'x'\", text: 'x of {{ model }}', reasoning: 'hm {{ step }}'}
          - tool_calls:
              - {name: f, for_each: '[1, 2]', as: n, when: n > 1, arguments: '{\"n\": {{ n }}}'}
              - {name: g, arguments: {a: ['{{ turn }}', 2], b: true}}",
    );
    let mut session = Session::new(&[]);
    session.add_user_message("x");
    let (first, _) = session.run_step(&player, |_| unreachable!());
    assert_eq!((first.text.as_str(), first.reasoning.as_str()), ("x of rehearsal", "hm 1"));
    assert_eq!(session.run_step(&player, |_| unreachable!()).0.text, "second");
    session.add_user_message("y");
    let (calls, _) = session.run_step(&player, |_| "ok".to_owned());
    let calls: Vec<_> = calls.calls().into_iter().map(|call| (call.function.name, call.function.arguments)).collect();
    let pair = |name: &str, arguments: &str| (name.to_owned(), arguments.to_owned());
    assert_eq!(calls, [pair("f", "{\"n\": 2}"), pair("g", "{\"a\":[\"2\",2],\"b\":true}")]);
}

#[test]
fn script_with_a_mistake_fails_at_parse_or_names_its_step() {
    for text in [
        "steps: [{text: '{{ oops'}]",
        "steps: [{when: 'a b'}]",
        "steps: [{txt: x}]",
        "steps: [{tool_calls: [{name: f, arguments: {a: '{% if %}'}}]}]",
    ] {
        let file = TextFile { origin: "script.yaml".to_owned(), text: text.to_owned() };
        assert!(Script::parse(&file).is_err(), "{text}");
    }
    let mut session = Session::new(&[]);
    session.add_user_message("x");
    session.item.meta.step = 1;
    for (text, part) in [("steps: []", "no step"), ("steps: [{name: s, text: '{{ 1 | nothing }}'}]", "step \"s\"")] {
        let failure = player(text).build_reply(&session.item).unwrap_err();
        assert_eq!(failure.kind, FailureKind::BadRequest);
        assert!(failure.message.contains(part), "{}", failure.message);
    }
}

#[tokio::test(start_paused = true)]
async fn reply_with_a_delay_streams_word_by_word() {
    let player = player("delay_ms: 8\nsteps: [{text: 'one two  three'}]");
    let mut session = Session::new(&[]);
    session.add_user_message("x");
    session.item.meta.step = 1;
    let (send, mut receiver) = mpsc::channel(1);
    let began = tokio::time::Instant::now();
    let (ended, deltas) = tokio::join!(
        async {
            let send = send;
            player.play(&session.item, &send).await
        },
        async {
            let mut deltas = Vec::new();
            while let Some(more) = receiver.recv().await {
                deltas.extend(more);
            }
            deltas
        }
    );
    ended.unwrap();
    let words: Vec<Delta> = ["one ", "two ", " ", "three"].map(|word| Delta::Text(word.to_owned())).into();
    assert_eq!(deltas[1..5], words);
    assert_eq!(began.elapsed(), Duration::from_millis(32));
}
