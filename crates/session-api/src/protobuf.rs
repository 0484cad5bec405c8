//! The protobuf file of the gRPC service, made of the methods and of the schemas of their parameters and results.
//!
//! A message has the fields of the JSON object under the same names. Protobuf has no form for four kinds of values:
//!
//! - A value of any form is a text that is JSON, in a field whose name ends in `_json`.
//! - A list that may be absent as well as empty is a message with the field `as_list`.
//! - A value that is a text, a list or an object is a message with `as_text`, `as_list` and the fields of the object.
//! - A word is a text. The comment of its field lists the words.
//!
//! A field keeps the number that it has in the committed file. The number of a field that is gone stays reserved.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use contract::{Json, Timestamp};
use schemars::JsonSchema;
use serde_json::{Map, Value};

use crate::method::Method;
use crate::schema::{params_generator, raw_definitions, results_generator};

/// Package of the service and of its messages.
const PACKAGE: &str = "ailoop.v2";
/// Columns of a line with a comment.
const WIDTH: usize = 120;
/// Name of the field with a list, in a message that stands for one.
const AS_LIST: &str = "as_list";
/// Name of the field with a text, in a message that stands for one.
const AS_TEXT: &str = "as_text";

const HEAD: &str = "\
// The session API of ailoop over gRPC. The methods, parameters and results are those of docs/reference/methods.md.
//
// The table of methods in crates/session-api writes this file; do not edit it.
//
// The status of an error has the key `ailoop-code` with a stable code (docs/reference/errors.md), `ailoop-retry-after-ms`
// if a retry may succeed, and `ailoop-seq` with the last `seq` for errors about a cursor.
syntax = \"proto3\";
";

/// An event of a session.
#[derive(Debug, JsonSchema)]
#[allow(dead_code, reason = "only its schema is used")]
struct Notification {
    /// Topic of the event, such as `turn.completed`.
    topic: String,
    /// Id of the event.
    id: String,
    /// Position of the event in the log of the session; absent for chunks.
    seq: Option<u64>,
    /// Time of the commit.
    time: Timestamp,
    /// Id of the trace of the turn.
    trace_id: String,
    /// Data of the event.
    data: Json,
}

/// Returns the text of the file. Fields keep the numbers that they have in the committed text.
pub fn file(committed: &str) -> String {
    let (mut params, mut results) = (params_generator(), results_generator());
    let mut requests = Vec::new();
    for method in Method::ALL.iter().filter(|method| method.has_rpc()) {
        method.add_result(&mut results);
        requests.push((*method, method.raw_params(&mut params)));
    }
    results.subschema_for::<Notification>();
    let mut definitions = raw_definitions(params);
    definitions.extend(raw_definitions(results));
    let mut messages = Messages { definitions: &definitions, written: BTreeMap::new() };
    let mut text = format!("{HEAD}\npackage {PACKAGE};\n\n// Sessions of AI agents.\nservice Sessions {{\n");
    for (method, schema) in &requests {
        let name = method.rpc();
        let request = format!("{name}Request");
        messages.add(&request, &format!("Parameters of `{name}`."), schema.as_value());
        let reply = if method.is_stream() { "Notification".into() } else { method.result_name() };
        messages.add_named(&reply);
        comment(&mut text, "  ", method.about());
        let stream = if method.is_stream() { "stream " } else { "" };
        let _ = writeln!(text, "  rpc {name}({request}) returns ({stream}{reply});");
    }
    text.push_str("}\n");
    let numbers = Numbers::of(committed);
    for (name, message) in &messages.written {
        text.push('\n');
        message.write(name, &numbers, &mut text);
    }
    text
}

/// Form of a value in protobuf.
enum Form {
    Scalar(&'static str),
    Message(String),
    List(Box<Form>),
    Map(Box<Form>),
    /// Anything, which is written as JSON.
    Json,
}

struct Message {
    about: String,
    /// The fields by name, each with what stands before the name, and with its comment.
    fields: BTreeMap<String, (String, String)>,
}

struct Messages<'a> {
    definitions: &'a Map<String, Value>,
    written: BTreeMap<String, Message>,
}

impl<'a> Messages<'a> {
    fn add_named(&mut self, name: &str) {
        let schema = &self.definitions[name];
        self.add(name, text_of(schema, "description"), schema);
    }

