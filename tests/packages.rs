//! The Debian packages on a machine with systemd: installation, upgrade, removal and purge.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};

use crate::support::{
    container::{Container, PACKAGES, packages},
    printed::print_successfully,
    resumable::WorkingScript,
    wait::until,
};

/// The version of the packages under test, and the one that they replace.
const CURRENT: &str = concat!(env!("CARGO_PKG_VERSION"), "-1");
const PREVIOUS: &str = "0.0.1-1";

/// A program in place of QEMU, which runs until it is stopped.
const QEMU: &str = r#"#!/bin/sh
echo "$@" > "$RUNTIME_DIRECTORY/arguments"
cat "$RUNTIME_DIRECTORY"/setting-* > "$RUNTIME_DIRECTORY/read"
tail -f /dev/null &
echo $! > "$RUNTIME_DIRECTORY/pid"
"#;

/// A machine with control and an agent, which has joined it.
struct Machine {
    container: Container,
    key: String,
    _packages: tempfile::TempDir,
}

/// Runs dpkg-deb on two paths, which must succeed.
async fn dpkg_deb(options: &[&str], from: &Path, to: &Path) {
    let mut command = Command::new("dpkg-deb");
    command.args(options).args([from, to]);
    print_successfully(command).await;
}

/// Writes the same package with an earlier version.
async fn write_previous(package: &Path, directory: &Path) {
    let tree = tempfile::tempdir().unwrap();
    dpkg_deb(&["--raw-extract"], package, tree.path()).await;
    let control = tree.path().join("DEBIAN/control");
    let text = fs::read_to_string(&control).unwrap();
    assert!(text.contains(CURRENT), "{text}");
    fs::write(control, text.replace(CURRENT, PREVIOUS)).unwrap();
    let build = ["--root-owner-group", "-Znone", "--build"];
    dpkg_deb(&build, tree.path(), directory).await;
}

/// Returns a directory with the packages under test in `current`, and earlier ones in `previous`.
async fn both_versions() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let [current, previous] = ["current", "previous"].map(|name| directory.path().join(name));
    fs::create_dir(&current).unwrap();
    fs::create_dir(&previous).unwrap();
    let mut count = 0;
    for entry in fs::read_dir(packages()).unwrap() {
        let package = entry.unwrap().path();
        fs::copy(&package, current.join(package.file_name().unwrap())).unwrap();
        write_previous(&package, &previous).await;
        count += 1;
    }
    assert_eq!(
        count, 4,
        "one package each of the program, the agent, control and machines"
    );
    directory
}

impl Machine {
    /// Installs the earlier packages, and sets up both services as the documentation says.
    async fn set_up() -> Machine {
        let packages = both_versions().await;
        let container = Container::boot(packages.path()).await;
        container
            .run(&format!("dpkg --install {PACKAGES}/previous/*.deb"))
            .await;
        for unit in ["berth-agent", "berth-control"] {
            assert_eq!(container.property(unit, "UnitFileState").await, "disabled");
            assert_eq!(container.property(unit, "ActiveState").await, "inactive");
        }
        let toml = "[agent]\ncontrol_url = \"http://127.0.0.1:8080\"\n";
        container
            .run(&format!("printf '%s' '{toml}' > /etc/berth/berth.toml"))
            .await;
        container
            .run("systemctl enable --now berth-control.socket berth-control")
            .await;
        let create = "setpriv --reuid=berth-control --regid=berth-control --clear-groups \
            berth key create --name test --state-dir /var/lib/berth-control";
        let key = container.run(create).await.trim().to_owned();
        let machine = Machine {
            container,
            key,
            _packages: packages,
        };
        machine.join().await;
        machine
    }

    async fn request(&self, method: &str, path: &str, body: Value) -> Value {
        self.container.request(&self.key, method, path, &body).await
    }

    /// Has the agent join control, with a token that systemd passes to it.
    async fn join(&self) {
        let token = self.request("POST", "/fleet/join_tokens", json!({})).await;
        let token = token["token"].as_str().unwrap();
        let write = format!("umask 077; printf '%s' '{token}' > /etc/credstore/berth-join-token");
        self.container.run(&write).await;
        self.container
            .run("systemctl enable --now berth-agent")
            .await;
        self.host_is_ready(1).await;
    }

