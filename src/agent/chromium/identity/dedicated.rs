//! A uid for Chromium alone, and the rights that an agent needs to use one.

use std::{collections::HashSet, fs, io, ops::Range, os::unix::fs::MetadataExt, path::Path};

use nix::unistd::{Gid, Uid};

use crate::system::process::{session::Credentials, stat::ProcStat};

/// The uids for Chromium: a range that no distribution assigns, large enough that two agents
/// practically never choose the same one.
const UIDS: Range<u32> = 0x7000_0000..0x7800_0000;
/// The uids in a container that has only 65,536 of them: those of systemd's dynamic users, which
/// containers do not use.
const FEW_UIDS: Range<u32> = 61_184..65_520;

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
/// agent that starts again keeps its uid, and otherwise a random one.
pub(super) fn credentials(user_data: &Path) -> io::Result<Credentials> {
    let range = if is_mapped(&UIDS) { UIDS } else { FEW_UIDS };
    let owner = fs::metadata(user_data).map_or(0, |found| found.uid());
    let uid = choose(&range, owner, &uids_in_use()?)?;
    Ok(Credentials {
        uid: Uid::from_raw(uid),
        gid: Gid::from_raw(uid),
        groups: render_groups(Path::new(GPU_DEVICES)),
    })
}

fn choose(range: &Range<u32>, preferred: u32, in_use: &HashSet<u32>) -> io::Result<u32> {
    if range.contains(&preferred) && !in_use.contains(&preferred) {
        return Ok(preferred);
    }
    if in_use.len() >= range.len() {
        return Err(io::Error::other("no unused uid"));
    }
    loop {
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let uid = range.start + u32::from_ne_bytes(random) % (range.end - range.start);
        if !in_use.contains(&uid) {
            return Ok(uid);
        }
    }
}

/// Returns the owners of all running processes.
fn uids_in_use() -> io::Result<HashSet<u32>> {
    let entries = fs::read_dir("/proc")?.flatten();
    let owner = |entry: fs::DirEntry| {
        let process = ProcStat::of(entry.file_name().to_str()?.parse().ok()?)?;
        (!process.has_ended()).then_some(entry.metadata().ok()?.uid())
    };
    Ok(entries.filter_map(owner).collect())
}

/// Whether all ids of the range exist in this user namespace, as uids and as gids.
fn is_mapped(range: &Range<u32>) -> bool {
    ["/proc/self/uid_map", "/proc/self/gid_map"]
        .iter()
        .all(|map| {
            let map = fs::read_to_string(map).unwrap_or_default();
            map.lines().any(|line| maps(line, range))
        })
}

/// Whether a line of a map contains the range: the first id inside, the first one outside, and the
/// count.
fn maps(line: &str, range: &Range<u32>) -> bool {
    let mut fields = line.split_whitespace().map(str::parse::<u64>);
    let (Some(Ok(first)), Some(_), Some(Ok(count))) = (fields.next(), fields.next(), fields.next())
    else {
        return false;
    };
    first <= u64::from(range.start) && u64::from(range.end) <= first + count
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
pub(super) fn missing_capabilities() -> Option<String> {
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
    fn uid_is_kept_unless_it_is_in_use_or_no_dedicated_one() {
        let kept = UIDS.start + 5;
        assert_eq!(choose(&UIDS, kept, &HashSet::new()).unwrap(), kept);
        for (preferred, in_use) in [(kept, HashSet::from([kept])), (0, HashSet::new())] {
            let chosen = choose(&UIDS, preferred, &in_use).unwrap();
            assert!(chosen != preferred && UIDS.contains(&chosen), "{chosen}");
        }
        let last = choose(&(7..9), 0, &HashSet::from([7])).unwrap();
        assert_eq!(last, 8);
        assert!(choose(&(7..9), 0, &HashSet::from([7, 8])).is_err());
    }

    #[test]
    fn map_must_contain_the_whole_range() {
        assert!(maps("         0          0 4294967295", &UIDS));
        assert!(!maps("0 100000 65536", &UIDS));
        assert!(maps("0 100000 65536", &FEW_UIDS));
        assert!(!maps("0 1000 1", &FEW_UIDS));
        assert!(!maps("", &FEW_UIDS));
    }

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
