//! One schema: measures and compiles it, and validates values against it.

use std::io;
use std::sync::Arc;

use contract::limits::TOOL_ARGUMENTS_BYTES_MAX;
use contract::{ErrorCode, Json};
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use crate::cost::{self, NESTING_MAX, SchemaCost, ValidationSteps};

/// Violations in one error; the model corrects them, and the error of the next call has the others.
const VIOLATIONS_MAX: usize = 5;
/// Bytes of one violation's text, which quotes the arguments.
const VIOLATION_BYTES_MAX: usize = 300;
/// Bytes of a compiled pattern of a schema.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Backtracking steps of one match of a pattern that looks around or back.
const BACKTRACKS_MAX: usize = 10_000;
/// Steps, and steps times nesting, up to which all violations are collected, each with its place: they take memory, and
/// the validator repeats itself at every choice between subschemas. Beyond them the error only says that there are
/// some.
const VIOLATION_STEPS_MAX: u64 = 50_000;
const VIOLATION_WORK_MAX: u64 = 2_000_000;
/// Bytes and steps up to which arguments are validated at once: another thread would take longer.
pub(crate) const SMALL_BYTES_MAX: usize = 16 << 10;
const SMALL_STEPS_MAX: u64 = 2_000;
const SMALL_NESTING_MAX: u32 = 64;
/// Stack of a thread that compiles or validates: enough for [`NESTING_MAX`], even without optimisation.
const STACK_BYTES: usize = 64 << 20;

/// The compiled schema of one tool.
#[derive(Debug, Clone)]
pub struct Schema {
    inner: Arc<CompiledSchema>,
}

#[derive(Debug)]
struct CompiledSchema {
    text: Json,
    schema: Value,
    cost: SchemaCost,
    validator: Validator,
}

/// Reason why arguments or a result do not fit a schema, or cannot be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentsError {
    /// Kind of the error as a stable code.
    pub code: ErrorCode,
    /// Description of each mismatch and its place, for the model.
    pub text: String,
}

impl ArgumentsError {
    /// An error with a text for the model.
    pub fn new(code: ErrorCode, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

impl Schema {
    /// Measures and compiles a schema; the error says why it cannot be used. No reference is fetched.
    pub fn compile(schema: &Json) -> Result<Self, String> {
        let compile = || Self::compile_here(schema);
        on_large_stack(compile).unwrap_or_else(|error| Err(format!("the schema cannot be compiled: {error}")))
    }

    fn compile_here(schema: &Json) -> Result<Self, String> {
        let unusable = |error: String| format!("the schema cannot be used: {error}");
        let value: Value = serde_json::from_str(schema.get()).map_err(|error| unusable(error.to_string()))?;
        let cost = cost::measure_cost(&value).map_err(unusable)?;
        let validator = build_validator(&value).map_err(unusable)?;
        Ok(Self { inner: Arc::new(CompiledSchema { text: schema.clone(), schema: value, cost, validator }) })
    }

    /// Checks arguments; the error is for the model.
    pub fn check(&self, arguments: &Json) -> Result<(), String> {
        self.check_arguments(arguments).map_err(|error| error.text)
    }

    pub(crate) fn check_arguments(&self, arguments: &Json) -> Result<(), ArgumentsError> {
        check_size(arguments)?;
        let check = || self.check_value(&parse_object(arguments)?, "arguments");
        on_large_stack(check).unwrap_or_else(|error| Err(unchecked_error(&error)))
    }

    /// Checks a value; the caller has stack for [`NESTING_MAX`]. `what` names the value in errors.
    pub(crate) fn check_value(&self, value: &Value, what: &str) -> Result<(), ArgumentsError> {
        let max = self.inner.cost.steps_max();
        match cost::count_steps(&self.inner.schema, value, max, NESTING_MAX) {
            Some(steps) => self.validate(value, steps, what),
            None => Err(ArgumentsError::new(
                ErrorCode::TooLarge,
                format!(
                    "checking the {what} against the tool's schema would take over {max} steps, or {NESTING_MAX} levels: \
                     pass less, or less deeply nested"
                ),
            )),
        }
    }

    fn validate(&self, value: &Value, steps: ValidationSteps, what: &str) -> Result<(), ArgumentsError> {
        let validator = &self.inner.validator;
        let invalid = |text: &str| {
            let text = format!("the {what} do not fit the tool's schema:\n{text}");
            Err(ArgumentsError::new(ErrorCode::InvalidArguments, text))
        };
        if validator.is_valid(value) {
            return Ok(());
        }
        let work = steps.count.saturating_mul(u64::from(steps.nesting));
        if steps.count > VIOLATION_STEPS_MAX || work > VIOLATION_WORK_MAX {
            return invalid("- they are too large to say where");
        }
        let violations: Vec<String> =
            validator.iter_errors(value).take(VIOLATIONS_MAX).map(describe_violation).collect();
        invalid(&violations.join("\n"))
    }

    /// Checks small arguments at once; `None` where they are large: then use [`Checker::check`](crate::Checker::check).
    pub fn check_small(&self, arguments: &Json) -> Option<Result<(), ArgumentsError>> {
        if let Err(error) = check_size(arguments) {
            return Some(Err(error));
        }
        if arguments.get().len() > SMALL_BYTES_MAX {
            return None;
        }
        let value = match parse_object(arguments) {
            Ok(value) => value,
            Err(error) => return Some(Err(error)),
        };
        let max = SMALL_STEPS_MAX.min(self.inner.cost.steps_max());
        let steps = cost::count_steps(&self.inner.schema, &value, max, SMALL_NESTING_MAX)?;
        Some(self.validate(&value, steps, "arguments"))
    }

    /// Returns the source of the schema.
    pub fn source(&self) -> &Json {
        &self.inner.text
    }

    /// Checks arguments of a tool without a schema: a JSON object of an allowed size.
    pub fn check_object(arguments: &Json) -> Result<(), ArgumentsError> {
        check_size(arguments)?;
        parse_object(arguments).map(drop)
    }
}

/// Runs work that recurses over a schema on a thread with a large stack, and waits for it.
pub(crate) fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("schema".to_owned()).stack_size(STACK_BYTES);
        let panicked = |_| io::Error::other("it panicked");
        thread.spawn_scoped(scope, work)?.join().map_err(panicked)
    })
}

