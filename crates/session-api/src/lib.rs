//! The session API, declared once. A method is a row of the table in `method.rs`: its name, who may use it, its routes,
//! its parameters, and one sentence.
//!
//! From the row follow:
//!
//! - the routes below `/v1` of the edge, with the parameters of their path, query and body: [`ROUTES`],
//! - the `OpenAPI` document that the edge serves, `sdk/openapi.json`: [`openapi::document`],
//! - the methods and types of the SDKs for Python and TypeScript, which `sdk/generate.py` makes of that document,
//! - the scopes that a credential needs: [`Method::scopes`].
//!
//! Nothing here does IO. The edge performs the methods, and its protocol adapters translate to them.

mod cursor;
mod method;
pub mod openapi;
mod params;
mod results;
mod route;
mod schema;
mod scope;
mod verb;

pub use cursor::ListCursor;
pub use method::Method;
pub use params::{
    CommandFields, DeadLetterParams, DescribeAgentParams, ListDeadLettersParams, ListMailParams, ListPendingParams,
    ListSessionsParams, NoParams, ReplayParams, ReplyMailParams, ResetBudgetParams, SendMailParams, SessionParams,
    StatsParams, TestReplyParams, ToolResultParams, TranscriptParams, TryToolParams, WatchParams,
};
pub use route::{Field, HttpRoute, ROUTES, ValueKind};
pub use scope::Scope;
pub use verb::HttpVerb;
