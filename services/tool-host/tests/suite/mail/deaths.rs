//! A tool host crashes in any operation of a call: nothing is lost or stored twice.

use std::time::Duration;

use crate::mail::world::World;

/// More operations than a call has.
const OPERATIONS: usize = 12;
/// Longer than any call takes.
const LONG: Duration = Duration::from_hours(1);

/// Runs a call with a tool host that crashes in its operation number `at`; returns whether it did.
async fn dies<T>(world: &World, client: &str, at: usize, done: bool, call: impl Future<Output = T>) -> bool {
    world.die(client, at, done);
    // A crashed call never ends; entries of closed mails must not expire meanwhile.
    tokio::time::timeout(LONG / 4, call).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn mail_with_any_crash_is_sent_once() {
    let mut deaths = 0;
    for (at, done) in (0..OPERATIONS).flat_map(|at| [(at, false), (at, true)]) {
        let world = World::new().await;
        let (first, second) = (world.mail_client("first"), world.mail_client("second"));
        let call = first.send("p", "s1-c1-1-1", "e", "The plan", "Please.");
        deaths += usize::from(dies(&world, "first", at, done, call).await);
        let sent = second.send("p", "s1-c1-1-1", "e", "The plan", "Please.").await.unwrap();
        assert_eq!(world.open("e").await, ["s1-c1-1-1"], "{at} {done}");
        // Also where the mail was closed between the two calls.
        second.reply("e", "s2-c1-1-1", sent["sent"].as_str().unwrap(), "").await.unwrap();
        second.send("p", "s1-c1-1-1", "e", "The plan", "Please.").await.unwrap();
        assert_eq!(world.open("e").await.len(), 0, "{at} {done}");
    }
    // The call loads the agents, reads its own mail, checks the capacity, and stores: it crashes before and after each.
    assert_eq!(deaths, 4 * 2);
}

#[tokio::test(start_paused = true)]
async fn reply_with_any_crash_is_sent_once_and_closes_its_mail() {
    let mut deaths = 0;
    for (at, done) in (0..OPERATIONS).flat_map(|at| [(at, false), (at, true)]) {
        for repeated in [true, false] {
            let world = World::new().await;
            let (first, second) = (world.mail_client("first"), world.mail_client("second"));
            let sent = second.send("p", "s1-c1-1-1", "e", "The plan", "Please.").await.unwrap();
            let id = sent["sent"].as_str().unwrap();
            let died = dies(&world, "first", at, done, first.reply("e", "s2-c1-1-1", id, "Done.")).await;
            deaths += usize::from(died);
            assert_eq!(first.life.is_dead(), died);
            let (of_e, of_p) = (world.open("e").await, world.open("p").await);
            assert!(of_e.len() + of_p.len() >= 1, "lost: {at} {done}");
            if repeated {
                let replied = second.reply("e", "s2-c1-1-1", id, "Done.").await.unwrap();
                assert_eq!(replied["answered"], true);
                assert_eq!(world.open("p").await, ["s2-c1-1-1"], "{at} {done}");
            } else {
                // The session was stopped, and another one finds the mail open, or closed already.
                let replied = second.reply("e", "s3-c1-1-1", id, "Done, I think.").await;
                assert_eq!(replied.is_ok(), of_p.is_empty(), "{at} {done}: {replied:?}");
                assert_eq!(world.open("p").await.len(), 1, "{at} {done}");
            }
            assert_eq!(world.open("e").await.len(), 0, "{at} {done}");
        }
    }
    // The call reads the mail and its own answer, checks the capacity, stores the answer, and closes the mail.
    assert_eq!(deaths, 5 * 2 * 2);
}
