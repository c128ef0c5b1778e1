"""Compares the meaning of an admitted pod and a hand-written one for Kubernetes, Multus and NCCL."""

import json

import conf_reading
import yaml
from admitting import EXAMPLES, LANS

from railwright.cli.explanation import templates
from railwright.fabric import names, quantity
from railwright.fabric.multus import network_selection

# The two corrections the seeds' table asks for: what was written by hand -> what is right.
BETTER = {
    ("NCCL_IB_RETRY_CNT", "10"): ("NCCL_IB_RETRY_CNT", "7"),
    ("NCCL_IB_GDR_LEVEL", "0"): ("NCCL_NET_GDR_LEVEL", "LOC"),
}


def correct_variable(name: str, value: str | dict | None) -> tuple[str, str | dict | None]:
    """Return a variable with its correct value; `value` is the dict of a valueFrom if there is one."""
    return (name, value) if isinstance(value, dict) else BETTER.get((name, value), (name, value))


def read_meaning(pod: dict) -> dict:
    """Return a pod's settings for Kubernetes, Multus and NCCL, without order of variables and spelling of amounts."""
    kinds = {
        volume["name"]: {kind: source for kind, source in volume.items() if kind != "name"}
        for volume in pod["spec"].get("volumes", [])
    }
    containers = []
    for container in pod["spec"]["containers"]:
        names_set = [entry["name"] for entry in container.get("env", [])]
        assert len(names_set) == len(set(names_set))
        env = {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container.get("env", [])}
        amounts = container.get("resources", {})
        read = {
            kind: {name: quantity.parse(text) for name, text in amounts.get(kind, {}).items()}
            for kind in ("requests", "limits")
        }
        mounts = {mount["mountPath"]: kinds[mount["name"]] for mount in container.get("volumeMounts", [])}
        containers.append(
            container
            | {
                "env": dict(correct_variable(name, value) for name, value in env.items()),
                "resources": {"requests": read["limits"] | read["requests"], "limits": read["limits"]},
                "volumeMounts": mounts,
            }
        )
    annotations = dict(pod["metadata"].get("annotations", {}))
    annotations.pop(names.INJECTION, None)
    selected = network_selection.parse_networks(annotations.pop(names.NETWORKS, ""), pod["metadata"]["namespace"])
    labels = {key: value for key, value in pod["metadata"].get("labels", {}).items() if key != names.FABRIC}
    spec = {key: value for key, value in pod["spec"].items() if key != "volumes"}
    return {
        "spec": spec | {"containers": containers},
        "labels": labels,
        "annotations": annotations,
        "networks": selected,
    }


def read_ranks(pods: dict[str, dict]) -> tuple[dict, dict]:
    """Return the NCCL settings of mpirun's ranks, by -x or by a worker's file, and the pods without them."""
    read: dict[str, str] = {}
    rest = {role: read_meaning(pod) for role, pod in pods.items()}
    for role, pod in pods.items():
        (container,) = rest[role]["spec"]["containers"]
        command = container.get("command", [])
        at = [index for index, word in enumerate(command) if word == "-x" and command[index + 1].startswith("NCCL_")]
        read |= {k: v for k, _, v in (command[index + 1].partition("=") for index in at)}
        left = [word for index, word in enumerate(command) if index not in at and index - 1 not in at]
        text = rest[role]["annotations"].pop(names.NCCL_CONF, "")
        mounted = container["volumeMounts"].pop("/etc/nccl.conf", None)
        assert bool(text) == bool(mounted) == (role == "worker" and names.FABRIC in pod["metadata"].get("labels", {}))
        in_file = conf_reading.read(text)
        read |= in_file
        container |= {"command": left, "env": {k: v for k, v in container["env"].items() if k not in in_file}}
    return dict(correct_variable(*pair) for pair in read.items()), rest


def list_pods(job: dict) -> dict[str, dict]:
    """Return the pods that a controller would create, by role, as separate copies."""
    job = json.loads(json.dumps(job))  # unties YAML's aliases
    pods = {
        (template.part or "pod").split()[-1].lower(): template.pod
        for template in templates.list_templates(job, "default")
    }
    for role, pod in pods.items():
        pod["metadata"]["name"] = f"job-{role}-0"
    return pods


def read_networks(site: str) -> dict[tuple[str, str], str | None]:
    """Return the site's networks with their pools, as the watch reads them."""
    path = EXAMPLES / site / "networks.yaml"
    if not path.exists():
        return dict(LANS)
    metadatas = [document["metadata"] for document in yaml.safe_load_all(path.read_text())]
    return {
        (metadata["namespace"], metadata["name"]): metadata.get("annotations", {}).get(names.NAD_RESOURCE_NAME)
        for metadata in metadatas
    }
