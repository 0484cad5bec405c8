//! `ailoop nats-auth user`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use contract::{ErrorCode, TenantId, ToolName};
use nats_auth::{Group, Installation, IssuedUser, Lifetime, Store, secret_manifest};
use nats_credentials::{Credentials, UserClaims};
use nats_permissions::TOOL_CALL_DEFAULT;
use serde_json::json;
use terminal::failure::{CommandFailure, Exit};
use terminal::table::{Table, TableColumn};
use terminal::{Style, Terminal};

use super::installation::{connect, finish_with_changes, now, open};
use super::servers::ACCOUNTS;
use crate::args::{NatsUserAddArgs, NatsUserListArgs, NatsUserRevokeArgs, OutputArgs};
use crate::compose::parse_tenant;
use crate::output::{finish, json_lines, print_table};

/// Longest JWT for the default `max_control_line` of nats-server, 4 KiB, and for that of the shipped configuration,
/// 32 KB. The rest of the line is for the name of the connection, the signature, and the version of the client.
const JWT_BYTES_DEFAULT: usize = 4_096 - 500;
const JWT_BYTES_MAX: usize = 32_000 - 500;

pub(super) fn add(args: &NatsUserAddArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let mut installation = open(&args.keys)?;
    let lifetime = Lifetime { now: now(), valid_for: args.expires };
    let (name, user) = match &args.role {
        Some(role) => {
            let user = installation.authority().role_user(role, lifetime)?;
            (args.name.clone().unwrap_or_else(|| role.clone()), user)
        }
        None => tool_user(args, &installation, lifetime, terminal)?,
    };
    // It is part of the name of a file and of a Secret.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(is_plain) {
        let message = format!("{name:?} is no name of a user: use letters, digits, `-` and `_`");
        return Err(CommandFailure::usage(ErrorCode::BadRequest, message));
    }
    terminal.note(Style::Plain, &format!("user {} ({name})", user.public_key));
    if let Some(namespace) = &args.manifest {
        let secret = format!("ailoop-nats-user-{}", name.to_lowercase().replace('_', "-"));
        let file = BTreeMap::from([(format!("{name}.creds"), user.credentials)]);
        return Ok(finish(terminal.print_data(&secret_manifest(namespace, &secret, &file))));
    }
    let is_tool_of_secrets = args.role.is_none() && matches!(installation.store(), Store::Manifests(_));
    match args.out.as_deref() {
        Some("-") => Ok(finish(terminal.print_data(&user.credentials))),
        None if is_tool_of_secrets => Ok(finish(terminal.print_data(&user.credentials))),
        Some(path) => write_file(Path::new(path), &user, args.replace, terminal),
        None => {
            replace_user(&mut installation, &name, &user, args, terminal)?;
            Ok(finish_with_changes(&installation, terminal))
        }
    }
}

fn tool_user(
    args: &NatsUserAddArgs,
    installation: &Installation,
    lifetime: Lifetime,
    terminal: &Terminal,
) -> Result<(String, IssuedUser), CommandFailure> {
    let tenant = parse_tenant(&args.tenant)?;
    for tool in &args.tools {
        ToolName::new(tool).map_err(|error| {
            CommandFailure::usage(ErrorCode::BadRequest, format!("{tool:?} is no name of a tool: {error}"))
        })?;
    }
    let first = args.tools.first().cloned().unwrap_or_default();
    let name = args
        .name
        .clone()
        .unwrap_or_else(|| if tenant == TenantId::default() { first } else { format!("{tenant}-{first}") });
    let call_max = args.max_call.map_or(TOOL_CALL_DEFAULT, Duration::from_secs);
    let user = installation.authority().tool_user(&name, &tenant, &args.tools, call_max, lifetime)?;
    check_size(&user, args.tools.len(), terminal)?;
    Ok((name, user))
}

/// Compares the JWT of a user of many tools with the longest line that nats-server reads.
fn check_size(user: &IssuedUser, tools: usize, terminal: &Terminal) -> Result<(), CommandFailure> {
    let bytes = Credentials::parse(&user.credentials).map_or(0, |credentials| credentials.jwt.len());
    if bytes > JWT_BYTES_MAX {
        let message =
            format!("the JWT of a user of {tools} tools has {bytes} bytes; nats-server reads {JWT_BYTES_MAX}");
        let failure = CommandFailure::usage(ErrorCode::TooLarge, message);
        return Err(failure.help("make several users, each for some of the tools, and connect by each"));
    }
    if bytes > JWT_BYTES_DEFAULT {
        let text = format!(
            "warning: {tools} tools make a JWT of {bytes} bytes: nats-server needs max_control_line: 32KB in its \
             configuration, as the shipped one has"
        );
        terminal.note(Style::Warn, &text);
    }
    Ok(())
}

/// Writes a credentials file in the place of the one that the user has.
fn replace_user(
    installation: &mut Installation,
    name: &str,
    user: &IssuedUser,
    args: &NatsUserAddArgs,
    terminal: &Terminal,
) -> Result<(), CommandFailure> {
    let place = installation.user_place(name);
    let old = installation.users()?.remove(name);
    if old.is_some() && !args.replace {
        return Err(exists(&place));
    }
    installation.save_user(name, user)?;
    terminal.note(Style::Good, &format!("written: {place}"));
    note_old(old, terminal);
    Ok(())
}

