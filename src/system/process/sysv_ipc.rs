//! System V shared memory, semaphores and message queues, which outlive the processes of a user.

#![allow(unsafe_code, reason = "nix does not wrap these system calls")]

use std::{fs, io, ptr};

use nix::{
    errno::Errno,
    libc::{self, c_int},
    unistd::Uid,
};

/// A kind of object.
struct Kind {
    name: &'static str,
    /// The kernel's list of all objects.
    list: &'static str,
    remove: fn(c_int) -> c_int,
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "shared memory",
        list: "/proc/sysvipc/shm",
        // SAFETY: this command uses no buffer.
        remove: |id| unsafe { libc::shmctl(id, libc::IPC_RMID, ptr::null_mut()) },
    },
    Kind {
        name: "semaphores",
        list: "/proc/sysvipc/sem",
        // SAFETY: this command has no fourth argument.
        remove: |id| unsafe { libc::semctl(id, 0, libc::IPC_RMID) },
    },
    Kind {
        name: "message queue",
        list: "/proc/sysvipc/msg",
        // SAFETY: this command uses no buffer.
        remove: |id| unsafe { libc::msgctl(id, libc::IPC_RMID, ptr::null_mut()) },
    },
];

/// Removes all objects that one of the users owns or has created. Returns descriptions of those
/// that cannot be removed.
#[must_use]
pub fn remove_of(users: &[Uid]) -> Vec<String> {
    let mut remaining = Vec::new();
    for kind in &KINDS {
        // A kernel without them has no list.
        let list = fs::read_to_string(kind.list).unwrap_or_default();
        for id in ids_of(&list, users) {
            if let Err(error) = remove(kind, id) {
                remaining.push(format!("{} {id}: {error}", kind.name));
            }
        }
    }
    remaining
}

fn remove(kind: &Kind, id: c_int) -> io::Result<()> {
    match Errno::result((kind.remove)(id)) {
        // Shared memory disappears with the last process that uses it.
        Ok(_) | Err(Errno::EINVAL | Errno::EIDRM) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the ids of the objects in a list that belong to one of the users.
fn ids_of(list: &str, users: &[Uid]) -> Vec<c_int> {
    let mut lines = list.lines().map(|line| line.split_whitespace().collect());
    let header: Vec<&str> = lines.next().unwrap_or_default();
    let owners = ["uid", "cuid"].map(|name| header.iter().position(|column| *column == name));
    let is_of = |row: &Vec<&str>| {
        owners.iter().flatten().any(|&column| {
            let uid = row.get(column).and_then(|field| field.parse().ok());
            uid.is_some_and(|uid| users.contains(&Uid::from_raw(uid)))
        })
    };
    // The key comes first, then the id.
    lines
        .filter(is_of)
        .filter_map(|row| row.get(1)?.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_owner_and_creator_are_listed() {
        let list = "       key      semid perms      nsems   uid   gid  cuid  cgid  otime  ctime\n\
                    \x20        0          3   600          1   500   500   500   500      0      0\n\
                    \x20        0          4   600          1     0     0   500   500      0      0\n\
                    \x20        0          5   600          1     0     0     0     0      0      0\n";
        let users = [Uid::from_raw(500), Uid::from_raw(501)];
        assert_eq!(ids_of(list, &users), [3, 4]);
        assert_eq!(ids_of("", &users), [0; 0]);
    }

    #[test]
    fn objects_of_a_user_are_removed() {
        let user = Uid::effective();
        // SAFETY: the call has no pointers.
        let id = unsafe { libc::semget(libc::IPC_PRIVATE, 1, 0o600) };
        assert!(id >= 0, "{}", Errno::last());
        let list = || ids_of(&fs::read_to_string(KINDS[1].list).unwrap(), &[user]);
        assert!(list().contains(&id));
        remove(&KINDS[1], id).unwrap();
        assert!(!list().contains(&id));
        // It is gone already.
        remove(&KINDS[1], id).unwrap();
    }
}
