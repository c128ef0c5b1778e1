"""The example rows of manifests/examples on the plane: their namespaces and networks, jobs by either hand, and what a
pod means to Kubernetes, Multus and NCCL, so that two hands can be compared.
"""

import json
import pathlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import yaml

from fabric import networks, quantity
from fabric.nccl import conf
from plane import plane as planes
from plane import waiting

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "manifests" / "examples"
MULTUS, NCCL_CONF = "k8s.v1.cni.cncf.io/networks", "railwright.io/nccl.conf"
NCCL_CONF_PATH = "/etc/nccl.conf"
# What the seeds' table asks to be better: written by hand -> right.
BETTER = {
    ("NCCL_IB_RETRY_CNT", "10"): ("NCCL_IB_RETRY_CNT", "7"),
    ("NCCL_IB_GDR_LEVEL", "0"): ("NCCL_NET_GDR_LEVEL", "LOC"),
}
# Of a spec that no user writes: who it was made for, and where it went.
_PLACE = ("containers", "volumes", "nodeName", "hostname", "subdomain", "initContainers")


def policy(row: str) -> str:
    """The policy of a row."""
    return (EXAMPLES / row / "policy.yaml").read_text()


def job(row: str, source: str, name: str, namespace: str) -> dict[str, Any]:
    """A row's job, `job` or `handwritten`, under a name of the test's own."""
    manifest: dict[str, Any] = yaml.safe_load((EXAMPLES / row / f"{source}.yaml").read_text())
    manifest["metadata"] |= {"name": name, "namespace": namespace}
    return manifest


@asynccontextmanager
async def at(plane: planes.Plane, row: str) -> AsyncIterator[str]:
    """The namespace of a row's job, and its networks in theirs; all of it gone afterwards."""
    name = yaml.safe_load((EXAMPLES / row / "job.yaml").read_text())["metadata"]["namespace"]
    path = EXAMPLES / row / "networks.yaml"
    found = [*yaml.safe_load_all(path.read_text())] if path.exists() else []
    spaces = sorted({name, *(each["metadata"]["namespace"] for each in found)})
    for space in spaces:
        await plane.make_namespace(space)
    for each in found:
        await plane.api.create(each)
    try:
        yield name
    finally:
        for space in spaces:
            await plane.remove_namespace(space)

        async def gone() -> bool:
            return all([await plane.api.get_or_none("Namespace", space) is None for space in spaces])

        await waiting.wait(gone, describe=f"namespaces {spaces} to be gone", seconds=60)


def meaning(pod: dict[str, Any], job_name: str) -> dict[str, Any]:
    """What a pod means, without what differs between any two pods; every mention of its job reads JOB and UID."""
    text = json.dumps(pod).replace(job_name, "JOB")
    for owner in pod["metadata"].get("ownerReferences", ()):
        text = text.replace(owner["uid"], "UID")
    pod = json.loads(text)
    annotations = pod["metadata"].get("annotations", {})
    selected = networks.parse(annotations.get(MULTUS, ""), pod["metadata"]["namespace"])
    ours = ("railwright.io/", MULTUS)
    # the API server's own volume has a name of its own in each pod
    kinds = {each["name"]: sorted(set(each) - {"name"}) for each in pod["spec"].get("volumes", [])}
    containers = [
        _container(each, kinds, conf.parse(annotations.get(NCCL_CONF, ""))) for each in pod["spec"]["containers"]
    ]
    return {
        "spec": {key: value for key, value in pod["spec"].items() if key not in _PLACE},
        "containers": containers,
        "annotations": {key: value for key, value in annotations.items() if not key.startswith(ours)},
        "networks": [(each.namespace, each.name, each.interface) for each in selected],
    }


def _container(container: dict[str, Any], kinds: dict[str, list[str]], file: Any) -> dict[str, Any]:
    env = {each["name"]: each.get("value", each.get("valueFrom")) for each in container.get("env", [])}
    assert len(env) == len(container.get("env", [])), "a name is there twice"
    env = {key: value for key, value in env.items() if file.get(key) != value}
    amounts = {
        kind: {name: quantity.parse(text) for name, text in container.get("resources", {}).get(kind, {}).items()}
        for kind in ("requests", "limits")
    }
    mounts = {each["mountPath"]: kinds[each["name"]] for each in container.get("volumeMounts", [])}
    mounts.pop(NCCL_CONF_PATH, None)
    words, settings = _command(container.get("command", []))
    settings |= dict(file) if container.get("volumeMounts") and _reads_file(container) else {}
    rest = {k: v for k, v in container.items() if k not in ("env", "resources", "volumeMounts", "command")}
    return {
        **rest,
        "command": words,
        "env": dict(BETTER.get((name, str(value)), (name, value)) for name, value in env.items()),
        "by command or file": dict(BETTER.get(pair, pair) for pair in settings.items()),
        "resources": amounts,
        "mounts": mounts,
    }


def _reads_file(container: dict[str, Any]) -> bool:
    return any(each["mountPath"] == NCCL_CONF_PATH for each in container["volumeMounts"])


def _command(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """A command without its `-x NCCL_NAME=VALUE`, and those."""
    at = [
        i for i, word in enumerate(words) if word == "-x" and words[i + 1 : i + 2] and words[i + 1].startswith("NCCL_")
    ]
    settings = dict(words[i + 1].split("=", 1) for i in at)
    return [word for i, word in enumerate(words) if i not in at and i - 1 not in at], settings
