//! Probes a live model for its capabilities, and writes its entry of `models.yaml`.

use std::fmt::Write as _;
use std::time::Duration;

use contract::model::{FailureKind, ItemMeta, ModelItem, SignalForm, Streaming};
use contract::{CallId, Json};
use serde_json::{Map, Value, json};
use service::clock::{Clock as _, SystemClock};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::failure::CallFailure;
use crate::provider::{ProviderRequest, Providers, Route};
use crate::reply::{Delta, ModelReply};

/// Timeout of one question.
const QUESTION_MAX: Duration = Duration::from_mins(2);
/// Maximum tokens of one answer, enough for a model that reasons first.
const ANSWER_TOKENS: u64 = 1_024;
/// JSON pointers to the context window and to the maximum output in descriptions of models.
const CONTEXT_WINDOW_POINTERS: &[&str] = &[
    "/context_window",
    "/context_length",
    "/max_model_len",
    "/max_context_length",
    "/inputTokenLimit",
    "/max_input_tokens",
    "/meta/n_ctx",
    "/meta/n_ctx_train",
];
const MAX_OUTPUT_POINTERS: &[&str] = &[
    "/max_output_tokens",
    "/outputTokenLimit",
    "/max_completion_tokens",
    "/top_provider/max_completion_tokens",
    "/max_tokens",
];

/// Capabilities that a model showed.
#[allow(clippy::struct_excessive_bools, reason = "each is an answer of its own")]
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProbeReport {
    /// Name of the provider in `models.yaml`.
    pub provider: String,
    /// Name of the model at the provider.
    pub upstream: String,
    /// Whether the reply came in several chunks.
    pub streaming: bool,
    /// Time to the first chunk.
    pub first_chunk_after: Option<Duration>,
    /// Whether it calls tools.
    pub tools: bool,
    /// Whether it calls several tools in one reply.
    pub parallel: bool,
    /// Whether its reply follows a JSON Schema.
    pub structured: bool,
    /// Whether it reasons before it answers.
    pub reasoning: bool,
    /// Whether the provider reports usage.
    pub usage: bool,
    /// Tokens of the context window, if the provider reports them.
    pub window: Option<u64>,
    /// Maximum tokens of a reply, if the provider reports them.
    pub output: Option<u64>,
}

struct ProbeReply {
    reply: ModelReply,
    chunks: usize,
    first: Option<Duration>,
}

/// Probes a model of `models.yaml`, or `<provider>/<name>`. `report_line` gets a line for each result.
pub async fn probe(
    providers: &Providers,
    model: &str,
    mut report_line: impl FnMut(&str),
) -> Result<ProbeReport, CallFailure> {
    let route = providers.find_routes(model)?.routes.swap_remove(0);
    let mut report =
        ProbeReport { provider: route.provider.clone(), upstream: route.upstream.clone(), ..ProbeReport::default() };

    // A failure of this question would fail every call, so it ends the probe.
    let answer = ask_model(&route, model, "Reply with the five words: one two three four five.", None, &[]).await?;
    (report.streaming, report.first_chunk_after) = (answer.chunks > 1, answer.first);
    report.usage = answer.reply.usage.is_some();
    report.reasoning |= has_reasoning(&answer.reply);
    let after = answer.first.unwrap_or_default().as_millis();
    report_line(&format!(
        "streaming: {}, the first of {} chunks after {after} ms",
        yes_or_no(report.streaming),
        answer.chunks
    ));
    report_line(&format!("usage: {}", yes_or_no(report.usage)));

    let one = "Call the tool add with a = 2 and b = 40. Do not answer in words.";
    let answer = accept_refusal("tools", ask_model(&route, model, one, None, &[add_tool()]).await, &mut report_line)?;
    report.tools = answer.as_ref().is_some_and(|answer| count_calls(&answer.reply, "add") == 1);
    report.reasoning |= answer.is_some_and(|answer| has_reasoning(&answer.reply));
    report_line(&format!("tools: {}", yes_or_no(report.tools)));

    if report.tools {
        let two = "Call the tool add twice in this one reply, once with a = 1 and b = 2, once with a = 3 and b = 4. \
                   Both calls at once, no words.";
        let answer = accept_refusal(
            "parallel tools",
            ask_model(&route, model, two, None, &[add_tool()]).await,
            &mut report_line,
        )?;
        report.parallel = answer.is_some_and(|answer| count_calls(&answer.reply, "add") >= 2);
        report_line(&format!("parallel tools: {}", yes_or_no(report.parallel)));
    }

    let schema = json!({"type": "json_schema", "json_schema": {"name": "answer", "strict": true, "schema": {
        "type": "object", "additionalProperties": false, "required": ["sum"], "properties": {"sum": {"type": "integer"}}}}});
    let answer = accept_refusal(
        "structured output",
        ask_model(&route, model, "What is 2 + 40?", Some(schema), &[]).await,
        &mut report_line,
    )?;
    report.structured = answer.is_some_and(|answer| {
        serde_json::from_str::<Value>(answer.reply.text.trim()).is_ok_and(|value| value["sum"].is_i64())
    });
    report_line(&format!("structured output: {}", yes_or_no(report.structured)));
    report_line(&format!("reasoning: {}", if report.reasoning { "yes" } else { "not shown" }));

    let description = route.client.describe_model(&route.upstream).await?.unwrap_or_default();
    let number = |names: &[&str]| names.iter().find_map(|name| description.pointer(name)?.as_u64());
    (report.window, report.output) = (number(CONTEXT_WINDOW_POINTERS), number(MAX_OUTPUT_POINTERS));
    let unknown = || "not reported by the provider".to_owned();
    report_line(&format!(
        "context window: {}",
        report.window.map_or_else(unknown, |tokens| format!("{tokens} tokens"))
    ));
    Ok(report)
}

