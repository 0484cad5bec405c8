//! Performs what a commit asks of the world. Every effect may run twice: its key makes the second one harmless.

use bus::work::Publication;
use bus::{Bus, BusError};
use contract::Json;
use contract::command::{CommandAck, Refusal, Verb};
use contract::commit::{CommitMeta, envelopes};
use contract::event::{ContinuationProgress, Envelope, Event, InputKind, InputRef, Topic};
use contract::limits::INLINE_BYTES_MAX;
use contract::streams::{Objects, Queue};
use contract::subject::SessionKey;
use contract::tool::sha256_hex;
use futures::future::join_all;
use serde::Serialize;
use session::{Decision, Effect, OutboundCommand, Session};
use telemetry::metric::Who;

use crate::input::Sent;
use crate::shell::{Shell, Trouble};

impl Shell {
    /// Publishes a fresh commit's events, performs its effects and tells who waits. All of it is in flight together. Where `is_owed`,
    /// what earlier commits asked for and nobody may have performed is performed as well.
    #[allow(clippy::too_many_arguments, reason = "a commit and what led to it")]
    pub(crate) async fn perform(
        &self,
        key: &SessionKey,
        after: &Session,
        slot: u64,
        meta: &CommitMeta,
        decision: &Decision,
        inputs: &[Sent],
        is_owed: bool,
    ) -> Result<(), Trouble> {
        count(after, &decision.events);
        let events = envelopes(meta, &decision.events, key, slot);
        let mut effects: Vec<(Effect, Publication)> =
            decision.effects.iter().cloned().map(|effect| (effect, Publication::First)).collect();
        if is_owed {
            let earlier = after.outstanding().into_iter().filter(|effect| !decision.effects.contains(effect));
            effects.extend(earlier.map(|effect| (effect, Publication::Again)));
        }
        futures::try_join!(
            async { publish_events(&self.bus, key, events).await.map_err(Trouble::from) },
            perform_all(&self.bus, key, after, effects),
        )?;
        for sent in inputs {
            self.tell(key, sent, after, slot, &decision.events).await?;
        }
        Ok(())
    }

    /// For inputs that are in the log already: their performer may have died half-way, so all that is still owed is
    /// done again.
    pub(crate) async fn perform_again(
        &self,
        key: &SessionKey,
        session: &Session,
        inputs: &[Sent],
        publication: Publication,
    ) -> Result<Vec<Effect>, Trouble> {
        let effects = session.outstanding();
        let owed = effects.iter().cloned().map(|effect| (effect, publication)).collect();
        perform_all(&self.bus, key, session, owed).await?;
        for sent in inputs {
            let Some(slot) = session.handled(&sent.reference) else { continue };
            let Some(commit) = self.bus.commit_at(key, slot).await? else { continue };
            publish_events(&self.bus, key, commit.envelopes(key, slot)).await?;
            self.tell(key, sent, session, slot, &commit.events).await?;
        }
        Ok(effects)
    }

    /// Tells the edge that waits for this command how it came out.
    async fn tell(
        &self,
        key: &SessionKey,
        sent: &Sent,
        session: &Session,
        slot: u64,
        events: &[Event],
    ) -> Result<(), BusError> {
        let (Some(edge), InputKind::Control(verb)) = (&sent.edge, sent.reference.kind) else { return Ok(()) };
        let done = done(key, verb, &sent.reference, session.seq(), slot, refusal(events, &sent.reference));
        self.bus.publish_done(edge, &done).await
    }
}

fn done(key: &SessionKey, verb: Verb, input: &InputRef, seq: u64, slot: u64, refused: Option<Refusal>) -> CommandAck {
    let SessionKey { tenant, session } = key.clone();
    CommandAck { verb, id: input.id.clone(), tenant, session, slot, seq, refused }
}

fn refusal(events: &[Event], input: &InputRef) -> Option<Refusal> {
    events.iter().find_map(|event| {
        if let Event::InputIgnored(ignored) = event
            && ignored.input == *input
        {
            return Some(ignored.refusal.clone());
        }
        None
    })
}

async fn publish_events(bus: &Bus, key: &SessionKey, events: Vec<(Topic, Envelope)>) -> Result<(), BusError> {
    // In order: a viewer sorts by `seq`, but one that need not wait shows things sooner.
    for (topic, mut envelope) in events {
        let bytes = envelope.data.get().len();
        if bytes > INLINE_BYTES_MAX {
            let sha256 = sha256_hex(envelope.data.get().as_bytes());
            let body = envelope.data.get().as_bytes().to_vec().into();
            // For whoever hears of it now: the commit has it for longer.
            bus.transport().put_object(Objects::Work, &sha256, body).await?;
            envelope.data = Json::of(&serde_json::json!({"$blob": sha256, "bytes": bytes}));
        }
        bus.publish_event(key, topic, &envelope).await?;
    }
    Ok(())
}

