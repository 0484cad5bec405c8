//! Performs the effects of a commit. Each effect may run twice: its idempotency key makes the second run harmless.

use bus::archive::Staying;
use bus::work::Publication;
use bus::{Bus, BusError};
use contract::command::{CommandAck, Refusal};
use contract::commit::turn_of;
use contract::event::{ContinuationProgress, Envelope, Event, InputKind, InputRef, Topic};
use contract::limits::INLINE_BYTES_MAX;
use contract::model::ItemMeta;
use contract::streams::Queue;
use contract::subject::SessionKey;
use contract::{ErrorCode, Json};
use futures::future::join_all;
use serde::Serialize;
use session::{Decision, OutboundCommand, Session, SessionEffect};
use telemetry::metric::Who;

use crate::handle_error::HandleError;
use crate::input::DeliveredInput;
use crate::session_runner::{Handled, SessionRunner};
use crate::turn_trace::{self, EndedTurn};

impl SessionRunner {
    /// Performs the effects of a new commit, while it acknowledges the commands and publishes the events. If
    /// `is_repair_due`, it also performs the outstanding effects of earlier commits.
    pub(crate) async fn perform(
        &self,
        key: &SessionKey,
        after: &Session,
        (slot, events): (u64, Vec<(Topic, Envelope)>),
        decision: &Decision,
        inputs: &[DeliveredInput],
        is_repair_due: bool,
    ) -> Result<(), HandleError> {
        count_events(after, &decision.events);
        let mut effects: Vec<(SessionEffect, Publication)> =
            decision.effects.iter().cloned().map(|effect| (effect, Publication::First)).collect();
        if is_repair_due {
            let earlier = after.outstanding().into_iter().filter(|effect| !decision.effects.contains(effect));
            effects.extend(earlier.map(|effect| (effect, Publication::Again)));
        }
        // The commit is what a client waits for, so it does not wait until the effects are performed.
        let telling = async {
            for input in inputs {
                self.acknowledge_command(key, input, (slot, after.seq()), &decision.events).await?;
            }
            publish_events(&self.bus, key, events).await.map_err(HandleError::from)
        };
        // If one fails the other one still ends: its effects would have to be performed again.
        let (performed, reported) = futures::join!(perform_all(&self.bus, key, after, effects), telling);
        performed.and(reported)
    }

    /// Performs the outstanding effects of a session, and publishes the events of inputs that are in the log already:
    /// the replica that committed them may have died before it did so. The same holds for the spans of a turn that ended.
    pub(crate) async fn perform_outstanding(
        &self,
        key: &SessionKey,
        session: &Session,
        inputs: &[DeliveredInput],
        publication: Publication,
    ) -> Result<(Vec<SessionEffect>, Handled), HandleError> {
        let (mut handled, mut is_poison) = (Handled::default(), false);
        let effects = session.outstanding();
        let outstanding = effects.iter().cloned().map(|effect| (effect, publication)).collect();
        perform_all(&self.bus, key, session, outstanding).await?;
        for input in inputs {
            let Some(slot) = session.handled(&input.reference) else { continue };
            let Some(commit) = self.bus.commit_at(key, slot).await? else { continue };
            let refusal = find_refusal(&commit.events, &input.reference);
            is_poison |= refusal.is_some_and(|refusal| refusal.code == ErrorCode::Poison);
            publish_events(&self.bus, key, commit.envelopes(key, slot)).await?;
            self.acknowledge_command(key, input, (slot, commit.last_seq()), &commit.events).await?;
            if let Some(ended) = EndedTurn::find(session, &commit.events) {
                handled.sent_spans |= turn_trace::send_turn(&self.bus, &ended, key, slot).await?;
            }
        }
        match is_poison {
            false => Ok((effects, handled)),
            // It is not a dead letter yet, or is sent once more. Others must not become one with it.
            true if inputs.len() > 1 => Err(HandleError::Split),
            true => Err(HandleError::Poison),
        }
    }

