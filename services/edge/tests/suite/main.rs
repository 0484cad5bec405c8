//! The edge over real sockets, with an in-memory bus and a fake loop.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod a2a;
mod access;
mod admission;
mod ag_ui;
mod ag_ui_input;
mod agent_matrix;
mod agents_api;
mod bad_input;
mod cells;
mod commands;
mod connections;
mod console;
mod dead_letters;
#[path = "../../../../crates/edge-ag-ui/src/event_order.rs"]
mod event_order;
mod grpc_messages;
mod http;
mod idle_memory;
mod isolation;
mod listeners;
mod lists;
mod mail;
mod mcp;
mod openai;
mod openapi;
#[path = "../../../../crates/service/tests/suite/own_process.rs"]
mod own_process;
mod responses;
mod scope_matrix;
mod support;
mod tls;
mod tokens;
mod tool_requests;
mod watching;

/// Allocator of the shipped binary, whose memory is measured.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
