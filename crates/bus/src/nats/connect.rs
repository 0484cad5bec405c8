//! Connecting, and whether the server is one that can be used.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_nats::{ClientError, ConnectErrorKind, Event, jetstream};
use contract::ErrorCode;
use contract::subject::inbox_prefix;
use nats_credentials::{CredentialsError, CredentialsFile, NatsAddress, is_tls_failure};
use tokio::sync::broadcast;

use super::config::NatsConfig;
use super::connection::{ANSWER_MAX, NatsTransport, Stores, Uptime};
use super::shared_inbox::SharedInbox;
use crate::transport::RECONNECT_MAX;
use crate::{BusError, retry};

/// The oldest server that has every setting that the streams need, and resets a consumer as it should.
const SERVER_MIN: (i64, i64, i64) = (2, 15, 0);
/// Interest of a host that died goes away after two of these.
const PING_EVERY: Duration = Duration::from_secs(5);
/// Timeout of one attempt to connect.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Most notices of gaps that a subscription may have pending; a missed notice is one more gap.
const GAPS_MAX: usize = 16;
/// Shortest interval of reports that one subscription is too slow.
const SLOW_EVERY: Duration = Duration::from_millis(100);

impl NatsTransport {
    /// Connects and checks that the server can be used: [`ErrorCode::BadConfig`], [`ErrorCode::NatsUnreachable`],
    /// [`ErrorCode::NatsTooOld`], [`ErrorCode::NatsNoJetStream`] or [`ErrorCode::Unauthorized`] say why it cannot.
    pub async fn connect(config: &NatsConfig) -> Result<Self, BusError> {
        let ((gaps, _), (slow, _)) = (broadcast::channel(GAPS_MAX), broadcast::channel(GAPS_MAX));
        let uptime = Uptime::default();
        let address = NatsAddress::parse(&config.url).map_err(|e| {
            let shown = config.shown_url();
            let message = format!("nats.url {shown:?} is not an address such as nats://127.0.0.1:4222: {e}");
            BusError::Unusable { code: ErrorCode::BadConfig, message }
        })?;
        let credentials = config.credentials.clone().map(CredentialsFile::new);
        let watch = ConnectionWatcher {
            gaps: gaps.clone(),
            slow: slow.clone(),
            uptime: uptime.clone(),
            credentials: credentials.clone(),
            state: Mutex::default(),
        };
        // A user may subscribe to the inboxes of its role only.
        let (options, inbox_of) = match &credentials {
            Some(file) => (file.connect_options(), file.read().map_err(|error| bad_credentials(&error))?.claims.name),
            None => (address.connect_options(), config.name.clone()),
        };
        let tls = config.tls.files();
        if let Some(problem) = tls.find_problem() {
            return Err(BusError::Unusable { code: ErrorCode::BadConfig, message: format!("nats.tls: {problem}") });
        }
        let options = tls
            .apply(options)
            .name(&config.name)
            .ping_interval(PING_EVERY)
            .connection_timeout(CONNECT_MAX)
            .custom_inbox_prefix(inbox_prefix(&inbox_of))
            .reconnect_delay_callback(reconnect_delay)
            .event_callback(move |event| {
                watch.on_connection_event(&event);
                std::future::ready(())
            });
        let client = options.connect(address.servers()).await.map_err(|e| refused(config, credentials.as_ref(), &e))?;
        let (major, minor, patch) = SERVER_MIN;
        if !client.is_server_compatible(major, minor, patch) {
            let found = client.server_info().version;
            let message = format!(
                "nats-server {found} at {} is too old: ailoop needs {major}.{minor} or newer. Packages of \
                 distributions are often older; see https://github.com/nats-io/nats-server/releases",
                config.shown_url()
            );
            return Err(BusError::Unusable { code: ErrorCode::NatsTooOld, message });
        }
        let nats = Self {
            jetstream: jetstream::ContextBuilder::new().timeout(ANSWER_MAX).build(client.clone()),
            client,
            replicas: config.replicas.max(1),
            retention: config.retention(),
            gaps,
            slow,
            uptime,
            server_clock: Mutex::default(),
            stores: Stores::default(),
            one_replica_cache: Mutex::default(),
            shared_inbox: SharedInbox::default(),
            seen_seqs: Arc::default(),
        };
        nats.has_jetstream(config).await?;
        Ok(nats)
    }

    async fn has_jetstream(&self, config: &NatsConfig) -> Result<(), BusError> {
        let why = match self.js_request::<serde::de::IgnoredAny>("$JS.API.INFO", None).await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(refusal)) if refusal.is_not_enabled() => refusal.to_string(),
            Ok(Err(refusal)) => return Err(refusal.into_error()),
            // A server that goes down, or has no leader yet, has JetStream and does not answer: that passes.
            Err(BusError::Unavailable(why)) if !self.client.server_info().jetstream => why,
            Err(error) => return Err(error),
        };
        let message = format!(
            "nats-server at {} has no JetStream for this account ({why}): start it with -js and a store directory",
            config.shown_url()
        );
        Err(BusError::Unusable { code: ErrorCode::NatsNoJetStream, message })
    }
}

fn reconnect_delay(attempts: usize) -> Duration {
    let round = u32::try_from(attempts).unwrap_or(u32::MAX);
    if round <= 1 { Duration::ZERO } else { (retry::pause(round, "reconnect") * 4).min(RECONNECT_MAX) }
}

/// Follows the events of a connection.
struct ConnectionWatcher {
    gaps: broadcast::Sender<()>,
    slow: broadcast::Sender<u64>,
    uptime: Uptime,
    credentials: Option<CredentialsFile>,
    // A lock, since the callback is shared; it is held for a look.
    state: Mutex<EventState>,
}