impl ProbeReport {
    /// The entry of the model in `models.yaml`, indented as it is there.
    pub fn to_yaml(&self, id: &str) -> String {
        let mut entry = format!("  {}:\n    provider: {}\n", quote_yaml(id), quote_yaml(&self.provider));
        if self.upstream != id {
            let _ = writeln!(entry, "    model: {}", quote_yaml(&self.upstream));
        }
        if self.parallel {
            entry.push_str("    multi_tool: true\n    max_parallel_tools: 8\n");
        }
        for (name, holds) in [("structured_output", self.structured), ("reasoning", self.reasoning)] {
            if holds {
                let _ = writeln!(entry, "    {name}: true");
            }
        }
        for (name, tokens) in [("context_window", self.window), ("max_output", self.output)] {
            if let Some(tokens) = tokens {
                let _ = writeln!(entry, "    {name}: {tokens}");
            }
        }
        entry
    }
}

/// Accepts that a model refuses an optional capability. Any other failure ends the probe.
fn accept_refusal(
    what: &str,
    answer: Result<ProbeReply, CallFailure>,
    report_line: &mut impl FnMut(&str),
) -> Result<Option<ProbeReply>, CallFailure> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(failure) => match failure.kind {
            FailureKind::BadRequest
            | FailureKind::Empty
            | FailureKind::ProtocolError
            | FailureKind::Refused
            | FailureKind::Unreachable => {
                report_line(&format!("{what}: refused: {failure}"));
                Ok(None)
            }
            FailureKind::RateLimited
            | FailureKind::Overloaded
            | FailureKind::TimedOut
            | FailureKind::Truncated
            | FailureKind::Cancelled
            | FailureKind::ContextLength
            | FailureKind::Quota
            | FailureKind::Auth => Err(failure),
        },
    }
}

async fn ask_model(
    route: &Route,
    model: &str,
    prompt: &str,
    format: Option<Value>,
    tools: &[Value],
) -> Result<ProbeReply, CallFailure> {
    let mut parameters = Map::new();
    parameters.insert("max_tokens".to_owned(), json!(ANSWER_TOKENS));
    let meta = ItemMeta {
        v: contract::commit::VERSION,
        slot: 0,
        turn: 1,
        step: 1,
        call: CallId::model(1, 1),
        attempt: 1,
        deadline: SystemClock.now().after(QUESTION_MAX),
        agent: "probe".to_owned(),
    };
    let item = ModelItem {
        meta,
        model: model.to_owned(),
        messages: vec![Json::of(&json!({"role": "user", "content": prompt}))],
        after: None,
        tools: tools.iter().map(Json::of).collect(),
        parallel_tool_calls: true,
        parameters,
        response_format: format.map(|format| Json::of(&format)),
        signal: SignalForm::Off,
        opened_by: String::new(),
        streaming: Streaming { first_byte: 60, idle: 60, ..Streaming::default() },
    };
    let (send, mut deltas) = mpsc::channel::<Vec<Delta>>(64);
    let Route { provider, upstream, settings, .. } = route;
    let request = ProviderRequest { item: &item, parts: &[], upstream, provider, settings, traceparent: None };
    let began = Instant::now();
    let call = async {
        let send = send;
        route.client.call(&request, &send, &SystemClock).await
    };
    let collect = async {
        let mut answer = ProbeReply { reply: ModelReply::default(), chunks: 0, first: None };
        while let Some(more) = deltas.recv().await {
            for delta in more {
                if matches!(delta, Delta::Text(_) | Delta::Reasoning(_)) {
                    answer.chunks += 1;
                    answer.first.get_or_insert_with(|| began.elapsed());
                }
                answer.reply.add(&delta)?;
            }
        }
        Ok::<_, CallFailure>(answer)
    };
    let both = timeout(QUESTION_MAX, async { tokio::join!(call, collect) }).await;
    let (ended, answer) = both.map_err(|_| CallFailure::new(FailureKind::TimedOut, "no answer within two minutes"))?;
    ended?;
    answer
}

