//! Work items, rendered from the state once the call is in the log.

use contract::commit::VERSION;
use contract::ids::CallAttempt;
use contract::limits::JUDGE_OUTPUT_TOKENS;
use contract::model::{ItemMeta, ModelItem, SignalForm, Streaming};
use contract::settings::ModelSettings;
use contract::tool::ToolItem;
use contract::{AiConfig, Json, Timestamp};
use serde_json::{Map, Value};

use crate::judge;
use crate::state::{Activity, CallStage, RunsAt, Setup, State};
use crate::transcript::Transcript;

/// Purpose of a model call.
enum Purpose<'a> {
    Step,
    /// To sum up the turns before one.
    Summary {
        before: u32,
    },
    /// To say whether the turn goes on.
    Judge {
        model: &'a str,
    },
}

pub(crate) fn model(state: &State, transcript: &Transcript, call: &CallAttempt) -> Option<ModelItem> {
    let (setup, turn, model) = (state.setup.as_ref()?, state.turn.as_ref()?, state.model()?);
    let (open, purpose) = match &turn.activity {
        Activity::AwaitingModel(open) => (open, Purpose::Step),
        Activity::Summarising { model, before } => (model, Purpose::Summary { before: *before }),
        Activity::Judging { judge, model } => (judge, Purpose::Judge { model }),
        Activity::Ready
        | Activity::Backoff { .. }
        | Activity::Deciding
        | Activity::RunningTools(_)
        | Activity::AwaitingUser { .. } => return None,
    };
    if open.id() != *call {
        return None;
    }
    let is_step = matches!(purpose, Purpose::Step);
    let (tools, mut response_format) = if is_step { tools_on_offer(state) } else { (Vec::new(), None) };
    let (parameters, tool_choice, streaming) = requests(setup, model);
    let mut parameters = match purpose {
        Purpose::Step | Purpose::Summary { .. } => parameters.clone(),
        Purpose::Judge { .. } => Map::from_iter([("max_tokens".to_owned(), JUDGE_OUTPUT_TOKENS.into())]),
    };
    if let Some(choice) = AiConfig::tool_choice_in(tool_choice, turn.step)
        && !tools.is_empty()
    {
        parameters.insert("tool_choice".to_owned(), choice.clone());
    }
    // The tools stay on offer: some providers refuse a transcript with calls otherwise, and what is cached stays so.
    if turn.last_step.is_some() && !tools.is_empty() {
        parameters.insert("tool_choice".to_owned(), "none".into());
        response_format = None;
    }
    // Nobody watches a summary or a verdict being written.
    let streaming = Streaming { enabled: streaming.enabled && is_step, ..streaming };
    let after = if is_step { transcript.after_parts() } else { None };
    let (messages, model_id) = match purpose {
        Purpose::Step if after.is_some() => (Vec::new(), model.id.as_str()),
        Purpose::Step => (transcript.messages(), model.id.as_str()),
        Purpose::Summary { before } => (transcript.to_sum_up(before), model.id.as_str()),
        Purpose::Judge { model } => (judge::messages(&transcript.asked_last(), &turn.text), model),
    };
    let meta = ItemMeta {
        v: VERSION,
        slot: open.slot,
        turn: turn.number,
        step: turn.step,
        call: open.call.clone(),
        attempt: open.attempt,
        deadline: open.deadline,
        agent: setup.agent.id.to_string(),
    };
    Some(ModelItem {
        meta,
        model: model_id.to_owned(),
        messages,
        after,
        tools,
        parallel_tool_calls: model.multi_tool,
        parameters,
        response_format,
        streaming,
        signal: if matches!(purpose, Purpose::Judge { .. }) { SignalForm::Off } else { state.signal_form() },
        opened_by: turn.opened_by.clone(),
    })
}

/// Returns the parameters, the choice of tools and the streaming of requests to a model. The session's are those of its
/// own model; one that takes its place brings its own.
fn requests<'a>(setup: &'a Setup, model: &'a ModelSettings) -> (&'a Map<String, Value>, &'a [Value], Streaming) {
    match &model.requests {
        Some(own) => {
            let streaming = setup.own_ai_config().streaming.over(&own.streaming.over(&setup.streaming));
            (&own.parameters, &own.tool_choice, streaming)
        }
        None => (&setup.parameters, &setup.tool_choice, setup.streaming.clone()),
    }
}

/// Returns the tools that a step offers, and the format of its reply.
fn tools_on_offer(state: &State) -> (Vec<Json>, Option<Json>) {
    if !state.offers_tools() {
        return (Vec::new(), None);
    }
    let mut tools = state.tool_definitions();
    match state.signal_form() {
        SignalForm::Envelope => return (tools, Some(reply::response_format())),
        SignalForm::Call => tools.push(reply::definition()),
        SignalForm::Text | SignalForm::Off => {}
    }
    (tools, None)
}

pub(crate) fn tool(session: &State, call: &CallAttempt) -> Option<ToolItem> {
    let (setup, turn) = (session.setup.as_ref()?, session.turn.as_ref()?);
    let state = turn.call(&call.call)?;
    let CallStage::Open { request, attempt, slot, deadline, since, .. } = &state.stage else { return None };
    match state.runs_at() {
        Some(RunsAt::Executor) if *attempt == call.attempt => {}
        Some(RunsAt::Executor | RunsAt::Child(_) | RunsAt::Client) | None => return None,
    }
    let meta = ItemMeta {
        v: VERSION,
        slot: *slot,
        turn: turn.number,
        step: turn.step,
        call: call.call.clone(),
        attempt: *attempt,
        deadline: *deadline,
        agent: setup.agent.id.to_string(),
    };
    Some(ToolItem {
        meta,
        tool: request.tool.clone(),
        arguments: request.arguments.clone(),
        effect: request.effect,
        max_output: request.max_output,
        timeout_ms: request.timeout_ms,
        session_started: Some(session.started),
        opened_by: state.opened_by.clone(),
        opened_at: (*since != Timestamp::default()).then_some(*since),
    })
}
