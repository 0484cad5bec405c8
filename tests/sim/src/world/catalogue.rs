//! The tools of the simulated world.

use std::sync::{Arc, LazyLock};

use contract::tool::{ApprovalPolicy, EffectClass, ToolSpec};
use contract::{Json, ToolName};

use crate::replies::TOOLS;

/// Every tool of the world.
pub(super) static CATALOGUE: LazyLock<Arc<Vec<ToolSpec>>> =
    LazyLock::new(|| Arc::new(TOOLS.iter().map(|name| spec(name)).collect()));

fn spec(name: &str) -> ToolSpec {
    if name == contract::tool::DELEGATE {
        return session::delegate_spec();
    }
    if name == contract::tool::ASK_USER {
        return session::ask_user_spec();
    }
    let (effect, approval) = match name {
        "look" => (EffectClass::Pure, ApprovalPolicy::Never),
        "put" => (EffectClass::Idempotent, ApprovalPolicy::Never),
        "launch" => (EffectClass::AtMostOnce, ApprovalPolicy::Always),
        _ => (EffectClass::AtMostOnce, ApprovalPolicy::Never),
    };
    ToolSpec {
        name: ToolName::new(name).unwrap_or_else(|_| unreachable!("a valid id")),
        description: String::new(),
        parameters: Json::of(&serde_json::json!({"type": "object"})),
        effect,
        approval,
        timeout_ms: Some(30_000),
        max_output: None,
        instructions: None,
        version: String::new(),
    }
}
