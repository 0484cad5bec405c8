//! `ailoop-tool` depends on no other package, so its names of the protocol are compared with those of the contract
//! here.

use ailoop_tool::{Approval, Effect, wire};
use contract::tool::{ApprovalPolicy, EffectClass, header, metadata};
use contract::{TenantId, ToolName, subject};

#[test]
fn wire_names_equal_those_of_the_contract() {
    let (tenant, tool) = (TenantId::new("acme").unwrap(), ToolName::new("look").unwrap());
    for (theirs, ours) in [
        (wire::header::CALL, header::CALL),
        (wire::header::SESSION, header::SESSION),
        (wire::header::SESSION_STARTED, header::SESSION_STARTED),
        (wire::header::AGENT, header::AGENT),
        (wire::header::ATTEMPT, header::ATTEMPT),
        (wire::header::DEADLINE, header::DEADLINE),
        (wire::header::ERROR, header::ERROR),
        (wire::header::OUTCOME, header::OUTCOME),
        (wire::header::PROGRESS, header::PROGRESS),
        (wire::header::TRACEPARENT, header::TRACEPARENT),
        (wire::metadata::TOOL, metadata::TOOL),
        (wire::metadata::DESCRIPTION, metadata::DESCRIPTION),
        (wire::metadata::PARAMETERS, metadata::PARAMETERS),
        (wire::metadata::EFFECT, metadata::EFFECT),
        (wire::metadata::APPROVAL, metadata::APPROVAL),
        (wire::metadata::TIMEOUT, metadata::TIMEOUT),
        (wire::metadata::MAX_OUTPUT, metadata::MAX_OUTPUT),
        (wire::metadata::INSTRUCTIONS, metadata::INSTRUCTIONS),
        (wire::OUTCOME_UNKNOWN, contract::tool::OUTCOME_UNKNOWN),
        (wire::QUEUE, subject::TOOL_QUEUE),
        (wire::ANNOUNCE, subject::tool_announce().as_str()),
        (&wire::call_subject("acme", "look"), subject::tool(&tenant, &tool).as_str()),
        (&wire::cancel_subject("acme", "look"), subject::tool_cancel(&tenant, &tool).as_str()),
    ] {
        assert_eq!(theirs, ours);
    }
    for (theirs, ours) in [
        (Effect::Pure, EffectClass::Pure),
        (Effect::Idempotent, EffectClass::Idempotent),
        (Effect::AtMostOnce, EffectClass::AtMostOnce),
    ] {
        assert_eq!(serde_json::to_value(ours).unwrap(), theirs.as_str());
    }
    for (theirs, ours) in [(Approval::Never, ApprovalPolicy::Never), (Approval::Always, ApprovalPolicy::Always)] {
        assert_eq!(serde_json::to_value(ours).unwrap(), theirs.as_str());
    }
}
