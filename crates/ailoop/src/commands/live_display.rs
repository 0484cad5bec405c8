//! Shows a session while it works: lines that stay, and at a terminal its plan and what it does below them.

use std::time::Duration;

use contract::event::Event;
use proto::Notification;
use session_view::chat::input::current_size;
use session_view::chat::plan_view::PlanView;
use session_view::chat::screen::{Region, Screen};
use session_view::chat::status_line::StatusLine;
use session_view::notification::{NotificationContent, ParsedNotification, to_json_line};
use session_view::render::{SessionRenderer, render_text};
use session_view::tool_summary::to_line;
use terminal::{Layout, Output, StdoutClosed, Style, Terminal};
use tokio::time::{Instant, sleep_until};

use crate::args::TRACE_URL;

/// Shortest time between two frames without finished lines.
pub(super) const FRAME_INTERVAL: Duration = Duration::from_millis(40);
/// Time between two frames while only the seconds of the status change.
pub(super) const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// Rows of the reply's last block that are shown before the block is complete.
pub(super) const PREVIEW_ROWS_MAX: usize = 12;
/// Rows of the plan.
pub(super) const PLAN_ROWS_MAX: usize = 6;

/// The lines of a session, and the rows below them.
pub(super) struct LiveDisplay<'a> {
    terminal: &'a Terminal,
    session: String,
    printed: Printed,
    renderer: SessionRenderer,
    /// None where rows cannot be redrawn.
    live: Option<LiveRows>,
}

/// The rows that are redrawn, and what they show.
struct LiveRows {
    screen: Screen,
    status: StatusLine,
    plan: PlanView,
    open_gates: usize,
    redraw_at: Option<Instant>,
    last_frame: Instant,
    is_drawn: bool,
}

/// Selection of the output that is printed for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Printed {
    /// Everything, as people read it.
    Everything,
    /// Only the answer of each turn.
    FinalAnswer,
    /// Every notification, as programs read it.
    Json,
}

/// Makes the renderer of a session for this terminal.
pub(super) fn make_renderer(terminal: &Terminal, session: &str) -> SessionRenderer {
    SessionRenderer::new(session, terminal.layout()).with_trace_url(configuration::env(TRACE_URL))
}

impl<'a> LiveDisplay<'a> {
    /// Makes the display of a session. `interrupt_hint` says what Ctrl-C does.
    pub(super) fn new(
        terminal: &'a Terminal,
        session: &str,
        renderer: SessionRenderer,
        printed: Printed,
        interrupt_hint: &'static str,
    ) -> Self {
        let live = (printed == Printed::Everything && terminal.can_redraw_rows()).then(|| {
            let status = StatusLine::new("", "", std::time::Instant::now()).with_interrupt_hint(interrupt_hint);
            LiveRows {
                screen: Screen::new(current_size(), terminal.has_styles()),
                status,
                plan: PlanView::default(),
                open_gates: 0,
                redraw_at: None,
                last_frame: Instant::now(),
                is_drawn: false,
            }
        });
        let renderer = if live.is_some() { renderer.without_retries() } else { renderer };
        Self { terminal, session: session.to_owned(), printed, renderer, live }
    }

    /// Prints what a notification says.
    pub(super) fn show(
        &mut self,
        notification: &Notification,
        parsed: &ParsedNotification,
    ) -> Result<(), StdoutClosed> {
        self.renderer.set_layout(self.terminal.layout());
        let outputs = self.renderer.render(parsed);
        match self.printed {
            Printed::Everything => {}
            Printed::Json => return self.terminal.print_json(&to_json_line(&self.session, notification)),
            Printed::FinalAnswer => return self.print_final_answer(parsed, &outputs),
        }
        let Some(live) = &mut self.live else { return self.terminal.print_outputs(&outputs) };
        live.update(parsed);
        let now = Instant::now();
        if outputs.is_empty() && now < live.last_frame + FRAME_INTERVAL {
            live.redraw_at = Some(live.last_frame + FRAME_INTERVAL);
            return Ok(());
        }
        self.draw(&outputs)
    }

    /// Returns the layout of lines about child sessions; none where only the session itself is printed.
    pub(super) fn child_layout(&self) -> Option<Layout> {
        (self.printed == Printed::Everything).then(|| self.terminal.layout())
    }

