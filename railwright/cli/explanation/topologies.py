"""Reads what a workload would ask of its scheduler, from a dry run or from the webhook's own code."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import jsonpatch
import msgspec

from railwright.cli import object_files
from railwright.cli.explanation import templates
from railwright.cluster import client as clients
from railwright.cluster import errors
from railwright.fabric import topology_record
from railwright.fabric.injection import templates as stored
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import rendering
from railwright.fabric.workloads import frameworks, registry
from webhook import reviews, state, workloads

Tree = object_files.Tree


class Topology(msgspec.Struct, frozen=True):
    """The scheduler that decides for a gang, and why it reads a topology or none."""

    scheduler: str
    reason: rendering.Message


async def ask_all(client: clients.Client, pod_templates: Sequence[templates.Template]) -> Mapping[str, Topology]:
    """Return the topology of each workload by its title, from a dry run. A workload without an answer is left out."""
    by_title = {}
    for title, (kind, tree) in _list_workloads(pod_templates).items():
        namespace = next(template.namespace for template in pod_templates if template.owner == title)
        path = f"/apis/{kind.group}/{kind.version}/namespaces/{namespace}/{kind.plural}?dryRun=All"
        try:
            body, _ = await client.create(path, msgspec.json.encode(tree))
        except errors.ApiError:
            continue  # no right, no such kind, or rejected, which its pods show
        by_title[title] = _read(kind, body)
    return {title: topology for title, topology in by_title.items() if topology is not None}


def preview_all(
    pod_templates: Sequence[templates.Template], policy: policies.Policy, caches: state.State
) -> Mapping[str, Topology]:
    """Return the topology of each workload by its title, by the webhook's own code."""
    by_title = {}
    for title, (kind, tree) in _list_workloads(pod_templates).items():
        namespace = next(template.namespace for template in pod_templates if template.owner == title)
        try:
            answer = _answer(_build_review(kind, tree, namespace), policy, caches)
        except reviews.MalformedError:
            continue
        response = msgspec.json.decode(answer.body)["response"]
        operations = msgspec.json.decode(base64.b64decode(response["patch"])) if "patch" in response else []
        by_title[title] = _read(kind, msgspec.json.encode(jsonpatch.apply_patch(tree, operations)))
    return {title: topology for title, topology in by_title.items() if topology is not None}


def _answer(body: bytes, policy: policies.Policy, caches: state.State) -> reviews.Answer:
    """Return the webhook's answer. Its handler waits for nothing, and only gives way to other requests."""
    steps = workloads.handle(body, policy, caches.build_facts, caches.build_topology_facts())
    while True:
        try:
            steps.send(None)
        except StopIteration as end:
            answer: reviews.Answer = end.value
            return answer


def _list_workloads(
    pod_templates: Sequence[templates.Template],
) -> Mapping[str, tuple[frameworks.WorkloadKind, Tree]]:
    """Return kind and object of each workload that admission mutates, by its title."""
    by_title = {}
    for template in pod_templates:
        if template.workload is not None:
            group, _, version = str(template.workload.get("apiVersion", "")).rpartition("/")
            kind = registry.find_injected(group, version, str(template.workload.get("kind")))
            if kind is not None:
                by_title[template.owner] = kind, template.workload
    return by_title


def _build_review(kind: frameworks.WorkloadKind, tree: Tree, namespace: str) -> bytes:
    request: dict[str, Any] = {
        "uid": "explain",
        "kind": {"group": kind.group, "version": kind.version, "kind": kind.name},
        "namespace": namespace,
        "operation": "CREATE",
        "object": tree,
        "dryRun": True,
    }
    return msgspec.json.encode({"apiVersion": reviews.API_VERSION, "kind": reviews.KIND, "request": request})


def _read(kind: frameworks.WorkloadKind, body: bytes) -> Topology | None:
    """Return the topology in the record of the first template that has one."""
    try:
        records = [topology_record.read(template.pod) for template in stored.read(kind, body).templates]
    except stored.UnreadableError:
        return None
    written = [
        Topology(record.scheduler, rendering.describe_recorded(record.reason)) for record in records if record.reason
    ]
    return written[0] if written else None
