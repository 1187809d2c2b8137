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

    let measured = measure(&mut figures).await;
    // What has been measured is worth seeing, whatever went wrong after it.
    figures.print();
    if let Some(out) = out {
        figures.write(&out)?;
        println!("\n{out} has the same figures as JSON");
    }
    measured
}

async fn measure(figures: &mut Figures) -> Result<()> {
    let site = Site::serve().await?;
    let agent = Agent::start().await?;
    println!("==> Measuring script execution");
    execute::measure(figures, &agent, &site).await?;
    println!("==> Measuring starts");
    start::agent(figures).await?;
    let dev = Dev::start().await?;
    start::browser(figures, &dev, &agent).await?;
    println!("==> Measuring the proxy");
    let browser = dev.create_browser().await?;
    proxy::measure(figures, &agent, &dev, &browser).await?;
    cdp::measure(figures, &agent, &browser).await?;
    dev.delete_browser(&browser).await?;
    dev.stop().await?;
    println!("==> Measuring watches");
    watch::measure(figures, &agent).await?;
    println!("==> Measuring processes");
    process::measure(figures, &agent).await?;
    println!("==> Measuring files and archives");
    archive::measure(figures, &agent, &site).await?;
    agent.stop().await?;
    Ok(())
}
