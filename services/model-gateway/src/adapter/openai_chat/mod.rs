//! Chat completions of OpenAI, Azure, OpenRouter, vLLM, llama.cpp, Ollama, Groq, Mistral, `DeepSeek` and xAI.

pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod slots;
