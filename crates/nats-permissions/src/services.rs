//! The roles of our own services, and those that create streams and move sessions.

use std::time::Duration;

use contract::command::Verb;
use contract::event::Topic;
use contract::streams::{Bucket, Objects, Queue, Stream};
use contract::subject::{self, Subject, every};

use super::jetstream::{
    create, delete, info, keys_get, keys_list, keys_purge, keys_put, objects_erase, objects_get, objects_put, purge,
    read_any, read_leader, reset, take, verify,
};
use super::role::{Account, Answers, Permissions, Role, inbox};

/// Limit of the replies of a service to a request of another one.
const SINGLE_REPLY: Answers = Answers { max: 1, within: Duration::from_mins(1) };
/// Topics that a gateway publishes while it streams a reply. The loop publishes the other topics, after a commit.
const GATEWAY_TOPICS: [Topic; 2] = [Topic::AiChunkReceived, Topic::ToolCallPartial];
/// The topic that executors publish.
const EXECUTOR_TOPIC: Topic = Topic::ToolCallProgress;
/// Commands that a session sends to its children or its parent.
const SESSION_COMMANDS: [Verb; 5] = [Verb::Start, Verb::Pause, Verb::Resume, Verb::Stop, Verb::ProvideToolResult];

/// The role that creates streams and consumers before anything else runs. No service may create them.
pub(super) fn bootstrap() -> Role {
    let permissions = RoleBuilder::default().publish(create());
    permissions.role("bootstrap", "Makes and repairs the streams: `ailoop bootstrap`.")
}

/// The role that moves sessions from one fleet to another, and erases them. It can write any history into the log, so it
/// is for operators only, and the edge has no method for it.
pub(super) fn archivist() -> Role {
    RoleBuilder::default()
        .publish([read_any(Stream::Log), read_leader(Stream::Log)])
        .publish([read_any(Stream::Archive), read_leader(Stream::Archive)])
        .publish([objects_get(Objects::Blobs)])
        .publish([objects_get(Objects::Archive)])
        // An import.
        .publish([text(&every::log_slot()), text(&every::archive_page())])
        .publish(objects_put(Objects::Blobs))
        .publish(objects_put(Objects::Archive))
        .publish([text(&every::timer_set()), read_leader(Stream::Timer), keys_put(Bucket::Sessions)])
        // A move between cells: whether a command waits, and long results.
        .publish([read_any(Stream::Control)])
        .publish(objects_put(Objects::Results))
        // Erase a session that has ended, everywhere; remove the end of a log.
        .publish(Stream::ALL.iter().flat_map(|stream| [read_leader(*stream), delete(*stream)]))
        .publish([Objects::Blobs, Objects::Archive, Objects::Results].into_iter().flat_map(objects_erase))
        .publish([objects_get(Objects::Results)])
        .publish([keys_get(Bucket::Sessions), keys_purge(Bucket::Sessions), keys_purge(Bucket::Claims)])
        .role(
            "archivist",
            "Carries sessions from one fleet to another, and erases them: `ailoop export`, `import`, `move`, `sessions rm`.",
        )
}

/// The five services that have a role; the tools of the tool-host have roles by kind.
pub(super) fn services() -> [Role; 5] {
    [orchestrator(), gateway(), executor(), composer(), edge()]
}

