//! Clients and the mailboxes: people write to agents and agents to people.

use bus_memory::{Action, Fault};
use contract::ErrorCode;
use contract::mail::{MailAction, MailResponse, PEOPLE};

use crate::mail::world::World;

fn send(to: &str, text: &str) -> MailAction {
    MailAction::Send { to: to.to_owned(), subject: "A question".to_owned(), text: text.to_owned() }
}

fn reply(mail: &str, text: &str) -> MailAction {
    MailAction::Reply { mail: mail.to_owned(), text: text.to_owned() }
}

/// Returns the refusal of a request; any other answer fails the test.
fn refusal(response: MailResponse) -> (ErrorCode, String) {
    match response {
        MailResponse::Refused { code, message } => (code, message),
        done @ (MailResponse::Mails(_) | MailResponse::Sent(_) | MailResponse::Closed(_)) => panic!("{done:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn mail_of_a_person_to_an_agent_is_answered_into_the_mailbox_of_people() {
    let world = World::new().await;
    let client = world.mail_client("a");
    let MailResponse::Sent(sent) = client.ask(PEOPLE, "c1", send("eamonn", "How far are you?")).await else {
        panic!("not sent")
    };
    assert_eq!(sent.to.as_str(), "e");
    let listed = client.check("e").await.unwrap();
    assert_eq!(
        (&listed["mails"][0]["from"], &listed["mails"][0]["text"]),
        (&PEOPLE.into(), &"How far are you?".into())
    );
    client.reply("e", "s2-c1-1-1", sent.sent.as_str(), "Half.").await.unwrap();

    let MailResponse::Mails(list) = client.ask(PEOPLE, "c2", MailAction::List).await else { panic!("no list") };
    let [mail] = list.mails.as_slice() else { panic!("{list:?}") };
    assert_eq!((mail.from.as_str(), mail.subject.as_str(), mail.text.as_str()), ("e", "Re: A question", "Half."));
    assert_eq!(mail.answers.as_ref().unwrap().id, sent.sent);
    let closed = client.ask(PEOPLE, "c3", reply(mail.id.as_str(), "")).await;
    assert!(matches!(closed, MailResponse::Closed(ref closed) if !closed.answered), "{closed:?}");
    assert!(
        matches!(client.ask(PEOPLE, "c4", MailAction::List).await, MailResponse::Mails(list) if list.mails.is_empty())
    );
}

#[tokio::test(start_paused = true)]
async fn mail_of_an_agent_to_people_answered_by_a_client_reaches_the_agent() {
    let world = World::new().await;
    let client = world.mail_client("a");
    let sent = client.send("p", "s1-c1-1-1", PEOPLE, "The plan", "May I?").await.unwrap();
    assert_eq!(sent["to"], PEOPLE);
    let id = sent["sent"].as_str().unwrap().to_owned();
    // Another name is another mailbox.
    assert!(
        matches!(client.ask("anna", "c1", MailAction::List).await, MailResponse::Mails(list) if list.mails.is_empty())
    );
    let answered = client.ask(PEOPLE, "c2", reply(&id, "You may.")).await;
    assert!(matches!(answered, MailResponse::Closed(ref closed) if closed.answered), "{answered:?}");
    assert_eq!(client.check("p").await.unwrap()["mails"][0]["text"], "You may.");
}

#[tokio::test(start_paused = true)]
async fn client_request_repeated_takes_effect_once() {
    let world = World::new().await;
    let client = world.mail_client("a");
    let first = client.ask(PEOPLE, "c1", send("e", "How far are you?")).await;
    assert_eq!(client.ask(PEOPLE, "c1", send("e", "How far are you?")).await, first);
    assert_eq!(world.open("e").await.len(), 1);
    // The same id of another mailbox is another request.
    client.ask("anna", "c1", send("e", "How far are you?")).await;
    assert_eq!(world.open("e").await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn agent_mailbox_listed_by_key_or_alias_shows_its_mails() {
    let world = World::new().await;
    let client = world.mail_client("a");
    client.send("p", "s1-c1-1-1", "e", "The plan", "Please.").await.unwrap();
    for mailbox in ["e", "eamonn"] {
        let MailResponse::Mails(list) = client.ask(mailbox, "c1", MailAction::List).await else { panic!("no list") };
        let [mail] = list.mails.as_slice() else { panic!("{mailbox}: {list:?}") };
        assert_eq!((mail.from.as_str(), mail.text.as_str()), ("p", "Please."), "{mailbox}");
    }
    assert_eq!(world.open("e").await.len(), 1, "a list closes nothing");
}

#[tokio::test(start_paused = true)]
async fn client_that_writes_from_an_agent_mailbox_is_refused() {
    let world = World::new().await;
    let client = world.mail_client("a");
    let sent = client.send("p", "s1-c1-1-1", "e", "The plan", "Please.").await.unwrap();
    let id = sent["sent"].as_str().unwrap();
    // Alice reads no mail, but her name is that of an agent.
    for mailbox in ["e", "eamonn", "alice"] {
        for action in [send("p", "Done."), reply(id, "Done."), reply(id, "")] {
            let (code, message) = refusal(client.ask(mailbox, "c1", action).await);
            assert_eq!(code, ErrorCode::BadRequest);
            let expect = format!("{mailbox} is an agent's mailbox: clients may read it, not write in its name");
            assert!(message.starts_with(&expect) && message.contains("`user` is that of people"), "{message}");
        }
    }
    assert_eq!((world.open("e").await.len(), world.open("p").await.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn unknown_agents_refuse_every_mailbox_but_that_of_people() {
    let world = World::new().await;
    let client = world.mail_client("a");
    world.end_composer();
    for action in [MailAction::List, reply("m1", "")] {
        let (_, message) = refusal(client.ask("anna", "c1", action).await);
        assert!(message.starts_with("nobody can tell which agents there are"), "{message}");
    }
    assert!(matches!(client.ask(PEOPLE, "c1", MailAction::List).await, MailResponse::Mails(_)));
}

#[tokio::test(start_paused = true)]
async fn command_id_reused_with_another_subject_or_text_is_refused() {
    let world = World::new().await;
    let client = world.mail_client("a");
    client.ask(PEOPLE, "c1", send("e", "How far are you?")).await;
    let (to, subject, text) = ("e".to_owned(), "A reminder".to_owned(), "How far are you?".to_owned());
    for action in [send("e", "Stop."), MailAction::Send { to, subject, text }] {
        let (code, message) = refusal(client.ask(PEOPLE, "c1", action).await);
        assert_eq!(code, ErrorCode::BadRequest);
        assert!(message.contains("under this command id before; this one was not sent"), "{message}");
    }
    assert_eq!(world.open("e").await, ["client:user:c1"]);
    // Only the recipient's mailbox is checked: see ADR 44.
    client.ask(PEOPLE, "c1", send("p", "How far are you?")).await;
    assert_eq!(world.open("p").await, ["client:user:c1"]);
}

#[tokio::test(start_paused = true)]
async fn reply_repeated_with_another_text_is_refused() {
    let world = World::new().await;
    let client = world.mail_client("a");
    let sent = client.send("p", "s1-c1-1-1", PEOPLE, "The plan", "May I?").await.unwrap();
    let id = sent["sent"].as_str().unwrap();
    let first = client.ask(PEOPLE, "c1", reply(id, "You may.")).await;
    assert!(matches!(first, MailResponse::Closed(_)), "{first:?}");
    assert_eq!(client.ask(PEOPLE, "c1", reply(id, "You may.")).await, first);
    for text in ["You may not.", ""] {
        let (code, message) = refusal(client.ask(PEOPLE, "c1", reply(id, text)).await);
        assert_eq!(code, ErrorCode::BadRequest, "{text:?}: {message}");
    }
    assert_eq!(client.check("p").await.unwrap()["mails"][0]["text"], "You may.");

    let sent = client.send("p", "s1-c1-1-2", PEOPLE, "The report", "For you.").await.unwrap();
    let id = sent["sent"].as_str().unwrap();
    client.ask(PEOPLE, "c2", reply(id, "")).await;
    let (code, message) = refusal(client.ask(PEOPLE, "c2", reply(id, "Thank you.")).await);
    assert_eq!(code, ErrorCode::BadRequest);
    assert!(message.contains("was closed by this request before"), "{message}");
    assert_eq!(world.open("p").await.len(), 1, "only the first answer");
}

#[tokio::test(start_paused = true)]
async fn mailbox_read_failed_is_retryable_and_write_failed_is_unknown() {
    let world = World::new().await;
    let client = world.mail_client("a");
    for action in [MailAction::List, send("e", "How far are you?")] {
        world.next(Action::LastMany, Fault::NotDone);
        let (code, message) = refusal(client.ask(PEOPLE, "c1", action).await);
        assert_eq!(code, ErrorCode::Unavailable);
        let is_plain =
            message.starts_with("the mailboxes cannot be read now (") && message.ends_with("try again later");
        assert!(is_plain, "{message}");
    }
    // More than the rounds in which the bus tries to store a mail.
    for _ in 0..100 {
        world.next(Action::Append, Fault::NotDone);
    }
    let (code, message) = refusal(client.ask(PEOPLE, "c1", send("e", "How far are you?")).await);
    assert_eq!(code, ErrorCode::Unavailable);
    assert!(message.ends_with("whether anything was stored is unknown"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn client_request_refused_has_a_code_and_advice() {
    let world = World::new().await;
    let client = world.mail_client("a");
    let rows = [
        (send("bob", "You?"), ErrorCode::UnknownAgent, "there is no agent \"bob\""),
        (send("alice", "You?"), ErrorCode::BadRequest, "Alice the Assistant reads no mail"),
        (send("e", " "), ErrorCode::EmptyMessage, "a mail has a subject and a text"),
        (send("e", &"x".repeat(40_000)), ErrorCode::TooLarge, "the text is too long"),
        (reply("nothing", "Yes."), ErrorCode::UnknownMail, "there is no mail \"nothing\" in the mailbox of user"),
    ];
    for (action, code, message) in rows {
        let (found, found_message) = refusal(client.ask(PEOPLE, "c1", action).await);
        assert_eq!(found, code);
        assert!(found_message.starts_with(message), "{found_message}");
    }
}
