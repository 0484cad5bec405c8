//! One prompt and what follows from it: begin or continue a session, show it, and know when it is over.

use std::time::Duration;

use contract::ErrorCode;
use contract::event::{Event, GateKind, GateOpened};
use proto::{AnswerRequest, ControlRequest, SendRequest, SessionInfo, SessionRequest, StartRequest};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use crate::args::{ApproveArg, RunArgs, SessionSettings};
use crate::asking::{self, Asking, Line, Said};
use crate::client::{self, Client, bounded, command_id};
use crate::failure::{Exit, Failure};
use crate::follow::{Follow, Until};
use crate::heard::{Heard, What, json_line};
use crate::render::Render;
use crate::signals::Interrupts;
use crate::stream::{AWAY_MAX, Stream, StreamEvent};
use crate::terminal::{Style, Terminal};

/// How much longer than `--timeout` is waited, since a new session has the same time as a limit of its own and says more.
const LIMIT_GRACE: Duration = Duration::from_secs(2);
/// How long a stopped session may take to end.
const STOP_MAX: Duration = Duration::from_secs(10);
/// How long a command may take that is sent while this one ends.
const LEAVE_MAX: Duration = Duration::from_secs(5);

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

/// Who answers what the session asks.
enum Approver {
    /// The person at the terminal.
    Person(mpsc::Receiver<Line>),
    /// This command, as `--approve` says.
    Policy(Policy),
    /// Somebody elsewhere.
    Elsewhere,
    /// Nobody: the command fails when it is asked.
    Nobody,
}

/// What `--approve all` and `none` answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    All,
    None,
}

impl Approver {
    /// Whoever reads the answer by a program is not asked anything.
    fn of(args: &RunArgs) -> Self {
        match args.approve {
            Some(ApproveArg::All) => Self::Policy(Policy::All),
            Some(ApproveArg::None) => Self::Policy(Policy::None),
            Some(ApproveArg::Wait) => Self::Elsewhere,
            None => if args.json { None } else { asking::lines() }.map_or(Self::Nobody, Self::Person),
        }
    }
}

impl Policy {
    /// The answer to a gate. More time, steps or attempts are never granted: nobody would ever end that.
    fn answer(self, gate: &GateOpened) -> AnswerRequest {
        let decision = match (gate.kind, self) {
            (GateKind::Approval, Self::All) => "approve",
            (GateKind::Approval, Self::None)
            | (GateKind::Question | GateKind::Limit(_) | GateKind::Error(_), Self::All | Self::None) => "deny",
        };
        let note = match gate.kind {
            GateKind::Question => "nobody is there to answer: go on without, and say what you assumed".to_owned(),
            GateKind::Approval | GateKind::Limit(_) | GateKind::Error(_) => String::new(),
        };
        AnswerRequest { note, ..asking::answer(gate, decision, None) }
    }
}

