//! Messages as the JSON of the session API, and JSON as messages.
//!
//! A message has the fields of the JSON object under the same names. The file of the service says how values are
//! written that protobuf has no form for: fields that end in `_json`, and messages with `as_list` and `as_text`.

#![allow(clippy::wildcard_enum_match_arm, reason = "the enums are those of libraries")]

use std::sync::LazyLock;

use prost::bytes::Buf as _;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, SerializeOptions};
use serde_json::{Map, Value};

use crate::DESCRIPTORS;

/// Name of the gRPC service.
pub const SERVICE: &str = "ailoop.v2.Sessions";
/// End of the name of a field with JSON as text.
const JSON_END: &str = "_json";
/// Name of the field with a list, in a message that stands for one.
const AS_LIST: &str = "as_list";
/// Name of the field with a text, in a message that stands for one.
const AS_TEXT: &str = "as_text";

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| DescriptorPool::decode(DESCRIPTORS).unwrap_or_default());

/// The messages of a method.
#[derive(Debug, Clone)]
pub struct MethodMessages {
    /// Message of the parameters.
    pub request: MessageDescriptor,
    /// Message of the result, or of each part of a stream.
    pub reply: MessageDescriptor,
}

impl MethodMessages {
    /// Finds the messages of a method by its name in the service.
    pub fn find(method: &str) -> Option<Self> {
        let service = POOL.get_service_by_name(SERVICE)?;
        let method = service.methods().find(|one| one.name() == method)?;
        Some(Self { request: method.input(), reply: method.output() })
    }
}

/// Message or JSON that cannot be converted, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversionError(String);

impl std::fmt::Display for ConversionError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for ConversionError {}

/// Handling of a field that the message does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownField {
    /// The conversion fails, and names it.
    Refuse,
    /// The field is left out.
    LeaveOut,
}

/// Limit of what a message may have, whose fields take many times their bytes when they are read.
pub trait Limit {
    /// Takes a number of fields; an error says that there are too many.
    fn take_fields(&mut self, count: usize) -> Result<(), String>;

    /// Takes a JSON text before it is parsed; an error says that it has too much, or is nested too deep.
    fn take_json(&mut self, field: &str, text: &str) -> Result<(), String>;
}

/// Function that takes a JSON text before it is parsed, as [`Limit::take_json`].
type TakeJson<'a> = dyn FnMut(&str, &str) -> Result<(), String> + 'a;

/// Reads an encoded message as a JSON object, within a limit.
pub fn decode(
    descriptor: &MessageDescriptor,
    message: &[u8],
    limit: &mut dyn Limit,
) -> Result<Map<String, Value>, ConversionError> {
    limit.take_fields(count_fields(descriptor, message)?).map_err(ConversionError)?;
    read(descriptor, message, &mut |field, text| limit.take_json(field, text))
}

fn read(
    descriptor: &MessageDescriptor,
    message: &[u8],
    take_json: &mut TakeJson,
) -> Result<Map<String, Value>, ConversionError> {
    let message = DynamicMessage::decode(descriptor.clone(), message).map_err(damaged)?;
    // A field that may be absent says itself whether it is. The others have their value, also where that is nothing.
    let options =
        SerializeOptions::new().skip_default_fields(false).use_proto_field_name(true).stringify_64_bit_integers(false);
    let value = message.serialize_with_options(serde_json::value::Serializer, &options).map_err(damaged)?;
    let Value::Object(fields) = value else { return Ok(Map::new()) };
    read_fields(fields, descriptor, take_json)
}

/// Encodes JSON as a message.
pub fn encode(descriptor: &MessageDescriptor, value: Value, unknown: UnknownField) -> Result<Vec<u8>, ConversionError> {
    let value = write_message(value, descriptor, unknown);
    let message = DynamicMessage::deserialize(descriptor.clone(), value).map_err(damaged)?;
    Ok(message.encode_to_vec())
}

/// Message of the API, with its name.
pub trait ApiMessage: Message + Name + Default {}

impl<M: Message + Name + Default> ApiMessage for M {}

/// Returns a message as a JSON object. It has no limit: the caller has the message already.
pub fn to_value<M: ApiMessage>(message: &M) -> Result<Value, ConversionError> {
    read(&descriptor::<M>()?, &message.encode_to_vec(), &mut |_, _| Ok(())).map(Value::Object)
}

/// Makes a message of JSON. A field that it does not have is an error.
pub fn from_value<M: ApiMessage>(value: Value) -> Result<M, ConversionError> {
    M::decode(&*encode(&descriptor::<M>()?, value, UnknownField::Refuse)?).map_err(damaged)
}

fn descriptor<M: Name>() -> Result<MessageDescriptor, ConversionError> {
    let name = M::full_name();
    POOL.get_message_by_name(&name).ok_or_else(|| ConversionError(format!("there is no message {name}")))
}

fn damaged(error: impl std::fmt::Display) -> ConversionError {
    ConversionError(error.to_string())
}

