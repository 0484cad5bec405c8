//! The mailboxes of a tenant on the in-memory bus, a simulated composer, and tool hosts that crash on demand.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bus::{Bus, Mailbox, RpcServer};
use bus_memory::{Action, ClientLifecycle, Fault, Faults, MemoryServer, Operation};
use contract::compose::{AgentsReply, KnownAgent};
use contract::mail::{MailAction, MailEntry, MailRequest, MailResponse};
use contract::settings::ToolFilter;
use contract::subject::MailboxKey;
use contract::{AgentId, CommandId, TenantId, Timestamp};
use serde_json::{Value, json};
use service::clock::Clock;
use tool_host::mail::{MailCaller, MailService, ReplyMailArguments, SendMailArguments};

struct ServerClock(MemoryServer);

impl Clock for ServerClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }
}

/// Faults for the next operations of a kind, and the operation in which a client crashes.
#[derive(Default)]
struct FaultPlan {
    next: Mutex<VecDeque<(Action, Fault)>>,
    death: Mutex<Option<Death>>,
}

struct Death {
    client: String,
    /// Operations before the crash.
    left: usize,
    done: bool,
}

impl Faults for FaultPlan {
    fn decide(&self, op: Operation<'_>) -> Fault {
        if let Some(death) = &mut *self.death.lock().unwrap()
            && death.client == op.client
        {
            if death.left == 0 {
                return Fault::Crash { done: death.done };
            }
            death.left -= 1;
        }
        let mut next = self.next.lock().unwrap();
        match next.front() {
            Some((action, fault)) if *action == op.action => {
                let fault = *fault;
                next.pop_front();
                fault
            }
            _ => Fault::None,
        }
    }
}

pub(crate) struct World {
    pub(crate) server: MemoryServer,
    bus: Bus,
    faults: Arc<FaultPlan>,
    composer: Mutex<Option<RpcServer>>,
}

/// The mail service of one tool host; results and errors are what the model reads.
pub(crate) struct MailClient {
    service: MailService,
    pub(crate) life: ClientLifecycle,
}

/// Start of the server's clock.
pub(crate) const EPOCH: Timestamp = Timestamp::from_millis(1_768_473_045_123);

fn agent(id: &str, name: &str, alias: &str, tools: &[&str]) -> KnownAgent {
    KnownAgent {
        id: AgentId::new(id).unwrap(),
        name: name.to_owned(),
        aliases: vec![AgentId::new(alias).unwrap()],
        tools: ToolFilter { allow: tools.iter().map(ToString::to_string).collect(), deny: Vec::new() },
        model: None,
        is_default: false,
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        let faults = Arc::new(FaultPlan::default());
        let server = MemoryServer::simulated(EPOCH, faults.clone());
        let bus = server.bus();
        let agents = vec![
            agent("a", "Alice the Assistant", "alice", &["read_file"]),
            agent("d", "Debbie the Debugger", "debbie", &["check_mail"]),
            agent("e", "Eamonn the Executioner", "eamonn", &["*"]),
            agent("p", "Patricia the Planner", "patricia", &["*"]),
        ];
        let composer =
            bus.serve_agents(move |_| AgentsReply { agents: agents.clone(), models: Vec::new() }).await.unwrap();
        Self { server, bus, faults, composer: Mutex::new(Some(composer)) }
    }

    pub(crate) fn mail_client(&self, client: &str) -> MailClient {
        self.mail_client_of(client, &TenantId::default())
    }

    pub(crate) fn mail_client_of(&self, client: &str, tenant: &TenantId) -> MailClient {
        let (bus, life) = self.server.client(client);
        let clock = Arc::new(ServerClock(self.server.clone()));
        MailClient { service: MailService::new(bus, tenant.clone(), clock), life }
    }

    /// Sets the fault of the next operation of a kind.
    pub(crate) fn next(&self, action: Action, fault: Fault) {
        self.faults.next.lock().unwrap().push_back((action, fault));
    }

    /// Crashes a client in an operation, counted from now and from 0, after or before it is done.
    pub(crate) fn die(&self, client: &str, at: usize, done: bool) {
        *self.faults.death.lock().unwrap() = Some(Death { client: client.to_owned(), left: at, done });
    }

    pub(crate) fn end_composer(&self) {
        drop(self.composer.lock().unwrap().take());
    }

    async fn entries(&self, agent: &str) -> Vec<(String, MailEntry)> {
        let at = MailboxKey { tenant: TenantId::default(), agent: AgentId::new(agent).unwrap() };
        match self.bus.mailbox(&at).await.unwrap() {
            Mailbox::Entries(entries) => entries.into_iter().map(|(id, entry)| (id.to_string(), entry)).collect(),
            Mailbox::TooMany => panic!("too many"),
        }
    }

    /// Lists the calls whose mails are open in a mailbox.
    pub(crate) async fn open(&self, agent: &str) -> Vec<String> {
        let open = |(_, entry): &(String, MailEntry)| matches!(entry, MailEntry::Open(_));
        self.entries(agent).await.iter().filter(|entry| open(entry)).map(|(_, e)| e.sent_by().to_owned()).collect()
    }

    /// Lists the ids of all entries of a mailbox, closed mails included.
    pub(crate) async fn ids(&self, agent: &str) -> Vec<String> {
        self.entries(agent).await.into_iter().map(|(id, _)| id).collect()
    }
}

impl MailClient {
    pub(crate) async fn send(
        &self,
        agent: &str,
        call: &str,
        to: &str,
        subject: &str,
        text: &str,
    ) -> Result<Value, String> {
        let arguments = SendMailArguments { to: to.to_owned(), subject: subject.to_owned(), text: text.to_owned() };
        let caller = MailCaller::new(agent, call).unwrap();
        self.service.send(&caller, &arguments).await.map(|sent| json!(sent)).map_err(|error| error.message)
    }

    pub(crate) async fn check(&self, agent: &str) -> Result<Value, String> {
        let caller = MailCaller::new(agent, "looks").unwrap();
        self.service.check(&caller).await.map_err(|error| error.message)
    }

    pub(crate) async fn reply(&self, agent: &str, call: &str, id: &str, text: &str) -> Result<Value, String> {
        let arguments = ReplyMailArguments { id: id.to_owned(), text: text.to_owned() };
        let caller = MailCaller::new(agent, call).unwrap();
        self.service.reply(&caller, &arguments).await.map(|closed| json!(closed)).map_err(|error| error.message)
    }

    /// Handles the request of a client from a mailbox.
    pub(crate) async fn ask(&self, mailbox: &str, id: &str, action: MailAction) -> MailResponse {
        let (mailbox, id) = (AgentId::new(mailbox).unwrap(), CommandId::new(id).unwrap());
        self.service.handle_request(MailRequest { mailbox, id, action }).await
    }
}
