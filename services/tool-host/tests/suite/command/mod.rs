//! `run_command` on this machine: what it permits, its limits, and that no process remains.

#![cfg(target_os = "linux")]
mod world;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::Duration;

use serde_json::{Value, json};

use world::{World, can_make_namespaces, read_resident_bytes};

#[tokio::test]
async fn command_run_returns_exit_code_and_output() {
    let world = World::new(json!({})).await;
    let mut done = world.sh("echo out; echo err >&2; exit 3").await;
    assert!(done["duration_ms"].take().is_u64());
    let result = json!({"exit_code": 3, "stdout": "out\n", "stderr": "err\n", "truncated": false, "timed_out": false,
        "duration_ms": null});
    assert_eq!(done, result);
    let read = world.run(json!({"command": ["cat"], "stdin": "first\n\nlast"})).await.unwrap();
    assert_eq!((&read["stdout"], &read["exit_code"]), (&json!("first\n\nlast"), &json!(0)));
    let words = ["echo", "a b", "$(id)", "`id`", "; rm -rf x", "'", "\"", "*", "\\n", "-n"];
    let echoed = world.run(json!({"command": words})).await.unwrap();
    assert_eq!(echoed["stdout"], format!("{}\n", words[1..].join(" ")), "no shell reads it");
    let unread = world.run(json!({"command": ["false"], "stdin": "x".repeat(200_000)})).await.unwrap();
    assert_eq!(unread["exit_code"], 1);
    let ended = world.sh("kill -TERM $$").await;
    assert_eq!((&ended["signal"], ended.get("exit_code")), (&json!(15), None));
    world.assert_nothing_is_left();
}

#[tokio::test]
async fn command_not_on_the_allowlist_is_refused() {
    let world = World::new(json!({"allow": ["cat", {"program": "seq", "args": ["[0-9]"]}]})).await;
    let forged = world.work().join("cat");
    fs::write(&forged, "#!/bin/sh\necho forged").unwrap();
    fs::set_permissions(&forged, fs::Permissions::from_mode(0o755)).unwrap();
    for command in [
        json!(["rm", "-rf", "/"]),
        json!(["sh", "-c", "true"]),
        json!(["./cat"]),
        json!(["/bin/cat"]),
        json!(["../work/cat"]),
        json!([forged]),
        json!(["work/cat"]),
        json!(["cat\0"]),
        json!(["cat "]),
        json!([""]),
        json!([]),
        json!(["seq", "10"]),
        json!(["seq", "-s,", "3"]),
    ] {
        let refused = world.run(json!({"command": command})).await.unwrap_err();
        assert!(
            ["may not be run", "is empty", "NUL"].iter().any(|part| refused.contains(part)),
            "{command}: {refused}"
        );
    }
    let real = world.run(json!({"command": ["cat"], "stdin": "real"})).await.unwrap();
    assert_eq!(real["stdout"], "real", "the one of the PATH, not the one of the directory");
    assert_eq!(world.run(json!({"command": ["seq", "3"]})).await.unwrap()["stdout"], "1\n2\n3\n");
}

