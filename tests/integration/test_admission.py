"""Pods reviewed by the webhook through the real API server; what its audit log says. Without a webhook: slow/faults."""

import json

from plane import api, audit_log, manifests
from plane import site as sites

INJECTION = "railwright.io/injection"


def policy(marker: str) -> str:
    security = {"capabilities": ["IPC_LOCK"]}
    return manifests.policy({"ib": manifests.fabric(security=security, env={"MARKER": marker})})


POLICY = policy("1")


def pod(name: str, *, label: str = "") -> dict:
    env = [{"name": "A", "value": "1"}]
    return manifests.pod(name, label, container={"env": env}, schedulerName="nobody")


def env(created: dict) -> dict:
    return {variable["name"]: variable.get("value") for variable in created["spec"]["containers"][0].get("env", [])}


def timeless(created: dict) -> str:
    """Return a pod without the fields that the API server generates for each one."""
    metadata = created["metadata"]
    for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        metadata.pop(key, None)
    text = json.dumps(created, sort_keys=True)
    token = next(v["name"] for v in created["spec"]["volumes"] if v["name"].startswith("kube-api-access-"))
    return text.replace(token, "kube-api-access")


async def test_a_pod_without_the_label_is_unchanged_and_causes_no_call(plane, namespace, installed):
    before = await sites.metric(installed.webhook, "railwright_requests_total", path="/mutate/pods")
    with_webhook = await plane.api.create(pod("plain"), namespace=namespace)
    await plane.api.delete("Pod", "plain", namespace, grace=0)
    after = await sites.metric(installed.webhook, "railwright_requests_total", path="/mutate/pods")
    assert after == before
    await plane.unregister_webhook(namespaces=[namespace])
    without = await plane.api.create(pod("plain"), namespace=namespace)
    await installed.register(namespace)
    assert timeless(with_webhook) == timeless(without)


async def test_an_opted_in_pod_is_injected_once(plane, namespace, installed):
    created = await plane.api.create(pod("in", label="ib"), namespace=namespace)
    container = created["spec"]["containers"][0]
    assert container["resources"]["limits"]["nvidia.com/mlx5_0"] == "1"
    assert container["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    assert env(created)["MARKER"] == "1"
    record = json.loads(created["metadata"]["annotations"][INJECTION])
    assert record["policy"].startswith("sha256:")
    # Made again from what it has become: nothing is added twice.
    container_without_mounts = {
        key: value for key, value in container.items() if key != "volumeMounts"
    }  # the token's mount gets a new name each time
    again = pod("again", label="ib") | {"spec": {**pod("again")["spec"], "containers": [container_without_mounts]}}
    again["metadata"]["annotations"] = {INJECTION: created["metadata"]["annotations"][INJECTION]}
    recreated = await plane.api.create(again, namespace=namespace)
    assert recreated["spec"]["containers"][0]["env"] == container["env"]
    assert recreated["spec"]["containers"][0]["resources"] == container["resources"]


async def test_the_audit_log_has_changes_and_refusals(plane, namespace, installed):
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
    assert refused == {"fabric": "unknown", "role": "worker", "refused": "unknown-fabric"}
