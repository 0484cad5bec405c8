//! Commands that only read: they use the fleet that runs, else the store that the last fleet of this directory left.

use bus::{Bus, NatsConfig};
use contract::ErrorCode;
use fleet_connection::client::{self, EdgeClient};
use fleet_connection::instance::Home;
use local_fleet::LocalStore;
use terminal::failure::{CommandFailure, Exit};
use terminal::{Style, Terminal};

use super::fleet_location::{find_fleet, is_nats_named, no_fleet};
use super::session_reference::find_session;
use crate::args::{FleetTarget, NatsArgs, SessionRef};

/// Reads by the edge.
pub(super) async fn read_fleet<T>(
    target: &FleetTarget,
    terminal: &Terminal,
    read: impl AsyncFnOnce(EdgeClient) -> Result<T, CommandFailure>,
) -> Result<T, CommandFailure> {
    if let Some(fleet) = find_fleet(target)? {
        return read(fleet.connect().await?).await;
    }
    let home = Home::find_store().ok_or_else(no_fleet)?;
    let mut store = match open_store(&home, terminal).await {
        Ok(store) => store,
        // A fleet has started meanwhile, and has the store.
        Err(failure) => match find_fleet(target)? {
            Some(fleet) => return read(fleet.connect().await?).await,
            None => return Err(failure),
        },
    };
    let found = match Box::pin(store.connect(target.token.as_deref())).await {
        Ok(client) => read(client).await,
        Err(failure) => Err(failure),
    };
    store.end().await;
    found
}

/// As [`read_fleet`], about one session, whose id is passed on.
pub(super) async fn read_session<T>(
    target: &FleetTarget,
    reference: &SessionRef,
    terminal: &Terminal,
    read: impl AsyncFnOnce(EdgeClient, String) -> Result<T, CommandFailure>,
) -> Result<T, CommandFailure> {
    let named = reference.session.as_deref().map(client::session_id).transpose()?;
    read_fleet(target, terminal, async |client| {
        let session = find_session(&client, named).await?;
        read(client, session).await
    })
    .await
}

/// Runs a command that reads by NATS itself. The store is read only if nothing says where NATS
/// is, and nothing answers at the usual address.
pub(super) async fn read_bus(
    args: &NatsArgs,
    nats: NatsConfig,
    terminal: &Terminal,
    command: impl AsyncFnOnce(&Bus) -> Result<Exit, CommandFailure>,
) -> Result<Exit, CommandFailure> {
    let failure = match Bus::connect(&nats).await {
        Ok(bus) => {
            let read = command(&bus).await;
            bus.close().await;
            return read;
        }
        Err(error) => CommandFailure::from(error).at(nats.shown_url()),
    };
    if *failure.code() != ErrorCode::NatsUnreachable || is_nats_named(args, &nats) {
        return Err(failure);
    }
    let Some(home) = Home::find_store() else { return Err(failure) };
    let store = open_store(&home, terminal).await?;
    let read = command(store.bus()).await;
    store.end().await;
    read
}

async fn open_store(home: &Home, terminal: &Terminal) -> Result<LocalStore, CommandFailure> {
    terminal.note(Style::Faint, &format!("no fleet runs: reading the store in {}", home.nats().display()));
    Box::pin(LocalStore::open(home)).await
}
