"""Uses clients that were generated from the OpenAPI documents.

Usage: use_client.py agent|control BASE_URL TOKEN DIRECTORY. The module `berth_agent` or `berth_control` has to be on
PYTHONPATH. Reads and writes files below DIRECTORY. Prints the results as one line of JSON.
"""

import base64
import importlib
import json
import sys
from io import BytesIO


class Api:
    """Calls the operations of a generated client by their ids."""

    def __init__(self, package, base_url, token):
        self.package = package
        types = importlib.import_module(f"{package}.client")
        self.client = types.AuthenticatedClient(base_url=base_url, token=token, raise_on_unexpected_status=True)
        self.models = importlib.import_module(f"{package}.models")
        self.File = importlib.import_module(f"{package}.types").File

    def __call__(self, group, operation, *path, **parameters):
        module = importlib.import_module(f"{self.package}.api.{group}.{operation}")
        return module.sync_detailed(*path, client=self.client, **parameters)


def use_files_and_processes(api, path, directory):
    """`path` holds the path parameters that precede all others."""
    file = f"{directory}/greeting.txt"
    models = api.models
    content = api.File(payload=BytesIO(b"hello from a generated client"), file_name="greeting.txt")
    written = api("files", "write_file", *path, body=content, path=file)
    read = api("files", "read_file", *path, path=file)
    listed = api("files", "list_files", *path, path=directory)
    missing = api("files", "read_file", *path, path=f"{directory}/missing")
    launch = models.ExecRequest(command="sh", args=["-c", "echo ready"])
    ran = api("processes", "exec_process", *path, body=launch)
    deleted = api("files", "delete_file", *path, body=models.PathRequest(path=file))
    return {
        "written": written.parsed.ok,
        "read": read.parsed.payload.read().decode(),
        "listed": [entry.name for entry in listed.parsed],
        "missing": [int(missing.status_code), missing.parsed.code],
        "stdout": base64.b64decode(ran.parsed.stdout_b64).decode(),
        "exit_code": ran.parsed.exit_code,
        "deleted": deleted.parsed.ok,
    }


def use_agent(api, directory):
    health = api("server", "get_health").parsed
    return {"health": health.status, **use_files_and_processes(api, (), directory)}


def use_control(api, directory):
    models = api.models
    created = api("browsers", "create_browser", body=models.CreateBrowser(headless=True, name="generated")).parsed
    identifier = created.session_id
    results = use_files_and_processes(api, (identifier,), directory)
    listed = api("browsers", "list_browsers", limit=10).parsed
    deleted = api("browsers", "delete_browser", identifier)
    gone = api("browsers", "get_browser", identifier)
    return {
        "created": created.name,
        "browsers": [browser.session_id == identifier for browser in listed],
        **results,
        "browser_deleted": int(deleted.status_code),
        "gone": [int(gone.status_code), gone.parsed.code],
    }


def main(server, base_url, token, directory):
    api = Api(f"berth_{server}", base_url, token)
    use = {"agent": use_agent, "control": use_control}[server]
    print(json.dumps(use(api, directory)))


main(*sys.argv[1:])
