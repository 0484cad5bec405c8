//! Events that the fake loop commits, and that tests put into logs.

use contract::command::{Answer, Refusal, Verb};
use contract::event::{
    AiFullReceived, ClientCallOpened, EndReason, ErrorEvent, Event, GateClosed, GateKind, GateOpened, InputHandled,
    InputIgnored, InputKind, InputRef, SessionEnded, SessionStarted, Spent, StopReason, ToolCallIdentified,
    TurnCompleted, TurnStarted, UserProcessed,
};
use contract::model::{Content, FinishReason, Streaming, ToolCall, Usage};
use contract::settings::{AgentSettings, ContinuationSettings, ModelSettings, ToolFilter};
use contract::{AgentId, CommandId, ErrorCode, Json, Timestamp};

pub(crate) fn session_started(agent: &str) -> Event {
    let agent = AgentSettings {
        id: AgentId::new(agent).unwrap(),
        name: "Alice".to_owned(),
        continuation: ContinuationSettings::default(),
        tools: ToolFilter::default(),
        approvals: Vec::new(),
    };
    Event::SessionStarted(Box::new(SessionStarted {
        parent: None,
        resume_from: None,
        fallbacks: Vec::new(),
        features: contract::command::Features::default(),
        overrides: None,
        only_tools: None,
        client_tools: Vec::new(),
        agent,
        model: ModelSettings { id: "rehearsal".to_owned(), ..ModelSettings::default() },
        interactive: true,
        prompt: "You are Alice.".to_owned(),
        fingerprint: "0".repeat(64),
        messages: Vec::new(),
        parameters: serde_json::Map::new(),
        tool_choice: Vec::new(),
        ai_config: contract::AiConfig::default(),
        streaming: Streaming::default(),
        own_streaming: None,
    }))
}

/// A tool result that was refused since its session had not started.
pub(crate) fn ignored_result(id: &str) -> Event {
    Event::InputIgnored(InputIgnored {
        parent: None,
        parent_command_number: None,
        input: InputRef { kind: InputKind::Control(Verb::ProvideToolResult), id: CommandId::new(id).unwrap() },
        control_seq: None,
        control_at: None,
        refusal: Refusal { code: ErrorCode::UnknownSession, message: "no such session".to_owned() },
        usage: None,
        call: None,
        late: None,
    })
}

pub(crate) fn user_message(id: &str, text: &str) -> Event {
    Event::UserProcessed(UserProcessed {
        message_id: CommandId::new(id).unwrap(),
        content: Content::from(text),
        mode: contract::command::MessageMode::Steer,
        client_tools: None,
    })
}

pub(crate) fn session_ended() -> Event {
    Event::SessionEnded(SessionEnded {
        reason: EndReason::Stopped,
        stop_reason: None,
        status: None,
        final_response: String::new(),
        iterations: 0,
        spent: Spent::default(),
        spent_own: Some(Spent::default()),
        by: None,
        note: None,
    })
}

pub(crate) fn turn_started(turn: u32, message: &str) -> Event {
    let messages = vec![CommandId::new(message).unwrap()];
    Event::TurnStarted(TurnStarted { turn, traceparent: None, messages, premature: false })
}

/// The events of a turn that answers with a text, or fails if there is none.
pub(crate) fn turn_with_reply(turn: u32, text: &str) -> Vec<Event> {
    let spent = Spent { usage: Usage { input: 7, output: 3, ..Usage::default() }, cost_usd: 0.0 };
    let completed = |stop_reason| {
        let final_response = text.to_owned();
        Event::TurnCompleted(TurnCompleted {
            turn,
            stop_reason,
            status: None,
            iterations: 1,
            final_response,
            spent,
            spent_own: Some(spent),
            by: None,
            note: None,
        })
    };
    if text.is_empty() {
        let error = ErrorEvent {
            code: ErrorCode::ModelOverloaded,
            message: "the model is overloaded".to_owned(),
            retryable: true,
            during: "model".to_owned(),
        };
        return vec![Event::Error(error), completed(StopReason::Error)];
    }
    vec![ai_full_received(turn, text, Vec::new()), completed(StopReason::Completed)]
}