    /// Sends the result of a command to the edge replica that waits for it. The commit that handled it has this slot and
    /// last `seq`.
    async fn acknowledge_command(
        &self,
        key: &SessionKey,
        input: &DeliveredInput,
        (slot, seq): (u64, u64),
        events: &[Event],
    ) -> Result<(), BusError> {
        let (Some(edge), InputKind::Control(verb)) = (&input.edge, input.reference.kind) else { return Ok(()) };
        let SessionKey { tenant, session } = key.clone();
        let id = input.reference.id.clone();
        let (turn, refused) = (turn_of(events, &id), find_refusal(events, &input.reference));
        self.bus.publish_done(edge, &CommandAck { verb, id, tenant, session, slot, seq, turn, refused }).await
    }
}

fn find_refusal(events: &[Event], input: &InputRef) -> Option<Refusal> {
    events.iter().find_map(|event| {
        let Event::InputIgnored(ignored) = event else { return None };
        (ignored.input == *input).then(|| ignored.refusal.clone())
    })
}

async fn publish_events(bus: &Bus, key: &SessionKey, events: Vec<(Topic, Envelope)>) -> Result<(), BusError> {
    // In order: a viewer sorts by `seq`, and shows events sooner if it need not wait for earlier ones.
    for (topic, mut envelope) in events {
        let bytes = envelope.data.get().len();
        if bytes > INLINE_BYTES_MAX {
            // Viewers read the event from the log instead, where they find it whole.
            envelope.data = Json::of(&serde_json::json!({"$blob": "", "bytes": bytes}));
        }
        bus.publish_event(key, topic, &envelope).await?;
    }
    Ok(())
}

/// Performs effects at the same time, and sends work items first, because they take longest. If an effect fails the
/// others are still performed, and the first failure is returned: the input comes again, and so do they.
async fn perform_all(
    bus: &Bus,
    key: &SessionKey,
    session: &Session,
    effects: Vec<(SessionEffect, Publication)>,
) -> Result<(), HandleError> {
    let (items, others): (Vec<_>, Vec<_>) = effects
        .into_iter()
        .partition(|(effect, _)| matches!(effect, SessionEffect::CallModel(_) | SessionEffect::CallTool(_)));
    let all = items.iter().chain(&others);
    let performed = join_all(all.map(|(effect, publication)| perform(bus, key, session, effect, *publication))).await;
    performed.into_iter().collect::<Result<(), BusError>>().map_err(HandleError::from)
}

/// Performs effects one after the other, outside of an orchestrator.
pub(crate) async fn perform_in_turn(
    bus: &Bus,
    key: &SessionKey,
    session: &Session,
    effects: &[SessionEffect],
) -> Result<(), BusError> {
    for effect in effects {
        perform(bus, key, session, effect, Publication::First).await?;
    }
    Ok(())
}

/// Returns the publication of the item of a call. If the call was opened before the session was resumed, it replaces a
/// waiting item, which a worker that found the session paused may be about to acknowledge.
fn publication_of(session: &Session, item: &ItemMeta, publication: Publication) -> Publication {
    if session.was_resumed_after(item.slot) { Publication::Replacing } else { publication }
}

