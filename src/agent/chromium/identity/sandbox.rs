//! Whether Chromium's own sandbox can be used, and whether it is.

use std::{
    ffi::OsStr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use tokio::{process::Command, time};

use crate::{agent::settings::ProtectionMode, system::process::confinement::Confinement};

/// The setuid program beside Chromium that creates namespaces as root.
const HELPER: &str = "chrome-sandbox";
/// The owner and the mode without which Chromium does not use it.
const HELPER_MODE: u32 = 0o4755;
/// The program that the helper is tried with.
const TRIED_PROGRAM: &str = "/bin/true";
const HELPER_TIMEOUT: Duration = Duration::from_secs(5);

/// Chromium's sandbox.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::agent) enum Sandbox {
    /// Namespaces that Chromium's user creates, and seccomp.
    Namespaces,
    /// Namespaces that a setuid program creates, and seccomp.
    SetuidHelper,
    Off {
        reason: Arc<str>,
    },
}

impl Sandbox {
    pub(in crate::agent) fn name(&self) -> &'static str {
        match self {
            Sandbox::Namespaces => "namespaces",
            Sandbox::SetuidHelper => "setuid_helper",
            Sandbox::Off { .. } => "off",
        }
    }

    /// Returns why there is none.
    pub(in crate::agent) fn reason(&self) -> Option<&str> {
        match self {
            Sandbox::Off { reason } => Some(reason),
            Sandbox::Namespaces | Sandbox::SetuidHelper => None,
        }
    }
}

/// A required sandbox that the system does not permit.
#[derive(Debug, thiserror::Error)]
#[error("Chromium's sandbox is required, but {0}")]
pub struct SandboxUnavailable(String);

/// The ways to a sandbox that the system permits.
pub(super) struct Support {
    /// Whether Chromium runs as root.
    pub(super) is_root: bool,
    /// Why Chromium has no user of its own, although the agent is root.
    pub(super) user_problem: Option<String>,
    pub(super) namespaces: Result<(), String>,
    pub(super) helper: Result<(), String>,
}

impl Support {
    fn sandbox(self) -> Result<Sandbox, String> {
        if self.is_root {
            let problem = self.user_problem.map(|problem| {
                format!(", and Chromium cannot run as a user of its own: {problem}")
            });
            let problem = problem.unwrap_or_default();
            return Err(format!("Chromium has no sandbox for root{problem}"));
        }
        match (self.namespaces, self.helper) {
            (Ok(()), _) => Ok(Sandbox::Namespaces),
            (Err(_), Ok(())) => Ok(Sandbox::SetuidHelper),
            (Err(namespaces), Err(helper)) => Err(format!(
                "the system permits neither user namespaces ({namespaces}) nor the setuid helper ({helper})"
            )),
        }
    }
}

/// Decides whether Chromium has its sandbox.
pub(super) fn decide(
    mode: ProtectionMode,
    is_disabled_by_flag: bool,
    support: Support,
) -> Result<Sandbox, SandboxUnavailable> {
    let sandbox = match mode {
        ProtectionMode::Off => Err("disabled by --chromium-sandbox=off".to_owned()),
        _ if is_disabled_by_flag => Err("disabled by --chromium-flag=--no-sandbox".to_owned()),
        _ => support.sandbox(),
    };
    match sandbox {
        Ok(sandbox) => Ok(sandbox),
        Err(reason) if mode == ProtectionMode::Required => Err(SandboxUnavailable(reason)),
        Err(reason) => Ok(Sandbox::Off {
            reason: reason.into(),
        }),
    }
}

/// Tries whether Chromium's user can start a program in namespaces by the setuid helper.
pub(super) async fn probe_helper(
    chromium: &Path,
    confinement: Option<&Confinement>,
) -> Result<(), String> {
    let helper = find_helper(chromium)?;
    let mut command = Command::new(&helper);
    command
        .arg(TRIED_PROGRAM)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if let Some(confinement) = confinement {
        confinement.confine(&mut command);
    }
    let helper = helper.display();
    match time::timeout(HELPER_TIMEOUT, command.output()).await {
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => {
            let printed = String::from_utf8_lossy(&output.stderr);
            let line = printed.lines().next().unwrap_or_default();
            Err(format!("{helper} failed ({}): {line}", output.status))
        }
        Ok(Err(error)) => Err(format!("{helper}: {error}")),
        Err(_) => Err(format!("{helper} did not end within {HELPER_TIMEOUT:?}")),
    }
}

fn find_helper(chromium: &Path) -> Result<PathBuf, String> {
    let program = chromium.canonicalize().map_err(|error| error.to_string())?;
    let helper = program.with_file_name(OsStr::new(HELPER));
    let path = helper.display();
    let found = helper
        .metadata()
        .map_err(|error| format!("{path}: {error}"))?;
    let mode = found.mode() & 0o7777;
    if found.uid() != 0 || mode != HELPER_MODE {
        return Err(format!("{path} is not of root with mode {HELPER_MODE:o}"));
    }
    Ok(helper)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn support() -> Support {
        Support {
            is_root: false,
            user_problem: None,
            namespaces: Ok(()),
            helper: Err("missing".to_owned()),
        }
    }

    fn without_namespaces() -> Support {
        Support {
            namespaces: Err("ENOSPC".to_owned()),
            ..support()
        }
    }

    #[test]
    fn sandbox_is_used_if_the_system_permits_one() {
        for mode in [ProtectionMode::Auto, ProtectionMode::Required] {
            assert_eq!(decide(mode, false, support()).unwrap(), Sandbox::Namespaces);
            let helper = Support {
                helper: Ok(()),
                ..without_namespaces()
            };
            assert_eq!(decide(mode, false, helper).unwrap(), Sandbox::SetuidHelper);
        }
    }

    #[test]
    fn missing_sandbox_is_an_error_only_if_it_is_required() {
        let off = decide(ProtectionMode::Auto, false, without_namespaces()).unwrap();
        let reason = off.reason().unwrap();
        assert!(
            reason.contains("ENOSPC") && reason.contains("missing"),
            "{reason}"
        );
        let error = decide(ProtectionMode::Required, false, without_namespaces()).unwrap_err();
        assert!(error.to_string().contains("ENOSPC"), "{error}");
        let error = decide(ProtectionMode::Required, true, support()).unwrap_err();
        assert!(error.to_string().contains("--no-sandbox"), "{error}");
        let root = Support {
            is_root: true,
            user_problem: Some("not permitted".to_owned()),
            ..support()
        };
        let error = decide(ProtectionMode::Required, false, root).unwrap_err();
        assert!(error.to_string().contains("not permitted"), "{error}");
    }

    #[test]
    fn sandbox_can_be_disabled() {
        let off = decide(ProtectionMode::Off, false, support()).unwrap();
        assert_eq!(off.name(), "off");
        let off = decide(ProtectionMode::Auto, true, support()).unwrap();
        assert_eq!(off.name(), "off");
    }

    #[test]
    fn helper_must_belong_to_root_and_have_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let chromium = directory.path().join("chromium");
        std::fs::write(&chromium, "").unwrap();
        assert!(find_helper(&chromium).is_err());
        std::fs::write(directory.path().join(HELPER), "").unwrap();
        let error = find_helper(&chromium).unwrap_err();
        assert!(error.contains("4755"), "{error}");
    }
}
