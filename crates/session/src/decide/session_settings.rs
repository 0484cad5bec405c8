//! Settings of a session: those of its agent, with its own over them, within what its parent reserved.

use contract::command::{Budget, ContinuationOverride, Parent};
use contract::settings::{ContinuationSettings, ToolFilter};

use super::builder::Rejection;
use crate::check;

/// A session's own settings over its agent's, if they can be used.
pub(super) fn checked(
    over: Option<&ContinuationOverride>,
    base: &ContinuationSettings,
) -> Result<ContinuationSettings, Rejection> {
    let settings = over.map_or_else(|| base.clone(), |over| over.over(base));
    check::settings(&settings)?;
    Ok(settings)
}

/// A child uses at most what its parent reserved for it.
pub(super) fn limit_to_budget(settings: &mut ContinuationSettings, parent: &Parent) {
    let Budget { tokens, cost_usd, tool_calls, timeout } = parent.share;
    let limits = &mut settings.limits;
    limits.tokens = least(limits.tokens, tokens, u64::min);
    limits.cost_usd = least(limits.cost_usd, cost_usd, f64::min);
    limits.tool_calls = least(limits.tool_calls, tool_calls, u32::min);
    settings.timeout = settings.timeout.min(timeout.unwrap_or(u64::MAX));
}

fn least<T>(own: Option<T>, reserved: Option<T>, min: impl Fn(T, T) -> T) -> Option<T> {
    match (own, reserved) {
        (Some(own), Some(reserved)) => Some(min(own, reserved)),
        (own, reserved) => own.or(reserved),
    }
}

/// A session narrows what its agent may use; it never widens it.
pub(super) fn narrowed(base: &ToolFilter, wanted: Option<&[String]>) -> ToolFilter {
    let Some(wanted) = wanted else { return base.clone() };
    let permitted = |name: &&String| contract::ToolName::new(name).is_ok_and(|tool| base.permits(&tool));
    ToolFilter { allow: wanted.iter().filter(permitted).cloned().collect(), deny: base.deny.clone() }
}
