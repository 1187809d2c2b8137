"""Runs Schemathesis against a server in a confined place.

Usage: fuzz.py agent|control BERTH ROOT PHASES EXAMPLES SEED RETAINED…, in new namespaces (see confine.py). ROOT is an
empty directory, BERTH the program, and the RETAINED directories hold it and its files. Prints what Schemathesis prints,
and exits with its status.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from pathlib import Path

from confine import confine

HERE = Path(__file__).resolve().parent
TOKEN = "the-token-of-the-agent-under-test"
# The server has no rights of root: only one user exists in its namespace.
UNPRIVILEGED = ["unshare", "--user", "--map-user", "1000", "--map-group", "1000"]
STATE, FILES, LOG, RESPONSES = (Path("/tmp") / name for name in ("state", "files", "server.log", "responses"))


def start(server, berth):
    command = {
        "agent": [berth, "agent", "--headless"],
        "control": [berth, "dev", "--max-browsers", "2"],
    }[server]
    environment = {**os.environ, "HOME": "/tmp", "TMPDIR": "/tmp"}
    if server == "agent":
        environment["BERTH_AGENT_TOKEN"] = TOKEN
    with LOG.open("wb") as log:
        process = subprocess.Popen(
            [*UNPRIVILEGED, *command, "--listen", "127.0.0.1:0", "--json", "--state-dir", STATE],
            env=environment, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL,
        )
    line = process.stdout.readline()
    if not line:
        sys.exit(f"the server did not start\n{LOG.read_text()}")
    announced = json.loads(line)
    return process, announced["base_url"], announced.get("api_key", TOKEN)


def call(base_url, token, path, body=None):
    request = urllib.request.Request(base_url + path, data=body and json.dumps(body).encode())
    request.add_header("Authorization", f"Bearer {token}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def resources(server, base_url, token):
    """Creates what requests need, and returns its ids by the names of path parameters."""
    if server == "agent":
        prefix, found = "", {}
        call(base_url, token, "/json/version")
    else:
        browser = call(base_url, token, "/browsers", {"headless": True, "timeout_seconds": 86400})
        prefix, found = f"/browsers/{browser['session_id']}", {"id": browser["session_id"]}
        found["api_key"] = call(base_url, token, "/org/api_keys", {"name": "spare"})["id"]
        found["project"] = call(base_url, token, "/org/projects", {"name": "spare"})["id"]
        found["join_token"] = call(base_url, token, "/fleet/join_tokens", {"uses": 10_000})["token"]
    running = call(base_url, token, f"{prefix}/process/spawn", {"command": "sleep", "args": ["infinity"]})
    exited = call(base_url, token, f"{prefix}/process/spawn", {"command": "true"})
    return {**found, "process_id": running["process_id"], "exited_process_id": exited["process_id"]}


def make_files():
    (FILES / "directory").mkdir(parents=True)
    for name in ("file.txt", "directory/inner.txt"):
        (FILES / name).write_text("content")
    shutil.make_archive(str(FILES / "archive"), "zip", FILES / "directory")


def responses():
    """Returns the responses as tuples of operation, status and seconds."""
    lines = (line.split("\t") for line in RESPONSES.read_text().splitlines())
    return [(operation, status, float(seconds)) for operation, status, seconds in lines]


def untested():
    """Returns the operations whose requests were all rejected for their credential or their method."""
    statuses = {}
    for operation, status, _ in responses():
        statuses.setdefault(operation, set()).add(status)
    return sorted(operation for operation, found in statuses.items() if found <= {"401", "405"})


def print_slowest():
    """Prints the operations whose responses took the longest together."""
    seconds, counts = Counter(), Counter()
    for operation, _, elapsed in responses():
        seconds[operation] += elapsed
        counts[operation] += 1
    for operation, total in seconds.most_common(10):
        print(f"{total:6.1f} s in {counts[operation]} responses of {operation}")


def main(server, berth, root, phases, examples, seed, *retained):
    confine(root, [*retained, sys.prefix, str(HERE)])
    make_files()
    process, base_url, token = start(server, berth)
    created = resources(server, base_url, token)
    environment = {
        **os.environ,
        "HOME": "/tmp",
        "PYTHONPATH": str(HERE),
        "SCHEMATHESIS_HOOKS": "hooks",
        "FUZZ_FILES": str(FILES),
        "FUZZ_RESPONSES": str(RESPONSES),
        "FUZZ_JOIN_TOKEN": created.pop("join_token", ""),
        "FUZZ_RESOURCES": json.dumps(created),
    }
    fuzzer = [
        sys.executable, "-m", "schemathesis.cli", "--config-file", str(HERE / "schemathesis.toml"),
        "run", f"{base_url}/openapi.json", "-H", f"Authorization: Bearer {token}",
        "--phases", phases, "--max-examples", examples, "--seed", seed,
    ]
    status = subprocess.run(fuzzer, env=environment).returncode
    print_slowest()
    if untested():
        print(f"operations that no authenticated request reached: {untested()}")
        status = 1
    process.send_signal(signal.SIGTERM)
    stopped = process.wait()
    log = LOG.read_text(errors="replace")
    if status or stopped:
        print(f"the server exited with {stopped}; the end of its log:\n{log[-4000:]}")
    if "panicked" in log:
        print("the server panicked")
        status = status or 1
    sys.exit(status or stopped)


main(*sys.argv[1:])
