//! `ailoop mail`: messages between agents and people.

use std::fmt::Write;
use std::time::Duration;

use contract::{AgentId, ErrorCode};
use fleet_connection::client::{EdgeClient, SessionsApi, command_id};
use proto::{ListMailRequest, Mail, ReplyMailRequest, SendMailRequest};
use serde_json::{Value, json};
use terminal::failure::{CommandFailure, Exit};
use terminal::text_argument;
use terminal::{Style, Terminal};
use tokio::time::sleep;
use tonic::{Request, Response, Status};

use super::fleet_location::connect;
use crate::args::{FleetTarget, MailArgs, MailCloseArgs, MailCommand, MailReplyArgs, MailSendArgs};
use crate::output::{finish, json_lines};

/// Retries of a write that was not answered.
const RETRIES_MAX: usize = 2;
/// Pause before each retry.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn run(args: &MailArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    match &args.command {
        None => list_mails(args, terminal).await,
        Some(MailCommand::Send(send)) => send_mail(send, terminal).await,
        Some(MailCommand::Reply(MailReplyArgs { id, text, mailbox, target })) => {
            reply_to_mail(id, text_argument::read_text(text, std::io::stdin())?, mailbox, target, terminal).await
        }
        Some(MailCommand::Close(MailCloseArgs { id, mailbox, target })) => {
            reply_to_mail(id, String::new(), mailbox, target, terminal).await
        }
    }
}

async fn list_mails(args: &MailArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let client = connect(&args.target).await?;
    let found = client.call(ListMailRequest { mailbox: Some(args.mailbox.clone()) }, SessionsApi::list_mail).await?;
    if args.json {
        return Ok(finish(terminal.print_json(&json_lines(found.mails.iter().map(mail_json)))));
    }
    if found.mails.is_empty() {
        terminal.note(Style::Plain, &format!("no mail waits in the mailbox of {}", args.mailbox));
        return Ok(Exit::Done);
    }
    let printed = terminal.print_data(&found.mails.iter().map(mail_text).collect::<String>());
    if found.more > 0 {
        terminal.note(Style::Plain, &format!("{} more wait: answer or close these first", found.more));
    }
    terminal
        .note(Style::Faint, "`ailoop mail reply <id> <text>` answers one and closes it; close does without an answer");
    Ok(finish(printed))
}

async fn send_mail(args: &MailSendArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let text = text_argument::read_text(&args.text, std::io::stdin())?;
    let (mailbox, to, subject) = (args.mailbox.clone(), args.to.clone(), args.subject.clone());
    let client = connect(&args.target).await?;
    let help = format!(
        "the mail may be stored all the same, and repeating the command may send a second one: look first with `ailoop \
         mail --mailbox {}`, and see that the fleet runs with `tool_host.mail`",
        mailbox_of(&to)
    );
    let request = SendMailRequest { mailbox: Some(mailbox), command_id: Some(command_id()), to, subject, text };
    let sent = write(&client, terminal, help, request, SessionsApi::send_mail).await?;
    terminal.note(Style::Good, &format!("mail {} sent to {}, who reads it when a session looks", sent.sent, sent.to));
    Ok(Exit::Done)
}

async fn reply_to_mail(
    id: &str,
    text: String,
    mailbox: &str,
    target: &FleetTarget,
    terminal: &Terminal,
) -> Result<Exit, CommandFailure> {
    let (id, mailbox) = (id.to_owned(), mailbox.to_owned());
    let client = connect(target).await?;
    // A mail has one answer, whatever the command id.
    let help = format!(
        "the mail may be closed all the same: `ailoop mail --mailbox {mailbox}` lists it while it is open. Repeating the \
         command sends no second answer; see that the fleet runs with `tool_host.mail`"
    );
    let request = ReplyMailRequest { mailbox: Some(mailbox), command_id: Some(command_id()), id, text };
    let closed = write(&client, terminal, help, request, SessionsApi::reply_mail).await?;
    let what = if closed.answered { "answered and closed" } else { "closed" };
    terminal.note(Style::Good, &format!("mail {} {what}", closed.closed));
    Ok(Exit::Done)
}

/// Returns the mailbox of a recipient as `--mailbox` accepts it; a placeholder if the name is not a valid key.
fn mailbox_of(to: &str) -> String {
    let name = to.trim().trim_start_matches('@').to_lowercase();
    AgentId::new(&name).map_or_else(|_| "<the agent's key>".to_owned(), |id| id.to_string())
}

/// Sends a write, with retries while it is not answered. Every attempt has the same command id, so that it takes effect
/// once. `help` says what to do if the outcome stays unknown.
async fn write<R: Clone, T>(
    client: &EdgeClient,
    terminal: &Terminal,
    help: String,
    request: R,
    method: impl AsyncFn(&mut SessionsApi, Request<R>) -> Result<Response<T>, Status>,
) -> Result<T, CommandFailure> {
    let report = |failure: &CommandFailure| terminal.note(Style::Warn, &format!("{}; trying again", failure.message()));
    let outcome = retry(RETRY_PAUSE, report, async || {
        // A restarted fleet may have another address. If it is still down, the call itself fails.
        let _down = client.reconnect_if_moved().await;
        client.call(request.clone(), &method).await
    });
    outcome.await.map_err(|failure| if is_unanswered(&failure) { failure.help(help) } else { failure })
}

async fn retry<T>(
    pause: Duration,
    report: impl Fn(&CommandFailure),
    mut attempt: impl AsyncFnMut() -> Result<T, CommandFailure>,
) -> Result<T, CommandFailure> {
    for _ in 0..RETRIES_MAX {
        match attempt().await {
            Err(failure) if is_unanswered(&failure) => report(&failure),
            outcome => return outcome,
        }
        sleep(pause).await;
    }
    attempt().await
}

/// Whether it is unknown if the write took effect: it was not answered in time, or the connection broke.
fn is_unanswered(failure: &CommandFailure) -> bool {
    *failure.code() == ErrorCode::Unavailable
}

fn mail_text(mail: &Mail) -> String {
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

fn mail_json(mail: &Mail) -> Value {
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

    fn failure(code: ErrorCode) -> CommandFailure {
        CommandFailure::new(code, "no answer in time")
    }

    /// Makes a write whose attempts have these outcomes, the last one first; returns the error code and the unused
    /// outcomes.
    async fn write_with(mut outcomes: Vec<Result<(), CommandFailure>>) -> (Option<ErrorCode>, usize) {
        let result = retry(Duration::ZERO, |_| {}, async || outcomes.pop().unwrap()).await;
        (result.err().map(|failure| failure.code().clone()), outcomes.len())
    }

    #[tokio::test]
    async fn write_without_an_answer_is_tried_three_times() {
        let unanswered = || Err(failure(ErrorCode::Unavailable));
        assert_eq!(
            write_with(vec![Ok(()), unanswered(), unanswered(), unanswered()]).await,
            (Some(ErrorCode::Unavailable), 1)
        );
        assert_eq!(write_with(vec![Ok(()), Ok(()), unanswered(), unanswered()]).await, (None, 1));
        assert_eq!(write_with(vec![Ok(()), Err(failure(ErrorCode::NotNow))]).await, (Some(ErrorCode::NotNow), 1));
        assert_eq!(write_with(vec![Ok(()), Ok(())]).await, (None, 1));
    }

    #[test]
    fn recipient_name_becomes_mailbox_or_placeholder() {
        assert_eq!((mailbox_of("@Eamonn"), mailbox_of("e")), ("eamonn".to_owned(), "e".to_owned()));
        assert_eq!(mailbox_of("Eamonn the Executioner"), "<the agent's key>");
    }
}
