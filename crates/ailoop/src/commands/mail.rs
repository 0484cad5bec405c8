//! `ailoop mail`: what agents write to people, and people to agents.

use std::fmt::Write;
use std::time::Duration;

use contract::{AgentId, ErrorCode};
use proto::{ListMailRequest, Mail, ReplyMailRequest, SendMailRequest};
use serde_json::{Value, json};
use tokio::time::sleep;
use tonic::Status;

use super::lists::lines;
use crate::args::{MailArgs, MailCloseArgs, MailCommand, MailReplyArgs, MailSendArgs, Target};
use crate::client::{Client, Sessions, bounded, command_id};
use crate::failure::{Exit, Failure};
use crate::prompt;
use crate::terminal::{Style, Terminal};

/// Further tries of a write that nobody answered.
const RETRIES_MAX: usize = 2;
/// Pause before each of them.
const RETRY_AFTER: Duration = Duration::from_secs(1);

pub(super) async fn mail(args: &MailArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    match &args.command {
        None => list(args, terminal).await,
        Some(MailCommand::Send(send)) => self::send(send, terminal).await,
        Some(MailCommand::Reply(MailReplyArgs { id, text, mailbox, target })) => {
            reply(id, prompt::read(text, std::io::stdin())?, mailbox, target, terminal).await
        }
        Some(MailCommand::Close(MailCloseArgs { id, mailbox, target })) => {
            reply(id, String::new(), mailbox, target, terminal).await
        }
    }
}

async fn list(args: &MailArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let client = super::connect(&args.target).await?;
    let request = bounded(ListMailRequest { mailbox: args.mailbox.clone() });
    let found = client.sessions().list_mail(request).await.map_err(|status| client.failure(&status))?.into_inner();
    if args.json {
        return Ok(super::finish(terminal.json(&lines(found.mails.iter().map(as_json)))));
    }
    if found.mails.is_empty() {
        terminal.note(Style::Plain, &format!("no mail waits in the mailbox of {}", args.mailbox));
        return Ok(Exit::Done);
    }
    let printed = terminal.data(&found.mails.iter().map(as_text).collect::<String>());
    if found.more > 0 {
        terminal.note(Style::Plain, &format!("{} more wait: answer or close these first", found.more));
    }
    terminal
        .note(Style::Faint, "`ailoop mail reply <id> <text>` answers one and closes it; close does without an answer");
    Ok(super::finish(printed))
}

async fn send(args: &MailSendArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let text = prompt::read(&args.text, std::io::stdin())?;
    let (mailbox, to, subject) = (args.mailbox.clone(), args.to.clone(), args.subject.clone());
    let mut client = super::connect(&args.target).await?;
    let help = format!(
        "the mail may be stored all the same, and repeating the command may send a second one: look first with `ailoop \
         mail --mailbox {}`, and see that the fleet runs with `tool_host.mail`",
        mailbox_of(&to)
    );
    let request = SendMailRequest { mailbox, command_id: command_id(), to, subject, text };
    let request_once = async |mut sessions: Sessions| sessions.send_mail(bounded(request.clone())).await;
    let sent = write(&mut client, terminal, help, request_once).await?.into_inner();
    terminal.note(Style::Good, &format!("mail {} sent to {}, who reads it when a session looks", sent.id, sent.to));
    Ok(Exit::Done)
}

async fn reply(id: &str, text: String, mailbox: &str, target: &Target, terminal: &Terminal) -> Result<Exit, Failure> {
    let (id, mailbox) = (id.to_owned(), mailbox.to_owned());
    let mut client = super::connect(target).await?;
    // A mail has one answer, whatever the command's id.
    let help = format!(
        "the mail may be closed all the same: `ailoop mail --mailbox {mailbox}` lists it while it is open. Repeating the \
         command sends no second answer; see that the fleet runs with `tool_host.mail`"
    );
    let request = ReplyMailRequest { mailbox, command_id: command_id(), id, text };
    let reply = async |mut sessions: Sessions| sessions.reply_mail(bounded(request.clone())).await;
    let closed = write(&mut client, terminal, help, reply).await?.into_inner();
    let what = if closed.answered { "answered and closed" } else { "closed" };
    terminal.note(Style::Good, &format!("mail {} {what}", closed.id));
    Ok(Exit::Done)
}

