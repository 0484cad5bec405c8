//! `ailoop nats-auth update` and `check`.

use contract::ErrorCode;
use nats_auth::Installation;
use nats_credentials::Credentials;
use nats_permissions::Account;
use terminal::failure::{CommandFailure, Exit};
use terminal::{Style, Terminal};

use super::installation::{connect, finish_with_changes, now, open};
use crate::args::{NatsAuthServerArgs, NatsAuthUpdateArgs};

/// A credential that expires within this time is worth a warning: two weeks.
const EXPIRES_SOON_SECONDS: i64 = 14 * 86_400;

pub(super) const ACCOUNTS: [Account; 2] = [Account::System, Account::Ailoop];

pub(super) async fn update(args: &NatsAuthUpdateArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let mut installation = open(&args.server.keys)?;
    let added = installation.add_missing_roles(now())?;
    let connection = connect(&args.server, &installation).await?;
    let mut signed = Vec::new();
    for kind in ACCOUNTS {
        let there = installation.server_account(&connection, kind).await?;
        let outdated = installation.authority().outdated_roles(kind, &there.claims.nats)?;
        if outdated.is_empty() && there.behind == 0 {
            continue;
        }
        let authority = installation.authority();
        let jwt = if args.keep_old {
            authority.account_jwt_keeping_old(kind, &there.claims, now())?
        } else {
            authority.account_jwt(kind, Some(&there.claims), now())?
        };
        let servers = connection.update(&jwt).await?;
        terminal.note(Style::Good, &format!("{servers} nats-server(s) have new permissions of {}", list(&outdated)));
        signed.push((kind, jwt));
    }
    if signed.is_empty() && added.is_empty() {
        terminal.note(Style::Plain, "the nats-servers have the permissions of this version: nothing to do");
        return Ok(Exit::Done);
    }
    if args.keep_old {
        let text = "the old permissions are kept: run `ailoop nats-auth update` when the last old process is replaced";
        terminal.note(Style::Warn, text);
    }
    installation.save_accounts(&signed, now())?;
    for role in added {
        let place = installation.user_place(&role);
        terminal.note(Style::Plain, &format!("new in this version: {place}"));
    }
    Ok(finish_with_changes(&installation, terminal))
}

pub(super) async fn check(args: &NatsAuthServerArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let installation = open(&args.keys)?;
    let connection = connect(args, &installation).await?;
    let mut problems = Vec::new();
    for kind in ACCOUNTS {
        let there = installation.server_account(&connection, kind).await?;
        let outdated = installation.authority().outdated_roles(kind, &there.claims.nats)?;
        if !outdated.is_empty() {
            problems.push(format!("the permissions of {} are those of another version", list(&outdated)));
        }
        if there.behind > 0 {
            let (behind, servers) = (there.behind, there.servers);
            problems.push(format!("{behind} of {servers} nats-servers have an older account"));
        }
    }
    for warning in expiring(&installation)? {
        terminal.note(Style::Warn, &format!("warning: {warning}"));
    }
    if problems.is_empty() {
        terminal.note(Style::Good, "the nats-servers have the permissions of this version");
        return Ok(Exit::Done);
    }
    Err(CommandFailure::new(ErrorCode::Unauthorized, problems.join("; ")).help("run `ailoop nats-auth update`"))
}

/// Credentials files that have expired or soon will.
fn expiring(installation: &Installation) -> Result<Vec<String>, CommandFailure> {
    let mut warnings = Vec::new();
    for (name, text) in installation.users()? {
        let place = installation.user_place(&name);
        match Credentials::parse(&text) {
            Ok(credentials) if credentials.claims.is_expired(now() + EXPIRES_SOON_SECONDS) => {
                warnings.push(format!("{place} expires at {}", credentials.claims.expires_at_text()));
            }
            Ok(_) => {}
            Err(error) => warnings.push(format!("{place} is not a credentials file: {error}")),
        }
    }
    Ok(warnings)
}

fn list(roles: &[String]) -> String {
    if roles.is_empty() { "no role".to_owned() } else { roles.join(", ") }
}
