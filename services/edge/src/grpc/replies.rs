//! Conversion of results to messages.

use contract::client_tool::OpenClientCall;
use contract::commit::SessionSummary;
use contract::compose::{Component, KnownModel};
use contract::event::GateKind;
use contract::mail::WaitingMail;
use contract::tool::ToolSpec;
use contract::{CellName, ErrorCode};
use edge_core::api_error::ApiError;
use edge_core::commands::PendingCommand;
use serde_json::Value;
use session_api::{AgentDescription, AgentInfo, CommandReply, PendingCall, PendingGate};

pub(super) fn to_mail(mail: WaitingMail) -> proto::Mail {
    let WaitingMail { id, from, subject, text, sent, answers } = mail;
    let answers = answers.map(|answered| proto::AnsweredMail {
        id: answered.id.to_string(),
        subject: answered.subject,
        excerpt: answered.excerpt,
    });
    let (id, from, sent) = (id.to_string(), from.to_string(), sent.to_string());
    proto::Mail { id, from, subject, text, sent, answers }
}

pub(super) fn to_names(cells: Vec<CellName>) -> Vec<String> {
    cells.into_iter().map(String::from).collect()
}

pub(super) fn to_json<T: serde::Serialize>(value: &T) -> Result<String, ApiError> {
    serde_json::to_string(value).map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))
}

pub(super) async fn wait_for_command(pending: PendingCommand) -> Result<proto::CommandReply, ApiError> {
    let CommandReply { session_id, command_id, done, seq, turn, slot: _ } = pending.wait().await?;
    Ok(proto::CommandReply { session_id: session_id.into(), command_id: command_id.into(), done, seq, turn })
}

pub(super) fn to_session_info(summary: SessionSummary) -> proto::SessionInfo {
    proto::SessionInfo {
        tally_json: serde_json::to_string(&summary.tally).unwrap_or_default(),
        parent: summary.parent.map(String::from).unwrap_or_default(),
        session_id: summary.session_id.into(),
        tenant: summary.tenant.into(),
        phase: to_word(&summary.phase),
        agent: summary.agent,
        model: summary.model,
        title: summary.title,
        turn: summary.turn,
        step: summary.step,
        seq: summary.seq,
        started: summary.started.to_string(),
        updated: summary.updated.to_string(),
        input_tokens: summary.spent.usage.input,
        output_tokens: summary.spent.usage.output,
        cost_usd: summary.spent.cost_usd,
        stop_reason: summary.stop_reason.map(|reason| reason.as_str().to_owned()).unwrap_or_default(),
        client_calls: summary.client_calls.into_iter().map(to_client_call).collect(),
        spent_own: summary.spent_own.map(|own| proto::OwnSpend {
            input_tokens: own.usage.input,
            output_tokens: own.usage.output,
            cost_usd: own.cost_usd,
        }),
    }
}

fn to_client_call(open: OpenClientCall) -> proto::ClientCall {
    let OpenClientCall { call, tool, arguments, shortened, since, deadline } = open;
    proto::ClientCall {
        call: call.to_string(),
        tool: tool.to_string(),
        arguments,
        shortened,
        since: since.to_string(),
        deadline: deadline.to_string(),
    }
}

pub(super) fn to_pending_call(pending: PendingCall) -> proto::PendingClientCall {
    let PendingCall { session_id, agent, title, call } = pending;
    proto::PendingClientCall { session_id: session_id.into(), agent, title, call: Some(to_client_call(call)) }
}

pub(super) fn to_gate(pending: PendingGate) -> proto::Gate {
    let PendingGate { session_id, agent, title, gate } = pending;
    let (kind, detail) = match gate.kind {
        GateKind::Approval => ("approval", String::new()),
        GateKind::Question => ("question", String::new()),
        GateKind::Limit(limit) => ("limit", limit.as_str().to_owned()),
        GateKind::Error(kind) => ("error", kind.code().as_str().to_owned()),
    };
    proto::Gate {
        session_id: session_id.to_string(),
        agent,
        title,
        gate: gate.gate.to_string(),
        kind: kind.to_owned(),
        detail,
        tool: gate.tool.map(|tool| tool.to_string()).unwrap_or_default(),
        arguments: gate.arguments,
        shortened: gate.shortened,
        arguments_sha256: gate.arguments_sha256,
        expires: gate.expires.to_string(),
    }
}

pub(super) fn to_agent_info(agent: AgentInfo) -> proto::AgentInfo {
    proto::AgentInfo {
        id: agent.id.into(),
        name: agent.name,
        aliases: agent.aliases.into_iter().map(String::from).collect(),
        model: agent.model.unwrap_or_default(),
        is_default: agent.is_default,
    }
}

pub(super) fn to_agent_description(agent: AgentDescription) -> Result<proto::AgentDescription, ApiError> {
    let AgentDescription { settings, model, prompt, fingerprint, components, warnings } = agent;
    let to_component = |Component { name, sha256, start, bytes }| proto::PromptComponent {
        name,
        sha256,
        start: u64::try_from(start).unwrap_or(u64::MAX),
        bytes: u64::try_from(bytes).unwrap_or(u64::MAX),
    };
    Ok(proto::AgentDescription {
        id: settings.id.to_string(),
        name: settings.name.clone(),
        settings_json: to_json(&settings)?,
        model,
        prompt,
        fingerprint,
        components: components.into_iter().map(to_component).collect(),
        warnings,
    })
}

pub(super) fn to_model_info(model: KnownModel) -> proto::ModelInfo {
    let KnownModel { settings, provider, is_default, upstream, requests_per_minute, tokens_per_minute } = model;
    proto::ModelInfo {
        id: settings.id,
        provider,
        multi_tool: settings.multi_tool,
        max_parallel_tools: settings.max_parallel_tools,
        structured_output: settings.structured_output,
        reasoning: settings.reasoning,
        context_window: settings.context_window,
        max_output: settings.max_output,
        is_default,
        upstream,
        requests_per_minute,
        tokens_per_minute,
    }
}

pub(super) fn to_tool_info(spec: ToolSpec) -> proto::ToolInfo {
    proto::ToolInfo {
        timeout_ms: u64::try_from(spec.timeout().as_millis()).unwrap_or(u64::MAX),
        max_output: u64::try_from(spec.output_bytes_max()).unwrap_or(u64::MAX),
        name: spec.name.into(),
        description: spec.description,
        parameters_json: spec.parameters.get().to_owned(),
        effect: to_word(&spec.effect),
        approval: to_word(&spec.approval),
        version: spec.version,
        instructions: spec.instructions.unwrap_or_default(),
    }
}

/// Returns the name of an enum value as the contract serialises it.
pub(super) fn to_word<T: serde::Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        Ok(_) | Err(_) => String::new(),
    }
}
