//! Sends one prompt, follows its session, answers its gates, and stops at its end.

use std::time::Duration;

use ailoop_client::WatchItem;
use contract::ErrorCode;
use contract::event::{Event, GateKind, GateOpened};
use contract::limits::LAST_WORD_MAX;
use fleet_connection::client::{EdgeClient, OUTAGE_MAX, SessionsApi, command_id, control_request, request_of};
use proto::{
    AnswerGateRequest, GetSessionRequest, Notification, SendMessageRequest, SessionSummary, StartSessionRequest,
    StopSessionRequest,
};
use serde_json::{Map, Value, json};
use session_view::chat::gate_menu::{GateMenu, MenuStep};
use session_view::completion::{CompletionTracker, WaitTarget};
use session_view::gate_prompt::{self, TypedLine};
use session_view::notification::{NotificationContent, ParsedNotification};
use terminal::failure::{CommandFailure, Exit};
use terminal::{StdoutClosed, Style, Terminal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::live_display::{LiveDisplay, Printed, make_renderer};
use super::session_tree::{SessionTree, TreeItem};
use super::settings::session_options;
use crate::args::{ApproveArg, RunArgs, SessionSettings};
use crate::signals::Interrupts;

/// Extra wait after `--timeout`: a new session has the same limit, and its own stop reason says more than ours.
const TIMEOUT_GRACE: Duration = Duration::from_secs(2);
/// Longest wait for the end of a session that was stopped.
const STOP_MAX: Duration = Duration::from_secs(10);
/// Longest wait for the answer to a command that is sent while this process ends.
const EXIT_COMMAND_MAX: Duration = Duration::from_secs(5);

/// Lifetime of the fleet, relative to this command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FleetLifetime {
    /// It runs on after this command, and so does the session.
    Independent,
    /// It ends with this command, which started it.
    ThisCommand,
}

/// A prompt, and all that is needed to follow it.
pub(super) struct Conversation<'a> {
    pub(super) args: &'a RunArgs,
    pub(super) prompt: String,
    pub(super) session: Option<String>,
    pub(super) client: EdgeClient,
    pub(super) terminal: &'a Terminal,
    pub(super) fleet_lifetime: FleetLifetime,
}

/// A session that works on the prompt.
struct StartedSession {
    session: String,
    from_seq: u64,
    target: WaitTarget,
}

/// A session while it is followed: what is shown of it, and what it waits for.
struct FollowedSession<'a> {
    conversation: &'a Conversation<'a>,
    display: LiveDisplay<'a>,
    session: String,
    target: WaitTarget,
    tracker: CompletionTracker,
    approver: Approver,
    menu: GateMenu,
    open_gates: usize,
    /// Whether the session may take one last step at its limit of time, as a new one does once. Its clock stands while
    /// somebody is asked.
    may_answer: bool,
    deadline: Option<Instant>,
    /// The exit once the session is told to stop.
    exit_after_stop: Option<Exit>,
}

/// Source of the answers to the gates of the session.
enum Approver {
    /// The person at the terminal.
    Person(mpsc::Receiver<TypedLine>),
    /// This command, by `--approve all` or `--approve none`.
    Policy(ApprovalPolicy),
    /// Another client of the fleet.
    Elsewhere,
    /// Nobody: the command fails when a gate opens.
    Nobody,
}

/// The answers of `--approve all` and `--approve none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ApprovalPolicy {
    All,
    None,
}

impl Approver {
    /// With `--json` a program reads the output, so no prompt is shown.
    fn from_args(args: &RunArgs) -> Self {
        match args.approve {
            Some(ApproveArg::All) => Self::Policy(ApprovalPolicy::All),
            Some(ApproveArg::None) => Self::Policy(ApprovalPolicy::None),
            Some(ApproveArg::Wait) => Self::Elsewhere,
            None => if args.json { None } else { gate_prompt::read_lines() }.map_or(Self::Nobody, Self::Person),
        }
    }
}

