//! The sockets of a process, read from /proc, and free addresses.

use std::{
    collections::BTreeSet,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
};

/// The state of a listening TCP socket, and the flag of a listening Unix socket (`man 5 proc`).
const TCP_LISTEN: &str = "0A";
const ACCEPTS_CONNECTIONS: &str = "00010000";

/// Returns the local addresses on which the process accepts TCP connections.
pub fn tcp_listeners(pid: u32) -> Vec<String> {
    let of_process = inodes(pid);
    let tables = ["tcp", "tcp6"].map(|name| table(pid, name));
    let columns = tables.iter().flatten().filter(|columns| {
        columns[3] == TCP_LISTEN
            && columns
                .get(9)
                .is_some_and(|inode| of_process.contains(inode))
    });
    columns.map(|columns| columns[1].clone()).collect()
}

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

/// Returns a random loopback address with a free port, which no other test is likely to take.
pub fn free_address() -> SocketAddr {
    let random = *uuid::Uuid::new_v4().as_bytes();
    let ip = Ipv4Addr::new(127, random[0], random[1], random[2].clamp(1, 254));
    let listener = TcpListener::bind((ip, 0)).unwrap();
    listener.local_addr().unwrap()
}