#[tokio::test]
async fn command_stays_below_its_directory_and_sees_its_own_environment_only() {
    let more = json!({"env": {"COLOUR": "blue", "Mixed": "Case"}, "env_from": ["CARGO_PKG_NAME", "NO_SUCH_VARIABLE"]});
    let world = World::new(more).await;
    let work = world.work();
    fs::create_dir_all(work.join("a/b")).unwrap();
    fs::create_dir(world.dir.path().join("beside")).unwrap();
    fs::write(work.join("file"), "").unwrap();
    symlink("../../beside", work.join("a/out")).unwrap();
    symlink(world.dir.path().join("beside"), work.join("away")).unwrap();
    symlink("a/b", work.join("in")).unwrap();
    for cwd in
        ["..", "../beside", "a/../..", "/", "/tmp", "a/out", "away", "a/out/../..", "file", "none", "in/../../.."]
    {
        let refused = world.run(json!({"command": ["pwd"], "cwd": cwd})).await.unwrap_err();
        assert!(refused.starts_with(&format!("{cwd:?}")), "{cwd}: {refused}");
    }
    let work = work.canonicalize().unwrap().display().to_string();
    for (cwd, at) in [(None, ""), (Some("."), ""), (Some("a/b"), "/a/b"), (Some("./a"), "/a"), (Some("in"), "/a/b")] {
        let result = world.run(json!({"command": ["pwd"], "cwd": cwd})).await.unwrap();
        assert_eq!(result["stdout"], format!("{work}{at}\n"), "{cwd:?}");
    }
    let result = world.run(json!({"command": ["env"]})).await.unwrap();
    let ours = |line: &&str| !["PWD=", "OLDPWD=", "SHLVL=", "_="].iter().any(|own| line.starts_with(own));
    let mut lines: Vec<&str> = result["stdout"].as_str().unwrap().lines().filter(ours).collect();
    lines.sort_unstable();
    let [mark, rest @ ..] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(mark.starts_with("AILOOP_COMMAND="));
    let expected = ["CARGO_PKG_NAME=tool-host", "COLOUR=blue", "Mixed=Case", "PATH=/usr/local/bin:/usr/bin:/bin"];
    assert_eq!(rest, expected);
}

#[tokio::test]
async fn command_gains_no_privileges_and_is_not_root() {
    let world = World::new(json!({})).await;
    let status = world.run(json!({"command": ["cat", "/proc/self/status"]})).await.unwrap();
    let status = status["stdout"].as_str().unwrap();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
    assert_eq!((field("NoNewPrivs:"), field("CapEff:")), ("1", "0000000000000000"), "{status}");
    assert!(
        !field("Uid:").split('\t').any(|uid| uid == "0") && !field("Groups:").split(' ').any(|gid| gid == "0"),
        "{status}"
    );
}

#[tokio::test]
async fn command_output_of_any_size_neither_fills_memory_nor_blocks_it() {
    let world = World::new(json!({"output_bytes_max": 9_000})).await;
    let before = read_resident_bytes();
    let read = world
        .sh("echo begin; head -c 100000000 /dev/zero | tr '\\0' 'x'; echo end; head -c 100000000 /dev/zero >&2")
        .await;
    let grown = read_resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes more");
    assert_eq!((&read["exit_code"], &read["truncated"]), (&json!(0), &json!(true)));
    let (out, err) = (read["stdout"].as_str().unwrap(), read["stderr"].as_str().unwrap());
    assert!(out.starts_with("begin\nxxx") && out.ends_with("xxxend\n") && out.len() < 9_100, "{}", out.len());
    assert!(out.contains("of 100000010 bytes left out") && err.contains("of 100000000 bytes left out"));
    assert!(read.to_string().len() < contract::limits::TOOL_OUTPUT_BYTES_MAX, "{}", read.to_string().len());
    // The largest kept outputs, of bytes that need the most JSON.
    drop(world);
    let world = World::new(json!({})).await;
    let read = world.sh("head -c 24000 /dev/zero; head -c 24000 /dev/zero >&2").await;
    assert!(read.to_string().len() < contract::limits::TOOL_OUTPUT_BYTES_MAX, "{}", read.to_string().len());
}

#[tokio::test]
async fn command_timed_out_is_killed_with_all_its_descendants() {
    let world = World::new(json!({})).await;
    let script = world.script("trap '' TERM INT HUP; sleep 300 & (sleep 300 & sleep 300) & setsid sleep 300 & wait");
    let late = world.run(json!({"command": ["sh", script], "timeout": 1})).await.unwrap();
    assert_eq!(
        (&late["timed_out"], &late["signal"], &late["killed"]),
        (&json!(true), &json!(9), &json!("it took too long"))
    );
    world.assert_nothing_is_left();
    // The time of the call limits the command, too.
    let little = world.run_within(json!({"command": ["sleep", "300"]}), Some(Duration::from_secs(15))).await.unwrap();
    assert_eq!(little["timed_out"], true);
    let none = world.run_within(json!({"command": ["sleep", "300"]}), Some(Duration::from_secs(1))).await.unwrap_err();
    assert!(none.contains("it was not started"), "{none}");
    world.assert_nothing_is_left();
}