impl ApprovalPolicy {
    /// Answers a gate. A policy never grants more time, steps or attempts, since the turn might never end.
    fn answer(self, gate: &GateOpened) -> AnswerGateRequest {
        let decision = match (gate.kind, self) {
            (GateKind::Approval, Self::All) => "approve",
            (GateKind::Approval, Self::None)
            | (GateKind::Question | GateKind::Limit(_) | GateKind::Error(_), Self::All | Self::None) => "deny",
        };
        let note = match gate.kind {
            GateKind::Question => {
                Some("no person can answer: go on without an answer, and say what you assumed".to_owned())
            }
            GateKind::Approval | GateKind::Limit(_) | GateKind::Error(_) => None,
        };
        AnswerGateRequest { note, ..gate_prompt::answer_request(gate, decision, None) }
    }
}

impl Conversation<'_> {
    /// Runs the conversation to its end.
    pub(super) async fn run(self, interrupts: &mut Interrupts) -> Result<Exit, CommandFailure> {
        let deadline = self.args.timeout.map(|timeout| Instant::now() + timeout + TIMEOUT_GRACE);
        let started = tokio::select! {
            started = interrupts.run_until_interrupted(self.open_session()) => started,
            () = sleep_until_deadline(deadline) => {
                self.terminal.note(Style::Warn, "‼ the fleet did not begin within --timeout");
                return Ok(Exit::Limit);
            }
        };
        match started {
            Some(started) => self.follow(started?, deadline, interrupts).await,
            None => Ok(Exit::Interrupted),
        }
    }

    async fn open_session(&self) -> Result<StartedSession, CommandFailure> {
        let Some(session) = self.session.clone() else {
            return self.start_session(command_id(), false, None).await;
        };
        let known = self.client.call(GetSessionRequest { session_id: session.clone() }, SessionsApi::get_session).await;
        match known {
            Ok(info) if self.args.last && info.phase == "ended" => {
                self.start_session(command_id(), true, Some(&session)).await
            }
            Ok(info) => self.continue_session(&info).await,
            Err(failure) if *failure.code() == ErrorCode::UnknownSession => {
                self.start_session(session, true, None).await
            }
            Err(failure) => Err(failure),
        }
    }

    /// Starts a session, with the transcript of an older one if there is one.
    async fn start_session(
        &self,
        session: String,
        interactive: bool,
        older: Option<&str>,
    ) -> Result<StartedSession, CommandFailure> {
        if let Some(older) = older {
            self.terminal.note(Style::Faint, &format!("session {older} has ended; this goes on in a copy of it"));
        }
        let request = StartSessionRequest {
            session_id: Some(session.clone()),
            command_id: Some(command_id()),
            // Keys and aliases of agents are lower case, while people write names with a capital letter.
            agent: self.args.agent.as_deref().map(str::to_lowercase),
            model: self.args.model.clone(),
            prompt: Some(self.prompt.clone().into()),
            interactive: Some(interactive),
            ..request_of(Value::Object(start_options(self.args, older)?))?
        };
        let report = |reason: &str| report_outage(self.terminal, reason, &session);
        self.client.call_with_retries(request, report, SessionsApi::start_session).await?;
        let target = if interactive { WaitTarget::TurnEnd } else { WaitTarget::SessionEnd };
        Ok(StartedSession { session, from_seq: 1, target })
    }

    async fn continue_session(&self, info: &SessionSummary) -> Result<StartedSession, CommandFailure> {
        let session = info.session_id.clone();
        if info.phase == "ended" {
            return Err(CommandFailure::new(ErrorCode::SessionEnded, format!("the session {session} has ended")));
        }
        let args = self.args;
        let has_settings = args.settings != SessionSettings::default();
        if args.agent.is_some() || args.model.is_some() || args.max_iterations.is_some() || has_settings {
            let message = format!("the session {session} runs already, with its own agent, model and limits");
            return Err(CommandFailure::usage(ErrorCode::BadRequest, message).help(
                "leave --agent, --model and settings out, change it by `ailoop configure`, or begin another session",
            ));
        }
        let is_paused = info.phase == "paused";
        // Only an interrupt of this command pauses a session of a fleet of its own; the new prompt replaces that turn.
        let takes_over = is_paused && self.fleet_lifetime == FleetLifetime::ThisCommand;
        if is_paused && !takes_over {
            let hint = format!("the session is paused; to go on: ailoop resume {session}");
            self.terminal.note(Style::Warn, &hint);
        }
        let message_id = command_id();
        let request = SendMessageRequest {
            session_id: session.clone(),
            command_id: Some(message_id.clone()),
            content: Some(self.prompt.clone().into()),
            mode: takes_over.then(|| "interrupt".to_owned()),
            ..SendMessageRequest::default()
        };
        let report = |reason: &str| report_outage(self.terminal, reason, &session);
        self.client.call_with_retries(request, report, SessionsApi::send_message).await?;
        if takes_over {
            self.client.call(control_request(&session, "a new prompt"), SessionsApi::resume_session).await?;
        }
        Ok(StartedSession { session, from_seq: info.seq + 1, target: WaitTarget::TurnOfMessage { message_id } })
    }

    /// Follows the session until its end, or until this command leaves it.
    async fn follow(
        &self,
        started: StartedSession,
        deadline: Option<Instant>,
        interrupts: &mut Interrupts,
    ) -> Result<Exit, CommandFailure> {
        let from_seq = started.from_seq;
        let mut followed = FollowedSession::new(self, started, deadline);
        let child_layout = followed.display.child_layout();
        let mut stream = SessionTree::new(self.client.clone(), &followed.session, from_seq, child_layout);
        loop {
            stream.set_layout(self.terminal.layout());
            let exit = tokio::select! {
                next = stream.next() => match next {
                    Ok(Some(item)) => followed.handle_item(item).await?,
                    Ok(None) => Some(followed.exit_after_stop.unwrap_or(Exit::Failed)),
                    Err(failure) => return Err(add_reattach_help(failure, self.fleet_lifetime, &followed.session)),
                },
                line = next_typed_line(&mut followed.approver) => {
                    followed.handle_typed_line(line).await;
                    None
                }
                () = followed.display.wait_for_redraw() => {
                    // If stdout is closed, the next notification ends the command.
                    let _closed = followed.display.redraw();
                    None
                }
                () = interrupts.next() => followed.handle_interrupt(interrupts).await,
                () = sleep_until_deadline(followed.deadline) => followed.handle_deadline().await,
            };
            if let Some(exit) = exit {
                return Ok(exit);
            }
        }
    }

    fn printed(&self) -> Printed {
        match (self.args.json, self.args.final_only) {
            (true, _) => Printed::Json,
            (false, true) => Printed::FinalAnswer,
            (false, false) => Printed::Everything,
        }
    }

    /// Says what Ctrl-C does.
    fn interrupt_hint(&self) -> &'static str {
        match (self.fleet_lifetime, &self.session) {
            (FleetLifetime::Independent, _) => "Ctrl-C leaves",
            (FleetLifetime::ThisCommand, Some(_)) => "Ctrl-C pauses",
            (FleetLifetime::ThisCommand, None) => "Ctrl-C stops",
        }
    }

    /// Makes the failure for a gate that nobody can answer here; its help says how to answer it elsewhere.
    fn approval_needed(&self, session: &str, gate: &GateOpened) -> CommandFailure {
        let what = match gate.kind {
            GateKind::Approval => {
                let tool = gate.tool.as_ref().map_or_else(|| "a tool".to_owned(), ToString::to_string);
                format!("a call of {tool} waits for approval")
            }
            GateKind::Question => "the model asks the user a question".to_owned(),
            GateKind::Limit(limit) => {
                format!("the turn is at its limit ({}) and asks for as much again", limit.as_str())
            }
            GateKind::Error(kind) => format!("a model call failed ({}) and may be tried again", kind.code()),
        };
        let message = format!("{what}, and there is no terminal to ask at");
        let flags = "pass --approve all, --approve none, or --approve wait to wait for an answer from elsewhere";
        let id = &gate.gate;
        let help = match (self.fleet_lifetime, &self.session) {
            (FleetLifetime::Independent, _) => format!(
                "{flags}; session {session} waits: `ailoop approvals approve|deny {session} {id}` answers, `ailoop \
                 watch {session}` follows it, `ailoop stop {session}` ends it"
            ),
            (FleetLifetime::ThisCommand, Some(_)) => format!(
                "{flags}; session {session} waits: start a fleet with `ailoop up`, then `ailoop approvals \
                 approve|deny {session} {id}`"
            ),
            (FleetLifetime::ThisCommand, None) => format!("{flags}; the session was stopped"),
        };
        CommandFailure::new(ErrorCode::ApprovalNeeded, message).help(help)
    }

    /// Sends an answer to a gate; returns whether it was accepted. A refusal is printed: another client was faster, or the
    /// gate has expired.
    async fn send_answer(&self, session: &str, answer: AnswerGateRequest) -> bool {
        let request = AnswerGateRequest { session_id: session.to_owned(), command_id: Some(command_id()), ..answer };
        let sent = self.client.call(request, SessionsApi::answer_gate).await;
        if let Err(failure) = &sent {
            self.terminal.print_failure(failure);
        }
        sent.is_ok()
    }

    /// Leaves the session. If its fleet ends with this command, an unnamed session is stopped and a named one is paused
    /// for the next command.
    async fn detach(&self, session: &str, reason: &str) {
        match (self.fleet_lifetime, &self.session) {
            (FleetLifetime::ThisCommand, None) => self.stop_session(session, reason).await,
            (FleetLifetime::ThisCommand, Some(_)) => self.interrupt_turn(session).await,
            (FleetLifetime::Independent, _) => self.note_detached(session),
        }
    }

    /// Pauses a session that the next command continues, so that a new fleet does not go on with the interrupted turn.
    async fn interrupt_turn(&self, session: &str) {
        if let Err((style, why)) = pause_at_exit(&self.client, session, "interrupted").await {
            self.terminal.note(style, &why);
        }
        let line = format!(
            "interrupted; the session {session} is kept. To go on with it:\n  ailoop run --session {session} \"…\""
        );
        self.terminal.note(Style::Warn, &line);
    }

    async fn stop_session(&self, session: &str, reason: &str) {
        let request = StopSessionRequest { wait: Some(false), ..control_request(session, reason) };
        match timeout(EXIT_COMMAND_MAX, self.client.call(request, SessionsApi::stop_session)).await {
            Ok(Ok(_)) => {}
            Ok(Err(failure)) => self.terminal.print_failure(&failure),
            Err(_) => self.terminal.note(Style::Warn, "the fleet did not answer that the session is stopped"),
        }
    }

    fn note_detached(&self, session: &str) {
        let line = match self.fleet_lifetime {
            FleetLifetime::Independent => {
                format!(
                    "left; the session goes on. To follow it, or to end it:\n  ailoop watch {session}\n  ailoop stop {session}"
                )
            }
            FleetLifetime::ThisCommand => format!("left; the session {session} goes on when a fleet runs here again"),
        };
        self.terminal.note(Style::Warn, &line);
    }
}

