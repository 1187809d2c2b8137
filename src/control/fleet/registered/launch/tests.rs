//! Tests of the demand for launches, and of the commands with real programs.

use std::{fs, os::unix::fs::PermissionsExt};

use secrecy::SecretString;
use tempfile::TempDir;

use super::{super::join_tokens::FORMAT, command::CommandError, *};
use crate::{
    api::{ids::HostId, viewport::Viewport},
    control::{
        fleet::LaunchOptions,
        store::{HostMode, LaunchToken},
    },
};

fn options(headless: bool) -> LaunchOptions {
    LaunchOptions {
        mode: HostMode {
            headless,
            kiosk_mode: false,
        },
        viewport: Viewport::default(),
    }
}

fn row(slot: Option<u32>, state: State, age_seconds: i64) -> HostLaunchRow {
    let created_at = Utc::now() - TimeDelta::seconds(age_seconds);
    HostLaunchRow {
        id: LaunchId::generate(),
        slot,
        life: LaunchLife {
            state,
            engine_id: None,
            host: None,
        },
        options: options(true),
        token: None,
        created_at,
        changed_at: created_at,
    }
}

fn joined(state: State, age_seconds: i64) -> HostLaunchRow {
    let mut row = row(Some(0), state, age_seconds);
    row.life.host = Some(HostId::generate());
    row
}

#[test]
fn hosts_are_missing_beyond_those_that_are_free_or_launched() {
    let demand = ModeDemand {
        count: 3,
        options: options(true),
    };
    let missing = |free, rows: &[HostLaunchRow]| missing(&demand, free, rows, Utc::now());
    assert_eq!(missing(0, &[]), 3);
    assert_eq!(missing(2, &[]), 1);
    assert_eq!(missing(usize::MAX, &[]), 0);
    for state in [State::Requested, State::Launching, State::Launched] {
        assert_eq!(missing(0, &[row(Some(0), state, 600)]), 2, "{state:?}");
        assert_eq!(missing(3, &[row(Some(0), state, 600)]), 0, "{state:?}");
    }
    assert_eq!(missing(0, &[row(Some(0), State::Destroying, 0)]), 3);
    // Its host has a browser, which may still be counted.
    assert_eq!(missing(0, &[joined(State::Launched, 1)]), 2);
    assert_eq!(missing(0, &[joined(State::Launched, 6)]), 3);
    let mut other_mode = row(Some(0), State::Launching, 0);
    other_mode.options = options(false);
    assert_eq!(missing(0, &[other_mode]), 3);
}

#[test]
fn launches_never_exceed_the_limit() {
    let rows = [
        row(Some(1), State::Launched, 0),
        row(Some(3), State::Destroying, 0),
    ];
    assert_eq!(free_slots(&[], 3), [0, 1, 2]);
    assert_eq!(free_slots(&rows, 5), [0, 2, 4]);
    // The limit was lowered.
    assert_eq!(free_slots(&rows, 1), [0; 0]);
    assert_eq!(free_slots(&rows, 3), [0]);
    let restored = [row(None, State::Destroying, 0)];
    assert_eq!(free_slots(&restored, 3), [0, 1]);
    assert_eq!(free_slots(&restored, 1), [0; 0]);
}

#[test]
fn token_of_a_launch_is_valid_once_and_until_it_expires() {
    let now = Utc::now();
    let generated = FORMAT.generate();
    let text = secret_token::reveal(&generated.token);
    let mut row = row(Some(0), State::Launching, 0);
    assert!(!accepts(&row, &text, now));
    row.token = Some(LaunchToken {
        public_part: generated.public_part,
        digest: generated.digest,
        expires_at: now + TimeDelta::seconds(1),
    });
    assert!(accepts(&row, &text, now));
    assert!(!accepts(&row, &text, now + TimeDelta::seconds(1)));
    let other = secret_token::reveal(&FORMAT.generate().token);
    assert!(!accepts(&row, &other, now));
    row.life.host = Some(HostId::generate());
    assert!(!accepts(&row, &text, now));
    row.life = LaunchLife::destroying(None);
    assert!(!accepts(&row, &text, now));
}

/// A directory with commands.
struct Commands {
    directory: TempDir,
    commands: LaunchCommands,
}

impl Commands {
    fn new(script: &str, timeout: Duration) -> Commands {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("command");
        let script = format!("#!/bin/sh\ncd '{}'\n{script}\n", directory.path().display());
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
        Commands {
            commands: LaunchCommands {
                config: LaunchConfig {
                    launch_command: program.clone(),
                    destroy_command: program,
                    max_hosts: 1,
                    command_timeout: timeout,
                    join_timeout: Duration::from_secs(60),
                    idle_timeout: Duration::from_secs(60),
                },
                control_url: "https://control.test".to_owned(),
                shutdown: Shutdown::new(),
            },
            directory,
        }
    }

