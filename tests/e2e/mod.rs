//! Ring 5: the whole fleet through its public interfaces: the command, the client API, tools and models.

mod a2a;
mod acp;
mod ag_ui;
mod backup;
mod bad_input;
mod client_tools;
mod contexts;
mod control;
mod delegate;
mod erase;
#[path = "../../services/edge/src/ag_ui/event_order.rs"]
mod event_order;
mod events;
mod example;
mod failures;
mod gates;
mod judged;
mod kills;
mod language;
mod look;
mod mail;
mod mcp;
mod openai;
mod operate;
mod providers;
mod python_tool;
mod reload;
mod resume;
mod rust_client;
mod scenarios;
mod storage;
mod survey;
mod tool_hosts;
mod tools;
mod trace;
mod workspace;
