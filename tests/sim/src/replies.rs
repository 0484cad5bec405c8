//! Replies of the simulated models: good, bad and odd ones, and failures.

use contract::model::{FailureKind, FinishReason, ModelFailed, ModelFinished, ResultMeta, ToolCall, Usage};

use crate::rng::Rng;

/// The tools of the world: pure, idempotent, at most once, one that needs an approval, and the built-in ones of the
/// loop.
pub const TOOLS: &[&str] = &["look", "put", "pay", "launch", "delegate", "ask_user"];

/// The tool that clients of the world bring.
pub const CLIENT_TOOL: &str = "click";

/// The result of a model call.
#[derive(Debug, Clone)]
pub enum ModelAnswer {
    /// The provider sent a reply, good or bad.
    Finished(Box<ModelFinished>),
    /// The provider or the network failed.
    Failed(ModelFailed),
}

/// An empty reply with a usage and a cost.
pub fn blank(meta: ResultMeta) -> ModelFinished {
    ModelFinished {
        meta,
        text: String::new(),
        reasoning: String::new(),
        tool_calls: Vec::new(),
        finish_reason: FinishReason::Stop,
        raw_finish_reason: "stop".to_owned(),
        usage: Usage { input: 10, output: 5, cached: 0, reasoning: 0 },
        cost_usd: 0.25,
        provider: "sim".to_owned(),
        model: "sim".to_owned(),
        latency_ms: 1,
        replay: None,
        run: String::new(),
    }
}

/// A random result of a model call.
pub fn answer(rng: &mut Rng, meta: ResultMeta) -> ModelAnswer {
    if rng.chance(8) {
        return ModelAnswer::Failed(failure(rng, meta));
    }
    let mut reply = blank(meta);
    match rng.below(100) {
        0..40 => calls(rng, &mut reply),
        40..52 => "Now I'll look further.".clone_into(&mut reply.text),
        52..62 => signal(rng, &mut reply),
        62..68 => {
            r#"Done so far. {"continuation":{"status":"CONTINUE","reason":"more"}}"#.clone_into(&mut reply.text);
        }
        68..72 => "hm".clone_into(&mut reply.reasoning),
        72..76 => {}
        76..80 => {
            "cut off".clone_into(&mut reply.text);
            reply.finish_reason = FinishReason::Length;
        }
        // No signal and no pattern says whether work is left: a judge is asked.
        80..88 => "It is a matter of taste.".clone_into(&mut reply.text),
        _ => "All done.".clone_into(&mut reply.text),
    }
    ModelAnswer::Finished(Box::new(reply))
}

/// A random result of a judge: mostly one of the two words.
pub fn judgement(rng: &mut Rng, meta: ResultMeta) -> ModelAnswer {
    if rng.chance(10) {
        return ModelAnswer::Failed(failure(rng, meta));
    }
    let text = rng.pick(&["CONTINUE: it is not done", "TERMINATE", "TERMINATE: it is done", "Who knows?"]);
    ModelAnswer::Finished(Box::new(ModelFinished { text: (*text).to_owned(), ..blank(meta) }))
}

fn calls(rng: &mut Rng, reply: &mut ModelFinished) {
    if rng.chance(30) {
        "Let me see.".clone_into(&mut reply.text);
    }
    if rng.chance(10) {
        signal(rng, reply);
    }
    for _ in 0..=rng.below(4) {
        let name = match rng.below(100) {
            0..5 => "no_such_tool",
            5..20 => CLIENT_TOOL,
            _ => *rng.pick(TOOLS),
        };
        let arguments = match rng.below(20) {
            0..17 if name == "delegate" => r#"{"agent":"p","task":"plan it"}"#,
            17..19 if name == "delegate" => r#"{"agent":"e","task":"go round in circles"}"#,
            0..10 if name == "ask_user" => r#"{"question":"why?"}"#,
            10..17 if name == "ask_user" => r#"{"question":"why?","default":"because"}"#,
            0 => "{\"a\":",
            1 => "[1]",
            2 => "",
            _ => "{\"a\":1}",
        };
        // Some providers give every call the same id.
        reply.tool_calls.push(ToolCall::new("call_0", name, arguments));
    }
    reply.finish_reason = if rng.chance(80) { FinishReason::ToolCalls } else { FinishReason::Stop };
}

fn signal(rng: &mut Rng, reply: &mut ModelFinished) {
    let status = *rng.pick(&["CONTINUE", "TERMINATE", "Continue", "perhaps"]);
    let arguments = format!("{{\"status\":\"{status}\",\"reason\":\"because\"}}");
    reply.tool_calls.push(ToolCall::new("", "continuation", &arguments));
}

/// A failed model call of a random kind.
pub fn failure(rng: &mut Rng, meta: ResultMeta) -> ModelFailed {
    let kind = *rng.pick(&[
        FailureKind::RateLimited,
        FailureKind::Overloaded,
        FailureKind::Unreachable,
        FailureKind::TimedOut,
        FailureKind::Truncated,
        FailureKind::ProtocolError,
        FailureKind::Auth,
        FailureKind::Quota,
        FailureKind::ContextLength,
        FailureKind::Cancelled,
    ]);
    let retry_after_ms = rng.chance(20).then(|| rng.below(4_000));
    let usage = Usage { input: 3, ..Usage::default() };
    ModelFailed {
        meta,
        kind,
        retry_after_ms,
        message: "simulated failure".to_owned(),
        text: if rng.chance(30) { "So far".to_owned() } else { String::new() },
        usage,
        cost_usd: 0.0,
        run: String::new(),
    }
}
