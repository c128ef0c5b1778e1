"""Pods reviewed by the webhook through the real API server, and the API server's audit log.

tests/slow/faults has pods without a reachable webhook."""

import json

from plane import api, audit_log, manifests
from plane import site as sites

POLICY = manifests.policy({"ib": manifests.fabric(security={"capabilities": ["IPC_LOCK"]})})


def pod(name: str, *, label: str = "") -> dict:
    return manifests.pod(name, label, schedulerName="nobody")


def strip_generated_fields(created: dict) -> str:
    """Return a pod without the fields that the API server generates for each one."""
    metadata = created["metadata"]
    for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        metadata.pop(key, None)
    text = json.dumps(created, sort_keys=True)
    token = next(v["name"] for v in created["spec"]["volumes"] if v["name"].startswith("kube-api-access-"))
    return text.replace(token, "kube-api-access")


async def test_a_pod_without_the_label_is_unchanged_and_not_sent_to_the_webhook(plane, namespace, installed):
    before = await sites.read_metric(installed.webhook, "railwright_requests_total", path="/mutate/pods")
    with_webhook = await plane.api.create(pod("plain"), namespace=namespace)
    await plane.api.delete("Pod", "plain", namespace, grace=0)
    after = await sites.read_metric(installed.webhook, "railwright_requests_total", path="/mutate/pods")
    assert after == before
    await plane.unregister_webhook(namespaces=[namespace])
    without = await plane.api.create(pod("plain"), namespace=namespace)
    await installed.register(namespace)
    assert strip_generated_fields(with_webhook) == strip_generated_fields(without)


async def test_the_audit_log_records_injections_and_refusals(plane, namespace, installed):
    for name, label in (("in", "ib"), ("out", "ibb")):
        try:
            await plane.api.create(pod(name, label=label), namespace=namespace)
        except api.ApiError:
            assert name == "out"

    def entries() -> list[dict]:
        lines = audit_log.read(plane.parts.audit_log)
        ours = [line for line in lines if line.get("objectRef", {}).get("namespace") == namespace]
        return [line for line in ours if line["objectRef"].get("name") in ("in", "out")]

    def read_annotations(entry: dict) -> dict:
        prefix = "pods.railwright.io/"
        annotations = entry["annotations"]
        return {key.removeprefix(prefix): value for key, value in annotations.items() if key.startswith(prefix)}

    def find_annotations(code: int) -> dict:
        return next(
            read_annotations(entry)
            for entry in entries()
            if entry["responseStatus"]["code"] == code and read_annotations(entry)
        )

    admitted, refused = find_annotations(201), find_annotations(403)
    changes = admitted.pop("changes")
    assert admitted == {"fabric": "ib", "role": "worker", "rails": "rail0"}
    assert int(changes) > 0
    assert refused == {"fabric": "unknown", "refused": "unknown-fabric"}