    /// Adds the message of an object, or of a value that has several forms.
    fn add(&mut self, name: &str, about: &str, schema: &Value) {
        if self.written.contains_key(name) {
            return;
        }
        self.written.insert(name.to_owned(), Message { about: about.to_owned(), fields: BTreeMap::new() });
        let mut fields = BTreeMap::new();
        let choices = choices(schema);
        for choice in &choices {
            let is_choice = choices.len() > 1;
            if is_choice && self.is_text(choice) {
                let about = self.words(schema).map(|words| format!("One of {words}.")).unwrap_or_default();
                fields.insert(AS_TEXT.to_owned(), ("optional string".to_owned(), about));
            } else if is_choice
                && text_of(choice, "type") == "array"
                && let Form::List(item) = self.form(&format!("{name}Item"), choice)
            {
                fields.insert(AS_LIST.to_owned(), (repeated(&item), about_of(choice)));
            }
            let required = choice.get("required").and_then(Value::as_array).filter(|_| !is_choice);
            for (field, of) in choice.get("properties").and_then(Value::as_object).into_iter().flatten() {
                let is_required = required.is_some_and(|all| all.iter().any(|one| one == field));
                let (field, line) = self.field(name, field, of, is_required);
                fields.insert(field, line);
            }
        }
        if let Some(message) = self.written.get_mut(name) {
            message.fields = fields;
        }
    }

    /// Returns the name of a field, what stands before it, and its comment.
    fn field(&mut self, parent: &str, name: &str, schema: &Value, is_required: bool) -> (String, (String, String)) {
        let (is_nullable, inner) = split_null(schema);
        let form = self.form(&format!("{parent}{}", camel(name)), inner);
        let mut about = about_of(schema);
        if !matches!(form, Form::Message(_))
            && let Some(words) = self.words(inner)
        {
            let _ = write!(about, " One of {words}.");
        }
        let optional = if is_required && !is_nullable { "" } else { "optional " };
        let before = match &form {
            Form::Scalar(scalar) => format!("{optional}{scalar}"),
            Form::Message(message) => message.clone(),
            Form::List(item) if is_nullable => self.list(item),
            Form::List(item) => repeated(item),
            Form::Map(value) => format!("map<string, {}>", type_of(value)),
            Form::Json => format!("{optional}string"),
        };
        let is_json = matches!(&form, Form::Json) || matches!(&form, Form::List(item) if matches!(**item, Form::Json));
        let name = if is_json { format!("{name}_json") } else { name.to_owned() };
        (name, (before, about.trim_start().to_owned()))
    }

    /// Adds the message of a list that may be absent, and returns its name.
    fn list(&mut self, item: &Form) -> String {
        let name = format!("{}List", camel(type_of(item)));
        let fields = BTreeMap::from([(AS_LIST.to_owned(), (repeated(item), String::new()))]);
        let about = "A list that may be absent as well as empty.".to_owned();
        self.written.entry(name.clone()).or_insert(Message { about, fields });
        name
    }

    fn form(&mut self, name: &str, schema: &Value) -> Form {
        if let Some((name, schema)) = self.referred(schema) {
            return self.form(name, schema);
        }
        if schema.get("enum").is_some() || schema.get("const").is_some() {
            return Form::Scalar("string");
        }
        let alternatives = choices(schema);
        if alternatives.len() > 1 {
            if alternatives.iter().all(|choice| self.is_text(choice)) {
                return Form::Scalar("string");
            }
            self.add(name, text_of(schema, "description"), schema);
            return Form::Message(name.to_owned());
        }
        match (text_of(schema, "type"), text_of(schema, "format")) {
            ("string", _) => Form::Scalar("string"),
            ("boolean", _) => Form::Scalar("bool"),
            ("number", _) => Form::Scalar("double"),
            ("integer", "uint8" | "uint16" | "uint32") => Form::Scalar("uint32"),
            ("integer", "int64") => Form::Scalar("int64"),
            ("integer", _) => Form::Scalar("uint64"),
            ("array", _) => Form::List(Box::new(self.form(name, &schema["items"]))),
            ("object", _) if schema.get("properties").is_some() => {
                self.add(name, text_of(schema, "description"), schema);
                Form::Message(name.to_owned())
            }
            ("object", _) => match schema.get("additionalProperties") {
                Some(value @ Value::Object(_)) => Form::Map(Box::new(self.form(name, value))),
                Some(_) | None => Form::Json,
            },
            (_, _) => Form::Json,
        }
    }

    /// Returns the schema that another one refers to, with its name.
    fn referred(&self, schema: &Value) -> Option<(&'a str, &'a Value)> {
        let target = schema.get("$ref")?.as_str()?;
        let (name, schema) = self.definitions.get_key_value(target.rsplit('/').next()?)?;
        Some((name, schema))
    }

    fn is_text(&self, schema: &Value) -> bool {
        match self.referred(schema) {
            Some((_, schema)) => self.is_text(schema),
            None => text_of(schema, "type") == "string" || schema.get("const").is_some_and(Value::is_string),
        }
    }

