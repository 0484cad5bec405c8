//! Finds the replicas of a tool over NATS, and calls the tool.

use std::collections::BTreeSet;
use std::time::Duration;

use bus::{Bus, BusError, CoreMessage, Headers, Subscription, SubscriptionEvent};
use bytes::Bytes;
use contract::subject::{self, Subject};
use contract::tool::ToolSpec;
use contract::{TenantId, ToolName};
use futures::StreamExt as _;
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};
use tool_schema::{ToolDescription, parse_service_info};

use super::tool_reply::{FinalReply, ProgressReply, ToolReply, parse_reply};
use super::trial_call::TrialCall;

/// Client of one tool of a tenant.
pub struct ToolClient<'a> {
    bus: &'a Bus,
    tenant: TenantId,
    tool: ToolName,
}

/// One process that serves the tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolReplica {
    /// Name and id of its service.
    pub(crate) instance: (String, String),
    /// Its description of the tool, or the reason why executors refuse the description.
    pub spec: Result<ToolSpec, String>,
}

/// The replicas that were found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolReplicas {
    /// Replicas that answered `$SRV.INFO`.
    pub replicas: Vec<ToolReplica>,
    /// Number of replicas that gave the same description at `$SRV.INFO.<tool>`, which is the one that counts.
    pub(crate) named_count: usize,
    /// Number of replicas that answered `$SRV.PING`.
    pub(crate) pinged_count: usize,
}

/// The name and id of a service.
#[derive(Deserialize)]
struct Identity {
    #[serde(default)]
    name: String,
    #[serde(default)]
    id: String,
}

/// Statistics of a service.
#[derive(Deserialize)]
struct Stats {
    endpoints: Option<Vec<EndpointStats>>,
}

#[derive(Deserialize)]
struct EndpointStats {
    subject: Option<String>,
    last_error: Option<String>,
}

impl<'a> ToolClient<'a> {
    /// Makes a client of one tool of a tenant.
    pub fn new(bus: &'a Bus, tenant: TenantId, tool: ToolName) -> Self {
        Self { bus, tenant, tool }
    }

    /// Returns the subject of calls.
    pub fn subject(&self) -> Subject {
        subject::tool(&self.tenant, &self.tool)
    }

    /// Finds the replicas and their descriptions of the tool.
    pub async fn find_replicas(&self) -> Result<ToolReplicas, BusError> {
        let (infos, named, pings) = tokio::join!(
            self.bus.query_services(subject::services_info()),
            self.bus.query_services(subject::service_info(&self.tool)),
            self.bus.query_services(subject::services_ping())
        );
        let identity = |message: &CoreMessage| serde_json::from_slice::<Identity>(&message.payload).ok();
        let pinged: BTreeSet<_> = pings?.iter().filter_map(identity).map(|it| (it.name, it.id)).collect();
        let replicas = |infos: Vec<CoreMessage>| {
            let mut replicas = Vec::new();
            for message in infos {
                let instance = identity(&message).map(|it| (it.name, it.id)).unwrap_or_default();
                let spec =
                    parse_service_info(&message.payload).into_iter().find_map(|described| self.match_tool(described));
                replicas.extend(spec.map(|spec| ToolReplica { instance: instance.clone(), spec }));
            }
            replicas.sort_by(|one, other| one.instance.cmp(&other.instance));
            replicas
        };
        let (replicas, named) = (replicas(infos?), replicas(named?));
        let pinged_count = replicas.iter().filter(|replica| pinged.contains(&replica.instance)).count();
        let named_count = replicas.iter().filter(|replica| named.contains(replica)).count();
        Ok(ToolReplicas { replicas, named_count, pinged_count })
    }

    /// Returns the description, if it is of this tool.
    fn match_tool(&self, described: ToolDescription) -> Option<Result<ToolSpec, String>> {
        match described {
            ToolDescription::Tool(tenant, spec) => {
                (tenant == self.tenant && spec.name == self.tool).then_some(Ok(spec))
            }
            // An invalid description may also have an unusual subject, so only the last token is compared.
            ToolDescription::Bad { subject, reason } => {
                subject.rsplit('.').next().is_some_and(|last| last == self.tool.as_str()).then_some(Err(reason))
            }
        }
    }

    /// Whether the catalogue of the fleet has the tool.
    pub(crate) async fn is_known(&self) -> Result<bool, BusError> {
        Ok(self.bus.tools(&self.tenant).await?.iter().any(|spec| spec.name == self.tool))
    }

