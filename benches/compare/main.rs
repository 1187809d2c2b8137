//! `make bench`: Berth measured beside Node with playwright-core, in one run on one machine.
//!
//! Ours and theirs take turns sample by sample, so that what else the machine does hits both alike. Each drives a Chromium
//! of its own, started with the same flags.

mod archive;
mod cdp;
mod execute;
mod figures;
mod parts;
mod process;
mod proxy;
mod start;
mod watch;

use figures::Figures;
use parts::{Agent, Dev, Result, Site};

#[tokio::main]
async fn main() -> Result<()> {
    // `cargo bench` adds `--bench`; the one argument of our own is where the figures go.
    let out = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let mut figures = Figures::default();

    let site = Site::serve().await?;
    let agent = Agent::start().await?;
    println!("==> Measuring script execution");
    execute::measure(&mut figures, &agent, &site).await?;
    println!("==> Measuring watches");
    watch::measure(&mut figures, &agent).await?;
    println!("==> Measuring processes");
    process::measure(&mut figures, &agent).await?;
    println!("==> Measuring starts");
    start::agent(&mut figures).await?;
    let dev = Dev::start().await?;
    start::browser(&mut figures, &dev, &agent).await?;
    println!("==> Measuring the proxy");
    let browser = dev.create_browser().await?;
    proxy::measure(&mut figures, &agent, &dev, &browser).await?;
    cdp::measure(&mut figures, &agent, &browser).await?;
    dev.delete_browser(&browser).await?;
    dev.stop().await?;
    println!("==> Measuring files and archives");
    archive::measure(&mut figures, &agent, &site).await?;
    agent.stop().await?;

    figures.print();
    if let Some(out) = out {
        figures.write(&out)?;
        println!("\n{out} has the same figures as JSON");
    }
    Ok(())
}
