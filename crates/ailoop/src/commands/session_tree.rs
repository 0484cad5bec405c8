//! A session and the child sessions to which it delegates, as one stream of what is to be shown.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ailoop_client::WatchItem;
use contract::event::Event;
use contract::{CallId, ErrorCode, SessionId, TenantId};
use fleet_connection::client::{EdgeClient, SessionsApi};
use fleet_connection::stream::SessionStream;
use proto::GetSessionRequest;
use service::tasks::Tasks;
use session_view::delegation::{DEPTH_MAX, Delegation, child_layout, indent, render_deeper};
use session_view::notification::{NotificationContent, ParsedNotification};
use session_view::render::SessionRenderer;
use terminal::failure::CommandFailure;
use terminal::{Layout, Output};
use tokio::sync::{Notify, OnceCell, mpsc};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// Child sessions that are followed at once; further ones are only named.
const FOLLOWED_MAX: usize = 16;
/// Messages of children that wait to be shown; then the children wait.
const MESSAGES_MAX: usize = 1_024;
/// Messages of one child that wait for the end of a child of its own.
const HELD_MAX: usize = 10_000;
/// Longest wait for the next message of a child whose result is there already.
const REST_MAX: Duration = Duration::from_secs(5);
/// Pauses between attempts to follow a child that does not exist yet: its call may wait for a person.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);

/// An item of a [`SessionTree`].
pub(super) enum TreeItem {
    /// An item of the session itself.
    Session(WatchItem),
    /// Lines about its children.
    Children(Vec<Output>),
}

/// The number of a child within its tree.
type ChildKey = usize;

/// A session with its children.
///
/// The result of a delegation comes after everything that the child has written.
pub(super) struct SessionTree {
    client: EdgeClient,
    session: String,
    stream: SessionStream,
    /// Layout of lines; none if children are not followed.
    layout: Option<Layout>,
    /// Last event that the reader does not see as it comes; children of results up to it are not followed.
    replay_until: u64,
    /// Delegations of the replayed part without a result.
    replayed: Vec<(CallId, Delegation)>,
    children: BTreeMap<ChildKey, ChildSession>,
    /// The children by the session that delegates, none for the session itself, and by the call.
    calls: HashMap<(Option<ChildKey>, CallId), ChildKey>,
    next_key: ChildKey,
    /// The result that waits for the rest of a child.
    held: Option<(Box<proto::Notification>, ChildKey)>,
    ready: VecDeque<TreeItem>,
    /// The child whose line was the last one.
    speaker: Option<ChildKey>,
    tenant: Arc<OnceCell<TenantId>>,
    tasks: Tasks,
    sender: mpsc::Sender<ChildMessage>,
    receiver: mpsc::Receiver<ChildMessage>,
}

/// A child session that is followed.
struct ChildSession {
    parent: Option<ChildKey>,
    /// Level below the session, from 1.
    depth: usize,
    delegation: Delegation,
    /// None until the session exists.
    renderer: Option<SessionRenderer>,
    session: Option<SessionId>,
    /// Delegations that are too deep to be followed.
    deeper: u64,
    /// The child of this one whose rest is shown before the held messages.
    waits_for: Option<ChildKey>,
    held: VecDeque<ChildContent>,
    last_message: Instant,
    /// Makes the follower of a session that does not exist yet try again at once.
    wake: Arc<Notify>,
    ending: CancellationToken,
}

struct ChildMessage {
    child: ChildKey,
    content: ChildContent,
}

enum ChildContent {
    /// The session exists, and has this id.
    Found(SessionId),
    /// Nobody knows the session, as yet.
    Unknown,
    Notification(Box<ParsedNotification>),
    /// The session has ended, or cannot be followed.
    End,
}

impl SessionTree {
    /// Makes the stream of a session from `from_seq` on. Without a layout, children are not followed.
    pub(super) fn new(client: EdgeClient, session: &str, from_seq: u64, layout: Option<Layout>) -> Self {
        let (sender, receiver) = mpsc::channel(MESSAGES_MAX);
        Self {
            stream: SessionStream::new(client.clone(), session, from_seq, true),
            client,
            session: session.to_owned(),
            layout,
            replay_until: 0,
            replayed: Vec::new(),
            children: BTreeMap::new(),
            calls: HashMap::new(),
            next_key: 0,
            held: None,
            ready: VecDeque::new(),
            speaker: None,
            tenant: Arc::default(),
            tasks: Tasks::new(),
            sender,
            receiver,
        }
    }

