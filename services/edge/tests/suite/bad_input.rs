//! Every method with every kind of bad input: the error has a stable code and names the field, and the connection stays
//! open.

use contract::limits::FRAME_BYTES_MAX;
use futures::SinkExt;
use proto::json::{Limit, MethodMessages, UnknownField, decode, encode};
use serde_json::{Map, Value, json};
use session_api::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Status};

use crate::support::{Fixture, TEST_TIMEOUT, Ws, key, read_code};

/// Kind of values that a field of a request takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldKind {
    /// An id: one token of a subject.
    Id,
    Text,
    Flag,
    Count,
    /// A number that is not negative.
    Amount,
    /// One of a fixed set of texts.
    Word,
    /// An object with fields of its own.
    Object,
    List,
    /// A text or a list of parts.
    Content,
    Any,
}

use FieldKind::{Amount, Any, Content, Count, Flag, Id, List, Object, Text, Word};

/// A method with its fields, and valid values for the required ones.
pub(crate) struct MethodCase {
    pub(crate) name: &'static str,
    pub(crate) needed: Value,
    pub(crate) fields: Vec<(&'static str, FieldKind)>,
}

fn method(name: &'static str, needed: Value, fields: &[(&'static str, FieldKind)]) -> MethodCase {
    MethodCase { name, needed, fields: fields.to_vec() }
}

fn command(name: &'static str, needed: Value, fields: &[(&'static str, FieldKind)]) -> MethodCase {
    let address = [("session_id", Id), ("command_id", Id), ("wait", Flag), ("no_wait", Flag)];
    method(name, needed, &[&address, fields].concat())
}

pub(crate) fn list_methods() -> Vec<MethodCase> {
    let one = json!({"session_id": "s"});
    let answer = json!({"session_id": "s", "gate": "g", "arguments_sha256": "0".repeat(64), "decision": "approve"});
    let session = [("session_id", Id)];
    let reason = [("reason", Text)];
    let start = [
        ("agent", Id),
        ("prompt", Content),
        ("interactive", Flag),
        ("messages", List),
        ("resume_from", Object),
        ("model", Text),
        ("parameters", Object),
        ("continuation", Object),
        ("features", Object),
        ("tools", List),
        ("client_tools", List),
        ("streaming", Object),
    ];
    let list = [
        ("phase", Word),
        ("limit", Count),
        ("cursor", Word),
        ("agent", Id),
        ("model", Text),
        ("since", Word),
        ("until", Word),
        ("stop_reason", Word),
        ("text", Text),
        ("is_waiting", Flag),
        ("is_failed", Flag),
        ("cost_usd_min", Amount),
        ("parent", Id),
        ("has_total", Flag),
    ];
    let gate = [
        ("gate", Id),
        ("arguments_sha256", Text),
        ("decision", Word),
        ("arguments", Any),
        ("content", Text),
        ("note", Text),
    ];
    let mut methods = vec![
        command("session.start", json!({"interactive": true}), &start),
        command(
            "session.send",
            json!({"session_id": "s", "text": "x"}),
            &[("text", Content), ("mode", Word), ("client_tools", List)],
        ),
        command("session.pause", one.clone(), &reason),
        command("session.resume", one.clone(), &reason),
        command("session.stop", one.clone(), &reason),
        command("session.cancel_turn", one.clone(), &reason),
        command("session.answer", answer, &gate),
        command(
            "session.answer_call",
            json!({"session_id": "s", "call": "c1-1-1", "outcome": "ok", "content": "x"}),
            &[("call", Id), ("outcome", Word), ("content", Text)],
        ),
        command("session.clear", one.clone(), &reason),
        command(
            "session.configure",
            json!({"session_id": "s", "model": "rehearsal"}),
            &[("agent", Id), ("continuation", Object), ("features", Object), ("model", Text), ("client_tools", List)],
        ),
        method("session.history", one.clone(), &session),
        method("session.transcript", one.clone(), &[("session_id", Id), ("after", Count), ("limit", Count)]),
        method("session.get", one.clone(), &session),
        method("session.repair", one.clone(), &session),
        method("session.list", json!({}), &list),
        method("session.replay", one.clone(), &[("session_id", Id), ("at", Count), ("no_commits", Flag)]),
        method("session.trace", one.clone(), &session),
        method("session.describe", one.clone(), &session),
        method("session.stats", json!({}), &[("since", Word), ("interval", Count)]),
        method("session.watch", one.clone(), &[("session_id", Id), ("from_seq", Count), ("no_chunks", Flag)]),
        method("session.unwatch", one, &session),
        method("caller.get", json!({}), &[]),
        method("agents.list", json!({}), &[]),
        method("agents.describe", json!({}), &[("agent", Id), ("model", Text)]),
        method(
            "agents.test_reply",
            json!({"agent": "e", "text": "x"}),
            &[("agent", Id), ("text", Text), ("calls", List), ("is_cut", Flag), ("step", Count)],
        ),
        method("models.list", json!({}), &[]),
        method("tools.list", json!({}), &[]),
        method("tools.replicas", json!({}), &[]),
        method(
            "tools.try",
            json!({"tool": "read_file"}),
            &[("tool", Id), ("arguments", Object), ("arguments_sha256", Text)],
        ),
        method("tools.result", json!({"session_id": "s", "call": "c"}), &[("session_id", Id), ("call", Id)]),
        method("gates.list", json!({}), &[("session_id", Id), ("limit", Count)]),
        method("calls.list", json!({}), &[("session_id", Id), ("limit", Count)]),
    ];
    methods.extend(list_tenant_methods());
    methods
}

