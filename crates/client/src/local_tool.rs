//! Tools that a program brings to a session, and performs itself.

use std::any::Any;
use std::fmt::{self, Display};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Bytes of a result; the server refuses more.
const CONTENT_BYTES_MAX: usize = 1 << 20;
/// Bytes of an error that the model reads.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// Answer to a call that the model reads: a result, or a description of the error.
pub(crate) type CallAnswer = Result<String, String>;
type Perform = Arc<dyn Fn(Value) -> BoxFuture<'static, CallAnswer> + Send + Sync>;

/// A function of this program that an agent may call.
///
/// While a [`Turn`](crate::Turn) is followed, its calls are performed, at most 32 at the same time. The future of a call is
/// dropped if the call has its result meanwhile. A function that computes for long must use a thread of its own, since
/// the turn waits for it.
#[derive(Clone)]
pub struct LocalTool {
    pub(crate) name: String,
    pub(crate) effect: ToolEffect,
    entry: Map<String, Value>,
    perform: Perform,
}

/// Effect class of a call: what may be done with a call that nobody answered because this program died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ToolEffect {
    /// It changes nothing: a program that takes the session up performs an open call.
    Pure,
    /// It takes effect once, however often it is performed: as above.
    Idempotent,
    /// It may take effect each time: a program that takes the session up does not perform an open call, and the model
    /// reads that the outcome is unknown.
    #[default]
    AtMostOnce,
}

impl ToolEffect {
    fn as_str(self) -> &'static str {
        match self {
            Self::Pure => "pure",
            Self::Idempotent => "idempotent",
            Self::AtMostOnce => "at_most_once",
        }
    }
}

impl LocalTool {
    /// A tool of a name (1 to 64 of `A-Z a-z 0-9 _ -`), the JSON Schema of its arguments object, and its function.
    ///
    /// The function gets the arguments as a Rust type. The model reads what it returns, a text as it is and anything else
    /// as JSON, or its error. Arguments that do not fit the type are answered with an error that says why.
    ///
    /// ```
    /// use ailoop_client::{LocalTool, ToolEffect};
    /// use serde_json::json;
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Arguments {
    ///     city: String,
    /// }
    ///
    /// let parameters = json!({
    ///     "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
    /// });
    /// let weather = LocalTool::new("weather", parameters, async |Arguments { city }| {
    ///     Ok::<_, std::io::Error>(format!("rain in {city}"))
    /// })
    /// .description("The weather of a city.")
    /// .effect(ToolEffect::Pure);
    /// # let _ = weather;
    /// ```
    ///
    /// The crate schemars makes the schema of a type: `schemars::schema_for!(Arguments).to_value()`.
    pub fn new<A, F, Fut, R, E>(name: impl Into<String>, parameters: impl Into<Value>, function: F) -> Self
    where
        A: DeserializeOwned,
        F: Fn(A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: Serialize,
        E: Display,
    {
        let perform: Perform = Arc::new(move |arguments| match A::deserialize(arguments) {
            Ok(arguments) => function(arguments).map(|result| to_answer(&result)).boxed(),
            Err(error) => std::future::ready(Err(format!("invalid arguments: {error}"))).boxed(),
        });
        let (name, effect) = (name.into(), ToolEffect::default());
        let mut entry = Map::new();
        entry.insert("name".to_owned(), json!(name));
        entry.insert("parameters".to_owned(), parameters.into());
        entry.insert("effect".to_owned(), json!(effect.as_str()));
        Self { name, effect, entry, perform }
    }

    /// Sets the description for the model: what the tool does, and when to use it.
    #[must_use]
    pub fn description(self, text: impl Into<String>) -> Self {
        self.with("description", text.into())
    }

    /// Sets the effect class of a call; default [`ToolEffect::AtMostOnce`].
    #[must_use]
    pub fn effect(self, effect: ToolEffect) -> Self {
        Self { effect, ..self.with("effect", effect.as_str()) }
    }

    /// Sets the timeout of a call, after which the model reads that nobody answered; default one hour.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        let milliseconds = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        self.with("timeout_ms", milliseconds)
    }

    /// Bytes of a result that the model reads.
    #[must_use]
    pub fn max_output(self, bytes: usize) -> Self {
        self.with("max_output", bytes)
    }

    /// The entry of `client_tools` by which a session gets it.
    pub(crate) fn describe(&self) -> Value {
        Value::Object(self.entry.clone())
    }

    /// Runs the function. A panic becomes an error, which the model reads.
    pub(crate) async fn perform(&self, arguments: Value) -> CallAnswer {
        let call = AssertUnwindSafe(async { (self.perform)(arguments).await });
        call.catch_unwind().await.unwrap_or_else(|panic| Err(format!("the tool panicked: {}", panic_message(&*panic))))
    }

    fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.entry.insert(field.to_owned(), value.into());
        self
    }
}

impl fmt::Debug for LocalTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalTool").field("entry", &self.entry).finish_non_exhaustive()
    }
}

fn to_answer<R: Serialize, E: Display>(result: &Result<R, E>) -> CallAnswer {
    let value = match result {
        Ok(result) => serde_json::to_value(result).map_err(|error| format!("the result is not JSON: {error}"))?,
        Err(error) => {
            let message = error.to_string();
            return Err(message[..message.floor_char_boundary(ERROR_BYTES_MAX)].to_owned());
        }
    };
    let content = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if content.len() > CONTENT_BYTES_MAX {
        return Err(format!(
            "the tool ran; its result has more than {CONTENT_BYTES_MAX} bytes, which is too long to be read"
        ));
    }
    Ok(content)
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn perform<R, F, Fut>(arguments: Value, function: F) -> CallAnswer
    where
        R: Serialize + 'static,
        F: Fn(Vec<u8>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, String>> + Send + 'static,
    {
        LocalTool::new("t", json!({}), function).perform(arguments).await
    }

    #[tokio::test]
    async fn answer_is_text_json_or_an_error() {
        assert_eq!(perform(json!([1]), async |_| Ok("a text")).await, Ok("a text".to_owned()));
        assert_eq!(perform(json!([1]), async |bytes| Ok(json!({"n": bytes}))).await, Ok(r#"{"n":[1]}"#.to_owned()));
        assert_eq!(perform(json!([1]), async |_| Err::<(), _>("no".to_owned())).await, Err("no".to_owned()));
        let invalid = perform(json!({"a": 1}), async |_| Ok("")).await.unwrap_err();
        assert!(invalid.starts_with("invalid arguments: "), "{invalid}");
        let long = perform(json!([]), async |_| Ok("x".repeat(CONTENT_BYTES_MAX + 1))).await.unwrap_err();
        assert!(long.starts_with("the tool ran; its result has more than"), "{long}");
    }

    #[tokio::test]
    async fn panic_is_an_error_for_the_model() {
        let answer = perform(json!([]), async |bytes: Vec<u8>| {
            assert!(!bytes.is_empty(), "no bytes");
            Ok("")
        });
        assert_eq!(answer.await, Err("the tool panicked: no bytes".to_owned()));
    }
}
