//! What a request asks of an agent, in whatever protocol it came.

use contract::AgentId;
use contract::client_tool::ClientTool;
use contract::model::{Content, HistoryMessage};

/// A turn that a client asks for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TurnRequest {
    pub(crate) agent: AgentId,
    pub(crate) prompt: Content,
    /// What was said and done before, for a session that does not know it.
    pub(crate) history: Vec<HistoryMessage>,
    /// Under the names that the client gave.
    pub(crate) client_tools: Vec<ClientTool>,
}
