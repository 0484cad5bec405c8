//! Work items, rendered from the state once the call is in the log.

use contract::Json;
use contract::commit::VERSION;
use contract::ids::CallAttempt;
use contract::model::{ItemMeta, ModelItem, ToolDefinition};
use contract::tool::ToolItem;

use crate::state::{Activity, Core, Stage};
use crate::transcript::Transcript;

pub(crate) fn model(core: &Core, transcript: &Transcript, call: &CallAttempt) -> Option<ModelItem> {
    let (setup, turn) = (core.setup.as_ref()?, core.turn.as_ref()?);
    let Activity::Thinking(open) = &turn.activity else { return None };
    if open.id() != *call {
        return None;
    }
    let mut tools: Vec<Json> = core.tools.tools.iter().map(definition).collect();
    let offers_signal = setup.model.multi_tool && !setup.model.structured_output;
    if offers_signal && !tools.is_empty() {
        tools.push(reply::definition());
    }
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
        model: setup.model.id.clone(),
        messages: transcript.messages(),
        tools,
        parallel_tool_calls: setup.model.multi_tool,
        parameters: setup.parameters.clone(),
        streaming: setup.streaming.clone(),
    })
}

fn definition(spec: &contract::tool::ToolSpec) -> Json {
    Json::of(&ToolDefinition {
        name: spec.name.to_string(),
        description: spec.description.clone(),
        parameters: spec.parameters.clone(),
    })
}

pub(crate) fn tool(core: &Core, call: &CallAttempt) -> Option<ToolItem> {
    let (setup, turn) = (core.setup.as_ref()?, core.turn.as_ref()?);
    let state = turn.call(&call.call)?;
    let Stage::Open { request, attempt, slot, deadline } = &state.stage else { return None };
    if *attempt != call.attempt {
        return None;
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
    })
}
