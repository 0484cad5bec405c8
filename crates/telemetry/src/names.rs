//! Every name of a span, an attribute and a label. Those of OpenTelemetry's conventions come first, ours begin with
//! `ailoop.`. The names of metrics are in [`crate::metric`].

/// The target of every span, by which the filters know them.
pub const TARGET: &str = "ailoop";

/// The semantic conventions that attributes follow.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.42.0";

/// Names of spans. The names that take an argument are made by [`crate::span`].
pub mod span {
    /// The decision about a reply.
    pub const DECIDE: &str = "continuation.decide";
    /// A turn of an agent: `invoke_agent {agent}`.
    pub const INVOKE_AGENT: &str = "invoke_agent";
    /// A model call: `chat {model}`.
    pub const CHAT: &str = "chat";
    /// A request to a provider of models.
    pub const REQUEST: &str = "POST";
    /// A try of a tool call by an executor: `call {tool}`.
    pub const CALL: &str = "call";
    /// The deliveries of a call before one that runs it: their workers died, or handed the call back.
    pub const REDELIVERED: &str = "redelivered";
    /// A question to a person: `gate {kind}`.
    pub const GATE: &str = "gate";
    /// A tool call: `execute_tool {tool}`.
    pub const EXECUTE_TOOL: &str = "execute_tool";
    /// A composition of a prompt: `compose {agent}`.
    pub const COMPOSE: &str = "compose";
}

/// Names of span attributes.
pub mod attr {
    /// Operation of the span, in the words of the `GenAI` conventions.
    pub const OPERATION: &str = "gen_ai.operation.name";
    /// Id of the session, without its tenant.
    pub const CONVERSATION: &str = "gen_ai.conversation.id";
    /// Key of the agent in `agents.yaml`.
    pub const AGENT: &str = "gen_ai.agent.id";
    /// Name of the agent, for people.
    pub const AGENT_NAME: &str = "gen_ai.agent.name";
    /// Key of the provider in `models.yaml`.
    pub const PROVIDER: &str = "gen_ai.provider.name";
    /// The model that was asked for.
    pub const MODEL: &str = "gen_ai.request.model";
    /// The model that answered, in the provider's words.
    pub const RESPONSE_MODEL: &str = "gen_ai.response.model";
    /// Id of the reply: our id of the call.
    pub const RESPONSE_ID: &str = "gen_ai.response.id";
    /// Reason why the reply ended, as a list with one entry.
    pub const FINISH_REASON: &str = "gen_ai.response.finish_reasons";
    /// Seconds to the first chunk.
    pub const FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
    /// Tokens of the request.
    pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
    /// Tokens of the reply.
    pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
    /// Tokens of the request that the provider had cached.
    pub const CACHED_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
    /// Tokens of the reply that are reasoning.
    pub const REASONING_TOKENS: &str = "gen_ai.usage.reasoning.output_tokens";
    /// Name of the called tool.
    pub const TOOL: &str = "gen_ai.tool.name";
    /// Type of the tool: always `function`.
    pub const TOOL_TYPE: &str = "gen_ai.tool.type";
    /// Arguments of the tool call, as JSON; only with `telemetry.content`.
    pub const TOOL_ARGUMENTS: &str = "gen_ai.tool.call.arguments";
    /// Result of the tool call, as the model reads it; only with `telemetry.content`.
    pub const TOOL_RESULT: &str = "gen_ai.tool.call.result";
    /// The turn's messages before a model call, as JSON; only with `telemetry.content`.
    pub const INPUT_MESSAGES: &str = "gen_ai.input.messages";
    /// The reply, as JSON; only with `telemetry.content`.
    pub const OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
    /// Id of the tool call.
    pub const TOOL_CALL: &str = "gen_ai.tool.call.id";
    /// Name of the composed prompt.
    pub const PROMPT: &str = "gen_ai.prompt.name";
    /// Fingerprint of the composed prompt.
    pub const PROMPT_VERSION: &str = "gen_ai.prompt.version";
    /// Name of the RPC system, which is `jsonrpc`.
    pub const RPC_SYSTEM: &str = "rpc.system.name";
    /// Name of the RPC method.
    pub const RPC_METHOD: &str = "rpc.method";
    /// A stable code of what went wrong.
    pub const ERROR: &str = "error.type";
    /// The turn, from 1.
    pub const TURN: &str = "ailoop.turn";
    /// The step, from 1.
    pub const STEP: &str = "ailoop.step";
    /// The model or tool call.
    pub const CALL: &str = "ailoop.call";
    /// Number of the attempt of the call, from 1.
    pub const ATTEMPT: &str = "ailoop.attempt";
    /// Number of the delivery of the attempt to a worker, from 1.
    pub const DELIVERY: &str = "ailoop.delivery";
    /// Purpose of a model call that is not a step of the turn: `summary` or `judge`.
    pub const PURPOSE: &str = "ailoop.purpose";
    /// Milliseconds from the request to the end of the reply, without the time in the queue.
    pub const LATENCY_MS: &str = "ailoop.latency_ms";
    /// Service that sent the span in place of a process that may have died: `orchestrator`, `gateway` or `executor`.
    pub const CLOSED_BY: &str = "ailoop.closed_by";
    /// Decision of a person.
    pub const DECISION: &str = "ailoop.gate.decision";
    /// Steps of the turn.
    pub const ITERATIONS: &str = "ailoop.iteration.count";
    /// Method of an HTTP request.
    pub const HTTP_METHOD: &str = "http.request.method";
    /// Number of earlier requests of the delivery, from 0.
    pub const RESEND_COUNT: &str = "http.request.resend_count";
    /// Outcome of a tool call.
    pub const OUTCOME: &str = "ailoop.outcome";
    /// Chunks that were published.
    pub const CHUNKS: &str = "ailoop.chunks";
    /// Cost of the call in US dollars. Of a turn: with what it delegated.
    pub const COST: &str = "ailoop.cost.usd";
    /// Cost of a turn in US dollars without what it delegated.
    pub const COST_OWN: &str = "ailoop.cost.own.usd";
    /// The signal's status, or `UNKNOWN`.
    pub const STATUS: &str = "ailoop.continuation.status";
    /// Source of the decision about another step.
    pub const SOURCE: &str = "ailoop.continuation.source";
    /// The step's number within its turn.
    pub const ITERATION: &str = "ailoop.continuation.iteration";
    /// Steps that the turn may have.
    pub const MAX_ITERATIONS: &str = "ailoop.continuation.max_iterations";
    /// Whether another step follows.
    pub const CONTINUES: &str = "ailoop.continuation.continues";
    /// Reason why the turn ended.
    pub const STOP_REASON: &str = "ailoop.stop_reason";
    /// Bytes of a composed prompt.
    pub const PROMPT_BYTES: &str = "ailoop.prompt.bytes";
    /// Parts of a composed prompt.
    pub const PROMPT_COMPONENTS: &str = "ailoop.prompt.components";
}