pub(crate) fn unchecked_error(error: &io::Error) -> ArgumentsError {
    ArgumentsError::new(ErrorCode::Internal, format!("what the schema says cannot be checked: {error}"))
}

fn check_size(arguments: &Json) -> Result<(), ArgumentsError> {
    let bytes = arguments.get().len();
    if bytes <= TOOL_ARGUMENTS_BYTES_MAX {
        return Ok(());
    }
    let text = format!("the arguments have {bytes} bytes, {TOOL_ARGUMENTS_BYTES_MAX} are allowed: pass less");
    Err(ArgumentsError::new(ErrorCode::TooLarge, text))
}

fn parse_object(arguments: &Json) -> Result<Value, ArgumentsError> {
    let invalid = |text: String| ArgumentsError::new(ErrorCode::InvalidArguments, text);
    let value: Value = serde_json::from_str(arguments.get())
        .map_err(|error| invalid(format!("the arguments are not JSON: {error}")))?;
    if value.is_object() { Ok(value) } else { Err(invalid("the arguments must be a JSON object".to_owned())) }
}

/// Checks that a schema does not cost too much; the error has its cost.
pub fn measure(schema: &Value) -> Result<(), String> {
    cost::measure_cost(schema).map(drop).map_err(|error| format!("its schema cannot be used: {error}"))
}

fn build_validator(schema: &Value) -> Result<Validator, String> {
    let patterns = PatternOptions::fancy_regex()
        .size_limit(PATTERN_BYTES_MAX)
        .dfa_size_limit(PATTERN_BYTES_MAX)
        .backtrack_limit(BACKTRACKS_MAX);
    jsonschema::options().with_pattern_options(patterns).build(schema).map_err(|error| error.to_string())
}

