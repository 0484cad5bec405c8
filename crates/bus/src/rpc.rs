//! Requests between services: cancels, the holder of a call, the view of a reply, composing, repairs, mailboxes, and
//! the status of each process.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use contract::budget::{BudgetReply, BudgetRequest};
use contract::compose::{AgentsReply, AgentsRequest, ComposeReply, ComposeRequest};
use contract::fleet::{CallHolder, OfferOutcome, OfferedDelivery, ReplicaStatus};
use contract::ids::{CallAttempt, CallId, may_be_same_commit};
use contract::limits::TRIAL_TIME_MAX;
use contract::mail::{MailRequest, MailResponse};
use contract::model::ReplySnapshot;
use contract::proposal::ModelProposal;
use contract::repair::{RepairReply, RepairRequest};
use contract::subject::{self, SessionKey, Subject};
use contract::tool_request::{ToolRequest, ToolResponse};
use contract::{ErrorCode, TenantId};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::headers::trace_headers;
use crate::json::{encode, parse};
use crate::transport::HOLD_AFTER;
use crate::{Bus, BusError, CoreMessage, Delivery, Hold, Subscription, SubscriptionEvent, retry};

/// Timeout of a request to a worker or gateway.
const ASK_MAX: Duration = Duration::from_secs(1);
/// Time in which the holder of a call must answer before it is asked once more. A worker that stops hands its items
/// back a moment before the server removes its subscription.
const HOLDER_ANSWERS_MAX: Duration = Duration::from_millis(300);
/// Round trips by which subscriptions are confirmed.
const CONFIRM_ROUNDS: u32 = 3;
/// Timeout of a request to the composer.
const COMPOSE_MAX: Duration = Duration::from_secs(5);
/// Timeout of a repair: the session is loaded, and its outstanding work is published.
const REPAIR_MAX: Duration = Duration::from_secs(10);
/// Pause before a subscription that failed is tried again.
const SERVE_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Timeout of a request to a mailbox or to the budgets, which takes several requests to a stream.
const STORE_MAX: Duration = Duration::from_secs(10);
/// Timeout of a request about tools: the time of a trial call, and of what is around it.
const TOOL_REQUEST_MAX: Duration = TRIAL_TIME_MAX.saturating_add(Duration::from_secs(5));
/// Time for which descriptions of the processes of a fleet are collected: their number is unknown.
const STATUS_WAIT: Duration = Duration::from_millis(700);
/// Time for which answers of the services protocol are collected.
const SERVICES_WAIT: Duration = Duration::from_millis(400);
/// Most answers of the services protocol that are read.
const SERVICES_MAX: usize = 10_000;
/// Processes whose descriptions are read.
const REPLICAS_MAX: usize = 1_000;
/// Bytes of a description.
const STATUS_BYTES_MAX: usize = 64 << 10;
/// Deliveries of an item from which on its holder is named in the log. One that works keeps an item alive.
const DOUBTED_DELIVERIES: u64 = 10;
/// Bytes of a note of a call.
const NOTE_BYTES_MAX: usize = 1_000;
/// Requests that one replica answers at the same time.
const SERVED_AT_ONCE: usize = 64;

/// Serves the requests of a subject until it is dropped.
#[derive(Debug)]
pub struct RpcServer {
    _task: JoinSet<()>,
}

/// Handles one request; `None` sends no answer.
pub type RpcHandler = Arc<dyn Fn(CoreMessage) -> BoxFuture<'static, Option<Bytes>> + Send + Sync>;

/// Last action or finding of a worker about a call that it runs, for people who ask why the call takes so long. Clones
/// share it.
#[derive(Debug, Clone, Default)]
pub struct CallNote {
    text: Arc<Mutex<Option<String>>>,
}

impl CallNote {
    /// Replaces the note; more than 1,000 bytes are cut off.
    pub fn set(&self, text: &str) {
        let text = &text[..text.floor_char_boundary(NOTE_BYTES_MAX)];
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.to_owned());
    }

    fn get(&self) -> Option<String> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Result of the offer of a delivery to the worker that may run its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// It runs the call, and has taken the delivery over.
    Took,
    /// Nobody runs the call.
    Nobody,
    /// It may run the call: it does not answer although the server knows it, or its version takes no delivery over.
    Silent,
}

