//! Handles requests of the mail tools and of clients. The id of every effect comes from its call, so that a repeated
//! call has no second effect.

use std::sync::Arc;

use ailoop_tool::ToolError;
use bus::{Bus, Mailbox, PostOutcome};
use contract::commit::VERSION;
use contract::compose::KnownAgent;
use contract::limits::{MAILBOX_CLOSED_MAX, MAILBOX_OPEN_MAX, MAILS_SHOWN_MAX};
use contract::mail::{
    ClosedMail, Mail, MailAction, MailEntry, MailList, MailRequest, MailResponse, PEOPLE, RepliedMail, SentMail,
};
use contract::subject::MailboxKey;
use contract::{AgentId, Coded as _, ErrorCode, MailId, TenantId};
use serde::Deserialize;
use serde_json::{Value, json};
use service::clock::Clock;

use super::refusal::MailRefusal;
use super::{address, mail_format};
use crate::truncate::take_fitting;

/// The mailbox that a request comes from, and the call that makes the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailCaller {
    agent: AgentId,
    call: String,
}

impl MailCaller {
    /// Reads the headers of a request: the agent of the calling session, and the call's id in the fleet.
    pub fn new(agent: &str, call: &str) -> Result<Self, ToolError> {
        let missing = |header: &str| ToolError::new(format!("the header {header} does not say whose mailbox is meant"));
        let agent = AgentId::new(agent).map_err(|_| missing(contract::tool::header::AGENT))?;
        if call.is_empty() {
            return Err(missing(contract::tool::header::CALL));
        }
        Ok(Self { agent, call: call.to_owned() })
    }

    /// Identifies a client's request. No call of a session has such an id.
    fn client(request: &MailRequest) -> Self {
        Self { agent: request.mailbox.clone(), call: format!("client:{}:{}", request.mailbox, request.id) }
    }
}

/// The arguments of `send_mail`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendMailArguments {
    /// An agent's key, alias or name, or [`PEOPLE`].
    pub to: String,
    /// One line, which is not empty.
    pub subject: String,
    /// The whole text, which is not empty.
    pub text: String,
}

/// The arguments of `reply_mail`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplyMailArguments {
    /// The id of a mail in the caller's mailbox.
    pub id: String,
    /// The answer; empty where the mail is only closed.
    pub text: String,
}

/// The mailboxes of one tenant's agents.
#[derive(Clone)]
pub struct MailService {
    bus: Bus,
    tenant: TenantId,
    clock: Arc<dyn Clock>,
}

/// The call that sent the mail that is stored under an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MailSender {
    /// This call, now or in an earlier try.
    ThisCall,
    /// A call with another id.
    AnotherCall,
}

impl MailService {
    /// A service over a connection that may read and write mailboxes.
    pub fn new(bus: Bus, tenant: TenantId, clock: Arc<dyn Clock>) -> Self {
        Self { bus, tenant, clock }
    }

    /// Handles `send_mail`: stores a mail in the mailbox of its recipient.
    pub async fn send(&self, caller: &MailCaller, arguments: &SendMailArguments) -> Result<SentMail, MailRefusal> {
        mail_format::validate(&arguments.subject, &arguments.text)?;
        let to = address::resolve(&self.load_agents().await?, &arguments.to)?;
        let id = MailId::sent_by(&caller.call);
        let mail = self.build_mail(caller, arguments.subject.trim(), &arguments.text);
        match self.deliver(&to, &id, &mail).await? {
            MailSender::ThisCall => Ok(SentMail { sent: id, to }),
            MailSender::AnotherCall => {
                Err(MailRefusal::new(ErrorCode::BadRequest, "the mail could not be sent: its id is taken; try again"))
            }
        }
    }

    /// Handles `check_mail`: lists the open mails of a mailbox.
    pub async fn check(&self, caller: &MailCaller) -> Result<Value, MailRefusal> {
        let MailList { more, mails } = self.list(&caller.agent).await?;
        let now = self.clock.now();
        let mails: Vec<Value> = mails.iter().map(|mail| mail_format::to_json(mail, now)).collect();
        Ok(json!({"more": more, "mails": mails}))
    }

    /// Lists the oldest open mails of a mailbox.
    async fn list(&self, mailbox: &AgentId) -> Result<MailList, MailRefusal> {
        let at = self.mailbox_key(mailbox);
        let Mailbox::Entries(entries) = self.bus.mailbox(&at).await.map_err(MailRefusal::unreadable)? else {
            let message = format!("the mailbox of {mailbox} holds too much to be read now; try again in an hour");
            return Err(MailRefusal::new(ErrorCode::Overloaded, message));
        };
        let open: Vec<(&MailId, &Mail)> =
            entries.iter().filter_map(|(id, entry)| Some((id, open_mail(entry)?))).collect();
        let mails =
            take_fitting(open.iter().take(MAILS_SHOWN_MAX).map(|(id, mail)| mail_format::to_waiting_mail(id, mail)));
        Ok(MailList { more: open.len() - mails.len(), mails })
    }

