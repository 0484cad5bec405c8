//! `ailoop watch`: shows a session from its beginning to its end.

use super::conversation::{FleetLifetime, RESTORED, add_reattach_help, report_outage};
use super::fleet_location::connect;
use super::session_reference::resolve_session;
use crate::args::WatchArgs;
use crate::client;
use crate::completion::{CompletionTracker, WaitTarget};
use crate::failure::{CommandFailure, Exit};
use crate::notification::{ParsedNotification, to_json_line};
use crate::render::SessionRenderer;
use crate::signals::Interrupts;
use crate::stream::SessionStream;
use crate::terminal::{Style, Terminal};
use ailoop_client::WatchItem;

pub(super) async fn watch_session(args: &WatchArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let session = client::session_id(&args.session)?;
    let mut interrupts = Interrupts::listen()?;
    let client = connect(&args.target).await?;
    let session = resolve_session(&client, &session).await?;
    let mut stream = SessionStream::new(client, &session, args.from, true);
    let mut tracker = CompletionTracker::new(WaitTarget::SessionEnd);
    let mut renderer = SessionRenderer::new(&session, terminal.layout(), true);
    loop {
        let Some(next) = interrupts.run_until_interrupted(stream.next()).await else { return Ok(Exit::Interrupted) };
        let notification =
            match next.map_err(|failure| add_reattach_help(failure, FleetLifetime::Independent, &session))? {
                Some(WatchItem::Notification(notification)) => notification,
                Some(WatchItem::Lost { reason }) => {
                    report_outage(terminal, &reason, &session);
                    continue;
                }
                Some(WatchItem::Restored) => {
                    terminal.note(Style::Good, RESTORED);
                    continue;
                }
                None => return Ok(Exit::Done),
            };
        let parsed = ParsedNotification::parse(&notification);
        renderer.set_layout(terminal.layout());
        let outputs = renderer.render(&parsed);
        let printed = if args.json {
            terminal.print_json(&to_json_line(&session, &notification))
        } else {
            terminal.print_outputs(&outputs)
        };
        if printed.is_err() || tracker.update(&parsed).is_some() {
            return Ok(Exit::Done);
        }
    }
}
