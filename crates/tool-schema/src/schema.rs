//! The schemas of the tools that are known: arguments are checked against them before a tool is called.
//!
//! Tools describe themselves, and models write the arguments: neither may stop an executor. A schema is measured before it
//! is compiled, arguments are measured against it before they are validated, and both end with an error that names cost
//! and limit. Large arguments are validated on a few threads of their own, and a call waits for that with a time limit.

mod cost;

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use contract::limits::{TOOL_ARGUMENTS_BYTES_MAX, VALIDATION_MAX, VALIDATIONS_MAX};
use contract::{ErrorCode, Json, TenantId, ToolName};
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use cost::{Cost, NESTING_MAX, Steps};

/// Violations that are told; the model mends them and the next call shows the others.
const VIOLATIONS_MAX: usize = 5;
/// Bytes of one violation's text, which quotes the arguments.
const VIOLATION_BYTES_MAX: usize = 300;
/// Bytes of a compiled pattern of a schema.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Steps back of one match of a pattern that looks around or back.
const BACKTRACKS_MAX: usize = 10_000;
/// Steps, and steps times nesting, up to which all violations are collected, each with its place: they take memory, and
/// the validator repeats itself at every choice between subschemas. Beyond, only that there are some is said.
const VIOLATION_STEPS_MAX: u64 = 50_000;
const VIOLATION_WORK_MAX: u64 = 2_000_000;
/// Bytes and steps up to which arguments are validated at once: the way to another thread would take longer.
const SMALL_BYTES_MAX: usize = 16 << 10;
const SMALL_STEPS_MAX: u64 = 2_000;
const SMALL_NESTING_MAX: u32 = 64;
/// Stack of a thread that compiles or validates: enough for [`NESTING_MAX`], also without optimisation.
const STACK_BYTES: usize = 64 << 20;

type Key = (TenantId, ToolName);

/// Compiled schemas by tool; shared by the catalogue, which learns them, and the calls.
#[derive(Debug, Clone)]
pub(crate) struct Schemas {
    known: Arc<RwLock<HashMap<Key, Schema>>>,
    /// Tools that answered a poll of this process.
    answered: Arc<RwLock<HashSet<Key>>>,
    /// Whether there was one.
    polled: watch::Sender<bool>,
    /// Permits for threads that validate. A thread keeps its permit to its own end, not to that of the call.
    threads: Arc<Semaphore>,
}

/// One tool's schema, compiled.
#[derive(Debug, Clone)]
pub struct Schema {
    inner: Arc<Compiled>,
}

#[derive(Debug)]
struct Compiled {
    text: Json,
    schema: Value,
    cost: Cost,
    validator: Validator,
}

/// Why arguments do not reach a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: ErrorCode,
    /// For the model.
    pub(crate) text: String,
}

impl Refusal {
    pub(crate) fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

impl Schema {
    /// Measures and compiles a schema; the error says why it cannot be used. Nothing is fetched for it.
    pub fn compile(schema: &Json) -> Result<Self, String> {
        let compile = || Self::compile_here(schema);
        on_large_stack(compile).unwrap_or_else(|error| Err(format!("the schema cannot be compiled: {error}")))
    }

    fn compile_here(schema: &Json) -> Result<Self, String> {
        let unusable = |error: String| format!("the schema cannot be used: {error}");
        let value: Value = serde_json::from_str(schema.get()).map_err(|error| unusable(error.to_string()))?;
        let cost = cost::measure(&value).map_err(unusable)?;
        let validator = build(&value).map_err(unusable)?;
        Ok(Self { inner: Arc::new(Compiled { text: schema.clone(), schema: value, cost, validator }) })
    }

    /// Checks arguments; the error is for the model.
    pub fn check(&self, arguments: &Json) -> Result<(), String> {
        self.check_arguments(arguments).map_err(|refusal| refusal.text)
    }

    fn check_arguments(&self, arguments: &Json) -> Result<(), Refusal> {
        within_size(arguments)?;
        let check = || self.check_value(&object(arguments)?, "arguments");
        on_large_stack(check).unwrap_or_else(|error| Err(unchecked(&error)))
    }

