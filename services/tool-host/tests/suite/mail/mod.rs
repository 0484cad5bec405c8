//! The mail tools as agents see them, on the in-memory bus and in the test's own time.

mod clients;
mod deaths;
mod limits;
mod world;

use std::time::Duration;

use bus_memory::{Action, Fault};
use contract::limits::{MAIL_AGE_MAX, MAIL_CLOSED_AGE_MAX};
use contract::{MailId, TenantId};
use serde_json::json;

use world::{EPOCH, World};

#[tokio::test(start_paused = true)]
async fn mail_between_agents_is_listed_answered_and_closed() {
    let world = World::new().await;
    let client = world.mail_client("a");
    let id = MailId::sent_by("s1-c1-1-1");
    let sent = client.send("p", "s1-c1-1-1", "Eamonn", "The plan", "Please carry out plans/a.md.").await;
    assert_eq!(sent, Ok(json!({"sent": id, "to": "e"})));

    tokio::time::sleep(Duration::from_mins(5)).await;
    let listed = json!({"mails": [{"id": id, "from": "p", "subject": "The plan", "text": "Please carry out plans/a.md.",
        "sent": EPOCH, "age": "5 min"}], "more": 0});
    assert_eq!(client.check("e").await, Ok(listed.clone()));
    assert_eq!(client.check("e").await, Ok(listed), "looking changes nothing");
    assert_eq!(client.check("p").await, Ok(json!({"mails": [], "more": 0})));

    let replied = client.reply("e", "s2-c1-2-1", id.as_str(), "Done, all of it.").await;
    assert_eq!(replied, Ok(json!({"closed": id, "answered": true})));
    assert_eq!(client.check("e").await, Ok(json!({"mails": [], "more": 0})));
    let answer = client.check("p").await.unwrap()["mails"][0].clone();
    assert_eq!(
        answer,
        json!({"id": answer["id"], "from": "e", "subject": "Re: The plan", "text": "Done, all of it.",
            "sent": answer["sent"], "age": "0 s",
            "answers": {"id": id, "subject": "The plan", "excerpt": "Please carry out plans/a.md."}})
    );
    let closed = client.reply("p", "s3-c1-1-1", answer["id"].as_str().unwrap(), "").await;
    assert_eq!(closed, Ok(json!({"closed": answer["id"], "answered": false})));
    for agent in ["e", "p"] {
        assert_eq!(client.check(agent).await, Ok(json!({"mails": [], "more": 0})), "{agent}");
    }
}

#[tokio::test(start_paused = true)]
async fn mail_call_repeated_has_no_second_effect() {
    let world = World::new().await;
    let (client, other) = (world.mail_client("a"), world.mail_client("b"));
    let send = async || client.send("p", "s1-c1-1-1", "e", "The plan", "Please.").await;
    let first = send().await.unwrap();
    let id = first["sent"].as_str().unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(send().await, Ok(first.clone()));
    assert_eq!(world.open("e").await, ["s1-c1-1-1"]);

    let reply = async || other.reply("e", "s2-c1-1-1", id, "Done.").await;
    let replied = reply().await.unwrap();
    assert_eq!(reply().await, Ok(replied.clone()));
    assert_eq!((world.open("e").await.len(), world.open("p").await), (0, vec!["s2-c1-1-1".to_owned()]));
    // A closed mail does not come back.
    assert_eq!(send().await, Ok(first.clone()));
    let answer = other.check("p").await.unwrap()["mails"][0]["id"].clone();
    other.reply("p", "s3-c1-1-1", answer.as_str().unwrap(), "").await.unwrap();
    assert_eq!(reply().await, Ok(replied));
    assert_eq!((world.open("e").await.len(), world.open("p").await.len()), (0, 0));
    // Another call is another mail.
    client.send("p", "s1-c1-2-1", "e", "The plan", "Please.").await.unwrap();
    assert_eq!(world.open("e").await, ["s1-c1-2-1"]);
}

