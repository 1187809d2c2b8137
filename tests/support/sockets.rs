//! The sockets of a process, read from /proc.

use std::{collections::BTreeSet, fs};

/// The flag of a listening Unix socket (`man 5 proc`).
const ACCEPTS_CONNECTIONS: &str = "00010000";

/// Returns the paths and abstract names (`@name`) on which the process accepts connections.
pub fn unix_listeners(pid: u32) -> Vec<String> {
    let of_process = inodes(pid);
    let names = table(pid, "unix").into_iter().filter_map(|columns| {
        let listens = columns[3] == ACCEPTS_CONNECTIONS && of_process.contains(&columns[6]);
        listens.then(|| columns[7..].join(" "))
    });
    names.collect()
}

/// Returns the lines of a socket table in the network namespace of the process, without the header.
fn table(pid: u32, name: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    text.lines().skip(1).map(columns).collect()
}

/// Returns the inodes of the process's sockets.
fn inodes(pid: u32) -> BTreeSet<String> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter();
    let links = descriptors
        .flatten()
        .flatten()
        .filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    let inode = |link: std::path::PathBuf| {
        let link = link.to_str()?.strip_prefix("socket:[")?;
        Some(link.strip_suffix(']')?.to_owned())
    };
    links.filter_map(inode).collect()
}