    /// Checks a value; the caller has stack for [`NESTING_MAX`]. `what` it is stands in the error.
    fn check_value(&self, value: &Value, what: &str) -> Result<(), Refusal> {
        let max = self.inner.cost.steps_max();
        match cost::steps(&self.inner.schema, value, max, NESTING_MAX) {
            Some(steps) => self.validate(value, steps, what),
            None => Err(Refusal::new(
                ErrorCode::TooLarge,
                format!(
                    "checking the {what} against the tool's schema would take over {max} steps, or {NESTING_MAX} levels: \
                     pass less, or less deeply nested"
                ),
            )),
        }
    }

    fn validate(&self, value: &Value, steps: Steps, what: &str) -> Result<(), Refusal> {
        let validator = &self.inner.validator;
        let invalid = |text: &str| {
            let text = format!("the {what} do not fit the tool's schema:\n{text}");
            Err(Refusal::new(ErrorCode::InvalidArguments, text))
        };
        if validator.is_valid(value) {
            return Ok(());
        }
        let work = steps.count.saturating_mul(u64::from(steps.nesting));
        if steps.count > VIOLATION_STEPS_MAX || work > VIOLATION_WORK_MAX {
            return invalid("- they are too large to say where");
        }
        let violations: Vec<String> = validator.iter_errors(value).take(VIOLATIONS_MAX).map(describe).collect();
        invalid(&violations.join("\n"))
    }

    /// Checks small arguments at once; `None` where they are not small.
    fn check_small(&self, arguments: &Value) -> Option<Result<(), Refusal>> {
        let max = SMALL_STEPS_MAX.min(self.inner.cost.steps_max());
        let steps = cost::steps(&self.inner.schema, arguments, max, SMALL_NESTING_MAX)?;
        Some(self.validate(arguments, steps, "arguments"))
    }
}

impl Default for Schemas {
    fn default() -> Self {
        let threads = Arc::new(Semaphore::new(VALIDATIONS_MAX));
        Self { known: Arc::default(), answered: Arc::default(), polled: watch::Sender::new(false), threads }
    }
}

impl Schemas {
    /// Learns these tools' schemas, but those that are known already; returns why some cannot be used.
    pub(crate) async fn learn(&self, tools: Vec<(Key, Json)>) -> Vec<(Key, String)> {
        let is_known = |key: &Key, schema: &Json| self.get(key).is_some_and(|known| known.inner.text == *schema);
        let new: Vec<_> = tools.into_iter().filter(|(key, schema)| !is_known(key, schema)).collect();
        if new.is_empty() {
            return Vec::new();
        }
        let compiled = tokio::task::spawn_blocking(move || {
            new.into_iter().map(|(key, schema)| (key, Schema::compile(&schema))).collect::<Vec<_>>()
        });
        let mut refused = Vec::new();
        for (key, compiled) in compiled.await.unwrap_or_default() {
            match compiled {
                Ok(schema) => {
                    self.known.write().unwrap_or_else(PoisonError::into_inner).insert(key, schema);
                }
                Err(reason) => refused.push((key, reason)),
            }
        }
        refused
    }