impl<'a> FollowedSession<'a> {
    fn new(conversation: &'a Conversation<'a>, started: StartedSession, deadline: Option<Instant>) -> Self {
        let StartedSession { session, target, .. } = started;
        let approver = Approver::from_args(conversation.args);
        let renderer = make_renderer(conversation.terminal, &session);
        // A person is asked by a menu.
        let asks_here = matches!(approver, Approver::Person(_));
        let renderer = if asks_here { renderer.without_gates() } else { renderer };
        let (printed, hint) = (conversation.printed(), conversation.interrupt_hint());
        Self {
            conversation,
            display: LiveDisplay::new(conversation.terminal, &session, renderer, printed, hint),
            session,
            tracker: CompletionTracker::new(target.clone()),
            menu: GateMenu::new("run"),
            approver,
            open_gates: 0,
            may_answer: target == WaitTarget::SessionEnd,
            target,
            deadline,
            exit_after_stop: None,
        }
    }

    /// Shows an item of the stream, and handles the gate that it opens. Returns the exit if the command ends with it.
    async fn handle_item(&mut self, item: TreeItem) -> Result<Option<Exit>, CommandFailure> {
        // If stdout is closed, the next notification ends the command.
        let shown = show_other_items(item, &mut self.display, self.conversation.terminal, &self.session);
        let Ok(Some(notification)) = shown else { return Ok(None) };
        let parsed = ParsedNotification::parse(&notification);
        self.count_gates(&parsed);
        let printed = self.display.show(&notification, &parsed);
        if self.exit_after_stop.is_none() {
            self.handle_gate(&parsed).await?;
        }
        if let Some(exit) = self.tracker.update(&parsed) {
            return Ok(Some(self.exit_after_stop.unwrap_or(exit)));
        }
        if printed.is_err() && self.exit_after_stop.is_none() {
            self.display.clear();
            self.conversation.detach(&self.session, "nobody reads the answer").await;
            return Ok(Some(Exit::Done));
        }
        Ok(None)
    }