/// The methods for the whole tenant and for the fleet.
fn list_tenant_methods() -> Vec<MethodCase> {
    let letter = json!({"session_id": "s", "kind": "control", "id": "x"});
    let dead = [("session_id", Id), ("kind", Word), ("id", Id)];
    let mail = [("mailbox", Id), ("command_id", Id), ("to", Text), ("subject", Text), ("text", Text)];
    let reply = [("mailbox", Id), ("command_id", Id), ("id", Text), ("text", Text)];
    vec![
        method("mail.list", json!({}), &[("mailbox", Id)]),
        method("mail.send", json!({"to": "e", "subject": "x", "text": "x"}), &mail),
        method("mail.reply", json!({"id": "m", "text": ""}), &reply),
        method("fleet.queues", json!({}), &[]),
        method("fleet.status", json!({}), &[]),
        method("budgets.list", json!({}), &[]),
        method("budgets.reset", json!({"budget": "day"}), &[("budget", Text)]),
        method("dead.list", json!({}), &[("session_id", Id)]),
        method("dead.show", letter.clone(), &dead),
        method("dead.retry", letter.clone(), &dead),
        method("dead.drop", letter, &dead),
    ]
}

/// Lists values that a field of a kind must refuse.
fn wrong_values(kind: FieldKind) -> Vec<Value> {
    let ids = ["a.b", "a*", ">", "a b", "a\u{0}b", "ä", "$SYS", "a/b", "\u{202e}a"].map(Value::from);
    let long = Value::from("x".repeat(100_000));
    match kind {
        Id => [json!(7), json!(["a"]), json!({"a": 1}), json!(true), long].into_iter().chain(ids).collect(),
        Text => vec![json!(7), json!(["a"]), json!({"a": 1})],
        Flag => vec![json!("true"), json!(1), json!([true])],
        Count => vec![json!("1"), json!(-1), json!(1.5), json!([1]), json!(1e30)],
        Amount => vec![json!("1"), json!([1]), json!(true)],
        Word => vec![json!("unheard-of"), json!(7), json!([]), long],
        Object => vec![json!("x"), json!(7), json!([1]), json!(true)],
        List => vec![json!("x"), json!(7), json!({"a": 1}), json!([[[]]])],
        Content => vec![json!(7), json!(true), json!({"a": 1}), json!([7]), json!([{"type": "unheard-of"}])],
        Any => vec![],
    }
}