    /// Follows only children whose results are not among the events up to `seq`.
    pub(super) fn with_replay_until(mut self, seq: u64) -> Self {
        self.replay_until = seq;
        self
    }

    /// Sets the layout of what comes from now on, unless children are not followed.
    pub(super) fn set_layout(&mut self, layout: Layout) {
        self.layout = self.layout.map(|_| layout);
    }

    /// Opens the stream of the session again; its children go on.
    pub(super) fn reopen(&mut self, from_seq: u64) {
        self.stream = SessionStream::new(self.client.clone(), &self.session, from_seq, true);
    }

    /// Returns the next item, or none after the end of the session. It is safe to drop the future: nothing is lost.
    pub(super) async fn next(&mut self) -> Result<Option<TreeItem>, CommandFailure> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            let due = self.next_due();
            tokio::select! {
                message = self.receiver.recv() => {
                    if let Some(message) = message {
                        self.handle_message(message);
                    }
                }
                item = self.stream.next(), if self.held.is_none() => match item? {
                    Some(WatchItem::Notification(notification)) => self.handle_notification(notification),
                    Some(other) => return Ok(Some(TreeItem::Session(other))),
                    None => return Ok(None),
                },
                () = sleep_until(due.map_or_else(Instant::now, |(at, _)| at)), if due.is_some() => {
                    if let Some((_, child)) = due {
                        self.end_child(child);
                    }
                }
            }
        }
    }

    /// Returns the earliest time at which a wait for the rest of a child ends, and that child.
    fn next_due(&self) -> Option<(Instant, ChildKey)> {
        let of_session = self.held.as_ref().map(|(_, child)| *child);
        let waited = self.children.values().filter_map(|child| child.waits_for).chain(of_session);
        waited.filter_map(|key| Some((self.children.get(&key)?.last_message + REST_MAX, key))).min()
    }

    fn handle_notification(&mut self, notification: Box<proto::Notification>) {
        let Some(layout) = self.layout else {
            return self.ready.push_back(TreeItem::Session(WatchItem::Notification(notification)));
        };
        let parsed = ParsedNotification::parse(&notification);
        let is_replayed = parsed.seq.is_some_and(|seq| seq <= self.replay_until);
        let is_replay_end = parsed.seq == Some(self.replay_until);
        if let NotificationContent::Event(event) = &parsed.content
            && let Event::ToolCallResult(result) = &**event
        {
            self.replayed.retain(|(call, _)| *call != result.call);
            if let Some(child) = self.calls.remove(&(None, result.call.clone())) {
                self.ask_for_rest(child);
                self.held = Some((notification, child));
                return;
            }
            self.speaker = None;
        }
        let delegation = read_delegation(&parsed);
        self.ready.push_back(TreeItem::Session(WatchItem::Notification(notification)));
        match delegation {
            Some(delegation) if is_replayed => self.replayed.push(delegation),
            Some((call, delegation)) => self.delegate(None, call, delegation, layout),
            None => {}
        }
        if is_replay_end {
            for (call, delegation) in std::mem::take(&mut self.replayed) {
                self.delegate(None, call, delegation, layout);
            }
        }
    }

    /// Names a child, and follows it if that is possible.
    fn delegate(&mut self, parent: Option<ChildKey>, call: CallId, delegation: Delegation, layout: Layout) {
        let above = parent.and_then(|key| self.children.get_mut(&key));
        let depth = above.as_ref().map_or(0, |child| child.depth) + 1;
        let session = match above {
            Some(child) if depth > DEPTH_MAX => {
                child.deeper += 1;
                return;
            }
            Some(child) => child.session.clone(),
            None => SessionId::new(&self.session).ok(),
        };
        self.ready.push_back(TreeItem::Children(vec![delegation.render_header(depth, layout.columns)]));
        self.speaker = parent;
        let Some(session) = session.filter(|_| self.children.len() < FOLLOWED_MAX) else { return };
        let (key, ending, wake) = (self.next_key, self.tasks.token().child_token(), Arc::new(Notify::new()));
        self.next_key += 1;
        self.speaker = Some(key);
        self.calls.insert((parent, call.clone()), key);
        let follower = ChildFollower {
            client: self.client.clone(),
            root: self.session.clone(),
            parent: session,
            call,
            tenant: self.tenant.clone(),
            child: key,
            wake: wake.clone(),
            sender: self.sender.clone(),
        };
        let until_end = ending.clone();
        self.tasks.spawn("child session", async move {
            until_end.run_until_cancelled(follower.follow()).await;
        });
        let child = ChildSession {
            parent,
            depth,
            delegation,
            renderer: None,
            session: None,
            deeper: 0,
            waits_for: None,
            held: VecDeque::new(),
            last_message: Instant::now(),
            wake,
            ending,
        };
        self.children.insert(key, child);
    }

    /// The result of a child is there, so the child exists now, or never will.
    fn ask_for_rest(&mut self, child: ChildKey) {
        if let Some(child) = self.children.get_mut(&child) {
            child.last_message = Instant::now();
            child.wake.notify_one();
        }
    }

    fn handle_message(&mut self, ChildMessage { child, content }: ChildMessage) {
        let mut above = Some(child);
        while let Some(next) = above.and_then(|key| self.children.get_mut(&key)) {
            next.last_message = Instant::now();
            above = next.parent;
        }
        let Some(state) = self.children.get_mut(&child) else { return };
        if let Some(waited) = state.waits_for {
            state.held.push_back(content);
            if state.held.len() > HELD_MAX {
                self.end_child(waited);
            }
            return;
        }
        self.handle_content(child, content);
    }

    fn handle_content(&mut self, key: ChildKey, content: ChildContent) {
        let Some(layout) = self.layout else { return };
        let Some(child) = self.children.get_mut(&key) else { return };
        match content {
            ChildContent::Found(session) => {
                let layout = child_layout(layout, child.depth);
                child.renderer = Some(SessionRenderer::new(session.as_str(), layout).for_child());
                child.session = Some(session);
            }
            ChildContent::Unknown => {
                let is_awaited = self.held.as_ref().is_some_and(|(_, awaited)| *awaited == key)
                    || self.children.values().any(|other| other.waits_for == Some(key));
                if is_awaited {
                    self.end_child(key);
                }
            }
            ChildContent::Notification(parsed) => self.show_notification(key, parsed, layout),
            ChildContent::End => self.end_child(key),
        }
    }

    fn show_notification(&mut self, key: ChildKey, parsed: Box<ParsedNotification>, layout: Layout) {
        if let NotificationContent::Event(event) = &parsed.content
            && let Event::ToolCallResult(result) = &**event
            && let Some(awaited) = self.calls.remove(&(Some(key), result.call.clone()))
        {
            self.ask_for_rest(awaited);
            let Some(child) = self.children.get_mut(&key) else { return };
            child.waits_for = Some(awaited);
            child.held.push_front(ChildContent::Notification(parsed));
            return;
        }
        let delegation = read_delegation(&parsed);
        let Some(child) = self.children.get_mut(&key) else { return };
        let depth = child.depth;
        if let Some(renderer) = &mut child.renderer {
            renderer.set_layout(child_layout(layout, depth));
            let outputs = indent(renderer.render(&parsed), depth);
            self.show(key, outputs, layout);
        }
        if let Some((call, delegation)) = delegation {
            self.delegate(Some(key), call, delegation, layout);
        }
    }

    /// Shows lines of a child. If the last line was from another session, a line before them names the child.
    fn show(&mut self, key: ChildKey, mut outputs: Vec<Output>, layout: Layout) {
        if outputs.is_empty() {
            return;
        }
        if !self.is_below(self.speaker, key)
            && let Some(child) = self.children.get(&key)
        {
            outputs.insert(0, child.delegation.render_return(child.depth, layout.columns));
        }
        self.speaker = Some(key);
        self.ready.push_back(TreeItem::Children(outputs));
    }

    /// Whether a child is this one, or one below it.
    fn is_below(&self, mut child: Option<ChildKey>, above: ChildKey) -> bool {
        while let Some(key) = child {
            if key == above {
                return true;
            }
            child = self.children.get(&key).and_then(|child| child.parent);
        }
        false
    }

    /// Follows a child no longer, and shows what has waited for its end.
    fn end_child(&mut self, key: ChildKey) {
        let mut ended = vec![key];
        while let Some(key) = ended.pop() {
            let Some(child) = self.children.remove(&key) else { continue };
            child.ending.cancel();
            if self.speaker == Some(key) {
                self.speaker = child.parent;
            }
            self.ready.extend(render_deeper(child.deeper, child.depth).map(|line| TreeItem::Children(vec![line])));
            ended.extend(self.children.iter().filter(|(_, below)| below.parent == Some(key)).map(|(below, _)| *below));
            self.calls.retain(|_, called| *called != key);
            if let Some((notification, _)) = self.held.take_if(|(_, awaited)| *awaited == key) {
                self.speaker = None;
                self.ready.push_back(TreeItem::Session(WatchItem::Notification(notification)));
            }
            let Some(parent) = child.parent.filter(|parent| self.awaits(*parent, key)) else { continue };
            self.release(parent);
        }
    }

    fn awaits(&self, parent: ChildKey, child: ChildKey) -> bool {
        self.children.get(&parent).is_some_and(|parent| parent.waits_for == Some(child))
    }

    /// Handles the held messages of a child, up to the next result that waits.
    fn release(&mut self, key: ChildKey) {
        if let Some(child) = self.children.get_mut(&key) {
            child.waits_for = None;
        }
        while let Some(child) = self.children.get_mut(&key)
            && child.waits_for.is_none()
            && let Some(content) = child.held.pop_front()
        {
            self.handle_content(key, content);
        }
    }
}

