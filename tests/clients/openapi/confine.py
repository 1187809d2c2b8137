"""Confines this process: the file system is read-only but for empty temporary directories, and only loopback is up.

Requires user, mount, network and process namespaces of its own: run it with
`unshare --user --map-root-user --mount --net --pid --fork --kill-child`.
"""

import ctypes
import fcntl
import os
import socket
import struct

MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 0x1000, 0x2000, 0x4000, 0x40000
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
MOUNT_ATTR_RDONLY = 1
SYS_MOUNT_SETATTR = 442
SIOCSIFFLAGS, IFF_UP = 0x8914, 1
TEMPORARY = ("/tmp", "/dev/shm", "/run", "/var/tmp")

libc = ctypes.CDLL(None, use_errno=True)


def check(result, action):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{action}: {os.strerror(number)}")


def mount(source, target, kind, flags):
    check(libc.mount(source.encode(), target.encode(), kind.encode(), flags, None), f"mount on {target}")


def make_read_only(target):
    """Includes the mounts below the target. There is no function for this call in most C libraries."""
    attributes = struct.pack("=QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0)
    result = libc.syscall(
        SYS_MOUNT_SETATTR, AT_FDCWD, target.encode(), AT_RECURSIVE, attributes, ctypes.c_size_t(len(attributes))
    )
    check(result, f"make {target} read-only")


def start_loopback():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))


def confine(root, retained):
    """Makes `root`, an empty directory, the root directory, with all of the system's files.

    The `retained` directories stay visible, read-only, where they are below a temporary directory.
    """
    mount("none", "/", "none", MS_REC | MS_PRIVATE)
    mount("/", root, "none", MS_BIND | MS_REC)
    make_read_only(root)
    mount("proc", f"{root}/proc", "proc", 0)
    for directory in filter(os.path.isdir, TEMPORARY):
        mount("tmpfs", root + directory, "tmpfs", 0)
        os.chmod(root + directory, 0o1777)
    for directory in retained:
        if directory.startswith(tuple(f"{place}/" for place in TEMPORARY)):
            os.makedirs(root + directory, exist_ok=True)
            mount(directory, root + directory, "none", MS_BIND | MS_REC)
            make_read_only(root + directory)
    start_loopback()
    # With the mount moved to the root, this is no chroot, in which no user namespace can be created.
    os.chdir(root)
    mount(root, "/", "none", MS_MOVE)
    os.chroot(".")
    os.chdir("/tmp")
