//! Mailboxes on real servers.

use bus::transport::Appended;
use bus::{Bus, Mailbox, PostOutcome};
use contract::mail::{ClosedMail, Mail, MailEntry};
use contract::subject::{self, MailboxKey};
use contract::{AgentId, MailId, TenantId, Timestamp};
use futures::future::try_join_all;

use crate::nats::world::{World, eventually};

fn mailbox(agent: &str) -> anyhow::Result<MailboxKey> {
    Ok(MailboxKey { tenant: TenantId::default(), agent: AgentId::new(agent)? })
}

fn mail(call: &str) -> anyhow::Result<Mail> {
    let (subject, text) = ("Plan".to_owned(), "Please.".to_owned());
    let from = AgentId::new("p")?;
    Ok(Mail { v: 1, call: call.to_owned(), from, subject, text, sent: Timestamp::default(), answers: None })
}

fn mark(sent_by: &str, closed_by: &str) -> anyhow::Result<ClosedMail> {
    let (sent_by, closed_by) = (sent_by.to_owned(), closed_by.to_owned());
    Ok(ClosedMail { v: 1, sent_by, closed_by, from: AgentId::new("p")?, at: Timestamp::default() })
}

async fn entries(bus: &Bus, agent: &str) -> anyhow::Result<Vec<MailEntry>> {
    match bus.mailbox(&mailbox(agent)?).await? {
        Mailbox::Entries(entries) => Ok(entries.into_iter().map(|(_, entry)| entry).collect()),
        Mailbox::TooMany => anyhow::bail!("too many"),
    }
}

pub(crate) async fn mail_is_stored_once_and_closed_once(world: &mut World) -> anyhow::Result<()> {
    let buses = try_join_all((0..3).map(|n| world.connect(n))).await?;
    let at = mailbox("once")?;
    for n in 0..10 {
        let (id, calls) = (MailId::new(&format!("m{n}"))?, ["a", "b", "c", "d", "e"]);
        let mails = calls.iter().map(|call| mail(call)).collect::<Result<Vec<_>, _>>()?;
        let posts = mails.iter().enumerate().map(|(n, mail)| buses[n % buses.len()].post_mail(&at, &id, mail));
        let posted = try_join_all(posts).await?;
        let Some((seq, MailEntry::Open(first))) = buses[0].mail(&at, &id).await? else { anyhow::bail!("no mail") };
        for (posted, mail) in posted.into_iter().zip(&mails) {
            let there = PostOutcome::Duplicate(MailEntry::Open(first.clone()));
            assert_eq!(posted, if *mail == first { PostOutcome::Stored } else { there });
        }
        let marks = calls.iter().map(|call| mark(&first.call, call)).collect::<Result<Vec<_>, _>>()?;
        let asked = marks.iter().enumerate().map(|(n, mark)| buses[n % buses.len()].close_mail(&at, &id, seq, mark));
        let closed = try_join_all(asked).await?;
        assert_eq!(closed.iter().filter(|ours| **ours).count(), 1);
        let entry = buses[0].mail(&at, &id).await?.map(|(_, entry)| entry);
        let winner = closed.iter().position(|ours| *ours).map(|n| MailEntry::Closed(marks[n].clone()));
        assert_eq!(entry, winner);
        assert_eq!(buses[1].post_mail(&at, &id, &first).await?, PostOutcome::Duplicate(winner.unwrap()));
    }
    Ok(())
}

pub(crate) async fn mailboxes_are_read_after_a_restart(world: &mut World) -> anyhow::Result<()> {
    let (bus, at) = (world.bus.clone(), mailbox("durable")?);
    let ids = (0..3).map(|n| MailId::new(&format!("m{n}"))).collect::<Result<Vec<_>, _>>()?;
    for id in &ids {
        bus.post_mail(&at, id, &mail(id.as_str())?).await?;
    }
    let (seq, _) = bus.mail(&at, &ids[1]).await?.unwrap();
    assert!(bus.close_mail(&at, &ids[1], seq, &mark("m1", "close")?).await?);
    let wanted = [MailEntry::Open(mail("m0")?), MailEntry::Open(mail("m2")?), MailEntry::Closed(mark("m1", "close")?)];
    eventually("the mailbox is whole", || async { entries(&bus, "durable").await.is_ok_and(|all| all == wanted) })
        .await?;
    world.restart().await?;
    eventually("the mailbox is back", || async { entries(&bus, "durable").await.is_ok_and(|all| all == wanted) })
        .await?;
    // A repeated call finds its earlier effect.
    let again = bus.post_mail(&at, &ids[1], &mail("m1")?).await?;
    assert_eq!(again, PostOutcome::Duplicate(MailEntry::Closed(mark("m1", "close")?)));
    Ok(())
}

/// A mark expires after an hour; here after a second, by the same header.
pub(crate) async fn closed_mail_expires_before_an_open_one(world: &mut World) -> anyhow::Result<()> {
    let (bus, at) = (world.bus.clone(), mailbox("fading")?);
    let (open, shut) = (MailId::new("open")?, MailId::new("shut")?);
    bus.post_mail(&at, &open, &mail("one")?).await?;
    bus.post_mail(&at, &shut, &mail("two")?).await?;
    let body = serde_json::to_vec(&MailEntry::Closed(mark("two", "three")?))?;
    let headers = vec![("Nats-TTL".to_owned(), "1".to_owned())];
    let appended = bus.transport().append(&subject::mail(&at, &shut), false, headers, body.into()).await?;
    assert!(matches!(appended, Appended::Stored(_)), "{appended:?}");
    assert_eq!(entries(&bus, "fading").await?.len(), 2);
    eventually("the mark is gone", || async { matches!(bus.mail(&at, &shut).await, Ok(None)) }).await?;
    assert_eq!(entries(&bus, "fading").await?, [MailEntry::Open(mail("one")?)]);
    Ok(())
}
