//! The VM image: its size, and a machine that boots it, whose processor QEMU emulates.
//!
//! `BERTH_TEST_IMAGE` names the directory with the image.

use std::{fs, path::Path, time::Instant};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    figures::{Figures, Samples},
    fixtures::{
        Dev, Machine, MachineStart, Result, free_port, from_inside, image, text, until_booted,
    },
};

const MIB: f64 = (1 << 20) as f64;
/// The packages that are listed; the others are added up.
const PACKAGES: usize = 8;
const RESUMPTIONS: usize = 3;
/// Prints the memory of the machine, and that of groups of its processes, in KiB.
const MEMORY: &str = r#"awk '/MemTotal/ {t = $2} /MemAvailable/ {print "the machine", t - $2}' /proc/meminfo
for process in /proc/[0-9]*; do
    read -r name < $process/comm || continue
    pss=$(awk '/^Pss:/ {print $2}' $process/smaps_rollup 2>/dev/null)
    echo "${name:-none} ${pss:-0}"
done | awk '
    /^chrom/ {chromium += $NF; next}
    /^Xvfb/ {xvfb += $NF; next}
    /^berth-script/ {workers += $NF; next}
    /^berth/ {agent += $NF; next}
    /^(systemd|\(sd-pam|dbus)/ {systemd += $NF; next}
    /^pulseaudio/ {sound += $NF; next}
    END {
        print "Chromium", chromium; print "Xvfb", xvfb; print "script workers", workers
        print "the agent", agent; print "systemd", systemd; print "the sound server", sound
    }'"#;

pub async fn measure(figures: &mut Figures) -> Result<()> {
    sizes(figures, &image())?;
    let state = TempDir::new()?;
    let options = ["--fleet", "registered", "--agents", "0"];
    let dev = Dev::start_with(&state, &options, None).await?;
    let start = MachineStart {
        credentials: vec![
            ("control_url", from_inside(&dev.http.base_url)),
            ("allow_plain_http", "true".to_owned()),
            ("template", "true".to_owned()),
        ],
        ..MachineStart::default()
    };
    let (mut agent_ready, mut browser_ready) = (Samples::default(), Samples::default());
    let machine = Machine::start(start.clone()).await;
    machine.serves_hooks().await;
    agent_ready.add(machine.age().as_secs_f64());
    machine.prepare().await;
    browser_ready.add(machine.age().as_secs_f64());
    let (disk, _directory) = machine.save().await;

    let mut executed = Samples::default();
    let mut memory = Value::Null;
    for _ in 0..RESUMPTIONS {
        let (machine, seconds, report) = resume(&dev, &start, &disk).await?;
        executed.add(seconds);
        memory = report;
        machine.kill().await;
    }
    dev.stop().await?;
    figures.alone("boot to the agent, emulated", "s", agent_ready);
    let boot = browser_ready.clone();
    figures.alone("boot to the browser, emulated", "s", browser_ready);
    let name = "resume to the first script, emulated";
    figures.compare(name, "s", executed, "boot to the browser", boot);
    for line in text(&memory, "stdout")?.lines() {
        let (part, kib) = line.rsplit_once(' ').ok_or("no memory of a part")?;
        let mib = kib.parse::<f64>()? / 1024.0;
        figures.alone(format!("idle memory of {part}"), "MiB", Samples::of(mib));
    }
    Ok(())
}

/// Resumes a machine, and returns the seconds until the result of a script, and its memory.
async fn resume(dev: &Dev, start: &MachineStart, disk: &Path) -> Result<(Machine, f64, Value)> {
    let port = free_port();
    let start = MachineStart {
        resumed_from: Some(disk.to_owned()),
        ..start.clone()
    };
    let token = dev.http.post("/fleet/join_tokens", &json!({})).await?;
    let resumed_at = Instant::now();
    let machine = Machine::start_at(start, port).await;
    let hook = json!({
        "time": chrono::Utc::now().to_rfc3339(),
        "join_token": text(&token, "token")?,
        "advertise": format!("127.0.0.1:{port}"),
    });
    let (status, body) = machine.resumed(hook).await;
    if !status.is_success() {
        return Err(format!("the machine is not resumed: {body}").into());
    }
    let browser = until_booted("a browser", async || dev.create_browser().await.ok()).await;
    let path = format!("/browsers/{}", browser.id);
    let script = json!({"code": "return 1 + 1"});
    let execute = format!("{path}/automation/execute");
    let result = dev.http.post(&execute, &script).await?;
    if result["result"] != 2 {
        return Err(format!("the script failed: {result}").into());
    }
    let seconds = resumed_at.elapsed().as_secs_f64();
    let shell = json!({"command": "sh", "args": ["-c", MEMORY], "as_root": true});
    let mut memory = dev
        .http
        .post(&format!("{path}/process/exec"), &shell)
        .await?;
    memory["stdout"] = json!(decode(&text(&memory, "stdout_b64")?)?);
    Ok((machine, seconds, memory))
}

/// Adds the sizes of the files, and of the largest packages.
fn sizes(figures: &mut Figures, image: &Path) -> Result<()> {
    for file in ["berth.qcow2", "berth-agent.oci.tar", "berth.initrd"] {
        let bytes = fs::metadata(image.join(file))?.len();
        figures.alone(
            format!("size of {file}"),
            "MiB",
            Samples::of(bytes as f64 / MIB),
        );
    }
    let table = fs::read_to_string(image.join("berth.sizes.tsv"))?;
    let mut packages = Vec::new();
    for row in table.lines() {
        let (kib, rest) = row.split_once('\t').ok_or("no size of a package")?;
        let name = rest.split('\t').next().unwrap_or(rest);
        packages.push((kib.parse::<f64>()? / 1024.0, name));
    }
    packages.sort_by(|one, other| other.0.total_cmp(&one.0));
    let total: f64 = packages.iter().map(|(mib, _)| mib).sum();
    let (listed, others) = packages.split_at(PACKAGES.min(packages.len()));
    let others: f64 = others.iter().map(|(mib, _)| mib).sum();
    for (mib, name) in listed.iter().copied().chain([(others, "the others")]) {
        let share = 100.0 * mib / total;
        figures.alone(
            format!("installed: {name}, {share:.0} %"),
            "MiB",
            Samples::of(mib),
        );
    }
    Ok(())
}

fn decode(text: &str) -> Result<String> {
    Ok(String::from_utf8(BASE64_STANDARD.decode(text)?)?)
}
