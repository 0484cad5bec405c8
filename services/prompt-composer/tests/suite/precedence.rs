//! Precedence of layers: built-in < model < agent < session, each template below the fields beside it. There is a row for each two layers and each
//! kind of setting. Each row is checked from the files to the settings that a session commits.

use contract::command::{Start, Verb};
use contract::compose::{ComposeReply, ComposeRequest};
use contract::event::{Event, InputKind, InputRef};
use contract::settings::ContinuationSettings;
use contract::subject::SessionKey;
use contract::{CommandId, SessionId, TenantId, Timestamp};
use prompt_composer::{Catalog, ComposerConfig};
use session::{Body, Input, Session, StartInput};

/// Fields of the `continuation_config` of each layer. Those of the session are JSON.
#[derive(Debug, Clone, Copy, Default)]
struct Layers<'a> {
    model: &'a str,
    agent: &'a str,
    session: &'a str,
}

fn committed(layers: Layers<'_>) -> ContinuationSettings {
    let dir = tempfile::tempdir().unwrap();
    let agents = format!("agents: {{x: {{name: X, prompt_file: x.md, continuation_config: {{{}}}}}}}", layers.agent);
    let models = format!(
        "providers: {{p: {{kind: scripted, script: s}}}}\nmodels: {{m: {{provider: p, continuation_config: {{{}}}}}}}",
        layers.model
    );
    std::fs::write(dir.path().join("agents.yaml"), agents).unwrap();
    std::fs::write(dir.path().join("models.yaml"), models).unwrap();
    let config = ComposerConfig { config_dir: Some(dir.path().to_owned()), ..ComposerConfig::default() };
    let request = serde_json::json!({"tenant": TenantId::default(), "agent": "x", "model": "m"});
    let request: ComposeRequest = serde_json::from_value(request).unwrap();
    let ComposeReply::Composed(composed) = Catalog::read(&config).unwrap().compose(&request) else {
        panic!("{layers:?}")
    };

    let over: serde_json::Value = serde_json::from_str(&format!("{{{}}}", layers.session)).unwrap();
    let start: Start = serde_json::from_value(serde_json::json!({"continuation": over})).unwrap();
    let input = Input {
        parent_command_number: None,
        reference: InputRef { kind: InputKind::Control(Verb::Start), id: CommandId::new("c").unwrap() },
        control_seq: None,
        control_at: None,
        sent: None,
        by: None,
        agents: None,
        traceparent: None,
        tools: None,
        archive_after: contract::limits::ARCHIVE_AFTER,
        compact_after: contract::limits::COMPACT_AFTER,
        body: Body::Start(Box::new(StartInput { start, history: Vec::new(), composed: Ok(composed) })),
    };
    let session = Session::new(SessionKey { tenant: TenantId::default(), session: SessionId::new("s").unwrap() });
    let decision = session.decide(Timestamp::from_millis(1), &[input]);
    let started = decision.events.iter().find_map(|event| {
        let Event::SessionStarted(started) = event else { return None };
        Some(started.agent.continuation.clone())
    });
    started.unwrap_or_else(|| panic!("{layers:?}: {:?}", decision.events))
}

/// The setting that a row checks.
#[derive(Debug)]
enum Expected {
    /// `require_explicit_signal`, which templates also set.
    Explicit(bool),
    /// The value of `max_iterations`.
    Steps(u32),
    /// Both lists of patterns. `ListsOf` names the template that has them.
    Lists(&'static [&'static str], &'static [&'static str]),
    ListsOf(&'static str),
}

