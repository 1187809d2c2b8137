//! Transfers of files and profiles, compared with the system's own programs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Instant,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use reqwest::{Body, Method};
use serde_json::json;
use tempfile::TempDir;
use tokio::{io::AsyncWriteExt, process::Command};

use crate::{
    figures::{Figures, Samples},
    fixtures::{Agent, Result, Site},
};

const ROUNDS: usize = 5;
/// The size of the file that is written and read.
const FILE: usize = 1 << 30;
const CHUNK: usize = 1 << 20;
/// The content added to a profile, as after some use: databases and site data, which compress,
/// and images, which do not.
const TEXT_FILES: usize = 192;
const NOISE_FILES: usize = 64;
const MIB: f64 = (1 << 20) as f64;

pub async fn measure(figures: &mut Figures, agent: &Agent, site: &Site) -> Result<()> {
    profile(figures, agent, site).await?;
    file(figures, agent).await
}

/// Measures archiving and restoring a used profile, in MiB of the profile per second.
async fn profile(figures: &mut Figures, agent: &Agent, site: &Site) -> Result<()> {
    let request = agent.http.request(Method::PUT, "/chromium/start_url");
    let request = request.json(&json!({"url": site.url}));
    request.send().await?.error_for_status()?;
    grow(
        &agent.session_dir().join("user-data/Default/Grown"),
        TEXT_FILES,
        NOISE_FILES,
    )?;
    // The baseline gets a copy: tar would fail when a file changes.
    let scratch = TempDir::new()?;
    let (still, packed) = (scratch.path().join("still"), scratch.path().join("packed"));
    fs::write(&packed, agent.http.get("/user_data").await?)?;
    unpack(&packed, &still).await?;
    let size = size_of(&still)? as f64 / MIB;

    let (mut streamed, mut closed, mut baseline) = <(Samples, Samples, Samples)>::default();
    let (mut ratio, mut baseline_ratio) = <(Samples, Samples)>::default();
    let (mut restored, mut baseline_restored) = <(Samples, Samples)>::default();
    for round in 0..ROUNDS {
        let route = format!("/fs/download_dir_zstd?path={}", still.display());
        let start = Instant::now();
        let archive = agent.http.get(&route).await?;
        streamed.add(size / start.elapsed().as_secs_f64());
        ratio.add(size / (archive.len() as f64 / MIB));

        let start = Instant::now();
        let script = "tar -C \"$1\" -cf - . | zstd -q -f -3 -T0 -c > \"$2\"";
        shell(script, &[&still, &packed]).await?;
        baseline.add(size / start.elapsed().as_secs_f64());
        baseline_ratio.add(size / (fs::metadata(&packed)?.len() as f64 / MIB));

        let start = Instant::now();
        let archive = agent.http.get("/user_data").await?;
        closed.add(size / start.elapsed().as_secs_f64());
        // The restart of Chromium is not measured.
        agent.http.get("/json/version").await?;

        let request = agent.http.request(Method::PUT, "/user_data");
        let start = Instant::now();
        request.body(archive).send().await?.error_for_status()?;
        restored.add(size / start.elapsed().as_secs_f64());
        agent.http.get("/json/version").await?;

        let unpacked = scratch.path().join(format!("unpacked-{round}"));
        let start = Instant::now();
        unpack(&packed, &unpacked).await?;
        baseline_restored.add(size / start.elapsed().as_secs_f64());
        fs::remove_dir_all(unpacked)?;
    }
    let (packs, unpacks) = ("tar | zstd -3 -T0", "zstd -d | tar -x");
    let name = "download_dir_zstd of a profile";
    figures.compare(name, "MiB/s", streamed, packs, baseline.clone());
    let name = "size of the profile over the archive's";
    figures.compare(name, "times", ratio, packs, baseline_ratio);
    let name = "GET /user_data, with Chromium's shutdown";
    figures.compare(name, "MiB/s", closed, packs, baseline);
    let name = "PUT /user_data, with Chromium's shutdown";
    figures.compare(name, "MiB/s", restored, unpacks, baseline_restored);
    Ok(())
}

