//! What stands between a process and the nats-servers: it lets messages pass, knows which, and stops at the one at which a
//! fault is to strike.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::chaos::frame::Frame;
use crate::chaos::step::{Moment, Step, Way};

/// What a link does with messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They pass.
    Open,
    /// They pass one by one, each after so long.
    Slow(Duration),
    /// None passes, and nobody is told.
    Silent,
    /// There is no connection.
    Closed,
}

/// Where a fault is to strike, in one session.
pub(crate) struct Aim {
    pub(crate) step: &'static Step,
    pub(crate) session: String,
}

/// That the aimed message is there, and all links of its process are silent.
#[derive(Debug)]
pub(crate) struct Fired {
    /// Which replica.
    pub(crate) number: usize,
    pub(crate) at: SystemTime,
}

/// What all proxies of a fleet share.
#[derive(Default)]
pub(crate) struct Wires {
    armed: Mutex<Option<Armed>>,
    stored: Mutex<BTreeMap<String, SystemTime>>,
    /// When gateways asked whether a reply is stored already, by its subject.
    asked: Mutex<BTreeMap<String, Vec<SystemTime>>>,
}

struct Armed {
    aim: Aim,
    seen: u32,
    fire: oneshot::Sender<Fired>,
}

/// The proxy of one process.
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    _links: JoinSet<()>,
}

struct Shared {
    service: &'static str,
    number: usize,
    wires: Arc<Wires>,
    /// Of the link to each server.
    modes: Vec<watch::Sender<Mode>>,
    hands: Mutex<Hands>,
}

/// What a process holds.
#[derive(Default)]
struct Hands {
    /// Items by where they are acknowledged.
    items: BTreeMap<String, String>,
    /// Inputs that were sent, by where they are answered.
    sent: BTreeMap<String, String>,
    /// Everything that was held since this was begun.
    since: Option<BTreeSet<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wires {
    /// Says, once, that the step was reached.
    pub(crate) fn arm(&self, aim: Aim) -> oneshot::Receiver<Fired> {
        let (fire, fired) = oneshot::channel();
        *lock(&self.armed) = Some(Armed { aim, seen: 0, fire });
        fired
    }

    /// Inputs that the server said are stored, with when: subjects.
    pub(crate) fn stored(&self, session: &str) -> Vec<(String, SystemTime)> {
        let within = format!(".default.{session}.");
        let stored = lock(&self.stored);
        stored.iter().filter(|(subject, _)| subject.contains(&within)).map(|(s, at)| (s.clone(), *at)).collect()
    }

    /// When gateways asked whether the reply of this subject is stored.
    pub(crate) fn asked(&self, subject: &str) -> Vec<SystemTime> {
        lock(&self.asked).get(subject).cloned().unwrap_or_default()
    }

    fn aimed(&self, who: &Shared, way: Way, name: &str, frame: &Frame) -> Option<(Moment, oneshot::Sender<Fired>)> {
        let mut slot = lock(&self.armed);
        let armed = slot.as_mut()?;
        let step = armed.aim.step;
        let begins = step.message.replace("{s}", &armed.aim.session);
        let fits = who.service == step.service
            && way == step.way
            && name.starts_with(&begins)
            && (!step.by_body || frame.holds(&armed.aim.session));
        if !fits {
            return None;
        }
        armed.seen += 1;
        if armed.seen < step.nth {
            return None;
        }
        slot.take().map(|armed| (step.moment, armed.fire))
    }
}

impl Proxy {
    /// Stands before servers for one replica of a service.
    pub(crate) async fn start(
        service: &'static str,
        number: usize,
        servers: &[String],
        wires: &Arc<Wires>,
    ) -> anyhow::Result<Self> {
        let modes = servers.iter().map(|_| watch::Sender::new(Mode::Open)).collect();
        let shared = Arc::new(Shared { service, number, wires: wires.clone(), modes, hands: Mutex::default() });
        let (mut addresses, mut links) = (Vec::new(), JoinSet::new());
        for (n, server) in servers.iter().enumerate() {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            addresses.push(listener.local_addr()?);
            links.spawn(serve(shared.clone(), n, listener, server.trim_start_matches("nats://").to_owned()));
        }
        Ok(Self { shared, addresses, _links: links })
    }

    /// Where the process connects.
    pub(crate) fn url(&self) -> String {
        self.addresses.iter().map(|address| format!("nats://{address}")).collect::<Vec<_>>().join(",")
    }

    /// Sets every link.
    pub(crate) fn set(&self, mode: Mode) {
        for link in 0..self.shared.modes.len() {
            self.set_link(link, mode);
        }
    }

    /// Sets the link to one server.
    pub(crate) fn set_link(&self, server: usize, mode: Mode) {
        self.shared.modes[server].send_replace(mode);
    }

    /// Begins to keep the names of all items that the process holds from now on.
    pub(crate) fn note(&self) {
        let mut hands = lock(&self.shared.hands);
        hands.since = Some(hands.items.values().cloned().collect());
    }

    /// The items that it held since [`Proxy::note`]: subjects.
    pub(crate) fn noted(&self) -> BTreeSet<String> {
        lock(&self.shared.hands).since.take().unwrap_or_default()
    }
}

impl Shared {
    fn silence(&self) {
        for mode in &self.modes {
            mode.send_if_modified(|mode| {
                let opens = matches!(mode, Mode::Open | Mode::Slow(_));
                if opens {
                    *mode = Mode::Silent;
                }
                opens
            });
        }
    }

