//! Filters over every session, for lists of permissions. They are built here for the same reason as subjects (I6).

use super::{REQUEST, Subject};
use crate::command::Verb;
use crate::event::Topic;
use crate::streams::Bucket;

subjects! {
    /// Every input of one verb.
    pub fn control(verb: Verb) = "ai_loop.control.{verb}.*.*.*";

    /// Every entry of a bucket whose keys are `<tenant>.<name>`.
    pub fn bucket_entry(bucket: Bucket) = "$KV.{}.*.*", bucket.name();

    /// Every note of a request that a client may repeat, beside the index of sessions.
    pub fn request_note() = "$KV.{}.*.{REQUEST}.*.*", Bucket::Sessions.name();

    /// Every slot of every session's log.
    pub fn log_slot() = "ai_loop.log.*.*.*.*";

    /// Every archived page of every session.
    pub fn archive_page() = "ai_archive.*.*.*";

    /// Work items of every model call.
    pub fn model_item() = "ai_loop.model.call.*.*.*.*";

    /// Work items of every tool call.
    pub fn tool_item() = "ai_loop.tool.call.*.*.*.*.*";

    /// Every timer that is set.
    pub fn timer_set() = "ai_timer.set.*.*.wake";

    /// Every event of one topic.
    pub fn event(topic: Topic) = "ai_loop.{topic}.*.*";

    /// The filter that matches the subjects of every tool call.
    pub fn tool_calls() = "ai_loop.tool_call.*.*.*";

    /// Every notice for every edge replica.
    pub fn done() = "ai_rpc.done.*.*";

    /// Every result of one verb that is sent to an orchestrator.
    pub fn result(verb: Verb) = "ai_rpc.result.{verb}.*.*.*.*";

    /// Every result that is sent to an orchestrator.
    pub fn results() = "ai_rpc.result.*.*.*.*.*";

    /// The holder of every call.
    pub fn call_holder() = "ai_rpc.call.*.*.*";

    /// The view of every session.
    pub fn view() = "ai_rpc.view.*.*";

    /// The mailboxes of every tenant, as clients reach them.
    pub fn mail_request() = "ai_rpc.mail.*";

    /// Requests to every tool of every tenant.
    pub fn tool() = "ai_tool.*.*";

    /// Request to each tool to describe itself.
    pub fn service_info() = "$SRV.INFO.*";

    /// Ping of every replica of a service.
    pub fn service_ping() = "$SRV.PING.*.*";

    /// The probe of every tool.
    pub fn tool_probe() = "ai_tool_probe.*.*";

    /// The cancels of every tool.
    pub fn tool_cancel() = "ai_tool_cancel.*.*";

    /// Mail to every mailbox of every tenant.
    pub fn mail() = "ai_mail.*.*.*";

    /// Dead letters of every tenant.
    pub fn dead() = "ai_dead.*.*.*.*";
}

/// Every public event: topics of one token, and of two.
pub fn events() -> [Subject; 2] {
    [Subject("ai_loop.*.*.*".to_owned()), Subject("ai_loop.*.*.*.*".to_owned())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{AgentId, CallAttempt, CallId, CommandId, MailId, SessionId, TenantId, ToolName};
    use crate::subject::{self, MailboxKey, SessionKey, matches};

    fn mailbox() -> MailboxKey {
        MailboxKey { tenant: TenantId::default(), agent: AgentId::new("default").unwrap() }
    }

    #[test]
    fn filter_matches_only_subjects_of_its_builder() {
        let key = SessionKey { tenant: TenantId::default(), session: SessionId::new("s1").unwrap() };
        let (id, tool_name) = (CommandId::new("c").unwrap(), ToolName::new("t").unwrap());
        let call = CallAttempt { call: CallId::tool(1, 1, 1), attempt: 1 };
        let (mailbox, mail_id) = (mailbox(), MailId::sent_by("s1-c1-1-1"));
        let mut rows = vec![
            (log_slot(), subject::log_slot(&key, 70)),
            (archive_page(), subject::archive_page(&key, 1)),
            (model_item(), subject::model_item(&key, &call)),
            (tool_item(), subject::tool_item(&key, &tool_name, &call)),
            (timer_set(), subject::timer_set(&key)),
            (done(), subject::done(&id, &id)),
            (call_holder(), subject::call_holder(&key, &call.call)),
            (view(), subject::view(&key)),
            (tool(), subject::tool(&key.tenant, &tool_name)),
            (tool_cancel(), subject::tool_cancel(&key.tenant, &tool_name)),
            (mail(), subject::mail(&mailbox, &mail_id)),
            (dead(), subject::dead(&key, subject::DeadKind::Control, &id)),
        ];
        rows.extend(Verb::ALL.iter().map(|verb| (control(*verb), subject::control(&key, *verb, &id))));
        rows.extend(Verb::ALL.iter().map(|verb| (result(*verb), subject::result(&key, *verb, &id, &id))));
        rows.extend(Topic::ALL.iter().map(|topic| (event(*topic), subject::event(&key, *topic))));
        for (filter, _) in &rows {
            for (other, subject) in &rows {
                assert_eq!(matches(filter.as_str(), subject.as_str()), filter == other, "{filter} {subject}");
            }
        }
    }

    #[test]
    fn i6_filters_of_events_match_every_event_and_nothing_private() {
        let key = SessionKey { tenant: TenantId::default(), session: SessionId::new("default").unwrap() };
        let taken = |subject: &Subject| events().iter().any(|f| matches(f.as_str(), subject.as_str()));
        assert!(Topic::ALL.iter().all(|topic| taken(&subject::event(&key, *topic))));
        let id = CommandId::new("default").unwrap();
        let call = CallAttempt { call: CallId::tool(1, 1, 1), attempt: 1 };
        let private = [
            subject::control(&key, Verb::Start, &id),
            subject::log_slot(&key, 0),
            subject::archive_page(&key, 0),
            subject::model_item(&key, &call),
            subject::tool_item(&key, &ToolName::new("default").unwrap(), &call),
            subject::done(&id, &id),
            subject::cancel(&key),
            subject::mail(&mailbox(), &MailId::sent_by("default-c1-1-1")),
        ];
        assert!(!private.iter().any(taken));
        // The filter of tool calls matches a part of that.
        for filter in [tool_calls(), subject::tool_calls_of(&key.tenant)] {
            let is_matched = |subject: &Subject| matches(filter.as_str(), subject.as_str());
            for topic in Topic::ALL {
                let of_tools = topic.as_str().starts_with("tool_call.");
                assert_eq!(is_matched(&subject::event(&key, *topic)), of_tools, "{filter} {topic}");
            }
            assert!(!private.iter().any(is_matched), "{filter}");
        }
    }
}
