//! One living connection to an MCP server: it owns the calls that run over it, and watches whether it lives.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, Fuse, join};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use rmcp::ServiceError;
use rmcp::model::SubscriptionFilter;
use rmcp::service::{Peer, RoleClient, RunningServiceCancellationToken, Subscription};
use service::tasks::Tasks;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until, timeout};

use super::call::{Ask, Line, Told};
use super::child::Child;
use super::config::McpConfig;
use super::failure::Failure;
use super::listener::{Listener, Progress};
use super::name::ServerName;
use super::offer::Listed;
use super::open::{NoServer, open};
use super::pace::Pace;
use super::tasks::TaskTools;
use super::watched::Watch;
use super::{config, listing};

/// How often a server is asked which tools it has: to see that it lives, and what it did not tell of.
const CHECK_EVERY: Duration = Duration::from_secs(30);
/// As above, for a server over HTTP while calls run: nothing else tells that it died.
const CHECK_CALLS_EVERY: Duration = Duration::from_secs(10);
/// How soon it is asked again after the connection failed once.
const CHECK_AGAIN: Duration = Duration::from_secs(1);
/// How long it may take to tell.
const CHECK_MAX: Duration = Duration::from_secs(10);
/// Failures in a row after which the connection is made anew.
const STRIKES_MAX: u32 = 2;
/// How long the library may take to end a connection.
const CLOSE_MAX: Duration = Duration::from_secs(5);
/// How long the end of a server's process may come after that of its output.
const STATUS_WITHIN: Duration = Duration::from_millis(500);
/// The shortest pause between two questions for the tools, however often a server says that they changed.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// A connection. Whoever owns it asks for [`Link::next`] again and again: nothing happens meanwhile otherwise.
pub(super) struct Link {
    server: ServerName,
    rules: Arc<config::Rules>,
    peer: Peer<RoleClient>,
    progress: Progress,
    changed: Arc<Notify>,
    ended: Fuse<BoxFuture<'static, ()>>,
    stop: RunningServiceCancellationToken,
    child: Option<Child>,
    line: Line,
    asks: mpsc::Receiver<Ask>,
    work: FuturesUnordered<BoxFuture<'static, Done>>,
    calls: usize,
    looking: Looking,
    /// When it was last asked.
    looked: Instant,
    tasks_required: TaskTools,
    listening: bool,
    strikes: u32,
    heard: Instant,
    check_at: Instant,
}

/// Something that its owner must know.
pub(super) enum News {
    /// The tools, asked for again.
    Listed(Vec<Listed>),
    /// The connection is of no use any more, and why.
    Lost(String),
}

/// Whether the server is being asked for its tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looking {
    No,
    Yes,
    /// And they changed meanwhile.
    AndAgain,
}

enum Done {
    Called(Told),
    Listed(Result<Vec<Listed>, Failure>),
    /// The server told of a change, or will tell of none any more.
    Changed(Option<Box<Subscription>>),
}

/// What was found at the other end.
pub(super) struct Found {
    pub(super) link: Link,
    pub(super) tools: Vec<Listed>,
    pub(super) version: String,
}

impl Link {
    /// Connects, and asks for the tools.
    pub(super) async fn connect(
        server: &ServerName,
        config: &McpConfig,
        tasks: &Tasks,
        legacy: bool,
    ) -> Result<Found, NoServer> {
        let listener = Listener::default();
        let watch = Watch { pace: Pace::new(server.clone()), tasks: TaskTools::default() };
        let (service, child) = open(&config.way, &listener, server, tasks, legacy, &watch).await?;
        let (line, asks) = Line::new(server.clone(), config.concurrency, config.rules.patience());
        let (peer, stop) = (service.peer().clone(), service.cancellation_token());
        let ended = service.waiting().map(|_| ()).boxed().fuse();
        let Listener { progress, changed } = listener;
        let now = Instant::now();
        let mut this = Self {
            server: server.clone(),
            rules: Arc::new(config.rules.clone()),
            peer,
            progress,
            changed,
            ended,
            stop,
            child,
            line,
            asks,
            work: FuturesUnordered::new(),
            calls: 0,
            looking: Looking::No,
            looked: now,
            tasks_required: watch.tasks,
            listening: false,
            strikes: 0,
            heard: now,
            check_at: now + CHECK_EVERY,
        };
        // Before the list is asked for, so that no change falls between the two.
        this.listen().await;
        match list(this.peer.clone(), this.tasks_required.clone()).await {
            Ok(tools) => {
                let version = this.peer.peer_info().and_then(|info| Some(info.server_info.as_ref()?.version.clone()));
                Ok(Found { link: this, tools, version: version.unwrap_or_default() })
            }
            Err(failure) => {
                let reason = format!("it does not tell its tools: {failure:?}");
                Err(NoServer { reason, stderr: this.close().await })
            }
        }
    }

