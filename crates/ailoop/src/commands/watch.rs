//! `ailoop watch`: a session from its beginning to its end.

use super::converse::{Ends, RESTORED, report_outage, way_back};
use crate::args::WatchArgs;
use crate::client;
use crate::failure::{Exit, Failure};
use crate::follow::{Follow, Until};
use crate::heard::{Heard, json_line};
use crate::render::Render;
use crate::signals::Interrupts;
use crate::stream::{Stream, StreamEvent};
use crate::terminal::{Style, Terminal};

pub(super) async fn watch(args: &WatchArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let session = client::session_id(&args.session)?;
    let mut interrupts = Interrupts::listen()?;
    let client = super::connect(&args.target).await?;
    let mut stream = Stream::new(client, session.clone(), args.from, true);
    let mut follow = Follow::new(Until::SessionEnds);
    let mut render = Render::new(&session, terminal.is_live(), true);
    loop {
        let Some(next) = interrupts.unless(stream.next()).await else { return Ok(Exit::Interrupted) };
        let notification = match next.map_err(|failure| way_back(failure, Ends::FleetGoesOn, &session))? {
            Some(StreamEvent::Notification(notification)) => notification,
            Some(StreamEvent::Lost { reason }) => {
                report_outage(terminal, &reason, &session);
                continue;
            }
            Some(StreamEvent::Restored) => {
                terminal.note(Style::Good, RESTORED);
                continue;
            }
            None => return Ok(Exit::Done),
        };
        let heard = Heard::read(&notification);
        let shown = render.on(&heard);
        let printed =
            if args.json { terminal.json(&json_line(&session, &notification)) } else { terminal.show(&shown) };
        if printed.is_err() || follow.on(&heard).is_some() {
            return Ok(Exit::Done);
        }
    }
}