/// Performs effects: the timer first, since it brings the session back whatever becomes of the others, then all others at the same
/// time. One that fails takes no other with it; the first failure is returned.
async fn perform_all(
    bus: &Bus,
    key: &SessionKey,
    session: &Session,
    effects: Vec<(Effect, Publication)>,
) -> Result<(), Trouble> {
    let (timers, others): (Vec<_>, Vec<_>) =
        effects.into_iter().partition(|(effect, _)| matches!(effect, Effect::SetTimer { .. }));
    let mut results = Vec::new();
    for group in [timers, others] {
        let group = group.iter().map(|(effect, publication)| perform(bus, key, session, effect, *publication));
        results.extend(join_all(group).await);
    }
    results.into_iter().collect::<Result<(), BusError>>().map_err(Trouble::from)
}

pub(crate) async fn perform(
    bus: &Bus,
    key: &SessionKey,
    session: &Session,
    effect: &Effect,
    publication: Publication,
) -> Result<(), BusError> {
    match effect {
        Effect::CallModel(call) => match session.model_item(call) {
            Some(item) => bus.publish_model_item(key, &item, publication).await,
            None => Ok(()),
        },
        Effect::CallTool(call) => match session.tool_item(call) {
            Some(item) => bus.publish_tool_item(key, &item, publication).await,
            None => Ok(()),
        },
        Effect::Cancel { call, tool } => {
            let queue = if tool.is_some() { Queue::Tool } else { Queue::Model };
            tracing::debug!(session = %key, call = %call, queue = queue.durable(), "cancelling");
            bus.purge_item(key, tool.as_ref(), call).await?;
            bus.publish_cancel(key, call).await
        }
        Effect::StartChild(call) => send(bus, session.child_start(call)).await,
        Effect::CommandChild(call) => send(bus, session.child_word(call)).await,
        Effect::ReportToParent => send(bus, session.word_to_parent()).await,
        Effect::SetTimer { number, at } => bus.set_timer(key, *number, *at).await,
        Effect::CancelTimer => bus.cancel_timer(key).await,
        Effect::Index => {
            let life = session.is_archived().then(|| bus.transport().retention());
            let summary = session.summary();
            let Err(error) = bus.put_summary_for(&summary, life).await else { return Ok(()) };
            // The index is for lists and never the truth: a session does not wait for it. But people find in it what waits
            // for them, and a question that is in no list is found by nobody.
            if !summary.gates.is_empty() && !error.is_final() {
                return Err(error);
            }
            tracing::warn!(session = %key, %error, "the session's line in the index is old");
            Ok(())
        }
        Effect::Archive { below } => archive(bus, key, *below, session.is_archived()).await,
    }
}

/// A session that goes on does not wait for the archive: what is not done now is done with its next page, or at its end.
async fn archive(bus: &Bus, key: &SessionKey, below: u64, waits: bool) -> Result<(), BusError> {
    let Err(error) = bus.archive(key, below).await else { return Ok(()) };
    if waits && !error.is_final() {
        return Err(error);
    }
    tracing::warn!(session = %key, below, %error, "a page stays in the log");
    Ok(())
}

/// Puts a word into another session's inbox. Sent twice it is stored once while it waits, and folded once after that.
async fn send<T: Serialize>(bus: &Bus, word: Option<OutboundCommand<T>>) -> Result<(), BusError> {
    let Some(OutboundCommand { to, verb, id, body }) = word else { return Ok(()) };
    let body = serde_json::to_vec(&body).map_err(|error| BusError::Malformed(error.to_string()))?;
    bus.send_control(&to, verb, &id, body.into()).await.map(drop)
}

/// Counts what a commit says, once per commit.
fn count(after: &Session, events: &[Event]) {
    let (agent, model) = after.who();
    let who = Who { agent, model };
    for event in events {
        if let Event::SessionStarted(_) = event {
            telemetry::metric::session_started();
        } else if let Event::SessionEnded(ended) = event {
            telemetry::metric::session_ended(ended.reason.as_str());
        } else if let Event::TurnCompleted(completed) = event {
            telemetry::metric::turn(who, completed.stop_reason.as_str(), completed.spent.cost_usd);
        } else if let Event::TurnStarted(started) = event
            && started.premature
        {
            telemetry::metric::premature(who);
        } else if let Event::ModelCallOpened(opened) = event
            && opened.attempt == 1
        {
            telemetry::metric::step(who);
        } else if let Event::ContinuationProgress(progress) = event {
            telemetry::metric::decision(who, &decision_source(progress));
        }
    }
}

/// The source without its pattern: a metric's label has few values.
fn decision_source(progress: &ContinuationProgress) -> String {
    let source = progress.source.to_string();
    source.split_once(':').map_or(source.clone(), |(kind, _)| kind.to_owned())
}
