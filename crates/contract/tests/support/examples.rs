//! One real value of each message, serialised: what the protocol page shows.

use contract::client_tool::{AnswerToolCall, ClientOutcome, ClientTool};
use contract::command::{Command, CommandAck, CommandMeta, Features, MessageMode, SendUserMessage, Start, Verb};
use contract::commit::{Commit, CommitMeta, FOLD, Phase, VERSION};
use contract::compose::{AgentsReply, ComposeRequest, KnownAgent, KnownModel};
use contract::event::{Event, InputHandled, InputKind, InputRef, ModelCallOpened, Topic, TurnStarted, UserProcessed};
use contract::mail::{Answered, ClosedMail, Mail, MailEntry};
use contract::model::{
    Channel, Chunk, Content, FailureKind, FinishReason, ItemMeta, Message, ModelFailed, ModelFinished, ModelItem,
    ReplySnapshot, ResultMeta, Streaming, ToolCall, ToolDefinition, Usage,
};
use contract::settings::{ModelSettings, ToolFilter};
use contract::subject::SessionKey;
use contract::tool::{ApprovalPolicy, EffectClass, Outcome, ToolItem, ToolResult, ToolSpec};
use contract::{AgentId, CallId, CommandId, Json, MailId, SessionId, TenantId, Timestamp, ToolName};
use serde::Serialize;
use serde_json::json;

/// Compares every example of a page with what the code writes, or writes it.
pub(crate) fn check(name: &str) {
    let text = super::page(name);
    let mut written = text.clone();
    for (example, value) in all() {
        let marker = format!("<!-- example: {example} -->\n```json\n");
        let at = written.find(&marker).unwrap_or_else(|| panic!("{name} has no example {example}")) + marker.len();
        let end = at + written[at..].find("\n```").unwrap();
        written.replace_range(at..end, &value);
    }
    if std::env::var_os("UPDATE_PAGES").is_some() {
        std::fs::write(super::root().join(name), &written).unwrap();
    } else {
        assert_eq!(text, written, "UPDATE_PAGES=1 writes {name} anew");
    }
    let shown = text.matches("<!-- example: ").count();
    assert_eq!(shown, all().len(), "{name} has an example that nobody writes");
}

fn all() -> Vec<(&'static str, String)> {
    vec![
        ("start", pretty(&command(start()))),
        ("send_user_message", pretty(&command(send()))),
        ("done", pretty(&done())),
        ("commit", pretty(&commit())),
        ("event", pretty(&commit().envelopes(&key(), 0)[0].1)),
        ("chunk", pretty(&chunk())),
        ("view", pretty(&view())),
        ("model_item", pretty(&model_item())),
        ("model_finished", pretty(&model_finished())),
        ("model_failed", pretty(&model_failed())),
        ("tool_item", pretty(&tool_item())),
        ("provide_tool_result", pretty(&tool_result())),
        ("tool", pretty(&tool_spec())),
        ("client_tool", pretty(&vec![client_tool()])),
        ("answer_tool_call", pretty(&command(answer_tool_call()))),
        ("mail", pretty(&MailEntry::Open(mail()))),
        ("closed_mail", pretty(&MailEntry::Closed(closed_mail()))),
        ("compose", pretty(&compose())),
        ("agents", pretty(&agents())),
    ]
}

fn pretty<T: Serialize>(value: &T) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

fn at() -> Timestamp {
    Timestamp::parse("2026-01-15T10:30:45.123Z").unwrap()
}

fn later() -> Timestamp {
    Timestamp::parse("2026-01-15T10:35:45.123Z").unwrap()
}

fn id(text: &str) -> CommandId {
    CommandId::new(text).unwrap()
}

fn key() -> SessionKey {
    SessionKey { tenant: TenantId::default(), session: SessionId::new("s1").unwrap() }
}

fn command<T>(body: T) -> Command<T> {
    let meta = CommandMeta { by: Some("client".to_owned()), edge: Some(id("edge-1")), ..CommandMeta::new(at()) };
    Command { meta, body }
}

fn start() -> Start {
    Start {
        agent: Some(AgentId::new("e").unwrap()),
        prompt: Some(Content::from("How many files are there?")),
        ..Start::default()
    }
}

fn send() -> SendUserMessage {
    SendUserMessage::new(Content::from("Only the Rust ones."), MessageMode::Steer)
}

fn client_tool() -> ClientTool {
    ClientTool {
        name: ToolName::new("read_selection").unwrap(),
        description: "Returns the text that the user has selected in the editor.".to_owned(),
        parameters: Json::of(&json!({"type": "object", "properties": {"trim": {"type": "boolean"}}})),
        effect: EffectClass::Pure,
        timeout_ms: Some(60_000),
        max_output: None,
    }
}

