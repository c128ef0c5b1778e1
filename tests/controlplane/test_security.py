"""Pod-security levels and new namespaces, judged by a real API server after us."""

import asyncio
import base64
import copy
import json
import uuid

import pytest
import pytest_asyncio
from plane import api, registration, waiting

LABEL = "railwright.io/fabric"
INJECTION = "railwright.io/injection"
LEVEL = "pod-security.kubernetes.io/enforce"
POLICY = """
apiVersion: railwright.io/v1alpha1
kind: FabricPolicy
fabrics:
  all:
    transport: infiniband
    rails: [{name: rail0, resource: x.y/hca, device: mlx5_0}]
    security: {capabilities: [IPC_LOCK, NET_BIND_SERVICE], privileged: true}
    mounts: {sharedMemory: 1Gi, devInfiniband: true}
    nccl: {delivery: both}
  bare:
    transport: pvrdma
    rails: [{name: rail0, device: vmw0}]
    mounts: {devInfiniband: true}
"""


def pod(label: str | None, *, name: str = "p", context: dict | None = None) -> dict:
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    if context is not None:
        container["securityContext"] = copy.deepcopy(context)
    labels = {LABEL: label} if label else {}
    spec = {"containers": [container], "schedulerName": "nobody"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def namespaces(plane):
    """Yield a namespace a level."""
    made = {level: f"level-{level}-{uuid.uuid4().hex[:6]}" for level in ("privileged", "baseline", "restricted")}
    for level, name in made.items():
        await plane.make_namespace(name, {LEVEL: level})
    yield made
    for name in made.values():
        await plane.remove_namespace(name)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def levels(namespaces, module_site):
    """Our webhook in force in each of them; it goes before they do."""
    await module_site.install(POLICY, *namespaces.values())
    yield namespaces
    await module_site.unregister()


@pytest.mark.parametrize(
    ("level", "added"),
    [("baseline", ["NET_BIND_SERVICE"]), ("restricted", ["NET_BIND_SERVICE"])],
)
async def test_injected_pods_pass_the_pod_security_level_of_the_namespace(plane, levels, level, added):
    context = registration.STRICT if level == "restricted" else {"runAsNonRoot": True}
    created = await plane.api.create(pod("all", context=context), namespace=levels[level], dry_run=True)
    container = created["spec"]["containers"][0]
    assert container["securityContext"]["capabilities"]["add"] == added
    assert not container["securityContext"].get("privileged")
    assert not any("hostPath" in volume for volume in created["spec"]["volumes"])
    record = json.loads(created["metadata"]["annotations"][INJECTION])
    assert {"security.IPC_LOCK", "security.privileged", "mounts./dev/infiniband"} <= record["skipped"].keys()
    assert {"mounts./dev/shm", "nccl.conf", "devices"} <= set(record["added"])
    # The level is in force: what we left out would have been refused.
    for forbidden in (
        {"capabilities": {"add": ["IPC_LOCK"], "drop": ["ALL"]}},
        {"privileged": True, "allowPrivilegeEscalation": True},
    ):
        with pytest.raises(api.ApiError, match="violates PodSecurity"):
            await plane.api.create(pod(None, context={**context, **forbidden}), namespace=levels[level], dry_run=True)


async def test_where_nothing_is_forbidden_all_of_it_is_added(plane, levels):
    created = await plane.api.create(pod("all"), namespace=levels["privileged"], dry_run=True)
    context = created["spec"]["containers"][0]["securityContext"]
    assert (context["capabilities"]["add"], context["privileged"]) == (["IPC_LOCK", "NET_BIND_SERVICE"], True)
    assert [volume["hostPath"]["path"] for volume in created["spec"]["volumes"] if "hostPath" in volume] == [
        "/dev/infiniband"
    ]


@pytest.mark.parametrize("level", ["baseline", "restricted"])
async def test_a_forbidden_host_path_is_refused_with_the_reason(plane, levels, level):
    with pytest.raises(api.ApiError, match="hostPath /dev/infiniband is the only way to the devices of fabric bare"):
        await plane.api.create(pod("bare", context=registration.STRICT), namespace=levels[level], dry_run=True)


async def test_a_pod_of_a_new_namespace_is_injected_or_retried(plane, module_site):
    await module_site.install(POLICY)
    await _register_namespaced(plane, module_site.webhook.port)
    made = [f"new-{uuid.uuid4().hex[:8]}" for _ in range(12)]

    async def first_pod(namespace: str) -> dict:
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": {LABEL: "all"}}}
        await plane.api.create(document)

        async def create_pod():
            try:
                return await plane.api.create(pod(None), namespace=namespace, dry_run=True)
            except api.ApiError as error:
                message = error.message
                assert "try again" in message or "serviceaccount" in message.lower() or "service account" in message, (
                    message
                )
                return None

        return await waiting.wait(create_pod, describe=f"a pod in {namespace}")

    try:
        for admitted in await asyncio.gather(*map(first_pod, made)):
            assert INJECTION in admitted["metadata"]["annotations"], "no pod of an opted-in namespace passes as it was"
    finally:
        await plane.api.delete("MutatingWebhookConfiguration", "railwright-namespaced")
        for name in made:
            await plane.api.delete("Namespace", name)


async def _register_namespaced(plane, port: int) -> None:
    """Register the second entry of manifests/base/admission.yaml by URL, and wait until a pod is injected."""
    authority = base64.b64encode(plane.certificates.authority.certificate_pem).decode()
    webhook = {
        "name": "namespaced-pods.railwright.io",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/mutate/pods", "caBundle": authority},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "namespaceSelector": {"matchExpressions": [{"key": LABEL, "operator": "Exists"}]},
        "objectSelector": {"matchExpressions": [{"key": LABEL, "operator": "DoesNotExist"}]},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
    }
    await plane.api.create(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "railwright-namespaced"},
            "webhooks": [webhook],
        }
    )
    probe = f"probe-{uuid.uuid4().hex[:6]}"
    await plane.make_namespace(probe, {LABEL: "all"})

    async def in_force():
        created = await plane.api.create(pod(None), namespace=probe, dry_run=True)
        return INJECTION in created["metadata"].get("annotations", {})

    await waiting.wait(in_force, describe="the webhook of opted-in namespaces to be called")
    await plane.remove_namespace(probe)