/// Finds what is wrong with the response to a bad request.
fn find_fault(answer: &Value, field: &str) -> Option<String> {
    let code = answer["error"]["data"]["code"].as_str().unwrap_or_default();
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    let known = ["bad_request", "too_large", "empty_message", "invalid_arguments"].contains(&code);
    // `text` is another name of `content`.
    let names = message.contains(field) || (field == "text" && message.contains("content"));
    let short = message.len() < 1_000;
    (!known || !names || !short).then(|| {
        let shown: String = answer.to_string().chars().take(300).collect();
        format!("code {code:?}, names the field: {names}, {} bytes: {shown}", message.len())
    })
}

async fn call(ws: &mut Ws, method: &str, params: Map<String, Value>) -> Value {
    ws.call(method, Value::Object(params)).await
}

#[tokio::test]
async fn bad_field_of_any_json_rpc_method_is_refused_by_its_name() {
    let fixture = Fixture::new().await;
    fixture.fake_loop.fill_log(&key("s"), 1).await;
    let mut ws = fixture.ws().await;
    let mut faults = Vec::new();
    for MethodCase { name, needed, fields } in list_methods() {
        let Value::Object(needed) = needed else { panic!("{name}: not an object") };
        for (field, kind) in &fields {
            for value in wrong_values(*kind) {
                let mut params = needed.clone();
                let shown: String = value.to_string().chars().take(40).collect();
                params.insert((*field).to_owned(), value);
                let found = find_fault(&call(&mut ws, name, params).await, field);
                faults.extend(found.map(|found| format!("{name}: {field} = {shown}: {found}")));
            }
        }
        for field in needed.keys().filter(|field| *field != "interactive") {
            let mut params = needed.clone();
            params.remove(field);
            let found = find_fault(&call(&mut ws, name, params).await, field);
            faults.extend(found.map(|found| format!("{name} without {field}: {found}")));
        }
        let mut params = needed.clone();
        params.insert("unheard_of".to_owned(), json!(1));
        let found = find_fault(&call(&mut ws, name, params).await, "unheard_of");
        faults.extend(found.map(|found| format!("{name} with an unknown field: {found}")));
        ws.send_text(&json!({"jsonrpc": "2.0", "id": "list", "method": name, "params": ["s"]}).to_string()).await;
        let answer = ws.receive_frame().await.unwrap();
        assert_eq!(answer["error"]["data"]["code"], "bad_request", "{name} with a list: {answer}");
    }
    assert_eq!(faults.len(), 0, "{}", faults.join("\n"));
}

#[tokio::test]
async fn table_of_bad_input_has_every_json_rpc_method() {
    let fixture = Fixture::new().await;
    let mut ws = fixture.ws().await;
    let answer = ws.call("session.unheard_of", json!({})).await;
    let message = answer["error"]["message"].as_str().unwrap();
    let known = message.split_once("there are ").unwrap().1;
    let mut known: Vec<_> = known.split(", ").collect();
    known.sort_unstable();
    let mut tested: Vec<_> = list_methods().iter().map(|method| method.name).collect();
    tested.sort_unstable();
    assert_eq!(tested, known);
}

#[tokio::test]
async fn damaged_frame_of_any_method_is_answered_and_connection_stays_open() {
    let fixture = Fixture::new().await;
    fixture.fake_loop.fill_log(&key("s"), 1).await;
    let mut ws = fixture.ws().await;
    for MethodCase { name, needed, .. } in list_methods() {
        let whole = json!({"jsonrpc": "2.0", "id": 1, "method": name, "params": needed}).to_string();
        for cut in [1, whole.len() / 2, whole.len() - 1] {
            ws.send_text(&whole[..cut]).await;
            let answer = ws.receive_frame().await.unwrap();
            assert_eq!(
                (&answer["error"]["code"], &answer["error"]["data"]["code"]),
                (&json!(-32700), &json!("bad_request")),
                "{name} cut at {cut}"
            );
        }
    }
    // JSON that is nested too deeply is refused before it is parsed.
    for (damaged, code) in [
        ("[".repeat(10_000), -32602),
        ("{\"a\":".repeat(5_000), -32602),
        ("\u{feff}{}".to_owned(), -32700),
        ("{}{}".to_owned(), -32700),
    ] {
        ws.send_text(&damaged).await;
        assert_eq!(ws.receive_frame().await.unwrap()["error"]["code"], code);
    }
    ws.expect_ok("session.get", json!({"session_id": "s"})).await;
}

