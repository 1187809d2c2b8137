//! Uids that no other process of the machine uses, for children that must be isolated from all
//! users. They need no entry in the user database.

use std::{collections::HashSet, fs, io, ops::Range, os::unix::fs::MetadataExt};

use nix::unistd::Uid;

use super::stat::ProcStat;

/// The range that no distribution assigns, large enough that two agents practically never choose
/// the same uid.
const UIDS: Range<u32> = 0x7000_0000..0x7800_0000;
/// The range in a container that has only 65,536 uids: those of systemd's dynamic users, which
/// containers do not use.
const FEW_UIDS: Range<u32> = 61_184..65_520;

/// Returns `preferred`, if it is a dedicated uid without processes, and otherwise a random one that
/// is not `excluded`.
///
/// # Errors
/// If the processes cannot be listed, or all uids are in use.
pub fn find(preferred: Option<Uid>, excluded: Option<Uid>) -> io::Result<Uid> {
    let range = if is_mapped(&UIDS) { UIDS } else { FEW_UIDS };
    let mut in_use = uids_in_use()?;
    in_use.extend(excluded.map(Uid::as_raw));
    choose(&range, preferred.map(Uid::as_raw), &in_use).map(Uid::from_raw)
}

/// Whether dedicated uids exist in this user namespace.
#[must_use]
pub fn are_mapped() -> bool {
    is_mapped(&UIDS) || is_mapped(&FEW_UIDS)
}

/// Whether a uid is one that [`find`] returns.
#[must_use]
pub fn is_dedicated(uid: Uid) -> bool {
    UIDS.contains(&uid.as_raw()) || FEW_UIDS.contains(&uid.as_raw())
}

fn choose(range: &Range<u32>, preferred: Option<u32>, in_use: &HashSet<u32>) -> io::Result<u32> {
    let is_free = |uid: &u32| range.contains(uid) && !in_use.contains(uid);
    if let Some(preferred) = preferred.filter(is_free) {
        return Ok(preferred);
    }
    if in_use.len() >= range.len() {
        return Err(io::Error::other("no unused uid"));
    }
    loop {
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let uid = range.start + u32::from_ne_bytes(random) % (range.end - range.start);
        if is_free(&uid) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uid_is_kept_unless_it_is_in_use_or_no_dedicated_one() {
        let kept = UIDS.start + 5;
        assert_eq!(choose(&UIDS, Some(kept), &HashSet::new()).unwrap(), kept);
        let in_use = HashSet::from([kept]);
        for (preferred, in_use) in [(Some(kept), in_use), (Some(0), HashSet::new())] {
            let chosen = choose(&UIDS, preferred, &in_use).unwrap();
            assert!(
                Some(chosen) != preferred && UIDS.contains(&chosen),
                "{chosen}"
            );
        }
        let last = choose(&(7..9), None, &HashSet::from([7])).unwrap();
        assert_eq!(last, 8);
        assert!(choose(&(7..9), None, &HashSet::from([7, 8])).is_err());
    }

    #[test]
    fn excluded_uid_is_not_found() {
        let kept = find(None, None).unwrap();
        assert_eq!(find(Some(kept), None).unwrap(), kept);
        assert_ne!(find(Some(kept), Some(kept)).unwrap(), kept);
    }

    #[test]
    fn map_must_contain_the_whole_range() {
        assert!(maps("         0          0 4294967295", &UIDS));
        assert!(!maps("0 100000 65536", &UIDS));
        assert!(maps("0 100000 65536", &FEW_UIDS));
        assert!(!maps("0 1000 1", &FEW_UIDS));
        assert!(!maps("", &FEW_UIDS));
    }
}