impl Conversation<'_> {
    /// Holds it to its end.
    pub(super) async fn hold(mut self, interrupts: &mut Interrupts) -> Result<Exit, Failure> {
        let latest = self.args.timeout.map(|timeout| Instant::now() + timeout + LIMIT_GRACE);
        let begun = tokio::select! {
            begun = interrupts.unless(self.begin()) => begun,
            () = at(latest) => {
                self.terminal.note(Style::Warn, "‼ the fleet did not begin within --timeout");
                return Ok(Exit::Limit);
            }
        };
        match begun {
            Some(begun) => self.follow(begun?, latest, interrupts).await,
            None => Ok(Exit::Interrupted),
        }
    }

    async fn begin(&mut self) -> Result<Begun, Failure> {
        let Some(session) = self.session.clone() else {
            return self.start(command_id(), false).await;
        };
        let request = SessionRequest { session_id: session.clone() };
        let known = self.client.sessions().get(bounded(request)).await;
        match known {
            Ok(info) => self.go_on(info.get_ref()).await,
            Err(status) if client::code(&status) == ErrorCode::UnknownSession => self.start(session, true).await,
            Err(status) => Err(self.client.failure(&status)),
        }
    }

    async fn start(&mut self, session: String, interactive: bool) -> Result<Begun, Failure> {
        let request = StartRequest {
            session_id: session.clone(),
            command_id: command_id(),
            // People write names with a capital letter; keys and aliases have none.
            agent: self.args.agent.as_deref().unwrap_or_default().to_lowercase(),
            model: self.args.model.clone().unwrap_or_default(),
            prompt: self.prompt.clone(),
            interactive,
            options_json: options(self.args)?,
            no_wait: false,
        };
        let report = |reason: &str| report_outage(self.terminal, reason, &session);
        self.client.call(report, async |mut sessions| sessions.start(bounded(request.clone())).await).await?;
        let until = if interactive { Until::TurnEnds } else { Until::SessionEnds };
        Ok(Begun { session, from_seq: 1, until })
    }

    async fn go_on(&mut self, info: &SessionInfo) -> Result<Begun, Failure> {
        let session = info.session_id.clone();
        if info.phase == "ended" {
            return Err(Failure::new(ErrorCode::SessionEnded, format!("the session {session} has ended")));
        }
        let args = self.args;
        let sets = args.settings != SessionSettings::default();
        if args.agent.is_some() || args.model.is_some() || args.max_iterations.is_some() || sets {
            let message = format!("the session {session} runs already, with its own agent, model and limits");
            return Err(Failure::usage(ErrorCode::BadRequest, message).help(
                "leave --agent, --model and settings out, change it by `ailoop configure`, or begin another session",
            ));
        }
        let is_paused = info.phase == "paused";
        // In a fleet of our own nobody else paused it: it was interrupted here, and this prompt takes the turn over.
        let takes_over = is_paused && self.ends == Ends::WithTheFleet;
        if is_paused && !takes_over {
            let hint = format!("the session is paused; to go on: ailoop resume {session}");
            self.terminal.note(Style::Warn, &hint);
        }
        let message = command_id();
        let request = SendRequest {
            session_id: session.clone(),
            command_id: message.clone(),
            text: self.prompt.clone(),
            mode: if takes_over { "interrupt".to_owned() } else { String::new() },
            no_wait: false,
        };
        let report = |reason: &str| report_outage(self.terminal, reason, &session);
        self.client.call(report, async |mut sessions| sessions.send(bounded(request.clone())).await).await?;
        if takes_over {
            let request = bounded(control(&session, "a new prompt"));
            self.client.sessions().resume(request).await.map_err(|status| self.client.failure(&status))?;
        }
        Ok(Begun { session, from_seq: info.seq + 1, until: Until::AnswerTo { message } })
    }

    async fn follow(
        &self,
        begun: Begun,
        mut latest: Option<Instant>,
        interrupts: &mut Interrupts,
    ) -> Result<Exit, Failure> {
        let Begun { session, from_seq, until } = begun;
        let mut stream = Stream::new(self.client.clone(), session.clone(), from_seq, true);
        let mut render = Render::new(&session, self.terminal.is_live(), false);
        let mut follow = Follow::new(until.clone());
        let mut stopped_as = None;
        let mut approver = Approver::of(self.args);
        let mut asking = Asking::new();
        loop {
            tokio::select! {
                next = stream.next() => {
                    let next = next.map_err(|failure| way_back(failure, self.ends, &session))?;
                    let notification = match next {
                        Some(StreamEvent::Notification(notification)) => notification,
                        Some(StreamEvent::Lost { reason }) => {
                            report_outage(self.terminal, &reason, &session);
                            continue;
                        }
                        Some(StreamEvent::Restored) => {
                            self.terminal.note(Style::Good, RESTORED);
                            continue;
                        }
                        None => return Ok(stopped_as.unwrap_or(Exit::Failed)),
                    };
                    let heard = Heard::read(&notification);
                    let shown = render.on(&heard);
                    let printed = if self.args.json {
                        self.terminal.json(&json_line(&session, &notification))
                    } else {
                        self.terminal.show(&shown)
                    };
                    if stopped_as.is_none() {
                        self.asked(&session, &heard, &approver, &mut asking).await?;
                    }
                    if let Some(exit) = follow.on(&heard) {
                        return Ok(stopped_as.unwrap_or(exit));
                    }
                    if printed.is_err() && stopped_as.is_none() {
                        self.leave(&session, "nobody reads the answer").await;
                        return Ok(Exit::Done);
                    }
                }
                line = typed(&mut approver) => {
                    match line.map(|line| asking.said(&line, std::time::Instant::now())) {
                        Some(Said::Show(all, prompt)) => {
                            self.terminal.note(Style::Plain, &all);
                            self.terminal.note(Style::Warn, &prompt);
                        }
                        Some(Said::Answer(answer)) => self.answer(&session, *answer).await,
                        Some(Said::Hint(hint)) => self.terminal.note(Style::Warn, &hint),
                        Some(Said::Nothing) => {}
                        None => approver = Approver::Elsewhere,
                    }
                }
                () = interrupts.next() => {
                    if stopped_as.is_some() || self.ends == Ends::FleetGoesOn {
                        self.tell_left(&session);
                        return Ok(Exit::Interrupted);
                    }
                    if self.session.is_some() {
                        let interrupted = interrupts.unless(self.interrupt(&session)).await;
                        if interrupted.is_none() {
                            self.tell_left(&session);
                        }
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
                        self.leave(&session, "no end within its time").await;
                    }
                    return Ok(Exit::Limit);
                }
            }
        }
    }

    /// Sees to what the session asks for.
    async fn asked(
        &self,
        session: &str,
        heard: &Heard,
        approver: &Approver,
        asking: &mut Asking,
    ) -> Result<(), Failure> {
        let prompt = asking.on(heard, std::time::Instant::now());
        let What::Event(event) = &heard.what else { return Ok(()) };
        let gate = if let Event::GateOpened(gate) = &**event { Some(gate) } else { None };
        match (approver, gate) {
            (Approver::Person(_), _) => {
                if let Some(prompt) = prompt {
                    self.terminal.note(Style::Warn, &prompt);
                }
            }
            (Approver::Policy(policy), Some(gate)) => self.answer(session, policy.answer(gate)).await,
            (Approver::Nobody, Some(gate)) => {
                let failure = self.nobody_to_ask(session, gate);
                if self.ends == Ends::WithTheFleet && self.session.is_none() {
                    self.stop(session, "nobody is there to approve").await;
                }
                return Err(failure);
            }
            (Approver::Policy(_) | Approver::Nobody, None) | (Approver::Elsewhere, _) => {}
        }
        Ok(())
    }

    /// Why the command fails when a person is asked and there is none, and how to answer all the same.
    fn nobody_to_ask(&self, session: &str, gate: &GateOpened) -> Failure {
        let what = match gate.kind {
            GateKind::Approval => {
                let tool = gate.tool.as_ref().map_or_else(|| "a tool".to_owned(), ToString::to_string);
                format!("a call of {tool} waits for approval")
            }
            GateKind::Question => "the model asks the user something".to_owned(),
            GateKind::Limit(limit) => {
                format!("the turn is at its limit ({}) and asks for as much again", limit.as_str())
            }
            GateKind::Error(kind) => format!("a model call failed ({}) and may be tried again", kind.code()),
        };
        let message = format!("{what}, and there is no terminal to ask at");
        let flags = "pass --approve all, --approve none, or --approve wait to wait for an answer from elsewhere";
        let id = &gate.gate;
        let help = match (self.ends, &self.session) {
            (Ends::FleetGoesOn, _) => format!(
                "{flags}; session {session} waits: `ailoop approvals approve|deny {session} {id}` answers, `ailoop \
                 watch {session}` follows it, `ailoop stop {session}` ends it"
            ),
            (Ends::WithTheFleet, Some(_)) => format!(
                "{flags}; session {session} waits: start a fleet with `ailoop up`, then `ailoop approvals \
                 approve|deny {session} {id}`"
            ),
            (Ends::WithTheFleet, None) => format!("{flags}; the session was stopped"),
        };
        Failure::new(ErrorCode::ApprovalNeeded, message).help(help)
    }

    /// Sends an answer to a gate. That it was refused is told: somebody else was faster, or its time is over.
    async fn answer(&self, session: &str, answer: AnswerRequest) {
        let request = AnswerRequest { session_id: session.to_owned(), command_id: command_id(), ..answer };
        if let Err(status) = self.client.sessions().answer(bounded(request)).await {
            self.terminal.failure(&self.client.failure(&status));
        }
    }

    /// Ends the session where nobody would run it any more; a named one is kept for the next command.
    async fn leave(&self, session: &str, reason: &str) {
        match (self.ends, &self.session) {
            (Ends::WithTheFleet, None) => self.stop(session, reason).await,
            (Ends::WithTheFleet, Some(_)) => self.interrupt(session).await,
            (Ends::FleetGoesOn, _) => self.tell_left(session),
        }
    }

    /// Interrupts the turn of a session that is to be continued: nothing of it runs on when a fleet is here again, until
    /// the next prompt takes over.
    async fn interrupt(&self, session: &str) {
        let request = bounded(control(session, "interrupted"));
        let paused = timeout(LEAVE_MAX, self.client.sessions().pause(request)).await;
        match paused {
            Ok(Ok(_)) => {}
            // Its turn ended, or somebody paused it.
            Ok(Err(status)) if client::code(&status) == ErrorCode::NotNow => {}
            Ok(Err(status)) => self.terminal.failure(&self.client.failure(&status)),
            Err(_) => {
                self.terminal.note(Style::Warn, "the fleet did not answer; the turn may go on with the next fleet");
            }
        }
        let line = format!(
            "interrupted; the session {session} is kept: `ailoop run --session {session} \"…\"` goes on with it"
        );
        self.terminal.note(Style::Warn, &line);
    }

    async fn stop(&self, session: &str, reason: &str) {
        let request = bounded(ControlRequest { no_wait: true, ..control(session, reason) });
        match timeout(LEAVE_MAX, self.client.sessions().stop(request)).await {
            Ok(Ok(_)) => {}
            Ok(Err(status)) => self.terminal.failure(&self.client.failure(&status)),
            Err(_) => self.terminal.note(Style::Warn, "the fleet did not answer that the session is stopped"),
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

/// Said when the fleet answers again.
pub(super) const RESTORED: &str = "the fleet answers again; the session goes on";

/// Says what is waited for, and how to come back.
pub(super) fn report_outage(terminal: &Terminal, reason: &str, session: &str) {
    let wait = AWAY_MAX.as_secs();
    let line = format!("{reason}; waiting up to {wait} s for the fleet. To come back later: ailoop watch {session}");
    terminal.note(Style::Warn, &line);
}

/// A failure of the stream, with the way back to the session where the fleet was not there.
pub(super) fn way_back(failure: Failure, ends: Ends, session: &str) -> Failure {
    if failure.exit() != Exit::Unreachable {
        return failure;
    }
    let fleet = match ends {
        Ends::FleetGoesOn => "when the fleet is there again (`ailoop up`)",
        Ends::WithTheFleet => "with the next fleet in this directory (`ailoop up`)",
    };
    failure.help(format!("the session goes on {fleet}; `ailoop watch {session}` follows it"))
}

/// A command about a session, with a reason.
fn control(session: &str, reason: &str) -> ControlRequest {
    ControlRequest {
        session_id: session.to_owned(),
        command_id: command_id(),
        reason: reason.to_owned(),
        no_wait: false,
    }
}

/// The next line of the keyboard; none when it is gone.
async fn typed(approver: &mut Approver) -> Option<Line> {
    match approver {
        Approver::Person(lines) => lines.recv().await,
        Approver::Policy(_) | Approver::Elsewhere | Approver::Nobody => std::future::pending().await,
    }
}

async fn at(latest: Option<Instant>) {
    match latest {
        Some(latest) => sleep_until(latest).await,
        None => std::future::pending().await,
    }
}

/// The settings of a new session, as fields of `session.start`.
fn options(args: &RunArgs) -> Result<String, Failure> {
    let mut continuation = Map::new();
    if let Some(most) = args.max_iterations {
        continuation.insert("max_iterations".to_owned(), Value::from(most));
    }
    if let Some(timeout) = args.timeout {
        continuation.insert("timeout".to_owned(), Value::from(timeout.as_secs()));
    }
    let options = super::settings::options(&args.settings, continuation)?;
    Ok(if options.is_empty() { String::new() } else { Value::Object(options).to_string() })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn check(line: &[&str], expect: &str) {
        let cli = Cli::parse_from(["ailoop", "run", "x"].iter().chain(line));
        let Command::Run(args) = cli.command else { panic!("not run") };
        assert_eq!(options(&args).unwrap(), expect);
    }

    #[test]
    fn limits_become_options_of_the_session() {
        check(&[], "");
        check(&["--max-iterations", "3"], r#"{"continuation":{"max_iterations":3}}"#);
        check(&["--timeout", "5m"], r#"{"continuation":{"timeout":300}}"#);
    }
}