#[tokio::test]
async fn request_id_is_echoed_and_bounded() {
    let fixture = Fixture::new().await;
    fixture.fake_loop.fill_log(&key("s"), 1).await;
    let mut ws = fixture.ws().await;
    for id in [json!("a.b"), json!("x".repeat(100)), json!(1.5), json!(-1), json!("ä \u{0}")] {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": "session.get", "params": {"session_id": "s"}});
        ws.send_text(&request.to_string()).await;
        let answer = ws.receive_frame().await.unwrap();
        assert_eq!((&answer["id"], &answer["result"]["session_id"]), (&id, &json!("s")));
    }
    let long = "x".repeat(100_000);
    let request = json!({"jsonrpc": "2.0", "id": long, "method": "session.get", "params": {"session_id": "s"}});
    ws.send_text(&request.to_string()).await;
    let answer = ws.receive_frame().await.unwrap();
    assert_eq!((&answer["id"], &answer["error"]["data"]["code"]), (&json!(null), &json!("bad_request")));
    assert!(answer["error"]["message"].as_str().unwrap().contains("`id`"), "{answer}");
    // The error for an unknown method repeats only the beginning of a long name.
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": long});
    ws.send_text(&request.to_string()).await;
    let answer = ws.receive_frame().await.unwrap();
    assert_eq!(answer["error"]["data"]["code"], "unknown_method");
    assert!(answer.to_string().len() < 2_000);
}

#[tokio::test]
async fn body_of_100_mb_ends_its_connection_and_no_other() {
    let fixture = Fixture::new().await;
    let mut other = fixture.ws().await;
    let mut ws = fixture.ws().await;
    // The server may close before everything is sent.
    let _ = ws.socket.send(Message::Text("x".repeat(100 << 20).into())).await;
    while ws.receive_frame().await.is_ok() {}
    let mut post = tokio::net::TcpStream::connect(fixture.edge.addresses().ws).await.unwrap();
    let head = format!("POST /ws HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", 100 << 20);
    post.write_all(head.as_bytes()).await.unwrap();
    let (mut reader, mut writer) = post.into_split();
    let sending = async { while writer.write_all(&[b'x'; 8 << 10]).await.is_ok() {} };
    let reading = async {
        let mut answer = Vec::new();
        // A reset may follow the response immediately.
        let _ = reader.read_to_end(&mut answer).await;
        answer
    };
    let ((), answer) = tokio::time::timeout(TEST_TIMEOUT, async { tokio::join!(sending, reading) }).await.unwrap();
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 405"), "{}", String::from_utf8_lossy(&answer));
    other.expect_ok("session.list", json!({})).await;
}

/// Lists the methods that gRPC has.
pub(crate) fn list_rpcs() -> Vec<(Method, MethodCase)> {
    let rows = list_methods().into_iter().map(|case| (Method::from_name(case.name).expect(case.name), case));
    rows.filter(|(method, _)| method.has_rpc()).collect()
}

/// No limit, for the replies of the edge.
struct Unlimited;

impl Limit for Unlimited {
    fn take_fields(&mut self, _: usize) -> Result<(), String> {
        Ok(())
    }

    fn take_json(&mut self, _: &str, _: &str) -> Result<(), String> {
        Ok(())
    }
}

/// Calls a method over gRPC by the JSON of its parameters; returns the JSON of its result.
pub(crate) async fn call_rpc(
    fixture: &Fixture,
    method: Method,
    mut params: Value,
    key: Option<&str>,
) -> Result<Value, Status> {
    // Over JSON-RPC, `text` is another name of `content`.
    if let (Method::SendMessage, Value::Object(fields)) = (method, &mut params)
        && let Some(text) = fields.remove("text")
    {
        fields.insert("content".to_owned(), text);
    }
    let messages = MethodMessages::find(method.rpc()).unwrap();
    let body = encode(&messages.request, params, UnknownField::Refuse).unwrap();
    let reply = raw_call(fixture, method.rpc(), body, key).await?;
    Ok(Value::Object(decode(&messages.reply, &reply, &mut Unlimited).unwrap()))
}

