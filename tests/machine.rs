//! The VM image: machines that boot it, used from outside.

use std::{path::Path, time::Instant};

use chrono::{TimeDelta, Utc};
use hyper::StatusCode;
use serde_json::{Value, json};

use crate::support::{
    dev::Dev,
    files::unzipped,
    fleet_host::join_token,
    machine::{FLEET, Machine, Start, free_port, from_inside, until_booted},
    machine_browser::MachineBrowser,
    site::Site,
};

/// Waits until a host is ready that is not one of `others`.
async fn ready_host(dev: &Dev, others: &[&Value]) -> Value {
    until_booted("a ready host", async || {
        let hosts = dev.get("/fleet/hosts").await.body;
        let mut hosts = hosts.as_array().unwrap().iter();
        let is_new = |host: &&Value| others.iter().all(|other| other["id"] != host["id"]);
        hosts
            .find(|host| host["state"] == "ready" && is_new(host))
            .cloned()
    })
    .await
}

/// Returns the ports of the local addresses in a table of /proc/net, of the sockets in a state.
fn ports(table: &str, state: &str) -> Vec<u16> {
    let rows = table.lines().map(|row| row.split_whitespace().collect());
    let rows = rows.filter(|fields: &Vec<&str>| fields.len() > 4 && fields[3] == state);
    rows.map(|fields| {
        let (_, port) = fields[1].rsplit_once(':').unwrap();
        u16::from_str_radix(port, 16).unwrap()
    })
    .collect()
}

#[tokio::test]
async fn machine_joins_serves_its_browser_and_recovers() {
    let dev = Dev::with(&FLEET).await;
    let token = join_token(&dev, json!({"uses": 2})).await;
    let machine = Machine::join(&dev, &token).await;
    let host = ready_host(&dev, &[]).await;
    println!("browser ready after {:.1?}", machine.age());
    let browser = MachineBrowser::create(&dev).await;
    println!("{}", browser.shell("systemd-analyze; systemd-analyze critical-chain berth-agent.service; free -m; df -h /", true).await);

    uses_its_parts(&browser).await;
    nothing_but_the_agent_listens(&browser).await;
    pages_and_client_processes_reach_nothing_of_berth(&dev, &browser).await;
    nothing_of_the_image_identifies_the_machine(&browser, &token).await;
    agent_is_started_again_after_a_kill(&dev, &browser).await;

    let path = browser.path.clone();
    browser.shell("systemctl reboot --no-block", true).await;
    until_booted(
        "the end of the browser of a machine that was rebooted",
        async || {
            let found = dev.get(&path).await;
            (found.status == 404).then_some(())
        },
    )
    .await;
    let again = ready_host(&dev, &[&host]).await;
    println!("ready again {:.1?} after the start", machine.age());
    assert_ne!(again["boot_id"], host["boot_id"]);
    let browser = MachineBrowser::create(&dev).await;
    assert_eq!(browser.run("return 1 + 1").await, 2);
    machine.kill().await;
    dev.finish().await;
}

/// Uses each part of the agent: script, input, files, a terminal, a recording and an archive.
async fn uses_its_parts(browser: &MachineBrowser<'_>) {
    let page = "await page.setContent('<title>before</title><body style=\"margin:0\">\
        <button style=\"width:100vw;height:100vh\" onclick=\"document.title=\\'clicked\\'\">');\
        return page.title()";
    assert_eq!(browser.run(page).await, "before");
    let replay = browser.post("/replays", json!({"framerate": 5})).await;
    let click = json!({"actions": [{"type": "click_mouse", "click_mouse": {"x": 600, "y": 600}}]});
    browser.post("/computer/batch", click).await;
    browser
        .run("await page.waitForFunction(() => document.title === 'clicked')")
        .await;
    let replay = replay["replay_id"].as_str().unwrap();
    browser
        .post(&format!("/replays/{replay}/stop"), json!({}))
        .await;
    let watch = browser.post("/fs/watch", json!({"path": "/tmp"})).await;
    assert!(watch["watch_id"].is_string(), "{watch}");
    let terminal = json!({"command": "cat", "allocate_tty": true, "rows": 20, "cols": 70});
    let terminal = browser.post("/process/spawn", terminal).await;
    let resize = format!(
        "/process/{}/resize",
        terminal["process_id"].as_str().unwrap()
    );
    let resized = browser.post(&resize, json!({"rows": 30, "cols": 90})).await;
    assert_eq!(resized, json!({"ok": true}));
    let directory = browser.shell("mktemp -d", false).await;
    let write = format!("echo written > {directory}/file");
    browser.shell(&write, false).await;
    let archive = browser
        .download(&format!("/fs/download_dir_zip?path={directory}"))
        .await;
    assert_eq!(unzipped(&archive)["file"], b"written\n");
}

