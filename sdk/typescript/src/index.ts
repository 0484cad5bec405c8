// Client of ailoop, which runs sessions of AI agents as services.

export { Api } from "./api.js";
export { Client, type StartOptions } from "./client.js";
export { type ClientCall, type ClientTool, clientTool } from "./client-tool.js";
export * from "./errors.js";
export { type Event, hasTopic } from "./event.js";
export type { ApprovalAnswer, Decision, Gate, GateCallbacks, OnApproval, OnQuestion, QuestionAnswer } from "./gates.js";
export { type Content, type MessageOptions, Session } from "./session.js";
export type { TransportOptions } from "./transport.js";
export { Turn, type TurnResult } from "./turn.js";
export type * from "./types.js";
