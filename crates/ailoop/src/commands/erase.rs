//! `ailoop sessions rm`: erases sessions. It uses NATS directly, like `ailoop export`: no service may delete the log.

use std::sync::Arc;

use bus::nats::NatsTransport;
use bus::{Bus, Read};
use contract::subject::SessionKey;
use store_admin::erase::Eraser;
use terminal::failure::{CommandFailure, Exit};
use terminal::format;
use terminal::{Style, Terminal};

use super::cells::nats_of_tenant;
use super::selection::confirm;
use super::session_reference::parse_whole_id;
use crate::args::SessionsRmArgs;
use crate::compose::parse_tenant;

pub(super) async fn erase_sessions(args: &SessionsRmArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let tenant = parse_tenant(&args.tenant)?;
    let parse = |id: &String| Ok(SessionKey { tenant: tenant.clone(), session: parse_whole_id(id)? });
    let keys = args.sessions.iter().map(parse).collect::<Result<Vec<_>, CommandFailure>>()?;
    let question = format!("{} will be erased for ever.", format::plural(keys.len() as u64, "session"));
    if !confirm(&question, args.yes, terminal)? {
        return Ok(Exit::Failed);
    }
    // A session that was moved has left something in each cell where it was.
    let mut stores = Vec::new();
    for config in nats_of_tenant(&args.nats, &tenant)? {
        let nats = NatsTransport::connect(&config)
            .await
            .map_err(|error| CommandFailure::from(error).at(config.shown_url()))?;
        let nats = Arc::new(nats);
        stores.push((Bus::new(nats.clone()), nats));
    }
    let mut failures = 0;
    for key in &keys {
        match erase_everywhere(&stores, key).await {
            Ok(erased) => {
                let line = match erased {
                    0 => format!("{}\tnothing was left\n", key.session),
                    erased => format!("{}\t{} erased\n", key.session, format::plural(erased, "message")),
                };
                if terminal.print_data(&line).is_err() {
                    break;
                }
            }
            Err(failure) => {
                failures += 1;
                terminal.print_failure(&failure.at(key));
            }
        }
    }
    for (bus, _) in &stores {
        bus.close().await;
    }
    if failures > 0 {
        terminal.note(Style::Bad, &format!("{failures} of {} sessions were not erased", keys.len()));
        return Ok(Exit::Failed);
    }
    Ok(Exit::Done)
}

/// Erases a session in the cell that has it, and then the pointers to it in other cells. Returns the number of
/// messages.
async fn erase_everywhere(stores: &[(Bus, Arc<NatsTransport>)], key: &SessionKey) -> Result<u64, CommandFailure> {
    let (mut here, mut elsewhere) = (Vec::new(), Vec::new());
    for store in stores {
        let was_moved = store.0.head(key, Read::Leader).await?.is_some_and(|head| head.meta.moved.is_some());
        if was_moved { elsewhere.push(store) } else { here.push(store) }
    }
    let mut erased = 0;
    for (bus, nats) in here.into_iter().chain(elsewhere) {
        erased += (Eraser { nats, bus, key }).erase().await?;
    }
    Ok(erased)
}
