//! A uid for Chromium alone, and the rights that an agent needs to use one.

use std::{collections::HashSet, fs, io, os::unix::fs::MetadataExt, path::Path};

use nix::unistd::{Gid, Uid};

use crate::system::process::{dedicated_uid, session::Credentials};

/// The capabilities that an agent needs to start Chromium as another user, to read and remove its
/// files and to kill its processes. (Their numbers are those of `linux/capability.h`.)
const CAPABILITIES: [(u32, &str); 6] = [
    (0, "CAP_CHOWN"),
    (1, "CAP_DAC_OVERRIDE"),
    (3, "CAP_FOWNER"),
    (5, "CAP_KILL"),
    (6, "CAP_SETGID"),
    (7, "CAP_SETUID"),
];
/// The graphics devices, whose group Chromium's user joins, and the name of those that can render.
const GPU_DEVICES: &str = "/dev/dri";
const RENDER_NODE_PREFIX: &str = "renderD";

/// Returns credentials with a uid of its own: the owner of `user_data`, if that is one, so that an
/// agent that starts again keeps its uid, and otherwise a random one. `is_running` is whether its
/// Chromium runs already.
pub(super) fn credentials(user_data: &Path, is_running: bool) -> io::Result<Credentials> {
    let owner = fs::metadata(user_data).ok();
    let owner = owner.map(|found| Uid::from_raw(found.uid()));
    let kept = owner.filter(|owner| is_running && dedicated_uid::is_dedicated(*owner));
    let uid = match kept {
        Some(uid) => uid,
        None => dedicated_uid::find(owner, None)?,
    };
    Ok(Credentials {
        uid,
        gid: Gid::from_raw(uid.as_raw()),
        groups: render_groups(Path::new(GPU_DEVICES)),
    })
}

/// Returns the groups that may use graphics devices that can render.
fn render_groups(devices: &Path) -> Vec<Gid> {
    let devices = fs::read_dir(devices).into_iter().flatten().flatten();
    let groups: HashSet<u32> = devices
        .filter(|device| {
            device
                .file_name()
                .to_string_lossy()
                .starts_with(RENDER_NODE_PREFIX)
        })
        .filter_map(|device| device.metadata().ok())
        .filter(|found| found.mode() & 0o060 == 0o060)
        .map(|found| found.gid())
        .filter(|gid| *gid != 0)
        .collect();
    groups.into_iter().map(Gid::from_raw).collect()
}

/// Names the capabilities that this process lacks, if any.
pub(in crate::agent) fn missing_capabilities() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    let effective = u64::from_str_radix(effective.trim(), 16).ok()?;
    let missing: Vec<&str> = CAPABILITIES
        .iter()
        .filter(|(number, _)| effective & (1 << number) == 0)
        .map(|(_, name)| *name)
        .collect();
    (!missing.is_empty()).then(|| format!("the agent lacks {}", missing.join(", ")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn user_joins_the_group_of_render_nodes_only() {
        let devices = tempfile::tempdir().unwrap();
        let own = Gid::effective().as_raw();
        for (name, mode) in [
            ("card0", 0o660),
            ("renderD128", 0o660),
            ("renderD129", 0o600),
        ] {
            let path = devices.path().join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let expected: Vec<u32> = [own].into_iter().filter(|gid| *gid != 0).collect();
        let groups: Vec<u32> = render_groups(devices.path())
            .iter()
            .map(|gid| gid.as_raw())
            .collect();
        assert_eq!(groups, expected);
        assert!(render_groups(&devices.path().join("none")).is_empty());
    }
}