/// Sends a gRPC request with any bytes as its message; returns those of the reply.
pub(crate) async fn raw_call(
    fixture: &Fixture,
    method: &str,
    body: Vec<u8>,
    key: Option<&str>,
) -> Result<Vec<u8>, Status> {
    let channel = tonic::transport::Channel::from_shared(format!("http://{}", fixture.edge.addresses().grpc)).unwrap();
    let mut client = tonic::client::Grpc::new(channel.connect().await.unwrap());
    client.ready().await.unwrap();
    let path: PathAndQuery = format!("/ailoop.v2.Sessions/{method}").parse().unwrap();
    let mut request = tonic::Request::new(body);
    if let Some(key) = key {
        request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    }
    client.unary(request, path, raw::Codec).await.map(tonic::Response::into_inner)
}

mod raw {
    //! A codec that sends and returns bytes as they are.

    use bytes::{Buf, BufMut};
    use tonic::Status;
    use tonic::codec::{DecodeBuf, EncodeBuf};

    #[derive(Debug, Clone, Copy)]
    pub(super) struct Codec;

    impl tonic::codec::Codec for Codec {
        type Encode = Vec<u8>;
        type Decode = Vec<u8>;
        type Encoder = Self;
        type Decoder = Self;

        fn encoder(&mut self) -> Self {
            Self
        }

        fn decoder(&mut self) -> Self {
            Self
        }
    }

    impl tonic::codec::Encoder for Codec {
        type Item = Vec<u8>;
        type Error = Status;

        fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
            buffer.put_slice(&item);
            Ok(())
        }
    }

    impl tonic::codec::Decoder for Codec {
        type Item = Vec<u8>;
        type Error = Status;

        fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
            Ok(Some(buffer.copy_to_bytes(buffer.remaining()).into()))
        }
    }
}

#[tokio::test]
async fn bad_message_of_any_grpc_method_has_a_stable_code() {
    let fixture = Fixture::new().await;
    fixture.fake_loop.fill_log(&key("s"), 1).await;
    for (method, MethodCase { name, needed, fields }) in list_rpcs() {
        // Field 1 as a number that never ends, a text that is longer than the message, and no UTF-8.
        for damaged in [&b"\x08\xff\xff"[..], b"\x0a\x7fx", b"\x0a\x01\xff"] {
            if fields.is_empty() && damaged.len() == 3 {
                continue;
            }
            let refused = raw_call(&fixture, method.rpc(), damaged.to_vec(), None).await;
            let Err(refused) = refused else { continue };
            assert_eq!(
                (refused.code(), &*read_code(&refused)),
                (Code::InvalidArgument, "bad_request"),
                "{name} {refused}"
            );
        }
        let refused = raw_call(&fixture, method.rpc(), vec![0x12; FRAME_BYTES_MAX + 1], None).await.unwrap_err();
        assert_eq!(read_code(&refused), "too_large", "{name}: {refused}");
        for bad in ["a.b", "a*", ">", "a b", "ä"] {
            if !fields.iter().any(|(field, _)| *field == "session_id") {
                continue;
            }
            let mut params = needed.clone();
            params["session_id"] = json!(bad);
            let refused = call_rpc(&fixture, method, params, None).await.unwrap_err();
            assert_eq!(read_code(&refused), "bad_request", "{name} {bad}: {refused}");
            assert!(refused.message().contains("session_id"), "{name} {bad}: {refused}");
        }
    }
    let refused = raw_call(&fixture, "UnheardOf", Vec::new(), None).await.unwrap_err();
    assert_eq!((refused.code(), &*read_code(&refused)), (Code::Unimplemented, "unknown_method"));
}
