//! One chat: the events of its session, the input of the person, and the requests that follow.

use std::time::{Duration, Instant};

use ailoop_client::WatchItem;
use contract::ErrorCode;
use contract::event::Event;
use fleet_connection::client::{EdgeClient, SessionsApi, command_id};
use proto::{GetSessionRequest, SessionSummary};
use session_view::chat::gate_menu::{GateMenu, MenuStep};
use session_view::chat::input::UserInput;
use session_view::chat::plan_view::PlanView;
use session_view::chat::slash_command::{self, COMMANDS, CompletionValues, SlashCommand};
use session_view::chat::status_line::{Activity, StatusLine};
use session_view::gate_prompt::TypedLine;
use session_view::notification::{NotificationContent, ParsedNotification};
use session_view::render::SessionRenderer;
use session_view::tool_summary::to_line;
use terminal::failure::{CommandFailure, Exit};
use terminal::table::TableWidth;
use terminal::{Output, Style, Terminal};
use tokio::time::{sleep, sleep_until};

use super::display::{Display, RegionContent};
use super::jobs::{self, JobOutcome, Jobs, NewSession};
use crate::args::{ChatArgs, TRACE_URL};
use crate::commands::control::ControlVerb;
use crate::commands::conversation::{FleetLifetime, RESTORED, pause_at_exit};
use crate::commands::live_display::{FRAME_INTERVAL, PLAN_ROWS_MAX, STATUS_INTERVAL};
use crate::commands::session_tree::{SessionTree, TreeItem};
use crate::signals::{Interruption, Interrupts};

/// Pause before a lost stream is opened again, after its own retries.
const REOPEN_PAUSE: Duration = Duration::from_secs(2);
const KEYS: &str = "\
Enter sends, also while the agent works: it reads the message at its next step
Alt+Enter, or a backslash before Enter: a new line
Ctrl-C cancels the turn; Ctrl-D leaves, and the session is kept
Up and Down: earlier messages; Tab completes commands";

/// A chat with at most one session at a time.
pub(super) struct ChatConversation<'a> {
    client: EdgeClient,
    lifetime: FleetLifetime,
    display: Display<'a>,
    /// Parameters of the next session.
    next: NewSession,
    session: Option<OpenSession>,
    jobs: Jobs,
    values: CompletionValues,
    /// Lines for the next frame.
    outputs: Vec<Output>,
    exit: Option<Exit>,
    has_input_ended: bool,
}

/// The session of the chat.
struct OpenSession {
    id: String,
    stream: SessionTree,
    /// The next event to read after the stream was lost.
    next_seq: u64,
    renderer: SessionRenderer,
    status: StatusLine,
    plan: PlanView,
    gates: GateMenu,
    /// Messages that the model has not read yet, by their ids.
    pending: Vec<(String, String)>,
    /// The last event before the chat came; only the last turn up to it is shown.
    replay_until: u64,
}

impl OpenSession {
    fn is_replaying(&self) -> bool {
        self.next_seq <= self.replay_until
    }
}

impl<'a> ChatConversation<'a> {
    pub(super) fn open(
        args: &ChatArgs,
        client: EdgeClient,
        terminal: &'a Terminal,
        lifetime: FleetLifetime,
    ) -> Result<Self, CommandFailure> {
        let display = Display::open(terminal)?;
        let mut jobs = Jobs::default();
        let mut outputs = Vec::new();
        if display.is_redrawn() {
            jobs.push(jobs::fetch_values(client.clone()));
            let hint = "Type a message. /help: commands and keys. Ctrl-D: leave.";
            outputs.push(Output::Note(Style::Faint, hint.to_owned()));
        }
        let next = NewSession { agent: args.agent.clone(), model: args.model.clone(), ..NewSession::default() };
        let values = CompletionValues::default();
        Ok(Self {
            client,
            lifetime,
            display,
            next,
            session: None,
            jobs,
            values,
            outputs,
            exit: None,
            has_input_ended: false,
        })
    }

