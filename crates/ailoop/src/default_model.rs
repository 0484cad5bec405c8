//! Chooses the model of agents that name none.

use std::time::Duration;

use configuration::models::{MODEL_BY_KEY, ModelsFile, is_key_set};
use serde::Deserialize;

/// Longest wait for a model server on this machine.
const LOCAL_TIMEOUT: Duration = Duration::from_millis(300);
/// Bytes of a server's list of models that are read.
const LIST_BYTES_MAX: usize = 1 << 20;
/// The scripted model, which needs no server and no key.
pub(crate) const REHEARSAL: &str = "rehearsal";
/// Providers of models.yaml whose servers may run on this machine.
const LOCAL_PROVIDERS: &[&str] = &["ollama", "llamacpp"];

/// The chosen model and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelChoice {
    pub(crate) model: String,
    /// The reason for the choice, as one line for people.
    pub(crate) reason: String,
}

impl ModelChoice {
    fn new(model: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { model: model.into(), reason: reason.into() }
    }

    /// Whether replies come from a script.
    pub(crate) fn is_rehearsal(&self) -> bool {
        self.model == REHEARSAL
    }
}

/// What a model is chosen from, in the order of precedence.
#[derive(Debug, Clone, Default)]
pub(crate) struct ModelSources {
    /// The value of `--model`.
    pub(crate) requested: Option<String>,
    /// The default of the configuration.
    pub(crate) configured: Option<String>,
    /// Names of environment variables that hold a key.
    pub(crate) keys: Vec<String>,
}

/// Chooses a model. Model servers on this machine are only asked if nothing else names one.
pub(crate) async fn choose_model(sources: &ModelSources, models: &ModelsFile) -> ModelChoice {
    choose_with_timeout(LOCAL_TIMEOUT, sources, models).await
}

async fn choose_with_timeout(timeout: Duration, sources: &ModelSources, models: &ModelsFile) -> ModelChoice {
    if let Some(choice) = choose_without_server(sources) {
        return choice;
    }
    let (ollama, llamacpp) = tokio::join!(
        find_local_model(timeout, models, LOCAL_PROVIDERS[0]),
        find_local_model(timeout, models, LOCAL_PROVIDERS[1])
    );
    ollama.or(llamacpp).unwrap_or_else(|| {
        ModelChoice::new(
            REHEARSAL,
            "no key and no model server found: replies come from a script, not from a model \
             (set OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY or OPENROUTER_API_KEY, start Ollama, or pass --model)",
        )
    })
}

/// Returns the environment variables that hold a key.
pub(crate) fn find_keys() -> Vec<String> {
    MODEL_BY_KEY.iter().map(|(name, _)| *name).filter(|name| is_key_set(name)).map(str::to_owned).collect()
}

fn choose_without_server(sources: &ModelSources) -> Option<ModelChoice> {
    if let Some(model) = &sources.requested {
        return Some(ModelChoice::new(model, "requested by --model"));
    }
    if let Some(model) = &sources.configured {
        return Some(ModelChoice::new(model, "the configured default"));
    }
    let with_key = MODEL_BY_KEY.iter().find(|(name, _)| sources.keys.iter().any(|key| key == name));
    with_key.map(|(name, model)| ModelChoice::new(*model, format!("{name} is set")))
}

/// Finds the first model of a server on this machine; none if it does not answer in time.
async fn find_local_model(timeout: Duration, models: &ModelsFile, provider: &str) -> Option<ModelChoice> {
    let base = models.providers.get(provider)?.base_url.as_deref()?;
    let model = tokio::time::timeout(timeout, fetch_first_model(base)).await.ok().flatten()?;
    Some(ModelChoice::new(format!("{provider}/{model}"), format!("found at {base}")))
}

#[derive(Deserialize)]
struct ModelList {
    data: Vec<ListedModel>,
}

#[derive(Deserialize)]
struct ListedModel {
    id: String,
}

async fn fetch_first_model(base: &str) -> Option<String> {
    let client = reqwest::Client::builder().no_proxy().build().ok()?;
    let mut response = client.get(format!("{base}/models")).send().await.ok()?.error_for_status().ok()?;
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        body.extend_from_slice(&chunk);
        if body.len() > LIST_BYTES_MAX {
            return None;
        }
    }
    let list: ModelList = serde_json::from_slice(&body).ok()?;
    list.data.into_iter().next().map(|model| model.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use configuration::TextFile;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// Long enough for a busy machine.
    const TEST_TIMEOUT: Duration = Duration::from_mins(1);

    /// A models.yaml whose local servers are at these addresses.
    fn models(ollama: &str, llamacpp: &str) -> ModelsFile {
        let provider = |url: &str| serde_json::json!({"kind": "openai_chat", "base_url": format!("http://{url}/v1")});
        let file = serde_json::json!({"providers": {"ollama": provider(ollama), "llamacpp": provider(llamacpp)}});
        configuration::models::parse(&TextFile { origin: "models.yaml".to_owned(), text: file.to_string() }).unwrap()
    }

    /// Starts a server that answers one request; returns its address.
    async fn start_server(body: &'static str) -> (String, tokio::task::JoinSet<()>) {
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

    /// An address at which nothing listens: no test binds this port.
    fn unused_address() -> String {
        "127.0.0.1:1".to_owned()
    }

    #[test]
    fn choose_several_sources_first_in_precedence_is_chosen() {
        let mut sources = ModelSources { keys: vec!["OPENROUTER_API_KEY".into()], ..ModelSources::default() };
        assert_eq!(choose_without_server(&ModelSources::default()), None);
        assert_eq!(choose_without_server(&sources).unwrap().model, "openrouter/openai/gpt-4o-mini");
        sources.keys.push("OPENAI_API_KEY".into());
        assert_eq!(choose_without_server(&sources).unwrap(), ModelChoice::new("gpt-4o-mini", "OPENAI_API_KEY is set"));
        sources.configured = Some("c".into());
        assert_eq!(choose_without_server(&sources).unwrap().model, "c");
        sources.requested = Some("a".into());
        assert_eq!(choose_without_server(&sources).unwrap().model, "a");
    }

    #[tokio::test]
    async fn choose_local_server_its_first_model_is_chosen() {
        crate::install_crypto();
        let (llama, _server) = start_server(r#"{"object":"list","data":[{"id":"qwen"},{"id":"b"}]}"#).await;
        let choice =
            choose_with_timeout(TEST_TIMEOUT, &ModelSources::default(), &models(&unused_address(), &llama)).await;
        assert_eq!(choice, ModelChoice::new("llamacpp/qwen", format!("found at http://{llama}/v1")));
    }

    #[tokio::test]
    async fn choose_no_source_rehearsal_is_chosen() {
        crate::install_crypto();
        let (other, _server) = start_server("<html>not a model server</html>").await;
        let choice =
            choose_with_timeout(TEST_TIMEOUT, &ModelSources::default(), &models(&unused_address(), &other)).await;
        assert_eq!(choice.model, REHEARSAL);
    }
}
