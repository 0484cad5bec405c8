//! `ailoop nats-auth`: who may do what on the bus.

mod init;
mod installation;
mod servers;
mod users;

use terminal::Terminal;
use terminal::failure::{CommandFailure, Exit};

use crate::args::{NatsAuthCommand, NatsUserCommand};

/// Runs a subcommand of `ailoop nats-auth`.
pub(super) async fn run(command: &NatsAuthCommand, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    match command {
        NatsAuthCommand::Init(args) => init::init(args, terminal),
        NatsAuthCommand::User(NatsUserCommand::Add(args)) => users::add(args, terminal),
        NatsAuthCommand::User(NatsUserCommand::List(args)) => users::list(args, terminal).await,
        NatsAuthCommand::User(NatsUserCommand::Revoke(args)) => users::revoke(args, terminal).await,
        NatsAuthCommand::Update(args) => servers::update(args, terminal).await,
        NatsAuthCommand::Check(args) => servers::check(args, terminal).await,
    }
}