fn orchestrator() -> Role {
    let topics = Topic::ALL
        .iter()
        .filter(|topic| !GATEWAY_TOPICS.contains(topic) && **topic != EXECUTOR_TOPIC)
        .map(|topic| every::event(*topic));
    RoleBuilder::default()
        // Consume inputs and timers.
        .publish(take(Queue::Inputs))
        .publish(take(Queue::Timers))
        .publish([read_any(Stream::Control)])
        // Only this role writes the log.
        .publish([text(&every::log_slot()), read_any(Stream::Log), read_leader(Stream::Log)])
        .publish([objects_get(Objects::Blobs)])
        .publish(objects_put(Objects::Blobs))
        // Commits are archived before they are deleted from the log.
        .publish([text(&every::archive_page()), read_any(Stream::Archive), read_leader(Stream::Archive)])
        .publish([objects_get(Objects::Archive)])
        .publish(objects_put(Objects::Archive))
        .publish([delete(Stream::Log)])
        // Enqueue calls and timers, and cancel calls.
        .publish([text(&every::model_item()), read_leader(Stream::Model), delete(Stream::Model)])
        .publish([text(&every::tool_item()), read_leader(Stream::Tool), delete(Stream::Tool)])
        // Orchestrators before ADR 69 purge a cancelled call, and run beside this version during an update.
        .publish([purge(Stream::Model), purge(Stream::Tool)])
        .publish([text(&every::timer_set()), read_leader(Stream::Timer), purge(Stream::Timer)])
        .publish([text(&subject::cancel_all())])
        // Commands between sessions and their children.
        .publish(SESSION_COMMANDS.map(|verb| text(&every::control(verb))))
        .publish([read_leader(Stream::Control)])
        .publish([objects_get(Objects::Work)])
        .publish(objects_put(Objects::Work))
        // Events, acknowledgements, dead letters, and the session index, whose lines are compared.
        .publish(topics.map(|subject| text(&subject)))
        .publish([text(&every::done()), text(&every::dead()), keys_put(Bucket::Sessions), keys_get(Bucket::Sessions)])
        // Requests to the composer, and the tools of the catalogue.
        .publish([text(&subject::compose()), keys_list(Bucket::Tools)])
        // Repair one session on request, and all of them after the server was restored to an older state.
        .publish([keys_list(Bucket::Sessions)])
        .publish(Queue::ALL.iter().flat_map(|queue| reset(*queue)))
        .subscribe([format!("{} {}", subject::repair(), subject::ORCHESTRATOR_QUEUE)])
        // The results of its calls.
        .subscribe([text(&every::results())])
        .describes_itself()
        .role("orchestrator", "Runs sessions: the only writer of the log.")
}

fn gateway() -> Role {
    worker(Queue::Model)
        .publish([Verb::ModelFinished, Verb::ModelFailed].map(|verb| text(&every::control(verb))))
        .publish([Verb::ModelFinished, Verb::ModelFailed].map(|verb| text(&every::result(verb))))
        .publish(GATEWAY_TOPICS.map(|topic| text(&every::event(topic))))
        // Large commits, for the parts of transcripts in them.
        .publish([objects_get(Objects::Blobs)])
        // Rates and budgets, which all gateways share.
        .publish([keys_get(Bucket::Limits), keys_list(Bucket::Limits), keys_put(Bucket::Limits)])
        .subscribe([text(&every::view())])
        .subscribe(
            [subject::budgets(), subject::model_proposal()].map(|asked| format!("{asked} {}", subject::GATEWAY_QUEUE)),
        )
        .describes_itself()
        .role("gateway", "Runs model calls.")
}

fn executor() -> Role {
    worker(Queue::Tool)
        .publish([Verb::ProvideToolResult, Verb::ExtendToolCall].map(|verb| text(&every::control(verb))))
        .publish([text(&every::result(Verb::ProvideToolResult))])
        // Results of which the model reads only parts, and progress.
        .publish(objects_put(Objects::Results))
        .publish([text(&every::event(EXECUTOR_TOPIC))])
        .publish(
            [
                every::tool(),
                every::tool_cancel(),
                every::tool_probe(),
                subject::services_info(),
                subject::services_stats(),
            ]
            .map(|subject| text(&subject)),
        )
        // Ask one tool for its description, and a replica that runs a call whether it is alive.
        .publish([every::service_info(), every::service_ping()].map(|subject| text(&subject)))
        .publish([keys_list(Bucket::Tools), keys_put(Bucket::Tools)])
        .publish([keys_get(Bucket::Claims), keys_put(Bucket::Claims)])
        .subscribe([
            text(&subject::tool_announce()),
            format!("{} {}", subject::tool_request(), subject::EXECUTOR_QUEUE),
        ])
        .describes_itself()
        .role("executor", "Runs tool calls, and keeps the catalogue.")
}