    /// Prints lines about child sessions.
    pub(super) fn show_children(&mut self, outputs: &[Output]) -> Result<(), StdoutClosed> {
        if self.live.is_some() { self.draw(outputs) } else { self.terminal.print_outputs(outputs) }
    }

    /// Prints the answer of a turn that has ended, and what people must know: warnings and failures.
    fn print_final_answer(&self, parsed: &ParsedNotification, outputs: &[Output]) -> Result<(), StdoutClosed> {
        let NotificationContent::Event(event) = &parsed.content else { return Ok(()) };
        if let Event::TurnCompleted(turn) = &**event {
            self.terminal.print_outputs(&render_text(self.terminal.layout(), &turn.final_response))?;
        }
        let is_important = |output: &&Output| matches!(output, Output::Note(Style::Warn | Style::Bad, _));
        let notes: Vec<Output> = outputs.iter().filter(is_important).cloned().collect();
        let is_about_session = matches!(&**event, Event::TurnCompleted(_) | Event::SessionEnded(_) | Event::Error(_));
        if is_about_session { self.terminal.print_outputs(&notes) } else { Ok(()) }
    }

    /// Prints a line that is no notification of the session.
    pub(super) fn note(&mut self, style: Style, text: &str) {
        self.clear();
        self.terminal.note(style, text);
    }

    /// Says why the fleet cannot be reached, or that it can again.
    pub(super) fn set_outage(&mut self, reason: Option<&str>) {
        if let Some(live) = &mut self.live {
            live.status.set_outage(reason.map(to_line));
        }
    }

    /// Waits until the rows must be drawn again.
    pub(super) async fn wait_for_redraw(&self) {
        match self.live.as_ref().and_then(|live| live.redraw_at) {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Draws the rows again.
    pub(super) fn redraw(&mut self) -> Result<(), StdoutClosed> {
        self.draw(&[])
    }

    /// Removes the rows, so that something else can be printed.
    pub(super) fn clear(&mut self) {
        let Some(live) = &mut self.live else { return };
        if std::mem::replace(&mut live.is_drawn, false) {
            // Nobody reads a stdout that is closed.
            let _closed = Terminal::print_frame(&live.screen.frame(&[], &Region::default()));
        }
    }

    fn draw(&mut self, outputs: &[Output]) -> Result<(), StdoutClosed> {
        let Some(live) = &mut self.live else { return Ok(()) };
        live.screen.resize(current_size());
        let rows = live.rows(&self.renderer);
        let cursor = (rows.len().saturating_sub(1), 0);
        live.is_drawn = !rows.is_empty();
        live.last_frame = Instant::now();
        live.redraw_at = live.status.is_working().then(|| live.last_frame + STATUS_INTERVAL);
        Terminal::print_frame(&live.screen.frame(outputs, &Region { rows, cursor }))
    }
}

impl Drop for LiveDisplay<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl LiveRows {
    fn update(&mut self, parsed: &ParsedNotification) {
        self.status.set_outage(None);
        self.status.update(parsed, std::time::Instant::now());
        self.plan.update(parsed);
        let NotificationContent::Event(event) = &parsed.content else { return };
        if matches!(&**event, Event::GateOpened(_)) {
            self.open_gates += 1;
        }
        if matches!(&**event, Event::GateClosed(_)) {
            self.open_gates = self.open_gates.saturating_sub(1);
        }
    }

    /// While a gate is open there are none: the person types an answer there.
    fn rows(&self, renderer: &SessionRenderer) -> Vec<Output> {
        if self.open_gates > 0 {
            return Vec::new();
        }
        let preview = renderer.preview();
        let skipped = preview.len().saturating_sub(PREVIEW_ROWS_MAX);
        let mut rows: Vec<Output> = preview.into_iter().skip(skipped).map(Output::Line).collect();
        let plan = self.plan.lines(PLAN_ROWS_MAX).into_iter();
        rows.extend(plan.map(|(style, line)| Output::Note(style, line)));
        rows.push(Output::Note(Style::Faint, self.status.format(false, std::time::Instant::now())));
        rows
    }
}