impl Drop for SessionTree {
    fn drop(&mut self) {
        self.tasks.token().cancel();
    }
}

fn read_delegation(parsed: &ParsedNotification) -> Option<(CallId, Delegation)> {
    let NotificationContent::Event(event) = &parsed.content else { return None };
    let Event::ToolCallIdentified(call) = &**event else { return None };
    Some((call.call.clone(), Delegation::from_call(call)?))
}

/// Follows one child, and passes on what it says.
struct ChildFollower {
    client: EdgeClient,
    /// The session whose tenant is that of all its children.
    root: String,
    parent: SessionId,
    call: CallId,
    tenant: Arc<OnceCell<TenantId>>,
    child: ChildKey,
    wake: Arc<Notify>,
    sender: mpsc::Sender<ChildMessage>,
}

impl ChildFollower {
    async fn follow(self) {
        if let Ok(tenant) = self.tenant.get_or_try_init(|| find_tenant(&self.client, &self.root)).await {
            let session = SessionId::child(tenant, &self.parent, &self.call);
            let mut pause = RETRY_PAUSE;
            while self.follow_once(&session).await {
                tokio::select! {
                    () = sleep(pause) => {}
                    () = self.wake.notified() => {}
                }
                pause = (pause * 2).min(RETRY_PAUSE_MAX);
            }
        }
        self.pass_on(ChildContent::End).await;
    }

