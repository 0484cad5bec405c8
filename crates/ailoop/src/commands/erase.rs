//! `ailoop sessions rm`: erases sessions. It uses NATS directly, like `ailoop export`: no service may delete the log.

use std::sync::Arc;

use bus::Bus;
use bus::nats::NatsTransport;
use contract::subject::SessionKey;
use contract::{ErrorCode, SessionId};

use super::fleet_location::nats_config;
use super::selection::confirm;
use crate::args::SessionsRmArgs;
use crate::compose::parse_tenant;
use crate::erase::Eraser;
use crate::failure::{CommandFailure, Exit};
use crate::format;
use crate::terminal::{Style, Terminal};

pub(super) async fn erase_sessions(args: &SessionsRmArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let tenant = parse_tenant(&args.tenant)?;
    let parse = |id: &String| {
        let session = SessionId::new(id)
            .map_err(|_| CommandFailure::usage(ErrorCode::BadRequest, format!("{id:?} is not a valid session id")))?;
        Ok(SessionKey { tenant: tenant.clone(), session })
    };
    let keys = args.sessions.iter().map(parse).collect::<Result<Vec<_>, CommandFailure>>()?;
    let question = format!("{} will be erased for ever.", format::plural(keys.len() as u64, "session"));
    if !confirm(&question, args.yes, terminal)? {
        return Ok(Exit::Failed);
    }
    let config = nats_config(args.nats.as_ref())?;
    let nats = NatsTransport::connect(&config).await.map_err(|error| CommandFailure::from(error).at(&config.url))?;
    let nats = Arc::new(nats);
    let bus = Bus::new(nats.clone());
    let mut failures = 0;
    for key in &keys {
        match (Eraser { nats: &nats, bus: &bus, key }).erase().await {
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
    bus.close().await;
    if failures > 0 {
        terminal.note(Style::Bad, &format!("{failures} of {} sessions were not erased", keys.len()));
        return Ok(Exit::Failed);
    }
    Ok(Exit::Done)
}
