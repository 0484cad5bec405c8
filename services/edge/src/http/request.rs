//! A request over HTTP: who sends it, and its parameters from path, query, headers and body as one object.

use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use contract::trace::TraceContext;
use edge_core::access::ApiCaller;
use edge_core::api_error::ApiError;
use edge_core::client_request::{HttpState, authenticate, read_body};
use edge_core::{params, request_trace};
use serde_json::{Map, Value};
use session_api::{HttpRoute, HttpVerb, ValueKind};

/// An authenticated request with its parameters.
#[derive(Debug)]
pub(super) struct ClientRequest {
    pub(super) caller: ApiCaller,
    pub(super) params: Map<String, Value>,
    /// The client's own trace.
    pub(super) trace: Option<TraceContext>,
}

impl ClientRequest {
    /// Authenticates a request before its body is read, and gathers its parameters.
    pub(super) async fn read(state: &HttpState, route: &HttpRoute, request: Request) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        let caller = authenticate(state, &parts).await?;
        let variables = path_variables(&mut parts).await?;
        let trace = request_trace::of_headers(&parts.headers);
        let mut params = match route.verb {
            HttpVerb::Get | HttpVerb::Delete => parse_query(route, parts.uri.query().unwrap_or_default())?,
            HttpVerb::Post => {
                let bytes = read_body(state, body, &caller).await?;
                parse_body(&parts.headers, &bytes)?
            }
        };
        for (name, value) in variables {
            if params.insert(name.clone(), Value::from(value)).is_some() {
                return Err(ApiError::bad_request(format!("`{name}` stands in the path: leave it out elsewhere")));
            }
        }
        add_headers(route, &parts.headers, &mut params)?;
        Ok(Self { caller, params, trace })
    }
}

async fn path_variables(parts: &mut Parts) -> Result<Vec<(String, String)>, ApiError> {
    let variables = RawPathParams::from_request_parts(parts, &()).await;
    let variables = variables.map_err(|rejection| ApiError::bad_request(rejection.body_text()))?;
    Ok(variables.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

fn parse_body(headers: &HeaderMap, bytes: &[u8]) -> Result<Map<String, Value>, ApiError> {
    if bytes.is_empty() {
        return Ok(Map::new());
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    // A form of a foreign page can be sent without a preflight, JSON cannot.
    if !essence.eq_ignore_ascii_case("application/json") {
        return Err(ApiError::bad_request(format!(
            "the body has the type {essence:?}: send JSON with `Content-Type: application/json`"
        )));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| ApiError::bad_request(format!("not UTF-8: {error}")))?;
    params::check_size("the body", text)?;
    match serde_json::from_str(text) {
        Ok(Value::Object(mut params)) => {
            // Null is as absent.
            params.retain(|_, value| !value.is_null());
            Ok(params)
        }
        Ok(_) => Err(ApiError::bad_request("the body must be a JSON object")),
        Err(error) => Err(ApiError::bad_request(format!("not JSON: {error}"))),
    }
}

fn parse_query(route: &HttpRoute, query: &str) -> Result<Map<String, Value>, ApiError> {
    let mut params = Map::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let field = route.fields.iter().find(|field| field.name == name);
        let Some(field) = field else {
            let known: Vec<&str> = route.fields.iter().map(|field| &*field.name).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            let name: String = name.chars().take(80).collect();
            return Err(ApiError::bad_request(format!("unknown parameter {name:?}; there are: {known}")));
        };
        if params.insert(field.name.clone(), parse_value(&field.name, field.kind(), &value)?).is_some() {
            return Err(ApiError::bad_request(format!("`{name}` stands in the query twice")));
        }
    }
    Ok(params)
}

fn parse_value(name: &str, kind: ValueKind, text: &str) -> Result<Value, ApiError> {
    let wrong = |wanted: &str| {
        let text: String = text.chars().take(80).collect();
        ApiError::bad_request(format!("`{name}` is {text:?}, it must be {wanted}"))
    };
    match kind {
        ValueKind::Count => text.parse::<u32>().map(Value::from).map_err(|_| wrong("a whole number below 2^32")),
        ValueKind::Amount => match text.parse::<f64>() {
            Ok(amount) if amount.is_finite() && amount >= 0.0 => Ok(Value::from(amount)),
            Ok(_) | Err(_) => Err(wrong("a number that is not negative")),
        },
        ValueKind::Flag => text.parse::<bool>().map(Value::from).map_err(|_| wrong("true or false")),
        ValueKind::Text => Ok(Value::from(text)),
        ValueKind::Json => Err(wrong("in the body of a POST")),
    }
}

/// Adds what stands in headers by the standards of HTTP.
fn add_headers(route: &HttpRoute, headers: &HeaderMap, params: &mut Map<String, Value>) -> Result<(), ApiError> {
    let text = |name: &str| {
        let value = headers.get(name)?;
        Some(value.to_str().map_err(|_| ApiError::bad_request(format!("the header {name} is not ASCII"))))
    };
    if route.fields.iter().any(|field| field.name == "command_id")
        && let Some(key) = text("idempotency-key").transpose()?
    {
        let key = Value::from(key);
        if params.get("command_id").is_some_and(|given| *given != key) {
            return Err(ApiError::bad_request(
                "`command_id` and the header `Idempotency-Key` differ: send one of them",
            ));
        }
        params.insert("command_id".to_owned(), key);
    }
    if route.method.is_stream()
        && !params.contains_key("from_seq")
        && let Some(last) = text("last-event-id").transpose()?
    {
        let last: u64 = last
            .parse()
            .map_err(|_| ApiError::bad_request("the header `Last-Event-ID` must be a `seq`: leave it out"))?;
        params.insert("from_seq".to_owned(), Value::from(last.saturating_add(1)));
    }
    Ok(())
}