async fn nothing_but_the_agent_listens(browser: &MachineBrowser<'_>) {
    const LISTENS: &str = "0A";
    const IS_OPEN: &str = "07";
    const DHCP_CLIENTS: [u16; 2] = [68, 546];
    let tables = browser
        .shell("cat /proc/net/tcp /proc/net/tcp6", false)
        .await;
    assert_eq!(ports(&tables, LISTENS), [10001], "{tables}");
    let tables = browser
        .shell("cat /proc/net/udp /proc/net/udp6", false)
        .await;
    let open = ports(&tables, IS_OPEN);
    assert!(
        open.iter().all(|port| DHCP_CLIENTS.contains(port)),
        "{tables}"
    );
}

async fn pages_and_client_processes_reach_nothing_of_berth(
    dev: &Dev,
    browser: &MachineBrowser<'_>,
) {
    let site = Site::serve().await;
    let reachable = format!("{}/check", from_inside(&site.url));
    let addresses = browser.shell("hostname -I", false).await;
    let address = addresses.split_whitespace().next().unwrap();
    let closed = [
        "https://127.0.0.1:10001/health".to_owned(),
        "https://[::1]:10001/health".to_owned(),
        format!("https://{address}:10001/health"),
        format!("{}/health", from_inside(&dev.base_url)),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
    ];
    // Root of the machine reaches control: there is something to be refused.
    let answer = format!("curl -s -o /dev/null {} && echo reached", closed[3]);
    assert_eq!(browser.shell(&answer, true).await, "reached");
    let curl = "curl -sk --max-time 10 -o /dev/null";
    let script = format!("{curl} {reachable} && echo reached");
    assert_eq!(browser.shell(&script, false).await, "reached");
    for url in &closed {
        // 7: no connection.
        let script = format!("{curl} '{url}'; echo $?");
        assert_eq!(browser.shell(&script, false).await, "7", "{url}");
    }
    // Nothing has the address of a metadata service here: the rule has refused the connection.
    let rules = "systemd-run --quiet --pipe --wait nft list chain inet berth output";
    let rules = browser.shell(rules, true).await;
    let mut rules = rules.lines();
    let metadata = rules.find(|rule| rule.contains("@metadata4")).unwrap();
    assert!(!metadata.contains("packets 0 "), "{metadata}");
    let visit = |url: &str| {
        format!("return page.goto('{url}').then(() => 'reached', (error) => error.message)")
    };
    assert_eq!(browser.run(&visit(&reachable)).await, "reached");
    for url in &closed {
        let error = browser.run(&visit(url)).await;
        let error = error.as_str().unwrap();
        assert!(
            error.contains("ERR_CONNECTION_REFUSED") || error.contains("ERR_ADDRESS_UNREACHABLE"),
            "{url}: {error}"
        );
    }
}

async fn nothing_of_the_image_identifies_the_machine(browser: &MachineBrowser<'_>, token: &str) {
    let id = browser.shell("cat /etc/machine-id", false).await;
    assert_eq!(id.len(), 32, "{id}");
    let lower = "mount -o ro /dev/disk/by-partlabel/berth-root /mnt && cat /mnt/etc/machine-id && \
        ! find /mnt/var/lib/berth-agent /mnt/var/lib/systemd/random-seed 2>/dev/null && \
        umount /mnt && echo nothing";
    assert_eq!(browser.shell(lower, true).await, "nothing");
    // The settings are where only root reads them.
    let read = "cat /run/berth/berth.toml /run/berth/join-token";
    assert!(browser.shell(read, true).await.contains(token));
    let read = "cat /run/berth/* /run/credentials/@system/* /proc/cmdline 2>/dev/null || true";
    let readable = browser.shell(read, false).await;
    assert!(readable.contains("AGENT_PORT=10001"), "{readable}");
    assert!(!readable.contains(token), "the join token is readable");
    assert!(!readable.contains("control_url"), "{readable}");
}

