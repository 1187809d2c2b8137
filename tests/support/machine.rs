//! Machines of the VM image, which QEMU emulates. What they write is discarded.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use chrono::{DateTime, Utc};
use http_body_util::BodyExt;
use hyper::{Request, StatusCode, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
    process::Child,
    time::{Instant, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    files::directory_of,
    printed::print_successfully,
    wait::{polled, within},
};

/// The bound of waits for a boot, which takes a minute with an emulated processor.
const BOOT_TIMEOUT: Duration = Duration::from_secs(400);
/// The time after which a call before a snapshot is repeated.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(5);
/// The same of a call after it, which replaces processes.
const RESUME_TIMEOUT: Duration = Duration::from_secs(40);
/// The address of this machine in that of QEMU's user network.
const OUTSIDE: &str = "10.0.2.2";

/// The options of a control server for machines that are emulated, and so are slow.
pub const FLEET: [&str; 6] = [
    "--fleet",
    "registered",
    "--agents",
    "0",
    "--heartbeat-seconds",
    "5",
];

/// The disk with what a machine writes.
const OVERLAY: &str = "overlay.qcow2";
/// The sockets of a machine: QEMU's own, and that of the hooks.
const MONITOR: &str = "monitor";
const HOOKS: &str = "hooks";
/// The name of a snapshot in a disk.
const SNAPSHOT: &str = "template";

/// The properties of a machine that is started.
#[derive(Clone, Default)]
pub struct Start {
    /// Settings that the firmware passes to systemd.
    pub credentials: Vec<(&'static str, String)>,
    /// The file `user-data` of a disk with the label of cloud-init's.
    pub disk: Option<String>,
    /// Parameters of the kernel, which QEMU then loads itself.
    pub kernel: Option<String>,
    pub memory_mb: Option<u32>,
    pub has_no_network: bool,
    /// The time of its clock when it starts.
    pub clock: Option<DateTime<Utc>>,
    /// The disk of a machine whose snapshot with the name `template` it is resumed from.
    pub resumed_from: Option<PathBuf>,
}

/// A running machine. It is killed when it is dropped.
pub struct Machine {
    qemu: Child,
    directory: TempDir,
    started: Instant,
    /// The port of this machine that leads to the agent's.
    pub agent_port: u16,
}

/// Returns the directory of the image.
pub fn image() -> PathBuf {
    directory_of(
        "BERTH_TEST_IMAGE",
        "make vm-test, or make image and make bench",
    )
}

/// Returns the URL by which a machine reaches a server on a port of the loopback interface here.
pub fn from_inside(url: &str) -> String {
    url.replacen("127.0.0.1", OUTSIDE, 1)
}

/// Waits for something that takes as long as a boot.
pub async fn until_booted<T>(description: &str, poll: impl AsyncFnMut() -> Option<T>) -> T {
    within(BOOT_TIMEOUT, description, polled(poll)).await
}

/// Returns a port that nothing listens on at the moment. QEMU cannot choose one itself.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Machine {
    pub async fn start(start: Start) -> Machine {
        Machine::start_at(start, free_port()).await
    }

    /// Starts a machine whose agent is reached at a port of this machine.
    pub async fn start_at(start: Start, agent_port: u16) -> Machine {
        let directory = tempfile::tempdir().unwrap();
        let overlay = directory.path().join(OVERLAY);
        if let Some(disk) = &start.resumed_from {
            fs::copy(disk, &overlay).unwrap();
        } else {
            let mut create = Command::new("qemu-img");
            create
                .args(["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b"])
                .args([&image().join("berth.qcow2"), &overlay]);
            print_successfully(create).await;
        }
        let mut qemu = emulator(directory.path(), &overlay, &start);
        if let Some(user_data) = &start.disk {
            let disk = settings_disk(directory.path(), user_data).await;
            qemu.arg("-drive").arg(format!(
                "file={},if=virtio,format=raw,readonly=on",
                disk.display()
            ));
        }
        if !start.has_no_network {
            qemu.arg("-nic").arg(format!(
                "user,model=virtio-net-pci,hostfwd=tcp:127.0.0.1:{agent_port}-:10001"
            ));
        }
        let qemu = qemu
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("QEMU is installed");
        Machine {
            qemu,
            directory,
            started: Instant::now(),
            agent_port,
        }
    }

    pub fn console(&self) -> String {
        let console = fs::read(self.directory.path().join("console"));
        String::from_utf8_lossy(&console.unwrap_or_default()).into_owned()
    }

    /// Waits until the console shows a text.
    pub async fn shows(&self, text: &str) {
        until_booted(text, async || self.console().contains(text).then_some(())).await;
    }

    /// Connects to a socket that QEMU creates at its start.
    async fn connect(&self, name: &str) -> UnixStream {
        let path = self.directory.path().join(name);
        until_booted(name, async || UnixStream::connect(&path).await.ok()).await
    }

    /// Waits until the machine serves its hooks.
    pub async fn serves_hooks(&self) {
        until_booted("the hooks of a machine", async || self.is_prepared().await).await;
    }

    /// Prepares the machine for a snapshot as soon as its browser is ready.
    pub async fn prepare(&self) {
        until_booted("a machine that is ready for a snapshot", async || {
            self.is_prepared().await.filter(|is_prepared| *is_prepared)
        })
        .await;
    }

    /// Returns whether the machine is prepared for a snapshot. A request that comes before it
    /// serves its hooks is lost.
    async fn is_prepared(&self) -> Option<bool> {
        let call = self.hook("/suspend/prepare", json!({}));
        let (status, body) = timeout(PREPARE_TIMEOUT, call).await.ok()?;
        assert!([200, 503].contains(&status.as_u16()), "{body}");
        Some(status == StatusCode::OK)
    }

    /// Calls the hook of a machine that was resumed. A request that comes before QEMU has loaded
    /// the snapshot is lost.
    pub async fn resumed(&self, body: Value) -> (StatusCode, Value) {
        until_booted("an answer of a resumed machine", async || {
            let call = self.hook("/suspend/resumed", body.clone());
            timeout(RESUME_TIMEOUT, call).await.ok()
        })
        .await
    }

    /// Calls a hook of the machine, as its engine does, and returns status and body.
    async fn hook(&self, path: &str, body: Value) -> (StatusCode, Value) {
        let stream = TokioIo::new(self.connect(HOOKS).await);
        let (mut sender, connection) = http1::handshake(stream).await.unwrap();
        let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
        let request = Request::post(path)
            .header("content-type", "application/json")
            .header("host", "machine")
            .body(body.to_string())
            .unwrap();
        let (head, body) = sender.send_request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head.status, serde_json::from_slice(&body).unwrap())
    }

    /// Takes a snapshot with the memory, stops the machine, and returns its disk, which is removed
    /// with the returned directory.
    pub async fn save(mut self) -> (PathBuf, TempDir) {
        let mut monitor = BufReader::new(self.connect(MONITOR).await);
        for command in [
            json!({"execute": "qmp_capabilities"}),
            json!({"execute": "human-monitor-command", "arguments": {"command-line": format!("savevm {SNAPSHOT}")}}),
        ] {
            let line = format!("{command}\n");
            monitor.write_all(line.as_bytes()).await.unwrap();
            let returned = within(BOOT_TIMEOUT, "an answer of QEMU", async {
                loop {
                    let mut line = String::new();
                    monitor.read_line(&mut line).await.unwrap();
                    let message: Value = serde_json::from_str(&line).unwrap();
                    if let Some(returned) = message.get("return") {
                        return returned.clone();
                    }
                    assert!(message.get("error").is_none(), "{message}");
                }
            });
            let returned = returned.await;
            assert!(returned == json!({}) || returned == "", "{returned}");
        }
        self.qemu.kill().await.unwrap();
        (self.directory.path().join(OVERLAY), self.directory)
    }

    /// Returns the time since the machine was started.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Kills the machine, as a failure of its power would.
    pub async fn kill(mut self) {
        self.qemu.kill().await.unwrap();
    }
}

