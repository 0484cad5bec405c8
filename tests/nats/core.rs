//! Core NATS: requests, groups, cancels, gaps.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ailoop_tests::wait::{PATIENCE, soon};
use anyhow::{Context, bail};
use bus::rpc::{HeldCall, Holder};
use bus::{Bus, BusError, CallNote, Hold, SubscriptionEvent};
use bytes::Bytes;
use contract::Timestamp;
use contract::fleet::OfferedDelivery;
use contract::ids::{CallAttempt, CallId, ToolName};
use contract::streams::Queue;
use contract::subject::{self, Subject};
use futures::{FutureExt, StreamExt};
use tokio::time::Instant;

use crate::nats::queue::publish_calls;
use crate::nats::world::{World, eventually, key, pull_one};

/// Waits until the node of this connection knows a subscription that was made at another node. The subscriber gets one
/// request, which it does not answer.
async fn is_known(bus: &Bus, subject: &Subject) -> anyhow::Result<()> {
    let ask = || bus.transport().request(subject, Vec::new(), Bytes::new(), Duration::from_millis(500));
    eventually("the subscription is known", || async { !matches!(ask().await, Err(BusError::NoResponders { .. })) })
        .await
}

pub(crate) async fn requests_get_their_answers(world: &mut World) -> anyhow::Result<()> {
    let (bus, other) = (world.bus.clone(), world.connect(1).await?);
    let session = key("rpc")?;
    let call = CallId::tool(1, 1, 1);
    let offered = OfferedDelivery {
        attempt: 1,
        opened_by: "c1".to_owned(),
        subject: "x".to_owned(),
        seq: 2,
        delivered: 2,
        stored_at: Timestamp::default(),
        ack: "ack.2".to_owned(),
    };
    assert_eq!(bus.offer_to_holder(&session, &call, &offered).await?, Holder::Nobody);
    let nobody = subject::tool(&session.tenant, &ToolName::new("nobody")?);
    let answer = bus.transport().request(&nobody, Vec::new(), Bytes::new(), PATIENCE).await;
    assert!(matches!(answer, Err(BusError::NoResponders { .. })));
    let many = bus.transport().request_many(&nobody, Vec::new(), Bytes::new()).await?;
    assert_eq!(many.count().await, 0);

    assert_eq!(bus.call_holder(&session, &call).await?, None);
    let (note, call_attempt) = (CallNote::default(), CallAttempt { call: call.clone(), attempt: 1 });
    publish_calls(&bus, "held", 1).await?;
    let delivery = pull_one(&bus, Queue::Tool).await?;
    let held = HeldCall {
        call: call_attempt,
        opened_by: "c1".to_owned(),
        delivery: 2,
        hold: Hold::open(&delivery),
        note: note.clone(),
        since: Instant::now(),
    };
    let held = other.hold_call(&session, held);
    eventually("the holder answers", || async {
        matches!(bus.offer_to_holder(&session, &call, &offered).await, Ok(Holder::Took))
    })
    .await?;
    note.set("its provider is overloaded");
    let answer = bus.call_holder(&session, &call).await?.context("nobody holds the call")?;
    assert_eq!((answer.delivery, answer.note.as_deref()), (2, Some("its provider is overloaded")));
    assert!(answer.replica.ends_with(&format!(":{}", std::process::id())), "{}", answer.replica);
    drop(held);
    eventually("the holder is gone", || async {
        matches!(bus.offer_to_holder(&session, &call, &offered).await, Ok(Holder::Nobody))
    })
    .await?;
    // A holder that ends during the request is no holder any more. A frozen one still holds the call.
    let holder = subject::call_holder(&session, &call);
    let mut ending = other.listen(&holder, None).await?;
    is_known(&bus, &holder).await?;
    let probe = ending.next().await;
    assert!(matches!(probe, Some(SubscriptionEvent::Message(_))));
    let ends = async {
        let asked = ending.next().await;
        drop(ending);
        asked
    };
    let (asked, held) = tokio::join!(ends, bus.offer_to_holder(&session, &call, &offered));
    assert!(matches!(asked, Some(SubscriptionEvent::Message(_))) && held? == Holder::Nobody, "a holder that has ended");
    let frozen = other.listen(&holder, None).await?;
    is_known(&bus, &holder).await?;
    assert_eq!(bus.offer_to_holder(&session, &call, &offered).await?, Holder::Silent, "a frozen holder");
    drop(frozen);

    // Replicas of a group share requests; all answers to a scattered request arrive.
    let tool = subject::tool(&session.tenant, &ToolName::new("shared")?);
    let answer = |name: &'static str| -> bus::rpc::RpcHandler {
        Arc::new(move |_| async move { Some(Bytes::from_static(name.as_bytes())) }.boxed())
    };
    let _one = bus.serve(&tool, Some(subject::TOOL_QUEUE), answer("one")).await?;
    let _two = bus.serve(&tool, Some(subject::TOOL_QUEUE), answer("two")).await?;
    let mut answers = BTreeSet::new();
    for _ in 0..50 {
        let answer = bus.transport().request(&tool, Vec::new(), Bytes::new(), PATIENCE).await?;
        answers.insert(answer.payload);
    }
    assert_eq!(answers.len(), 2);
    let all = subject::services_info();
    let _three = bus.serve(&all, None, answer("three")).await?;
    let _four = bus.serve(&all, None, answer("four")).await?;
    let scattered = bus.transport().request_many(&all, Vec::new(), Bytes::new()).await?;
    let two = soon("both answers", scattered.take(2).collect::<Vec<_>>()).await?;
    assert_eq!(two.len(), 2);

    let mut cancels = bus.cancels().await?;
    let call = CallAttempt { call, attempt: 3 };
    bus.publish_cancel(&session, &call).await?;
    let cancelled = soon("the cancel", cancels.next()).await?.context("ended")?;
    assert_eq!(cancelled, (session, call));
    Ok(())
}