    /// Whether the tool is in the catalogue now.
    pub(crate) fn knows(&self, key: &Key) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).contains_key(key)
    }

    /// The catalogue was polled; these tools answered.
    pub(crate) fn record_poll<'a>(&self, answered: impl Iterator<Item = &'a Key>) {
        self.answered.write().unwrap_or_else(PoisonError::into_inner).extend(answered.cloned());
        self.polled.send_replace(true);
    }

    /// Whether the tool answered a poll of this process, and is not gone since.
    pub(crate) fn has_answered(&self, key: &Key) -> bool {
        self.answered.read().unwrap_or_else(PoisonError::into_inner).contains(key)
    }

    /// Waits until the catalogue was polled once, and not longer than this.
    pub(crate) async fn wait_for_catalogue(&self, max: Duration) {
        let mut polled = self.polled.subscribe();
        if !*polled.borrow_and_update() {
            let _late = timeout(max, polled.wait_for(|polled| *polled)).await.is_err();
        }
    }

    /// Forgets a tool.
    pub(crate) fn forget(&self, key: &Key) {
        self.answered.write().unwrap_or_else(PoisonError::into_inner).remove(key);
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Checks small arguments at once; `None` where they are large: then use [`Schemas::check`]. A tool without a known
    /// schema checks its arguments itself.
    pub(crate) fn check_small(&self, key: &Key, arguments: &Json) -> Option<Result<(), Refusal>> {
        if let Err(refusal) = within_size(arguments) {
            return Some(Err(refusal));
        }
        let known = self.get(key);
        if arguments.get().len() > SMALL_BYTES_MAX && known.is_some() {
            return None;
        }
        match (object(arguments), known) {
            (Err(refusal), _) => Some(Err(refusal)),
            (Ok(_), None) => Some(Ok(())),
            (Ok(arguments), Some(known)) => known.check_small(&arguments),
        }
    }

    /// Checks arguments on a thread of their own, within [`VALIDATION_MAX`].
    pub(crate) async fn check(&self, key: &Key, arguments: &Json) -> Result<(), Refusal> {
        let Some(known) = self.get(key) else { return object(arguments).map(drop) };
        let arguments = arguments.clone();
        self.on_thread(move || known.check_arguments(&arguments)).await
    }

    /// Checks the structured result of a tool, within [`VALIDATION_MAX`].
    pub(crate) async fn check_result(&self, schema: Schema, result: Value) -> Result<(), Refusal> {
        let check = move || schema.check_value(&result, "results of the call");
        self.on_thread(move || on_large_stack(check).unwrap_or_else(|error| Err(unchecked(&error)))).await
    }

    async fn on_thread(&self, check: impl FnOnce() -> Result<(), Refusal> + Send + 'static) -> Result<(), Refusal> {
        let checked = async {
            let permit = self.threads.clone().acquire_owned().await;
            let check = move || {
                let result = check();
                drop(permit);
                result
            };
            let ended = tokio::task::spawn_blocking(check).await;
            ended.unwrap_or_else(|error| Err(unchecked(&io::Error::other(error.to_string()))))
        };
        timeout(VALIDATION_MAX, checked).await.unwrap_or_else(|_| {
            let seconds = VALIDATION_MAX.as_secs();
            let text = format!("checking against the tool's schema took over {seconds} s: it was given up");
            Err(Refusal::new(ErrorCode::Overloaded, text))
        })
    }

    // A lock, since it is held for one access to the map only.
    fn get(&self, key: &Key) -> Option<Schema> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }
}

/// Runs what recurses over a schema on a thread with stack for that, and waits for it.
fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("schema".to_owned()).stack_size(STACK_BYTES);
        let panicked = |_| io::Error::other("it panicked");
        thread.spawn_scoped(scope, work)?.join().map_err(panicked)
    })
}

fn unchecked(error: &io::Error) -> Refusal {
    Refusal::new(ErrorCode::Internal, format!("what the schema says cannot be checked: {error}"))
}

fn within_size(arguments: &Json) -> Result<(), Refusal> {
    let bytes = arguments.get().len();
    if bytes <= TOOL_ARGUMENTS_BYTES_MAX {
        return Ok(());
    }
    let text = format!("the arguments have {bytes} bytes, {TOOL_ARGUMENTS_BYTES_MAX} are allowed: pass less");
    Err(Refusal::new(ErrorCode::TooLarge, text))
}

fn object(arguments: &Json) -> Result<Value, Refusal> {
    let invalid = |text: String| Refusal::new(ErrorCode::InvalidArguments, text);
    let value: Value = serde_json::from_str(arguments.get())
        .map_err(|error| invalid(format!("the arguments are not JSON: {error}")))?;
    if value.is_object() { Ok(value) } else { Err(invalid("the arguments must be a JSON object".to_owned())) }
}

