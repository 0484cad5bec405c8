//! `ailoop bootstrap`: makes the streams once, so that services need no right to.

use bus::Bus;
use service::config::Settings;

use crate::failure::{Exit, Failure};
use crate::terminal::Terminal;

pub(super) async fn bootstrap(fix: bool, terminal: &Terminal) -> Result<Exit, Failure> {
    let nats = Settings::read(None)?.common()?.nats;
    let at = |error: bus::BusError| Failure::from(error).at(&nats.url);
    let bus = Bus::connect(&nats).await.map_err(at)?;
    let made = if fix { bus.repair().await } else { bus.ensure().await };
    bus.close().await;
    made.map_err(at)?;
    Ok(super::finish(terminal.data("every stream, consumer and bucket is there\n")))
}
