//! Mail methods, with a fake executor and with one that does not answer.

use std::sync::{Arc, Mutex};

use bus_memory::{Action, Fault, Faults, MemoryServer, Operation};
use contract::mail::{MailAction, MailList, MailRequest, MailResponse, RepliedMail, SentMail, WaitingMail};
use contract::{AgentId, ErrorCode, MailId, TenantId, Timestamp};
use futures::FutureExt;
use serde_json::json;
use tonic::Code;

use crate::support::{Fixture, config, read_code};

#[tokio::test]
async fn mail_request_reaches_its_keeper_with_its_mailbox_and_command_id() {
    let fixture = Fixture::new().await;
    let mut ws = fixture.ws().await;
    let mut grpc = fixture.grpc().await.0;
    let away = ws.call("mail.list", json!({})).await;
    assert_eq!(away["error"]["data"]["code"], "unavailable", "{away}");
    assert!(away["error"]["message"].as_str().unwrap().contains("tool_host.mail"), "{away}");

    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorded = requests.clone();
    let executor = move |request: MailRequest| {
        recorded.lock().unwrap().push((request.mailbox.to_string(), request.id.to_string()));
        let id = MailId::new("m1").unwrap();
        let reply = match request.action {
            MailAction::List => {
                let (from, subject, text) = (AgentId::new("e").unwrap(), "Plan".to_owned(), "May I?".to_owned());
                let mail = WaitingMail { id, from, subject, text, sent: Timestamp::default(), answers: None };
                MailResponse::Mails(MailList { more: 2, mails: vec![mail] })
            }
            MailAction::Send { to, .. } => MailResponse::Sent(SentMail { sent: id, to: AgentId::new(&to).unwrap() }),
            MailAction::Reply { mail, .. } if mail == "m1" => {
                MailResponse::Closed(RepliedMail { closed: id, answered: true })
            }
            MailAction::Reply { mail, .. } if mail == "m3" => {
                MailResponse::Refused { code: ErrorCode::Unavailable, message: "the bus is away".to_owned() }
            }
            MailAction::Reply { .. } => {
                MailResponse::Refused { code: ErrorCode::UnknownMail, message: "there is no such mail".to_owned() }
            }
        };
        async move { reply }.boxed()
    };
    let _serving = fixture.server.bus().serve_mail(&TenantId::default(), executor).await.unwrap();

    let list = ws.expect_ok("mail.list", json!({"mailbox": "anna"})).await;
    assert_eq!(
        (&list["more"], &list["mails"][0]["text"], &list["mails"][0]["from"]),
        (&json!(2), &json!("May I?"), &json!("e"))
    );
    let send = json!({"to": "e", "subject": "Plan", "text": "Start.", "command_id": "c7"});
    assert_eq!(ws.expect_ok("mail.send", send).await, json!({"sent": "m1", "to": "e"}));
    assert_eq!(
        ws.expect_ok("mail.reply", json!({"id": "m1", "text": "Yes."})).await,
        json!({"closed": "m1", "answered": true})
    );
    let unknown = ws.call("mail.reply", json!({"id": "m2", "text": ""})).await;
    assert_eq!(unknown["error"]["data"]["code"], "unknown_mail", "{unknown}");
    {
        let requests = requests.lock().unwrap();
        let mailboxes: Vec<&str> = requests.iter().map(|(mailbox, _)| mailbox.as_str()).collect();
        assert_eq!(mailboxes, ["anna", "user", "user", "user"]);
        assert!(requests[1].1 == "c7" && requests[2].1.len() == 36, "{requests:?}");
    }
    let away = ws.call("mail.reply", json!({"id": "m3", "text": "", "command_id": "c8"})).await;
    let message = "the bus is away; repeat it with the same `command_id`, and nothing is stored twice";
    assert_eq!((&away["error"]["message"], &away["error"]["data"]["retry_after_ms"]), (&json!(message), &json!(1_000)));

    let mails = grpc.list_mail(proto::ListMailRequest::default()).await.unwrap().into_inner();
    assert_eq!((mails.more, mails.mails[0].subject.as_str()), (2, "Plan"));
    let send = proto::SendMailRequest {
        to: "e".to_owned(),
        subject: "x".to_owned(),
        text: "x".to_owned(),
        ..Default::default()
    };
    assert_eq!(grpc.send_mail(send).await.unwrap().into_inner().sent, "m1");
    let reply = |id: &str| proto::ReplyMailRequest { id: id.to_owned(), ..Default::default() };
    assert!(grpc.reply_mail(reply("m1")).await.unwrap().into_inner().answered);
    let unknown = grpc.reply_mail(reply("m2")).await.unwrap_err();
    assert_eq!((unknown.code(), read_code(&unknown).as_str()), (Code::NotFound, "unknown_mail"));
}

/// Fails every request to the mailboxes.
struct MailboxesAway;

impl Faults for MailboxesAway {
    fn decide(&self, op: Operation<'_>) -> Fault {
        let is_mail = op.action == Action::Request && op.subject.starts_with("ai_rpc.mail.");
        if is_mail { Fault::NotDone } else { Fault::None }
    }
}

#[tokio::test]
async fn mail_write_without_answer_names_the_command_id_to_repeat_it_with() {
    let fixture = Fixture::on(MemoryServer::with_faults(Arc::new(MailboxesAway)), config()).await;
    let mut ws = fixture.ws().await;
    let send = json!({"to": "e", "subject": "x", "text": "x"});
    for (method, mut params) in [("mail.send", send), ("mail.reply", json!({"id": "m1", "text": ""}))] {
        let failed = ws.call(method, params.clone()).await;
        let message = failed["error"]["message"].as_str().unwrap();
        assert_eq!(failed["error"]["data"]["code"], "unavailable", "{method}: {message}");
        let made = message.split_once("took effect is unknown: repeat it with `command_id` ");
        let made = made.and_then(|(_, rest)| rest.split_once(',')).map(|(id, _)| id.len());
        assert_eq!(made, Some(36), "{method}: {message}");

        params["command_id"] = json!("c7");
        let failed = ws.call(method, params).await;
        let message = failed["error"]["message"].as_str().unwrap();
        assert!(message.contains("took effect is unknown: repeat it with the same `command_id`"), "{message}");
    }
    let failed = ws.call("mail.list", json!({})).await;
    let message = failed["error"]["message"].as_str().unwrap();
    assert!(message.ends_with("; try again") && !message.contains("command_id"), "{message}");
}