/// The mailbox of a recipient as `--mailbox` takes it; a placeholder where a name has other characters than a key.
fn mailbox_of(to: &str) -> String {
    let name = to.trim().trim_start_matches('@').to_lowercase();
    AgentId::new(&name).map_or_else(|_| "<the agent's key>".to_owned(), |id| id.to_string())
}

/// Makes a write, and makes it again while nobody answers. Every try has the same command id, so that it takes effect
/// once. `help` says what to do where the outcome stays unknown.
async fn write<T>(
    client: &mut Client,
    terminal: &Terminal,
    help: String,
    call: impl AsyncFn(Sessions) -> Result<T, Status>,
) -> Result<T, Failure> {
    let report = |failure: &Failure| terminal.note(Style::Warn, &format!("{}; trying again", failure.message()));
    let outcome = retry(RETRY_AFTER, report, async || {
        // A fleet that was started again may listen elsewhere. While it is not there, the call itself says so.
        let _absent = client.find_again().await;
        call(client.sessions()).await.map_err(|status| client.failure(&status))
    });
    outcome.await.map_err(|failure| if is_unanswered(&failure) { failure.help(help) } else { failure })
}

async fn retry<T>(
    pause: Duration,
    report: impl Fn(&Failure),
    mut attempt: impl AsyncFnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
    for _ in 0..RETRIES_MAX {
        match attempt().await {
            Err(failure) if is_unanswered(&failure) => report(&failure),
            outcome => return outcome,
        }
        sleep(pause).await;
    }
    attempt().await
}

/// Whether no answer came in time, or none that tells what became of the write.
fn is_unanswered(failure: &Failure) -> bool {
    *failure.code() == ErrorCode::Unavailable
}

fn as_text(mail: &Mail) -> String {
    let mut out = format!("{}  from {}, {}\n  {}\n", mail.id, mail.from, mail.sent, mail.subject);
    for line in mail.text.trim().lines() {
        let _ = writeln!(out, "    {line}");
    }
    if let Some(answered) = &mail.answers {
        let _ = writeln!(out, "  to: {}", answered.excerpt.lines().next().unwrap_or_default());
    }
    out.push('\n');
    out
}

fn as_json(mail: &Mail) -> Value {
    let Mail { id, from, subject, text, sent, answers } = mail;
    let mut value = json!({"id": id, "from": from, "subject": subject, "text": text, "sent": sent});
    if let Some(answered) = answers {
        value["answers"] = json!({"id": answered.id, "subject": answered.subject, "excerpt": answered.excerpt});
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: ErrorCode) -> Failure {
        Failure::new(code, "no answer in time")
    }

    /// Makes a write with these outcomes, the first one last; how it ends, and how many outcomes are left.
    async fn write_with(mut outcomes: Vec<Result<(), Failure>>) -> (Option<ErrorCode>, usize) {
        let ends = retry(Duration::ZERO, |_| {}, async || outcomes.pop().unwrap()).await;
        (ends.err().map(|failure| failure.code().clone()), outcomes.len())
    }

    #[tokio::test]
    async fn write_without_an_answer_is_tried_three_times() {
        let away = || Err(failure(ErrorCode::Unavailable));
        assert_eq!(write_with(vec![Ok(()), away(), away(), away()]).await, (Some(ErrorCode::Unavailable), 1));
        assert_eq!(write_with(vec![Ok(()), Ok(()), away(), away()]).await, (None, 1));
        assert_eq!(write_with(vec![Ok(()), Err(failure(ErrorCode::NotNow))]).await, (Some(ErrorCode::NotNow), 1));
        assert_eq!(write_with(vec![Ok(()), Ok(())]).await, (None, 1));
    }

    #[test]
    fn recipient_is_named_as_mailbox_takes_it() {
        assert_eq!((mailbox_of("@Eamonn"), mailbox_of("e")), ("eamonn".to_owned(), "e".to_owned()));
        assert_eq!(mailbox_of("Eamonn the Executioner"), "<the agent's key>");
    }
}
