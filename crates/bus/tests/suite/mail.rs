//! Mailboxes on the in-memory server: every doubt about a write is settled, and everything expires.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bus::{Bus, Mailbox, PostOutcome};
use bus_memory::{Action, Fault, Faults, MemoryServer, Operation};
use contract::limits::{MAIL_AGE_MAX, MAIL_CLOSED_AGE_MAX};
use contract::mail::{ClosedMail, Mail, MailEntry};
use contract::subject::MailboxKey;
use contract::{AgentId, MailId, TenantId, Timestamp};
use tokio::time::{Instant, sleep_until};

/// Faults for the next appends, in order.
struct Script(Mutex<VecDeque<Fault>>);

impl Faults for Script {
    fn decide(&self, op: Operation<'_>) -> Fault {
        let next = || self.0.lock().unwrap().pop_front();
        if op.action == Action::Append { next().unwrap_or(Fault::None) } else { Fault::None }
    }
}

fn server(faults: &[Fault]) -> MemoryServer {
    MemoryServer::with_faults(Arc::new(Script(Mutex::new(faults.iter().copied().collect()))))
}

fn mailbox(agent: &str) -> MailboxKey {
    MailboxKey { tenant: TenantId::default(), agent: AgentId::new(agent).unwrap() }
}

fn id(text: &str) -> MailId {
    MailId::new(text).unwrap()
}

fn mail(call: &str) -> Mail {
    let (subject, text) = ("Plan".to_owned(), "Please.".to_owned());
    let from = AgentId::new("p").unwrap();
    Mail { v: 1, call: call.to_owned(), from, subject, text, sent: Timestamp::default(), answers: None }
}

fn mark(call: &str) -> ClosedMail {
    let Mail { v, call: sent_by, from, sent: at, .. } = mail("one");
    ClosedMail { v, sent_by, closed_by: call.to_owned(), from, at }
}

async fn entries(bus: &Bus, agent: &str) -> Vec<(String, MailEntry)> {
    match bus.mailbox(&mailbox(agent)).await.unwrap() {
        Mailbox::Entries(entries) => entries.into_iter().map(|(id, entry)| (id.to_string(), entry)).collect(),
        Mailbox::TooMany => panic!("few"),
    }
}

#[tokio::test(start_paused = true)]
async fn mail_write_is_doubtful_outcome_is_settled() {
    let doubts = [10_071, 10_164, 10_158, 10_077, 0];
    let stored = doubts.map(|code| Fault::Doubtful { code, stored: true });
    let refused = doubts.map(|code| Fault::Doubtful { code, stored: false });
    let others = [Fault::AckLost, Fault::NotDone, Fault::Lag(Duration::from_secs(1)), Fault::Redeliver];
    for fault in stored.into_iter().chain(refused).chain(others) {
        // The same fault three times, then two operations without one, then three times while closing.
        let server = server(&[fault, fault, fault, Fault::None, Fault::None, fault, fault, fault]);
        let (bus, at) = (server.bus(), mailbox("e"));
        assert_eq!(bus.post_mail(&at, &id("m"), &mail("one")).await.unwrap(), PostOutcome::Stored, "{fault:?}");
        let there = PostOutcome::Duplicate(MailEntry::Open(mail("one")));
        assert_eq!(bus.post_mail(&at, &id("m"), &mail("two")).await.unwrap(), there, "{fault:?}");
        let (seq, entry) = bus.mail(&at, &id("m")).await.unwrap().unwrap();
        assert_eq!(entry, MailEntry::Open(mail("one")));
        for (call, ours) in [("three", true), ("four", false), ("three", true)] {
            assert_eq!(bus.close_mail(&at, &id("m"), seq, &mark(call)).await.unwrap(), ours, "{fault:?} {call}");
        }
        assert_eq!(entries(&bus, "e").await, [("m".to_owned(), MailEntry::Closed(mark("three")))], "{fault:?}");
        let closed = PostOutcome::Duplicate(MailEntry::Closed(mark("three")));
        assert_eq!(bus.post_mail(&at, &id("m"), &mail("one")).await.unwrap(), closed, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn mailbox_is_read_in_order_and_apart_from_others() {
    let bus = server(&[]).bus();
    for (agent, name) in [("e", "z"), ("p", "x"), ("e", "a"), ("e", "m")] {
        bus.post_mail(&mailbox(agent), &id(name), &mail(name)).await.unwrap();
    }
    let other = MailboxKey { tenant: TenantId::new("other").unwrap(), ..mailbox("e") };
    bus.post_mail(&other, &id("o"), &mail("o")).await.unwrap();
    let names = |entries: Vec<(String, MailEntry)>| entries.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    assert_eq!(names(entries(&bus, "e").await), ["z", "a", "m"]);
    assert_eq!(names(entries(&bus, "p").await), ["x"]);
    assert_eq!(names(entries(&bus, "a").await), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn mails_and_marks_expire() {
    let (bus, at) = (server(&[]).bus(), mailbox("e"));
    bus.post_mail(&at, &id("open"), &mail("one")).await.unwrap();
    bus.post_mail(&at, &id("shut"), &mail("one")).await.unwrap();
    let (seq, _) = bus.mail(&at, &id("shut")).await.unwrap().unwrap();
    bus.close_mail(&at, &id("shut"), seq, &mark("two")).await.unwrap();
    let from = Instant::now();
    let at_second = |second: u64| sleep_until(from + Duration::from_secs(second));
    at_second(MAIL_CLOSED_AGE_MAX.as_secs() - 1).await;
    assert_eq!(entries(&bus, "e").await.len(), 2);
    at_second(MAIL_CLOSED_AGE_MAX.as_secs() + 1).await;
    assert_eq!(entries(&bus, "e").await, [("open".to_owned(), MailEntry::Open(mail("one")))]);
    at_second(MAIL_AGE_MAX.as_secs() - 1).await;
    assert_eq!(entries(&bus, "e").await.len(), 1);
    at_second(MAIL_AGE_MAX.as_secs() + 1).await;
    assert_eq!(bus.mail(&at, &id("open")).await.unwrap(), None);
    // A mail that is gone cannot be closed.
    assert!(!bus.close_mail(&at, &id("open"), 1, &mark("two")).await.unwrap());
}