/// The state that the events so far imply.
#[derive(Default)]
struct EventState {
    /// Whether the connection is up, according to the events.
    is_up: bool,
    /// Whether it was up at any time.
    was_up: bool,
    /// The last slow subscription that was reported, and when: there is an event for each message that is dropped.
    slow: Option<(u64, Instant)>,
}

impl ConnectionWatcher {
    fn on_connection_event(&self, event: &Event) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Disconnected => {
                state.is_up = false;
                self.uptime.restart();
                self.broke(event);
            }
            // The connection is well: only what this one subscription missed is lost.
            Event::SlowConsumer(sid) => {
                let is_repeated = state.slow.is_some_and(|(last, at)| last == *sid && at.elapsed() < SLOW_EVERY);
                if !is_repeated {
                    state.slow = Some((*sid, Instant::now()));
                    tracing::warn!(%event, "messages of one subscription are lost: they are read too slowly");
                    // No subscription listens: fine.
                    drop(self.slow.send(*sid));
                }
            }
            Event::Connected => {
                self.uptime.restart();
                if std::mem::replace(&mut state.was_up, true) {
                    telemetry::metric::nats_reconnect();
                }
                // Events are dropped where many come at once.
                if std::mem::replace(&mut state.is_up, true) {
                    self.broke(event);
                }
                tracing::debug!(%event, "nats");
            }
            Event::Draining | Event::Closed => tracing::debug!(%event, "nats"),
            Event::LameDuckMode => tracing::info!(%event, "nats"),
            Event::ClientError(ClientError::Other(error)) if is_refusal(error) => {
                let reason = self.credentials.as_ref().map(CredentialsFile::explain_refusal);
                let reason = reason.unwrap_or_else(|| NO_CREDENTIALS.to_owned());
                tracing::error!(%error, reason, "nats-server refuses this process; it is tried again");
            }
            Event::ServerError(_) | Event::ClientError(_) => tracing::warn!(%event, "nats"),
        }
    }

    fn broke(&self, event: &Event) {
        tracing::warn!(%event, "messages of core NATS may be lost");
        // No subscription listens: fine.
        drop(self.gaps.send(()));
    }
}

/// Advice if nats-server requires credentials and none are set.
const NO_CREDENTIALS: &str = "it wants a user: set nats.credentials (AILOOP__NATS__CREDENTIALS) to a file that `ailoop \
                              nats-auth` made; to reach the nats-server of `ailoop up`, use the address in its \
                              .ailoop/run.json, which has a user and a password";

/// Whether a failed reconnect, as async-nats reports it, is one that waits for another credential.
fn is_refusal(error: &str) -> bool {
    [ConnectErrorKind::Authentication, ConnectErrorKind::AuthorizationViolation]
        .iter()
        .any(|kind| error.contains(&kind.to_string()))
}

fn bad_credentials(error: &CredentialsError) -> BusError {
    BusError::Unusable { code: ErrorCode::Unauthorized, message: format!("nats.credentials: {error}") }
}

fn refused(config: &NatsConfig, credentials: Option<&CredentialsFile>, error: &async_nats::ConnectError) -> BusError {
    let why = std::error::Error::source(error).map_or_else(|| error.to_string(), |source| format!("{error}: {source}"));
    if is_tls_failure(error) {
        let message = format!(
            "no encrypted connection to nats-server at {} ({why}): nats.tls.ca (AILOOP__NATS__TLS__CA) names the \
             certificates to trust, and nats.tls.certificate and key are for a server that verifies clients",
            config.shown_url()
        );
        return BusError::Unusable { code: ErrorCode::BadConfig, message };
    }
    match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            let reason = credentials.map_or_else(|| NO_CREDENTIALS.to_owned(), CredentialsFile::explain_refusal);
            let message = format!("nats-server at {} refuses the connection ({why}): {reason}", config.shown_url());
            BusError::Unusable { code: ErrorCode::Unauthorized, message }
        }
        ConnectErrorKind::ServerParse
        | ConnectErrorKind::Dns
        | ConnectErrorKind::TimedOut
        | ConnectErrorKind::Tls
        | ConnectErrorKind::Io
        | ConnectErrorKind::MaxReconnects => BusError::Unusable {
            code: ErrorCode::NatsUnreachable,
            message: format!(
                "no nats-server answers at {} ({why}): start one, or set nats.url (AILOOP__NATS__URL)",
                config.shown_url()
            ),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_subscription_is_no_broken_connection() {
        let ((gaps, mut broke), (slow, mut slowed)) = (broadcast::channel(4), broadcast::channel(4));
        let (uptime, state) = (Uptime::default(), Mutex::default());
        let watch = ConnectionWatcher { gaps, slow, uptime, credentials: None, state };
        watch.on_connection_event(&Event::Connected);
        for _ in 0..100 {
            watch.on_connection_event(&Event::SlowConsumer(7));
        }
        watch.on_connection_event(&Event::SlowConsumer(8));
        assert!(broke.try_recv().is_err());
        assert_eq!((slowed.try_recv().ok(), slowed.try_recv().ok(), slowed.try_recv().ok()), (Some(7), Some(8), None));
        watch.on_connection_event(&Event::Disconnected);
        watch.on_connection_event(&Event::Connected);
        assert!(broke.try_recv().is_ok() && broke.try_recv().is_err(), "once");
        // The event of its loss was dropped.
        watch.on_connection_event(&Event::Connected);
        assert!(broke.try_recv().is_ok());
    }
}
