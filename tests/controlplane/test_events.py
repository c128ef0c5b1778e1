"""Events on the owners of pods, and entries of the API server's audit log."""

import pytest
import pytest_asyncio
from plane import api, audit_log, waiting

POLICY = """
apiVersion: railwright.io/v1alpha1
kind: FabricPolicy
fabrics:
  ib:
    transport: infiniband
    rails:
    - {name: rail0, resource: nvidia.com/mlx5_0, device: mlx5_0}
  unfinished:  # its network is yet to come: a workload is taken with a warning, its pods are not
    transport: roce
    rails:
    - {name: rail0, network: nowhere/rail0, resource: nvidia.com/mlx5_0, device: mlx5_0}
"""
SENTENCE = "NetworkAttachmentDefinition nowhere/rail0"
UNPLACED = {"schedulerName": "nobody", "terminationGracePeriodSeconds": 0}


def template(label: str, **spec) -> dict:
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    return {
        "metadata": {"labels": {"railwright.io/fabric": label, "app": "train"}},
        "spec": {**UNPLACED, "containers": [{"name": "c", "image": "i", "resources": resources}], **spec},
    }


def deployment(label: str) -> dict:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "train"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "train"}}, "template": template(label)},
    }


def volcano_job() -> dict:
    task = {"name": "worker", "replicas": 2, "template": template("ib", hostNetwork=True)}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"minAvailable": 2, "schedulerName": "volcano", "queue": "default", "tasks": [task]},
    }


@pytest.fixture
def wait_for_events(plane, namespace):
    async def wait_for_events(*, of: str, count: int = 1) -> list[dict]:
        """Our Events about objects of a kind, once one of them counts so many."""

        async def list_counted_events() -> list[dict] | None:
            every = [event for event in await plane.api.list("Event", namespace) if ours(event)]
            matches = [event for event in every if event["involvedObject"]["kind"] == of]
            assert any(event["count"] >= count for event in matches), f"Events {[words(event) for event in every]}"
            return matches

        return await waiting.wait(list_counted_events, describe=f"an Event on a {of} that counts {count}", seconds=60)

    return wait_for_events


def ours(event: dict) -> bool:
    return event["source"].get("component") == "railwright-webhook"


def words(event: dict) -> tuple[str, str, str, int]:
    return (event["type"], event["reason"], event["message"], event["count"])


@pytest_asyncio.fixture(loop_scope="session")
async def installed(namespace, module_site):  # in this order: it is unregistered before its namespace goes
    yield await module_site.install(POLICY, namespace)
    await module_site.unregister()


async def test_refused_pods_are_one_event_on_their_replica_set(plane, namespace, installed, wait_for_events):
    await plane.api.create(deployment("unfinished"), namespace=namespace)
    events = await wait_for_events(of="ReplicaSet", count=3)
    assert len(events) == 1, "many tries, one Event"
    (event,) = events
    assert (event["type"], event["reason"]) == ("Warning", "FabricRefused")
    assert SENTENCE in event["message"]
    (replica_set,) = await plane.api.list("apps/v1/ReplicaSet", namespace)
    assert event["involvedObject"]["uid"] == replica_set["metadata"]["uid"]
    described = await plane.kubectl("describe", "replicaset", replica_set["metadata"]["name"], "-n", namespace)
    assert "FabricRefused" in described
    assert SENTENCE in described


async def test_warnings_of_pods_are_events_on_their_volcano_job(plane, nodes, namespace, installed, wait_for_events):
    await nodes.make("gpu-0")  # Volcano makes no pods of a job whose devices no node has
    await plane.api.create(volcano_job(), namespace=namespace)
    events = await wait_for_events(of="Job")
    assert {(event["type"], event["reason"]) for event in events} == {("Warning", "FabricWarning")}
    assert any("spec.hostNetwork is true" in event["message"] for event in events)
    assert all(event["involvedObject"]["apiVersion"] == "batch.volcano.sh/v1alpha1" for event in events)


async def test_the_audit_log_has_changes_and_refusals(plane, namespace, installed):
    for name, label in (("in", "ib"), ("out", "ibb")):
        pod = {"apiVersion": "v1", "kind": "Pod", **template(label)}
        pod["metadata"]["name"] = name
        try:
            await plane.api.create(pod, namespace=namespace)
        except api.ApiError:
            assert name == "out"

    def entries() -> list[dict]:
        lines = audit_log.read(plane.parts.audit_log)
        return [line for line in lines if line.get("objectRef", {}).get("namespace") == namespace]

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