/// The events of a turn that waits for the client.
pub(super) fn reply_with_calls(turn: u32) -> Vec<Event> {
    let call = ToolCall::new("c1-1-1", "weather", "{\"city\":\"Bonn\"}");
    let waiting = ClientCallOpened {
        call: contract::CallId::new("c1-1-1").unwrap(),
        tool: contract::ToolName::new("weather").unwrap(),
        arguments: Json::parse("{\"city\":\"Bonn\"}").unwrap(),
        effect: contract::tool::EffectClass::AtMostOnce,
        max_output: 1_024,
        deadline: Timestamp::from_millis(2_000_000_000_000),
    };
    let identified = ToolCallIdentified {
        call: waiting.call.clone(),
        tool: waiting.tool.clone(),
        arguments: waiting.arguments.clone(),
        effect: waiting.effect,
        approval: contract::tool::ApprovalPolicy::Never,
        timeout_ms: 1_000,
        max_output: waiting.max_output,
        performer: contract::client_tool::Performer::Client,
    };
    let reply = ai_full_received(turn, "Let me look.", vec![call]);
    vec![reply, Event::ToolCallIdentified(identified), Event::ClientCallOpened(waiting)]
}

pub(super) fn turn_cancelled(turn: u32) -> Event {
    Event::TurnCompleted(TurnCompleted {
        turn,
        stop_reason: StopReason::Stopped,
        status: None,
        iterations: 1,
        final_response: String::new(),
        spent: Spent::default(),
        spent_own: Some(Spent::default()),
        by: None,
        note: None,
    })
}

/// The events of a turn that waits for a person: at a limit, or about a call of the tool `command`.
pub(super) fn ask(turn: u32, kind: GateKind) -> Vec<Event> {
    let is_limit = matches!(kind, GateKind::Limit(_));
    let arguments = Json::parse("{\"question\":\"Which city?\"}").unwrap();
    let gate = if is_limit { format!("g{turn}") } else { "c1-1-1".to_owned() };
    let opened = GateOpened {
        gate: contract::CallId::new(&gate).unwrap(),
        kind,
        arguments_sha256: if is_limit { String::new() } else { contract::tool::arguments_sha256(&arguments) },
        expires: Timestamp::from_millis(2_000_000_000_000),
        tool: contract::ToolName::new("command").ok().filter(|_| !is_limit),
        arguments: Some(arguments).filter(|_| !is_limit),
        on_expiry: contract::settings::OnExpiry::Deny,
    };
    let reply = is_limit.then(|| ai_full_received(turn, "This costs a lot.", Vec::new()));
    reply.into_iter().chain([Event::GateOpened(opened)]).collect()
}

pub(super) fn gate_closed(answer: &Answer) -> Event {
    Event::GateClosed(GateClosed {
        gate: answer.gate.clone(),
        decision: answer.decision,
        by: Some("client".to_owned()),
        arguments: None,
        arguments_sha256: None,
        note: answer.note.clone(),
    })
}

pub(super) fn ai_full_received(turn: u32, text: &str, tool_calls: Vec<ToolCall>) -> Event {
    let spent = Spent { usage: Usage { input: 7, output: 3, ..Usage::default() }, cost_usd: 0.0 };
    Event::AiFullReceived(Box::new(AiFullReceived {
        call: contract::CallId::new("c1-1").unwrap(),
        turn,
        step: 1,
        text: text.to_owned(),
        raw: None,
        reasoning: String::new(),
        tool_calls,
        finish_reason: FinishReason::Stop,
        raw_finish_reason: String::new(),
        spent,
        provider: String::new(),
        model: String::new(),
        latency_ms: 1,
        replay: None,
    }))
}

/// The event that says how an input was handled.
pub(super) fn closing(input: InputRef, control_seq: Option<u64>, refused: Option<Refusal>) -> Event {
    match refused {
        None => Event::InputHandled(InputHandled { parent_command_number: None, input, control_seq, control_at: None }),
        Some(refusal) => Event::InputIgnored(InputIgnored {
            parent: None,
            parent_command_number: None,
            input,
            control_seq,
            control_at: None,
            refusal,
            usage: None,
            call: None,
            late: None,
        }),
    }
}