pub(crate) async fn reconnect_is_reported_as_a_gap(world: &mut World) -> anyhow::Result<()> {
    let session = key("gap")?;
    let mut events = world.bus.events(&session).await?;
    world.restart().await?;
    let next = soon("the gap", events.next()).await?;
    assert!(matches!(next, Some(SubscriptionEvent::Gap)));
    world.bus.ping().await?;
    let subject = subject::event(&session, contract::event::Topic::TurnCompleted);
    world.bus.transport().publish(&subject, Vec::new(), Bytes::from_static(b"x")).await?;
    let came = async { while !matches!(events.next().await, Some(SubscriptionEvent::Message(_))) {} };
    soon("an event after the gap", came).await
}

pub(crate) async fn flood_of_answers_is_a_gap_for_one_subscriber_only(world: &mut World) -> anyhow::Result<()> {
    /// More than wait to be read.
    const FLOOD: usize = 3_000;
    let (bus, other) = (world.bus.clone(), world.connect(1).await?);
    let tool = subject::tool(&key("flood")?.tenant, &ToolName::new("floods")?);
    let mut asked = other.listen(&tool, None).await?;
    let mut reply = Vec::new();
    let ask = || bus.transport().request_many(&tool, Vec::new(), Bytes::new());
    let (mut flooded, mut quiet) = (ask().await?, ask().await?);
    for _ in 0..2 {
        let Some(SubscriptionEvent::Message(request)) = asked.next().await else { bail!("not asked") };
        reply.push(request.reply.context("an address")?);
    }
    let mut broken = bus.listen(&subject::services_info(), None).await?;
    for _ in 0..FLOOD {
        other.transport().reply(&reply[0], Vec::new(), Bytes::from_static(b"again")).await?;
    }
    other.transport().reply(&reply[1], Vec::new(), Bytes::from_static(b"once")).await?;
    // Answers to all requests come on one subscription, in order.
    let answer = soon("the answer", quiet.next()).await?.context("ended")?;
    assert!(matches!(&answer, SubscriptionEvent::Message(once) if &*once.payload == b"once"), "{answer:?}");
    let mut before = 0;
    while let Some(SubscriptionEvent::Message(_)) = flooded.next().await {
        before += 1;
    }
    assert!((1..FLOOD).contains(&before), "{before} and then a gap");
    // The subscription goes on, and no other one has a gap.
    other.transport().reply(&reply[0], Vec::new(), Bytes::from_static(b"at last")).await?;
    assert!(matches!(flooded.next().await, Some(SubscriptionEvent::Message(_))));
    assert!(quiet.next().now_or_never().is_none() && broken.next().now_or_never().is_none());
    Ok(())
}
