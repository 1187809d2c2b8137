//! Processes of the host: supervised children, sessions of client programs, and what `/proc` shows.
//!
//! ```text
//! child       a supervised helper program; its output goes to the log
//! core_dumps  prevents core files
//! confinement/ a child that runs as another user and sees a part of the file system
//! dedicated_uid uids that no other process of the machine uses
//! mount_namespace mount namespaces in which some directories are replaced
//! environment the variables that children receive
//! session/    a client program that leads a session, with pipes or a pseudo-terminal
//! pty         pseudo-terminals
//! tree/       snapshots of /proc; signals and kills whole process trees
//! agent_run   one run of the agent: the mark and the cgroup of its client processes
//! boot        the running time of the machine
//! cgroup      the cgroups of client processes, where the agent may create some
//! freeze      stops a process group for a moment
//! handover    the program that this process continues with
//! stat        one line of /proc/<pid>/stat, and the number of forks
//! sysv_ipc    System V shared memory, semaphores and message queues of a user
//! open_files  the limit on open files
//! allocator   settings of this process's memory, and its return to the system
//! ```
//!
//! Four threads do the work that must not run on the async runtime. Each lives as long as the
//! process and owns the state in its row. The spawner of an agent is its main thread:
//!
//! ```text
//! thread       started by  owns
//! spawner      child       starts of children, but for programs of clients, as a death signal
//!                          is bound to the thread that forks
//! processes    tree        the scans that produce snapshots
//! killer       tree        pending kill requests and the marks read so far
//! memory       allocator   the size of the process after memory was last returned
//! ```

pub mod agent_run;
pub mod allocator;
pub mod boot;
pub mod cgroup;
pub mod child;
pub mod confinement;
pub mod core_dumps;
pub mod dedicated_uid;
pub mod environment;
pub mod freeze;
pub mod handover;
pub mod memory;
pub mod mount_namespace;
pub mod open_files;
pub mod pty;
pub mod session;
pub mod stat;
pub mod sysv_ipc;
pub mod tree;

/// The kernel's limit on the arguments and the environment of a program together, in bytes. A
/// process can declare any part of its memory these, so that their files in `/proc` are as long as
/// it likes.
pub const MAX_PROGRAM_STRINGS: u64 = 6 << 20;
