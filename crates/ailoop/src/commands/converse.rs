//! One prompt and what follows from it: begin or continue a session, show it, and know when it is over.

use std::time::Duration;

use contract::ErrorCode;
use proto::{AnswerRequest, ControlRequest, SendRequest, SessionInfo, SessionRequest, StartRequest};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::args::RunArgs;
use crate::asking::{self, Asking, Line, Said};
use crate::client::{self, Client, bounded, command_id};
use crate::failure::{Exit, Failure};
use crate::follow::{Follow, Until};
use crate::heard::{Heard, json_line};
use crate::render::Render;
use crate::signals::Interrupts;
use crate::stream::Stream;
use crate::terminal::{Style, Terminal};

/// How much longer than `--timeout` a new session may take to end by its own limit.
const LIMIT_GRACE: Duration = Duration::from_secs(10);
/// How long a stopped session may take to end.
const STOP_MAX: Duration = Duration::from_secs(10);

/// What our leaving means for the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// Nothing: others run it.
    FleetGoesOn,
    /// It ends too, since the fleet ends with us.
    WithTheFleet,
}

/// A prompt on its way.
pub(super) struct Conversation<'a> {
    pub(super) args: &'a RunArgs,
    pub(super) prompt: String,
    pub(super) session: Option<String>,
    pub(super) client: Client,
    pub(super) terminal: &'a Terminal,
    pub(super) ends: Ends,
}

/// A session that works on our prompt.
struct Begun {
    session: String,
    from_seq: u64,
    until: Until,
}