    fn count_gates(&mut self, notification: &ParsedNotification) {
        let NotificationContent::Event(event) = &notification.content else { return };
        self.open_gates += usize::from(matches!(**event, Event::GateOpened(_)));
        self.open_gates = self.open_gates.saturating_sub(usize::from(matches!(**event, Event::GateClosed(_))));
    }

    /// Prompts for an opened gate or answers it, as the approver says.
    async fn handle_gate(&mut self, notification: &ParsedNotification) -> Result<(), CommandFailure> {
        let NotificationContent::Event(event) = &notification.content else { return Ok(()) };
        let gate = if let Event::GateOpened(gate) = &**event { Some(gate) } else { None };
        let conversation = self.conversation;
        match (&self.approver, gate) {
            (Approver::Person(_), _) => {
                let step = self.menu.update(notification, std::time::Instant::now());
                self.take_step(step).await;
            }
            (Approver::Policy(policy), Some(gate)) => {
                // A refusal is printed: another client was faster.
                let _is_accepted = conversation.send_answer(&self.session, policy.answer(gate)).await;
            }
            (Approver::Nobody, Some(gate)) => {
                let failure = conversation.approval_needed(&self.session, gate);
                if conversation.fleet_lifetime == FleetLifetime::ThisCommand && conversation.session.is_none() {
                    conversation.stop_session(&self.session, "there is no person to approve").await;
                }
                return Err(failure);
            }
            (Approver::Policy(_) | Approver::Nobody, None) | (Approver::Elsewhere, _) => {}
        }
        Ok(())
    }

