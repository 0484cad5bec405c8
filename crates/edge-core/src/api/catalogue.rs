//! Tools, agents and models that sessions may have.

use std::collections::BTreeSet;
use std::sync::Arc;

use contract::compose::{KnownAgent, KnownModel};
use contract::tool::ToolSpec;
use contract::{AgentId, ToolName};
use session_api::AgentInfo;

use super::SessionApi;
use crate::access::ApiCaller;
use crate::api_error::ApiError;
use crate::cells::{Cell, CellAnswers};
use crate::fair_queue::RequestCost;

impl SessionApi {
    /// Lists the tools of the tenant.
    pub async fn list_tools(&self, caller: &ApiCaller) -> Result<Vec<ToolSpec>, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        let list = |cell: Arc<Cell>| async move { Ok(cell.bus.tools(&caller.tenant).await?) };
        let CellAnswers { answers, .. } = self.cells().ask_all(&caller.tenant, list).await?;
        let mut tools: Vec<ToolSpec> = answers.into_iter().flat_map(|(_, tools)| tools).collect();
        // The loop performs these itself, so they are not in the catalogue.
        let own = [session::ask_user_spec(), session::delegate_spec()];
        tools.retain(|tool| own.iter().all(|spec| spec.name != tool.name));
        tools.extend(own);
        tools.sort_by(|a, b| a.name.cmp(&b.name));
        // Cells have a tool of the same name each.
        tools.dedup_by(|later, earlier| later.name == earlier.name);
        Ok(tools)
    }

    /// Lists the agents, by key.
    pub async fn list_agents(&self, caller: &ApiCaller) -> Result<Vec<AgentInfo>, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        let known = self.any_cell(caller)?.bus.agents(&caller.tenant).await?;
        let agent = |KnownAgent { id, name, aliases, model, is_default, tools: _ }| AgentInfo {
            id,
            name,
            aliases,
            model,
            is_default,
        };
        let reached = known.agents.into_iter().filter(|known| caller.grant.allows_agent(known.id.as_str()));
        Ok(reached.map(agent).collect())
    }

    /// Returns the names of the tools that an agent may use; none of an agent that is not there.
    pub(crate) async fn tool_names_of_agent(
        &self,
        caller: &ApiCaller,
        agent: &AgentId,
    ) -> Result<BTreeSet<ToolName>, ApiError> {
        let cell = self.any_cell(caller)?;
        let agents = async { Ok::<_, ApiError>(cell.bus.agents(&caller.tenant).await?.agents) };
        let (tools, agents) = tokio::try_join!(self.list_tools(caller), agents)?;
        let agent = agents.into_iter().find(|known| known.id == *agent || known.aliases.contains(agent));
        let permitted = |name: &ToolName| agent.as_ref().is_some_and(|agent| agent.tools.permits(name));
        Ok(tools.into_iter().map(|tool| tool.name).filter(permitted).collect())
    }

    /// Lists the models that are described, by id.
    pub async fn list_models(&self, caller: &ApiCaller) -> Result<Vec<KnownModel>, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        Ok(self.any_cell(caller)?.bus.agents(&caller.tenant).await?.models)
    }
}