impl Conversation<'_> {
    /// Holds it to its end.
    pub(super) async fn hold(self, interrupts: &mut Interrupts) -> Result<Exit, Failure> {
        match interrupts.unless(self.begin()).await {
            Some(begun) => self.follow(begun?, interrupts).await,
            None => Ok(Exit::Interrupted),
        }
    }

    async fn begin(&self) -> Result<Begun, Failure> {
        let Some(session) = &self.session else {
            return self.start(command_id(), false).await;
        };
        let known = self.client.sessions().get(bounded(SessionRequest { session_id: session.clone() })).await;
        match known {
            Ok(info) => self.go_on(info.get_ref()).await,
            Err(status) if client::code(&status) == ErrorCode::UnknownSession => {
                self.start(session.clone(), true).await
            }
            Err(status) => Err(self.client.failure(&status)),
        }
    }

    async fn start(&self, session: String, interactive: bool) -> Result<Begun, Failure> {
        let request = StartRequest {
            session_id: session.clone(),
            command_id: command_id(),
            agent: self.args.agent.clone().unwrap_or_default(),
            model: self.args.model.clone().unwrap_or_default(),
            prompt: self.prompt.clone(),
            interactive,
            options_json: options(self.args),
            no_wait: false,
        };
        self.client.sessions().start(bounded(request)).await.map_err(|status| self.client.failure(&status))?;
        let until = if interactive { Until::TurnEnds } else { Until::SessionEnds };
        Ok(Begun { session, from_seq: 1, until })
    }

    async fn go_on(&self, info: &SessionInfo) -> Result<Begun, Failure> {
        let session = info.session_id.clone();
        if info.phase == "ended" {
            return Err(Failure::new(ErrorCode::SessionEnded, format!("the session {session} has ended")));
        }
        let args = self.args;
        if args.agent.is_some() || args.model.is_some() || args.max_iterations.is_some() {
            let message = format!("the session {session} runs already, with its own agent, model and limits");
            return Err(Failure::usage(ErrorCode::BadRequest, message)
                .help("leave --agent, --model and --max-iterations out, or begin another session"));
        }
        if info.phase == "paused" {
            let hint = format!("the session is paused; to go on: ailoop resume {session}");
            self.terminal.note(Style::Warn, &hint);
        }
        let message = command_id();
        let request = SendRequest {
            session_id: session.clone(),
            command_id: message.clone(),
            text: self.prompt.clone(),
            mode: String::new(),
            no_wait: false,
        };
        self.client.sessions().send(bounded(request)).await.map_err(|status| self.client.failure(&status))?;
        Ok(Begun { session, from_seq: info.seq + 1, until: Until::AnswerTo { message } })
    }

    async fn follow(&self, begun: Begun, interrupts: &mut Interrupts) -> Result<Exit, Failure> {
        let Begun { session, from_seq, until } = begun;
        let mut latest = self.latest(&until);
        let mut stream = Stream::new(self.client.clone(), session.clone(), from_seq, true);
        let mut render = Render::new(&session, self.terminal.is_live(), false);
        let mut follow = Follow::new(until.clone());
        let mut stopped_as = None;
        // Whoever reads the answer by a program is not asked anything.
        let mut keyboard = if self.args.json { None } else { asking::lines() };
        let mut asking = Asking::default();
        loop {
            tokio::select! {
                next = stream.next() => {
                    let Some(notification) = next? else { return Ok(stopped_as.unwrap_or(Exit::Failed)) };
                    let heard = Heard::read(&notification);
                    let shown = render.on(&heard);
                    let printed = if self.args.json {
                        self.terminal.data(&json_line(&session, &notification))
                    } else {
                        self.terminal.show(&shown)
                    };
                    if let Some(ask) = keyboard.as_ref().and_then(|_| asking.on(&heard, std::time::Instant::now())) {
                        self.terminal.note(Style::Warn, ask);
                    }
                    if let Some(exit) = follow.on(&heard) {
                        return Ok(stopped_as.unwrap_or(exit));
                    }
                    if printed.is_err() && stopped_as.is_none() {
                        self.leave(&session, "nobody reads the answer").await;
                        return Ok(Exit::Done);
                    }
                }
                line = typed(&mut keyboard) => match line.map(|line| asking.said(&line, std::time::Instant::now())) {
                    Some(Said::Show(all)) => self.terminal.note(Style::Plain, &all),
                    Some(Said::Answer(answer)) => self.answer(&session, *answer).await,
                    Some(Said::Hint(hint)) => self.terminal.note(Style::Warn, hint),
                    Some(Said::Nothing) => {}
                    None => keyboard = None,
                },
                () = interrupts.next() => {
                    if stopped_as.is_some() || self.ends == Ends::FleetGoesOn {
                        self.tell_left(&session);
                        return Ok(Exit::Interrupted);
                    }
                    self.terminal.note(
                        Style::Warn,
                        "stopping the session, since its fleet ends with this command; Ctrl-C again leaves at once",
                    );
                    stopped_as = Some(Exit::Interrupted);
                    latest = Some(Instant::now() + STOP_MAX);
                    if interrupts.unless(self.leave(&session, "interrupted")).await.is_none() {
                        return Ok(Exit::Interrupted);
                    }
                }
                () = at(latest) => {
                    if let Some(exit) = stopped_as {
                        return Ok(exit);
                    }
                    self.terminal.note(Style::Warn, "‼ no end within --timeout");
                    if until == Until::SessionEnds {
                        self.stop(&session, "no end within its time").await;
                    } else {
                        self.tell_left(&session);
                    }
                    return Ok(Exit::Limit);
                }
            }
        }
    }

    /// Sends what a person says to a gate. That it was refused is told: somebody else was faster, or its time is over.
    async fn answer(&self, session: &str, answer: AnswerRequest) {
        let request = AnswerRequest { session_id: session.to_owned(), command_id: command_id(), ..answer };
        if let Err(status) = self.client.sessions().answer(bounded(request)).await {
            self.terminal.failure(&self.client.failure(&status));
        }
    }

    /// When we stop waiting. A new session has the same time as a limit of its own, and ends by it a little earlier.
    fn latest(&self, until: &Until) -> Option<Instant> {
        let grace = match until {
            Until::SessionEnds | Until::TurnEnds => LIMIT_GRACE,
            Until::AnswerTo { .. } => Duration::ZERO,
        };
        self.args.timeout.map(|timeout| Instant::now() + timeout + grace)
    }

    /// Ends the session where nobody would run it any more.
    async fn leave(&self, session: &str, reason: &str) {
        match self.ends {
            Ends::WithTheFleet => self.stop(session, reason).await,
            Ends::FleetGoesOn => self.tell_left(session),
        }
    }

    async fn stop(&self, session: &str, reason: &str) {
        let request = bounded(ControlRequest {
            session_id: session.to_owned(),
            command_id: command_id(),
            reason: reason.to_owned(),
            no_wait: true,
        });
        if let Err(status) = self.client.sessions().stop(request).await {
            self.terminal.failure(&self.client.failure(&status));
        }
    }

    fn tell_left(&self, session: &str) {
        let line = match self.ends {
            Ends::FleetGoesOn => {
                format!(
                    "left; the session goes on: `ailoop watch {session}` follows it, `ailoop stop {session}` ends it"
                )
            }
            Ends::WithTheFleet => format!("left; the session {session} goes on when a fleet runs here again"),
        };
        self.terminal.note(Style::Warn, &line);
    }
}

/// The next line of the keyboard; none when it is gone.
async fn typed(keyboard: &mut Option<mpsc::Receiver<Line>>) -> Option<Line> {
    match keyboard {
        Some(lines) => lines.recv().await,
        None => std::future::pending().await,
    }
}

async fn at(latest: Option<Instant>) {
    match latest {
        Some(latest) => sleep_until(latest).await,
        None => std::future::pending().await,
    }
}

/// The limits of a new session, as fields of `session.start`.
fn options(args: &RunArgs) -> String {
    let mut continuation = Map::new();
    if let Some(most) = args.max_iterations {
        continuation.insert("max_iterations".to_owned(), Value::from(most));
    }
    if let Some(timeout) = args.timeout {
        continuation.insert("timeout".to_owned(), Value::from(timeout.as_secs()));
    }
    if continuation.is_empty() {
        String::new()
    } else {
        serde_json::json!({ "continuation": continuation }).to_string()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn check(line: &[&str], expect: &str) {
        let cli = Cli::parse_from(["ailoop", "run", "x"].iter().chain(line));
        let Command::Run(args) = cli.command else { panic!("not run") };
        assert_eq!(options(&args), expect);
    }

    #[test]
    fn limits_become_options_of_the_session() {
        check(&[], "");
        check(&["--max-iterations", "3"], r#"{"continuation":{"max_iterations":3}}"#);
        check(&["--timeout", "5m"], r#"{"continuation":{"timeout":300}}"#);
    }
}