fn answer_tool_call() -> AnswerToolCall {
    AnswerToolCall { call: CallId::tool(1, 1, 1), outcome: ClientOutcome::Ok, content: "fn main() {}".to_owned() }
}

fn done() -> CommandAck {
    let SessionKey { tenant, session } = key();
    CommandAck { verb: Verb::Start, id: id("start-1"), tenant, session, slot: 0, seq: 2, turn: Some(1), refused: None }
}

fn commit() -> Commit {
    let input = InputRef { kind: InputKind::Control(Verb::SendUserMessage), id: id("message-1") };
    let meta = CommitMeta {
        v: VERSION,
        commit: "01a201438d7f74d1a20c1bf436e3ad22".to_owned(),
        fold: FOLD,
        phase: Phase::Running,
        open: vec!["m1-1.1".to_owned()],
        control_seq: 17,
        prev: "01a201438d5c7a71b4f2a77a0f5d1e90".to_owned(),
        timers: 1,
        seq: 2,
        time: at(),
        trace_id: String::new(),
        archived: None,
        log_start: None,
        moved: None,
    };
    let message = UserProcessed {
        message_id: input.id.clone(),
        content: Content::from("Hello"),
        mode: MessageMode::Steer,
        client_tools: None,
    };
    let turn = TurnStarted { premature: false, turn: 1, traceparent: None, messages: vec![input.id.clone()] };
    let call = ModelCallOpened { call: CallId::model(1, 1), attempt: 1, turn: 1, step: 1, deadline: later() };
    Commit {
        meta,
        snapshot: None,
        transcript: None,
        events: vec![
            Event::InputHandled(InputHandled {
                parent_command_number: None,
                input,
                control_seq: Some(17),
                control_at: Some(at()),
            }),
            Event::UserProcessed(message),
            Event::TurnStarted(turn),
            Event::ModelCallOpened(call),
        ],
    }
}

fn chunk() -> contract::event::Envelope {
    let chunk = Chunk {
        turn: 1,
        step: 1,
        attempt: "1.1".to_owned(),
        index: 0,
        channel: Channel::Text,
        delta: "There are ".to_owned(),
        last: false,
        finish_reason: None,
    };
    assert_eq!(Topic::AiChunkReceived.as_str(), "message.ai_chunk_received");
    let mut envelope = commit().envelopes(&key(), 0)[0].1.clone();
    "s1-m1-1-1.1-0".clone_into(&mut envelope.id);
    envelope.seq = None;
    envelope.data = Json::of(&chunk);
    envelope
}

fn view() -> ReplySnapshot {
    ReplySnapshot { turn: 1, step: 1, attempt: "1.1".to_owned(), index: 3, text: "There are 12 Rust".to_owned() }
}

fn item_meta(call: CallId) -> ItemMeta {
    ItemMeta { v: VERSION, slot: 0, turn: 1, step: 1, call, attempt: 1, deadline: later(), agent: "e".to_owned() }
}

/// The id of the commit that opened the call of an item.
const OPENED_BY: &str = "01a201438d7f74d1a20c1bf436e3ad22";

fn result_meta(call: CallId) -> ResultMeta {
    ResultMeta { v: VERSION, slot: 0, call, attempt: 1, opened_by: OPENED_BY.to_owned() }
}

fn schema() -> Json {
    Json::of(&json!({"type": "object", "properties": {"path": {"type": "string"}}}))
}

fn model_item() -> ModelItem {
    let list = ToolDefinition {
        name: "list_files".to_owned(),
        description: "Lists the files below a directory.".to_owned(),
        parameters: schema(),
    };
    let result = Message::Tool { tool_call_id: "c1-1-1".to_owned(), content: "{\"total\":12}".to_owned() };
    let asked = Message::Assistant {
        content: "I look.".to_owned(),
        reasoning: String::new(),
        tool_calls: vec![ToolCall::new("c1-1-1", "list_files", "{\"path\":\".\"}")],
        replay: None,
    };
    let messages = [
        Message::System { content: "You are …".to_owned() },
        Message::User { content: Content::from("How many files are there?") },
        asked,
        result,
    ];
    ModelItem {
        signal: contract::model::SignalForm::Text,
        opened_by: OPENED_BY.to_owned(),
        response_format: None,
        meta: ItemMeta { slot: 2, step: 2, ..item_meta(CallId::model(1, 2)) },
        model: "gpt-4o-mini".to_owned(),
        messages: messages.iter().map(Json::of).collect(),
        after: None,
        tools: vec![Json::of(&list)],
        parallel_tool_calls: true,
        parameters: serde_json::Map::new(),
        streaming: Streaming::default(),
    }
}