    /// Lists the words that a text is one of.
    fn words(&self, schema: &Value) -> Option<String> {
        if let Some((_, schema)) = self.referred(schema) {
            return self.words(schema);
        }
        if let Some(items) = schema.get("items") {
            return self.words(items);
        }
        let mut words = Vec::new();
        for choice in choices(schema) {
            words.extend(choice.get("const"));
            words.extend(choice.get("enum").and_then(Value::as_array).into_iter().flatten());
        }
        let words: Vec<_> = words.iter().filter_map(|word| Some(format!("`{}`", word.as_str()?))).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

impl Message {
    fn write(&self, name: &str, numbers: &Numbers, text: &mut String) {
        comment(text, "", &self.about);
        if self.fields.is_empty() {
            let _ = writeln!(text, "message {name} {{}}");
            return;
        }
        let _ = writeln!(text, "message {name} {{");
        let known = numbers.0.get(name);
        let number = |field: &String| known.and_then(|known| known.get(field)).copied();
        let mut next = known.and_then(|known| known.values().max()).copied().unwrap_or(0);
        let mut fields: Vec<_> = self.fields.iter().map(|(field, line)| (number(field), field, line)).collect();
        // Those without a number come last.
        fields.sort_by_key(|(number, ..)| number.unwrap_or(u32::MAX));
        for (number, field, (before, about)) in fields {
            let number = number.unwrap_or_else(|| {
                next += 1;
                next
            });
            comment(text, "  ", about);
            let _ = writeln!(text, "  {before} {field} = {number};");
        }
        for (gone, number) in known.into_iter().flatten().filter(|(field, _)| !self.fields.contains_key(*field)) {
            comment(text, "  ", gone);
            let _ = writeln!(text, "  reserved {number};");
        }
        text.push_str("}\n");
    }
}

/// Numbers of the fields of a file, by message. A number that is reserved has the name in the comment above it.
struct Numbers(BTreeMap<String, BTreeMap<String, u32>>);

impl Numbers {
    fn of(file: &str) -> Self {
        let mut numbers: BTreeMap<String, BTreeMap<String, u32>> = BTreeMap::new();
        let (mut message, mut above) = (String::new(), "");
        for line in file.lines() {
            if let Some(name) = line.strip_prefix("message ") {
                name.trim_end_matches([' ', '{', '}']).clone_into(&mut message);
            }
            let field = line.trim().strip_suffix(';').and_then(|line| match line.strip_prefix("reserved ") {
                Some(number) => Some((above.trim().trim_start_matches("// "), number)),
                None => {
                    line.split_once(" = ").map(|(before, number)| (before.rsplit(' ').next().unwrap_or(""), number))
                }
            });
            if let Some((name, Ok(number))) = field.map(|(name, number)| (name, number.parse())) {
                numbers.entry(message.clone()).or_default().insert(name.to_owned(), number);
            }
            above = line;
        }
        Self(numbers)
    }
}

/// Returns the forms that a value may have; a schema without a choice is one form.
fn choices(schema: &Value) -> Vec<&Value> {
    let listed = ["oneOf", "anyOf"].iter().find_map(|key| schema.get(key)?.as_array());
    listed.map_or_else(|| vec![schema], |choices| choices.iter().collect())
}

/// Returns whether a value may be null, and the schema of its other values.
fn split_null(schema: &Value) -> (bool, &Value) {
    let all = choices(schema);
    let rest: Vec<_> = all.iter().filter(|choice| text_of(choice, "type") != "null").collect();
    match (rest.as_slice(), rest.len() < all.len()) {
        ([only], true) => (true, only),
        (_, is_choice) => (is_choice || has_null_type(schema), schema),
    }
}

fn has_null_type(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_array).is_some_and(|types| types.iter().any(|of| of == "null"))
}

/// Returns a text of a schema. Of several types it is the first.
fn text_of<'a>(schema: &'a Value, key: &str) -> &'a str {
    let value = schema.get(key).unwrap_or(&Value::Null);
    let first = value.as_array().and_then(|types| types.iter().find(|of| *of != "null"));
    first.unwrap_or(value).as_str().unwrap_or_default()
}

fn about_of(schema: &Value) -> String {
    text_of(schema, "description").to_owned()
}

fn type_of(form: &Form) -> &str {
    match form {
        Form::Scalar(name) => name,
        Form::Message(name) => name,
        Form::List(_) | Form::Map(_) | Form::Json => "string",
    }
}

fn repeated(item: &Form) -> String {
    format!("repeated {}", type_of(item))
}

/// Turns `snake_case` to `CamelCase`.
fn camel(name: &str) -> String {
    let word = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('_').filter(|part| !part.is_empty()).map(word).collect()
}

/// Writes a comment, in lines of limited width.
fn comment(text: &mut String, indent: &str, about: &str) {
    let mut line = String::new();
    let about = about.replace("[`", "`").replace("`]", "`");
    for word in about.split_whitespace() {
        if !line.is_empty() && indent.len() + line.len() + word.len() + 4 > WIDTH {
            let _ = writeln!(text, "{indent}//{line}");
            line.clear();
        }
        line.push(' ');
        line.push_str(word);
    }
    if !line.is_empty() {
        let _ = writeln!(text, "{indent}//{line}");
    }
}
