"""Checks the manifests below image/engines, as far as Python has schemas of them.

Usage: manifests.py kubernetes FILE | kubevirt FILE | agent-sandbox FILE | nomad FILE. `kubernetes` checks a file with
resources of Kubernetes itself, and ignores other kinds. `kubevirt` prints a TypeScript program that has the types of
KubeVirt's resources. `agent-sandbox` prints the environment and the arguments of the container as JSON.
"""

import json
import sys
import tomllib
from pathlib import Path

import hcl2
import kubernetes_validate
import yaml

KUBERNETES = "1.37"
# The configuration of tasks, and options of QEMU that the driver sets itself (drivers/qemu of Nomad 1.8).
QEMU_DRIVER = {
    "image_path", "drive_interface", "accelerator", "graceful_shutdown", "guest_agent", "args", "port_map",
}
QEMU_OPTIONS_OF_THE_DRIVER = {"-machine", "-name", "-m", "-drive", "-nographic", "-netdev"}
# The fields of agents.x-k8s.io/v1beta1, whose schema no package has.
SANDBOX = {"podTemplate", "volumeClaimTemplates", "service", "shutdownTime", "shutdownPolicy", "operatingMode"}


def resources(path):
    return [resource for resource in yaml.safe_load_all(Path(path).read_text()) if resource]


def resource(path, kind):
    (found,) = [resource for resource in resources(path) if resource["kind"] == kind]
    return found


def subset(values, allowed):
    unknown = set(values) - set(allowed)
    assert not unknown, f"unknown: {sorted(unknown)}"


def validate(resource):
    kubernetes_validate.validate(resource, KUBERNETES, strict=True)


def kubernetes(path):
    checked = [resource for resource in resources(path) if "." not in resource["apiVersion"]]
    assert checked, f"{path} has no resource of Kubernetes itself"
    for resource in checked:
        validate(resource)


def kubevirt(path):
    settings = tomllib.loads(resource(path, "Secret")["stringData"]["userdata"])
    subset(settings, {"control_url", "join_token"})
    machines = resource(path, "VirtualMachineInstanceReplicaSet")
    assert machines["apiVersion"] == "kubevirt.io/v1"
    print('import type { V1VirtualMachineInstanceReplicaSet } from "@kubevirt-ui-ext/kubevirt-api/kubevirt";')
    print("export const machines: V1VirtualMachineInstanceReplicaSet =", json.dumps(machines), ";")


def agent_sandbox(path):
    sandbox = resource(path, "Sandbox")
    assert sandbox["apiVersion"] == "agents.x-k8s.io/v1beta1"
    subset(sandbox, {"apiVersion", "kind", "metadata", "spec"})
    subset(sandbox["spec"], SANDBOX)
    template = sandbox["spec"]["podTemplate"]
    subset(template, {"metadata", "spec"})
    subset(template["metadata"], {"labels", "annotations"})
    # Its pod is one of Kubernetes.
    validate({"apiVersion": "v1", "kind": "Pod", **template})
    (container,) = template["spec"]["containers"]
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    print(json.dumps({"environment": environment, "arguments": container["args"]}))


def nomad(path):
    with open(path) as file:
        job = hcl2.load(file)
    (job,) = job["job"]
    (job,) = job.values()
    (group,) = job["group"]
    (group,) = group.values()
    (task,) = group["task"]
    (task,) = task.values()
    (config,) = task["config"]
    assert plain(task["driver"]) == "qemu"
    subset(names(config), QEMU_DRIVER)
    options = [plain(argument) for argument in config["args"]]
    assert not QEMU_OPTIONS_OF_THE_DRIVER & set(options), options
    # Each file with a setting is the destination of a template.
    files = {option.partition("path=")[2] for option in options if "path=" in option}
    assert files == {plain(template["destination"]) for template in task["template"]}
    (ports,) = [port for network in group["network"] for port in network["port"]]
    (mapped,) = config["port_map"]
    assert {plain(name) for name in names(mapped)} == {plain(name) for name in names(ports)}


def names(block):
    """Returns the names of a block, without those that the parser adds."""
    return [name for name in block if not name.startswith("__")]


def plain(text):
    """Returns a string without the quotes that the parser keeps."""
    return text.strip('"')


CHECKS = {"kubernetes": kubernetes, "kubevirt": kubevirt, "agent-sandbox": agent_sandbox, "nomad": nomad}
CHECKS[sys.argv[1]](sys.argv[2])
