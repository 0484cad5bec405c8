//! Compares the JSON Schemas of configuration files with their parsers. `UPDATE_GOLDEN=1` writes the schemas.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use config_check::ConfigFile;
use configuration::TextFile;
use jsonschema::Validator;
use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn validator(file: ConfigFile) -> Validator {
    jsonschema::validator_for(&file.schema()).unwrap()
}

/// A file as its schema sees it.
fn value(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn shipped(file: ConfigFile) -> String {
    std::fs::read_to_string(root().join(format!("config/{file}.yaml"))).unwrap()
}

#[test]
fn committed_schemas_are_those_of_the_types() {
    for file in ConfigFile::ALL {
        let path = root().join(format!("docs/reference/schemas/{file}.schema.json"));
        let text = format!("{}\n", serde_json::to_string_pretty(&file.schema()).unwrap());
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, text).unwrap();
            continue;
        }
        let page = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(text == page, "{} differs from the schema of the types: UPDATE_GOLDEN=1 writes it", path.display());
    }
}

#[test]
fn shipped_configuration_is_valid() {
    for file in ConfigFile::ALL {
        let (value, validator) = (value(&shipped(file)), validator(file));
        let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        assert_eq!(errors, Vec::<String>::new(), "{file}");
    }
}

#[test]
fn every_section_is_in_the_schema_and_no_other() {
    let schema = ConfigFile::Ailoop.schema();
    let sections: BTreeSet<&str> = schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(sections, configuration::settings::SECTIONS.iter().copied().collect());
}

#[test]
fn schema_value_with_mistake_is_refused() {
    use ConfigFile::{Agents, Ailoop, Models};
    let agent = |fields: &str| format!("agents: {{x: {{name: X, prompt_file: x.md, {fields}}}}}");
    let continuation = |fields: &str| agent(&format!("continuation_config: {{{fields}}}"));
    let model = |fields: &str| {
        format!("providers: {{p: {{kind: scripted, script: s}}}}\nmodels: {{m: {{provider: p, {fields}}}}}")
    };
    let check = |file: ConfigFile, text: &str, expect: bool| {
        assert_eq!(validator(file).is_valid(&value(text)), expect, "{file}: {text}");
    };
    for (text, expect) in [
        (agent("model: gpt"), true),
        (agent("modle: gpt"), false),
        (agent("model: [gpt]"), false),
        (agent("prompt_file: ../x.md").replace("prompt_file: x.md, ", ""), false),
        (agent("features: {enabled: [x]}"), false),
        (continuation("max_iterations: 1"), true),
        (continuation("max_iterations: 200, timeout: 1"), true),
        (continuation("max_iterations: 0"), false),
        (continuation("max_iterations: 201"), false),
        (continuation("max_iterations: five"), false),
        (continuation("timeout: 0"), false),
        (continuation("patterns: [a], on_limit: ask"), true),
        (continuation("continuation_patterns: []"), true),
        (continuation("patterns: a"), false),
        (continuation("on_limit: stop"), false),
        (continuation("template: plain_words"), true),
        (continuation("template: 1.5"), false),
        (continuation("judge: small, confidence_min: 0.5"), true),
        (continuation("confidence_min: 2"), false),
        (continuation("limits: {tokens: null, cost_usd: 0.5}"), true),
        (continuation("limits: {token: 1}"), false),
        ("default_agent: a".to_owned(), false),
    ] {
        check(Agents, &text, expect);
    }
    for (text, expect) in [
        (model("multi_tool: true, fallbacks: [p/x]"), true),
        (model("continuation_config: {max_iterations: 3}"), true),
        (model("continuation_config: {max_iterations: 0}"), false),
        (model("fallbacks: [1, 2, 3, 4, 5, 6, 7, 8, 9]"), false),
        (model("fallbacks: p/x"), false),
        (model("max_parallel_tools: 0"), false),
        (model("multitool: true"), false),
        ("providers: {p: {kind: magic}}".to_owned(), false),
        ("providers: {p: {kind: openai_chat}}".to_owned(), false),
        ("providers: {p: {kind: scripted}}".to_owned(), false),
        ("providers: {p: {kind: openai_chat, base_url: 'file:///x'}}".to_owned(), false),
        ("providers: {p: {kind: openai_chat, api_key: x}}".to_owned(), false),
        ("models: {m: {}}".to_owned(), false),
    ] {
        check(Models, &text, expect);
    }
    for (text, expect) in [
        ("", false),
        ("{}", true),
        ("edge: {ws: {listen: '127.0.0.1:1'}}\nnats:\ndrain_timeout: 3", true),
        ("composer: {features: [a], prompts_dir: /x}", true),
        ("composer: {follows: /x}", false),
        ("egde: {}", false),
        ("gateway: {concurrency: -1}", false),
        ("gateway: {concurrency: many}", false),
        ("telemetry: {log: yaml}", false),
        ("tool_host: {files: {out: x}}", false),
        ("tool_host: {files: {root: x, login: {credentials: files.creds}}}", true),
    ] {
        check(Ailoop, text, expect);
    }
}

