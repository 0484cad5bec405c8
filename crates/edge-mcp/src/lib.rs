//! The Model Context Protocol at `/mcp`: each agent is a tool, beside tools that follow and steer sessions.

mod agent_tool;
mod arguments;
mod catalogue;
mod elicitation;
mod endpoint;
mod handler;
mod late_response;
mod progress;
mod results;
mod schemas;
mod session_tool;
mod session_tools;
mod sessions;
mod turn_follower;

pub use endpoint::routes;
