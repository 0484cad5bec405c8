//! The OpenAI-compatible chat-completions protocol, as OpenAI, OpenRouter, vLLM, llama.cpp and Ollama speak it.
//!
//! [`request`], [`reply`] and [`classify`] are pure; only [`client`] knows HTTP.

pub mod classify;
pub mod client;
pub mod reply;
pub mod request;
pub mod slots;
pub mod wire;