fn add_tool() -> Value {
    json!({"name": "add", "description": "Adds two integers.", "parameters": {"type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"], "additionalProperties": false}})
}

/// Counts the calls of a tool with valid arguments.
fn count_calls(reply: &ModelReply, name: &str) -> usize {
    let usable = |arguments: &str| {
        serde_json::from_str::<Value>(arguments).is_ok_and(|value| value["a"].is_i64() && value["b"].is_i64())
    };
    reply.calls().iter().filter(|call| call.function.name == name && usable(&call.function.arguments)).count()
}

fn has_reasoning(reply: &ModelReply) -> bool {
    !reply.reasoning.is_empty() || reply.usage.is_some_and(|usage| usage.reasoning > 0)
}

fn yes_or_no(holds: bool) -> &'static str {
    if holds { "yes" } else { "no" }
}

/// Quotes a YAML scalar if necessary.
fn quote_yaml(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let begins = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
    if begins && text.chars().all(plain) { text.to_owned() } else { Value::from(text).to_string() }
}

/// Inserts the entry of a model into the text of `models.yaml`, or replaces it there. The rest stays unchanged.
pub fn put_entry(text: &str, id: &str, entry: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let Some(models) = lines.iter().position(|line| line.trim_end() == "models:") else {
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        return format!("{text}{gap}models:\n{entry}");
    };
    let heads = [format!("  {id}:"), format!("  {}:", quote_yaml(id)), format!("  '{id}':")];
    let own = lines
        .iter()
        .skip(models)
        .position(|line| heads.iter().any(|head| line.trim_end() == head))
        .map(|at| at + models);
    let (from, to) = own.map_or((models + 1, models + 1), |from| {
        let belongs = |line: &&&str| line.trim().is_empty() || line.starts_with("   ");
        let mut to = from + 1 + lines[from + 1..].iter().take_while(belongs).count();
        while to > from + 1 && lines[to - 1].trim().is_empty() {
            to -= 1;
        }
        (from, to)
    });
    let mut out: String = lines[..from].iter().flat_map(|line| [line, "\n"]).collect();
    out.push_str(entry);
    out.extend(lines[to..].iter().flat_map(|line| [line, "\n"]));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> ProbeReport {
        let (provider, upstream) = ("p".to_owned(), "Up 1".to_owned());
        ProbeReport {
            provider,
            upstream,
            parallel: true,
            reasoning: true,
            window: Some(8_192),
            ..ProbeReport::default()
        }
    }

    #[test]
    fn entry_written_twice_replaces_the_first() {
        let entry = report().to_yaml("m");
        assert_eq!(
            entry,
            "  m:\n    provider: p\n    model: \"Up 1\"\n    multi_tool: true\n    max_parallel_tools: 8\n    \
             reasoning: true\n    context_window: 8192\n"
        );
        let text =
            "# a\nproviders:\n  p: {kind: x}\n\nmodels:\n  # b\n  m:\n    provider: old\n\n  n:\n    provider: p\n";
        let put_in = put_entry(text, "m", &entry);
        assert!(
            put_in.starts_with("# a\nproviders:\n  p: {kind: x}\n\nmodels:\n  # b\n  m:\n    provider: p\n"),
            "{put_in}"
        );
        assert!(put_in.ends_with("8192\n\n  n:\n    provider: p\n") && !put_in.contains("old"), "{put_in}");
        assert_eq!(put_entry(&put_in, "m", &entry), put_in);
        let new = put_entry(text, "q", "  q:\n    provider: p\n");
        assert!(new.contains("models:\n  q:\n    provider: p\n  # b\n  m:"), "{new}");
        assert_eq!(put_entry("providers: {}", "q", "  q: {}\n"), "providers: {}\nmodels:\n  q: {}\n");
    }
}