/// Returns the command of a machine without network, with its console and its sockets in a
/// directory.
fn emulator(directory: &Path, overlay: &Path, start: &Start) -> tokio::process::Command {
    let mut qemu = tokio::process::Command::new("qemu-system-x86_64");
    // An accelerator would be faster, but not every machine that runs tests can run a guest.
    qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"])
        .args(["-nodefaults", "-display", "none", "-no-user-config"])
        .args(["-m", &start.memory_mb.unwrap_or(2048).to_string()])
        .arg("-drive")
        .arg(format!("file={},if=virtio", overlay.display()))
        .args(["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"])
        .arg("-serial")
        .arg(format!("file:{}/console", directory.display()));
    for (name, option, device) in [
        (MONITOR, "-mon", "mode=control"),
        (HOOKS, "-device", "virtserialport,name=berth.hooks"),
    ] {
        let socket = directory.join(name);
        qemu.arg("-chardev").arg(format!(
            "socket,id={name},server=on,wait=off,path={}",
            socket.display()
        ));
        qemu.arg(option).arg(format!("{device},chardev={name}"));
    }
    if start.resumed_from.is_some() {
        qemu.args(["-loadvm", SNAPSHOT]);
    }
    if let Some(parameters) = &start.kernel {
        qemu.arg("-kernel").arg(image().join("berth.vmlinuz"));
        qemu.arg("-initrd").arg(image().join("berth.initrd"));
        qemu.arg("-append")
            .arg(format!("console=ttyS0 {parameters}"));
    }
    for (key, value) in &start.credentials {
        let value = BASE64_STANDARD.encode(value);
        qemu.arg("-smbios").arg(format!(
            "type=11,value=io.systemd.credential.binary:berth.{key}={value}"
        ));
    }
    if let Some(clock) = start.clock {
        qemu.arg("-rtc")
            .arg(format!("base={}", clock.format("%Y-%m-%dT%H:%M:%S")));
    }
    qemu
}

/// Writes a disk that has the file `user-data`.
async fn settings_disk(directory: &Path, user_data: &str) -> PathBuf {
    let disk = directory.join("settings.img");
    let file = directory.join("user-data");
    fs::write(&file, user_data).unwrap();
    fs::File::create(&disk).unwrap().set_len(1 << 20).unwrap();
    let mut format = Command::new("mkfs.vfat");
    format.args(["-n", "CIDATA"]).arg(&disk);
    print_successfully(format).await;
    let mut copy = Command::new("mcopy");
    copy.arg("-i").arg(&disk).arg(&file).arg("::user-data");
    print_successfully(copy).await;
    disk
}