    /// Goes on with a session, or with a copy of it if it has ended.
    pub(super) async fn attach_known(&mut self, session: &str) -> Result<(), CommandFailure> {
        let request = GetSessionRequest { session_id: session.to_owned() };
        let info = self.client.call(request, SessionsApi::get_session).await?;
        if self.next.agent.is_some() || self.next.model.is_some() {
            let message = format!("the session {session} has an agent and a model already");
            return Err(CommandFailure::usage(ErrorCode::BadRequest, message)
                .help("leave --agent and --model out, and change them with /agent and /model"));
        }
        self.attach(session, Some(&info));
        Ok(())
    }

    fn attach(&mut self, session: &str, info: Option<&SessionSummary>) {
        let (agent, model) = info.map_or(("", ""), |info| (info.agent.as_str(), info.model.as_str()));
        let renderer = SessionRenderer::new(session, self.display.layout())
            .without_gates()
            .with_trace_url(configuration::env(TRACE_URL));
        // Where the person types lines, the terminal shows them already.
        let is_redrawn = self.display.is_redrawn();
        let renderer = if is_redrawn { renderer.with_user_messages().without_retries() } else { renderer };
        self.session = Some(OpenSession {
            id: session.to_owned(),
            stream: SessionTree::new(self.client.clone(), session, 1, Some(self.display.layout()))
                .with_replay_until(info.map_or(0, |info| info.seq)),
            next_seq: 1,
            renderer,
            status: StatusLine::new(agent, model, Instant::now()),
            plan: PlanView::default(),
            gates: GateMenu::new("chat"),
            pending: Vec::new(),
            replay_until: info.map_or(0, |info| info.seq),
        });
    }

    /// Runs the chat until the person leaves.
    pub(super) async fn run(mut self, interrupts: &mut Interrupts) -> Result<Exit, CommandFailure> {
        let result = self.follow(interrupts).await;
        let outputs = std::mem::take(&mut self.outputs);
        self.display.close(&outputs);
        result?;
        self.leave().await;
        let outputs = std::mem::take(&mut self.outputs);
        self.display.close(&outputs);
        Ok(self.exit.unwrap_or(Exit::Done))
    }

    async fn follow(&mut self, interrupts: &mut Interrupts) -> Result<(), CommandFailure> {
        let mut last_frame = Instant::now();
        let mut is_dirty = true;
        while self.exit.is_none() {
            let is_working = self.session.as_ref().is_some_and(|session| session.status.is_working());
            let pause = if is_dirty { FRAME_INTERVAL } else { STATUS_INTERVAL };
            // Programs that write to stdin are read at the pace of the session.
            let takes_input = self.display.is_redrawn() || !self.is_busy();
            tokio::select! {
                item = next_item(self.session.as_mut()) => {
                    self.handle_item(item).await?;
                    is_dirty = true;
                }
                input = self.display.next_input(&self.values), if takes_input && !self.has_input_ended => {
                    self.handle_input(input);
                    is_dirty = true;
                    // Keys are shown at once.
                    last_frame = Instant::now().checked_sub(FRAME_INTERVAL).unwrap_or(last_frame);
                }
                outcome = self.jobs.next() => {
                    self.handle_outcome(outcome);
                    is_dirty = true;
                }
                interruption = interrupts.next_kind() => {
                    match interruption {
                        Interruption::Interrupt => self.interrupt(),
                        Interruption::Terminate => self.exit = Some(Exit::Interrupted),
                    }
                    is_dirty = true;
                }
                () = sleep_until((last_frame + pause).into()), if is_dirty || is_working => {
                    self.draw();
                    (last_frame, is_dirty) = (Instant::now(), false);
                }
            }
            if is_dirty && last_frame.elapsed() >= FRAME_INTERVAL {
                self.draw();
                (last_frame, is_dirty) = (Instant::now(), false);
            }
            if self.has_input_ended && !self.is_busy() {
                self.exit = Some(Exit::Done);
            }
        }
        Ok(())
    }

