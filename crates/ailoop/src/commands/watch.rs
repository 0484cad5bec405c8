//! `ailoop watch`: shows a session from its beginning to its end.

use super::conversation::{FleetLifetime, RESTORED, add_reattach_help, report_outage};
use super::fleet_location::connect;
use super::live_display::{LiveDisplay, make_renderer};
use super::session_reference::resolve_session;
use crate::args::WatchArgs;
use crate::client;
use crate::completion::{CompletionTracker, WaitTarget};
use crate::failure::{CommandFailure, Exit};
use crate::notification::ParsedNotification;
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
    let renderer = make_renderer(terminal, &session).with_user_messages();
    let mut display = LiveDisplay::new(terminal, &session, renderer, args.json, "Ctrl-C leaves");
    loop {
        let next = tokio::select! {
            next = stream.next() => next,
            () = interrupts.next() => return Ok(Exit::Interrupted),
            () = display.wait_for_redraw() => {
                if display.redraw().is_err() {
                    return Ok(Exit::Done);
                }
                continue;
            }
        };
        let notification =
            match next.map_err(|failure| add_reattach_help(failure, FleetLifetime::Independent, &session))? {
                Some(WatchItem::Notification(notification)) => notification,
                Some(WatchItem::Lost { reason }) => {
                    display.clear();
                    report_outage(terminal, &reason, &session);
                    display.set_outage(Some(&reason));
                    continue;
                }
                Some(WatchItem::Restored) => {
                    display.note(Style::Good, RESTORED);
                    display.set_outage(None);
                    continue;
                }
                None => return Ok(Exit::Done),
            };
        let parsed = ParsedNotification::parse(&notification);
        let printed = display.show(&notification, &parsed);
        if printed.is_err() || tracker.update(&parsed).is_some() {
            return Ok(Exit::Done);
        }
    }
}
