"""Faults of an unreachable webhook with the shipped configuration, and of objects that change meanwhile."""

import json

import pytest_asyncio
import yaml
from plane import audit_log, guard, manifests, ports, registration, waiting
from plane import site as sites

INJECTION, FABRIC = "railwright.io/injection", "railwright.io/fabric"
CONFIGURATION = "MutatingWebhookConfiguration"
RAIL = {"name": "rail0", "resource": "x.y/hca", "device": "mlx5_0"}
POLICY = manifests.policy({"ib": manifests.fabric([RAIL], security={"capabilities": ["IPC_LOCK"]})}, defaultFabric="ib")


def pod(name: str = "p", fabric: str = "", *, gpus: int = 1) -> dict:
    limits = {"nvidia.com/gpu": gpus} if gpus else {"cpu": 1}
    container = {"securityContext": registration.STRICT}
    return manifests.pod(name, fabric, limits=limits, container=container, schedulerName="nobody")


def is_whole(created: dict, template: dict | None = None) -> bool:
    """Return True if the pod is injected, False if it equals its template. Fails if it is injected in part."""
    container = created["spec"]["containers"][0]
    rail = "x.y/hca"
    asked = (template or pod())["spec"]["containers"][0]["resources"]["limits"]
    parts = {
        INJECTION in created["metadata"].get("annotations", {}),
        any(entry["name"] == "NCCL_IB_HCA" for entry in container.get("env", [])),
        "IPC_LOCK" in container["securityContext"]["capabilities"].get("add", []),
    }
    assert len(parts) == 1, created
    limits = container["resources"]["limits"]
    assert limits == (asked | {rail: "1"} if parts == {True} else asked) or not asked.get("nvidia.com/gpu"), created
    return parts == {True}


@pytest_asyncio.fixture(loop_scope="session")
async def shipped(plane):
    """Yield `await shipped(port)`: register the manifests' configuration for every namespace, until the test ends."""
    name = ""

    async def put(port: int, **policies: str) -> None:
        nonlocal name
        made = registration.read_shipped(port, plane.certificates.authority.certificate_pem)
        for hook in made["webhooks"]:
            hook["failurePolicy"] = policies.get(hook["name"].partition(".")[0], hook["failurePolicy"])
        name = made["metadata"]["name"]
        await plane.api.create(made)

    yield put
    if name:
        await plane.api.delete(CONFIGURATION, name)


def read_deployment() -> dict:
    documents = yaml.safe_load_all((sites.BASE / "webhook.yaml").read_text())
    return next(document for document in documents if document["kind"] == "Deployment")


async def test_03_only_opted_in_pods_need_a_webhook(plane, namespace, site, shipped):
    await site.policy(POLICY)
    await site.start_webhook()
    port = site.webhook.port
    await shipped(port)

    async def is_injected() -> bool:
        return is_whole(await plane.api.create(pod(fabric="ib"), namespace=namespace, dry_run=True))

    await waiting.wait(is_injected, describe="the shipped configuration to be in force")
    await site.webhook.stop()
    message = await plane.api.find_rejection(pod(fabric="ib"), namespace)
    assert 'failed calling webhook "pods.railwright.io"' in message, message
    job = manifests.workload("Job", pod())
    job["metadata"]["labels"] = {FABRIC: "ib"}
    assert 'failed calling webhook "workloads.railwright.io"' in await plane.api.find_rejection(job, namespace)
    ours = read_deployment()
    replica = {"apiVersion": "v1", "kind": "Pod", **ours["spec"]["template"]}
    replica["metadata"] = {**replica["metadata"], "name": "webhook-0", "namespace": sites.NAMESPACE}
    replica["spec"].pop("serviceAccountName", None)  # its account is not what this is about
    template_alone = manifests.workload("Deployment", pod(fabric="ib"))
    del template_alone["metadata"]["labels"]
    unaffected = {
        "a pod without the label": (namespace, pod()),
        "a pod that says none": (namespace, pod(fabric="none")),
        "kube-system": ("kube-system", pod(fabric="ib")),
        "our own namespace": (sites.NAMESPACE, pod(fabric="ib")),
        "our own Deployment": (sites.NAMESPACE, ours),
        "a pod of it": (sites.NAMESPACE, replica),
        "a workload whose template alone has the label": (namespace, template_alone),
    }
    for name, (where, tree) in unaffected.items():
        assert await plane.api.find_rejection(tree, where) == "", name
    await site.start_webhook(f"--listen=127.0.0.1:{port}")
    await waiting.wait(is_injected, describe="an opted-in pod to be injected again")