pub async fn unpack(archive: &Path, into: &Path) -> Result<()> {
    fs::create_dir(into)?;
    let script = "zstd -q -d -c \"$1\" | tar -C \"$2\" -xf -";
    shell(script, &[archive, into]).await
}

/// Measures writing and reading a file of 1 GiB, in MiB per second.
async fn file(figures: &mut Figures, agent: &Agent) -> Result<()> {
    let directory = TempDir::new()?;
    let (path, copy) = (directory.path().join("file"), directory.path().join("copy"));
    let size = FILE as f64 / MIB;
    let (mut written, mut read) = (Samples::default(), Samples::default());
    let (mut copied, mut copied_again) = (Samples::default(), Samples::default());
    let chunk = Bytes::from(noise(CHUNK));
    for _ in 0..ROUNDS {
        let chunk = chunk.clone();
        let chunks = (0..FILE / CHUNK).map(move |_| Ok::<_, std::io::Error>(chunk.clone()));
        // Removing the replaced file takes time on both sides.
        let _ = fs::remove_file(&path);
        let route = format!("/fs/write_file?path={}", path.display());
        let request = agent.http.request(Method::PUT, &route);
        let start = Instant::now();
        let body = Body::wrap_stream(stream::iter(chunks));
        request.body(body).send().await?.error_for_status()?;
        written.add(size / start.elapsed().as_secs_f64());
        copied.add(size / cp(&path, &copy).await?);

        let route = format!("/fs/read_file?path={}", path.display());
        let start = Instant::now();
        let answer = agent.http.request(Method::GET, &route).send().await?;
        let mut chunks = answer.error_for_status()?.bytes_stream();
        let mut out = tokio::fs::File::create(&copy).await?;
        while let Some(chunk) = chunks.next().await {
            out.write_all(&chunk?).await?;
        }
        out.flush().await?;
        read.add(size / start.elapsed().as_secs_f64());
        copied_again.add(size / cp(&path, &copy).await?);
    }
    figures.compare("write_file of 1 GiB", "MiB/s", written, "cp", copied);
    figures.compare(
        "read_file of 1 GiB into a file",
        "MiB/s",
        read,
        "cp",
        copied_again,
    );
    Ok(())
}

/// Copies a file; returns the duration in seconds.
async fn cp(from: &Path, to: &Path) -> Result<f64> {
    let _ = fs::remove_file(to);
    let start = Instant::now();
    shell("cp \"$1\" \"$2\"", &[from, to]).await?;
    Ok(start.elapsed().as_secs_f64())
}

pub async fn shell(script: &str, arguments: &[&Path]) -> Result<()> {
    let mut command = Command::new("sh");
    command
        .args(["-c", script, "sh"])
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let status = command.status().await?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{script}` failed: {status}").into())
    }
}

/// Fills a directory with files of 1 MiB.
pub fn grow(directory: &Path, text_files: usize, noise_files: usize) -> Result<()> {
    fs::create_dir_all(directory)?;
    for number in 0..text_files {
        let mut text = String::with_capacity(CHUNK);
        while text.len() < CHUNK {
            text.push_str(&format!(
                "{{\"visit\":{},\"url\":\"https://example.com/{number}\"}}\n",
                text.len() * 7919
            ));
        }
        fs::write(directory.join(format!("text-{number}")), text)?;
    }
    for (number, noise) in noise(noise_files * CHUNK).chunks(CHUNK).enumerate() {
        fs::write(directory.join(format!("noise-{number}")), noise)?;
    }
    Ok(())
}

/// Returns incompressible bytes.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

pub fn size_of(directory: &Path) -> std::io::Result<u64> {
    let mut size = 0;
    let mut directories: Vec<PathBuf> = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            // Chromium may remove files meanwhile.
            match entry.metadata() {
                Ok(found) if found.is_dir() => directories.push(entry.path()),
                Ok(found) => size += found.len(),
                Err(_) => {}
            }
        }
    }
    Ok(size)
}