impl Holder {
    /// The same; names a worker in the log that claims a call whose item comes again and again.
    fn doubted(self, offered: &OfferedDelivery, holder: &str) -> Self {
        let OfferedDelivery { subject, delivered, .. } = offered;
        if self != Self::Nobody && *delivered >= DOUBTED_DELIVERIES {
            tracing::warn!(
                subject,
                delivered,
                holder,
                "the item of a call comes again and again, and a worker claims to run the call: stop that worker"
            );
        }
        self
    }
}

/// A call that a worker runs.
#[derive(Debug)]
pub struct HeldCall {
    /// Id of the call and number of the attempt.
    pub call: CallAttempt,
    /// The id of the commit that opened it; empty of older orchestrators.
    pub opened_by: String,
    /// Number of the delivery with which the attempt began, from 1.
    pub delivery: u64,
    /// The newest delivery of its item.
    pub hold: Hold,
    /// Note for people who ask about the call.
    pub note: CallNote,
    /// Time at which its handler began to run it.
    pub since: Instant,
}

impl HeldCall {
    /// The answer to a question that came over the connection of `generation`. None for another attempt of the call: its
    /// own worker answers, and this one learns soon that its call is closed.
    fn answer(&self, question: &CoreMessage, generation: u64) -> Option<Bytes> {
        let offer = if question.payload.is_empty() {
            None
        } else {
            let offered: OfferedDelivery = parse(&question.payload).ok()?;
            if offered.attempt != self.call.attempt {
                return None;
            }
            Some(self.take_over(offered, generation))
        };
        let held_ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (replica, delivery, note) = (crate::replica::name(), self.delivery, self.note.get());
        encode(&CallHolder { replica, held_ms, delivery, note, offer }).ok()
    }

    fn take_over(&self, offered: OfferedDelivery, generation: u64) -> OfferOutcome {
        let OfferedDelivery { opened_by, subject, seq, delivered, stored_at, ack, .. } = offered;
        if !may_be_same_commit(&self.opened_by, &opened_by) {
            return OfferOutcome::OtherHistory;
        }
        let delivery = Delivery {
            subject,
            seq,
            // From 1 in a stream.
            delivered: delivered.max(1),
            stored_at,
            waited: Duration::ZERO,
            connected_for: Duration::MAX,
            generation,
            headers: Vec::new(),
            payload: Bytes::new(),
            ack,
        };
        if self.hold.renew(&delivery) { OfferOutcome::Taken } else { OfferOutcome::Settled }
    }
}

#[derive(Serialize, Deserialize)]
struct CancelBody {
    call: CallId,
    attempt: u32,
}

/// Serves until it is to end. `serve` subscribes; where that fails it is called again every second.
pub async fn serve_until_cancelled<F, Fut>(ending: &CancellationToken, serve: F)
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<RpcServer, BusError>>,
{
    let subscribed = async {
        loop {
            match serve().await {
                Ok(serving) => return serving,
                Err(error) => tracing::debug!(%error, "not subscribed yet"),
            }
            tokio::time::sleep(SERVE_AGAIN_AFTER).await;
        }
    };
    let serving = ending.run_until_cancelled(subscribed).await;
    ending.cancelled().await;
    drop(serving);
}

impl Bus {
    /// Asks workers to cancel a call. A lost cancel costs time and nothing else.
    pub async fn publish_cancel(&self, key: &SessionKey, call: &CallAttempt) -> Result<(), BusError> {
        let body = encode(&CancelBody { call: call.call.clone(), attempt: call.attempt })?;
        self.transport().publish(&subject::cancel(key), Vec::new(), body).await
    }