#[tokio::test]
async fn command_cancelled_is_killed() {
    let world = World::new(json!({"timeout": 600})).await;
    let script = world.script("setsid sh -c 'touch there; sleep 300' & sleep 300");
    tokio::select! {
        done = world.run(json!({"command": ["sh", script]})) => panic!("{done:?}"),
        () = world.wait_for_file("there") => assert!(!world.list_remaining().is_empty()),
    }
    world.wait_until_nothing_is_left().await;
}

#[tokio::test]
async fn background_process_ends_with_its_command() {
    let world = World::new(json!({})).await;
    for start in [
        "sleep 300 &",
        "nohup sleep 300 >/dev/null 2>&1 &",
        "setsid sleep 300 &",
        "setsid setsid -f sleep 300 </dev/null >/dev/null 2>&1",
        "(setsid sh -c 'setsid sleep 300 & exit 0' &)",
        "env -i setsid -f /bin/sleep 300",
        "env -i setsid -f /bin/sh -c 'setsid -f /bin/sleep 300; exit 0'",
        "for i in 1 2 3 4 5 6 7 8; do env -i setsid -f /bin/sh -c 'setsid -f /bin/sleep 300'; done",
    ] {
        let done = world.sh(&format!("{start} echo done")).await;
        let done = if done["stdout"] == "done\n" { done } else { world.sh(&format!("{start}\necho done")).await };
        assert_eq!((&done["stdout"], done.get("note")), (&json!("done\n"), None), "{start}: {done}");
        world.assert_nothing_is_left();
    }
}

/// Fork bombs: in one process group, in many sessions, and with a cleared environment.
const FORK_BOMBS: [&str; 5] = [
    "\"$0\" & \"$0\" & wait",
    "\"$0\" & \"$0\" &",
    "setsid \"$0\" & setsid \"$0\" &",
    "env -i setsid \"$0\" & env -i setsid \"$0\" & sleep 1",
    "env -i setsid -f \"$0\"; env -i setsid -f \"$0\"; env -i setsid -f \"$0\"; exit 0",
];

async fn assert_fork_bomb_ends(world: &World, bomb: &str) {
    // The root stays, so that the command does not end before its processes are counted.
    let script = world.script(bomb);
    let ended =
        world.run(json!({"command": ["sh", "-c", format!("{script} & sleep 300")], "timeout": 5})).await.unwrap();
    // Where the kernel reacts before the watch, forks fail and the bomb ends.
    let (watched, refused) =
        (ended["killed"] == "it had over 16 processes", ended["stderr"].to_string().contains("fork"));
    assert!((watched || refused) && ended["signal"] == 9, "{bomb}: {ended}");
    assert_eq!(ended.get("note"), None, "{bomb}");
    world.assert_nothing_is_left();
    // A root that ends at once leaves the bomb behind.
    let left = world.sh(&format!("{script} >/dev/null 2>&1 & exit 0")).await;
    assert_eq!(left.get("note"), None, "{bomb}: {left}");
    world.assert_nothing_is_left();
}

/// Runs in a PID namespace, where this machine permits one.
#[tokio::test]
async fn fork_bomb_any_kind_ends_at_its_limit_and_nothing_is_left() {
    let world = World::new(json!({"processes_max": 16})).await;
    let bombs = if can_make_namespaces() { &FORK_BOMBS[..] } else { &FORK_BOMBS[..3] };
    for bomb in bombs {
        assert_fork_bomb_ends(&world, bomb).await;
    }
}

