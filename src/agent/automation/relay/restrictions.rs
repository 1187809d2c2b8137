//! Checks of a script's commands: the [allow-list](super::policy) of methods, and parameters that
//! would reach beyond the script.
//!
//! | method | restriction |
//! |---|---|
//! | `DOM.setFileInputFiles`, `Input.dispatchDragEvent` | only files of the script's directory |
//! | `Browser.setDownloadBehavior`, `Page.setDownloadBehavior` | the directory is the agent's |
//! | `Target.createBrowserContext` | subject to the same-origin policy, ends with the script |
//! | `Target.disposeBrowserContext` | only contexts of the script |
//! | `Target.createTarget` | no `chrome:` and `devtools:` URLs |
//! | `Page.navigate` | no `devtools:` URLs |
//! | `Tracing.start` | no Perfetto configuration, which can name an output file |
//!
//! [`download`](super::download) has the restrictions of downloads. Reading is not restricted: a
//! page of a script may be at a `file:` or `chrome:` URL.

use std::{
    collections::BTreeMap,
    path::{Component, Path},
};

use bytes::Bytes;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

use super::{MAX_CONTEXTS, Relay, command::with_params, message::params_or_default, policy};

/// The scheme of Chromium's DevTools front end, whose pages have privileged functions.
const FRONT_END: &str = "devtools";
/// The scheme of Chromium's own pages. `chrome://quit`, opened as a new tab, ends Chromium.
const INTERNAL: &str = "chrome";

/// Why a command is not sent to Chromium. The script gets the text as the command's error.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("{0} is not available in a script")]
    Method(String),
    #[error("{0}: invalid parameters: {1}")]
    Parameters(String, serde_json::Error),
    #[error("{0}: the parameter `{1}` is not available in a script")]
    Parameter(String, &'static str),
    #[error(
        "{method}: permission denied: '{file}' is not in the directory of the script, {directory}"
    )]
    File {
        method: String,
        file: String,
        directory: String,
    },
    #[error("{0}: URLs of the scheme `{1}` are not available in a script")]
    Scheme(String, String),
    #[error("{0}: the script has not created a browser context with that id")]
    Context(String),
    #[error("{0}: limit of browser contexts reached ({MAX_CONTEXTS})")]
    Contexts(String),
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
struct Navigation {
    #[serde(default)]
    url: String,
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
    pub(super) fn restrict(&mut self, method: &str, text: Bytes) -> Result<Bytes, Refusal> {
        if !policy::is_allowed(method) {
            return Err(Refusal::Method(method.to_owned()));
        }
        match method {
            "DOM.setFileInputFiles" => self.check_files(method, &parse(method, &text)?)?,
            "Input.dispatchDragEvent" => {
                let DragEvent { data } = parse(method, &text)?;
                self.check_files(method, &data.unwrap_or_default())?;
            }
            "Page.navigate" => check_url(method, &text, &[FRONT_END])?,
            "Target.createTarget" => check_url(method, &text, &[FRONT_END, INTERNAL])?,
            "Target.createBrowserContext" => return self.disposable_context(method, &text),
            "Target.disposeBrowserContext" => {
                self.forget_context(method, &parse(method, &text)?)?
            }
            "Tracing.start" => check_tracing(method, &parse(method, &text)?)?,
            _ => {}
        }
        Ok(text)
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

    /// Checks paths by their text. A script's directory contains no symbolic links.
    fn check_files(&self, method: &str, input: &FileInput) -> Result<(), Refusal> {
        let is_inside = |file: &&String| {
            let inside = Path::new(file.as_str()).strip_prefix(&self.script_directory);
            let is_name = |component| matches!(component, Component::Normal(_));
            inside.is_ok_and(|inside| inside.components().all(is_name))
        };
        match input.files.iter().find(|file| !is_inside(file)) {
            None => Ok(()),
            Some(file) => Err(Refusal::File {
                method: method.to_owned(),
                file: file.clone(),
                directory: self.script_directory.display().to_string(),
            }),
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

fn check_url(method: &str, text: &[u8], refused: &[&str]) -> Result<(), Refusal> {
    let Navigation { url } = parse(method, text)?;
    match scheme(&url) {
        Some(scheme) if refused.contains(&scheme.as_str()) => {
            Err(Refusal::Scheme(method.to_owned(), scheme))
        }
        _ => Ok(()),
    }
}

/// Returns the lower-case scheme of a URL as Chromium reads it: without white space and control
/// characters.
fn scheme(url: &str) -> Option<String> {
    let (scheme, _) = url.split_once(':')?;
    let visible = scheme.chars().filter(|character| *character > ' ');
    Some(
        visible
            .map(|character| character.to_ascii_lowercase())
            .collect(),
    )
}