    /// Waits until the only host is ready in at least this generation.
    async fn host_is_ready(&self, generation: u64) {
        until("a ready host", async || {
            let hosts = self.request("GET", "/fleet/hosts", json!({})).await;
            let host = &hosts[0];
            assert!(hosts.as_array().unwrap().len() <= 1, "{hosts}");
            let is_ready = host["state"] == "ready";
            (is_ready && host["generation"].as_u64() >= Some(generation)).then_some(())
        })
        .await;
    }

    async fn run_script(&self, browser: &str, code: &str) -> Value {
        let path = format!("/browsers/{browser}/automation/execute");
        let answer = self.request("POST", &path, json!({ "code": code })).await;
        assert_eq!(answer["success"], true, "{answer}");
        answer["result"].clone()
    }

    async fn main_pid(&self, unit: &str) -> String {
        self.container.property(unit, "MainPID").await
    }

    /// Waits until the agent's process runs the installed program, not the one that was replaced.
    async fn agent_is_upgraded(&self) {
        let program = "readlink /proc/$(systemctl show --value --property MainPID berth-agent)/exe";
        until("the installed program", async || {
            let path = self.container.run(program).await;
            (path.trim() == "/usr/bin/berth").then_some(())
        })
        .await;
    }

    /// Waits until another process of the unit has started.
    async fn is_started_again(&self, unit: &str, before: &str) {
        until("another process", async || {
            let is_active = self.container.property(unit, "ActiveState").await == "active";
            (is_active && self.main_pid(unit).await != before).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn upgrade_refuses_no_connection_and_keeps_the_browser() {
    let machine = Machine::set_up().await;
    let container = &machine.container;
    let created = machine.request("POST", "/browsers", json!({})).await;
    let browser = created["session_id"].as_str().expect("a browser");
    machine
        .run_script(browser, "await page.setContent('<title>kept</title>')")
        .await;
    let endpoint = created["cdp_ws_url"].as_str().expect("an address");
    let script = WorkingScript::start(container.with_network("node"), endpoint).await;
    // Clients meanwhile, one request after another. Prints the exit status of each.
    let clients = "while :; do curl --silent --output /dev/null --write-out '%{exitcode}\n' \
        http://127.0.0.1:8080/health; done > /run/exits";
    container
        .run(&format!("cat > /run/clients <<'EOF'\n{clients}\nEOF"))
        .await;
    container
        .run("systemd-run --quiet --unit clients sh /run/clients")
        .await;
    let control = machine.main_pid("berth-control").await;
    let agent = machine.main_pid("berth-agent").await;

    container
        .run(&format!("dpkg --install {PACKAGES}/current/*.deb"))
        .await;
    let version = "dpkg-query --show --showformat '${Version}' berth";
    assert_eq!(container.run(version).await, CURRENT);
    let toml = container.run("cat /etc/berth/berth.toml").await;
    assert!(toml.contains("control_url"), "{toml}");
    assert_ne!(machine.main_pid("berth-control").await, control);
    machine.agent_is_upgraded().await;
    script.finish().await;
    assert_eq!(
        machine.run_script(browser, "return page.title()").await,
        "kept"
    );
    assert_eq!(machine.main_pid("berth-agent").await, agent);
    container.run("systemctl stop clients").await;
    let exits = container.run("cat /run/exits").await;
    assert!(
        exits.lines().filter(|exit| *exit == "0").count() > 10,
        "{exits}"
    );
    // A connection without a request yet may be closed, which is 52 or 56. None is refused.
    let allowed = ["0", "52", "56"];
    assert!(exits.lines().all(|exit| allowed.contains(&exit)), "{exits}");

    machine
        .request("DELETE", &format!("/browsers/{browser}"), json!({}))
        .await;
    machine.host_is_ready(2).await;
    machine.container.stop().await;
}

#[tokio::test]
async fn killed_services_are_started_again() {
    let machine = Machine::set_up().await;
    for unit in ["berth-agent", "berth-control"] {
        let before = machine.main_pid(unit).await;
        let kill = format!("systemctl kill --signal=KILL --kill-who=main {unit}");
        machine.container.run(&kill).await;
        machine.is_started_again(unit, &before).await;
    }
    until("a browser", async || {
        let created = machine.request("POST", "/browsers", json!({})).await;
        let browser = created["session_id"].as_str()?;
        assert_eq!(machine.run_script(browser, "return 1 + 1").await, 2);
        Some(())
    })
    .await;
    machine.container.stop().await;
}

#[tokio::test]
async fn control_launches_and_destroys_machines() {
    let machine = Machine::set_up().await;
    let container = &machine.container;
    container
        .run(&format!(
            "cat > /usr/local/bin/qemu-system-x86_64 <<'EOF'\n{QEMU}EOF\n\
             chmod 755 /usr/local/bin/qemu-system-x86_64"
        ))
        .await;
    let options = "[control]\nlaunch_command = \"/usr/lib/berth/vm-launch\"\n\
        destroy_command = \"/usr/lib/berth/vm-destroy\"\nlaunched_host_join_seconds = 30\n";
    container
        .run(&format!(
            "printf '%s' '{options}' >> /etc/berth/berth.toml; systemctl restart berth-control"
        ))
        .await;
    let first = machine.request("POST", "/browsers", json!({})).await;
    assert!(first["session_id"].is_string(), "{first}");
    let second = machine.request("POST", "/browsers", json!({})).await;
    assert_eq!(second["code"], "unavailable", "{second}");

    let list =
        "systemctl list-units --plain --no-legend --state=active 'berth-vm@*' | cut -d' ' -f1";
    let unit = until("a launched machine", async || {
        let units = container.run(list).await;
        units.lines().next().map(str::to_owned)
    })
    .await;
    let name = unit.replace("berth-vm@", "").replace(".service", "");
    let runtime = format!("/run/berth-vm-{name}");
    let stat = format!("stat --format %u {runtime}/pid");
    let user: u32 = container.run(&stat).await.trim().parse().unwrap();
    let dynamic_users = 61184..=65519;
    assert!(dynamic_users.contains(&user), "{user}");
    let settings = container.run(&format!("cat {runtime}/read")).await;
    for expected in [
        "io.systemd.credential:berth.control_url=http://169.254.103.2:8080",
        "io.systemd.credential:berth.join_token=berth_join_",
        "io.systemd.credential:berth.advertise=127.0.0.1:2",
    ] {
        assert!(settings.contains(expected), "{settings}");
    }
    let arguments = container.run(&format!("cat {runtime}/arguments")).await;
    assert!(arguments.contains("hostfwd=tcp:127.0.0.1:2"), "{arguments}");
    assert!(!arguments.contains("berth_join_"), "{arguments}");
    let log = container.run("journalctl --no-pager").await;
    assert!(!log.contains("berth_join_"), "{log}");
    let list_files = format!("ls /run/berth-vm/{name}; ls {runtime} | grep setting || true");
    until("settings that are deleted", async || {
        (container.run(&list_files).await == "port\n").then_some(())
    })
    .await;

    // The machine does not join.
    until("a destroyed machine", async || {
        let units = container.run(list).await;
        let files = container.run("ls /run/berth-vm").await;
        (!units.contains(&unit) && !files.contains(&name)).then_some(())
    })
    .await;
    machine.container.stop().await;
}

#[tokio::test]
async fn removed_packages_keep_configuration_and_state_and_purged_ones_leave_nothing() {
    let machine = Machine::set_up().await;
    let container = &machine.container;
    let state = "stat --format '%U %a' /var/lib/berth-control /etc/credstore";
    assert_eq!(container.run(state).await, "berth-control 700\nroot 700\n");
    container
        .run("test -s /usr/share/man/man1/berth-agent.1.gz")
        .await;
    let completions = [
        "bash-completion/completions/berth",
        "zsh/vendor-completions/_berth",
    ];
    for file in completions {
        container.run(&format!("test -s /usr/share/{file}")).await;
    }

    let names = "berth-vm berth-agent berth-control berth";
    container.run(&format!("dpkg --remove {names}")).await;
    let programs = "for process in /proc/[0-9]*; do readlink $process/exe || true; done";
    let programs = container.run(programs).await;
    for name in ["berth", "chromium", "Xvfb"] {
        assert!(!programs.contains(name), "{programs}");
    }
    container
        .run("test -e /etc/berth/berth.toml -a -e /var/lib/berth-control/berth.db")
        .await;
    assert_eq!(
        container
            .run("find /etc/systemd/system -name 'berth*'")
            .await,
        ""
    );

    container.run(&format!("dpkg --purge {names}")).await;
    let left = "find / -xdev -name '*berth*' -not -path '/packages/*' -not -path '/proc/*' -not -path '/sys/*'";
    assert_eq!(
        container.run(left).await,
        "/etc/credstore/berth-join-token\n"
    );
    machine.container.stop().await;
}
