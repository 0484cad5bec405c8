//! Chat completions, as OpenAI, Azure, OpenRouter, vLLM, llama.cpp, Ollama, Groq, Mistral, `DeepSeek` and xAI speak them.

pub mod reply;
pub mod request;
pub mod slots;
