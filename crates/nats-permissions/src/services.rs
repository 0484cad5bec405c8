//! The users of our own services, and the one that makes the streams.

use std::time::Duration;

use contract::command::Verb;
use contract::event::Topic;
use contract::streams::{Bucket, Objects, Queue, Stream};
use contract::subject::{self, Subject, every};

use super::jetstream::{
    create, delete, info, keys_get, keys_list, keys_put, objects_get, objects_put, purge, read_any, read_leader, take,
    verify,
};
use super::{Answers, User, inbox};

/// Services answer each other once, and within seconds.
const ONCE: Answers = Answers { max: 1, within: Duration::from_mins(1) };
/// What a gateway tells viewers while a reply comes; every other topic is told by the loop, after a commit.
const STREAMED: [Topic; 2] = [Topic::AiChunkReceived, Topic::ToolCallPartial];

/// What comes from executors.
const PROGRESS: Topic = Topic::ToolCallProgress;

/// What one session says to another.
const CHILDREN: [Verb; 5] = [Verb::Start, Verb::Pause, Verb::Resume, Verb::Stop, Verb::ProvideToolResult];

/// Makes streams and consumers before anything else runs. No service may.
pub(super) fn bootstrap() -> User {
    let lists = Lists::default().publish(create());
    lists.user("bootstrap", "Makes and repairs the streams: `ailoop bootstrap`.")
}

/// Carries sessions from one fleet to another: whoever writes a history writes what was said and done, so this is for
/// operators, and no client of the edge can ask for it.
pub(super) fn archivist() -> User {
    Lists::default()
        .publish([read_any(Stream::Log), read_leader(Stream::Log)])
        .publish([read_any(Stream::Archive), read_leader(Stream::Archive)])
        .publish(objects_get(Objects::Blobs))
        .publish(objects_get(Objects::Archive))
        // An import.
        .publish([text(&every::log_slot()), text(&every::archive_page())])
        .publish(objects_put(Objects::Blobs))
        .publish(objects_put(Objects::Archive))
        .publish([text(&every::timer_set()), read_leader(Stream::Timer), keys_put(Bucket::Sessions)])
        .user("archivist", "Carries sessions from one fleet to another: `ailoop export`, `ailoop import`.")
}

/// The five services that are NATS users; the tools of the tool-host are users by kind.
pub(super) fn services() -> [User; 5] {
    [orchestrator(), gateway(), executor(), composer(), edge()]
}

fn orchestrator() -> User {
    let told = Topic::ALL
        .iter()
        .filter(|topic| !STREAMED.contains(topic) && **topic != PROGRESS)
        .map(|topic| every::event(*topic));
    Lists::default()
        // Inputs and timers come in.
        .publish(take(Queue::Inputs))
        .publish(take(Queue::Timers))
        .publish([read_any(Stream::Control)])
        // Only this user writes the log.
        .publish([text(&every::log_slot()), read_any(Stream::Log), read_leader(Stream::Log)])
        .publish(objects_get(Objects::Blobs))
        .publish(objects_put(Objects::Blobs))
        // What leaves the log goes to the archive first.
        .publish([text(&every::archive_page()), read_any(Stream::Archive), read_leader(Stream::Archive)])
        .publish(objects_get(Objects::Archive))
        .publish(objects_put(Objects::Archive))
        .publish([delete(Stream::Log)])
        // Calls, timers and cancels go out.
        .publish([text(&every::model_item()), read_leader(Stream::Model), purge(Stream::Model)])
        .publish([text(&every::tool_item()), read_leader(Stream::Tool), purge(Stream::Tool)])
        .publish([text(&every::timer_set()), read_leader(Stream::Timer), purge(Stream::Timer)])
        .publish([text(&subject::cancel_all())])
        // What sessions say to their children, and these to them.
        .publish(CHILDREN.map(|verb| text(&every::control(verb))))
        .publish([read_leader(Stream::Control)])
        .publish(objects_get(Objects::Work))
        .publish(objects_put(Objects::Work))
        // What is told.
        .publish(told.map(|subject| text(&subject)))
        .publish([text(&every::done()), text(&every::dead()), keys_put(Bucket::Sessions)])
        // What is asked.
        .publish([text(&subject::compose()), keys_list(Bucket::Tools)])
        // Sessions are repaired on request, and all of them after the server was put back to an older state.
        .publish([keys_list(Bucket::Sessions)])
        .subscribe([format!("{} {}", subject::repair(), subject::ORCHESTRATOR_QUEUE)])
        .answers()
        .user("orchestrator", "Runs sessions: the only writer of the log.")
}

fn gateway() -> User {
    worker(Queue::Model)
        .publish([Verb::ModelFinished, Verb::ModelFailed].map(|verb| text(&every::control(verb))))
        .publish(STREAMED.map(|topic| text(&every::event(topic))))
        // An item that was handed back often is stored anew, before its deliveries are used up.
        .publish([text(&every::model_item()), read_leader(Stream::Model)])
        // Rates and budgets, which all gateways share.
        .publish([keys_get(Bucket::Limits), keys_put(Bucket::Limits)])
        .subscribe([text(&every::view())])
        .answers()
        .user("gateway", "Runs model calls.")
}

