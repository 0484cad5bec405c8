//! Chat completions, as OpenAI, Azure, OpenRouter, vLLM, llama.cpp, Ollama, Groq, Mistral, `DeepSeek` and xAI speak them.

pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod slots;