/// Counts the fields of an encoded message and of those in it, without reading them.
fn count_fields(descriptor: &MessageDescriptor, mut bytes: &[u8]) -> Result<usize, ConversionError> {
    let mut count = 0;
    while bytes.has_remaining() {
        let (number, wire) = decode_key(&mut bytes).map_err(damaged)?;
        count += 1;
        let inner = descriptor.get_field(number).and_then(|field| match field.kind() {
            Kind::Message(message) if wire == WireType::LengthDelimited => Some(message),
            _ => None,
        });
        match inner {
            Some(message) => {
                let length = usize::try_from(decode_varint(&mut bytes).map_err(damaged)?).unwrap_or(usize::MAX);
                let (within, rest) = bytes.split_at_checked(length).ok_or_else(|| damaged("a field is cut off"))?;
                count += count_fields(&message, within)?;
                bytes = rest;
            }
            None => skip_field(wire, number, &mut bytes, DecodeContext::default()).map_err(damaged)?,
        }
    }
    Ok(count)
}

fn read_fields(
    fields: Map<String, Value>,
    descriptor: &MessageDescriptor,
    take_json: &mut TakeJson,
) -> Result<Map<String, Value>, ConversionError> {
    let read = |(name, value): (String, Value)| match descriptor.get_field_by_name(&name) {
        Some(field) => read_field(name, value, &field, take_json),
        None => Ok((name, value)),
    };
    fields.into_iter().map(read).collect()
}

fn read_message(
    value: Value,
    descriptor: &MessageDescriptor,
    take_json: &mut TakeJson,
) -> Result<Value, ConversionError> {
    let Value::Object(mut fields) = value else { return Ok(value) };
    if let Some(text) = fields.remove(AS_TEXT) {
        if fields.values().any(|other| other.as_array().is_none_or(|items| !items.is_empty())) {
            return Err(ConversionError(format!("`{AS_TEXT}` excludes the other fields of its message")));
        }
        return Ok(text);
    }
    let mut fields = read_fields(fields, descriptor, take_json)?;
    Ok(fields.remove(AS_LIST).unwrap_or(Value::Object(fields)))
}

fn read_field(
    name: String,
    value: Value,
    field: &FieldDescriptor,
    take_json: &mut TakeJson,
) -> Result<(String, Value), ConversionError> {
    if let Some(of_json) = name.strip_suffix(JSON_END) {
        let mut parse = |text: Value| {
            let text = text.as_str().unwrap_or_default();
            take_json(&name, text).map_err(ConversionError)?;
            serde_json::from_str(text).map_err(|error| ConversionError(format!("`{name}` is not JSON: {error}")))
        };
        let value = match value {
            Value::Array(items) => items.into_iter().map(parse).collect::<Result<_, _>>().map(Value::Array)?,
            text => parse(text)?,
        };
        return Ok((of_json.to_owned(), value));
    }
    let Some(message) = message_of(field) else { return Ok((name, value)) };
    let mut read = |value| read_message(value, &message, take_json);
    let value = match value {
        Value::Array(items) => items.into_iter().map(read).collect::<Result<_, _>>().map(Value::Array)?,
        Value::Object(entries) if field.is_map() => {
            let entries = entries.into_iter().map(|(key, value)| Ok((key, read(value)?)));
            Value::Object(entries.collect::<Result<_, _>>()?)
        }
        one => read(one)?,
    };
    Ok((name, value))
}

/// Returns the message that a field has, once or several times.
fn message_of(field: &FieldDescriptor) -> Option<MessageDescriptor> {
    let kind = match field.kind() {
        Kind::Message(entry) if field.is_map() => entry.map_entry_value_field().kind(),
        other => other,
    };
    match kind {
        Kind::Message(message) => Some(message),
        _ => None,
    }
}

fn write_message(value: Value, descriptor: &MessageDescriptor, unknown: UnknownField) -> Value {
    let fields = match value {
        Value::Object(fields) => fields,
        text @ Value::String(_) => Map::from_iter([(AS_TEXT.to_owned(), text)]),
        list @ Value::Array(_) => Map::from_iter([(AS_LIST.to_owned(), list)]),
        other => return other,
    };
    let write = |(name, value): (String, Value)| {
        if let Some(field) = descriptor.get_field_by_name(&name) {
            return Some((name, write_field(value, &field, unknown)));
        }
        let json_name = format!("{name}{JSON_END}");
        let Some(field) = descriptor.get_field_by_name(&json_name) else {
            return (unknown == UnknownField::Refuse).then_some((name, value));
        };
        let written = match value {
            Value::Null => Value::Null,
            Value::Array(items) if field.is_list() => items.iter().map(|item| Value::from(item.to_string())).collect(),
            one => Value::from(one.to_string()),
        };
        Some((json_name, written))
    };
    fields.into_iter().filter_map(write).collect()
}

fn write_field(value: Value, field: &FieldDescriptor, unknown: UnknownField) -> Value {
    let Some(message) = message_of(field) else { return value };
    let write = |value| write_message(value, &message, unknown);
    match value {
        Value::Array(items) if field.is_list() => items.into_iter().map(write).collect(),
        Value::Object(entries) if field.is_map() => {
            entries.into_iter().map(|(key, value)| (key, write(value))).collect()
        }
        one => write(one),
    }
}
