//! Which model is used when nobody names one.

use std::time::Duration;

use serde::Deserialize;
use service::models::ModelsFile;

/// How long a model server on this machine may take to answer.
const ANSWER_MAX: Duration = Duration::from_millis(300);
/// Bytes of its list of models.
const LIST_BYTES_MAX: usize = 1 << 20;
/// The model that needs no server and no key.
pub const REHEARSAL: &str = "rehearsal";
/// What a key speaks for: its variable, and the model.
const BY_KEY: &[(&str, &str)] = &[
    ("OPENAI_API_KEY", "gpt-4o-mini"),
    ("ANTHROPIC_API_KEY", "claude-sonnet-4-5"),
    ("GEMINI_API_KEY", "gemini-2.5-flash"),
    ("OPENROUTER_API_KEY", "openrouter/openai/gpt-4o-mini"),
];
/// Servers that may run on this machine: providers of models.yaml.
const LOCAL: &[&str] = &["ollama", "llamacpp"];

/// A model and why it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Its id.
    pub model: String,
    /// Why, as one line for people.
    pub why: String,
}

impl Choice {
    fn new(model: impl Into<String>, why: impl Into<String>) -> Self {
        Self { model: model.into(), why: why.into() }
    }

    /// Whether replies come from the script.
    pub fn is_rehearsal(&self) -> bool {
        self.model == REHEARSAL
    }
}

/// What there is to choose from, in the order in which it is looked at.
#[derive(Debug, Clone, Default)]
pub struct Offers {
    /// `--model`.
    pub asked: Option<String>,
    /// The default of the configuration.
    pub configured: Option<String>,
    /// Names of environment variables that hold a key.
    pub keys: Vec<String>,
}

/// Chooses; model servers on this machine are asked only when nothing else has spoken.
pub async fn choose(offers: &Offers, models: &ModelsFile) -> Choice {
    choose_within(ANSWER_MAX, offers, models).await
}

async fn choose_within(answer_max: Duration, offers: &Offers, models: &ModelsFile) -> Choice {
    if let Some(choice) = spoken(offers) {
        return choice;
    }
    let (ollama, llamacpp) = tokio::join!(local(answer_max, models, LOCAL[0]), local(answer_max, models, LOCAL[1]));
    ollama.or(llamacpp).unwrap_or_else(|| {
        Choice::new(
            REHEARSAL,
            "no key and no model server found: replies come from a script, not from a model \
             (set OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY or OPENROUTER_API_KEY, start Ollama, or pass --model)",
        )
    })
}

/// The environment variables that hold a key.
pub fn keys() -> Vec<String> {
    let set = |name: &str| service::config::env(name).is_some_and(|key| !key.trim().is_empty());
    BY_KEY.iter().map(|(name, _)| *name).filter(|name| set(name)).map(str::to_owned).collect()
}

fn spoken(offers: &Offers) -> Option<Choice> {
    if let Some(model) = &offers.asked {
        return Some(Choice::new(model, "as asked"));
    }
    if let Some(model) = &offers.configured {
        return Some(Choice::new(model, "the configured default"));
    }
    let held = BY_KEY.iter().find(|(name, _)| offers.keys.iter().any(|key| key == name));
    held.map(|(name, model)| Choice::new(*model, format!("{name} is set")))
}

/// The first model of a server on this machine; none when it does not answer in time.
async fn local(answer_max: Duration, models: &ModelsFile, provider: &str) -> Option<Choice> {
    let base = models.providers.get(provider)?.base_url.as_deref()?;
    let model = tokio::time::timeout(answer_max, first_model(base)).await.ok().flatten()?;
    Some(Choice::new(format!("{provider}/{model}"), format!("found at {base}")))
}

#[derive(Deserialize)]
struct List {
    data: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    id: String,
}

async fn first_model(base: &str) -> Option<String> {
    let client = reqwest::Client::builder().no_proxy().build().ok()?;
    let mut answer = client.get(format!("{base}/models")).send().await.ok()?.error_for_status().ok()?;
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await.ok()? {
        body.extend_from_slice(&piece);
        if body.len() > LIST_BYTES_MAX {
            return None;
        }
    }
    let list: List = serde_json::from_slice(&body).ok()?;
    list.data.into_iter().next().map(|model| model.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use service::paths::TextFile;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// Long enough for a busy machine.
    const PATIENCE: Duration = Duration::from_mins(1);

    /// A models.yaml whose local servers are at these addresses.
    fn models(ollama: &str, llamacpp: &str) -> ModelsFile {
        let provider = |url: &str| serde_json::json!({"kind": "openai_chat", "base_url": format!("http://{url}/v1")});
        let file = serde_json::json!({"providers": {"ollama": provider(ollama), "llamacpp": provider(llamacpp)}});
        service::models::parse(&TextFile { origin: "models.yaml".to_owned(), text: file.to_string() }).unwrap()
    }

    /// A server that answers one request; its address.
    async fn answering(body: &'static str) -> (String, tokio::task::JoinSet<()>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut request = [0; 1_024];
            let _ = socket.read(&mut request).await.unwrap();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            socket.write_all((head + body).as_bytes()).await.unwrap();
        });
        (address, tasks)
    }

    /// Nobody listens on this port, and no test may.
    fn nobody() -> String {
        "127.0.0.1:1".to_owned()
    }

    #[test]
    fn the_first_that_speaks_is_heard() {
        let mut offers = Offers { keys: vec!["OPENROUTER_API_KEY".into()], ..Offers::default() };
        assert_eq!(spoken(&Offers::default()), None);
        assert_eq!(spoken(&offers).unwrap().model, "openrouter/openai/gpt-4o-mini");
        offers.keys.push("OPENAI_API_KEY".into());
        assert_eq!(spoken(&offers).unwrap(), Choice::new("gpt-4o-mini", "OPENAI_API_KEY is set"));
        offers.configured = Some("c".into());
        assert_eq!(spoken(&offers).unwrap().model, "c");
        offers.asked = Some("a".into());
        assert_eq!(spoken(&offers).unwrap().model, "a");
    }

    #[tokio::test]
    async fn a_server_on_this_machine_is_found() {
        crate::install_crypto();
        let (llama, _server) = answering(r#"{"object":"list","data":[{"id":"qwen"},{"id":"b"}]}"#).await;
        let choice = choose_within(PATIENCE, &Offers::default(), &models(&nobody(), &llama)).await;
        assert_eq!(choice, Choice::new("llamacpp/qwen", format!("found at http://{llama}/v1")));
    }

    #[tokio::test]
    async fn without_anything_it_is_the_rehearsal() {
        crate::install_crypto();
        let (other, _server) = answering("<html>not a model server</html>").await;
        let choice = choose_within(PATIENCE, &Offers::default(), &models(&nobody(), &other)).await;
        assert_eq!(choice.model, REHEARSAL);
    }
}
