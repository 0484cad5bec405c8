//! Small facts by key: the tool catalogue, the index of sessions, claims, requests that a client may repeat.

use std::time::Duration;

use bytes::Bytes;
use contract::commit::SessionSummary;
use contract::ids::{CallId, SessionId, TenantId, ToolName};
use contract::streams::Bucket;
use contract::subject::{self, REQUEST, SessionKey};
use contract::tool::ToolSpec;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use serde::de::DeserializeOwned;

use crate::json::encode;
use crate::transport::KV_OPERATION;
use crate::verify::{Verified, Write};
use crate::{Bus, BusError, SubscriptionEvent};

/// Lifetime of the note of a request whose answer is not delivered.
const REQUEST_AGE_MAX: Duration = Duration::from_mins(30);
/// Lifetime of the empty note that replaces a forgotten request: the shortest time to live of a message.
const FORGOTTEN_AGE: Duration = Duration::from_secs(1);

/// The owner of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// The caller owns it, now or since before.
    Mine,
    /// Another owner has it, with this value.
    Theirs(String),
}

/// A change that a watch of the session index yields.
#[derive(Debug, Clone)]
pub enum SummaryChange {
    /// A line was written. `bytes` is its size as JSON.
    Written {
        /// The line as it is now.
        summary: Box<SessionSummary>,
        /// Bytes of its JSON.
        bytes: usize,
    },
    /// A line was removed.
    Removed(SessionId),
    /// Changes may have been lost here: read the index again.
    Gap,
}

impl Bus {
    /// Releases a claim of [`Bus::claim`].
    pub async fn release_claim(&self, key: &SessionKey, call: &CallId, parts: &[&str]) -> Result<(), BusError> {
        self.transport().kv_delete(Bucket::Claims, &claim_name(key, call, parts)).await
    }