    /// Follows the child to its end; returns whether the child may still begin.
    async fn follow_once(&self, session: &SessionId) -> bool {
        let mut stream = SessionStream::new(self.client.clone(), session.as_str(), 1, true);
        let mut is_found = false;
        loop {
            match stream.next().await {
                Ok(Some(WatchItem::Notification(notification))) => {
                    if !std::mem::replace(&mut is_found, true) {
                        self.pass_on(ChildContent::Found(session.clone())).await;
                    }
                    let parsed = Box::new(ParsedNotification::parse(&notification));
                    self.pass_on(ChildContent::Notification(parsed)).await;
                }
                // The stream of the session itself says so.
                Ok(Some(WatchItem::Lost { .. } | WatchItem::Restored)) => {}
                Err(failure) if !is_found && *failure.code() == ErrorCode::UnknownSession => {
                    self.pass_on(ChildContent::Unknown).await;
                    return true;
                }
                Ok(None) | Err(_) => return false,
            }
        }
    }

    async fn pass_on(&self, content: ChildContent) {
        // Without a receiver the task is cancelled.
        let _closed = self.sender.send(ChildMessage { child: self.child, content }).await;
    }
}

async fn find_tenant(client: &EdgeClient, session: &str) -> Result<TenantId, CommandFailure> {
    let request = GetSessionRequest { session_id: session.to_owned() };
    let info = client.call(request, SessionsApi::get_session).await?;
    TenantId::new(&info.tenant).map_err(|error| CommandFailure::new(ErrorCode::Internal, error.to_string()))
}
