//! The names of the tools that are no agents, and what a caller needs for each.

use session_api::Method;

/// A tool that is no agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SessionTool {
    Start,
    Status,
    Send,
    Answer,
    Stop,
    List,
}

impl SessionTool {
    pub(super) const ALL: [Self; 6] = [Self::Start, Self::Status, Self::Send, Self::Answer, Self::Stop, Self::List];

    /// Finds a tool by its name. An agent of the same name is hidden behind it.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// Returns the name under which clients call it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Start => "start_session",
            Self::Status => "session_status",
            Self::Send => "send_message",
            Self::Answer => "answer_gate",
            Self::Stop => "stop_session",
            Self::List => "list_sessions",
        }
    }

    /// Returns the methods that a caller needs for it.
    pub(super) const fn methods(self) -> &'static [Method] {
        match self {
            Self::Start => &[Method::StartSession],
            Self::Status => &[Method::GetSession, Method::GetTranscript],
            Self::Send => &[Method::SendMessage],
            Self::Answer => &[Method::AnswerGate],
            Self::Stop => &[Method::StopSession],
            Self::List => &[Method::ListSessions],
        }
    }
}
