// Tools for the agents of a fleet: functions that are served over NATS. Needs `npm install @nats-io/transport-node`.

export { Call, ToolError } from "./call.js";
export { type Effect, type Tool, tool } from "./definition.js";
export { type ServeOptions, type Serving, serve } from "./serve.js";
