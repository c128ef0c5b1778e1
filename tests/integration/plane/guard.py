"""The admission policies of manifests/base in the API server, enforced in the namespaces that a test names.

A label limits them to these namespaces. No webhook is needed.
"""

import pathlib
import uuid
from typing import Any

import yaml

from plane import api, manifests, waiting

_MANIFEST = pathlib.Path(__file__).resolve().parents[3] / "manifests" / "base" / "admission-policy.yaml"
LABEL = "railwright.test/guarded"
GUARDED = {LABEL: "true"}
FABRIC = "railwright.io/fabric"


def documents() -> list[dict[str, Any]]:
    """Return the policies and bindings as they are shipped, the bindings limited to namespaces with our label."""
    trees = list(yaml.safe_load_all(_MANIFEST.read_text()))
    for tree in trees:
        if tree["kind"] == "ValidatingAdmissionPolicyBinding":
            selector = tree["spec"].setdefault("matchResources", {}).setdefault("namespaceSelector", {})
            selector.setdefault("matchExpressions", []).append({"key": LABEL, "operator": "Exists"})
    return trees


async def install(client: api.Api) -> None:
    """Create the policies once for a control plane, and wait until each denies its case."""
    trees = documents()
    first, kind = trees[0], "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"
    if await client.get_or_none(kind, first["metadata"]["name"]) is not None:
        return
    for tree in trees:
        await client.create(tree)
    for labels, pod in (
        ({}, probe({FABRIC: "x"})),
        ({FABRIC: "x"}, probe({})),
        ({"railwright.io/uninjected": "warn"}, probe({FABRIC: "x"})),
        ({FABRIC: "x", "railwright.io/uninjected": "warn"}, probe({})),
    ):
        await _wait_in_force(client, labels, pod)


async def put(client: api.Api, namespace: str) -> None:
    """Enforce the policies in a namespace."""
    await install(client)
    await client.patch("Namespace", namespace, {"metadata": {"labels": GUARDED}})


async def remove(client: api.Api, namespace: str) -> None:
    """Stop enforcing the policies in a namespace."""
    current = await client.get_or_none("Namespace", namespace)
    if current is not None and LABEL in current["metadata"].get("labels", {}):
        await client.patch("Namespace", namespace, {"metadata": {"labels": {LABEL: None}}})


def probe(labels: dict[str, str], **metadata: Any) -> api.Object:
    """Return a pod with an accelerator that nothing has injected."""
    pod = manifests.pod("p", labels=labels, schedulerName="nobody")
    pod["metadata"] |= metadata
    return pod


async def _wait_in_force(client: api.Api, labels: dict[str, str], pod: api.Object) -> None:
    name = f"guard-{uuid.uuid4().hex[:6]}"
    metadata = {"name": name, "labels": {**labels, **GUARDED}}
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    async def is_noticed() -> bool:
        return "has not injected" in (await client.find_rejection(pod, name) or " ".join(client.warnings))

    await waiting.wait(is_noticed, describe=f"an admission policy to be in force for namespaces labelled {labels}")
    await client.delete("Namespace", name)
