//! `ailoop bootstrap`: creates the streams once, so that services need no permission to do so.

use bus::Bus;
use configuration::Settings;
use service::common::CommonSettings;

use super::output::finish;
use crate::failure::{CommandFailure, Exit};
use crate::terminal::Terminal;

pub(super) async fn ensure_streams(fix: bool, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let nats = CommonSettings::read(&Settings::read(None)?)?.nats;
    let at = |error: bus::BusError| CommandFailure::from(error).at(&nats.url);
    let bus = Bus::connect(&nats).await.map_err(at)?;
    let ensured = if fix { bus.repair().await } else { bus.ensure().await };
    bus.close().await;
    ensured.map_err(at)?;
    Ok(finish(terminal.print_data("every stream, consumer and bucket is there\n")))
}
