//! `ailoop watch`: shows a session from its beginning to its end.

use fleet_connection::client::{EdgeClient, SessionsApi};
use proto::GetSessionRequest;
use session_view::completion::{CompletionTracker, WaitTarget};
use session_view::notification::ParsedNotification;
use terminal::failure::{CommandFailure, Exit};
use terminal::{StdoutClosed, Terminal};

use super::conversation::{FleetLifetime, add_reattach_help, show_other_items};
use super::live_display::{LiveDisplay, Printed, make_renderer};
use super::reading::read_session;
use super::session_reference::connect_to_session;
use super::session_tree::SessionTree;
use crate::args::WatchArgs;
use crate::signals::Interrupts;

pub(super) async fn watch_session(args: &WatchArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let mut interrupts = Interrupts::listen()?;
    if args.no_follow {
        return read_session(&args.target, &args.session, terminal, async |client, session| {
            let request = GetSessionRequest { session_id: session.clone() };
            let last = client.call(request, SessionsApi::get_session).await?.seq;
            show_events(args, client, &session, Some(last), terminal, &mut interrupts).await
        })
        .await;
    }
    let (client, session) = connect_to_session(&args.target, &args.session).await?;
    show_events(args, client, &session, None, terminal, &mut interrupts).await
}

/// Shows the events of a session up to `last_seq`, else up to its end.
async fn show_events(
    args: &WatchArgs,
    client: EdgeClient,
    session: &str,
    last_seq: Option<u64>,
    terminal: &Terminal,
    interrupts: &mut Interrupts,
) -> Result<Exit, CommandFailure> {
    if last_seq.is_some_and(|last| last < args.from) {
        return Ok(Exit::Done);
    }
    let mut tracker = CompletionTracker::new(WaitTarget::SessionEnd);
    let renderer = make_renderer(terminal, session).with_user_messages();
    let printed = if args.json { Printed::Json } else { Printed::Everything };
    let mut display = LiveDisplay::new(terminal, session, renderer, printed, "Ctrl-C leaves");
    let mut stream = SessionTree::new(client, session, args.from, display.child_layout());
    loop {
        stream.set_layout(terminal.layout());
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
        let next = next.map_err(|failure| add_reattach_help(failure, FleetLifetime::Independent, session))?;
        let Some(item) = next else { return Ok(Exit::Done) };
        let notification = match show_other_items(item, &mut display, terminal, session) {
            Ok(Some(notification)) => notification,
            Ok(None) => continue,
            Err(StdoutClosed) => return Ok(Exit::Done),
        };
        let parsed = ParsedNotification::parse(&notification);
        let printed = display.show(&notification, &parsed);
        let is_last = last_seq.is_some_and(|last| parsed.seq.is_some_and(|seq| seq >= last));
        if is_last || printed.is_err() || tracker.update(&parsed).is_some() {
            return Ok(Exit::Done);
        }
    }
}