    /// Whether a turn runs that waits for no answer, or a request does.
    fn is_busy(&self) -> bool {
        let session = self.session.as_ref();
        let is_running =
            session.is_some_and(|open| open.is_replaying() || open.status.is_working() || !open.pending.is_empty());
        let is_asking = session.is_some_and(|open| open.gates.is_asking());
        !self.jobs.is_empty() || (is_running && !is_asking)
    }

    fn draw(&mut self) {
        let outputs = std::mem::take(&mut self.outputs);
        let content = self.region_content();
        if self.display.show(&outputs, &content).is_err() {
            self.exit = Some(Exit::Done);
        }
    }

    fn region_content(&self) -> RegionContent {
        let Some(session) = &self.session else {
            let status = if self.next.fork_of.is_some() { "ready · a copy of the session" } else { "ready" };
            return RegionContent { status: status.to_owned(), ..RegionContent::default() };
        };
        let is_asking = session.gates.is_asking();
        RegionContent {
            preview: if session.is_replaying() { Vec::new() } else { session.renderer.preview() },
            plan: if session.is_replaying() || is_asking { Vec::new() } else { session.plan.lines(PLAN_ROWS_MAX) },
            pending: session.pending.iter().map(|(_, text)| to_line(text)).collect(),
            status: session.status.format(is_asking, Instant::now()),
            status_style: is_asking.then_some(Style::Warn),
            label: is_asking.then(|| session.gates.label()),
        }
    }

    fn note(&mut self, style: Style, text: impl Into<String>) {
        self.outputs.push(Output::Note(style, text.into()));
    }