fn row(model: &'static str, agent: &'static str, session: &'static str) -> Layers<'static> {
    Layers { model, agent, session }
}

#[test]
fn setting_of_two_layers_upper_layer_wins() {
    use Expected::{Explicit, Lists, ListsOf, Steps};
    let (plain, multi) = ("template: plain_words", "template: multi_step_tool_work");
    let model = "max_iterations: 7, require_explicit_signal: true, patterns: [m1, m2], termination_patterns: [m3]";
    let agent = "max_iterations: 8, require_explicit_signal: false, patterns: [a1, a2], termination_patterns: [a3]";
    let rows = [
        // Built-in < template, named by any layer.
        (row("", "", ""), Explicit(true)),
        (row("", plain, ""), Explicit(false)),
        (row("", plain, ""), ListsOf("plain_words")),
        (row(plain, "", ""), Explicit(false)),
        (row(plain, "", ""), ListsOf("plain_words")),
        // The template of the agent goes over that of the model.
        (row(plain, multi, ""), ListsOf("multi_step_tool_work")),
        // Template < fields of its model < template of the agent.
        (row("template: plain_words, require_explicit_signal: true", "", ""), Explicit(true)),
        (row("template: plain_words, patterns: [m], termination_patterns: []", "", ""), Lists(&["m"], &[])),
        (row("require_explicit_signal: true", plain, ""), Explicit(false)),
        (row("patterns: [m], termination_patterns: []", plain, ""), ListsOf("plain_words")),
        // Template < agent, with the template named by any layer.
        (row("", "template: plain_words, require_explicit_signal: true", ""), Explicit(true)),
        (row(plain, "require_explicit_signal: true", ""), Explicit(true)),
        (row(plain, "patterns: [a], termination_patterns: []", ""), Lists(&["a"], &[])),
        // Model < agent; a field that the agent does not set is the model's.
        (row(model, "", ""), Steps(7)),
        (row(model, agent, ""), Steps(8)),
        (row(model, agent, ""), Explicit(false)),
        (row(model, agent, ""), Lists(&["a1", "a2"], &["a3"])),
        (row(model, "patterns: []", ""), Lists(&[], &["m3"])),
        // Agent < session; a field that the session does not set is the agent's.
        (row(model, agent, r#""max_iterations": 9"#), Steps(9)),
        (row(model, agent, r#""require_explicit_signal": true"#), Explicit(true)),
        (row(model, agent, r#""continuation_patterns": ["s"], "termination_patterns": []"#), Lists(&["s"], &[])),
        (row(model, agent, r#""termination_patterns": []"#), Lists(&["a1", "a2"], &[])),
    ];
    for (layers, wins) in rows {
        let got = committed(layers);
        let lists = (got.continuation_patterns.clone(), got.termination_patterns.clone());
        let right = match &wins {
            Explicit(explicit) => got.require_explicit_signal == *explicit,
            Steps(steps) => got.max_iterations == *steps,
            Lists(more, done) => lists.0 == *more && lists.1 == *done,
            ListsOf(name) => {
                let template = reply::template(name).unwrap();
                lists == (template.continuation_patterns, template.termination_patterns)
            }
        };
        assert!(right, "{layers:?} should come to {wins:?}, and is {got:#?}");
    }
    assert_eq!(committed(Layers::default()), ContinuationSettings::default(), "where nobody says anything");
}

#[test]
fn limits_of_agent_and_model_are_merged_one_by_one() {
    let check = |model: &str, agent: &str, tokens: Option<u64>, cost: Option<f64>, repetition: u32| {
        let limits = committed(Layers { model, agent, session: "" }).limits;
        assert_eq!(
            (limits.tokens, limits.cost_usd, limits.repetition),
            (tokens, cost, repetition),
            "{model} | {agent}"
        );
    };
    check("", "", None, None, 3);
    check("limits: {tokens: 9, cost_usd: 0.5}", "", Some(9), Some(0.5), 3);
    check("limits: {tokens: 9, cost_usd: 0.5}", "limits: {tokens: 8, repetition: 0}", Some(8), Some(0.5), 0);
    check("limits: {tokens: 9, cost_usd: 0.5}", "limits: {tokens: null}", None, Some(0.5), 3);
    check("limits: {repetition: 5}", "limits:", None, None, 5);
}
