//! The steps of a session at which a fault may be injected: each is a message between a process and NATS.

use std::fmt;

/// Direction of a message, from the point of view of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    In,
    Out,
}

/// Moment at which the fault is injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before the message is forwarded.
    Before,
    /// After the message was forwarded, before its answer.
    After,
}

/// A step of a session.
#[derive(Debug)]
pub(crate) struct Step {
    /// Name in the report.
    pub(crate) name: &'static str,
    /// Service whose process sends or receives the message.
    pub(crate) service: &'static str,
    pub(crate) direction: Direction,
    pub(crate) moment: Moment,
    /// Prefix of the name of the message; `{s}` is the session. `ack …` is the ack of an item of that name, and
    /// `answer …` the answer to a result that was sent by request.
    pub(crate) message: &'static str,
    /// Index of the message among those with this prefix, from 1.
    pub(crate) nth: u32,
    /// The name of the session is in the body instead of the subject.
    pub(crate) by_body: bool,
}

const fn step(
    service: &'static str,
    name: &'static str,
    at: (Direction, Moment),
    message: &'static str,
    nth: u32,
) -> Step {
    Step { name, service, direction: at.0, moment: at.1, message, nth, by_body: false }
}

const fn by_body(mut step: Step) -> Step {
    step.by_body = true;
    step
}

const COMES: (Direction, Moment) = (Direction::In, Moment::Before);
const LEAVES: (Direction, Moment) = (Direction::Out, Moment::Before);
const HAS_LEFT: (Direction, Moment) = (Direction::Out, Moment::After);