    async fn handle_item(&mut self, item: Result<Option<TreeItem>, CommandFailure>) -> Result<(), CommandFailure> {
        let Some(session) = &mut self.session else { return Ok(()) };
        match item {
            Ok(Some(TreeItem::Children(outputs))) => self.outputs.extend(outputs),
            Ok(Some(TreeItem::Session(WatchItem::Notification(notification)))) => {
                let parsed = ParsedNotification::parse(&notification);
                self.apply(&parsed);
            }
            Ok(Some(TreeItem::Session(WatchItem::Lost { reason }))) => {
                session.status.set_outage(Some(to_line(&reason)));
                let id = session.id.clone();
                self.note(Style::Warn, format!("{reason}; trying again. To come back later:\n  ailoop chat {id}"));
            }
            Ok(Some(TreeItem::Session(WatchItem::Restored))) => {
                session.status.set_outage(None);
                self.note(Style::Good, RESTORED);
            }
            Ok(None) => {
                let id = session.id.clone();
                self.session = None;
                self.note(Style::Plain, format!("session {id} has ended; your next message goes on in a copy of it"));
                self.next = NewSession { fork_of: Some(id), ..NewSession::default() };
            }
            // A person waits as long as they like; only they end a chat.
            Err(failure) if failure.exit() == Exit::Unreachable => {
                session.status.set_outage(Some(to_line(failure.message())));
                session.stream.reopen(session.next_seq);
                self.draw();
                sleep(REOPEN_PAUSE).await;
            }
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    fn apply(&mut self, parsed: &ParsedNotification) {
        let Some(session) = &mut self.session else { return };
        let now = Instant::now();
        session.status.set_outage(None);
        session.renderer.set_layout(self.display.layout());
        session.stream.set_layout(self.display.layout());
        if let NotificationContent::Event(event) = &parsed.content
            && let Event::UserProcessed(message) = &**event
        {
            session.pending.retain(|(id, _)| id != message.message_id.as_str());
            // Of what was before the chat came, only the last turn is shown.
            if session.is_replaying() && !session.status.is_working() {
                self.outputs.clear();
            }
        }
        session.status.update(parsed, now);
        session.plan.update(parsed);
        self.outputs.extend(session.renderer.render(parsed));
        let step = session.gates.update(parsed, now);
        session.next_seq = parsed.seq.map_or(session.next_seq, |seq| seq + 1);
        self.take_step(step);
    }

    /// Shows the lines of a menu, and sends its answer.
    fn take_step(&mut self, step: MenuStep) {
        self.outputs.extend(step.lines.into_iter().map(|(style, line)| Output::Note(style, line)));
        if let Some(text) = step.prefill {
            self.display.prefill(&text);
        }
        if let (Some(answer), Some(session)) = (step.answer, &self.session) {
            self.jobs.push(jobs::answer(self.client.clone(), session.id.clone(), *answer));
        }
    }

    fn handle_input(&mut self, input: UserInput) {
        match input {
            UserInput::Line(line) => self.handle_line(&line),
            UserInput::Interrupt => self.interrupt(),
            UserInput::End if self.display.is_redrawn() => self.exit = Some(Exit::Done),
            UserInput::End => {
                self.has_input_ended = true;
                if self.session.as_ref().is_some_and(|session| session.gates.is_asking()) {
                    self.exit = Some(Exit::ApprovalNeeded);
                }
            }
            UserInput::Changed => {}
        }
    }

    /// Cancels the turn; without one, forgets the typed text.
    fn interrupt(&mut self) {
        let working = self.session.as_ref().filter(|session| session.status.is_working());
        if let Some(session) = working {
            self.jobs.push(jobs::control(self.client.clone(), session.id.clone(), ControlVerb::CancelTurn));
            self.note(Style::Warn, "cancelling the turn");
        } else if !self.display.clear_input() {
            self.note(Style::Faint, "no turn runs; Ctrl-D leaves");
        }
    }

    fn handle_line(&mut self, line: &TypedLine) {
        match slash_command::parse(&line.text) {
            Some(Ok(command)) => return self.run_command(command),
            Some(Err(why)) => return self.note(Style::Warn, why),
            None => {}
        }
        if let Some(session) = &mut self.session
            && session.gates.is_asking()
        {
            let step = session.gates.interpret(&line.text, line.at);
            return self.take_step(step);
        }
        let text = line.text.trim();
        if text.is_empty() {
            return;
        }
        let Some(session) = &mut self.session else {
            let new = NewSession { prompt: text.to_owned(), ..std::mem::take(&mut self.next) };
            return self.jobs.push(jobs::start(self.client.clone(), new));
        };
        let message_id = command_id();
        session.pending.push((message_id.clone(), text.to_owned()));
        session.status.record_send(Instant::now());
        let is_paused = session.status.activity() == Activity::Paused;
        self.jobs.push(jobs::send(self.client.clone(), session.id.clone(), message_id, text.to_owned()));
        if is_paused {
            self.note(Style::Warn, "the session is paused; /resume goes on");
        }
    }

    fn run_command(&mut self, command: SlashCommand) {
        let client = self.client.clone();
        match command {
            SlashCommand::Help => self.show_help(),
            SlashCommand::Quit => self.exit = Some(Exit::Done),
            SlashCommand::Sessions => self.jobs.push(jobs::list_sessions(client)),
            SlashCommand::Tools => self.jobs.push(jobs::list_tools(client)),
            SlashCommand::Model(None) => self.jobs.push(jobs::list_values(client, true)),
            SlashCommand::Agent(None) => self.jobs.push(jobs::list_values(client, false)),
            SlashCommand::Model(Some(model)) => self.configure(Some(model), None),
            SlashCommand::Agent(Some(agent)) => self.configure(None, Some(agent)),
            SlashCommand::Cost => self.with_session(jobs::show_cost),
            SlashCommand::Fork => self.with_session(|client, id| {
                jobs::start(client, NewSession { fork_of: Some(id), ..NewSession::default() })
            }),
            SlashCommand::Pause => self.control(ControlVerb::Pause),
            SlashCommand::Resume => self.control(ControlVerb::Resume),
            SlashCommand::Cancel => self.control(ControlVerb::CancelTurn),
            SlashCommand::Stop => self.control(ControlVerb::Stop),
            SlashCommand::Clear => self.with_session(jobs::clear),
        }
    }

    fn control(&mut self, verb: ControlVerb) {
        self.with_session(move |client, id| jobs::control(client, id, verb));
    }

    fn with_session<F>(&mut self, job: impl FnOnce(EdgeClient, String) -> F)
    where
        F: Future<Output = Result<JobOutcome, CommandFailure>> + 'static,
    {
        match &self.session {
            Some(session) => self.jobs.push(job(self.client.clone(), session.id.clone())),
            None => self.note(Style::Warn, "there is no session yet: it begins with your first message"),
        }
    }

    /// Sets model or agent, of the session or of the one that begins with the next message.
    fn configure(&mut self, model: Option<String>, agent: Option<String>) {
        if let Some(session) = &self.session {
            let job = jobs::configure(self.client.clone(), session.id.clone(), model, agent);
            return self.jobs.push(job);
        }
        let what = model.as_ref().map_or("agent", |_| "model");
        let value = model.as_ref().or(agent.as_ref()).cloned().unwrap_or_default();
        self.next.model = model.or(self.next.model.take());
        self.next.agent = agent.or(self.next.agent.take());
        self.note(Style::Plain, format!("the session begins with the {what} {value}"));
    }

    fn show_help(&mut self) {
        for (name, value, what) in COMMANDS {
            let command = format!("/{name} {value}");
            self.note(Style::Plain, format!("  {command:<16} {what}"));
        }
        for line in KEYS.lines() {
            self.note(Style::Plain, format!("  {line}"));
        }
    }

    fn handle_outcome(&mut self, outcome: JobOutcome) {
        match outcome {
            JobOutcome::Text(text) => self.note(Style::Plain, text),
            JobOutcome::Table(table) => {
                // The last column stays free, as in the region.
                let width = TableWidth::Terminal(self.display.layout().columns.saturating_sub(1));
                self.outputs.extend(table.lines(width).into_iter().map(Output::Line));
            }
            JobOutcome::Done => {}
            JobOutcome::Started(session) => {
                self.attach(&session, None);
                if let Some(session) = &mut self.session {
                    session.status.record_send(Instant::now());
                }
            }
            JobOutcome::Stopped => self.exit = Some(Exit::Done),
            JobOutcome::Values(values) => self.values = values,
            JobOutcome::Failed(failure) => self.note(Style::Bad, failure.to_string()),
            JobOutcome::Refused { gate, failure } => {
                self.note(Style::Bad, failure.to_string());
                if let Some(session) = &mut self.session {
                    let step = session.gates.reopen(&gate, Instant::now());
                    self.take_step(step);
                }
            }
            JobOutcome::NotSent { message_id, failure } => {
                self.note(Style::Bad, failure.to_string());
                let Some(session) = &mut self.session else { return };
                let Some(index) = session.pending.iter().position(|(id, _)| *id == message_id) else { return };
                let (_, text) = session.pending.remove(index);
                self.display.prefill(&text);
            }
        }
    }

    /// Says how to come back. A turn whose fleet ends with this command is paused, so that the next one does not go on
    /// with it unseen.
    async fn leave(&mut self) {
        let Some(session) = &self.session else { return };
        if session.status.activity() == Activity::Ended {
            return;
        }
        let id = session.id.clone();
        let is_working = session.status.is_working();
        let ends = self.lifetime == FleetLifetime::ThisCommand;
        if ends
            && is_working
            && session.status.activity() != Activity::Paused
            && let Err((style, why)) = pause_at_exit(&self.client, &id, "the chat was left").await
        {
            self.note(style, why);
        }
        let what = match (is_working, ends) {
            (true, true) => "the turn is paused",
            (true, false) => "the session goes on",
            (false, _) => "the session is kept",
        };
        self.note(Style::Plain, format!("left; {what}. To come back:\n  ailoop chat {id}"));
    }
}

/// Waits for the next item of the session; without a session it never returns.
async fn next_item(session: Option<&mut OpenSession>) -> Result<Option<TreeItem>, CommandFailure> {
    match session {
        Some(session) => session.stream.next().await,
        None => std::future::pending().await,
    }
}