fn executor() -> User {
    worker(Queue::Tool)
        .publish([Verb::ProvideToolResult, Verb::ExtendToolCall].map(|verb| text(&every::control(verb))))
        // An item that was handed back often is stored anew, before its deliveries are used up.
        .publish([text(&every::tool_item()), read_leader(Stream::Tool)])
        // Results of which the model reads only parts, and signs of progress.
        .publish(objects_put(Objects::Results))
        .publish([text(&every::event(PROGRESS))])
        .publish(
            [every::tool(), every::tool_cancel(), every::tool_probe(), subject::services_info()]
                .map(|subject| text(&subject)),
        )
        // What a tool says where nobody else hears the question, and whether a replica that works on a call still lives.
        .publish([every::service_info(), every::service_ping()].map(|subject| text(&subject)))
        .publish([keys_list(Bucket::Tools), keys_put(Bucket::Tools)])
        .publish([keys_get(Bucket::Claims), keys_put(Bucket::Claims)])
        .subscribe([text(&subject::tool_announce())])
        .answers()
        .user("executor", "Runs tool calls, and keeps the catalogue.")
}

/// What both kinds of workers do: take items, look whether they are still wanted, ask each other, report.
fn worker(queue: Queue) -> Lists {
    Lists::default()
        .publish(take(queue))
        .publish([read_any(Stream::Log), read_leader(Stream::Log), read_leader(Stream::Control)])
        .publish(objects_get(Objects::Work))
        .publish(objects_put(Objects::Work))
        .publish([text(&every::call_holder()), text(&every::dead())])
        .subscribe([text(&every::call_holder()), text(&subject::cancel_all())])
}

fn composer() -> User {
    Lists::default()
        .subscribe([subject::compose(), subject::agents()].map(|asked| format!("{asked} {}", subject::COMPOSER_QUEUE)))
        .answers()
        .user("composer", "Composes prompts and tells who there is: answers two requests, and reads nothing.")
}

fn edge() -> User {
    let commands = Verb::ALL.iter().filter(|verb| verb.is_client()).map(|verb| every::control(*verb));
    Lists::default()
        .publish(commands.map(|subject| text(&subject)))
        .publish([read_any(Stream::Control), read_leader(Stream::Control)])
        .publish(objects_put(Objects::Work))
        .publish([read_any(Stream::Log), read_leader(Stream::Log)])
        .publish(objects_get(Objects::Blobs))
        .publish([read_any(Stream::Archive), read_leader(Stream::Archive)])
        .publish(objects_get(Objects::Archive))
        .publish(objects_get(Objects::Results))
        // A dead command is sent again with its whole body.
        .publish(objects_get(Objects::Work))
        // Dead letters: operators look at them, throw them away, and have commands sent again.
        .publish([read_any(Stream::Dead), read_leader(Stream::Dead), purge(Stream::Dead)])
        .publish([keys_list(Bucket::Sessions), keys_get(Bucket::Sessions), keys_list(Bucket::Tools)])
        .publish([text(&every::view()), text(&subject::compose()), text(&subject::agents()), text(&subject::repair())])
        .publish([text(&every::mail_request())])
        // Wide, since viewers come and go: see `clients::viewer` for what nats-server makes of it.
        .subscribe(every::events().map(|subject| text(&subject)))
        // The session index, as orchestrators write it.
        .subscribe([text(&every::done()), text(&every::bucket_entry(Bucket::Sessions))])
        .user("edge", "Opens the door to clients: sends their commands, shows them their sessions.")
}

/// Lists that grow.
#[derive(Default)]
struct Lists {
    publish: Vec<String>,
    subscribe: Vec<String>,
    answers: Option<Answers>,
}

impl Lists {
    fn publish(mut self, more: impl IntoIterator<Item = String>) -> Self {
        for subject in more {
            if !self.publish.contains(&subject) {
                self.publish.push(subject);
            }
        }
        self
    }

    fn subscribe(mut self, more: impl IntoIterator<Item = String>) -> Self {
        self.subscribe.extend(more);
        self
    }

    fn answers(mut self) -> Self {
        self.answers = Some(ONCE);
        self
    }

    /// With what everybody needs: inboxes of its own, which it may publish to since a round trip is a request to
    /// itself, and the look at JetStream and its streams.
    fn user(self, name: &'static str, about: &'static str) -> User {
        let inbox = inbox(name);
        let Self { publish, subscribe, answers } = self;
        let all = Self::default().publish([info(), inbox.clone()]).publish(verify()).publish(publish);
        let heard = Self::default().subscribe([inbox]).subscribe(subscribe);
        User { name, about, publish: all.publish, subscribe: heard.subscribe, answers }
    }
}

fn text(subject: &Subject) -> String {
    subject.to_string()
}