    /// Passes a typed line to the menu. Without one stdin has ended, and somebody else may answer.
    async fn handle_typed_line(&mut self, line: Option<TypedLine>) {
        self.display.clear();
        match line {
            Some(line) => {
                let step = self.menu.interpret(&line.text, line.at);
                self.take_step(step).await;
            }
            None => self.approver = Approver::Elsewhere,
        }
    }

    /// Shows the lines of a menu, and sends its answer. A refused answer is asked for again.
    async fn take_step(&mut self, mut step: MenuStep) {
        let terminal = self.conversation.terminal;
        loop {
            for (style, line) in &step.lines {
                terminal.note(*style, line);
            }
            // The terminal edits no text, so the person reads what to change.
            if let Some(text) = &step.prefill {
                terminal.note(Style::Plain, text);
            }
            if !step.lines.is_empty() && self.menu.is_asking() {
                terminal.note(Style::Warn, self.menu.label().trim_end());
            }
            let Some(answer) = step.answer else { return };
            let gate = answer.gate.clone();
            if self.conversation.send_answer(&self.session, *answer).await {
                return;
            }
            step = self.menu.reopen(&gate, std::time::Instant::now());
        }
    }

    /// Leaves the session, or stops it if its fleet ends with this command. Returns the exit if the command ends now.
    async fn handle_interrupt(&mut self, interrupts: &mut Interrupts) -> Option<Exit> {
        let conversation = self.conversation;
        self.display.clear();
        if self.exit_after_stop.is_some() || conversation.fleet_lifetime == FleetLifetime::Independent {
            conversation.note_detached(&self.session);
            return Some(Exit::Interrupted);
        }
        if conversation.session.is_some() {
            let interrupted = interrupts.run_until_interrupted(conversation.interrupt_turn(&self.session)).await;
            if interrupted.is_none() {
                conversation.note_detached(&self.session);
            }
            return Some(Exit::Interrupted);
        }
        conversation.terminal.note(
            Style::Warn,
            "stopping the session, since its fleet ends with this command; Ctrl-C again leaves at once",
        );
        self.exit_after_stop = Some(Exit::Interrupted);
        self.deadline = Some(Instant::now() + STOP_MAX);
        let detached = interrupts.run_until_interrupted(conversation.detach(&self.session, "interrupted")).await;
        detached.is_none().then_some(Exit::Interrupted)
    }

    /// Ends the command at its deadline, unless a new session may still say its last word.
    async fn handle_deadline(&mut self) -> Option<Exit> {
        let conversation = self.conversation;
        self.display.clear();
        if self.exit_after_stop.is_some() {
            return self.exit_after_stop;
        }
        if self.open_gates == 0 && std::mem::take(&mut self.may_answer) {
            self.deadline = Some(Instant::now() + LAST_WORD_MAX);
            return None;
        }
        conversation.terminal.note(Style::Warn, "‼ no end within --timeout");
        if self.target == WaitTarget::SessionEnd {
            conversation.stop_session(&self.session, "no end within its time").await;
        } else {
            conversation.detach(&self.session, "no end within its time").await;
        }
        Some(Exit::Limit)
    }
}

