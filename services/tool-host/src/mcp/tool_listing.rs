//! Requests the list of tools of an MCP server.

use rmcp::ServiceError;
use rmcp::model::{
    ClientRequest, ListToolsRequest, PaginatedRequestParams, ServerResult, Tool as McpTool, ToolAnnotations,
};
use rmcp::service::{Peer, RoleClient};
use serde_json::{Value, json};

use super::registration::{ListedTool, TOOLS_MAX};
use super::task_tools::TaskTools;

/// Pages that are requested; an endless list is cut.
const PAGES_MAX: usize = 64;

/// Name of the tool that reads resources, unless the server has a tool of that name.
const READ_RESOURCE: &str = "read_resource";

/// Lists all tools of the server. It bypasses the cache of the library, since it also checks that the server is alive.
#[allow(clippy::wildcard_enum_match_arm, reason = "the library's kinds are many and not ours to count")]
pub(super) async fn list_tools(peer: Peer<RoleClient>, tasks: TaskTools) -> Result<Vec<ListedTool>, ServiceError> {
    let (mut all, mut cursor) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let params = Some(PaginatedRequestParams::default().with_cursor(cursor));
        let request = ListToolsRequest { params, ..ListToolsRequest::default() };
        let (tools, next) = match peer.send_request(ClientRequest::ListToolsRequest(request)).await? {
            ServerResult::ListToolsResult(page) => {
                (page.tools.into_iter().map(ListedTool::from).collect(), page.next_cursor)
            }
            // The library rejects a whole page for one malformed tool.
            ServerResult::CustomResult(page) => parse_leniently(page.0).ok_or(ServiceError::UnexpectedResponse)?,
            ServerResult::EmptyResult(_) => (Vec::new(), None),
            _ => return Err(ServiceError::UnexpectedResponse),
        };
        all.extend(tools);
        cursor = next;
        // More than are served, so that the others can be logged.
        if cursor.is_none() || all.len() > 4 * TOOLS_MAX {
            break;
        }
    }
    for tool in &mut all {
        tool.needs_task = tasks.contains(&tool.name);
    }
    let has_resources = peer.peer_info().is_some_and(|info| info.capabilities.resources.is_some());
    if has_resources && all.iter().all(|tool| tool.name != READ_RESOURCE) {
        all.push(resource_tool());
    }
    Ok(all)
}

/// Describes the tool that reads the resources of a server, to which results of tools refer.
fn resource_tool() -> ListedTool {
    ListedTool {
        name: READ_RESOURCE.to_owned(),
        description:
            "Reads a resource of this MCP server by its URI, as results name it: [resource <uri>: <name>]. What \
                      is no text is named with its size."
                .to_owned(),
        schema: json!({"type": "object", "additionalProperties": false, "required": ["uri"], "properties": {
            "uri": {"type": "string", "description": "The URI of the resource."}}}),
        annotations: Some(ToolAnnotations::new().read_only(true)),
        is_resource: true,
        ..ListedTool::default()
    }
}

impl From<McpTool> for ListedTool {
    fn from(tool: McpTool) -> Self {
        Self {
            name: tool.name.into_owned(),
            description: tool.description.unwrap_or_default().into_owned(),
            schema: Value::Object((*tool.input_schema).clone()),
            annotations: tool.annotations,
            output: tool.output_schema.map(|schema| Value::Object((*schema).clone())),
            ..Self::default()
        }
    }
}

/// Parses a page tool by tool.
fn parse_leniently(page: Value) -> Option<(Vec<ListedTool>, Option<String>)> {
    let Value::Object(mut page) = page else { return None };
    let Some(Value::Array(tools)) = page.remove("tools") else { return None };
    let text = |value: Option<Value>| value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default();
    let read = |tool: Value| {
        let Value::Object(mut tool) = tool else { return ListedTool::default() };
        let annotations =
            tool.remove("annotations").and_then(|value| serde_json::from_value::<ToolAnnotations>(value).ok());
        ListedTool {
            name: text(tool.remove("name")),
            description: text(tool.remove("description")),
            schema: tool.remove("inputSchema").unwrap_or_default(),
            annotations,
            output: tool.remove("outputSchema"),
            ..ListedTool::default()
        }
    };
    let next = page.remove("nextCursor").and_then(|cursor| cursor.as_str().map(str::to_owned));
    Some((tools.into_iter().map(read).collect(), next))
}
