"""Pod Security Standards, checked by a real API server after injection."""

import json
import uuid

import pytest
import pytest_asyncio
from plane import api, manifests, registration

LABEL = "railwright.io/fabric"
INJECTION = "railwright.io/injection"
LEVEL = "pod-security.kubernetes.io/enforce"
ALL = {
    "security": {"capabilities": ["IPC_LOCK", "NET_BIND_SERVICE"], "privileged": True},
    "mounts": {"sharedMemory": "1Gi", "devInfiniband": True},
}
POLICY = manifests.policy(
    {
        "all": manifests.fabric([{"name": "rail0", "resource": "x.y/hca", "device": "mlx5_0"}], **ALL),
        "bare": manifests.fabric(
            [{"name": "rail0", "device": "vmw0"}], transport="pvrdma", mounts={"devInfiniband": True}
        ),
    }
)


def pod(label: str, *, context: dict | None = None) -> dict:
    container = {} if context is None else {"securityContext": context}
    return manifests.pod("p", label, container=container, schedulerName="nobody")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def namespaces(plane):
    """Yield a namespace for each level."""
    made = {level: f"level-{level}-{uuid.uuid4().hex[:6]}" for level in ("baseline", "restricted")}
    for level, name in made.items():
        await plane.make_namespace(name, {LEVEL: level})
    yield made
    for name in made.values():
        await plane.remove_namespace(name)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def levels(namespaces, module_site):
    """Register our webhook in each of the namespaces; unregister it before they are deleted."""
    await module_site.install(POLICY, *namespaces.values())
    yield namespaces
    await module_site.unregister()


@pytest.mark.parametrize("level", ["baseline", "restricted"])
async def test_injected_pods_pass_the_pod_security_level_of_the_namespace(plane, levels, level):
    context = registration.STRICT if level == "restricted" else {"runAsNonRoot": True}
    created = await plane.api.create(pod("all", context=context), namespace=levels[level], dry_run=True)
    container = created["spec"]["containers"][0]
    assert container["securityContext"]["capabilities"]["add"] == ["NET_BIND_SERVICE"]
    assert not container["securityContext"].get("privileged")
    assert not any("hostPath" in volume for volume in created["spec"]["volumes"])
    record = json.loads(created["metadata"]["annotations"][INJECTION])
    assert {"security.IPC_LOCK", "security.privileged", "mounts./dev/infiniband"} <= record["skipped"].keys()
    assert {"mounts./dev/shm", "devices"} <= set(record["added"])
    # The level is in force: what we left out would have been refused.
    for forbidden in (
        {"capabilities": {"add": ["IPC_LOCK"], "drop": ["ALL"]}},
        {"privileged": True, "allowPrivilegeEscalation": True},
    ):
        with pytest.raises(api.ApiError, match="violates PodSecurity"):
            await plane.api.create(pod("", context={**context, **forbidden}), namespace=levels[level], dry_run=True)


@pytest.mark.parametrize("level", ["baseline", "restricted"])
async def test_a_forbidden_host_path_is_refused_with_the_reason(plane, levels, level):
    with pytest.raises(api.ApiError, match="hostPath /dev/infiniband, and nothing else gives the pod the devices"):
        await plane.api.create(pod("bare", context=registration.STRICT), namespace=levels[level], dry_run=True)