/// Note for the user when the fleet answers again.
pub(super) const RESTORED: &str = "the fleet answers again; the session goes on";

/// Shows an item that is no notification of the session itself: lines of its children, or whether the fleet answers.
/// Returns the notification, if the item is one.
pub(super) fn show_other_items(
    item: TreeItem,
    display: &mut LiveDisplay<'_>,
    terminal: &Terminal,
    session: &str,
) -> Result<Option<Box<Notification>>, StdoutClosed> {
    match item {
        TreeItem::Session(WatchItem::Notification(notification)) => return Ok(Some(notification)),
        TreeItem::Children(outputs) => display.show_children(&outputs)?,
        TreeItem::Session(WatchItem::Lost { reason }) => {
            display.clear();
            report_outage(terminal, &reason, session);
            display.set_outage(Some(&reason));
        }
        TreeItem::Session(WatchItem::Restored) => {
            display.note(Style::Good, RESTORED);
            display.set_outage(None);
        }
    }
    Ok(None)
}

/// Prints that the command waits for the fleet, and how to return to the session later.
pub(super) fn report_outage(terminal: &Terminal, reason: &str, session: &str) {
    let wait = OUTAGE_MAX.as_secs();
    let line = format!("{reason}; waiting up to {wait} s for the fleet. To come back later:\n  ailoop watch {session}");
    terminal.note(Style::Warn, &line);
}

/// Adds help on how to return to the session, if the fleet could not be reached.
pub(super) fn add_reattach_help(
    failure: CommandFailure,
    fleet_lifetime: FleetLifetime,
    session: &str,
) -> CommandFailure {
    if failure.exit() != Exit::Unreachable {
        return failure;
    }
    let when = match fleet_lifetime {
        FleetLifetime::Independent => "when the fleet runs again (`ailoop up`)",
        FleetLifetime::ThisCommand => "with the next fleet in this directory (`ailoop up`)",
    };
    failure.help(format!("the session goes on {when}; `ailoop watch {session}` follows it"))
}

/// Pauses the turn of a session whose fleet ends with this command. If that fails, it returns the note for the person.
pub(super) async fn pause_at_exit(client: &EdgeClient, session: &str, reason: &str) -> Result<(), (Style, String)> {
    match timeout(EXIT_COMMAND_MAX, client.call(control_request(session, reason), SessionsApi::pause_session)).await {
        Ok(Ok(_)) => Ok(()),
        // The turn has ended, or the session is already paused.
        Ok(Err(failure)) if *failure.code() == ErrorCode::NotNow => Ok(()),
        Ok(Err(failure)) => Err((Style::Bad, failure.to_string())),
        Err(_) => Err((Style::Warn, "the fleet did not answer; the turn may go on with the next fleet".to_owned())),
    }
}

/// Waits for the next typed line; returns none at the end of stdin.
async fn next_typed_line(approver: &mut Approver) -> Option<TypedLine> {
    match approver {
        Approver::Person(lines) => lines.recv().await,
        Approver::Policy(_) | Approver::Elsewhere | Approver::Nobody => std::future::pending().await,
    }
}

async fn sleep_until_deadline(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Builds the settings of a new session, as `session.start` takes them.
fn start_options(args: &RunArgs, older: Option<&str>) -> Result<Map<String, Value>, CommandFailure> {
    let mut options = session_options(&args.settings, args.max_iterations, args.timeout)?;
    if let Some(older) = older {
        options.insert("resume_from".to_owned(), json!({"session_id": older}));
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, CliCommand};

    fn check(line: &[&str], expect: &Value) {
        let cli = Cli::parse_from(["ailoop", "run", "x"].iter().chain(line));
        let CliCommand::Run(args) = cli.command else { panic!("not run") };
        assert_eq!(&Value::Object(start_options(&args, None).unwrap()), expect);
    }

    #[test]
    fn start_options_hold_limits_of_the_command_line() {
        check(&[], &json!({}));
        check(&["--max-iterations", "3"], &json!({"continuation": {"max_iterations": 3}}));
        check(&["--timeout", "5m"], &json!({"continuation": {"timeout": 300}}));
    }
}
