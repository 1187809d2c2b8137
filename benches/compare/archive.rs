//! Files and profiles, moved whole: beside what the system's own programs take for the same.

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
    parts::{Agent, Result, Site},
};

const ROUNDS: usize = 5;
/// One file, written and read.
const FILE: usize = 1 << 30;
const CHUNK: usize = 1 << 20;
/// What a profile has grown by that was used for a while: databases and site data, which compress, and images, which do not.
const TEXT_FILES: usize = 192;
const NOISE_FILES: usize = 64;
const MIB: f64 = (1 << 20) as f64;

pub async fn measure(figures: &mut Figures, agent: &Agent, site: &Site) -> Result<()> {
    profile(figures, agent, site).await?;
    file(figures, agent).await
}

/// Archive and restore of a used profile, in MiB of the profile per second.
async fn profile(figures: &mut Figures, agent: &Agent, site: &Site) -> Result<()> {
    let request = agent.http.request(Method::PUT, "/chromium/start_url");
    let request = request.json(&json!({"url": site.url}));
    request.send().await?.error_for_status()?;
    grow(&agent.state_dir().join("user-data/Default/Grown"))?;
    // Theirs get a copy that stands still: they would break off over a file that changes.
    let elsewhere = TempDir::new()?;
    let (still, packed) = (
        elsewhere.path().join("still"),
        elsewhere.path().join("packed"),
    );
    fs::write(&packed, agent.http.get("/user_data").await?)?;
    unpack(&packed, &still).await?;
    let size = size_of(&still)? as f64 / MIB;

    let (mut streamed, mut closed, mut theirs) = <(Samples, Samples, Samples)>::default();
    let (mut ratio, mut their_ratio) = <(Samples, Samples)>::default();
    let (mut restored, mut their_restored) = <(Samples, Samples)>::default();
    for round in 0..ROUNDS {
        let route = format!("/fs/download_dir_zstd?path={}", still.display());
        let begun = Instant::now();
        let archive = agent.http.get(&route).await?;
        streamed.add(size / begun.elapsed().as_secs_f64());
        ratio.add(size / (archive.len() as f64 / MIB));

        let begun = Instant::now();
        let script = "tar -C \"$1\" -cf - . | zstd -q -f -3 -T0 -c > \"$2\"";
        shell(script, &[&still, &packed]).await?;
        theirs.add(size / begun.elapsed().as_secs_f64());
        their_ratio.add(size / (fs::metadata(&packed)?.len() as f64 / MIB));

        let begun = Instant::now();
        let archive = agent.http.get("/user_data").await?;
        closed.add(size / begun.elapsed().as_secs_f64());
        // It is just being started again, which is not what is measured here.
        agent.http.get("/json/version").await?;

        let request = agent.http.request(Method::PUT, "/user_data");
        let begun = Instant::now();
        request.body(archive).send().await?.error_for_status()?;
        restored.add(size / begun.elapsed().as_secs_f64());
        agent.http.get("/json/version").await?;

        let unpacked = elsewhere.path().join(format!("unpacked-{round}"));
        let begun = Instant::now();
        unpack(&packed, &unpacked).await?;
        their_restored.add(size / begun.elapsed().as_secs_f64());
        fs::remove_dir_all(unpacked)?;
    }
    let (packs, unpacks) = ("tar | zstd -3 -T0", "zstd -d | tar -x");
    let name = "download_dir_zstd of a profile";
    figures.compare(name, "MiB/s", streamed, packs, theirs.clone());
    let name = "size of the profile over the archive's";
    figures.compare(name, "times", ratio, packs, their_ratio);
    let name = "GET /user_data, Chromium's end included";
    figures.compare(name, "MiB/s", closed, packs, theirs);
    let name = "PUT /user_data, Chromium's end included";
    figures.compare(name, "MiB/s", restored, unpacks, their_restored);
    Ok(())
}

async fn unpack(archive: &Path, into: &Path) -> Result<()> {
    fs::create_dir(into)?;
    let script = "zstd -q -d -c \"$1\" | tar -C \"$2\" -xf -";
    shell(script, &[archive, into]).await
}

/// A file of a GiB, in and out, in MiB per second.
async fn file(figures: &mut Figures, agent: &Agent) -> Result<()> {
    let folder = TempDir::new()?;
    let (path, copy) = (folder.path().join("file"), folder.path().join("copy"));
    let size = FILE as f64 / MIB;
    let (mut written, mut read) = (Samples::default(), Samples::default());
    let (mut copied, mut copied_again) = (Samples::default(), Samples::default());
    let chunk = Bytes::from(noise(CHUNK));
    for _ in 0..ROUNDS {
        let chunk = chunk.clone();
        let chunks = (0..FILE / CHUNK).map(move |_| Ok::<_, std::io::Error>(chunk.clone()));
        // To remove what is replaced takes time as well, on both sides.
        let _ = fs::remove_file(&path);
        let route = format!("/fs/write_file?path={}", path.display());
        let request = agent.http.request(Method::PUT, &route);
        let begun = Instant::now();
        let body = Body::wrap_stream(stream::iter(chunks));
        request.body(body).send().await?.error_for_status()?;
        written.add(size / begun.elapsed().as_secs_f64());
        copied.add(size / cp(&path, &copy).await?);

        let route = format!("/fs/read_file?path={}", path.display());
        let begun = Instant::now();
        let answer = agent.http.request(Method::GET, &route).send().await?;
        let mut chunks = answer.error_for_status()?.bytes_stream();
        let mut out = tokio::fs::File::create(&copy).await?;
        while let Some(chunk) = chunks.next().await {
            out.write_all(&chunk?).await?;
        }
        out.flush().await?;
        read.add(size / begun.elapsed().as_secs_f64());
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

/// Seconds.
async fn cp(from: &Path, to: &Path) -> Result<f64> {
    let _ = fs::remove_file(to);
    let begun = Instant::now();
    shell("cp \"$1\" \"$2\"", &[from, to]).await?;
    Ok(begun.elapsed().as_secs_f64())
}

async fn shell(script: &str, arguments: &[&Path]) -> Result<()> {
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
        Err(format!("`{script}` ended with {status}").into())
    }
}

fn grow(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for number in 0..TEXT_FILES {
        let mut text = String::with_capacity(CHUNK);
        while text.len() < CHUNK {
            text.push_str(&format!(
                "{{\"visit\":{},\"url\":\"https://example.com/{number}\"}}\n",
                text.len() * 7919
            ));
        }
        fs::write(folder.join(format!("text-{number}")), text)?;
    }
    for (number, noise) in noise(NOISE_FILES * CHUNK).chunks(CHUNK).enumerate() {
        fs::write(folder.join(format!("noise-{number}")), noise)?;
    }
    Ok(())
}

/// Bytes that do not compress.
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

fn size_of(folder: &Path) -> std::io::Result<u64> {
    let mut size = 0;
    let mut folders: Vec<PathBuf> = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            // Chromium goes on meanwhile.
            match entry.metadata() {
                Ok(found) if found.is_dir() => folders.push(entry.path()),
                Ok(found) => size += found.len(),
                Err(_) => {}
            }
        }
    }
    Ok(size)
}
