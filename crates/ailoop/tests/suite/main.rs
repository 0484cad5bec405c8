//! The command line, its pages, its schemas and the setup script.

#![allow(clippy::disallowed_methods, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod command;
mod dist;
mod image;
mod pages;
mod readme;
mod schemas;
mod setup;
