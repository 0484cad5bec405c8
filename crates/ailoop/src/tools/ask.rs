//! Asks over NATS: who serves a tool, and what it makes of a call.

use std::collections::BTreeSet;
use std::time::Duration;

use bus::{Bus, BusError, Headers, Message, Subscription, SubscriptionEvent};
use bytes::Bytes;
use contract::subject::{self, Subject};
use contract::tool::ToolSpec;
use contract::{TenantId, ToolName};
use futures::StreamExt as _;
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};
use tool_schema::{ToolDescription, parse_service_info};

use super::call::Call;
use super::reply::{Answer, Progress, Reply, read as read_reply};

/// How long answers of every service are gathered, as an executor does.
const GATHER: Duration = Duration::from_millis(400);
/// Answers of services that are read.
const ANSWERS_MAX: usize = 10_000;

/// One tool, and how to reach it.
pub struct Asker<'a> {
    bus: &'a Bus,
    tenant: TenantId,
    tool: ToolName,
}

/// One process that says that it serves the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// Its service's name and id.
    pub instance: (String, String),
    /// What it says of the tool; the error says why no executor takes it.
    pub said: Result<ToolSpec, String>,
}

/// Who there is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// By `$SRV.INFO`.
    pub replicas: Vec<Replica>,
    /// Those of them that answered `$SRV.INFO.<tool>` alike: no other description counts.
    pub named: usize,
    /// Those of them that answered `$SRV.PING`.
    pub pinged: usize,
}

/// Which service answers.
#[derive(Deserialize)]
struct Identity {
    #[serde(default)]
    name: String,
    #[serde(default)]
    id: String,
}

/// A service's statistics, as far as they tell of one endpoint.
#[derive(Deserialize)]
struct Stats {
    #[serde(default)]
    endpoints: Option<Vec<EndpointStats>>,
}

#[derive(Deserialize)]
struct EndpointStats {
    #[serde(default)]
    subject: Option<String>,
    #[serde(default)]
    last_error: Option<String>,
}

impl<'a> Asker<'a> {
    /// Asks for one tool of a tenant.
    pub fn new(bus: &'a Bus, tenant: TenantId, tool: ToolName) -> Self {
        Self { bus, tenant, tool }
    }

    /// The tool.
    pub fn tool(&self) -> &ToolName {
        &self.tool
    }

    /// Where its calls go.
    pub fn subject(&self) -> Subject {
        subject::tool(&self.tenant, &self.tool)
    }

    /// Who serves it, and what each says of it.
    pub async fn find(&self) -> Result<Found, BusError> {
        let (infos, named, pings) = tokio::join!(
            self.gather(subject::services_info()),
            self.gather(subject::service_info(&self.tool)),
            self.gather(subject::services_ping())
        );
        let identity = |message: &Message| serde_json::from_slice::<Identity>(&message.payload).ok();
        let pinged: BTreeSet<_> = pings?.iter().filter_map(identity).map(|it| (it.name, it.id)).collect();
        let replicas = |infos: Vec<Message>| {
            let mut replicas = Vec::new();
            for message in infos {
                let instance = identity(&message).map(|it| (it.name, it.id)).unwrap_or_default();
                let said = parse_service_info(&message.payload).into_iter().find_map(|described| self.meant(described));
                replicas.extend(said.map(|said| Replica { instance: instance.clone(), said }));
            }
            replicas.sort_by(|one, other| one.instance.cmp(&other.instance));
            replicas
        };
        let (replicas, named) = (replicas(infos?), replicas(named?));
        let pinged = replicas.iter().filter(|replica| pinged.contains(&replica.instance)).count();
        let named = replicas.iter().filter(|replica| named.contains(replica)).count();
        Ok(Found { replicas, named, pinged })
    }

    fn meant(&self, described: ToolDescription) -> Option<Result<ToolSpec, String>> {
        match described {
            ToolDescription::Tool(tenant, spec) => {
                (tenant == self.tenant && spec.name == self.tool).then_some(Ok(spec))
            }
            // Also of another shape: whoever looks for this tool wants to hear of it.
            ToolDescription::Bad { subject, reason } => {
                subject.rsplit('.').next().is_some_and(|last| last == self.tool.as_str()).then_some(Err(reason))
            }
        }
    }

    /// Whether the fleet's catalogue has it.
    pub async fn is_known(&self) -> Result<bool, BusError> {
        Ok(self.bus.tools(&self.tenant).await?.iter().any(|spec| spec.name == self.tool))
    }