/// Without a PID namespace processes are found one by one. A bomb that clears its environment and starts sessions may
/// outrun that, as docs/tools.md says.
#[tokio::test]
async fn fork_bomb_without_namespace_ends_at_its_limit_and_nothing_is_left() {
    let world = World::new(json!({"processes_max": 16, "pid_namespace": false})).await;
    for bomb in &FORK_BOMBS[..3] {
        assert_fork_bomb_ends(&world, bomb).await;
    }
}

#[tokio::test]
async fn command_in_namespace_sees_its_own_processes_only() {
    if !can_make_namespaces() {
        return;
    }
    let world = World::new(json!({"pid_namespace": true})).await;
    let result = world.sh("cat /proc/$$/comm; echo /proc/[0-9]*; kill -TERM $$").await;
    assert_eq!(result["signal"], 15, "the signal is reported as without a namespace: {result}");
    let stdout = result["stdout"].as_str().unwrap();
    let (comm, processes) = stdout.trim().split_once('\n').unwrap();
    // The first process of the namespace, and the shell.
    assert_eq!((comm, processes.split(' ').count()), ("sh", 2), "{stdout}");
    assert!(processes.starts_with("/proc/1 "), "{stdout}");
    world.assert_nothing_is_left();
}

/// Environment variable of the process that [`host_killed_with_namespace_leaves_no_process_of_its_command`] kills.
const KILLED: &str = "AILOOP_TEST_KILLED";

#[tokio::test]
async fn host_killed_with_namespace_leaves_no_process_of_its_command() {
    if !can_make_namespaces() {
        return;
    }
    if std::env::var_os(KILLED).is_some() {
        let world = World::new(json!({"timeout": 600})).await;
        std::io::Write::write_all(&mut std::io::stdout(), format!("{}\n", world.work().display()).as_bytes()).unwrap();
        world.sh("env -i setsid -f /bin/sleep 300; touch there; sleep 300").await;
        return;
    }
    let mut killed = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "command::host_killed_with_namespace_leaves_no_process_of_its_command", "--nocapture"])
        .env(KILLED, "1")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(killed.stdout.take().unwrap()));
    let work = lines.map(Result::unwrap).find(|line| line.ends_with("/work")).unwrap();
    let work = std::path::PathBuf::from(work).canonicalize().unwrap();
    let running = || world::list_running_in(&work).len();
    world::wait_until(|| work.join("there").exists()).await;
    assert!(running() >= 2, "{:?}", world::list_running_in(&work));
    killed.kill().unwrap();
    killed.wait().unwrap();
    world::wait_until(|| running() == 0).await;
    fs::remove_dir_all(work.parent().unwrap()).unwrap();
}

#[tokio::test]
async fn command_over_memory_cpu_or_file_limit_is_stopped() {
    let more = json!({"memory_bytes_max": 64 << 20, "cpu_seconds_max": 1, "file_bytes_max": 1 << 20});
    let world = World::new(more).await;
    let large =
        world.run(json!({"command": ["dd", "if=/dev/zero", "of=/dev/null", "bs=512M", "count=1"]})).await.unwrap();
    assert!(large["exit_code"] == 1 && large["stderr"].as_str().unwrap().contains("memory"), "{large}");
    // No single process is large.
    let script = "for i in 1 2 3 4; do dd if=/dev/zero of=/dev/null bs=40M count=100000 & done; wait";
    let together = world.sh(script).await;
    assert_eq!(
        together["killed"],
        format!("its processes used over {} bytes of memory together", 64 << 20),
        "{together}"
    );
    let busy = world.sh("while :; do :; done").await;
    assert_eq!((&busy["signal"], &busy["killed"]), (&json!(24), &json!("it used more processor time than it may")));
    let file = world.run(json!({"command": ["dd", "if=/dev/zero", "of=file", "bs=1M", "count=4"]})).await.unwrap();
    assert_eq!((&file["signal"], &file["killed"]), (&json!(25), &json!("it wrote a larger file than it may")));
    assert_eq!(fs::metadata(world.work().join("file")).unwrap().len(), 1 << 20);
    let polite: i32 =
        world.run(json!({"command": ["nice"]})).await.unwrap()["stdout"].as_str().unwrap().trim().parse().unwrap();
    let ours = rustix::process::getpriority_process(None).unwrap();
    assert_eq!(polite, (ours + 10).min(19));
    world.assert_nothing_is_left();
}