fn model_finished() -> ModelFinished {
    ModelFinished {
        meta: result_meta(CallId::model(1, 1)),
        text: "I look.".to_owned(),
        reasoning: String::new(),
        tool_calls: vec![ToolCall::new("call_9xTq", "list_files", "{\"path\":\".\"}")],
        finish_reason: FinishReason::ToolCalls,
        raw_finish_reason: "tool_calls".to_owned(),
        usage: Usage { input: 812, output: 21, cached: 0, reasoning: 0 },
        cost_usd: 0.000_134,
        provider: "openai".to_owned(),
        model: "gpt-4o-mini-2024-07-18".to_owned(),
        latency_ms: 640,
        replay: None,
        run: String::new(),
    }
}

fn model_failed() -> ModelFailed {
    ModelFailed {
        meta: result_meta(CallId::model(1, 1)),
        kind: FailureKind::RateLimited,
        retry_after_ms: Some(2_000),
        message: "openai: 429 Too Many Requests".to_owned(),
        text: String::new(),
        usage: Usage::default(),
        cost_usd: 0.0,
        run: String::new(),
    }
}

fn tool_item() -> ToolItem {
    ToolItem {
        meta: item_meta(CallId::tool(1, 1, 1)),
        tool: ToolName::new("list_files").unwrap(),
        arguments: Json::of(&json!({"path": "."})),
        effect: EffectClass::Pure,
        max_output: 65_536,
        timeout_ms: 30_000,
        session_started: Some(Timestamp::from_millis(1_790_000_000_000)),
        opened_by: OPENED_BY.to_owned(),
        opened_at: Some(at()),
    }
}

fn tool_result() -> ToolResult {
    ToolResult {
        whole: None,
        used: None,
        meta: result_meta(CallId::tool(1, 1, 1)),
        outcome: Outcome::Ok,
        content: "{\"total\":12}".to_owned(),
        code: None,
        duration_ms: 28,
    }
}

fn tool_spec() -> ToolSpec {
    ToolSpec {
        name: ToolName::new("list_files").unwrap(),
        description: "Lists the files below a directory.".to_owned(),
        parameters: schema(),
        effect: EffectClass::Pure,
        approval: ApprovalPolicy::Never,
        timeout_ms: Some(30_000),
        max_output: None,
        instructions: None,
        version: "1.0.0".to_owned(),
    }
}

fn compose() -> ComposeRequest {
    let features = Features { enable: vec!["mailbox".to_owned()], disable: Vec::new() };
    ComposeRequest {
        agent: Some(AgentId::new("e").unwrap()),
        features: features.clone(),
        named_features: features,
        ..ComposeRequest::new(TenantId::default())
    }
}

fn agent(id: &str) -> AgentId {
    AgentId::new(id).unwrap()
}

fn mail() -> Mail {
    let (subject, excerpt) = ("The migration plan".to_owned(), "Please carry out plans/migration.md …".to_owned());
    let asked = MailId::sent_by("s1-c1-1-1");
    Mail {
        v: VERSION,
        call: "s2-c1-4-1".to_owned(),
        from: agent("e"),
        subject: format!("Re: {subject}"),
        text: "Steps 1 to 4 are done; step 5 needs a date.".to_owned(),
        sent: at(),
        answers: Some(Answered { id: asked, subject, excerpt }),
    }
}

fn closed_mail() -> ClosedMail {
    let Mail { v, call: sent_by, from, .. } = mail();
    ClosedMail { v, sent_by, closed_by: "s3-c1-2-1".to_owned(), from, at: later() }
}

fn agents() -> AgentsReply {
    let tools = ToolFilter { allow: vec!["check_mail".to_owned(), "send_mail".to_owned()], deny: Vec::new() };
    let name = "Eamonn the Executioner".to_owned();
    let aliases = vec![agent("eamonn")];
    let agent =
        KnownAgent { id: agent("e"), name, aliases, tools, model: Some("rehearsal".to_owned()), is_default: true };
    let settings = ModelSettings { id: "rehearsal".to_owned(), multi_tool: true, ..ModelSettings::default() };
    let model = KnownModel {
        settings,
        provider: "rehearsal".to_owned(),
        is_default: true,
        upstream: "rehearsal-1".to_owned(),
        requests_per_minute: Some(60),
        tokens_per_minute: None,
    };
    AgentsReply { agents: vec![agent], models: vec![model] }
}