/// Returns the JSON pointers of all parts of a value.
fn list_pointers(value: &Value) -> Vec<String> {
    let mut found = vec![String::new()];
    let below = |key: &str, value: &Value| -> Vec<String> {
        let key = key.replace('~', "~0").replace('/', "~1");
        list_pointers(value).into_iter().map(|rest| format!("/{key}{rest}")).collect()
    };
    match value {
        Value::Object(fields) => found.extend(fields.iter().flat_map(|(key, value)| below(key, value))),
        Value::Array(items) => {
            found.extend(items.iter().enumerate().flat_map(|(index, item)| below(&index.to_string(), item)));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    found
}

/// Changes one part of the value at a time: another type, another value, one key more, one key less.
fn make_changes(whole: &Value) -> Vec<(String, String, Value)> {
    let mut all = Vec::new();
    for pointer in list_pointers(whole) {
        let mut with = |what: String, change: &dyn Fn(&mut Value)| {
            let mut other = whole.clone();
            change(other.pointer_mut(&pointer).unwrap());
            all.push((pointer.clone(), what, other));
        };
        for value in
            [json!(null), json!(true), json!(0), json!(7), json!(-1), json!(0.5), json!("word"), json!([]), json!({})]
        {
            with(format!("= {value}"), &|at| *at = value.clone());
        }
        let Some(fields) = whole.pointer(&pointer).and_then(Value::as_object) else { continue };
        with("with another key".to_owned(), &|at| {
            at.as_object_mut().unwrap().insert("other".to_owned(), json!("word"));
        });
        for key in fields.keys() {
            with(format!("without {key}"), &|at| {
                at.as_object_mut().unwrap().remove(key);
            });
        }
    }
    all
}

/// A parser; only its success or failure is used.
type Parses = fn(&TextFile) -> Result<(), String>;

/// Changes each part of files that have every key. The schema refuses what the parser refuses, with two exceptions: it
/// also refuses numbers and booleans in the place of a text, and it accepts names of things that do not exist.
#[test]
fn schema_and_parser_agree_about_every_change() {
    let agents = r#"
default_agent: x
tool_sets: {files: [read_file]}
continuation_templates: {calm: {template: plain_words, max_iterations: 3}}
tenants: {acme: {continuation_config: {timeout: 9}, features: {enable: [mailbox]}, ai_config: {tool_preamble: t}}}
agents:
  x:
    name: Xaver
    prompt_file: x.md
    model: m
    tools: {sets: [files], allow: ["*"], deny: [rm]}
    features: {enable: [mailbox], disable: [zoo]}
    continuation_config:
      template: plain_words
      enabled: true
      require_explicit_signal: true
      max_iterations: 5
      timeout: 300
      continue_on_length: true
      continuation_patterns: [a]
      termination_patterns: [b]
      limits: {tokens: 5, cost_usd: 0.5, tool_calls: 5, repetition: 5, no_progress: 5}
      detect_intent: true
      confidence_min: 0.5
      judge: m
      on_limit: ask
      on_error: fallback
      retries: 2
      prune: drop
"#;
    let models = r#"
default: m
providers:
  p: {kind: openai_chat, base_url: "http://x", api_key_env: K, api_key_file: /k, headers: {a: b}}
  s: {kind: scripted, script: s.yaml}
models:
  m:
    provider: p
    model: up
    multi_tool: true
    max_parallel_tools: 4
    structured_output: true
    reasoning: true
    context_window: 1000
    max_output: 100
    prompt_variant: fam
    prices: {input: 1, cached: 0.5, output: 2}
    fallbacks: [s/x]
    continuation_config: {max_iterations: 5}
"#;
    let files: [(ConfigFile, &str, Parses); 2] = [
        (ConfigFile::Agents, agents, |file| {
            prompt_composer::agents::parse(file).map(drop).map_err(|error| error.to_string())
        }),
        (ConfigFile::Models, models, |file| {
            configuration::models::parse(file).map(drop).map_err(|error| error.to_string())
        }),
    ];
    for (file, text, parses) in files {
        let (whole, validator) = (value(text), validator(file));
        let changes = make_changes(&whole);
        assert!(changes.len() > 300, "{file}: {}", changes.len());
        for (place, what, changed) in changes {
            // JSON is YAML.
            let text = serde_json::to_string_pretty(&changed).unwrap();
            let parsed = parses(&TextFile { origin: format!("{file}.yaml"), text });
            match (parsed, validator.is_valid(&changed)) {
                (Ok(()), true) | (Err(_), false) => {}
                (Ok(()), false) => {
                    let (before, after) = (whole.pointer(&place), changed.pointer(&place));
                    let texts = before.is_some_and(Value::is_string)
                        && after.is_some_and(|after| after.is_number() || after.is_boolean());
                    assert!(texts, "{file}: {place} {what} is good, and the schema refuses it");
                }
                (Err(error), true) => {
                    let unknown = ["there is no ", "which is not there"].iter().any(|word| error.contains(word));
                    assert!(unknown, "{file}: {place} {what} is refused, and the schema takes it: {error}");
                }
            }
        }
    }
}