    /// Fetches the last error in the statistics of the replicas.
    pub(crate) async fn fetch_last_error(&self) -> Result<Option<String>, BusError> {
        let answers = self.bus.query_services(subject::services_stats()).await?;
        let stats = answers.iter().filter_map(|message| serde_json::from_slice::<Stats>(&message.payload).ok());
        let endpoints = stats.flat_map(|stats| stats.endpoints.unwrap_or_default());
        let own = endpoints.filter(|endpoint| endpoint.subject.as_deref() == Some(self.subject().as_str()));
        Ok(own.filter_map(|endpoint| endpoint.last_error).rfind(|error| !error.is_empty()))
    }

    /// Sends a call; its replies are received as long as the exchange exists.
    pub async fn call(&self, call: &TrialCall) -> Result<CallExchange, BusError> {
        let requested =
            self.bus.transport().request_many(&self.subject(), call.headers.clone(), call.body.clone()).await;
        match requested {
            Ok(replies) => Ok(CallExchange::new(replies)),
            Err(BusError::NoResponders { .. }) => Ok(CallExchange::new(futures::stream::empty().boxed())),
            Err(error) => Err(error),
        }
    }

    /// Probes the outcome of a call; returns none without an answer.
    pub(crate) async fn probe(&self, call: &TrialCall, within: Duration) -> Result<Option<CoreMessage>, BusError> {
        let subject = subject::tool_probe(&self.tenant, &self.tool);
        match self.bus.transport().request(&subject, call.headers.clone(), call.body.clone(), within).await {
            Ok(answer) => Ok(Some(answer)),
            Err(BusError::NoResponders { .. } | BusError::Timeout { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Publishes that a call is cancelled.
    pub async fn cancel(&self, headers: Headers) -> Result<(), BusError> {
        self.bus.transport().publish(&subject::tool_cancel(&self.tenant, &self.tool), headers, Bytes::new()).await
    }
}

/// The replies to one call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallRecord {
    /// Final replies, each with the time since the call. There should be one.
    pub(crate) answers: Vec<(Duration, FinalReply)>,
    /// Progress replies, each with the time since the call.
    pub(crate) progress: Vec<(Duration, ProgressReply)>,
    /// Whether no process subscribes the subject.
    pub has_no_subscriber: bool,
    /// Whether the connection was lost, so that replies may be missing.
    pub(crate) has_gap: bool,
    /// Time of the wait so far.
    pub waited: Duration,
}

impl CallRecord {
    /// Returns the first final reply.
    pub(crate) fn first_answer(&self) -> Option<&FinalReply> {
        self.answers.first().map(|(_, answer)| answer)
    }
}

/// One call, and the replies to it.
pub struct CallExchange {
    replies: Subscription,
    began: Instant,
    /// The replies so far.
    pub record: CallRecord,
}

impl CallExchange {
    fn new(replies: Subscription) -> Self {
        // Fused, since [`Self::drain_until`] may poll a stream that has ended.
        Self { replies: replies.fuse().boxed(), began: Instant::now(), record: CallRecord::default() }
    }

    /// Returns the time since the call.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits for the next reply, at most until `end`.
    pub async fn next(&mut self, end: Instant) -> Option<ToolReply> {
        let next = timeout_at(end, self.replies.next()).await;
        let after = self.began.elapsed();
        self.record.waited = after;
        match next {
            Ok(Some(SubscriptionEvent::Message(message))) => {
                let reply = parse_reply(&message);
                match &reply {
                    ToolReply::Progress(progress) => self.record.progress.push((after, progress.clone())),
                    ToolReply::Final(answer) => self.record.answers.push((after, answer.clone())),
                }
                Some(reply)
            }
            Ok(Some(SubscriptionEvent::Gap)) => {
                self.record.has_gap = true;
                None
            }
            Ok(None) => {
                self.record.has_no_subscriber = self.record.answers.is_empty() && self.record.progress.is_empty();
                None
            }
            Err(_late) => None,
        }
    }

    /// Waits for the final reply, at most `within` after the call.
    pub(crate) async fn wait_for_answer(&mut self, within: Duration) -> &CallRecord {
        let end = self.began + within;
        while self.record.answers.is_empty() {
            if self.next(end).await.is_none() {
                break;
            }
        }
        &self.record
    }

    /// Receives further replies until `end`.
    pub(crate) async fn drain_until(&mut self, end: Instant) {
        while self.next(end).await.is_some() {}
    }
}