/// Whether a schema costs no more than it may; the error says what it costs.
pub(crate) fn measure(schema: &Value) -> Result<(), String> {
    cost::measure(schema).map(drop).map_err(|error| format!("its schema cannot be used: {error}"))
}

/// Whether a schema can be used; the error says why not.
pub(crate) fn check(schema: &str) -> Result<(), String> {
    let schema = Json::parse(schema).map_err(|error| error.to_string())?;
    Schema::compile(&schema).map(drop)
}

fn build(schema: &Value) -> Result<Validator, String> {
    let patterns = PatternOptions::fancy_regex()
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX)
        .backtrack_limit(BACKTRACKS_MAX);
    jsonschema::options().with_pattern_options(patterns).build(schema).map_err(|error| error.to_string())
}

#[allow(clippy::needless_pass_by_value, reason = "as `map` gives it")]
fn describe(violation: jsonschema::ValidationError<'_>) -> String {
    let (path, text) = (violation.instance_path().to_string(), violation.to_string());
    let at = if path.is_empty() { "at the top".to_owned() } else { format!("at {path}") };
    format!("- {at}: {}", &text[..text.floor_char_boundary(VIOLATION_BYTES_MAX)])
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::{Map, json};

    use super::*;

    /// Longer than anything here may take on a busy machine, and far shorter than what a limit is missing for.
    const LONG: Duration = Duration::from_mins(1);

    fn key() -> Key {
        (TenantId::default(), ToolName::new("act").unwrap())
    }

    async fn learn(schema: &str) -> Result<Schemas, String> {
        let schemas = Schemas::default();
        match schemas.learn(vec![(key(), Json::parse(schema).unwrap())]).await.pop() {
            None => Ok(schemas),
            Some((_, reason)) => Err(reason),
        }
    }

    /// The refusal of arguments, by both ways where the quick one has an answer.
    async fn check(schemas: &Schemas, arguments: &str) -> String {
        let text = |checked: Result<(), Refusal>| checked.err().map(|refusal| refusal.text).unwrap_or_default();
        let arguments = Json::parse(arguments).unwrap();
        let checked = text(schemas.check(&key(), &arguments).await);
        if let Some(at_once) = schemas.check_small(&key(), &arguments) {
            assert_eq!(text(at_once), checked);
        }
        checked
    }

    #[tokio::test]
    async fn a_violation_says_where() {
        let schemas = learn(
            r#"{"type":"object","properties":{"text":{"type":"string"},"n":{"type":"array","items":{"minimum":1}}},
                "required":["text"],"additionalProperties":false}"#,
        )
        .await
        .unwrap();
        assert_eq!(check(&schemas, r#"{"text":"a","n":[1,2]}"#).await, "");
        for (arguments, part) in [
            ("[]", "must be a JSON object"),
            ("\"text\"", "must be a JSON object"),
            ("{}", "- at the top: \"text\" is a required property"),
            (r#"{"text":1}"#, "- at /text: 1 is not of type \"string\""),
            (r#"{"text":"","n":[1,0]}"#, "- at /n/1: 0 is less than the minimum of 1"),
            (r#"{"text":"","x":1}"#, "'x' was unexpected"),
        ] {
            let said = check(&schemas, arguments).await;
            assert!(said.contains(part), "{said:?} lacks {part:?}");
        }
        schemas.forget(&key());
        assert_eq!(check(&schemas, "{}").await, "");
    }

    #[tokio::test]
    async fn a_schema_that_cannot_be_used_is_refused_and_nothing_is_fetched() {
        for bad in [
            r#"{"type":"thing"}"#,
            r#"{"$ref":"http://127.0.0.1:1/x"}"#,
            r#"{"$ref":"file:///etc/passwd"}"#,
            r#"{"properties":{"a":{"pattern":"("}}}"#,
        ] {
            assert!(learn(bad).await.unwrap_err().starts_with("the schema cannot be used"), "{bad}");
        }
    }

    /// A name, a number of levels, and what leads from one to the next.
    type Row = (&'static str, usize, fn(Value) -> Value);

    /// A schema of `levels` definitions, each of which leads to the next by what `by` makes of the reference.
    fn chain(levels: usize, by: impl Fn(Value) -> Value) -> Value {
        let mut definitions: Map<String, Value> = (0..levels)
            .map(|level| (format!("d{level}"), by(json!({"$ref": format!("#/$defs/d{}", level + 1)}))))
            .collect();
        definitions.insert(format!("d{levels}"), json!({"type": "object"}));
        json!({"type": "object", "$ref": "#/$defs/d0", "$defs": definitions})
    }

    #[tokio::test]
    async fn schema_that_doubles_is_refused_or_answers_within_the_limit() {
        let nested = (0..30).fold(json!({}), |value, _| json!({"a": value, "b": {}})).to_string();
        let rows: [Row; 7] = [
            ("allOf", 28, |next| json!({"allOf": [next, next]})),
            ("anyOf", 28, |next| json!({"anyOf": [next, next]})),
            ("parts", 28, |next| json!({"properties": {"a": next, "b": next}})),
            ("choices", 28, |next| json!({"anyOf": [{"properties": {"a": next}}, {"properties": {"a": next}}]})),
            ("patterns", 28, |next| json!({"patternProperties": {"^a": next, "a$": next}})),
            ("unevaluated", 28, |next| json!({"properties": {"a": next}, "unevaluatedProperties": next})),
            ("deep", 400, |next| json!({"properties": {"a": next}})),
        ];
        for (name, levels, by) in rows {
            let began = Instant::now();
            let schema = chain(levels, by).to_string();
            if let Ok(schemas) = learn(&schema).await {
                let _refused = check(&schemas, &nested).await;
            }
            assert!(began.elapsed() < LONG, "{name}: {:?}", began.elapsed());
        }
    }

    #[tokio::test]
    async fn arguments_over_a_limit_are_refused_before_they_are_validated() {
        let schemas = learn(r#"{"type":"object","properties":{"a":{"items":{"type":"integer"}}}}"#).await.unwrap();
        let check =
            async |arguments: Value| schemas.check(&key(), &Json::of(&arguments)).await.map_err(|refusal| refusal.code);
        assert_eq!(check(json!({"a": vec![1; 100_000]})).await, Ok(()));
        assert_eq!(check(json!({"a": vec!["x"; 100_000]})).await, Err(ErrorCode::InvalidArguments));
        assert_eq!(check(json!({"a": "x".repeat(TOOL_ARGUMENTS_BYTES_MAX)})).await, Err(ErrorCode::TooLarge));
        let choices =
            json!({"type": "object", "properties": {"a": {"items": {"anyOf": vec![json!({"type": "string"}); 40]}}}});
        let schemas = learn(&choices.to_string()).await.unwrap();
        let refused = schemas.check(&key(), &Json::of(&json!({"a": vec![1; 100_000]}))).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::TooLarge);
        assert!(refused.text.contains("200000 steps"), "{}", refused.text);
    }

    #[tokio::test]
    async fn pattern_that_backtracks_ends_within_the_limit() {
        let schemas =
            learn(r#"{"type":"object","properties":{"a":{"items":{"pattern":"^(?=(a+)+$)(?!b)x"}}}}"#).await.unwrap();
        let began = Instant::now();
        let text = format!("{}!", "a".repeat(40));
        let _refused = schemas.check(&key(), &Json::of(&json!({"a": vec![text; 300]}))).await;
        assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn validation_without_a_free_thread_ends_with_an_error() {
        let schemas = learn(r#"{"type":"object"}"#).await.unwrap();
        let busy = schemas.threads.clone().acquire_many_owned(u32::try_from(VALIDATIONS_MAX).unwrap()).await.unwrap();
        let large = Json::of(&json!({"a": "x".repeat(SMALL_BYTES_MAX)}));
        assert_eq!(schemas.check_small(&key(), &large), None);
        let refused = schemas.check(&key(), &large).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Overloaded);
        drop(busy);
        assert_eq!(schemas.check(&key(), &large).await, Ok(()));
    }
}
