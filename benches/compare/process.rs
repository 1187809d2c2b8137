//! Processes over HTTP, compared with direct system calls.

use std::{process::Stdio, time::Instant};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::Command,
};

use crate::{
    figures::{Figures, Samples},
    fixtures::{Agent, Http, Result},
};

const CALLS: usize = 500;
const ROUNDS: usize = 5;
const BYTES: u64 = 1 << 30;
/// The bytes streamed over HTTP. Fewer, as they are base64 in JSON.
const STREAMED: u64 = 256 << 20;
const MIB: f64 = 1024.0 * 1024.0;

pub async fn measure(figures: &mut Figures, agent: &Agent) -> Result<()> {
    exec(figures, &agent.http).await?;
    first_byte(figures, &agent.http).await?;
    echo(figures, &agent.http).await?;
    unread(figures, &agent.http).await?;
    stream(figures, &agent.http).await
}

async fn exec(figures: &mut Figures, http: &Http) -> Result<()> {
    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    for _ in 0..CALLS {
        let start = Instant::now();
        let answer = http
            .post("/process/exec", &json!({"command": "true"}))
            .await?;
        berth.add_us(start.elapsed());
        expect(answer["exit_code"] == 0, &answer)?;

        let start = Instant::now();
        // Without a closure between fork and exec the standard library uses posix_spawn.
        let status = tokio::task::spawn_blocking(|| {
            std::process::Command::new("true")
                .stdin(Stdio::null())
                .status()
        });
        status.await??;
        baseline.add_us(start.elapsed());
    }
    figures.compare("exec `true`", "us", berth, "posix_spawn and wait", baseline);
    Ok(())
}

async fn first_byte(figures: &mut Figures, http: &Http) -> Result<()> {
    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    let line = json!({"command": "echo", "args": ["x"]});
    for _ in 0..CALLS {
        let start = Instant::now();
        let id = spawn(http, &line).await?;
        let mut events = Events::open(http, &id).await?;
        let event = events.next().await?;
        berth.add_us(start.elapsed());
        expect(event["stream"] == "stdout", &event)?;

        let start = Instant::now();
        let mut child = Command::new("echo")
            .arg("x")
            .stdout(Stdio::piped())
            .spawn()?;
        let mut stdout = child.stdout.take().ok_or("no standard output")?;
        stdout.read_u8().await?;
        baseline.add_us(start.elapsed());
        child.wait().await?;
    }
    figures.compare(
        "spawn to first byte",
        "us",
        berth,
        "posix_spawn with a pipe",
        baseline,
    );
    Ok(())
}

async fn echo(figures: &mut Figures, http: &Http) -> Result<()> {
    let id = spawn(http, &json!({"command": "cat"})).await?;
    let mut events = Events::open(http, &id).await?;
    let route = format!("/process/{id}/stdin");
    let body = json!({"data_b64": STANDARD.encode("x")});
    let mut child = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut stdin = child.stdin.take().ok_or("no standard input")?;
    let mut stdout = child.stdout.take().ok_or("no standard output")?;
    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    for _ in 0..CALLS {
        let start = Instant::now();
        let (_, event) = tokio::try_join!(http.post(&route, &body), events.next())?;
        berth.add_us(start.elapsed());
        expect(event["data_b64"] == body["data_b64"], &event)?;

        let start = Instant::now();
        stdin.write_all(b"x").await?;
        stdout.read_u8().await?;
        baseline.add_us(start.elapsed());
    }
    kill(http, &id).await?;
    figures.compare(
        "stdin to `cat` and back",
        "us",
        berth,
        "two pipes",
        baseline,
    );
    Ok(())
}

/// Measures a child that writes without a reader.
async fn unread(figures: &mut Figures, http: &Http) -> Result<()> {
    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    let write = format!("head -c {BYTES} /dev/zero");
    for _ in 0..ROUNDS {
        // The child measures its own duration, so that requests are not included.
        let timed = format!("start=$(date +%s%N); {write}; echo $(($(date +%s%N) - start)) >&2");
        let id = spawn(http, &json!({"command": "sh", "args": ["-c", timed]})).await?;
        let mut events = Events::open_waiting(http, &id).await?;
        let mut stderr = String::new();
        loop {
            let event = events.next().await?;
            if event["stream"] == "stderr" {
                stderr.push_str(std::str::from_utf8(&data(&event)?)?);
            }
            if event["event"] == "exit" {
                break;
            }
        }
        let nanos: f64 = stderr.trim().parse()?;
        berth.add(BYTES as f64 / MIB / (nanos / 1e9));

        let start = Instant::now();
        let through = format!("{write} | cat >/dev/null");
        let status = Command::new("sh").args(["-c", &through]).status().await?;
        expect(status.success(), &Value::Null)?;
        baseline.add(BYTES as f64 / MIB / start.elapsed().as_secs_f64());
    }
    figures.compare(
        "1 GiB written without a reader",
        "MiB/s",
        berth,
        "| cat >/dev/null",
        baseline,
    );
    Ok(())
}

