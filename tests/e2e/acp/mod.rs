//! `ailoop acp`: an editor drives sessions of a fleet over stdin and stdout.

mod bad_input;
mod gates;
mod prompts;
mod takeover;