async fn perform(
    bus: &Bus,
    key: &SessionKey,
    session: &Session,
    effect: &SessionEffect,
    publication: Publication,
) -> Result<(), BusError> {
    match effect {
        SessionEffect::CallModel(call) => {
            let Some(item) = session.model_item(call) else { return Ok(()) };
            bus.publish_model_item(key, &item, publication_of(session, &item.meta, publication)).await
        }
        SessionEffect::CallTool(call) => {
            let Some(item) = session.tool_item(call) else { return Ok(()) };
            bus.publish_tool_item(key, &item, publication_of(session, &item.meta, publication)).await
        }
        SessionEffect::Cancel { call, tool } => {
            let queue = if tool.is_some() { Queue::Tool } else { Queue::Model };
            tracing::debug!(session = %key, call = %call, queue = queue.durable(), "cancelling");
            bus.remove_item(key, tool.as_ref(), call).await?;
            bus.publish_cancel(key, call).await
        }
        SessionEffect::StartChild(call) => {
            let at = session.turn_trace().map(|turn| turn.call(call));
            telemetry::trace::scope(at, send_command(bus, session.child_start(call))).await
        }
        SessionEffect::CommandChild(call) => send_command(bus, session.child_command(call)).await,
        SessionEffect::ReportToParent => send_command(bus, session.parent_report()).await,
        SessionEffect::SetTimer { number, at } => bus.set_timer(key, *number, *at).await,
        SessionEffect::CancelTimer => bus.cancel_timer(key).await,
        SessionEffect::Index if session.moved().is_some() => {
            let Err(error) = bus.delete_summary(key).await else { return Ok(()) };
            tracing::warn!(session = %key, %error, "the index still has a session that was moved");
            Ok(())
        }
        SessionEffect::Index => {
            let ttl = session.is_archived().then(|| bus.transport().retention());
            let summary = session.summary();
            let Err(error) = bus.advance_summary(&summary, ttl).await else { return Ok(()) };
            // A session does not wait for the index, which is only for lists. But people find open gates in it, so an
            // entry with gates is retried.
            if !summary.gates.is_empty() && !error.is_final() {
                return Err(error);
            }
            tracing::warn!(session = %key, %error, "the session's entry in the index is old");
            Ok(())
        }
        SessionEffect::Archive { below } => archive_pages(bus, key, *below, session).await,
    }
}

/// Archives the pages below slot `below`. A session that continues does not wait for the archive: if this fails, its
/// next page or its end archives them.
async fn archive_pages(bus: &Bus, key: &SessionKey, below: u64, session: &Session) -> Result<(), BusError> {
    let kept = session.kept_slots();
    let is_required = session.is_archived() || session.is_compacted();
    let staying = if session.moved().is_some() {
        // Who carries the session away reads its parts; then they leave the log.
        Staying::AnyPart
    } else if is_required {
        Staying::Nothing
    } else {
        Staying::Parts { kept: &kept, leaving: session.leaving_slots() }
    };
    let Err(error) = bus.archive(key, below, staying).await else { return Ok(()) };
    if is_required && !error.is_final() {
        return Err(error);
    }
    tracing::warn!(session = %key, below, %error, "a page stays in the log");
    Ok(())
}

/// Sends a command to the inbox of another session. A second one with the same id is not stored while the first one
/// waits, and is not applied after that.
async fn send_command<T: Serialize>(bus: &Bus, command: Option<OutboundCommand<T>>) -> Result<(), BusError> {
    let Some(OutboundCommand { to, verb, id, body }) = command else { return Ok(()) };
    let body = serde_json::to_vec(&body).map_err(|error| BusError::Malformed(error.to_string()))?;
    bus.send_control(&to, verb, &id, body.into()).await.map(drop)
}

/// Updates the metrics by the events of one commit.
#[allow(clippy::wildcard_enum_match_arm, reason = "a reader names the events that it reads")]
fn count_events(after: &Session, events: &[Event]) {
    let (agent, model) = after.who();
    let who = Who { agent, model };
    for event in events {
        match event {
            Event::SessionStarted(_) => telemetry::metric::session_started(),
            Event::SessionEnded(ended) => telemetry::metric::session_ended(ended.reason.as_str()),
            Event::TurnCompleted(completed) => {
                telemetry::metric::turn(who, completed.stop_reason.as_str());
                telemetry::metric::turn_cost(who, completed.spent_own.map_or(0.0, |own| own.cost_usd));
            }
            Event::AiCutReceived(cut) if after.turns() != cut.turn || !after.has_running_turn() => {
                telemetry::metric::turn_cost(who, cut.spent.cost_usd);
            }
            Event::TurnStarted(started) if started.premature => telemetry::metric::premature(who),
            Event::ModelCallOpened(opened) if opened.attempt == 1 => telemetry::metric::step(who),
            Event::ContinuationProgress(progress) => telemetry::metric::decision(who, &decision_source(progress)),
            _ => {}
        }
    }
}

/// The source of a decision without its pattern, since a label of a metric must have few values.
fn decision_source(progress: &ContinuationProgress) -> String {
    let source = progress.source.to_string();
    source.split_once(':').map_or(source.clone(), |(kind, _)| kind.to_owned())
}