    /// Every cancel, for workers.
    pub async fn cancels(&self) -> Result<BoxStream<'static, (SessionKey, CallAttempt)>, BusError> {
        let events = self.listen(&subject::cancel_all(), None).await?;
        Ok(events.filter_map(|event| std::future::ready(parse_cancel(event))).boxed())
    }

    /// Answers for a call that this worker runs, from half a second on until the guard is dropped, and takes over the
    /// deliveries of its item that are offered. Nobody asks before an item is delivered again, and most calls are over by
    /// then.
    pub fn hold_call(&self, key: &SessionKey, call: HeldCall) -> RpcServer {
        let (bus, asked, subject) = (self.clone(), self.clone(), subject::call_holder(key, &call.call.call));
        let answer: RpcHandler = Arc::new(move |question: CoreMessage| {
            let body = call.answer(&question, asked.transport().generation());
            std::future::ready(body).boxed()
        });
        let mut task = JoinSet::new();
        task.spawn(async move {
            tokio::time::sleep(HOLD_AFTER).await;
            let questions = bus.subscribe_until_it_works(&subject).await;
            serve_all(bus, questions, answer).await;
        });
        RpcServer { _task: task }
    }

    /// Offers the delivery of an item to the worker that runs its call.
    pub async fn offer_to_holder(
        &self,
        key: &SessionKey,
        call: &CallId,
        offered: &OfferedDelivery,
    ) -> Result<Holder, BusError> {
        let (holder, body) = (subject::call_holder(key, call), encode(offered)?);
        for wait in [HOLDER_ANSWERS_MAX, ASK_MAX] {
            match self.transport().request(&holder, Vec::new(), body.clone(), wait).await {
                Ok(answer) => {
                    let CallHolder { offer, replica, .. } = parse(&answer.payload)?;
                    let found = match offer {
                        Some(OfferOutcome::Settled | OfferOutcome::OtherHistory) => Holder::Nobody,
                        Some(OfferOutcome::Taken) => Holder::Took,
                        None => Holder::Silent,
                    };
                    return Ok(found.doubted(offered, &replica));
                }
                Err(BusError::NoResponders { .. }) => return Ok(Holder::Nobody),
                Err(BusError::Timeout { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Holder::Silent.doubted(offered, "unknown: it does not answer"))
    }

    /// The worker that runs this call now; none where nobody answers.
    pub async fn call_holder(&self, key: &SessionKey, call: &CallId) -> Result<Option<CallHolder>, BusError> {
        self.ask_if_served(&subject::call_holder(key, call)).await
    }

    /// Asks every process of the fleet to describe itself; those that do not answer within 0.7 s are left out.
    pub async fn replicas(&self) -> Result<Vec<ReplicaStatus>, BusError> {
        let answers = self.ask_all(&subject::fleet_status(), REPLICAS_MAX, STATUS_WAIT).await?;
        let mut replicas: Vec<ReplicaStatus> = answers.into_iter().filter_map(read_status).collect();
        replicas.sort_by(|a, b| (&a.service, &a.replica).cmp(&(&b.service, &b.replica)));
        Ok(replicas)
    }

    /// Sends a query of the NATS services protocol, and gathers the answers of 0.4 s; a lost connection is an error.
    pub async fn query_services(&self, query: Subject) -> Result<Vec<CoreMessage>, BusError> {
        let answers = self.ask_all(&query, SERVICES_MAX, SERVICES_WAIT).await?;
        let messages = answers.into_iter().map(|answer| match answer {
            SubscriptionEvent::Message(message) => Ok(message),
            SubscriptionEvent::Gap => Err(BusError::Unavailable("the connection was lost".to_owned())),
        });
        messages.collect()
    }

    /// Sends an empty request to every subscriber, and gathers up to `max` answers of the time `wait`.
    async fn ask_all(&self, subject: &Subject, max: usize, wait: Duration) -> Result<Vec<SubscriptionEvent>, BusError> {
        let mut answers = self.transport().request_many(subject, Vec::new(), Bytes::new()).await?.take(max);
        let (mut gathered, end) = (Vec::new(), Instant::now() + wait);
        // What has come already counts, however late this task looks at it.
        while let Ok(Some(answer)) = timeout_at(end, answers.next()).await {
            gathered.push(answer);
        }
        Ok(gathered)
    }

    /// Answers with the description of this process, until the guard is dropped.
    pub async fn serve_status<F>(&self, describe: F) -> Result<RpcServer, BusError>
    where
        F: Fn() -> ReplicaStatus + Send + Sync + 'static,
    {
        let answer: RpcHandler = Arc::new(move |_| std::future::ready(encode(&describe()).ok()).boxed());
        self.serve(&subject::fleet_status(), None, answer).await
    }

    /// Answers late viewers of a session's reply, until the guard is dropped. The server knows the subscription before
    /// any chunk that is published later.
    pub async fn serve_view(
        &self,
        key: &SessionKey,
        view: impl Fn() -> Option<ReplySnapshot> + Send + Sync + 'static,
    ) -> Result<RpcServer, BusError> {
        let answer: RpcHandler = Arc::new(move |_| {
            let body = view().and_then(|view| encode(&view).ok());
            std::future::ready(body).boxed()
        });
        let requests = self.transport().subscribe(&subject::view(key), None).await?;
        Ok(self.answering(requests, answer))
    }

    /// The reply of a session so far; `None` when no gateway streams to it now.
    pub async fn view(&self, key: &SessionKey) -> Result<Option<ReplySnapshot>, BusError> {
        self.ask_if_served(&subject::view(key)).await
    }

    /// Sends an empty request; none where nobody answers.
    async fn ask_if_served<T: DeserializeOwned>(&self, subject: &Subject) -> Result<Option<T>, BusError> {
        match self.transport().request(subject, Vec::new(), Bytes::new(), ASK_MAX).await {
            Ok(message) => parse(&message.payload).map(Some),
            Err(BusError::NoResponders { .. } | BusError::Timeout { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Asks the composer what a session is made of.
    pub async fn compose(&self, request: &ComposeRequest) -> Result<ComposeReply, BusError> {
        let answer =
            self.transport().request(&subject::compose(), trace_headers(), encode(request)?, COMPOSE_MAX).await?;
        parse(&answer.payload)
    }

    /// Answers composing requests, shared among all composers, until the guard is dropped. A request that is not what
    /// the contract says is refused as such.
    pub async fn serve_compose<F>(&self, compose: F) -> Result<RpcServer, BusError>
    where
        F: Fn(ComposeRequest) -> BoxFuture<'static, ComposeReply> + Send + Sync + 'static,
    {
        let refuse = |code, message| ComposeReply::Refused { code, message };
        self.serve_requests(&subject::compose(), subject::COMPOSER_QUEUE, compose, refuse).await
    }

    /// As [`Bus::serve_compose`], with requests and answers as they travel: the headers say to which trace a request
    /// belongs, and the answerer bounds the bytes of its answer. `None` stays silent.
    pub async fn serve_compose_bytes<F>(&self, compose: F) -> Result<RpcServer, BusError>
    where
        F: Fn(&CoreMessage) -> Option<Bytes> + Send + Sync + 'static,
    {
        let answer: RpcHandler = Arc::new(move |message: CoreMessage| std::future::ready(compose(&message)).boxed());
        self.serve(&subject::compose(), Some(subject::COMPOSER_QUEUE), answer).await
    }

    /// Asks the composer which agents and models there are.
    pub async fn agents(&self, tenant: &TenantId) -> Result<AgentsReply, BusError> {
        let body = encode(&AgentsRequest { tenant: tenant.clone() })?;
        let answer = self.transport().request(&subject::agents(), Vec::new(), body, COMPOSE_MAX).await?;
        parse(&answer.payload)
    }

    /// Answers which agents there are, shared among all composers, until the guard is dropped. A request that is not
    /// what the contract says stays without an answer.
    pub async fn serve_agents<F>(&self, agents: F) -> Result<RpcServer, BusError>
    where
        F: Fn(AgentsRequest) -> AgentsReply + Send + Sync + 'static,
    {
        let answer: RpcHandler = Arc::new(move |message: CoreMessage| {
            let reply = match parse(&message.payload) {
                Ok(request) => encode(&agents(request)).ok(),
                Err(error) => {
                    tracing::warn!(%error, "a request for agents cannot be read");
                    None
                }
            };
            std::future::ready(reply).boxed()
        });
        self.serve(&subject::agents(), Some(subject::COMPOSER_QUEUE), answer).await
    }

    /// Asks an orchestrator to perform again what a session is owed.
    pub async fn repair_session(&self, key: &SessionKey) -> Result<RepairReply, BusError> {
        let request = RepairRequest { tenant: key.tenant.clone(), session: key.session.clone() };
        let answer = self.transport().request(&subject::repair(), Vec::new(), encode(&request)?, REPAIR_MAX).await?;
        parse(&answer.payload)
    }

    /// Answers requests to repair sessions, shared among all orchestrators, until the guard is dropped. A request that
    /// is not what the contract says is refused as such.
    pub async fn serve_repair<F>(&self, repair: F) -> Result<RpcServer, BusError>
    where
        F: Fn(SessionKey) -> BoxFuture<'static, RepairReply> + Send + Sync + 'static,
    {
        let refuse = |code, message| RepairReply::Refused { code, message };
        let repair = move |RepairRequest { tenant, session }| repair(SessionKey { tenant, session });
        self.serve_requests(&subject::repair(), subject::ORCHESTRATOR_QUEUE, repair, refuse).await
    }

    /// Asks a gateway about the budgets of a tenant.
    pub async fn ask_budgets(&self, request: &BudgetRequest) -> Result<BudgetReply, BusError> {
        let answer =
            self.transport().request(&subject::budgets(), trace_headers(), encode(request)?, STORE_MAX).await?;
        parse(&answer.payload)
    }

    /// Answers requests about budgets, shared among all gateways, until the guard is dropped. A request that is not what
    /// the contract says is refused as such.
    pub async fn serve_budgets<F>(&self, budgets: F) -> Result<RpcServer, BusError>
    where
        F: Fn(BudgetRequest) -> BoxFuture<'static, BudgetReply> + Send + Sync + 'static,
    {
        let refuse = |code, message| BudgetReply::Refused { code, message };
        self.serve_requests(&subject::budgets(), subject::GATEWAY_QUEUE, budgets, refuse).await
    }

    /// Asks a gateway which model it proposes for agents that name none; none where no gateway answers.
    pub async fn ask_model_proposal(&self) -> Result<Option<ModelProposal>, BusError> {
        self.ask_if_served(&subject::model_proposal()).await
    }

    /// Answers which model is proposed, shared among all gateways, until the guard is dropped.
    pub async fn serve_model_proposal<F>(&self, propose: F) -> Result<RpcServer, BusError>
    where
        F: Fn() -> ModelProposal + Send + Sync + 'static,
    {
        let answer: RpcHandler = Arc::new(move |_: CoreMessage| std::future::ready(encode(&propose()).ok()).boxed());
        self.serve(&subject::model_proposal(), Some(subject::GATEWAY_QUEUE), answer).await
    }

    /// Asks an executor about tools, for an operator.
    pub async fn ask_tools(&self, request: &ToolRequest) -> Result<ToolResponse, BusError> {
        let (subject, body) = (subject::tool_request(), encode(request)?);
        let answer = self.transport().request(&subject, trace_headers(), body, TOOL_REQUEST_MAX).await?;
        parse(&answer.payload)
    }

    /// Answers requests about tools, shared among all executors, until the guard is dropped. A request that is not what
    /// the contract says is refused as such.
    pub async fn serve_tool_requests<F>(&self, answer: F) -> Result<RpcServer, BusError>
    where
        F: Fn(ToolRequest) -> BoxFuture<'static, ToolResponse> + Send + Sync + 'static,
    {
        let refuse = |code, message| ToolResponse::Refused { code, message };
        self.serve_requests(&subject::tool_request(), subject::EXECUTOR_QUEUE, answer, refuse).await
    }

    /// Asks a mailbox of a tenant, for a client.
    pub async fn ask_mail(&self, tenant: &TenantId, request: &MailRequest) -> Result<MailResponse, BusError> {
        let (subject, body) = (subject::mail_request(tenant), encode(request)?);
        let answer = self.transport().request(&subject, trace_headers(), body, STORE_MAX).await?;
        parse(&answer.payload)
    }

    /// Answers requests to the mailboxes of a tenant, shared among all executors that serve them, until the guard is
    /// dropped. A request that is not what the contract says is refused as such.
    pub async fn serve_mail<F>(&self, tenant: &TenantId, mailboxes: F) -> Result<RpcServer, BusError>
    where
        F: Fn(MailRequest) -> BoxFuture<'static, MailResponse> + Send + Sync + 'static,
    {
        let refuse = |code, message| MailResponse::Refused { code, message };
        self.serve_requests(&subject::mail_request(tenant), subject::MAIL_QUEUE, mailboxes, refuse).await
    }

    /// Answers requests of one shape, shared within a queue group, until the guard is dropped. `refuse` answers a
    /// request of another shape.
    async fn serve_requests<Q, R, F>(
        &self,
        subject: &Subject,
        queue: &str,
        handle: F,
        refuse: fn(ErrorCode, String) -> R,
    ) -> Result<RpcServer, BusError>
    where
        Q: DeserializeOwned + Send + 'static,
        R: Serialize + Send + 'static,
        F: Fn(Q) -> BoxFuture<'static, R> + Send + Sync + 'static,
    {
        let handle = Arc::new(handle);
        let answer: RpcHandler = Arc::new(move |message: CoreMessage| {
            let handle = handle.clone();
            async move {
                let reply = match parse(&message.payload) {
                    Ok(request) => handle(request).await,
                    Err(error) => refuse(ErrorCode::BadRequest, error.to_string()),
                };
                encode(&reply).ok()
            }
            .boxed()
        });
        self.serve(subject, Some(queue), answer).await
    }

    /// Answers requests on a subject until the guard is dropped.
    pub async fn serve(
        &self,
        subject: &Subject,
        queue: Option<&str>,
        answer: RpcHandler,
    ) -> Result<RpcServer, BusError> {
        let requests = self.listen(subject, queue).await?;
        Ok(self.answering(requests, answer))
    }

    fn answering(&self, requests: Subscription, answer: RpcHandler) -> RpcServer {
        let mut task = JoinSet::new();
        task.spawn(serve_all(self.clone(), requests, answer));
        RpcServer { _task: task }
    }

    /// Subscribes; returns when the server knows of it.
    pub async fn listen(&self, subject: &Subject, queue: Option<&str>) -> Result<Subscription, BusError> {
        let events = self.transport().subscribe(subject, queue).await?;
        self.confirm_subscriptions().await?;
        Ok(events)
    }

    /// Subscribes, as often as it takes.
    pub(crate) async fn subscribe_until_it_works(&self, subject: &Subject) -> Subscription {
        let mut round = 1;
        loop {
            match self.transport().subscribe(subject, None).await {
                Ok(subscribed) => return subscribed,
                Err(error) => tracing::debug!(%subject, %error, "not subscribed yet"),
            }
            retry::wait(round, subject.as_str()).await;
            round += 1;
        }
    }

    /// Returns when the server knows of the subscriptions so far. A round trip that is lost with its connection is made
    /// again: over the next connection the client subscribes anew, and each subscription yields a gap.
    pub(crate) async fn confirm_subscriptions(&self) -> Result<(), BusError> {
        let may_pass = |error: &BusError| !error.is_final();
        retry::repeat(CONFIRM_ROUNDS, "confirm", may_pass, || self.transport().ping()).await
    }
}

async fn serve_all(bus: Bus, requests: Subscription, answer: RpcHandler) {
    requests
        .for_each_concurrent(SERVED_AT_ONCE, |event| {
            let (bus, answer) = (bus.clone(), answer.clone());
            async move {
                let SubscriptionEvent::Message(message) = event else { return };
                let Some(to) = message.reply.clone() else { return };
                let Some(body) = answer(message).await else { return };
                if let Err(error) = bus.transport().reply(&to, Vec::new(), body).await {
                    tracing::warn!(%error, "answer not sent");
                }
            }
        })
        .await;
}

fn read_status(answer: SubscriptionEvent) -> Option<ReplicaStatus> {
    let SubscriptionEvent::Message(message) = answer else { return None };
    if message.payload.len() > STATUS_BYTES_MAX {
        return None;
    }
    let read = parse(&message.payload);
    read.inspect_err(|error| tracing::debug!(%error, "the description of a process cannot be read")).ok()
}

fn parse_cancel(event: SubscriptionEvent) -> Option<(SessionKey, CallAttempt)> {
    // A gap does no harm: workers look at the log every few seconds anyway.
    let SubscriptionEvent::Message(message) = event else { return None };
    let key = subject::parse_session_rpc(&message.subject)?;
    let CancelBody { call, attempt } = parse(&message.payload).ok()?;
    Some((key, CallAttempt { call, attempt }))
}