    /// Notes what passes; returns the name of the message.
    fn see(&self, way: Way, frame: &Frame) -> String {
        let mut hands = lock(&self.hands);
        let hands = &mut *hands;
        match way {
            Way::Out if frame.subject.starts_with("$JS.ACK.") => {
                let done = frame.payload().starts_with(b"+ACK");
                if !done && !frame.payload().starts_with(b"-NAK") {
                    return String::new();
                }
                let item = hands.items.remove(&frame.subject).unwrap_or_default();
                if done { format!("ack {item}") } else { String::new() }
            }
            Way::Out => {
                if let Some(subject) = asked_for(frame) {
                    lock(&self.wires.asked).entry(subject).or_default().push(SystemTime::now());
                }
                if let Some(reply) = &frame.reply
                    && frame.subject.starts_with("ai_loop.control.")
                {
                    hands.sent.insert(reply.clone(), frame.subject.clone());
                }
                frame.subject.clone()
            }
            Way::In => {
                if let Some(sent) = hands.sent.remove(&frame.subject) {
                    if frame.holds("\"seq\"") && !frame.holds("\"error\"") {
                        lock(&self.wires.stored).entry(sent).or_insert_with(SystemTime::now);
                    }
                } else if let Some(reply) = &frame.reply
                    && reply.starts_with("$JS.ACK.")
                {
                    hands.items.insert(reply.clone(), frame.subject.clone());
                    if let Some(since) = &mut hands.since {
                        since.insert(frame.subject.clone());
                    }
                }
                frame.subject.clone()
            }
        }
    }
}

/// The reply that a gateway asks for: whether it is stored.
fn asked_for(frame: &Frame) -> Option<String> {
    if !frame.subject.starts_with("$JS.API.STREAM.MSG.GET.") {
        return None;
    }
    let body = String::from_utf8_lossy(frame.payload());
    let subject = &body[body.find("ai_loop.control.model_finished.")?..];
    Some(subject.split('"').next().unwrap_or_default().to_owned())
}

async fn serve(shared: Arc<Shared>, server: usize, listener: TcpListener, upstream: String) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                connections.spawn(connection(shared.clone(), server, client, upstream.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One connection, until either end goes away or the link is closed.
async fn connection(shared: Arc<Shared>, server: usize, client: TcpStream, upstream: String) {
    let mut mode = shared.modes[server].subscribe();
    if *mode.borrow_and_update() == Mode::Closed {
        return;
    }
    let Ok(upstream) = TcpStream::connect(&upstream).await else { return };
    // Small messages are not held back.
    let _ = (client.set_nodelay(true), upstream.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), upstream.into_split());
    // What is read is known at once, also where it may not pass. The process's own limits bound it.
    let ((sent, to_pass), (came, to_take)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    let (mut pumps, mut given) = (JoinSet::new(), JoinSet::new());
    pumps.spawn(reading(shared.clone(), Way::Out, from_client, sent));
    pumps.spawn(writing(shared.clone(), server, to_pass, to_server));
    pumps.spawn(writing(shared.clone(), server, to_take, to_client));
    given.spawn(reading(shared.clone(), Way::In, from_server, came));
    let closed = async {
        // The sender lives as long as the proxy.
        let _ = mode.wait_for(|mode| *mode == Mode::Closed).await;
    };
    tokio::select! {
        _ = pumps.join_next() => {}
        _ = given.join_next() => {}
        () = closed => {}
    }
    // What the server gave to this connection before it knew of its end was given, though nobody gets it.
    pumps.shutdown().await;
    let _ = tokio::time::timeout(LAST_WORDS, given.join_next()).await;
}

/// How long a server is heard to the end after its connection was closed.
const LAST_WORDS: Duration = Duration::from_secs(1);

type Passing = (Frame, Option<(Moment, oneshot::Sender<Fired>)>);

async fn reading(shared: Arc<Shared>, way: Way, from: OwnedReadHalf, read: mpsc::UnboundedSender<Passing>) {
    let mut from = BufReader::new(from);
    while let Ok(Some(frame)) = Frame::read(&mut from).await {
        let name = shared.see(way, &frame);
        let aimed = shared.wires.aimed(&shared, way, &name, &frame);
        // Nobody takes it once the connection ends; it was seen all the same.
        let _ = read.send((frame, aimed));
    }
}

async fn writing(
    shared: Arc<Shared>,
    server: usize,
    mut passes: mpsc::UnboundedReceiver<Passing>,
    mut to: OwnedWriteHalf,
) {
    let mut mode = shared.modes[server].subscribe();
    while let Some((frame, aimed)) = passes.recv().await {
        let mut may_pass = false;
        if let Some((moment, fire)) = aimed {
            shared.silence();
            may_pass = moment == Moment::After;
            if may_pass && to.write_all(&frame.bytes).await.is_err() {
                return;
            }
            // Whoever armed it may have given up.
            let _ = fire.send(Fired { number: shared.number, at: SystemTime::now() });
        }
        let now = mode.wait_for(|mode| *mode != Mode::Silent).await.map(|mode| *mode);
        match now {
            Ok(Mode::Slow(each)) => tokio::time::sleep(each).await,
            Ok(Mode::Open) => {}
            Ok(Mode::Silent | Mode::Closed) | Err(_) => return,
        }
        if !may_pass && to.write_all(&frame.bytes).await.is_err() {
            return;
        }
    }
}
