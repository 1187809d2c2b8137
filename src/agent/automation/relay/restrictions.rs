//! Checks of a script's commands: the [method policy](policy), and parameters that would reach
//! beyond the script.
//!
//! | method | restriction |
//! |---|---|
//! | `DOM.setFileInputFiles`, `Input.dispatchDragEvent` | files of the script and of the session |
//! | `Browser.setDownloadBehavior`, `Page.setDownloadBehavior` | the directory is the agent's |
//! | `Target.createBrowserContext` | subject to the same-origin policy, ends with the script |
//! | `Target.disposeBrowserContext` | only contexts of the script |
//! | `Page.navigate`, `Target.createTarget` | no `chrome:` and `devtools:` URLs |
//! | `Page.navigate` | no `transitionType`: as for a typed URL, some of which end Chromium |
//! | `Tracing.start` | no Perfetto configuration, which can name an output file |
//!
//! [`download`](super::download) has the restrictions of downloads. Tabs at `chrome:` URLs are
//! hidden from scripts until they leave them; in a tab that goes there while a script sees it, only
//! the methods of [`Caller::IdleExecutor`] and navigation are permitted. Files are not restricted:
//! a page of a script may be at a `file:` URL.

use std::{collections::BTreeMap, io, path::Path};

use bytes::Bytes;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

use super::{MAX_CONTEXTS, Relay, command::with_params, message::params_or_default};
use crate::{
    agent::automation::session_files::{SessionFileError, is_below},
    system::cdp::policy::{self, Caller, PolicyError},
};

/// The schemes of Chromium's own pages and of its DevTools front end. Their pages have privileged
/// functions, such as the browser's settings, and some URLs end Chromium.
const PRIVILEGED_SCHEMES: [&str; 3] = ["chrome", "chrome-untrusted", "devtools"];

/// The most files of a session in a command: each is looked up.
const MAX_SESSION_FILES: usize = 1000;
/// The most characters of a URL in an error.
const MAX_SHOWN_URL: usize = 200;

/// Why a command is not sent to Chromium. The script gets the text as the command's error.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error("{0}: invalid parameters: {1}")]
    Parameters(String, serde_json::Error),
    #[error("{0}: the parameter `{1}` is not available in a script")]
    Parameter(String, &'static str),
    #[error(
        "{method}: permission denied: '{file}' is not in the directory of the script, \
         {directory}, and no file of the session in {session_directories}"
    )]
    File {
        method: String,
        file: String,
        directory: String,
        session_directories: String,
    },
    #[error("{method}: ENOENT: no such file or directory, '{file}'")]
    Missing { method: String, file: String },
    #[error("{method}: '{file}': {error}")]
    Lookup {
        method: String,
        file: String,
        error: io::Error,
    },
    #[error("{0}: over {MAX_SESSION_FILES} files of the session")]
    Files(String),
    #[error("{0}: Chromium's own pages, such as '{1}', are not available in a script")]
    Privileged(String, String),
    #[error("{0}: the script has not created a browser context with that id")]
    Context(String),
    #[error("{0}: limit of browser contexts reached ({MAX_CONTEXTS})")]
    Contexts(String),
}

impl Refusal {
    /// Names the start of the URL, which may be of any length.
    fn privileged(method: &str, url: &str) -> Self {
        let start = url.chars().take(MAX_SHOWN_URL).collect();
        Refusal::Privileged(method.to_owned(), start)
    }
}

#[derive(Default, Deserialize)]
struct FileInput {
    #[serde(default)]
    files: Vec<String>,
}