#[tokio::test(start_paused = true)]
async fn mail_missing_or_in_another_mailbox_is_an_error_that_names_it() {
    let world = World::new().await;
    let client = world.mail_client("a");
    let sent = client.send("p", "s1-c1-1-1", "e", "The plan", "Please.").await.unwrap();
    let id = sent["sent"].as_str().unwrap();
    let not_there =
        |of: &str, id: &str| format!("there is no mail {id:?} in the mailbox of {of}; list its mails again");
    for (agent, name) in [("e", "nothing"), ("p", id), ("d", id), ("e", "a.b"), ("e", "*"), ("e", "")] {
        assert_eq!(
            client.reply(agent, "s2-c1-1-1", name, "Done.").await,
            Err(not_there(agent, name)),
            "{agent} {name}"
        );
    }
    let elsewhere = world.mail_client_of("b", &TenantId::new("other").unwrap());
    assert_eq!(elsewhere.reply("e", "s2-c1-1-1", id, "Done.").await, Err(not_there("e", id)));
    assert_eq!(elsewhere.check("e").await, Ok(json!({"mails": [], "more": 0})));

    client.reply("e", "s2-c1-1-1", id, "").await.unwrap();
    let closed = format!("the mail {id} was closed already; nothing was sent");
    assert_eq!(client.reply("e", "s2-c1-2-1", id, "Done.").await, Err(closed));
    assert_eq!(world.open("p").await.len(), 0);
    // The entry of a closed mail expires.
    tokio::time::sleep(MAIL_CLOSED_AGE_MAX + Duration::from_secs(1)).await;
    assert_eq!(client.reply("e", "s2-c1-2-1", id, "Done.").await, Err(not_there("e", id)));
}

#[tokio::test(start_paused = true)]
async fn recipient_unknown_is_refused_and_known_ones_are_listed() {
    let world = World::new().await;
    let client = world.mail_client("a");
    let known = "there are d or debbie (Debbie the Debugger), e or eamonn (Eamonn the Executioner), \
                 p or patricia (Patricia the Planner), user (people)";
    let to = async |name: &str| client.send("p", "s1-c1-1-1", name, "Hello", "You.").await;
    assert_eq!(to("bob").await, Err(format!("there is no agent \"bob\"; {known}")));
    let deaf = format!("Alice the Assistant reads no mail: it may not use check_mail; {known}");
    assert_eq!(to("alice").await, Err(deaf));
    for (name, id) in [("e", "e"), ("eamonn", "e"), ("Debbie the Debugger", "d"), ("p", "p")] {
        assert_eq!(to(name).await.unwrap()["to"], id);
    }

    world.end_composer();
    let away = to("e").await.unwrap_err();
    assert!(away.starts_with("nobody can tell which agents there are"), "{away}");
    // An answer needs no composer.
    let mail = world.ids("e").await;
    client.reply("e", "s2-c1-1-1", &mail[0], "Hello too.").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn mail_unanswered_expires_after_its_age_limit() {
    let world = World::new().await;
    let client = world.mail_client("a");
    client.send("p", "s1-c1-1-1", "e", "The plan", "Please.").await.unwrap();
    let almost = Duration::from_hours(29 * 24 + 23);
    tokio::time::sleep(almost).await;
    assert_eq!(client.check("e").await.unwrap()["mails"][0]["age"], "29 d");
    tokio::time::sleep(MAIL_AGE_MAX.saturating_sub(almost)).await;
    assert_eq!(client.check("e").await, Ok(json!({"mails": [], "more": 0})));
}

#[tokio::test(start_paused = true)]
async fn mailbox_read_stale_decides_nothing() {
    let world = World::new().await;
    let client = world.mail_client("a");
    let sent = client.send("p", "s1-c1-1-1", "e", "The plan", "Please.").await.unwrap();
    client.reply("e", "s2-c1-1-1", sent["sent"].as_str().unwrap(), "Done.").await.unwrap();
    // A read from before the answer was stored and the mail was closed: three changes, since the entry of a closed mail
    // replaces the mail.
    world.next(Action::LastMany, Fault::Stale(3));
    let stale = client.check("e").await.unwrap();
    assert_eq!(stale["mails"][0]["id"], sent["sent"]);
    let again = client.reply("e", "s2-c1-2-1", sent["sent"].as_str().unwrap(), "Done again.").await;
    assert!(again.unwrap_err().contains("was closed already"));
    assert_eq!(world.open("p").await, ["s2-c1-1-1"]);
}

#[tokio::test(start_paused = true)]
async fn mail_answered_by_two_sessions_at_once_gets_one_answer() {
    let world = World::new().await;
    let sent = world.mail_client("a").send("p", "s1-c1-1-1", "e", "The plan", "Please.").await.unwrap();
    let id = sent["sent"].as_str().unwrap();
    let (slow, fast) = (world.mail_client("slow"), world.mail_client("fast"));
    world.next(Action::Append, Fault::Delay(Duration::from_secs(2)));
    let late = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        fast.reply("e", "s3-c1-1-1", id, "Mine.").await
    };
    let (slow, fast) = tokio::join!(slow.reply("e", "s2-c1-1-1", id, "No, mine."), late);
    assert_eq!(fast, Ok(json!({"closed": id, "answered": true})));
    assert!(slow.unwrap_err().contains("had been answered already by another call"));
    assert_eq!((world.open("e").await.len(), world.open("p").await), (0, vec!["s3-c1-1-1".to_owned()]));
}