fn write_file(path: &Path, user: &IssuedUser, replace: bool, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let old = std::fs::read_to_string(path).ok();
    if path.exists() && !replace {
        return Err(exists(&path.display().to_string()));
    }
    let unusable = || CommandFailure::usage(ErrorCode::BadRequest, format!("{} is no file", path.display()));
    let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(unusable)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The group of files that lies in the directory itself.
    Store::Directory(directory.to_owned()).put(Group::Server, name, &user.credentials)?;
    terminal.note(Style::Good, &format!("written: {}", path.display()));
    note_old(old, terminal);
    Ok(Exit::Done)
}

fn exists(place: &str) -> CommandFailure {
    CommandFailure::new(ErrorCode::BadRequest, format!("{place} exists"))
        .help("pass --replace to put the new credential in its place, or --name or --out to put it elsewhere")
}

fn note_old(old: Option<String>, terminal: &Terminal) {
    let Some(old) = old.and_then(|text| Credentials::parse(&text).ok()) else { return };
    let text = format!(
        "the old credential still works: once the new one is in place everywhere, run `ailoop nats-auth user revoke {}`",
        old.claims.public_key
    );
    terminal.note(Style::Plain, &text);
}

/// Known facts about a user.
#[derive(Default)]
struct KnownUser {
    name: String,
    claims: Option<UserClaims>,
    file: Option<String>,
    connections: Vec<String>,
    is_revoked: bool,
}

pub(super) async fn list(args: &NatsUserListArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let installation = open(&args.server.keys)?;
    let connection = connect(&args.server, &installation).await?;
    let mut known: BTreeMap<String, KnownUser> = BTreeMap::new();
    for (name, text) in installation.users()? {
        let Ok(credentials) = Credentials::parse(&text) else { continue };
        let user = known.entry(credentials.claims.public_key.clone()).or_default();
        (user.name, user.file) = (credentials.claims.name.clone(), Some(installation.user_place(&name)));
        user.claims = Some(credentials.claims);
    }
    for kind in ACCOUNTS {
        let key = installation.authority().account_key(kind);
        for connected in connection.connections(&key).await? {
            let user = known.entry(connected.claims.public_key.clone()).or_default();
            user.connections.push(format!("{} {} on {}", connected.connection, connected.address, connected.server));
            user.name.clone_from(&connected.claims.name);
            user.claims = Some(connected.claims);
        }
        for revoked in installation.server_account(&connection, kind).await?.claims.nats.revocations.into_keys() {
            known.entry(revoked).or_default().is_revoked = true;
        }
    }
    if args.json {
        return Ok(finish(terminal.print_data(&to_json(&known))));
    }
    Ok(finish(print_table(&to_table(known), &OutputArgs::default(), terminal)))
}

fn to_json(known: &BTreeMap<String, KnownUser>) -> String {
    json_lines(known.iter().map(|(key, user)| {
        let claims = user.claims.as_ref();
        json!({
            "user": key,
            "name": user.name,
            "issued_at": claims.map(|claims| claims.issued_at),
            "expires_at": claims.map(|claims| claims.expires_at).filter(|at| *at > 0),
            "file": user.file,
            "connections": user.connections,
            "revoked": user.is_revoked,
        })
    }))
}

fn to_table(known: BTreeMap<String, KnownUser>) -> Table {
    let mut users: Vec<(String, KnownUser)> = known.into_iter().collect();
    users.sort_by(|(_, one), (_, other)| one.name.cmp(&other.name));
    let rows = users.into_iter().map(|(key, user)| {
        let state = if user.is_revoked { "revoked".to_owned() } else { state_of(user.claims.as_ref()) };
        let connections = user.connections.len().to_string();
        vec![user.name, key, state, connections, user.file.unwrap_or_default()]
    });
    Table::new(&[
        TableColumn::name("NAME"),
        TableColumn::text("USER"),
        TableColumn::name("STATE"),
        TableColumn::number("CONNECTIONS").optional(1),
        TableColumn::text("FILE").optional(2),
    ])
    .with_rows(rows)
}

fn state_of(claims: Option<&UserClaims>) -> String {
    match claims {
        Some(claims) if claims.is_expired(now()) => "expired".to_owned(),
        Some(claims) if claims.expires_at > 0 => format!("until {}", claims.expires_at_text()),
        Some(_) => "valid".to_owned(),
        None => String::new(),
    }
}

pub(super) async fn revoke(args: &NatsUserRevokeArgs, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    let mut installation = open(&args.server.keys)?;
    let users = args.users.iter().map(|user| public_key(user)).collect::<Result<BTreeSet<_>, _>>()?;
    let connection = connect(&args.server, &installation).await?;
    let revoked = installation.revoke(&connection, &users, now()).await?;
    let text = format!("{} nats-server(s) refuse {} user(s) from now on", revoked.servers, users.len());
    terminal.note(Style::Good, &text);
    if revoked.connections_left > 0 {
        let message = format!("{} connection(s) of these users are still there", revoked.connections_left);
        return Err(CommandFailure::new(ErrorCode::Unavailable, message).help("look at `ailoop nats-auth user list`"));
    }
    Ok(finish_with_changes(&installation, terminal))
}

/// The public key of a user, or the one in its credentials file.
fn public_key(user: &str) -> Result<String, CommandFailure> {
    let is_key = user.len() == 56 && user.starts_with('U') && user.chars().all(|c| c.is_ascii_alphanumeric());
    if is_key {
        return Ok(user.to_owned());
    }
    let file = nats_credentials::CredentialsFile::new(user);
    let refused = |error: nats_credentials::CredentialsError| {
        CommandFailure::usage(
            ErrorCode::BadRequest,
            format!("{user:?} is neither a public key of a user nor a file of one: {error}"),
        )
        .help("pass a key (U…) of `ailoop nats-auth user list`, or the path of a credentials file")
    };
    Ok(file.read().map_err(refused)?.claims.public_key)
}