#[derive(Default, Deserialize)]
struct DragEvent {
    #[serde(default)]
    data: Option<FileInput>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Navigation {
    #[serde(default)]
    url: String,
    transition_type: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TracingStart {
    perfetto_config: Option<IgnoredAny>,
    tracing_backend: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContextId {
    #[serde(default)]
    browser_context_id: String,
}

impl Relay {
    /// Returns the command to send to Chromium, or why it is not sent.
    pub(super) fn restrict(
        &mut self,
        method: &str,
        session: Option<&str>,
        text: Bytes,
    ) -> Result<Bytes, Refusal> {
        policy::check_command(Caller::Script, method, &text)?;
        self.check_tab(method, session)?;
        match method {
            "DOM.setFileInputFiles" => self.check_files(method, &parse(method, &text)?)?,
            "Input.dispatchDragEvent" => {
                let DragEvent { data } = parse(method, &text)?;
                self.check_files(method, &data.unwrap_or_default())?;
            }
            "Page.navigate" | "Target.createTarget" => {
                check_navigation(method, &parse(method, &text)?)?;
            }
            "Target.createBrowserContext" => return self.disposable_context(method, &text),
            "Target.disposeBrowserContext" => {
                self.forget_context(method, &parse(method, &text)?)?
            }
            "Tracing.start" => check_tracing(method, &parse(method, &text)?)?,
            _ => {}
        }
        Ok(text)
    }

    /// Rejects a command that acts in a tab with a page of Chromium's own.
    fn check_tab(&self, method: &str, session: Option<&str>) -> Result<(), Refusal> {
        const LEAVING: [&str; 3] = ["Page.close", "Page.navigate", "Page.bringToFront"];
        let session = session.and_then(|id| self.sessions.get(id));
        match session.filter(|session| session.is_privileged()) {
            Some(session)
                if !policy::is_allowed(Caller::IdleExecutor, method)
                    && !LEAVING.contains(&method) =>
            {
                Err(Refusal::privileged(method, &session.url))
            }
            _ => Ok(()),
        }
    }

    /// Returns the command with a context that ends with the worker's connection.
    fn disposable_context(&self, method: &str, text: &[u8]) -> Result<Bytes, Refusal> {
        const UNIVERSAL_ACCESS: &str = "originsWithUniversalNetworkAccess";
        if self.contexts.len() >= MAX_CONTEXTS {
            return Err(Refusal::Contexts(method.to_owned()));
        }
        let mut params: BTreeMap<String, Box<RawValue>> = parse(method, text)?;
        reject_parameter(
            method,
            UNIVERSAL_ACCESS,
            params.contains_key(UNIVERSAL_ACCESS),
        )?;
        params.insert("disposeOnDetach".to_owned(), RawValue::TRUE.to_owned());
        with_params(text, &params).map_err(|error| Refusal::Parameters(method.to_owned(), error))
    }

    fn forget_context(&mut self, method: &str, disposed: &ContextId) -> Result<(), Refusal> {
        if self.contexts.remove(&disposed.browser_context_id) {
            return Ok(());
        }
        Err(Refusal::Context(method.to_owned()))
    }

    /// Checks paths. Those in the script's directory are checked by their text: it contains no
    /// symbolic links.
    fn check_files(&self, method: &str, input: &FileInput) -> Result<(), Refusal> {
        let is_own = |file: &&String| is_below(Path::new(file), &self.script_directory);
        let others = input.files.iter().filter(|file| !is_own(file));
        for (index, file) in others.enumerate() {
            if index == MAX_SESSION_FILES {
                return Err(Refusal::Files(method.to_owned()));
            }
            let checked = self.session_files.check(Path::new(file));
            checked.map_err(|error| self.refused_file(method, file, error))?;
        }
        Ok(())
    }

    fn refused_file(&self, method: &str, file: &str, error: SessionFileError) -> Refusal {
        let (method, file) = (method.to_owned(), file.to_owned());
        match error {
            SessionFileError::Missing => Refusal::Missing { method, file },
            SessionFileError::Io(error) => Refusal::Lookup {
                method,
                file,
                error,
            },
            SessionFileError::Outside => {
                let directories = self.session_files.directories();
                let directories = directories.map(|path| path.display().to_string());
                Refusal::File {
                    method,
                    file,
                    directory: self.script_directory.display().to_string(),
                    session_directories: directories.collect::<Vec<_>>().join(", "),
                }
            }
        }
    }
}

fn parse<T: Default + for<'de> Deserialize<'de>>(method: &str, text: &[u8]) -> Result<T, Refusal> {
    params_or_default(text).map_err(|error| Refusal::Parameters(method.to_owned(), error))
}

fn check_tracing(method: &str, start: &TracingStart) -> Result<(), Refusal> {
    reject_parameter(method, "perfettoConfig", start.perfetto_config.is_some())?;
    reject_parameter(method, "tracingBackend", start.tracing_backend.is_some())
}

fn reject_parameter(method: &str, name: &'static str, is_present: bool) -> Result<(), Refusal> {
    if is_present {
        return Err(Refusal::Parameter(method.to_owned(), name));
    }
    Ok(())
}

fn check_navigation(method: &str, navigation: &Navigation) -> Result<(), Refusal> {
    let Navigation {
        url,
        transition_type,
    } = navigation;
    reject_parameter(method, "transitionType", transition_type.is_some())?;
    match is_privileged(url) {
        true => Err(Refusal::privileged(method, url)),
        false => Ok(()),
    }
}

/// Whether a URL is of Chromium's own pages. `view-source:`, also repeated, leads to the page
/// itself.
pub(super) fn is_privileged(url: &str) -> bool {
    let mut url = url;
    while let Some((scheme, rest)) = url.split_once(':') {
        if PRIVILEGED_SCHEMES
            .iter()
            .any(|name| is_scheme(scheme, name))
        {
            return true;
        }
        if !is_scheme(scheme, "view-source") {
            return false;
        }
        url = rest;
    }
    false
}

/// Whether Chromium reads `text` as the scheme `name`: it ignores case, white space and control
/// characters.
fn is_scheme(text: &str, name: &str) -> bool {
    let visible = text.chars().filter(|character| *character > ' ');
    visible
        .map(|character| character.to_ascii_lowercase())
        .eq(name.chars())
}
