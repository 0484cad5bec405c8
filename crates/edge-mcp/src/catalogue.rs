//! The tools of the server: one for each agent, and those for sessions.

use std::sync::{Arc, LazyLock};

use edge_core::access::ApiCaller;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use session_api::{AgentInfo, Method};

use super::schemas;
use super::session_tool::SessionTool;

/// Methods that a caller must be permitted to use to call an agent.
const AGENT_METHODS: &[Method] = &[Method::StartSession, Method::SendMessage, Method::WatchSession];

/// The schemas of arguments and results of every agent, which share them.
static AGENT_SCHEMAS: LazyLock<(Arc<JsonObject>, Arc<JsonObject>)> =
    LazyLock::new(|| (schemas::agent_arguments(), schemas::agent_result()));

impl SessionTool {
    fn description(self) -> &'static str {
        match self {
            Self::Start => {
                "Gives a task to an agent and returns at once with the `session_id`. Ask `session_status` for the answer."
            }
            Self::Status => {
                "Returns what a session does, its last answer, and what it asks a person. With `wait_seconds` it waits \
                 until the turn ends or a person is asked."
            }
            Self::Send => {
                "Sends a message to a session and returns at once. A message to a running turn waits for its end, \
                 unless `mode` is `steer` or `interrupt`."
            }
            Self::Answer => {
                "Answers what a session asks a person: `approve` or `deny` a call, or `answer` a question. Ask the \
                 person before. It then waits for the end of the turn and returns its answer, unless `wait` is false."
            }
            Self::Stop => "Stops a session: it cancels its open calls, and ends.",
            Self::List => "Lists sessions, the newest first.",
        }
    }

    fn annotations(self) -> ToolAnnotations {
        let hints = |read_only, destructive, idempotent| {
            ToolAnnotations::from_raw(None, Some(read_only), Some(destructive), Some(idempotent), Some(false))
        };
        match self {
            Self::Status | Self::List => hints(true, false, true),
            Self::Start | Self::Send => hints(false, false, false),
            Self::Answer | Self::Stop => hints(false, true, true),
        }
    }

    fn to_tool(self) -> Tool {
        let mut tool = Tool::new(self.name(), self.description(), schemas::of_session_tool(self));
        tool.annotations = Some(self.annotations());
        tool
    }
}

/// Returns the methods that a caller needs for a tool. A name of no tool is looked up as an agent.
pub(super) fn methods_of(tool: &str) -> &'static [Method] {
    SessionTool::from_name(tool).map_or(AGENT_METHODS, SessionTool::methods)
}

impl SessionTool {
    /// Whether a caller may call the tool. A host may run tools without a question, so the model that asked for a call could
    /// approve it: the tool that answers gates is only for a credential that names the scope for it.
    pub(super) fn is_offered(self, caller: &ApiCaller) -> bool {
        let is_for = self != Self::Answer || caller.grant.names_scopes;
        is_for && may_use(caller, self.methods())
    }
}

fn may_use(caller: &ApiCaller, methods: &[Method]) -> bool {
    methods.iter().all(|method| caller.may_use(*method))
}

/// Lists the tools that a caller may call: the agents, and then those for sessions.
pub(super) fn tools(caller: &ApiCaller, agents: &[AgentInfo]) -> Vec<Tool> {
    let agents = agents.iter().filter(|agent| SessionTool::from_name(agent.id.as_str()).is_none());
    let agents = agents.filter(|_| may_use(caller, AGENT_METHODS)).map(agent_tool);
    let others = SessionTool::ALL.into_iter().filter(|tool| tool.is_offered(caller));
    agents.chain(others.map(SessionTool::to_tool)).collect()
}

fn agent_tool(agent: &AgentInfo) -> Tool {
    let description = format!(
        "Gives a task to the agent {}, which works on it with its own tools, and returns its answer. The work may take \
         minutes. To go on with the conversation, give the `session_id` of the last result.",
        agent.name
    );
    let mut tool = Tool::new(agent.id.to_string(), description, AGENT_SCHEMAS.0.clone());
    tool.title = Some(agent.name.clone());
    tool.output_schema = Some(AGENT_SCHEMAS.1.clone());
    tool.annotations = Some(ToolAnnotations::from_raw(None, Some(false), Some(true), Some(false), Some(true)));
    tool
}