    async fn launch(&self) -> Result<EngineId, CommandError> {
        let row = row(Some(0), State::Launching, 0);
        self.commands
            .launch(&row, &SecretString::from("secret-of-the-launch"))
            .await
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.directory.path().join(name)).unwrap()
    }
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn launch_command_gets_the_token_on_standard_input_and_prints_an_id() {
    let script = "cat > input; env > variables; tr '\\0' '\\n' < /proc/$$/cmdline > arguments
        echo i-0abc; echo note >&2";
    let commands = Commands::new(script, LONG);
    let row = row(Some(0), State::Launching, 0);
    let token = SecretString::from("secret-of-the-launch");
    let launched = commands.commands.launch(&row, &token).await;
    assert_eq!(launched.unwrap().as_str(), "i-0abc");
    assert_eq!(
        commands.file("input"),
        "{\"join_token\":\"secret-of-the-launch\"}\n"
    );
    let variables = commands.file("variables");
    for expected in [
        format!("BERTH_LAUNCH_ID={}", row.id),
        "BERTH_LAUNCH_CONTROL_URL=https://control.test".to_owned(),
        "BERTH_LAUNCH_HEADLESS=true".to_owned(),
        "BERTH_LAUNCH_KIOSK_MODE=false".to_owned(),
        format!("BERTH_LAUNCH_VIEWPORT={}", Viewport::default()),
    ] {
        assert!(
            variables.lines().any(|line| line == expected),
            "{expected}\n{variables}"
        );
    }
    for output in [variables, commands.file("arguments")] {
        assert!(!output.contains("secret-of-the-launch"), "{output}");
    }
}

#[tokio::test]
async fn output_that_is_not_one_bounded_id_fails_the_launch() {
    for (script, message) in [
        ("true", "not one line"),
        ("echo; echo i-1", "not one line"),
        ("echo i-1; echo i-2", "not one line"),
        ("echo i 1", "not one line"),
        ("echo -rf", "not one line"),
        ("printf '\\377'", "not one line"),
        ("head -c 1025 /dev/zero", "longer than 1024 bytes"),
        // Does not fill the memory, and does not hang.
        ("yes", "longer than 1024 bytes"),
        ("exit 3", "exit status: 3"),
        ("echo i-1; exit 1", "exit status: 1"),
        ("cat", "contains the join token"),
        ("kill -9 $$", "signal: 9"),
    ] {
        let error = Commands::new(script, LONG).launch().await.unwrap_err();
        assert!(error.to_string().contains(message), "{script}: {error}");
    }
    let mut missing = Commands::new("", LONG);
    missing.commands.config.launch_command = missing.directory.path().join("missing");
    let error = missing.launch().await.unwrap_err();
    assert!(matches!(error, CommandError::Spawn(_)), "{error}");
}

#[tokio::test]
async fn command_that_hangs_is_killed_with_its_group() {
    for script in [
        "sh -c 'echo $$ > pid; exec sleep 1000' & wait",
        // The command exits, and a program has its output.
        "sh -c 'echo $$ > pid; exec sleep 1000' & until [ -s pid ]; do :; done; echo i-1",
    ] {
        let commands = Commands::new(script, Duration::from_secs(2));
        let started = commands.launch().await;
        assert_eq!(started.is_ok(), script.ends_with("i-1"), "{started:?}");
        let pid = commands.file("pid").trim().to_owned();
        let is_alive = || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        while is_alive() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn shutdown_kills_the_command() {
    let commands = Commands::new("exec sleep 1000", LONG);
    commands.commands.shutdown.request();
    let error = commands.launch().await.unwrap_err();
    assert!(matches!(error, CommandError::Shutdown), "{error}");
}

#[tokio::test]
async fn destroy_command_names_the_machine_and_may_print_much() {
    let script = "printf '%s %s' \"$BERTH_LAUNCH_ID\" \"${BERTH_LAUNCH_ENGINE_ID-none}\" > named
        yes | head -c 1000000; yes | head -c 1000000 >&2";
    let commands = Commands::new(script, LONG);
    for engine_id in [None, Some("i-1")] {
        let mut row = row(Some(0), State::Destroying, 0);
        row.life.engine_id = engine_id.map(|id| id.parse().unwrap());
        commands.commands.destroy(&row).await.unwrap();
        let expected = format!("{} {}", row.id, engine_id.unwrap_or("none"));
        assert_eq!(commands.file("named"), expected);
    }
}