async fn agent_is_started_again_after_a_kill(dev: &Dev, browser: &MachineBrowser<'_>) {
    browser
        .run("await page.setContent('<title>lost</title>')")
        .await;
    let kill = "kill -KILL $(systemctl show --value --property MainPID berth-agent)";
    let body = json!({"command": "sh", "args": ["-c", kill], "as_root": true});
    // The agent ends before it can respond.
    let killed = dev
        .post(&format!("{}/process/exec", browser.path), body)
        .await;
    assert!(!killed.status.is_success(), "{}", killed.body);
    until_booted("the agent that was started again", async || {
        let code = json!({"code": "return page.title()"});
        let answer = dev
            .post(&format!("{}/automation/execute", browser.path), code)
            .await;
        // The session goes on without its pages.
        (answer.body["result"] == "").then_some(())
    })
    .await;
}

/// Returns the random numbers of pages, scripts and the kernel of a machine, and its id.
async fn identity(browser: &MachineBrowser<'_>) -> Vec<String> {
    let page = "return page.evaluate(() => \
        [Math.random(), crypto.getRandomValues(new Uint32Array(4))].map(String))";
    let script = "return [String(Math.random())]";
    let [page, script] = [browser.run(page).await, browser.run(script).await];
    let numbers = [page, script].map(|found| serde_json::from_value::<Vec<String>>(found).unwrap());
    let shell =
        "cat /etc/machine-id; head -c 16 /dev/urandom | base64; cat /proc/sys/kernel/random/uuid";
    let shell = browser.shell(shell, false).await;
    let lines = shell.lines().map(str::to_owned).collect();
    [numbers.concat(), lines].concat()
}

#[tokio::test]
async fn machines_of_one_snapshot_are_two_hosts_that_share_no_identity() {
    let dev = Dev::with(&FLEET).await;
    let start = Start {
        credentials: vec![
            ("control_url", from_inside(&dev.base_url)),
            ("allow_plain_http", "true".to_owned()),
            ("template", "true".to_owned()),
        ],
        // Its time is that of the snapshot when it is resumed.
        clock: Some(Utc::now() - TimeDelta::days(1)),
        ..Start::default()
    };
    let machine = Machine::start(start.clone()).await;
    machine.serves_hooks().await;
    println!("hooks after {:.1?}", machine.age());
    machine.prepare().await;
    println!("ready for a snapshot after {:.1?}", machine.age());
    assert_eq!(dev.get("/fleet/hosts").await.body, json!([]));
    let (disk, _directory) = machine.save().await;

    let mut hosts = Vec::new();
    let mut machines = Vec::new();
    let mut identities: Vec<Vec<String>> = Vec::new();
    for _ in 0..2 {
        let (machine, host) = resume(&dev, start.clone(), &disk, &hosts).await;
        let browser = MachineBrowser::create(&dev).await;
        identities.push(identity(&browser).await);
        let now = browser
            .shell("date +%s", false)
            .await
            .parse::<i64>()
            .unwrap();
        assert!((now - Utc::now().timestamp()).abs() < 30, "{now}");
        hosts.push(host);
        machines.push(machine);
    }
    let [first, second] = [&hosts[0], &hosts[1]];
    for field in ["id", "boot_id"] {
        assert_ne!(first[field], second[field]);
    }
    for (one, other) in identities[0].iter().zip(&identities[1]) {
        assert_ne!(one, other);
    }
    for machine in machines {
        machine.kill().await;
    }
    dev.finish().await;
}

/// Resumes a machine from a snapshot, and waits until it is a host that is ready.
async fn resume(dev: &Dev, start: Start, disk: &Path, others: &[Value]) -> (Machine, Value) {
    let port = free_port();
    let start = Start {
        resumed_from: Some(disk.to_owned()),
        ..start
    };
    let machine = Machine::start_at(start, port).await;
    let token = join_token(dev, json!({})).await;
    let without_token = json!({"time": Utc::now().to_rfc3339()});
    let (status, body) = machine.resumed(without_token).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
    let called_at = Instant::now();
    let resume = json!({
        "time": Utc::now().to_rfc3339(),
        "join_token": token,
        "advertise": format!("127.0.0.1:{port}"),
    });
    let (status, body) = machine.resumed(resume).await;
    assert_eq!(status, StatusCode::OK, "{body}\n{}", machine.console());
    println!("resumed within {:.1?}", called_at.elapsed());
    let host = ready_host(dev, &others.iter().collect::<Vec<_>>()).await;
    println!(
        "a host that is ready {:.1?} after it was resumed",
        called_at.elapsed()
    );
    assert_eq!(host["boot_id"], body["boot_id"]);
    assert!(
        !machine.console().contains(&token),
        "the token is on the console"
    );
    (machine, host)
}