    /// Handles the request of a client. Clients read the mailbox of an agent, and write only from mailboxes that no
    /// agent has.
    pub async fn handle_request(&self, request: MailRequest) -> MailResponse {
        self.perform(request).await.unwrap_or_else(MailResponse::from)
    }

    async fn perform(&self, request: MailRequest) -> Result<MailResponse, MailRefusal> {
        let caller = MailCaller::client(&request);
        match (request.action, self.find_agent(&request.mailbox).await?) {
            (MailAction::List, agent) => {
                self.list(agent.as_ref().unwrap_or(&caller.agent)).await.map(MailResponse::Mails)
            }
            (MailAction::Send { .. } | MailAction::Reply { .. }, Some(_)) => Err(read_only_error(&caller.agent)),
            (MailAction::Send { to, subject, text }, None) => {
                self.send(&caller, &SendMailArguments { to, subject, text }).await.map(MailResponse::Sent)
            }
            (MailAction::Reply { mail, text }, None) => {
                self.reply(&caller, &ReplyMailArguments { id: mail, text }).await.map(MailResponse::Closed)
            }
        }
    }

    /// Finds the agent whose mailbox this is, by key or alias; `None` where no agent has it.
    async fn find_agent(&self, mailbox: &AgentId) -> Result<Option<AgentId>, MailRefusal> {
        // No agent may have this name, so the composer is not asked.
        if mailbox.as_str() == PEOPLE {
            return Ok(None);
        }
        let agents = self.load_agents().await?;
        Ok(address::find_agent(&agents, mailbox.as_str()).map(|agent| agent.id.clone()))
    }

    /// Loads the tenant's agents from the composer.
    async fn load_agents(&self) -> Result<Vec<KnownAgent>, MailRefusal> {
        let known = self.bus.agents(&self.tenant).await.map_err(|error| {
            let message = format!("nobody can tell which agents there are ({error}); try again later");
            MailRefusal::new(error.code(), message)
        })?;
        Ok(known.agents)
    }

    /// Handles `reply_mail`: stores the answer first, then closes the mail. A crash in between leaves the mail open,
    /// and its only answer stored.
    pub async fn reply(&self, caller: &MailCaller, arguments: &ReplyMailArguments) -> Result<RepliedMail, MailRefusal> {
        let not_found = || not_found_error(&caller.agent, &arguments.id);
        let id = MailId::new(arguments.id.trim()).map_err(|_| not_found())?;
        let mailbox = self.mailbox_key(&caller.agent);
        let has_answer = !arguments.text.trim().is_empty();
        let done = RepliedMail { closed: id.clone(), answered: has_answer };
        let (seq, mail) = match self.bus.mail(&mailbox, &id).await.map_err(MailRefusal::unreadable)? {
            None => return Err(not_found()),
            Some((_, MailEntry::Closed(closed))) if closed.closed_by == caller.call => {
                self.check_repeated_reply(caller, &id, &closed, &arguments.text).await?;
                return Ok(done);
            }
            Some((_, MailEntry::Closed(_))) => {
                let message = format!("the mail {id} was closed already; nothing was sent");
                return Err(MailRefusal::new(ErrorCode::NotNow, message));
            }
            Some((seq, MailEntry::Open(mail))) => (seq, mail),
        };
        let mut sender = MailSender::ThisCall;
        if has_answer {
            let subject = mail_format::reply_subject(&mail.subject);
            mail_format::validate(&subject, &arguments.text)?;
            let answer = Mail {
                answers: Some(mail_format::summarize_original(&id, &mail)),
                ..self.build_mail(caller, &subject, &arguments.text)
            };
            sender = self.deliver(&mail.from, &MailId::answer_to(&caller.agent, &id), &answer).await?;
        }
        let mark = ClosedMail {
            v: VERSION,
            sent_by: mail.call,
            closed_by: caller.call.clone(),
            from: mail.from,
            at: self.clock.now(),
        };
        // Any call may close the mail, so the result is ignored.
        self.bus.close_mail(&mailbox, &id, seq, &mark).await.map_err(MailRefusal::unknown_outcome)?;
        tracing::info!(%mailbox, mail = %id, call = caller.call, "mail closed");
        match sender {
            MailSender::ThisCall => Ok(done),
            MailSender::AnotherCall => Err(answered_by_another_error(&id)),
        }
    }