    /// The last error that its replicas count in their statistics.
    pub async fn last_error(&self) -> Result<Option<String>, BusError> {
        let answers = self.gather(subject::services_stats()).await?;
        let stats = answers.iter().filter_map(|message| serde_json::from_slice::<Stats>(&message.payload).ok());
        let endpoints = stats.flat_map(|stats| stats.endpoints.unwrap_or_default());
        let own = endpoints.filter(|endpoint| endpoint.subject.as_deref() == Some(self.subject().as_str()));
        Ok(own.filter_map(|endpoint| endpoint.last_error).rfind(|error| !error.is_empty()))
    }

    async fn gather(&self, question: Subject) -> Result<Vec<Message>, BusError> {
        let asked = self.bus.transport().request_many(&question, Vec::new(), Bytes::new()).await;
        let mut answers = match asked {
            Ok(answers) => answers.take(ANSWERS_MAX),
            Err(BusError::NoResponders { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let end = Instant::now() + GATHER;
        let mut heard = Vec::new();
        while let Ok(Some(answer)) = timeout_at(end, answers.next()).await {
            match answer {
                SubscriptionEvent::Message(message) => heard.push(message),
                SubscriptionEvent::Gap => return Err(BusError::Unavailable("the connection was lost".to_owned())),
            }
        }
        Ok(heard)
    }

    /// Sends a call; its replies are heard as long as the exchange is kept.
    pub async fn call(&self, call: &Call) -> Result<Exchange, BusError> {
        let asked = self.bus.transport().request_many(&self.subject(), call.headers.clone(), call.body.clone()).await;
        match asked {
            Ok(replies) => Ok(Exchange::new(replies)),
            Err(BusError::NoResponders { .. }) => Ok(Exchange::new(futures::stream::empty().boxed())),
            Err(error) => Err(error),
        }
    }

    /// Asks what became of a call; nothing where nobody answers.
    pub async fn probe(&self, call: &Call, within: Duration) -> Result<Option<Message>, BusError> {
        let subject = subject::tool_probe(&self.tenant, &self.tool);
        match self.bus.transport().request(&subject, call.headers.clone(), call.body.clone(), within).await {
            Ok(answer) => Ok(Some(answer)),
            Err(BusError::NoResponders { .. } | BusError::Timeout { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Says that nobody waits for a call any more.
    pub async fn cancel(&self, headers: Headers) -> Result<(), BusError> {
        self.bus.transport().publish(&subject::tool_cancel(&self.tenant, &self.tool), headers, Bytes::new()).await
    }
}

/// What came back for one call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// Final replies, with the time from the call to each. There should be one.
    pub answers: Vec<(Duration, Answer)>,
    /// Progress, likewise.
    pub progress: Vec<(Duration, Progress)>,
    /// Nobody subscribes.
    pub nobody: bool,
    /// The connection was lost, and perhaps replies with it.
    pub lost: bool,
    /// How long was waited.
    pub waited: Duration,
}

impl Seen {
    /// The first final reply.
    pub fn answer(&self) -> Option<&Answer> {
        self.answers.first().map(|(_, answer)| answer)
    }
}

/// One call, and the replies to it.
pub struct Exchange {
    replies: Subscription,
    began: Instant,
    /// What was heard so far.
    pub seen: Seen,
}

impl Exchange {
    fn new(replies: Subscription) -> Self {
        // Asked again after its end: who listens to all calls at the end does not know which of them are over.
        Self { replies: replies.fuse().boxed(), began: Instant::now(), seen: Seen::default() }
    }

    /// The time since the call was sent, from which that of each reply is counted.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits for the next reply, until `end` at the latest; `None` when there was none.
    pub async fn next(&mut self, end: Instant) -> Option<Reply> {
        let next = timeout_at(end, self.replies.next()).await;
        let after = self.began.elapsed();
        self.seen.waited = after;
        match next {
            Ok(Some(SubscriptionEvent::Message(message))) => {
                let reply = read_reply(&message);
                match &reply {
                    Reply::Progress(progress) => self.seen.progress.push((after, progress.clone())),
                    Reply::Final(answer) => self.seen.answers.push((after, answer.clone())),
                }
                Some(reply)
            }
            Ok(Some(SubscriptionEvent::Gap)) => {
                self.seen.lost = true;
                None
            }
            Ok(None) => {
                self.seen.nobody = self.seen.answers.is_empty() && self.seen.progress.is_empty();
                None
            }
            Err(_late) => None,
        }
    }

    /// Waits for the final reply, counted from the call.
    pub async fn answered(&mut self, within: Duration) -> &Seen {
        let end = self.began + within;
        while self.seen.answers.is_empty() {
            if self.next(end).await.is_none() {
                break;
            }
        }
        &self.seen
    }

    /// Hears whatever else comes until `end`.
    pub async fn listen(&mut self, end: Instant) {
        while self.next(end).await.is_some() {}
    }
}