#[allow(clippy::needless_pass_by_value, reason = "as `map` gives it")]
fn describe_violation(violation: jsonschema::ValidationError<'_>) -> String {
    let (path, text) = (violation.instance_path().to_string(), violation.to_string());
    let at = if path.is_empty() { "at the top".to_owned() } else { format!("at {path}") };
    format!("- {at}: {}", &text[..text.floor_char_boundary(VIOLATION_BYTES_MAX)])
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use serde_json::{Map, json};

    use super::*;
    use crate::Checker;

    /// Longer than any test here takes on a busy machine, and far shorter than a run without limits.
    const LONG: Duration = Duration::from_mins(1);

    fn compile(schema: &str) -> Result<Schema, String> {
        Schema::compile(&Json::parse(schema).unwrap())
    }

    async fn check_on_thread(schema: &Schema, arguments: Value) -> Result<(), ArgumentsError> {
        Checker::default().check(schema.clone(), &Json::of(&arguments)).await
    }

    /// Returns the error for arguments, and compares both ways of checking.
    async fn check(schema: &Schema, arguments: &str) -> String {
        let text = |checked: Result<(), ArgumentsError>| checked.err().map(|error| error.text).unwrap_or_default();
        let arguments = Json::parse(arguments).unwrap();
        let checked = text(Checker::default().check(schema.clone(), &arguments).await);
        if let Some(at_once) = schema.check_small(&arguments) {
            assert_eq!(text(at_once), checked);
        }
        checked
    }

    #[tokio::test]
    async fn arguments_with_violations_error_names_their_places() {
        let schema = compile(
            r#"{"type":"object","properties":{"text":{"type":"string"},"n":{"type":"array","items":{"minimum":1}}},
                "required":["text"],"additionalProperties":false}"#,
        )
        .unwrap();
        assert_eq!(check(&schema, r#"{"text":"a","n":[1,2]}"#).await, "");
        for (arguments, part) in [
            ("[]", "must be a JSON object"),
            ("\"text\"", "must be a JSON object"),
            ("{}", "- at the top: \"text\" is a required property"),
            (r#"{"text":1}"#, "- at /text: 1 is not of type \"string\""),
            (r#"{"text":"","n":[1,0]}"#, "- at /n/1: 0 is less than the minimum of 1"),
            (r#"{"text":"","x":1}"#, "'x' was unexpected"),
        ] {
            let error = check(&schema, arguments).await;
            assert!(error.contains(part), "{error:?} lacks {part:?}");
        }
    }

    #[tokio::test]
    async fn schema_unusable_is_refused_and_nothing_is_fetched() {
        for bad in [
            r#"{"type":"thing"}"#,
            r#"{"$ref":"http://127.0.0.1:1/x"}"#,
            r#"{"$ref":"file:///etc/passwd"}"#,
            r#"{"properties":{"a":{"pattern":"("}}}"#,
        ] {
            assert!(compile(bad).unwrap_err().starts_with("the schema cannot be used"), "{bad}");
        }
    }

    /// A name, a number of levels, and what leads from one to the next.
    type Row = (&'static str, usize, fn(Value) -> Value);

    /// Builds a schema of `levels` definitions, each of which leads to the next as `by` says.
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
            if let Ok(schema) = compile(&schema) {
                let _refused = check(&schema, &nested).await;
            }
            assert!(began.elapsed() < LONG, "{name}: {:?}", began.elapsed());
        }
    }

    #[tokio::test]
    async fn arguments_over_a_limit_are_refused_before_they_are_validated() {
        let schema = compile(r#"{"type":"object","properties":{"a":{"items":{"type":"integer"}}}}"#).unwrap();
        let check = async |arguments: Value| check_on_thread(&schema, arguments).await.map_err(|error| error.code);
        assert_eq!(check(json!({"a": vec![1; 100_000]})).await, Ok(()));
        assert_eq!(check(json!({"a": vec!["x"; 100_000]})).await, Err(ErrorCode::InvalidArguments));
        assert_eq!(check(json!({"a": "x".repeat(TOOL_ARGUMENTS_BYTES_MAX)})).await, Err(ErrorCode::TooLarge));
        let choices =
            json!({"type": "object", "properties": {"a": {"items": {"anyOf": vec![json!({"type": "string"}); 40]}}}});
        let schema = compile(&choices.to_string()).unwrap();
        let refused = check_on_thread(&schema, json!({"a": vec![1; 100_000]})).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::TooLarge);
        assert!(refused.text.contains("200000 steps"), "{}", refused.text);
    }

    #[tokio::test]
    async fn pattern_that_backtracks_ends_within_the_limit() {
        let schema =
            compile(r#"{"type":"object","properties":{"a":{"items":{"pattern":"^(?=(a+)+$)(?!b)x"}}}}"#).unwrap();
        let began = Instant::now();
        let text = format!("{}!", "a".repeat(40));
        let _refused = check_on_thread(&schema, json!({"a": vec![text; 300]})).await;
        assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    }
}