async fn stream(figures: &mut Figures, http: &Http) -> Result<()> {
    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        // Starts once there is a reader, and stays within the buffer of a reader that keeps up.
        let line = format!("read go; head -c {STREAMED} /dev/zero");
        let id = spawn(http, &json!({"command": "sh", "args": ["-c", line]})).await?;
        let mut events = Events::open(http, &id).await?;
        let start = Instant::now();
        let go = json!({"data_b64": STANDARD.encode("go\n")});
        http.post(&format!("/process/{id}/stdin"), &go).await?;
        let mut bytes = 0;
        loop {
            let event = events.next().await?;
            match event["event"].as_str() {
                Some("exit") => break,
                // Output dropped for a slow reader is not counted.
                Some(_) => {}
                None => bytes += data(&event)?.len(),
            }
        }
        berth.add(bytes as f64 / MIB / start.elapsed().as_secs_f64());

        let start = Instant::now();
        let mut child = Command::new("head")
            .args(["-c", &STREAMED.to_string(), "/dev/zero"])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut stdout = child.stdout.take().ok_or("no standard output")?;
        let mut buffer = vec![0; 64 << 10];
        while stdout.read(&mut buffer).await? > 0 {}
        baseline.add(STREAMED as f64 / MIB / start.elapsed().as_secs_f64());
        child.wait().await?;
    }
    figures.compare(
        "output streamed and decoded",
        "MiB/s",
        berth,
        "a pipe",
        baseline,
    );
    Ok(())
}

async fn spawn(http: &Http, body: &Value) -> Result<String> {
    let answer = http.post("/process/spawn", body).await?;
    Ok(answer["process_id"].as_str().ok_or("no id")?.to_owned())
}

async fn kill(http: &Http, id: &str) -> Result<()> {
    let body = json!({"signal": "KILL"});
    http.post(&format!("/process/{id}/kill"), &body).await?;
    Ok(())
}

fn data(event: &Value) -> Result<Vec<u8>> {
    Ok(STANDARD.decode(event["data_b64"].as_str().ok_or("no data")?)?)
}

fn expect(holds: bool, found: &Value) -> Result<()> {
    match holds {
        true => Ok(()),
        false => Err(format!("unexpected: {found}").into()),
    }
}

/// Reads a process's output.
struct Events {
    response: reqwest::Response,
    buffer: Vec<u8>,
    read: usize,
}

impl Events {
    async fn open(http: &Http, id: &str) -> Result<Self> {
        let route = format!("/process/{id}/stdout/stream");
        let response = http.request(reqwest::Method::GET, &route).send().await?;
        Ok(Self {
            response: response.error_for_status()?,
            buffer: Vec::new(),
            read: 0,
        })
    }

    /// Opens the stream once the process has exited.
    async fn open_waiting(http: &Http, id: &str) -> Result<Self> {
        let mut tick = tokio::time::interval(std::time::Duration::from_millis(20));
        loop {
            tick.tick().await;
            let status = http.get(&format!("/process/{id}/status")).await?;
            let status: Value = serde_json::from_slice(&status)?;
            if status["state"] == "exited" {
                return Self::open(http, id).await;
            }
        }
    }

    async fn next(&mut self) -> Result<Value> {
        loop {
            let unread = &self.buffer[self.read..];
            if let Some(length) = unread.windows(2).position(|two| two == b"\n\n") {
                let block = std::str::from_utf8(&unread[..length])?;
                let json = block.lines().find_map(|line| line.strip_prefix("data: "));
                let event = json.map(serde_json::from_str).transpose()?;
                self.read += length + 2;
                if let Some(event) = event {
                    return Ok(event);
                }
                continue;
            }
            self.buffer.drain(..self.read);
            self.read = 0;
            let chunk = self
                .response
                .chunk()
                .await?
                .ok_or("the stream ended too early")?;
            self.buffer.extend_from_slice(&chunk);
        }
    }
}
