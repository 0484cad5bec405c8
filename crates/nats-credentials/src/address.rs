//! Addresses of NATS, in which a user and a password may stand: `nats://user:password@127.0.0.1:4222`.

use std::fmt;
use std::io;

use async_nats::{ConnectOptions, ServerAddr};
use percent_encoding::percent_decode_str;

/// The servers of one NATS, and the user and password of a connection to them.
#[derive(Clone)]
pub struct NatsAddress {
    servers: Vec<ServerAddr>,
    login: Option<(String, String)>,
}

impl NatsAddress {
    /// Reads addresses that are separated by commas. The first user that is named is that of the connection, at all
    /// servers.
    pub fn parse(text: &str) -> io::Result<Self> {
        let parse = |text: &str| -> io::Result<Vec<ServerAddr>> {
            text.split(',').map(|server| server.trim().parse()).collect()
        };
        let decode = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
        let login =
            |server: &ServerAddr| Some((decode(server.username()?), decode(server.password().unwrap_or_default())));
        let login = parse(text)?.iter().find_map(login);
        // The library logs the addresses of servers.
        Ok(Self { servers: parse(&hide_login(text))?, login })
    }

    /// Returns the servers, without users and passwords.
    pub fn servers(&self) -> &[ServerAddr] {
        &self.servers
    }

    /// Returns the options of a connection as the user of the address, or without a user if it has none.
    pub fn connect_options(&self) -> ConnectOptions {
        match &self.login {
            Some((user, password)) => ConnectOptions::with_user_and_password(user.clone(), password.clone()),
            None => ConnectOptions::new(),
        }
    }
}

impl fmt::Debug for NatsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsAddress").field("servers", &self.servers.len()).finish_non_exhaustive()
    }
}

/// Returns addresses without users and passwords, so that they can be shown.
pub fn hide_login(text: &str) -> String {
    let hide = |server: &str| {
        let (scheme, rest) = server.split_at(server.find("://").map_or(0, |at| at + 3));
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        format!("{scheme}{host}{path}")
    };
    text.split(',').map(hide).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_password_of_an_address_are_those_of_the_connection() {
        let login = |text: &str| NatsAddress::parse(text).unwrap().login;
        let expect = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(login("nats://127.0.0.1:4222"), None);
        assert_eq!(login("nats://ailoop:secret@127.0.0.1:4222"), expect("ailoop", "secret"));
        assert_eq!(login("nats://a:1, nats://u:p%40q@b:2"), expect("u", "p@q"));
        assert_eq!(NatsAddress::parse("nats://u:p@a:1,b:2").unwrap().servers().len(), 2);
        assert!(NatsAddress::parse("http://127.0.0.1").is_err());
    }

    #[test]
    fn shown_address_has_no_user_and_no_password() {
        for (text, shown) in [
            ("nats://127.0.0.1:4222", "nats://127.0.0.1:4222"),
            ("nats://ailoop:secret@127.0.0.1:4222", "nats://127.0.0.1:4222"),
            ("nats://u:p@a:1,tls://u:p@b:2/", "nats://a:1,tls://b:2/"),
            ("u:p@q@host", "host"),
            ("", ""),
        ] {
            assert_eq!(hide_login(text), shown, "{text}");
        }
    }
}
