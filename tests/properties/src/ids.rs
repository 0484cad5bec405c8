//! Texts in the place of ids and subjects.

use std::fmt::Debug;

use contract::ids::{CallId, CommandId, SessionId, TenantId, ToolName};
use contract::subject::{self, Subject};
use contract::{AgentId, Json};

/// An accepted id is one token of a subject, and an accepted subject is the one that its parts build.
pub fn ids(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for text in text.lines() {
        each(text);
    }
    if let Some((filter, subject)) = text.split_once('\n') {
        matching(filter, subject);
    }
}

fn each(text: &str) {
    id(text, TenantId::new(text), TenantId::as_str, 32);
    id(text, SessionId::new(text), SessionId::as_str, 64);
    id(text, CommandId::new(text), CommandId::as_str, 64);
    id(text, CallId::new(text), CallId::as_str, 64);
    id(text, ToolName::new(text), ToolName::as_str, 64);
    id(text, AgentId::new(text), AgentId::as_str, 32);

    let same = |rendered: &Subject| {
        assert_eq!(rendered.as_str(), text);
        token_by_token(rendered.as_str());
    };
    if let Some(control) = subject::parse_control(text) {
        same(&subject::control(&control.key, control.verb, &control.id));
        assert_eq!(subject::parse_control_key(text), Some(control.key.clone()));
        assert!(subject::matches(subject::control_inbox(&control.key).as_str(), text));
        assert!(subject::matches(subject::every::control(control.verb).as_str(), text));
    }
    if let Some(log) = subject::parse_log(text) {
        same(&subject::log_slot(&log.key, log.slot));
        assert!(subject::matches(subject::log_session(&log.key).as_str(), text));
    }
    if let Some(item) = subject::parse_item(text) {
        match &item.tool {
            Some(tool) => same(&subject::tool_item(&item.key, tool, &item.call)),
            None => same(&subject::model_item(&item.key, &item.call)),
        }
    }
    if let Some(key) = subject::parse_timer(text) {
        same(&subject::timer_due(&key));
    }
    if let Some((topic, key)) = subject::parse_event(text) {
        same(&subject::event(&key, topic));
        assert!(subject::viewer(&key).iter().any(|viewer| subject::matches(viewer.as_str(), text)));
    }
    if let Some(key) = subject::parse_session_rpc(text) {
        token_by_token(subject::cancel(&key).as_str());
        token_by_token(subject::view(&key).as_str());
    }
    if let Some(key) = subject::parse_control_key(text) {
        token_by_token(subject::control_inbox(&key).as_str().replace('*', "x").as_str());
    }
}

/// An id keeps its text, also through JSON, and contains no separator or wildcard of subjects.
fn id<I: Debug + Clone + Into<String>, E: Debug>(text: &str, id: Result<I, E>, as_str: fn(&I) -> &str, max: usize) {
    let Ok(id) = id else { return };
    assert_eq!(as_str(&id), text);
    assert!((1..=max).contains(&text.len()));
    assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')), "{text:?}");
    assert_eq!(Json::of(&Into::<String>::into(id)).get(), format!("\"{text}\""));
}

/// No wildcard, no empty token, nothing that ends a line of the protocol.
fn token_by_token(subject: &str) {
    for token in subject.split('.') {
        assert!(!token.is_empty(), "{subject:?}");
        assert!(
            !token.contains(|c: char| matches!(c, '*' | '>') || c.is_whitespace() || c.is_control()),
            "{subject:?}"
        );
    }
}

/// A filter matches the subject that it spells, and no subject with another prefix.
fn matching(filter: &str, subject: &str) {
    let took = subject::matches(filter, subject);
    let wild = filter.split('.').any(|token| matches!(token, "*" | ">"));
    assert!(wild || took == (filter == subject));
    let before: String = filter.split_inclusive('.').take_while(|token| !token.starts_with(['*', '>'])).collect();
    assert!(!took || subject.starts_with(&before) || !wild, "{filter:?} took {subject:?}");
}
