//! Routes over HTTP: a verb and a path for a method, with its parameters.

use std::sync::LazyLock;

use serde_json::Value;

use crate::method::Method;
use crate::schema::without_null;
use crate::verb::{HttpVerb, RouteRow};

/// A route to a method.
#[derive(Debug)]
pub struct HttpRoute {
    /// Method that the route leads to.
    pub method: Method,
    /// Verb of the request.
    pub verb: HttpVerb,
    /// Its path, with variables in braces.
    pub path: &'static str,
    /// One sentence for the document.
    pub about: &'static str,
    /// Parameters in the path, in its order.
    pub variables: Vec<Field>,
    /// Parameters in the query of a GET or DELETE, or in the body of a POST.
    pub fields: Vec<Field>,
}

/// A parameter of a method.
#[derive(Debug, Clone)]
pub struct Field {
    /// Name of the parameter.
    pub name: String,
    /// Whether a request without it is refused.
    pub is_required: bool,
    /// One sentence for the document.
    pub about: String,
    /// JSON Schema of its values.
    pub schema: Value,
}

/// Form of a value in a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// A whole number below 2^32.
    Count,
    /// A number that is not negative.
    Amount,
    /// The words `true` or `false`.
    Flag,
    /// A text as it is.
    Text,
    /// JSON, which has no place in a query.
    Json,
}

impl Field {
    /// Returns how its values are written in a query.
    pub fn kind(&self) -> ValueKind {
        match self.schema.get("type").and_then(Value::as_str) {
            Some("integer") => ValueKind::Count,
            Some("number") => ValueKind::Amount,
            Some("boolean") => ValueKind::Flag,
            Some("string") => ValueKind::Text,
            Some(_) | None => ValueKind::Json,
        }
    }
}

/// Every route, by method.
pub static ROUTES: LazyLock<Vec<HttpRoute>> =
    LazyLock::new(|| Method::ALL.iter().flat_map(|method| routes_of(*method)).collect());

fn routes_of(method: Method) -> Vec<HttpRoute> {
    let (rows, fields) = (method.routes(), fields_of(method));
    let route = |row: &RouteRow| {
        let find = |name: &str| fields.iter().find(|field| field.name == name).cloned();
        // What one route has in its path is no other parameter of another one.
        let is_variable = |field: &&Field| rows.iter().flat_map(RouteRow::variables).any(|name| name == field.name);
        HttpRoute {
            method,
            verb: row.verb,
            path: row.path,
            about: row.about.unwrap_or_else(|| method.about()),
            variables: row.variables().filter_map(find).collect(),
            fields: fields.iter().filter(|field| !is_variable(field)).cloned().collect(),
        }
    };
    rows.iter().map(route).collect()
}

/// Returns the parameters of a method, by name.
pub fn fields_of(method: Method) -> Vec<Field> {
    let schema = method.params_schema();
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema.get("properties").and_then(Value::as_object);
    let field = |(name, of): (&String, &Value)| {
        let mut schema = without_null(of);
        let about = schema.as_object_mut().and_then(|object| object.remove("description"));
        let about = about.and_then(|about| Some(about.as_str()?.to_owned())).unwrap_or_default();
        Field { name: name.clone(), is_required: required.contains(&name.as_str()), about, schema }
    };
    properties.into_iter().flatten().map(field).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

    use super::*;

    #[test]
    fn every_method_has_a_route() {
        for method in Method::ALL {
            let is_routed = ROUTES.iter().any(|route| route.method == *method);
            // A stream ends with its request.
            assert_eq!(is_routed, *method != Method::UnwatchSession, "{}", method.name());
        }
    }

    #[test]
    fn variable_of_a_path_is_a_parameter_of_its_method() {
        for route in ROUTES.iter() {
            assert_eq!(route.variables.len(), route.path.matches('{').count(), "{}", route.path);
        }
    }

    #[test]
    fn parameter_in_a_query_can_be_written_there() {
        for route in ROUTES.iter().filter(|route| route.verb != HttpVerb::Post) {
            let field = route.fields.iter().find(|field| field.kind() == ValueKind::Json);
            assert!(field.is_none(), "{}: {field:?}", route.path);
        }
    }

    #[test]
    fn parameter_says_what_it_is() {
        for route in ROUTES.iter() {
            let field = route.fields.iter().chain(&route.variables).find(|field| field.about.len() < 10);
            assert!(field.is_none(), "{}: {field:?}", route.path);
        }
    }
}