/// Names of labels of metrics, beside attributes of spans.
pub mod label {
    /// Label: the part of a process that reads the files.
    pub const PART: &str = "part";
    /// Label: `sessions`, `patterns`, `answers`.
    pub const CACHE: &str = "cache";
    /// Label: name of a cell.
    pub const CELL: &str = "cell";
    /// Label: `idle`, `running`, `paused` or `ended`.
    pub const PHASE: &str = "phase";
    /// Label: version of the process.
    pub const VERSION: &str = "version";
    /// Label: commit that the process was built from.
    pub const COMMIT: &str = "commit";
    /// Label: the reason, from a closed list.
    pub const REASON: &str = "reason";
    /// Label: the decision's source.
    pub const SOURCE: &str = "source";
    /// Label: the queue's durable name.
    pub const QUEUE: &str = "queue";
    /// Label: a tenant, or `other`.
    pub const TENANT: &str = "tenant";
    /// Label: a budget of a tenant, such as `day` or `day.e`.
    pub const BUDGET: &str = "budget";
    /// Label: a tool or a model, or `other`.
    pub const RESOURCE: &str = "resource";
    /// Label: `input`, `output`, `cached`, `reasoning`.
    pub const TOKEN_TYPE: &str = "gen_ai.token.type";
    /// Label: a tool call's outcome.
    pub const OUTCOME: &str = "outcome";
    /// Label: protocol of the client, `websocket` or `grpc`.
    pub const PROTOCOL: &str = "protocol";
    /// Label: name of the RPC method.
    pub const METHOD: &str = "method";
    /// Label: `ok` or an error code.
    pub const CODE: &str = "code";
}