    /// The way of calls to this connection.
    pub(super) fn line(&self) -> &Line {
        &self.line
    }

    /// Goes on until there is something to tell. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> News {
        loop {
            let news = tokio::select! {
                Some(ask) = self.asks.recv() => {
                    self.begin(ask);
                    None
                }
                Some(done) = self.work.next() => self.take(done),
                () = self.changed.notified() => {
                    self.look_soon();
                    None
                }
                () = sleep_until(self.check_at) => {
                    self.check();
                    None
                }
                () = &mut self.ended => Some(News::Lost(self.why_ended().await)),
                why = ended(self.child.as_mut()) => Some(News::Lost(why)),
            };
            if let Some(news) = news {
                return news;
            }
        }
    }

    fn begin(&mut self, ask: Ask) {
        self.calls += 1;
        let make = ask.make(self.peer.clone(), self.progress.clone(), self.server.clone(), self.rules.clone());
        self.work.push(make.map(Done::Called).boxed());
        self.check_at = self.check_at.min(Instant::now() + self.pause());
    }

    fn take(&mut self, done: Done) -> Option<News> {
        match done {
            Done::Called(told) => {
                self.calls -= 1;
                match told {
                    Told::Heard => self.alive(),
                    Told::Nothing => {}
                    Told::Broken(why) => return self.strike(&why),
                }
                None
            }
            Done::Listed(listed) => {
                if std::mem::replace(&mut self.looking, Looking::No) == Looking::AndAgain {
                    self.look_soon();
                }
                match listed {
                    Ok(tools) => {
                        self.alive();
                        Some(News::Listed(tools))
                    }
                    Err(failure) if failure.is_silence() && self.is_busy() => None,
                    Err(failure) if failure.is_of_the_transport() => self.strike(&format!("{failure:?}")),
                    Err(failure) => {
                        tracing::warn!(server = %self.server, ?failure, "an MCP server does not tell its tools");
                        self.alive();
                        None
                    }
                }
            }
            Done::Changed(subscription) => {
                self.listening = subscription.is_some();
                if let Some(subscription) = subscription {
                    self.hear(*subscription);
                    self.look_soon();
                }
                None
            }
        }
    }

    fn alive(&mut self) {
        self.strikes = 0;
        self.heard = Instant::now();
    }

    fn strike(&mut self, why: &str) -> Option<News> {
        self.strikes += 1;
        if self.strikes >= STRIKES_MAX {
            return Some(News::Lost(format!("it failed {STRIKES_MAX} times in a row: {why}")));
        }
        tracing::debug!(server = %self.server, why, "the connection to an MCP server failed once");
        self.check_at = Instant::now() + CHECK_AGAIN;
        None
    }

    /// A server that does one thing at a time says nothing while a call runs: its silence counts when the call is over,
    /// or has taken longer than any may.
    fn is_busy(&self) -> bool {
        self.calls > 0 && self.heard.elapsed() < self.rules.patience() + CHECK_MAX
    }

    fn pause(&self) -> Duration {
        if self.child.is_none() && self.calls > 0 { CHECK_CALLS_EVERY } else { CHECK_EVERY }
    }

    fn check(&mut self) {
        self.check_at = Instant::now() + self.pause();
        self.look();
        if !self.listening && self.tells_by_subscription() {
            self.listening = true;
            let (peer, filter) = (self.peer.clone(), filter());
            let listen = async move { timeout(CHECK_MAX, peer.listen(filter)).await.ok()?.ok().map(Box::new) };
            self.work.push(listen.map(Done::Changed).boxed());
        }
    }

    /// Asks for the tools, now or when the last question is long enough ago.
    fn look_soon(&mut self) {
        if self.looked.elapsed() >= LOOK_PAUSE {
            self.look();
        } else {
            self.check_at = self.check_at.min(self.looked + LOOK_PAUSE);
        }
    }

    /// Asks for the tools, once at a time.
    fn look(&mut self) {
        self.looked = Instant::now();
        if self.looking == Looking::No {
            self.looking = Looking::Yes;
            self.work.push(list(self.peer.clone(), self.tasks_required.clone()).map(Done::Listed).boxed());
        } else {
            self.looking = Looking::AndAgain;
        }
    }

    /// Servers of the newest protocol tell of changes only to whoever subscribes; others to everybody.
    async fn listen(&mut self) {
        if !self.tells_by_subscription() {
            return;
        }
        match timeout(CHECK_MAX, self.peer.listen(filter())).await {
            Ok(Ok(subscription)) => {
                self.listening = true;
                self.hear(subscription);
            }
            Ok(Err(error)) => tracing::debug!(server = %self.server, %error, "changes of its tools are not told"),
            Err(_) => tracing::debug!(server = %self.server, "changes of its tools are not told in time"),
        }
    }

    fn hear(&self, mut subscription: Subscription) {
        let told = async move {
            match subscription.next().await {
                Ok(Some(_)) => Done::Changed(Some(Box::new(subscription))),
                Ok(None) | Err(_) => Done::Changed(None),
            }
        };
        self.work.push(told.boxed());
    }

    fn tells_by_subscription(&self) -> bool {
        let info = self.peer.peer_info();
        info.is_some_and(|info| {
            let tools = info.capabilities.tools.as_ref();
            !info.protocol_version.has_initialize() && tools.and_then(|tools| tools.list_changed) == Some(true)
        })
    }

    async fn why_ended(&mut self) -> String {
        match timeout(STATUS_WITHIN, ended(self.child.as_mut())).await {
            Ok(why) => why,
            Err(_) => "its connection ended".to_owned(),
        }
    }

    /// Ends the connection, and the process that it was to. Calls that run are answered. Returns what the process said
    /// last.
    pub(super) async fn close(mut self) -> Vec<String> {
        self.asks.close();
        while let Ok(ask) = self.asks.try_recv() {
            ask.refuse(&self.server, "it went down");
        }
        self.stop.cancel();
        let answered = async { while self.work.next().await.is_some() {} };
        let over = async {
            if !futures::future::FusedFuture::is_terminated(&self.ended) {
                (&mut self.ended).await;
            }
        };
        if timeout(CLOSE_MAX, join(answered, over)).await.is_err() {
            tracing::debug!(server = %self.server, "the connection does not end");
        }
        match self.child {
            Some(child) => child.end().await,
            None => Vec::new(),
        }
    }
}

async fn ended(child: Option<&mut Child>) -> String {
    match child {
        Some(child) => child.ended().await,
        None => std::future::pending().await,
    }
}

async fn list(peer: Peer<RoleClient>, tasks: TaskTools) -> Result<Vec<Listed>, Failure> {
    match timeout(CHECK_MAX, listing::list(peer, tasks)).await {
        Ok(Ok(tools)) => Ok(tools),
        // It answered, with something else.
        Ok(Err(ServiceError::UnexpectedResponse)) => Err(Failure::Refused("no list of tools".to_owned())),
        Ok(Err(error)) => Err(Failure::of(&error)),
        Err(_) => Err(Failure::Silent(CHECK_MAX)),
    }
}

fn filter() -> SubscriptionFilter {
    SubscriptionFilter::builder().tools_list_changed().build()
}
