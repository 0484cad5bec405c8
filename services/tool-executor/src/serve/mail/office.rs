//! What the mail tools do: every effect under an id that comes from its call, so that a repeated call repeats nothing.

use std::sync::Arc;

use ailoop_tool::ToolError;
use bus::{Bus, BusError, Mailbox, Posted};
use contract::commit::VERSION;
use contract::limits::{MAILBOX_CLOSED_MAX, MAILBOX_OPEN_MAX, MAILS_SHOWN_MAX};
use contract::mail::{ClosedMail, Mail, MailEntry};
use contract::subject::MailboxKey;
use contract::{AgentId, MailId, TenantId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{letter, recipient};
use crate::Clock;
use crate::serve::fit::fitting;

/// Who calls, and by which call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    agent: AgentId,
    call: String,
}

impl Caller {
    /// From the headers of a request: the agent of the session that calls, and the call's id in the fleet.
    pub fn new(agent: &str, call: &str) -> Result<Self, ToolError> {
        let missing = |header: &str| ToolError::new(format!("the header {header} does not say whose mailbox is meant"));
        let agent = AgentId::new(agent).map_err(|_| missing(contract::tool::header::AGENT))?;
        if call.is_empty() {
            return Err(missing(contract::tool::header::CALL));
        }
        Ok(Self { agent, call: call.to_owned() })
    }
}

/// The arguments of `send_mail`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendMail {
    /// An agent's key, alias or name.
    pub to: String,
    /// What it is about.
    pub subject: String,
    /// What it says.
    pub text: String,
}

/// The arguments of `reply_mail`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplyMail {
    /// A mail in the caller's mailbox.
    pub id: String,
    /// The answer; empty for none.
    pub text: String,
}

/// The mailboxes of one tenant's agents.
#[derive(Clone)]
pub struct PostOffice {
    bus: Bus,
    tenant: TenantId,
    clock: Arc<dyn Clock>,
}

/// Whose mail stands under an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// That of this call, now or since an earlier try.
    Ours,
    /// That of another call.
    Theirs,
}

impl PostOffice {
    /// Over the executor's own connection.
    pub fn new(bus: Bus, tenant: TenantId, clock: Arc<dyn Clock>) -> Self {
        Self { bus, tenant, clock }
    }

    /// `send_mail`
    pub async fn send(&self, caller: &Caller, asked: &SendMail) -> Result<Value, ToolError> {
        letter::check(&asked.subject, &asked.text)?;
        let known = self.bus.agents(&self.tenant).await.map_err(|error| {
            ToolError::new(format!("nobody can tell which agents there are ({error}); try again later"))
        })?;
        let to = recipient::find(&known.agents, &asked.to)?;
        let id = MailId::sent_by(&caller.call);
        let mail = self.mail(caller, asked.subject.trim(), &asked.text);
        match self.deliver(&to, &id, &mail).await? {
            Whose::Ours => Ok(json!({"sent": id, "to": to})),
            Whose::Theirs => Err(ToolError::new("the mail could not be sent: its id is taken; try again")),
        }
    }

    /// `check_mail`
    pub async fn check(&self, caller: &Caller) -> Result<Value, ToolError> {
        let Mailbox::Entries(entries) = self.bus.mailbox(&self.of(&caller.agent)).await.map_err(away)? else {
            return Err(ToolError::new("your mailbox holds too much to be read now; try again in an hour"));
        };
        let open: Vec<(&MailId, &Mail)> = entries.iter().filter_map(|(id, entry)| Some((id, open(entry)?))).collect();
        let now = self.clock.now();
        let shown = fitting(open.iter().take(MAILS_SHOWN_MAX).map(|(id, mail)| letter::shown(id, mail, now)));
        Ok(json!({"more": open.len() - shown.len(), "mails": shown}))
    }

