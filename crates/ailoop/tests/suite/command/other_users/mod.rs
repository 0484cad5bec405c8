//! Access of other users and other programs of the machine to a fleet of `ailoop up`: none.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Command;

use serde_json::Value;

use crate::command::world::{DEADLINE, World, exit_code, text};

/// A user of nearly every machine who has nothing.
const NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];

fn run_file(world: &World) -> Value {
    serde_json::from_slice(&std::fs::read(world.path(".ailoop/run.json")).unwrap()).unwrap()
}

fn field<'a>(run: &'a Value, name: &str) -> &'a str {
    run[name].as_str().unwrap_or_default()
}

/// Sends bytes to an address such as `http://127.0.0.1:7070`, and returns the beginning of the answer.
fn exchange(url: &str, request: &str, is_enough: impl Fn(&str) -> bool) -> String {
    let host = url.rsplit(['/', '@']).next().unwrap();
    let mut connection = TcpStream::connect(host).unwrap();
    connection.set_read_timeout(Some(DEADLINE)).unwrap();
    connection.write_all(request.as_bytes()).unwrap();
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    while !is_enough(&String::from_utf8_lossy(&answer)) {
        let length = connection.read(&mut buffer).unwrap();
        if length == 0 {
            break;
        }
        answer.extend_from_slice(&buffer[..length]);
    }
    text(&answer)
}

/// The status and body of a request.
fn request(run: &Value, line: &str, key: Option<&str>) -> String {
    let key = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
    let body = r#"{"prompt":"x"}"#;
    let length = body.len();
    let head = format!("{line} HTTP/1.1\r\nhost: localhost\r\n{key}content-type: application/json\r\n");
    let request = format!("{head}content-length: {length}\r\nconnection: close\r\n\r\n{body}");
    exchange(field(run, "http"), &request, |_| false)
}

/// Returns the answer of nats-server to a connection with these fields of CONNECT.
fn connect_to_nats(run: &Value, login: &str) -> String {
    let request = format!("CONNECT {{\"verbose\":false{login}}}\r\nPING\r\n");
    exchange(field(run, "nats"), &request, |answer| answer.contains("PONG") || answer.contains("-ERR"))
}

#[test]
fn program_without_the_credentials_reads_and_starts_nothing() {
    let world = World::new();
    let (fleet, printed) = world.start_fleet_with(&[]);
    let run = run_file(&world);
    for (line, key) in [
        ("GET /v1/sessions", None),
        ("GET /v1/sessions", Some("another")),
        ("GET /v1/gates", None),
        ("POST /v1/sessions", None),
        ("POST /openai/v1/responses", None),
        ("POST /mcp", None),
        ("GET /ws", None),
    ] {
        let answer = request(&run, line, key);
        assert!(answer.starts_with("HTTP/1.1 401"), "{line} {key:?}: {answer}");
    }
    let missing = request(&run, "GET /v1/sessions", None);
    assert!(missing.contains("Authorization: Bearer"), "{missing}");
    let elsewhere = World::new();
    for token in ["", "another"] {
        let mut command = elsewhere.ailoop(&["run", "--agent", "a", "x"]);
        command.env("AILOOP_GRPC_URL", field(&run, "grpc"));
        if !token.is_empty() {
            command.env("AILOOP_TOKEN", token);
        }
        let refused = command.output().unwrap();
        assert_ne!(exit_code(&refused), 0);
        assert!(text(&refused.stderr).contains("error[unauthorized]"), "{}", text(&refused.stderr));
    }
    for login in ["", r#","user":"ailoop","pass":"another""#] {
        let answer = connect_to_nats(&run, login);
        assert!(answer.contains("Authorization Violation"), "{login}: {answer}");
    }

    // Those who may read the directory have all that they need.
    let sessions = world.output(&["sessions"]);
    assert_eq!(exit_code(&sessions), 0, "{}", text(&sessions.stderr));
    let tried = world.output(&["tools", "try", "list_files", "--args", "{}"]);
    assert_eq!(exit_code(&tried), 0, "{}", text(&tried.stderr));
    let token = field(&run, "token");
    let answer = request(&run, "GET /v1/sessions", Some(token));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let http = field(&run, "http");
    for line in [format!("{http}/#key={token}"), format!("export AILOOP_URL={http} AILOOP_API_KEY={token}")] {
        assert!(printed.contains(&line), "{printed}");
    }
    let password = field(&run, "nats").split([':', '@']).nth(2).unwrap().to_owned();
    assert!(!printed.contains(&password), "{printed}");
    assert_eq!(fleet.end("TERM"), Some(0));
}

#[test]
#[allow(clippy::print_stdout, reason = "says why it tests nothing")]
fn another_user_reads_no_file_of_the_fleet() {
    let world = World::new();
    if std::fs::metadata(world.path(".")).unwrap().uid() != 0 {
        println!("not tested: only root runs a program as another user");
        return;
    }
    // The directory of the project may be open to everybody.
    std::fs::set_permissions(world.path("."), std::fs::Permissions::from_mode(0o777)).unwrap();
    let fleet = world.start_fleet();
    let as_nobody = |command: &[&str]| {
        let mut setpriv = Command::new("setpriv");
        setpriv.args(NOBODY).args(command).current_dir(world.path(".")).output().expect("setpriv of util-linux")
    };
    assert_eq!(exit_code(&as_nobody(&["cat", "hello.rs"])), 0, "the test can see a failure");
    for path in ["run.json", "credentials.json", "lock", "nats/nats.conf", "nats/jetstream", "out"] {
        let path = format!(".ailoop/{path}");
        assert!(world.path(&path).exists(), "{path}");
        let read = as_nobody(&["ls", &path]);
        assert_ne!(exit_code(&read), 0, "{path}: {}", text(&read.stdout));
    }
    for path in ["run.json", "credentials.json", "nats/nats.conf"] {
        let mode = std::fs::metadata(world.path(&format!(".ailoop/{path}"))).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o600, "{path}");
    }
    assert_eq!(fleet.end("TERM"), Some(0));
}

#[test]
fn credentials_are_kept_over_a_restart_until_a_new_token_is_wanted() {
    let world = World::new();
    let token_of = |arguments: &[&str]| {
        let (fleet, _) = world.start_fleet_with(arguments);
        let run = run_file(&world);
        let is_open = request(&run, "GET /v1/sessions", None).starts_with("HTTP/1.1 200");
        assert_eq!(connect_to_nats(&run, "").contains("PONG"), is_open);
        let sessions = world.output(&["sessions"]);
        assert_eq!(exit_code(&sessions), 0, "{}", text(&sessions.stderr));
        assert_eq!(fleet.end("TERM"), Some(0));
        world.wait_for_nats_end();
        (run["token"].as_str().map(str::to_owned), is_open)
    };
    let (first, is_open) = token_of(&[]);
    assert!(first.is_some() && !is_open);
    assert_eq!(token_of(&[]), (first.clone(), false));
    let (new, is_open) = token_of(&["--new-token"]);
    assert!(new.is_some() && new != first && !is_open);
    assert_eq!(token_of(&["--no-credentials"]), (None, true));
    assert_eq!(token_of(&[]), (new, false));
}