/// Permissions of both kinds of workers: consume items, check that their calls are open, ask each other, and report.
fn worker(queue: Queue) -> RoleBuilder {
    RoleBuilder::default()
        .publish(take(queue))
        .publish([read_any(Stream::Log), read_leader(Stream::Log), read_leader(Stream::Control)])
        .publish([objects_get(Objects::Work)])
        .publish(objects_put(Objects::Work))
        .publish([text(&every::call_holder()), text(&every::dead())])
        // A session whose orchestrator died between a commit and its effects.
        .publish([text(&subject::repair())])
        .subscribe([text(&every::call_holder()), text(&subject::cancel_all())])
}

fn composer() -> Role {
    RoleBuilder::default()
        .subscribe(
            [subject::compose(), subject::agents()].map(|subject| format!("{subject} {}", subject::COMPOSER_QUEUE)),
        )
        // Which model to take where nothing names one: the keys are at the gateways.
        .publish([text(&subject::model_proposal())])
        .describes_itself()
        .role("composer", "Composes prompts and lists agents: answers two requests, and reads nothing else.")
}

fn edge() -> Role {
    let commands = Verb::ALL.iter().filter(|verb| verb.is_client()).map(|verb| every::control(*verb));
    RoleBuilder::default()
        .publish(commands.map(|subject| text(&subject)))
        .publish([read_any(Stream::Control), read_leader(Stream::Control)])
        .publish(objects_put(Objects::Work))
        .publish([read_any(Stream::Log), read_leader(Stream::Log)])
        .publish([objects_get(Objects::Blobs)])
        .publish([read_any(Stream::Archive), read_leader(Stream::Archive)])
        .publish([objects_get(Objects::Archive)])
        .publish([objects_get(Objects::Results)])
        // A dead command is sent again with its whole body.
        .publish([objects_get(Objects::Work)])
        // Dead letters: operators read and delete them, and send commands again.
        .publish([read_any(Stream::Dead), read_leader(Stream::Dead), purge(Stream::Dead)])
        .publish([keys_list(Bucket::Sessions), keys_get(Bucket::Sessions), keys_list(Bucket::Tools)])
        // Requests that clients may repeat. The lines of the index have another form.
        .publish([text(&every::request_note())])
        .publish([text(&every::view()), text(&subject::compose()), text(&subject::agents()), text(&subject::repair())])
        .publish([text(&every::mail_request()), text(&subject::tool_request())])
        // Who works on what, for operators.
        .publish([text(&every::call_holder()), text(&subject::fleet_status()), text(&subject::budgets())])
        // Wide, since viewers come and go: see `clients::viewer` for what nats-server makes of it.
        .subscribe(every::events().map(|subject| text(&subject)))
        // The session index, as orchestrators write it.
        .subscribe([text(&every::done()), text(&every::bucket_entry(Bucket::Sessions))])
        .describes_itself()
        .role("edge", "Serves clients: sends their commands, and shows them their sessions.")
}

/// Builds a role of the account of services.
#[derive(Default)]
pub(super) struct RoleBuilder {
    publish: Vec<String>,
    subscribe: Vec<String>,
    answers: Option<Answers>,
}

impl RoleBuilder {
    pub(super) fn publish(mut self, more: impl IntoIterator<Item = String>) -> Self {
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
        self.answers = Some(SINGLE_REPLY);
        self
    }

    /// Lets a service describe itself when the fleet is asked.
    fn describes_itself(self) -> Self {
        self.subscribe([text(&subject::fleet_status())]).answers()
    }

    /// Builds the role, and adds what every role of a service needs: its inbox, to which it also publishes to measure a
    /// round trip, and the check of JetStream and its streams.
    pub(super) fn role(self, name: &'static str, about: &'static str) -> Role {
        let inbox = inbox(name);
        let Self { publish, subscribe, answers } = self;
        let all = Self::default().publish([info(), inbox.clone()]).publish(verify()).publish(publish);
        let subscriptions = Self::default().subscribe([inbox]).subscribe(subscribe);
        let permissions = Permissions { publish: all.publish, subscribe: subscriptions.subscribe, answers };
        Role { name, about, account: Account::Ailoop, permissions }
    }
}

fn text(subject: &Subject) -> String {
    subject.to_string()
}
