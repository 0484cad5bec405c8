//! Chooses the model of agents that name none.

use std::time::Duration;

use configuration::models::{ModelsFile, ProviderEntry, REHEARSAL, Resolved};
use serde::Deserialize;

/// Longest wait for a model server on this machine.
const LOCAL_TIMEOUT: Duration = Duration::from_millis(300);
/// Bytes of a server's list of models that are read.
const LIST_BYTES_MAX: usize = 1 << 20;
/// Providers of models.yaml whose servers may run on this machine.
const LOCAL_PROVIDERS: &[&str] = &["ollama", "llamacpp"];

/// The chosen model and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelChoice {
    /// Name of the chosen model.
    pub model: String,
    /// The reason for the choice, as one line for people.
    pub reason: String,
}

impl ModelChoice {
    fn new(model: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { model: model.into(), reason: reason.into() }
    }

    /// Whether the command line names the model.
    pub fn is_requested(&self) -> bool {
        self.reason == REQUESTED
    }

    /// Whether replies come from a script.
    pub fn is_rehearsal(&self) -> bool {
        self.model == REHEARSAL
    }
}

/// Reason of a model that the command line names.
const REQUESTED: &str = "requested by --model";

/// Sources of the choice of a model, in the order of precedence.
#[derive(Debug, Clone, Default)]
pub(crate) struct ModelSources {
    /// The value of `--model`.
    pub(crate) requested: Option<String>,
    /// The default of the configuration.
    pub(crate) configured: Option<String>,
    /// The model of a provider whose key is there.
    pub(crate) with_key: Option<ModelChoice>,
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

/// The model of a provider whose key is there.
pub(crate) fn find_with_key(models: &ModelsFile) -> Option<ModelChoice> {
    models.find_default_model(ProviderEntry::has_key).map(|model| choose_by_key(&model))
}

fn choose_by_key(model: &Resolved) -> ModelChoice {
    let entry = &model.provider_entry;
    let reason = match &entry.api_key_file {
        Some(path) => format!("{} holds a key", path.display()),
        None => format!("{} is set", entry.api_key_env.as_deref().unwrap_or("its key")),
    };
    ModelChoice::new(&model.id, reason)
}

fn choose_without_server(sources: &ModelSources) -> Option<ModelChoice> {
    if let Some(model) = &sources.requested {
        return Some(ModelChoice::new(model, REQUESTED));
    }
    if let Some(model) = &sources.configured {
        return Some(ModelChoice::new(model, "the configured default"));
    }
    sources.with_key.clone()
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
        // The client of the choice does TLS.
        let _already_set = rustls::crypto::ring::default_provider().install_default();
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
        let mut sources = ModelSources::default();
        assert_eq!(choose_without_server(&sources), None);
        sources.with_key = Some(ModelChoice::new("k", "K is set"));
        assert_eq!(choose_without_server(&sources), sources.with_key);
        sources.configured = Some("c".into());
        assert_eq!(choose_without_server(&sources).unwrap().model, "c");
        sources.requested = Some("a".into());
        assert_eq!(choose_without_server(&sources).unwrap().model, "a");
    }

    #[test]
    fn choose_by_key_first_model_that_has_a_provider_with_a_key() {
        let text = "providers:\n  anthropic: {kind: anthropic, base_url: https://a.example/v1, api_key_env: A_KEY}\n  \
                    openai: {kind: openai_chat, base_url: https://o.example/v1, api_key_env: O_KEY}\n  \
                    gemini: {kind: gemini, base_url: https://g.example/v1, api_key_file: /run/keys/g}\n\
                    models:\n  claude: {provider: anthropic}\n  gpt: {provider: openai}\n  gemini: {provider: gemini}\n";
        let file = TextFile { origin: "models.yaml".to_owned(), text: text.to_owned() };
        let models = configuration::models::parse(&file).unwrap();
        let choose = |keys: &[&str]| {
            let has_key = |entry: &ProviderEntry| match &entry.api_key_env {
                Some(name) => keys.contains(&name.as_str()),
                None => keys.contains(&"/run/keys/g"),
            };
            models.find_default_model(has_key).map(|model| choose_by_key(&model))
        };
        assert_eq!(choose(&[]), None);
        assert_eq!(choose(&["A_KEY"]), Some(ModelChoice::new("claude-sonnet-4-5", "A_KEY is set")));
        assert_eq!(choose(&["A_KEY", "O_KEY"]), Some(ModelChoice::new("gpt-4o-mini", "O_KEY is set")));
        let in_file = ModelChoice::new("gemini-2.5-flash", "/run/keys/g holds a key");
        assert_eq!(choose(&["/run/keys/g"]), Some(in_file));
    }

    #[tokio::test]
    async fn choose_local_server_its_first_model_is_chosen() {
        let (llama, _server) = start_server(r#"{"object":"list","data":[{"id":"qwen"},{"id":"b"}]}"#).await;
        let choice =
            choose_with_timeout(TEST_TIMEOUT, &ModelSources::default(), &models(&unused_address(), &llama)).await;
        assert_eq!(choice, ModelChoice::new("llamacpp/qwen", format!("found at http://{llama}/v1")));
    }

    #[tokio::test]
    async fn choose_no_source_rehearsal_is_chosen() {
        let (other, _server) = start_server("<html>not a model server</html>").await;
        let choice =
            choose_with_timeout(TEST_TIMEOUT, &ModelSources::default(), &models(&unused_address(), &other)).await;
        assert_eq!(choice.model, REHEARSAL);
    }
}