/// Every step, in the order of a session.
pub(crate) const STEPS: &[Step] = &[
    step("edge", "a command is to be stored", LEAVES, "ai_loop.control.start.default.{s}.", 1),
    step("edge", "a command is stored, its client not answered", HAS_LEFT, "ai_loop.control.start.default.{s}.", 1),
    by_body(step("edge", "the notice of a commit comes", COMES, "ai_rpc.done.", 1)),
    step("orchestrator", "a command comes", COMES, "ai_loop.control.start.default.{s}.", 1),
    step("composer", "a prompt is asked for", COMES, "ai_rpc.prompt.compose", 1),
    step("orchestrator", "the first commit is to be written", LEAVES, "ai_loop.log.default.{s}.", 1),
    step("orchestrator", "the first commit is written, unanswered", HAS_LEFT, "ai_loop.log.default.{s}.", 1),
    step(
        "orchestrator",
        "the first events are to be published",
        LEAVES,
        "ai_loop.message.user_processed.default.{s}",
        1,
    ),
    step("orchestrator", "a model call is to be asked for", LEAVES, "ai_loop.model.call.default.{s}.", 1),
    step("orchestrator", "a model call is asked for, unanswered", HAS_LEFT, "ai_loop.model.call.default.{s}.", 1),
    step("orchestrator", "the timer is to be set", LEAVES, "ai_timer.set.default.{s}.", 1),
    by_body(step("orchestrator", "the edge is to be notified", LEAVES, "ai_rpc.done.", 1)),
    step("orchestrator", "a command is to be acknowledged", LEAVES, "ack ai_loop.control.start.default.{s}.", 1),
    step("gateway", "a model call comes", COMES, "ai_loop.model.call.default.{s}.", 1),
    by_body(step("gateway", "asks whether the call is open", LEAVES, "$JS.API.", 1)),
    step("gateway", "the first chunk is to be published", LEAVES, "ai_loop.message.ai_chunk_received.default.{s}", 1),
    step("gateway", "in the middle of a reply", HAS_LEFT, "ai_loop.message.ai_chunk_received.default.{s}", 3),
    step("gateway", "a reply is to be sent", LEAVES, "ai_rpc.result.model_finished.default.{s}.", 1),
    step("gateway", "a reply is sent, unanswered", HAS_LEFT, "ai_rpc.result.model_finished.default.{s}.", 1),
    step("gateway", "a model call is to be acknowledged", LEAVES, "ack ai_loop.model.call.default.{s}.", 1),
    step("orchestrator", "a reply comes", COMES, "ai_rpc.result.model_finished.default.{s}.", 1),
    step("orchestrator", "a reply is to be committed", LEAVES, "ai_loop.log.default.{s}.", 2),
    step("orchestrator", "a reply is committed, unanswered", HAS_LEFT, "ai_loop.log.default.{s}.", 2),
    step("orchestrator", "a tool call is to be asked for", LEAVES, "ai_loop.tool.call.default.pure.{s}.", 1),
    step("orchestrator", "a tool call is asked for, unanswered", HAS_LEFT, "ai_loop.tool.call.default.pure.{s}.", 1),
    step("orchestrator", "a reply is to be answered", LEAVES, "answer ai_rpc.result.model_finished.default.{s}.", 1),
    step("executor", "a repeatable call comes", COMES, "ai_loop.tool.call.default.idempotent.{s}.", 1),
    step("executor", "a call that may run once comes", COMES, "ai_loop.tool.call.default.at_most_once.{s}.", 1),
    step("executor", "a call is to be claimed", LEAVES, "$KV.ai_loop_claims.default.{s}.", 1),
    step("executor", "a call is claimed, unanswered", HAS_LEFT, "$KV.ai_loop_claims.default.{s}.", 1),
    by_body(step("executor", "a repeatable call is to be made", LEAVES, "ai_tool.default.idempotent", 1)),
    by_body(step("executor", "a repeatable call is made", HAS_LEFT, "ai_tool.default.idempotent", 1)),
    by_body(step("executor", "a call that may run once is to be made", LEAVES, "ai_tool.default.at_most_once", 1)),
    by_body(step("executor", "a call that may run once is made", HAS_LEFT, "ai_tool.default.at_most_once", 1)),
    step("executor", "a result is to be sent", LEAVES, "ai_rpc.result.provide_tool_result.default.{s}.", 1),
    step("executor", "a result is sent, unanswered", HAS_LEFT, "ai_rpc.result.provide_tool_result.default.{s}.", 1),
    step("executor", "a tool call is to be acknowledged", LEAVES, "ack ai_loop.tool.call.default.at_most_once.{s}.", 1),
    step("orchestrator", "a result comes", COMES, "ai_rpc.result.provide_tool_result.default.{s}.", 1),
    step("orchestrator", "a later commit is to be written", LEAVES, "ai_loop.log.default.{s}.", 4),
    step("orchestrator", "a later commit is written, unanswered", HAS_LEFT, "ai_loop.log.default.{s}.", 4),
    step(
        "orchestrator",
        "a result is to be answered",
        LEAVES,
        "answer ai_rpc.result.provide_tool_result.default.{s}.",
        1,
    ),
    step(
        "orchestrator",
        "a message for an idle session comes",
        COMES,
        "ai_loop.control.send_user_message.default.{s}.",
        1,
    ),
    // The reply of the second turn is too large for a request in a session of these steps.
    step("gateway", "a large reply is to be stored", LEAVES, "ai_loop.control.model_finished.default.{s}.", 1),
    step("gateway", "a large reply is stored, unanswered", HAS_LEFT, "ai_loop.control.model_finished.default.{s}.", 1),
    step("orchestrator", "a large reply comes", COMES, "ai_loop.control.model_finished.default.{s}.", 1),
    step(
        "orchestrator",
        "a large reply is to be acknowledged",
        LEAVES,
        "ack ai_loop.control.model_finished.default.{s}.",
        1,
    ),
    step("orchestrator", "a stop comes", COMES, "ai_loop.control.stop.default.{s}.", 1),
    step("orchestrator", "a stop is to be acknowledged", LEAVES, "ack ai_loop.control.stop.default.{s}.", 1),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// SIGKILL, and a new process.
    Kill,
    /// SIGSTOP, for longer than the ack wait if it is a service, then SIGCONT.
    Freeze,
    /// SIGTERM, and a new process.
    Restart,
    /// Connections are closed, and refused for a while.
    Cut,
    /// Connections stay open and carry nothing, until the client gives up.
    Silence,
    /// Each message is delayed.
    Slow,
    /// SIGKILL, and a new process with an older copy of the store; of three servers, an older copy of one stream, while
    /// every connection stays.
    OlderStore,
}

/// The process that a fault affects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Target {
    /// The process that takes the step.
    Service,
    /// The process that takes the step, and with it those that hold an item of its session: a worker and the
    /// orchestrator that commits its result. Nobody is left who knows what they have done.
    Holders,
    /// nats-server; of three, the leader of the log stream.
    Server,
}

/// All combinations of target and fault.
pub(crate) const FAULTS: &[(Target, Fault)] = &[
    (Target::Service, Fault::Kill),
    (Target::Service, Fault::Freeze),
    (Target::Service, Fault::Restart),
    (Target::Service, Fault::Cut),
    (Target::Service, Fault::Silence),
    (Target::Service, Fault::Slow),
    (Target::Holders, Fault::Kill),
    (Target::Server, Fault::Kill),
    (Target::Server, Fault::Freeze),
    (Target::Server, Fault::Restart),
    (Target::Server, Fault::Cut),
    (Target::Server, Fault::OlderStore),
];

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "kill",
            Self::Freeze => "freeze",
            Self::Restart => "restart",
            Self::Cut => "cut",
            Self::Silence => "silence",
            Self::Slow => "slow",
            Self::OlderStore => "older store",
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Service => "service",
            Self::Holders => "service and holders",
            Self::Server => "nats-server",
        })
    }
}
