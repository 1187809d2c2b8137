"""Schemathesis hooks that steer requests: to the temporary directory, to existing resources, and away from long waits.

The confinement of `fuzz.py` is what protects the machine; these hooks make the requests useful and short.
"""

import json
import os
import zlib

import schemathesis

FILES = os.environ["FUZZ_FILES"]
RESOURCES = json.loads(os.environ["FUZZ_RESOURCES"])

PATH_FIELDS = {"path", "src_path", "dest_path", "cwd", "files.0.dest_path"}
NAMES = ["file.txt", "directory", "directory/inner.txt", "missing", "missing/inner.txt", "archive.zip", "ü ñ"]
# Times in milliseconds, which the API accepts up to minutes, and numbers of steps.
LONG_FIELDS = {"duration_ms", "duration", "delay", "step_delay_ms", "steps_per_segment", "delta_x", "delta_y"}
MAX_VALID = 100_000
# The wait for a browser of a pool in seconds, its default, and the longest that the API accepts.
WAIT_FIELD = "acquire_timeout_seconds"
DEFAULT_WAIT, MAX_VALID_WAIT = 30, 300
MAX_TEXT = 40


def number(value):
    """A number that depends only on the value, so that a run can be repeated."""
    return zlib.crc32(repr(value).encode("utf-8", "surrogatepass"))


def file_path(value):
    return f"{FILES}/{NAMES[number(value) % len(NAMES)]}"


def steer(name, value):
    """Returns the value to send in the field `name`. Values of a wrong type stay as they are."""
    if isinstance(value, dict):
        return {key: steer(key, item) for key, item in value.items()}
    if isinstance(value, list):
        return [steer(name, item) for item in value]
    if isinstance(value, str):
        if name in PATH_FIELDS and value.startswith("/"):
            return file_path(value)
        if name == "command" and value:
            return "/bin/true"
        if name == "text":
            return value[:MAX_TEXT]
        if name in ("start_url", "url") and value.startswith(("http", "file")):
            return "about:blank"
    if name == WAIT_FIELD and isinstance(value, int) and 1 < value <= MAX_VALID_WAIT:
        return 1
    if name in LONG_FIELDS and isinstance(value, int) and 10 < value <= MAX_VALID:
        return 10
    return value


@schemathesis.serializer("application/zip", "application/zstd")
def binary(context, value):
    """The documents describe archives as binary strings."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


@schemathesis.hook
def before_call(context, case, kwargs):
    label = case.operation.path
    if isinstance(case.query, dict):
        for name, value in case.query.items():
            case.query[name] = steer(name, value)
        if label.endswith("/logs/stream"):
            case.query["follow"] = "false"
    if label.endswith("/acquire") and isinstance(case.body, dict) and case.body.get(WAIT_FIELD) is None:
        # Without a browser in the pool, it would wait for that long.
        case.body[WAIT_FIELD] = DEFAULT_WAIT
    if isinstance(case.body, (dict, list)):
        case.body = steer("", case.body)
    for name, value in (case.path_parameters or {}).items():
        case.path_parameters[name] = identifier(case, name, value)


def identifier(case, name, value):
    """Returns the id to send. Some of the generated ones remain: most of them identify nothing."""
    if case.operation.path.startswith("/org/api_keys/"):
        # Schemathesis also uses ids of responses. The key of the requests is neither rotated nor deleted.
        return RESOURCES["api_key"] if str(value).startswith("key_") else value
    if case.operation.path.startswith(("/org/projects/", "/projects/")):
        # The default project is neither archived nor deleted.
        is_existing = str(value).startswith("proj_") or value == "default"
        return RESOURCES["project"] if is_existing or number(value) % 4 else value
    if case.operation.path.startswith("/fleet/join_tokens/") and str(value).startswith("join_"):
        # The join token of the requests is not deleted.
        return "missing"
    if case.operation.path.endswith("/stdout/stream"):
        # Only the stream of an exited process ends.
        name = name.replace("process_id", "exited_process_id")
        value = RESOURCES["exited_process_id"] if value == RESOURCES["process_id"] else value
    if name == "watch_id" and str(value).startswith("watch_"):
        # The stream of a watch does not end.
        return "missing"
    existing = RESOURCES.get(name)
    if case.method.upper() == "DELETE":
        return "missing" if value == existing else value
    return existing if existing and number(value) % 4 else value


@schemathesis.hook
def after_call(context, case, response):
    with open(os.environ["FUZZ_RESPONSES"], "a", encoding="utf-8") as file:
        print(case.operation.label, response.status_code, response.elapsed, sep="\t", file=file)