    /// Watches the index of a tenant's sessions: every line that is written from now on, as it is published. An expiry
    /// yields nothing: read the index again at intervals.
    pub async fn watch_summaries(&self, tenant: &TenantId) -> Result<BoxStream<'static, SummaryChange>, BusError> {
        let changes = self.transport().subscribe(&subject::bucket_entries(Bucket::Sessions, tenant), None).await?;
        Ok(changes.filter_map(|event| std::future::ready(summary_change(event))).boxed())
    }

    /// The lines of a tenant's index with the size of each as JSON, sorted by id.
    pub async fn sized_summaries(&self, tenant: &TenantId) -> Result<Vec<(SessionSummary, usize)>, BusError> {
        self.sized_entries(Bucket::Sessions, tenant).await
    }

    /// The tools of a tenant, sorted by name. An entry that cannot be read is left out.
    pub async fn tools(&self, tenant: &TenantId) -> Result<Vec<ToolSpec>, BusError> {
        self.entries(Bucket::Tools, tenant).await
    }

    /// Puts a tool into the catalogue, or refreshes it.
    pub async fn put_tool(&self, tenant: &TenantId, tool: &ToolSpec) -> Result<(), BusError> {
        self.transport().kv_put(Bucket::Tools, &format!("{tenant}.{}", tool.name), encode(tool)?, None).await
    }

    /// Takes a tool out of the catalogue.
    pub async fn delete_tool(&self, tenant: &TenantId, tool: &ToolName) -> Result<(), BusError> {
        self.transport().kv_delete(Bucket::Tools, &format!("{tenant}.{tool}")).await
    }

    /// Removes a session's line of the index.
    pub async fn delete_summary(&self, key: &SessionKey) -> Result<(), BusError> {
        self.transport().kv_delete(Bucket::Sessions, &summary_key(&key.tenant, &key.session)).await
    }

    /// A session's line of the index.
    pub async fn summary(&self, key: &SessionKey) -> Result<Option<SessionSummary>, BusError> {
        let found = self.transport().kv_get(Bucket::Sessions, &summary_key(&key.tenant, &key.session)).await?;
        found.map(|body| crate::json::parse(&body)).transpose()
    }

    /// The index of a tenant's sessions, sorted by id.
    pub async fn summaries(&self, tenant: &TenantId) -> Result<Vec<SessionSummary>, BusError> {
        self.entries(Bucket::Sessions, tenant).await
    }

    /// Passes every session of every tenant that the index has to `each`. They are not in memory all at once.
    pub async fn each_indexed_session(&self, mut each: impl FnMut(SessionSummary)) -> Result<(), BusError> {
        let mut pages = self.transport().kv_pages(Bucket::Sessions, "*.*");
        while let Some(page) = pages.try_next().await? {
            for (key, body) in page {
                match serde_json::from_slice(&body) {
                    Ok(summary) => each(summary),
                    Err(error) => tracing::warn!(key, %error, "entry left out"),
                }
            }
        }
        Ok(())
    }

    /// Claims a part of a call, create-only: of several values, each of which names its owner, one gets
    /// [`Claim::Mine`], for seven days. `parts` name the part: tokens without a dot.
    pub async fn claim(&self, key: &SessionKey, call: &CallId, parts: &[&str], value: &str) -> Result<Claim, BusError> {
        let name = claim_name(key, call, parts);
        let what = format!("claim of {name}");
        let bus = self.transport();
        Verified::new(&what, value)
            .write(
                |_| async {
                    let created = bus.kv_create(Bucket::Claims, &name, value.to_owned().into(), None).await?;
                    Ok(if created.is_some() { Write::Known(Claim::Mine) } else { Write::beaten(&what) })
                },
                || async {
                    let found = bus.kv_get(Bucket::Claims, &name).await?;
                    let found = found.map(|found| String::from_utf8_lossy(&found).into_owned());
                    Ok(found.map(|found| if found == value { Claim::Mine } else { Claim::Theirs(found) }))
                },
            )
            .await
    }

    /// Changes a limit that gateways share, by compare and set: `change` computes the new entry from the current one.
    /// It is called again where another writer was faster, or where the outcome is unknown, so it must recognise a
    /// change that was made already. Returns the result of `change` for the entry that was stored. Pauses differ by the
    /// name of the writer, so that two writers do not collide again.
    pub async fn change_limit<T: Send>(
        &self,
        key: &str,
        writer: &str,
        change: impl Fn(Option<&[u8]>) -> Result<(Vec<u8>, T), BusError> + Send + Sync,
    ) -> Result<T, BusError> {
        let (bucket, bus) = (Bucket::Limits, self.transport());
        let what = format!("change of {key}");
        // Each try reads the current entry first.
        Verified::new(&what, writer)
            .repeat(|_| async {
                let found = bus.kv_entry(bucket, key).await?;
                let (value, changed) = change(found.as_ref().map(|(_, value)| value.as_ref()))?;
                let stored = match found {
                    Some((revision, _)) => bus.kv_update(bucket, key, value.into(), revision, None).await?,
                    None => bus.kv_create(bucket, key, value.into(), None).await?,
                };
                Ok(if stored.is_some() { Write::Known(changed) } else { Write::beaten(&what) })
            })
            .await
    }

    /// Notes a request of a client for half an hour. `digest` is that of its content, `id` its own, and `count` says
    /// how often it was repeated.
    pub async fn note_request(&self, tenant: &TenantId, digest: &str, id: &str, count: u32) -> Result<(), BusError> {
        let key = request_key(tenant, digest, id);
        self.transport().kv_put(Bucket::Sessions, &key, count.to_string().into(), Some(REQUEST_AGE_MAX)).await
    }

    /// Forgets a request, because its client has the answer.
    pub async fn forget_request(&self, tenant: &TenantId, digest: &str, id: &str) -> Result<(), BusError> {
        // The mark of a deletion would stay for ever in a bucket whose entries have no greatest age.
        let key = request_key(tenant, digest, id);
        self.transport().kv_put(Bucket::Sessions, &key, Bytes::new(), Some(FORGOTTEN_AGE)).await
    }

    /// Finds the request that a client repeats for the `count`th time, and takes it over: of several clients one gets
    /// it. Returns its id; none if no noted request of this content was repeated fewer times, or if several were.
    pub async fn repeat_request(
        &self,
        tenant: &TenantId,
        digest: &str,
        count: u32,
    ) -> Result<Option<String>, BusError> {
        let bus = self.transport();
        let noted = bus.kv_list(Bucket::Sessions, &request_key(tenant, digest, "*")).await?;
        let fits = |value: &Bytes| read_count(value).is_some_and(|earlier| earlier < count);
        let mut fitting = noted.iter().filter(|(_, value)| fits(value));
        let (Some((key, _)), None) = (fitting.next(), fitting.next()) else { return Ok(None) };
        // The list may be of a replica that lags behind.
        let found = bus.kv_entry(Bucket::Sessions, key).await?.filter(|(_, value)| fits(value));
        let Some((revision, _)) = found else { return Ok(None) };
        let value = count.to_string().into();
        let taken = bus.kv_update(Bucket::Sessions, key, value, revision, Some(REQUEST_AGE_MAX)).await?;
        Ok(key.rsplit('.').next().filter(|_| taken.is_some()).map(str::to_owned))
    }

    async fn entries<T: DeserializeOwned>(&self, bucket: Bucket, tenant: &TenantId) -> Result<Vec<T>, BusError> {
        let entries = self.sized_entries(bucket, tenant).await?;
        Ok(entries.into_iter().map(|(entry, _)| entry).collect())
    }

    async fn sized_entries<T: DeserializeOwned>(
        &self,
        bucket: Bucket,
        tenant: &TenantId,
    ) -> Result<Vec<(T, usize)>, BusError> {
        let mut entries = Vec::new();
        for (key, body) in self.transport().kv_list(bucket, &format!("{tenant}.*")).await? {
            match serde_json::from_slice(&body) {
                Ok(entry) => entries.push((entry, body.len())),
                // A newer writer's entry must not hide the others.
                Err(error) => tracing::warn!(bucket = bucket.name(), key, %error, "entry left out"),
            }
        }
        Ok(entries)
    }
}

pub(crate) fn summary_key(tenant: &TenantId, session: &SessionId) -> String {
    format!("{tenant}.{session}")
}

/// `<tenant>.request.<digest>.<id>`: a key of four words, so that it is no line of the index.
fn request_key(tenant: &TenantId, digest: &str, id: &str) -> String {
    format!("{tenant}.{REQUEST}.{digest}.{id}")
}

/// Reads how often a noted request was repeated; none if it was forgotten.
fn read_count(value: &[u8]) -> Option<u32> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

fn claim_name(key: &SessionKey, call: &CallId, parts: &[&str]) -> String {
    let name = format!("{}.{}.{call}", key.tenant, key.session);
    parts.iter().fold(name, |name, part| format!("{name}.{part}"))
}

fn summary_change(event: SubscriptionEvent) -> Option<SummaryChange> {
    let SubscriptionEvent::Message(message) = event else { return Some(SummaryChange::Gap) };
    if message.header(KV_OPERATION).is_some() {
        let session = message.subject.rsplit('.').next()?;
        return SessionId::new(session).ok().map(SummaryChange::Removed);
    }
    match serde_json::from_slice(&message.payload) {
        Ok(summary) => Some(SummaryChange::Written { summary: Box::new(summary), bytes: message.payload.len() }),
        Err(error) => {
            // A newer writer's entry must not hide the others.
            tracing::warn!(subject = message.subject, %error, "entry left out");
            None
        }
    }
}
