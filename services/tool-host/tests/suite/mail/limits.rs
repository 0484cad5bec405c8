//! Limits of mailboxes and mails.

use contract::limits::{
    MAIL_CLOSED_AGE_MAX, MAIL_TEXT_BYTES_MAX, MAILBOX_CLOSED_MAX, MAILBOX_OPEN_MAX, MAILS_SHOWN_MAX,
    TOOL_OUTPUT_BYTES_MAX,
};
use tool_host::mail::MailCaller;

use crate::mail::world::{MailClient, World};

async fn send(client: &MailClient, n: usize, text: &str) -> Result<serde_json::Value, String> {
    client.send("p", &format!("s1-c1-1-{n}"), "e", "The plan", text).await
}

#[tokio::test(start_paused = true)]
async fn mailbox_with_too_many_open_mails_refuses_the_next() {
    let world = World::new().await;
    let client = world.mail_client("a");
    for n in 0..MAILBOX_OPEN_MAX {
        send(&client, n, "Please.").await.unwrap();
    }
    let full = "the mailbox of e is full: 100 mails wait in it; nothing was sent, try again later";
    assert_eq!(send(&client, MAILBOX_OPEN_MAX, "Please.").await, Err(full.to_owned()));
    // A repeated call finds its own mail.
    send(&client, MAILBOX_OPEN_MAX - 1, "Please.").await.unwrap();
    // The limit applies to answers, too.
    let sent = client.send("e", "s2-c1-1-1", "p", "A question", "Why?").await.unwrap();
    let id = sent["sent"].as_str().unwrap();
    assert_eq!(client.reply("p", "s3-c1-1-1", id, "Because.").await, Err(full.to_owned()));
    assert_eq!(world.open("p").await.len(), 1, "what was not answered stays open");
    let oldest = client.check("e").await.unwrap()["mails"][0]["id"].clone();
    client.reply("e", "s2-c1-2-1", oldest.as_str().unwrap(), "").await.unwrap();
    client.reply("p", "s3-c1-1-1", id, "Because.").await.unwrap();
    assert_eq!(world.open("e").await.len(), MAILBOX_OPEN_MAX);
}

#[tokio::test(start_paused = true)]
async fn mailbox_with_too_many_closed_mails_refuses_until_they_expire() {
    let world = World::new().await;
    let client = world.mail_client("a");
    for n in 0..MAILBOX_CLOSED_MAX {
        let sent = send(&client, n, "Please.").await.unwrap();
        client.reply("e", &format!("s2-c1-1-{n}"), sent["sent"].as_str().unwrap(), "").await.unwrap();
    }
    let refused = send(&client, MAILBOX_CLOSED_MAX, "Please.").await.unwrap_err();
    assert!(refused.contains("512 mails were closed in it within an hour"), "{refused}");
    tokio::time::sleep(MAIL_CLOSED_AGE_MAX).await;
    send(&client, MAILBOX_CLOSED_MAX, "Please.").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn mailbox_listed_shows_the_oldest_that_fit_and_counts_the_others() {
    let world = World::new().await;
    let client = world.mail_client("a");
    for n in 0..MAILS_SHOWN_MAX + 3 {
        send(&client, n, &format!("number {n}")).await.unwrap();
    }
    let listed = client.check("e").await.unwrap();
    let texts: Vec<&str> = listed["mails"].as_array().unwrap().iter().map(|m| m["text"].as_str().unwrap()).collect();
    assert_eq!((texts.len(), texts[0], texts[19], &listed["more"]), (20, "number 0", "number 19", &3.into()));

    let world = World::new().await;
    let client = world.mail_client("a");
    for n in 0..3 {
        send(&client, n, &"\"".repeat(MAIL_TEXT_BYTES_MAX / 2)).await.unwrap();
    }
    let listed = client.check("e").await.unwrap();
    assert_eq!((listed["mails"].as_array().unwrap().len(), &listed["more"]), (1, &2.into()));
    assert!(listed.to_string().len() <= TOOL_OUTPUT_BYTES_MAX);
}

#[tokio::test(start_paused = true)]
async fn mail_too_long_is_refused_before_anything_is_stored() {
    let world = World::new().await;
    let client = world.mail_client("a");
    let long = "x".repeat(MAIL_TEXT_BYTES_MAX + 1);
    let refused = send(&client, 0, &long).await.unwrap_err();
    assert!(refused.starts_with("the text is too long: it takes 32769 bytes as JSON, 32768 are allowed"), "{refused}");
    assert!(send(&client, 0, " \n").await.is_err());
    let sent = send(&client, 1, "Please.").await.unwrap();
    assert!(client.reply("e", "s2-c1-1-1", sent["sent"].as_str().unwrap(), &long).await.is_err());
    assert_eq!((world.open("e").await.len(), world.open("p").await.len()), (1, 0));
}

#[test]
fn mail_caller_without_identity_headers_is_refused() {
    for (agent, call, header) in [("", "c", "Ailoop-Agent"), ("A.B", "c", "Ailoop-Agent"), ("e", "", "Ailoop-Call")] {
        let refused = MailCaller::new(agent, call).unwrap_err();
        assert!(refused.message().contains(header), "{}", refused.message());
    }
}