#[tokio::test]
async fn settings_of_firmware_precede_those_of_disk_and_kernel() {
    let token = "a-token-of-this-machine";
    let disk = format!("token = \"{token}\"\nviewport = \"1024x768\"\nheadless = true\n");
    let kernel = "berth.viewport=640x480 berth.chromium-flag=--user-agent=planted berth.spare";
    let start = Start {
        credentials: vec![("headless", "false".to_owned())],
        disk: Some(disk),
        kernel: Some(kernel.to_owned()),
        memory_mb: Some(1024),
        ..Start::default()
    };
    let machine = Machine::start(start).await;
    let url = format!("http://127.0.0.1:{}", machine.agent_port);
    let client = reqwest::Client::new();
    let health = until_booted("a browser", async || {
        let response = client.get(format!("{url}/health")).send().await.ok()?;
        let health: Value = response.json().await.ok()?;
        (health["chromium"]["state"] == "running").then_some(health)
    })
    .await;
    println!("browser ready after {:.1?} with 1 GiB", machine.age());
    let viewport = &health["display"]["viewport"];
    assert_eq!(
        json!([
            health["display"]["state"],
            viewport["width"],
            viewport["height"]
        ]),
        json!(["up", 1024, 768]),
        "{health}"
    );
    let request = client.post(format!("{url}/automation/execute"));
    let code = json!({"code": "return page.evaluate(() => navigator.userAgent)"});
    let answer = request.bearer_auth(token).json(&code).send().await.unwrap();
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(answer["result"], "planted", "{answer}");

    let exec = async |script: &str| {
        let request = client.post(format!("{url}/process/exec"));
        let body = json!({"command": "sh", "args": ["-c", script], "as_root": true});
        let answer = request.bearer_auth(token).json(&body).send().await.unwrap();
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["exit_code"], 0, "{answer}");
    };
    let problems = async || {
        let response = client.get(format!("{url}/health")).send().await.unwrap();
        let health: Value = response.json().await.unwrap();
        health["problems"].to_string()
    };
    let full = "the disk of the state directory is nearly full";
    assert!(!problems().await.contains(full));
    exec("fallocate -l $(($(df --output=avail -B1 / | tail -1) - 50000000)) /var/tmp/fill").await;
    assert!(problems().await.contains(full), "{}", problems().await);
    machine.shows(full).await;
    exec("rm /var/tmp/fill").await;
    assert!(!problems().await.contains(full));
    let console = machine.console();
    assert!(!console.contains(token), "the token is on the console");
    machine.kill().await;
}

#[tokio::test]
async fn console_names_a_wrong_clock() {
    let dev = Dev::with(&FLEET).await;
    let token = join_token(&dev, json!({})).await;
    let start = Start {
        clock: Some(Utc::now() + TimeDelta::days(1)),
        ..Start::default()
    };
    let machine = Machine::join_with(&dev, &token, start).await;
    machine.shows("ahead of that of control").await;
    let console = machine.console();
    assert!(!console.contains(&token), "the token is on the console");
    machine.kill().await;
    dev.finish().await;
}

#[tokio::test]
async fn console_names_a_setting_that_is_unknown() {
    let start = Start {
        kernel: Some("berth.lisen=0.0.0.0:1".to_owned()),
        ..Start::default()
    };
    let machine = Machine::start(start).await;
    machine
        .shows("kernel command line: lisen is not an option of the agent")
        .await;
    machine.kill().await;
}

#[tokio::test]
async fn console_names_the_error_of_a_registration() {
    let start = Start {
        credentials: vec![
            ("control_url", "https://control.invalid".to_owned()),
            ("join_token", "a-token-that-is-not-used".to_owned()),
        ],
        has_no_network: true,
        ..Start::default()
    };
    let machine = Machine::start(start).await;
    machine.shows("cannot register at control: ").await;
    let console = machine.console();
    assert!(!console.contains("a-token-that"), "{console}");
    machine.kill().await;
}
