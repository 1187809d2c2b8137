//! The manifests below `image/engines`, checked against the schemas of their engines.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::support::{
    dev::berth,
    printed::print,
    python::{clients, output_of, python},
};

fn manifest(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("image/engines").join(name)
}

/// Runs a check of `manifests.py`, and returns what it prints.
async fn checked(check: &str, name: &str) -> String {
    let mut command = Command::new(python());
    command.arg(clients().join("manifests.py")).arg(check);
    output_of(command.arg(manifest(name))).await
}

#[tokio::test]
async fn libvirt_domain_is_valid() {
    let mut validate = Command::new("virt-xml-validate");
    output_of(validate.arg(manifest("libvirt.xml")).arg("domain")).await;
}

#[tokio::test]
async fn kubevirt_manifest_has_the_types_of_its_resources() {
    checked("kubernetes", "kubevirt.yaml").await;
    let program = checked("kubevirt", "kubevirt.yaml").await;
    let directory = TempDir::new().unwrap();
    // The compiler looks for packages beside the program.
    let packages = clients().join("node_modules");
    symlink(&packages, directory.path().join("node_modules")).unwrap();
    let file = directory.path().join("machines.ts");
    fs::write(&file, program).unwrap();
    let mut compile = Command::new("node");
    compile
        .arg(packages.join("typescript/bin/tsc"))
        .args(["--noEmit", "--strict", "--skipLibCheck"])
        .args(["--module", "nodenext", "--target", "es2022"])
        .arg(file);
    output_of(&mut compile).await;
}

#[tokio::test]
async fn agent_sandbox_is_a_pod_with_valid_options() {
    checked("kubernetes", "agent-sandbox.yaml").await;
    let container = checked("agent-sandbox", "agent-sandbox.yaml").await;
    let container: Value = serde_json::from_str(&container).unwrap();
    let directory = TempDir::new().unwrap();
    let token = directory.path().join("join-token");
    fs::write(&token, "berth_join_0123456789").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o400)).unwrap();
    // The options of the container's image, and those of the manifest.
    let mut check = berth(&["check", "agent", "--listen", "0.0.0.0:10001"]);
    check.arg("--state-dir").arg(directory.path().join("state"));
    for argument in container["arguments"].as_array().unwrap() {
        check.arg(argument.as_str().unwrap());
    }
    for (name, value) in container["environment"].as_object().unwrap() {
        match name.as_str() {
            "BERTH_AGENT_JOIN_TOKEN_FILE" => check.env(name, &token),
            _ => check.env(name, value.as_str().unwrap()),
        };
    }
    let checked = print(check).await;
    assert!(checked.status.success(), "{}", checked.stderr);
}

#[tokio::test]
async fn nomad_job_has_the_configuration_of_the_qemu_driver() {
    checked("nomad", "nomad.hcl").await;
}
