//! The units below `systemd/`, as systemd and the programs that they start see them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{
    dev::{BERTH, berth},
    printed::print,
};

const SERVICES: [&str; 2] = ["berth-agent.service", "berth-control.service"];
/// The highest permitted exposure of control, in tenths (`systemd-analyze security`).
const CONTROL_EXPOSURE: &str = "11";
/// The agent needs most rights: this is where it stands, with the reason for each in the unit.
const AGENT_EXPOSURE: &str = "62";
/// A machine needs the network and KVM.
const MACHINE_EXPOSURE: &str = "16";

fn units() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd")
}

/// Returns the text of a unit with the program of this build, and with directories of the test.
fn localized(text: &str, directory: &Path) -> String {
    let programs = Path::new(BERTH).parent().unwrap();
    text.replace("/usr/bin/berth", BERTH)
        .replace(
            "/usr/lib/berth/vm-",
            &units().join("vm/vm-").display().to_string(),
        )
        .replace("/usr/lib/berth", &programs.display().to_string())
        .replace("%S", &directory.display().to_string())
        .replace("/etc/berth", &units().display().to_string())
}

#[tokio::test]
async fn units_are_valid() {
    let directory = TempDir::new().unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no", "--recursive-errors=no"]);
    for entry in fs::read_dir(units()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        if !matches!(path.extension(), Some(kind) if kind == "service" || kind == "socket") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let copy = directory.path().join(name);
        fs::write(&copy, localized(&text, directory.path())).unwrap();
        verify.arg(copy);
    }
    let verified = print(verify).await;
    assert!(verified.status.success(), "{}", verified.stderr);
    assert_eq!(verified.stderr, "");
}

#[tokio::test]
async fn commands_of_the_services_are_valid() {
    for service in SERVICES {
        let directory = TempDir::new().unwrap();
        let text = fs::read_to_string(units().join(service)).unwrap();
        let text = localized(&text, directory.path());
        let mut lines = text.lines();
        let started = lines.find_map(|line| line.strip_prefix("ExecStart="));
        let started = started.unwrap();
        let mut check = berth(&["check"]);
        check.args(started.split(' ').skip(1));
        let checked = print(check).await;
        assert!(checked.status.success(), "{service}: {}", checked.stderr);
    }
}

#[tokio::test]
async fn services_are_hardened_and_explain_each_exception() {
    let services = SERVICES.into_iter().chain(["berth-vm@.service"]);
    let thresholds = [AGENT_EXPOSURE, CONTROL_EXPOSURE, MACHINE_EXPOSURE];
    for (service, threshold) in services.zip(thresholds) {
        let path = units().join(service);
        let text = fs::read_to_string(&path).unwrap();
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["security", "--offline=true", "--json=short", "--threshold"]);
        analyze.arg(threshold).arg(&path);
        let analyzed = print(analyze).await;
        assert!(analyzed.status.success(), "{service}: {}", analyzed.stderr);
        let settings: Vec<Value> = serde_json::from_str(&analyzed.stdout).unwrap();
        assert!(settings.len() > 50, "{}", analyzed.stdout);
        for setting in settings {
            let name = setting["name"].as_str().unwrap();
            let directive = &name[..=name.find('=').unwrap()];
            let is_exception = setting["set"] == false && setting["exposure"].is_string();
            let mut comments = text.lines().filter(|line| line.starts_with("#   "));
            assert!(
                !is_exception || comments.any(|line| line.contains(directive)),
                "{service} does not explain {name}"
            );
        }
    }
}