    /// `reply_mail`: the answer is stored first, then the mail is closed. A death in between leaves the mail open, and
    /// its one answer where it is.
    pub async fn reply(&self, caller: &Caller, asked: &ReplyMail) -> Result<Value, ToolError> {
        let id = MailId::new(asked.id.trim()).map_err(|_| not_there(&asked.id))?;
        let mailbox = self.of(&caller.agent);
        let answers = !asked.text.trim().is_empty();
        let done = json!({"closed": id, "answered": answers});
        let (seq, mail) = match self.bus.mail(&mailbox, &id).await.map_err(away)? {
            None => return Err(not_there(&asked.id)),
            Some((_, MailEntry::Closed(closed))) if closed.closed_by == caller.call => return Ok(done),
            Some((_, MailEntry::Closed(_))) => {
                return Err(ToolError::new(format!("the mail {id} was closed already; nothing was sent")));
            }
            Some((seq, MailEntry::Open(mail))) => (seq, mail),
        };
        let mut whose = Whose::Ours;
        if answers {
            let subject = letter::answer_subject(&mail.subject);
            letter::check(&subject, &asked.text)?;
            let answer =
                Mail { answers: Some(letter::answered(&id, &mail)), ..self.mail(caller, &subject, &asked.text) };
            whose = self.deliver(&mail.from, &MailId::answer_to(&caller.agent, &id), &answer).await?;
        }
        let mark = ClosedMail {
            v: VERSION,
            sent_by: mail.call,
            closed_by: caller.call.clone(),
            from: mail.from,
            at: self.clock.now(),
        };
        // Whoever closes it: it is closed then.
        self.bus.close_mail(&mailbox, &id, seq, &mark).await.map_err(away)?;
        tracing::info!(%mailbox, mail = %id, call = caller.call, "mail closed");
        match whose {
            Whose::Ours => Ok(done),
            Whose::Theirs => Err(ToolError::new(format!(
                "the mail {id} had been answered already by another call; it is closed now, and your text was not sent"
            ))),
        }
    }

    /// Stores a mail once.
    async fn deliver(&self, to: &AgentId, id: &MailId, mail: &Mail) -> Result<Whose, ToolError> {
        let mailbox = self.of(to);
        // A repeated call finds its own, also in a mailbox that is full by now.
        if let Some((_, entry)) = self.bus.mail(&mailbox, id).await.map_err(away)? {
            return Ok(whose(&entry, mail));
        }
        self.has_room(&mailbox).await?;
        match self.bus.post_mail(&mailbox, id, mail).await.map_err(away)? {
            Posted::Stored => {
                tracing::info!(%mailbox, mail = %id, from = %mail.from, call = mail.call, "mail stored");
                Ok(Whose::Ours)
            }
            Posted::There(entry) => Ok(whose(&entry, mail)),
        }
    }

    async fn has_room(&self, mailbox: &MailboxKey) -> Result<(), ToolError> {
        let full = |why: String| {
            let text = format!("the mailbox of {} is full: {why}; nothing was sent, try again later", mailbox.agent);
            Err(ToolError::new(text))
        };
        let Mailbox::Entries(entries) = self.bus.mailbox(mailbox).await.map_err(away)? else {
            return full("it holds too much to be read".to_owned());
        };
        let waiting = entries.iter().filter(|(_, entry)| open(entry).is_some()).count();
        if waiting >= MAILBOX_OPEN_MAX {
            return full(format!("{waiting} mails wait in it"));
        }
        let closed = entries.len() - waiting;
        if closed >= MAILBOX_CLOSED_MAX {
            return full(format!("{closed} mails were closed in it within an hour"));
        }
        Ok(())
    }

    fn mail(&self, caller: &Caller, subject: &str, text: &str) -> Mail {
        Mail {
            v: VERSION,
            call: caller.call.clone(),
            from: caller.agent.clone(),
            subject: subject.to_owned(),
            text: text.to_owned(),
            sent: self.clock.now(),
            answers: None,
        }
    }

    fn of(&self, agent: &AgentId) -> MailboxKey {
        MailboxKey { tenant: self.tenant.clone(), agent: agent.clone() }
    }
}

impl std::fmt::Debug for PostOffice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostOffice").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

fn open(entry: &MailEntry) -> Option<&Mail> {
    match entry {
        MailEntry::Open(mail) => Some(mail),
        MailEntry::Closed(_) => None,
    }
}

fn whose(entry: &MailEntry, mail: &Mail) -> Whose {
    if entry.sent_by() == mail.call { Whose::Ours } else { Whose::Theirs }
}

fn not_there(id: &str) -> ToolError {
    let id = recipient::shown(id);
    ToolError::new(format!("there is no mail {id} in your mailbox; check_mail lists what is there"))
}

/// What a model is told of a bus that cannot be used: the call may have taken effect all the same.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn away(error: BusError) -> ToolError {
    ToolError::new(format!("the mailboxes cannot be used now ({error}); whether anything was stored is unknown"))
}
