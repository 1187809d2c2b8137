//! The VM image: its size, a machine that boots it, and one that is resumed from a snapshot.
//!
//! The processors are emulated: only ratios of the times say something about other machines.
//! `BERTH_TEST_IMAGE` names the directory with the image.

use std::{fs, path::Path, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use chrono::Utc;
use reqwest::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::{
    figures::{Figures, Samples},
    fixtures::{
        Dev, FLEET, Machine, MachineStart, Result, free_port, from_inside, image, text,
        until_booted,
    },
};

const ROUNDS: usize = 3;
/// The packages that are listed; the others are added up.
const PACKAGES: usize = 8;
const TOKEN: &str = "the-token-of-a-machine";
/// The time in which a browser that has just started comes to rest.
const REST: Duration = Duration::from_secs(20);
/// Prints the memory in use, and the proportional set sizes of groups of processes, in KiB.
const MEMORY: &str = r#"
awk '/MemTotal/ {total = $2} /MemAvailable/ {print "the machine", total - $2}' /proc/meminfo
for process in /proc/[0-9]*; do
    read -r name < $process/comm || continue
    size=$(awk '/^Pss:/ {print $2}' $process/smaps_rollup)
    [ -z "$size" ] || echo "$name $size"
done 2>/dev/null | awk '
    /^chrom/ {sizes["Chromium"] += $NF; next}
    /^Xvfb/ {sizes["Xvfb"] += $NF; next}
    /^berth-(script|worker)/ {sizes["the script workers"] += $NF; next}
    /^berth/ {sizes["the agent and its helpers"] += $NF; next}
    /^(systemd|\(sd-pam|dbus)/ {sizes["systemd"] += $NF; next}
    /^pulseaudio/ {sizes["the sound server"] += $NF; next}
    {sizes["the other processes"] += $NF}
    END {for (part in sizes) print part, sizes[part]}' | sort"#;

pub async fn measure(figures: &mut Figures) -> Result<()> {
    sizes(figures, &image())?;
    let browser_ready = boots(figures).await?;
    resumptions(figures, browser_ready).await
}

/// Adds the sizes of the files, and of the largest packages.
fn sizes(figures: &mut Figures, image: &Path) -> Result<()> {
    for file in ["berth.qcow2", "berth-agent.oci.tar", "berth.initrd"] {
        let kib = fs::metadata(image.join(file))?.len() as f64 / 1024.0;
        figures.alone(format!("size of {file}"), "MiB", mib(kib));
    }
    let table = fs::read_to_string(image.join("berth.sizes.tsv"))?;
    let mut packages = Vec::new();
    for row in table.lines() {
        let mut fields = row.split('\t');
        let size = fields.next().ok_or("no size of a package")?;
        let name = fields.next().ok_or("no name of a package")?;
        packages.push((size.parse::<f64>()?, name));
    }
    packages.sort_by(|one, other| other.0.total_cmp(&one.0));
    let total: f64 = packages.iter().map(|(kib, _)| kib).sum();
    let (listed, others) = packages.split_at(PACKAGES.min(packages.len()));
    let others: f64 = others.iter().map(|(kib, _)| kib).sum();
    for (kib, name) in listed.iter().copied().chain([(others, "the others")]) {
        let share = 100.0 * kib / total;
        figures.alone(format!("installed: {name}, {share:.0} %"), "MiB", mib(kib));
    }
    Ok(())
}

/// Boots machines, and returns the seconds until their browsers are ready.
async fn boots(figures: &mut Figures) -> Result<Samples> {
    let (mut agent_ready, mut browser_ready) = (Samples::new(), Samples::new());
    let mut memory: Vec<(String, Samples)> = Vec::new();
    let client = Client::new();
    for _ in 0..ROUNDS {
        let start = MachineStart {
            credentials: vec![("token", TOKEN.to_owned())],
            ..MachineStart::default()
        };
        let machine = Machine::start(start).await;
        let url = format!("http://127.0.0.1:{}", machine.agent_port);
        let health = async || -> Option<Value> {
            let response = client.get(format!("{url}/health")).send().await.ok()?;
            response.json().await.ok()
        };
        until_booted("an agent", &health).await;
        agent_ready.add(machine.age().as_secs_f64());
        until_booted("a browser", async || {
            let health = health().await?;
            (health["chromium"]["state"] == "running").then_some(())
        })
        .await;
        browser_ready.add(machine.age().as_secs_f64());
        sleep(REST).await;
        let shell = json!({"command": "sh", "args": ["-c", MEMORY], "as_root": true});
        let request = client.post(format!("{url}/process/exec")).json(&shell);
        let response = request.bearer_auth(TOKEN).send().await?;
        add_memory(&mut memory, &response.json().await?)?;
        machine.kill().await;
    }
    figures.alone("boot to the agent", "s", agent_ready);
    figures.alone("boot to the browser", "s", browser_ready.clone());
    for (part, samples) in memory {
        figures.alone(format!("idle memory of {part}"), "MiB", samples);
    }
    Ok(browser_ready)
}

/// Adds what [`MEMORY`] has printed.
fn add_memory(memory: &mut Vec<(String, Samples)>, printed: &Value) -> Result<()> {
    let printed = BASE64_STANDARD.decode(text(printed, "stdout_b64")?)?;
    for line in String::from_utf8(printed)?.lines() {
        let (part, kib) = line.rsplit_once(' ').ok_or("no memory of a part")?;
        let found = memory.iter().position(|(known, _)| known == part);
        let place = found.unwrap_or_else(|| {
            memory.push((part.to_owned(), Samples::new()));
            memory.len() - 1
        });
        memory[place].1.add(kib.parse::<f64>()? / 1024.0);
    }
    Ok(())
}

/// Resumes machines from one snapshot, until a script of each has returned.
async fn resumptions(figures: &mut Figures, boots: Samples) -> Result<()> {
    let state = TempDir::new()?;
    let dev = Dev::start_with(&state, &FLEET, None).await?;
    let start = MachineStart {
        credentials: vec![
            ("control_url", from_inside(&dev.http.base_url)),
            ("allow_plain_http", "true".to_owned()),
            ("template", "true".to_owned()),
        ],
        ..MachineStart::default()
    };
    let machine = Machine::start(start.clone()).await;
    machine.prepare().await;
    let (disk, _directory) = machine.save().await;
    let start = MachineStart {
        resumed_from: Some(disk),
        ..start
    };
    let (mut resumed, mut executed) = (Samples::new(), Samples::new());
    for _ in 0..ROUNDS {
        let port = free_port();
        let token = dev.http.post("/fleet/join_tokens", &json!({})).await?;
        let machine = Machine::start_at(start.clone(), port).await;
        let hook = json!({
            "time": Utc::now().to_rfc3339(),
            "join_token": text(&token, "token")?,
            "advertise": format!("127.0.0.1:{port}"),
        });
        let (status, body) = machine.resumed(hook).await;
        if !status.is_success() {
            return Err(format!("the machine is not resumed: {body}").into());
        }
        resumed.add(machine.age().as_secs_f64());
        let browser = until_booted("a browser", async || dev.create_browser().await.ok()).await;
        let script = json!({"code": "return 1 + 1"});
        let execute = format!("/browsers/{}/automation/execute", browser.id);
        let returned = dev.http.post(&execute, &script).await?;
        if returned["result"] != 2 {
            return Err(format!("the script has failed: {returned}").into());
        }
        executed.add(machine.age().as_secs_f64());
        machine.kill().await;
    }
    dev.stop().await?;
    figures.alone("resume to the answer of the hook", "s", resumed);
    let name = "resume to the result of the first script";
    figures.compare(name, "s", executed, "boot to the browser", boots);
    Ok(())
}

fn mib(kib: f64) -> Samples {
    let mut samples = Samples::new();
    samples.add(kib / 1024.0);
    samples
}