def count_failed_open(metrics: str) -> float:
    lines = (line for line in metrics.splitlines() if line.startswith("apiserver_admission_webhook_fail_open_count{"))
    return sum(float(line.rpartition(" ")[2]) for line in lines if 'name="pods.railwright.io"' in line)


async def test_04_pods_that_are_admitted_without_an_unavailable_webhook_are_counted(plane, namespace, shipped):
    await guard.put(plane.api, namespace)
    before = count_failed_open(await plane.api.request("GET", "/metrics"))
    await shipped(ports.free(), pods="Ignore")

    async def has_failed_open() -> bool:
        message = await plane.api.find_rejection(pod(fabric="ib"), namespace)
        assert "railwright has not injected" in message, "called or not, it does not pass"
        return count_failed_open(await plane.api.request("GET", "/metrics")) > before

    await waiting.wait(has_failed_open, describe="the API server to call the dead webhook and go on without it")
    await plane.api.patch("Namespace", namespace, {"metadata": {"labels": {"railwright.io/uninjected": "warn"}}})

    async def is_warned() -> bool:
        assert not await plane.api.find_rejection(pod(fabric="ib"), namespace)
        return any("railwright has not injected" in warning for warning in plane.api.warnings)

    await waiting.wait(is_warned, describe="a pod to pass with a warning")
    assert not is_whole(await plane.api.create(pod("slipped", "ib"), namespace=namespace))
    texts = {json.dumps(event): event for event in audit_log.read(plane.parts.audit_log)}
    [slipped] = [event for text, event in texts.items() if '"slipped"' in text and namespace in text]
    annotations = slipped["annotations"]
    assert any("failed-open" in key for key in annotations), annotations
    await guard.remove(plane.api, namespace)


async def wait_for_pods(plane, namespace: str, count: int) -> list[dict]:
    """Wait until a namespace has `count` pods, and return them."""

    async def list_enough() -> list[dict]:
        pods = await plane.api.list("Pod", namespace)
        assert len(pods) >= count, f"{len(pods)} pods"
        return pods

    return await waiting.wait(list_enough, describe=f"{count} pods", seconds=60)


async def test_55_pods_are_injected_or_rejected_while_their_namespace_opts_in(plane, namespace, site, shipped):
    await guard.put(plane.api, namespace)
    await site.policy(POLICY)
    await site.start_webhook()
    await shipped(site.webhook.port)

    async def set_label(value: str | None) -> None:
        await plane.api.patch("Namespace", namespace, {"metadata": {"labels": {FABRIC: value}}})

    async def wait_until_settled(*, opted_in: bool) -> None:
        """Wait until the namespace's label has an effect on new pods."""

        async def is_settled() -> bool:
            if (message := await plane.api.find_rejection(pod("probe"), namespace)) or not opted_in:
                assert not message, message
            return is_whole(await plane.api.create(pod("probe"), namespace=namespace, dry_run=True)) is opted_in

        await waiting.wait(is_settled, describe=f"the namespace to be opted {'in' if opted_in else 'out'}")

    for opted_in in (True, False):
        job = manifests.workload("Job", pod(), name="train", replicas=30, completions=1000)
        job = await plane.api.create(job, namespace=namespace)
        await wait_for_pods(plane, namespace, 1)
        await set_label("ib" if opted_in else None)
        await wait_until_settled(opted_in=opted_in)
        await plane.api.patch("batch/v1/Job", "train", {"spec": {"parallelism": 40}}, namespace)
        pods = await wait_for_pods(plane, namespace, 40)
        counts = [sum(is_whole(pod, job["spec"]["template"]) is state for pod in pods) for state in (True, False)]
        assert counts[0] >= 10 if opted_in else counts[1] >= 10, counts
        await plane.api.delete_all("batch/v1/Job", namespace)
        await plane.api.delete_all("Pod", namespace, grace=0)