#[tokio::test]
async fn commands_in_parallel_end_independently() {
    let world = World::new(json!({})).await;
    // A number that no other process of this machine has, by which one is searched.
    let time = format!("300.{}", std::process::id());
    let stays = world.script(&format!("setsid sh -c 'touch there; sleep {time}; touch never' & wait; echo over"));
    let ended = async {
        world.wait_for_file("there").await;
        for _ in 0..3 {
            world.sh("setsid sleep 300 & exit 0").await;
        }
        // The process of the first command in another session still runs, and is ended.
        let still = world.list_remaining();
        assert!(still.iter().any(|line| line.contains("script.sh")), "{still:?}");
        let pids = fs::read_dir("/proc").unwrap().filter_map(Result::ok).filter(|entry| {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            line == format!("sleep\x00{time}\x00").as_bytes()
        });
        let pids: Vec<String> = pids.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        assert_eq!(pids.len(), 1);
        let pid = rustix::process::Pid::from_raw(pids[0].parse().unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    };
    let (done, ()) = tokio::join!(world.run(json!({"command": ["sh", stays]})), ended);
    let done: Value = done.unwrap();
    assert_eq!((&done["exit_code"], &done["stdout"]), (&json!(0), &json!("over\n")), "{done}");
    world.assert_nothing_is_left();
}

#[test]
fn configuration_invalid_error_names_the_field() {
    use service::tasks::Tasks;
    use tool_host::command::{CommandConfig, Commands};
    let root = fs::metadata("/proc/self").unwrap().uid() == 0;
    let user = json!({"uid": 64_123, "gid": 64_123});
    for (field, value, part) in [
        ("user", if root { json!(null) } else { user.clone() }, "tool_host.command.user "),
        ("cwd", json!("/no/such/place"), "tool_host.command.cwd "),
        ("path", json!(["bin"]), "tool_host.command.path "),
        ("allow", json!(["/bin/sh"]), "tool_host.command.allow "),
        ("timeout", json!(0), "tool_host.command.timeout "),
        ("timeout", json!(4_000), "tool_host.command.timeout "),
        ("output_bytes_max", json!(1 << 20), "tool_host.command.output_bytes_max "),
        ("processes_max", json!(0), "tool_host.command.processes_max "),
        ("env", json!({"A=B": "x"}), "tool_host.command.env "),
    ] {
        let mut config = json!({"allow": ["true"], "cwd": "/", "user": root.then_some(&user)});
        config[field] = value;
        let config: CommandConfig = serde_json::from_value(config).unwrap();
        let Err(error) = Commands::new(&config, Tasks::new()) else { panic!("{field}") };
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!(contract::Coded::code(&error), contract::ErrorCode::BadConfig);
    }
}

#[tokio::test]
async fn host_that_runs_commands_hides_its_environment_and_memory_from_them() {
    let world = World::new(json!({})).await;
    assert_eq!(rustix::process::dumpable_behavior().unwrap(), rustix::process::DumpableBehavior::NotDumpable);
    for look in
        ["head -c 1 /proc/$PPID/environ", "head -c 1 /proc/$PPID/maps", "ls /proc/$PPID/fd/", "ls /proc/$PPID/cwd/"]
    {
        let result = world.sh(look).await;
        assert_ne!(result["exit_code"], 0, "{look}: {result}");
        assert_eq!(result["stdout"], "", "{look}: {result}");
    }
}