    /// Checks a reply to a mail that the same call closed before: the stored answer must be that of this request.
    async fn check_repeated_reply(
        &self,
        caller: &MailCaller,
        id: &MailId,
        closed: &ClosedMail,
        text: &str,
    ) -> Result<(), MailRefusal> {
        let (at, answer) = (self.mailbox_key(&closed.from), MailId::answer_to(&caller.agent, id));
        let found = self.bus.mail(&at, &answer).await.map_err(MailRefusal::unreadable)?;
        let has_answer = !text.trim().is_empty();
        match found {
            Some((_, entry)) if entry.sent_by() != caller.call => {
                if has_answer {
                    Err(answered_by_another_error(id))
                } else {
                    Ok(())
                }
            }
            Some((_, MailEntry::Open(mail))) if mail.text != text => Err(reused_id_error()),
            Some((_, MailEntry::Closed(_))) if !has_answer => Err(reused_id_error()),
            None if has_answer => {
                let message = format!(
                    "the mail {id} was closed by this request before, and no answer of it is kept; nothing was sent"
                );
                Err(MailRefusal::new(ErrorCode::BadRequest, message))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Stores a mail once. A mail of this call with another subject or text is refused.
    async fn deliver(&self, to: &AgentId, id: &MailId, mail: &Mail) -> Result<MailSender, MailRefusal> {
        let mailbox = self.mailbox_key(to);
        // A repeated call finds its own mail, also in a mailbox that is full by now.
        if let Some((_, entry)) = self.bus.mail(&mailbox, id).await.map_err(MailRefusal::unreadable)? {
            return check_sender(&entry, mail);
        }
        self.check_capacity(&mailbox).await?;
        match self.bus.post_mail(&mailbox, id, mail).await.map_err(MailRefusal::unknown_outcome)? {
            PostOutcome::Stored => {
                tracing::info!(%mailbox, mail = %id, from = %mail.from, call = mail.call, "mail stored");
                Ok(MailSender::ThisCall)
            }
            PostOutcome::Duplicate(entry) => check_sender(&entry, mail),
        }
    }

    async fn check_capacity(&self, mailbox: &MailboxKey) -> Result<(), MailRefusal> {
        let full = |why: String| {
            let text = format!("the mailbox of {} is full: {why}; nothing was sent, try again later", mailbox.agent);
            Err(MailRefusal::new(ErrorCode::Overloaded, text))
        };
        let Mailbox::Entries(entries) = self.bus.mailbox(mailbox).await.map_err(MailRefusal::unreadable)? else {
            return full("it holds too much to be read".to_owned());
        };
        let waiting = entries.iter().filter(|(_, entry)| open_mail(entry).is_some()).count();
        if waiting >= MAILBOX_OPEN_MAX {
            return full(format!("{waiting} mails wait in it"));
        }
        let closed = entries.len() - waiting;
        if closed >= MAILBOX_CLOSED_MAX {
            return full(format!("{closed} mails were closed in it within an hour"));
        }
        Ok(())
    }

    fn build_mail(&self, caller: &MailCaller, subject: &str, text: &str) -> Mail {
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

    fn mailbox_key(&self, agent: &AgentId) -> MailboxKey {
        MailboxKey { tenant: self.tenant.clone(), agent: agent.clone() }
    }
}

impl std::fmt::Debug for MailService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostOffice").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

fn open_mail(entry: &MailEntry) -> Option<&Mail> {
    match entry {
        MailEntry::Open(mail) => Some(mail),
        MailEntry::Closed(_) => None,
    }
}

/// Finds out which call stored an entry in the place of a mail.
fn check_sender(entry: &MailEntry, mail: &Mail) -> Result<MailSender, MailRefusal> {
    if entry.sent_by() != mail.call {
        return Ok(MailSender::AnotherCall);
    }
    match entry {
        MailEntry::Open(found) if (&found.subject, &found.text) != (&mail.subject, &mail.text) => {
            Err(reused_id_error())
        }
        // The entry of a closed mail has no content to compare.
        MailEntry::Open(_) | MailEntry::Closed(_) => Ok(MailSender::ThisCall),
    }
}

/// A client must not write in the name of an agent.
fn read_only_error(mailbox: &AgentId) -> MailRefusal {
    let message = format!(
        "{mailbox} is an agent's mailbox: clients may read it, not write in its name. Use `mailbox` (--mailbox) with a \
         name of your own; `{PEOPLE}` is that of people"
    );
    MailRefusal::new(ErrorCode::BadRequest, message)
}

/// A request has the id of an earlier one and another content.
fn reused_id_error() -> MailRefusal {
    let message = "a mail with another subject or text was sent under this command id before; this one was not sent: \
                   send it under an id of its own";
    MailRefusal::new(ErrorCode::BadRequest, message)
}

/// The only answer that a mail can have came from another call.
fn answered_by_another_error(id: &MailId) -> MailRefusal {
    let message = format!(
        "the mail {id} had been answered already by another call; it is closed now, and your text was not sent"
    );
    MailRefusal::new(ErrorCode::NotNow, message)
}

fn not_found_error(mailbox: &AgentId, id: &str) -> MailRefusal {
    let message = format!("there is no mail {} in the mailbox of {mailbox}; list its mails again", address::quote(id));
    MailRefusal::new(ErrorCode::UnknownMail, message)
}
