//! A start of the display and of Chromium.

use std::{sync::Arc, time::Instant};

use super::Supervisor;
use crate::agent::{
    chromium::{
        AdoptedBrowser, Devtools,
        front::{self, open_in_front},
        launch::{LaunchError, Process},
        leftovers,
    },
    display::{Display, DisplayError},
};

#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error(transparent)]
    Display(#[from] DisplayError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

impl StartError {
    /// Returns the last output of a process that ended.
    pub(super) fn output_tail(&self) -> Option<&str> {
        match self {
            Self::Display(DisplayError::Ended { tail, .. })
            | Self::Launch(LaunchError::Ended { tail, .. }) => Some(tail),
            _ => None,
        }
    }
}

impl Supervisor {
    /// Continues with the browser of the program before, or starts one.
    pub(super) async fn start_or_adopt(&mut self) -> Result<Process, StartError> {
        match self.adopted.take() {
            Some(adopted) => self.adopt(adopted).await,
            None => self.start_chromium().await,
        }
    }

    async fn adopt(&mut self, adopted: AdoptedBrowser) -> Result<Process, StartError> {
        let AdoptedBrowser {
            process,
            display,
            status,
        } = adopted;
        self.generation = process.generation;
        self.viewport = status.viewport;
        self.reserves_frame_buffer = status.reserves_frame_buffer;
        self.status
            .send_modify(|current| current.restarts = status.restarts);
        self.display = display;
        self.publish_display();
        let process = Process::adopt(&self.config, &self.identity, process).await?;
        tracing::info!(
            pid = process.devtools.pid,
            "continuing with the running Chromium"
        );
        self.focused.send_replace(self.generation);
        Ok(process)
    }

    /// Starts the display, unless one runs, and Chromium.
    async fn start_chromium(&mut self) -> Result<Process, StartError> {
        let is_new_display = self.ensure_display().await?;
        let launched_at = Instant::now();
        self.generation += 1;
        let display = self.display.as_ref();
        let process = Process::start(
            &self.config,
            &self.identity,
            self.viewport,
            display,
            self.generation,
            self.logs.chromium.listener(),
        );
        // The server gets its mode while Chromium starts.
        let (mode, process) = tokio::join!(self.set_initial_mode(is_new_display), process);
        if let Err(error) = mode {
            if matches!(error, DisplayError::Mode(_)) {
                tracing::warn!(
                    %error,
                    "the X server cannot be resized at run time, starting it with its final size"
                );
                self.reserves_frame_buffer = false;
            }
            self.display = None;
            return Err(error.into());
        }
        let process = process?;
        tracing::info!(
            pid = process.devtools.pid,
            generation = self.generation,
            version = process.devtools.version.product,
            after_ms = launched_at.elapsed().as_millis() as u64,
            "Chromium is ready"
        );
        self.prepare_page(&process.devtools).await;
        Ok(process)
    }

    /// Starts the display if the configuration has one and none runs. Returns whether it did.
    async fn ensure_display(&mut self) -> Result<bool, StartError> {
        // The display may have ended while no Chromium was attended.
        if self.display.as_mut().is_some_and(Display::has_ended) {
            self.display = None;
            self.publish_display();
        }
        if self.config.headless || self.display.is_some() {
            return Ok(false);
        }
        let display = Display::start(
            &self.config,
            self.viewport,
            self.reserves_frame_buffer,
            self.identity.gid(),
            self.logs.xvfb.listener(),
        )
        .await?;
        let record = self.config.session_dir.run().join("xvfb.pid");
        leftovers::record(&record, display.pid()).map_err(DisplayError::from)?;
        self.display = Some(display);
        Ok(true)
    }

    /// Sets the mode of a new display, and publishes it once it has its size.
    async fn set_initial_mode(&self, is_new_display: bool) -> Result<(), DisplayError> {
        if let Some(display) = &self.display
            && is_new_display
        {
            if self.reserves_frame_buffer {
                display.set_mode(self.viewport).await?;
            }
            self.publish_display();
        }
        Ok(())
    }

    /// Gives the page the keyboard focus and opens the start page. Failures do not fail the start.
    async fn prepare_page(&self, devtools: &Arc<Devtools>) {
        if self.display.is_some() {
            self.focus_page(devtools.clone());
        }
        if let Some(url) = &self.start_url {
            let opened = open_in_front(devtools, url).await;
            if let Err(error) = opened {
                tracing::warn!(%error, "cannot open the start page");
            }
        }
    }

    /// Gives the page the keyboard focus in the background: Chromium takes a while for it after
    /// DevTools answers.
    fn focus_page(&self, devtools: Arc<Devtools>) {
        let focused = self.focused.clone();
        self.shutdown.spawn(async move {
            if let Err(error) = front::focus_page(&devtools).await {
                tracing::debug!(%error, "the page may lack the keyboard focus");
            }
            focused.send_replace(devtools.generation);
        });
    }
}
