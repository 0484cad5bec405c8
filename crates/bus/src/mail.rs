//! Mailboxes of agents: one message for each mail, stored once, and replaced by a mark when it is closed.

use contract::ids::MailId;
use contract::limits::MAIL_CLOSED_AGE_MAX;
use contract::mail::{ClosedMail, Mail, MailEntry};
use contract::streams::Stream;
use contract::subject::{self, MailboxKey, Subject};

use crate::headers::trace_headers;
use crate::json::{encode, parse};
use crate::transport::{ReadMany, ttl_header};
use crate::verify::{Verified, Write};
use crate::{Bus, BusError, Read};

/// The contents of a mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mailbox {
    /// Mails and marks in the order in which they were stored. From any replica: the newest change may be missing.
    Entries(Vec<(MailId, MailEntry)>),
    /// More than 1,024 entries: too many to list.
    TooMany,
}

/// The outcome of posting a mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PostOutcome {
    /// The mail is stored.
    Stored,
    /// Its id is or was in use, perhaps by this very mail: compare [`MailEntry::sent_by`].
    Duplicate(MailEntry),
}

impl Bus {
    /// Everything in a mailbox. An entry that cannot be read is left out.
    pub async fn mailbox(&self, at: &MailboxKey) -> Result<Mailbox, BusError> {
        let ReadMany::Messages(found) = self.transport().last_many(Stream::Mail, &[subject::mailbox(at)]).await? else {
            return Ok(Mailbox::TooMany);
        };
        let mut entries = Vec::new();
        for stored in found {
            let id = subject::parse_mail(&stored.subject).map(|(_, id)| id);
            match (id, parse(&stored.payload)) {
                (Some(id), Ok(entry)) => entries.push((id, entry)),
                // A newer writer's entry must not hide the others.
                (_, entry) => {
                    let error = entry.err().map(|error| error.to_string());
                    tracing::warn!(subject = stored.subject, error, "mail left out");
                }
            }
        }
        Ok(Mailbox::Entries(entries))
    }

    /// Reads the entry of a mail from the leader, with its sequence for [`Bus::close_mail`].
    pub async fn mail(&self, at: &MailboxKey, id: &MailId) -> Result<Option<(u64, MailEntry)>, BusError> {
        self.mail_at(&subject::mail(at, id)).await
    }

    /// Stores a mail unless its id is taken. Whatever the server says, the mailbox itself tells.
    pub async fn post_mail(&self, at: &MailboxKey, id: &MailId, mail: &Mail) -> Result<PostOutcome, BusError> {
        let (subject, body) = (subject::mail(at, id), encode(&MailEntry::Open(mail.clone()))?);
        // The same body may be offered again: at most one copy of it will ever stand there.
        Verified::at(&subject)
            .write(
                |_| async {
                    let appended = self.append_over(&subject, 0, trace_headers(), body.clone()).await?;
                    Ok(Write::of(appended, |_| PostOutcome::Stored))
                },
                || async {
                    Ok(match self.mail_at(&subject).await? {
                        Some((_, MailEntry::Open(found))) if found == *mail => Some(PostOutcome::Stored),
                        Some((_, entry)) => Some(PostOutcome::Duplicate(entry)),
                        None => None,
                    })
                },
            )
            .await
    }

    /// Puts a mark in the place of the mail with sequence `seq`. Returns whether the mark that stands there now is of
    /// the same call; if not, another call was faster, or the mail is gone.
    pub async fn close_mail(
        &self,
        at: &MailboxKey,
        id: &MailId,
        seq: u64,
        mark: &ClosedMail,
    ) -> Result<bool, BusError> {
        let (subject, body) = (subject::mail(at, id), encode(&MailEntry::Closed(mark.clone()))?);
        let mut headers = trace_headers();
        headers.push(ttl_header(MAIL_CLOSED_AGE_MAX));
        Verified::at(&subject)
            .write(
                |_| async {
                    let appended = self.append_over(&subject, seq, headers.clone(), body.clone()).await?;
                    Ok(Write::of(appended, |_| true))
                },
                || async {
                    Ok(match self.mail_at(&subject).await? {
                        Some((_, MailEntry::Closed(found))) => Some(found.closed_by == mark.closed_by),
                        Some((found, MailEntry::Open(_))) if found == seq => None,
                        Some(_) | None => Some(false),
                    })
                },
            )
            .await
    }

    async fn mail_at(&self, subject: &Subject) -> Result<Option<(u64, MailEntry)>, BusError> {
        let Some(stored) = self.transport().last(Stream::Mail, subject, Read::Leader).await? else { return Ok(None) };
        Ok(Some((stored.seq, parse(&stored.payload)?)))
    }
}
