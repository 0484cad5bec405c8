//! Resolution of model ids, and mistakes for which `models.yaml` is refused.

use configuration::ConfigError;
use configuration::models::{self, ModelsFile};
use configuration::{Paths, TextFile};

fn parse(text: &str) -> Result<ModelsFile, ConfigError> {
    models::parse(&TextFile { origin: "models.yaml".to_owned(), text: text.to_owned() })
}

const TEXT: &str = "
providers:
  one: {kind: openai_chat, base_url: 'http://one/v1/'}
  two: {kind: scripted, script: s.yaml}
models:
  gpt: {provider: one, max_parallel_tools: 9}
  gpt-4o: {provider: one, model: gpt-4o-2024, multi_tool: true, max_parallel_tools: 8, context_window: 128000}
  play: {provider: two, model: script}
";

#[test]
fn resolution() {
    let models = parse(TEXT).unwrap();
    let check = |id: &str, provider: &str, upstream: &str, parallel: u32| {
        let found = models.resolve(id).unwrap();
        assert_eq!((found.provider.as_str(), found.upstream.as_str()), (provider, upstream), "{id}");
        assert_eq!(found.settings().id, id);
        assert_eq!(found.settings().max_parallel_tools, parallel, "{id}");
    };
    check("gpt-4o", "one", "gpt-4o-2024", 8);
    check("gpt-4o-mini", "one", "gpt-4o-mini", 8);
    check("gpt-5", "one", "gpt-5", 1);
    check("play", "two", "script", 1);
    check("one/meta/llama:8b", "one", "meta/llama:8b", 1);
    assert_eq!(models.resolve("gpt").unwrap().provider_entry.base_url.as_deref(), Some("http://one/v1"));
    for id in ["claude", "three/x", "one/", "", "one"] {
        let error = models.resolve(id).unwrap_err().to_string();
        assert!(error.contains("gpt, gpt-4o, play") && error.contains("(one, two)"), "{error}");
    }
}

#[test]
fn refused() {
    let check = |text: &str, expect: &str| {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with(expect), "{text}\n  got:    {error}\n  expect: {expect}");
    };
    check("models:\n  m: {provider: p}\n", "models.yaml:2:17: model m names the provider \"p\"");
    check("providers:\n  p: {kind: openai_chat}\n", "models.yaml:2:13: provider p needs a base_url");
    check(
        "providers:\n  p: {kind: openai_chat, base_url: 'file:///x'}\n",
        "models.yaml:2:36: provider p needs a base_url",
    );
    check("providers:\n  p: {kind: scripted}\n", "models.yaml:2:13: provider p needs a script");
    check("providers:\n  p: {kind: magic}\n", "models.yaml:2:");
    check("providers:\n  p: {kind: scripted, script: x, api_key: secret}\n", "models.yaml:2:");
    let model = |fields: &str| {
        format!("providers:\n  p: {{kind: scripted, script: x}}\nmodels:\n  m: {{provider: p, {fields}}}\n")
    };
    check(&model("max_parallel_tools: 0"), "models.yaml:4:40: model m: max_parallel_tools must be at least 1");
    check(&model("reasoning: 1.5"), "models.yaml:4:");
    check(&model("continuation_config: {max_iteration: 1}"), "models.yaml:4:42: ");
    check(
        &model("continuation_config: {max_iterations: 0}"),
        "models.yaml:4:58: max_iterations must be 1 to 200, got 0",
    );
    check(&model("continuation_config: {timeout: 0}"), "models.yaml:4:51: timeout must be 1 to 604800 seconds, got 0");
    let many = vec![r"'\w{1,9}'"; 32].join(", ");
    check(&model(&format!("continuation_config: {{patterns: [{many}]}}")), "models.yaml:4:52: continuation_patterns[");
    check(&model("continuation_config: {patterns: ['a(']}"), "models.yaml:4:53: pattern \"a(\" cannot be used");
    check("default: x\n", "models.yaml:1:10: there is no model \"x\"");
}

