//! Whether a person is asked before a call: the first rule of the agent that fits, else what the tool says itself.
//! Pure.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use contract::Json;
use contract::limits::GATE_MAX;
use contract::settings::{ApprovalRule, OnExpiry, names_tool};
use contract::tool::{ApprovalPolicy, ToolSpec};
use reply::TextPattern;
use serde_json::Value;

/// Lists of rules that are kept compiled. They come from the configuration, so there is one for each agent.
const SHARED_MAX: usize = 64;

/// Rules, and what they compile to.
type Known = (Vec<ApprovalRule>, Arc<Approvals>);

/// The lists that were used last, in that order; the newest is behind.
static SHARED: LazyLock<Mutex<Vec<Known>>> = LazyLock::new(Mutex::default);

/// An agent's rules, their patterns compiled.
#[derive(Debug, Clone, Default)]
pub(crate) struct Approvals(Vec<Rule>);

#[derive(Debug, Clone)]
struct Rule {
    rule: ApprovalRule,
    /// Pointers and patterns; none where one does not compile.
    when: Option<Vec<(String, TextPattern)>>,
}

/// Approval settings that apply to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ApprovalRequest {
    pub(crate) approval: ApprovalPolicy,
    pub(crate) expires: Duration,
    pub(crate) on_expiry: OnExpiry,
}

impl Approvals {
    /// Compiles rules, once for all sessions of their agent.
    pub(crate) fn shared(rules: &[ApprovalRule]) -> Arc<Self> {
        if rules.is_empty() {
            return Arc::default();
        }
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match shared.iter().rposition(|(known, _)| known == rules) {
            Some(at) => shared.remove(at),
            None => (rules.to_vec(), Arc::new(Self::compile(rules))),
        };
        let compiled = known.1.clone();
        if shared.len() >= SHARED_MAX {
            shared.remove(0);
        }
        shared.push(known);
        compiled
    }

    pub(crate) fn compile(rules: &[ApprovalRule]) -> Self {
        let compiled = |rule: &ApprovalRule| {
            let when = rule.when.iter().map(|(at, pattern)| Some((at.clone(), TextPattern::compile(pattern).ok()?)));
            Rule { rule: rule.clone(), when: when.collect() }
        };
        Self(rules.iter().map(compiled).collect())
    }

    pub(crate) fn of(&self, tool: &ToolSpec, arguments: &Json) -> ApprovalRequest {
        let value: Value = serde_json::from_str(arguments.get()).unwrap_or_default();
        let fits = |rule: &&Rule| names_tool(&rule.rule.tool, tool.name.as_str()) && rule.fits(&value);
        match self.0.iter().find(fits) {
            Some(Rule { rule, .. }) => ApprovalRequest {
                approval: rule.ask,
                expires: rule.expires.map_or(GATE_MAX, Duration::from_secs).min(GATE_MAX),
                on_expiry: rule.on_expiry,
            },
            None => ApprovalRequest { approval: tool.approval, expires: GATE_MAX, on_expiry: OnExpiry::Deny },
        }
    }
}

impl Rule {
    /// A pattern that does not compile was refused when it was read; should it come here all the same, a person is
    /// asked.
    fn fits(&self, arguments: &Value) -> bool {
        let Some(when) = &self.when else { return self.rule.ask == ApprovalPolicy::Always };
        when.iter().all(|(at, pattern)| match arguments.pointer(at) {
            Some(Value::String(text)) => pattern.is_match(text),
            Some(other) => pattern.is_match(&other.to_string()),
            None => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(approval: ApprovalPolicy) -> ToolSpec {
        ToolSpec { approval, ..crate::delegate_spec() }
    }

    fn rule(tool: &str, when: &[(&str, &str)], ask: ApprovalPolicy) -> ApprovalRule {
        let when = when.iter().map(|(at, pattern)| ((*at).to_owned(), (*pattern).to_owned())).collect();
        ApprovalRule { tool: tool.to_owned(), when, ask, expires: None, on_expiry: OnExpiry::Deny }
    }

    #[test]
    fn first_matching_approval_rule_counts_else_the_tool() {
        use ApprovalPolicy::{Always, Never};
        let arguments = Json::parse(r#"{"path":"/etc/passwd","n":12,"list":["rm","-rf"]}"#).unwrap();
        for (rules, own, expect) in [
            (vec![], Never, Never),
            (vec![], Always, Always),
            (vec![rule("other", &[], Always)], Never, Never),
            (vec![rule("delegate", &[], Always)], Never, Always),
            (vec![rule("dele*", &[], Never)], Always, Never),
            (vec![rule("*", &[("/path", "^/etc/")], Always)], Never, Always),
            (vec![rule("*", &[("/path", "^/tmp/")], Always)], Never, Never),
            (vec![rule("*", &[("/n", "^12$"), ("/list/0", "^rm$")], Always)], Never, Always),
            (vec![rule("*", &[("/n", "^12$"), ("/list/9", "")], Always)], Never, Never),
            (vec![rule("*", &[("/list", "rm")], Always)], Never, Always),
            (vec![rule("*", &[("/path", "^/etc/")], Never), rule("*", &[], Always)], Always, Never),
            (vec![rule("*", &[("/absent", "")], Never)], Always, Always),
            // Never loaded; it errs on the careful side.
            (vec![rule("*", &[("/path", "(")], Never)], Always, Always),
            (vec![rule("*", &[("/path", "(")], Always)], Never, Always),
        ] {
            let asked = Approvals::compile(&rules).of(&tool(own), &arguments);
            assert_eq!(asked.approval, expect, "{rules:?} {own:?}");
        }
    }

    #[test]
    fn approval_rule_sets_expiry_and_its_result() {
        let rule =
            |expires| ApprovalRule { expires, on_expiry: OnExpiry::Approve, ..rule("*", &[], ApprovalPolicy::Always) };
        let asked = |expires| Approvals::compile(&[rule(expires)]).of(&tool(ApprovalPolicy::Never), &Json::default());
        assert_eq!(asked(Some(60)).expires, Duration::from_mins(1));
        assert_eq!(asked(Some(1 << 40)).expires, GATE_MAX);
        assert_eq!(asked(None).on_expiry, OnExpiry::Approve);
    }
}