#[test]
fn fallbacks() {
    let models = parse(
        "providers:\n  p: {kind: scripted, script: x}\nmodels:\n  \
           gpt: {provider: p, fallbacks: [small, gpt-5, p/direct]}\n  \
           small: {provider: p, reasoning: true, multi_tool: true, max_parallel_tools: 4, fallbacks: [gpt]}\n",
    )
    .unwrap();
    let check = |id: &str, expect: &[&str]| {
        let found = models.fallbacks(&models.resolve(id).unwrap());
        let ids: Vec<&str> = found.iter().map(|model| model.id.as_str()).collect();
        assert_eq!(ids, expect, "{id}");
        found.iter().map(configuration::models::Resolved::settings).collect::<Vec<_>>()
    };
    // Those of `small` are not followed.
    let found = check("gpt", &["small", "gpt-5", "p/direct"]);
    assert_eq!((found[0].reasoning, found[0].max_parallel_tools), (true, 4));
    assert_eq!((found[1].reasoning, found[1].multi_tool, found[2].multi_tool), (false, false, false));
    check("gpt-5", &["small", "p/direct"]);
    check("small", &["gpt"]);
    check("p/direct", &[]);
}

#[test]
fn fallbacks_that_are_refused() {
    let check = |list: &str, expect: &str| {
        let text = format!(
            "providers:\n  p: {{kind: scripted, script: x}}\nmodels:\n  n: {{provider: p}}\n  \
               m:\n    provider: p\n    fallbacks: [{list}]\n"
        );
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.starts_with(expect), "{text}\n  got:    {error}\n  expect: {expect}");
    };
    check(
        "n, x",
        "models.yaml:7:20: model m cannot fall back: there is no model \"x\" in models.yaml; there are m, n,",
    );
    check("n, m", "models.yaml:7:20: model m is its own fallback; name another model");
    check("n, n", "models.yaml:7:20: model m names the fallback n twice");
    check("n, 'p/'", "models.yaml:7:20: model m cannot fall back: ");
    let nine = "p/1, p/2, p/3, p/4, p/5, p/6, p/7, p/8, p/9";
    check(nine, "models.yaml:7:57: model m has 9 fallbacks; at most 8");
    check("{a: b}", "models.yaml:7:17: ");
}

#[test]
fn unusual_value_is_a_warning_with_its_position() {
    let text = "providers:\n  p: {kind: scripted, script: x}\nmodels:\n  m: {provider: p, continuation_config: {timeout: 1}}\n";
    assert_eq!(parse(text).unwrap().warnings, ["models.yaml:4:51: timeout 1 s is unusual; 60 to 3600 is usual"]);
}

#[test]
fn keys() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("key");
    std::fs::write(&path, "sk-1\n").unwrap();
    let provider = |more: &str| {
        let text = format!("providers:\n  p: {{kind: openai_chat, base_url: 'http://x', {more}}}\n");
        parse(&text).unwrap().providers["p"].clone()
    };
    assert_eq!(provider("").api_key().unwrap(), None);
    let key = provider(&format!("api_key_file: '{}'", path.display())).api_key().unwrap().unwrap();
    assert_eq!((key.expose(), format!("{key:?}").as_str()), ("sk-1", "[secret]"));
    let missing = provider("api_key_env: AILOOP_TEST_NO_SUCH_KEY").api_key().unwrap_err();
    assert_eq!(missing.to_string(), "the environment variable AILOOP_TEST_NO_SUCH_KEY is not set");
    assert!(matches!(provider("api_key_file: /no/such").api_key(), Err(ConfigError::Unreadable { .. })));
}

#[test]
fn shipped_models_file_is_valid() {
    let models = models::load(&Paths::default()).unwrap();
    assert_eq!(models.default, None);
    assert!(models.resolve("rehearsal").unwrap().settings().multi_tool);
    for id in ["gpt-4o-mini", "openrouter/openai/gpt-4o-mini", "ollama/qwen3:8b", "llamacpp/any"] {
        assert!(models.resolve(id).is_ok(), "{id}");
    }
}
