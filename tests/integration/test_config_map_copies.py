"""Copies of ConfigMaps on the real API server, with no rights but those that the chart gives for them."""

import pytest
import pytest_asyncio
import yaml
from plane import audit_log, conditions, manifests, releases, waiting
from plane import site as sites

SOURCE, COPY = "oci-nccl-parameters-bm-gpu-h100-8", "railwright-oci-nccl-parameters-bm-gpu-h100-8"
MOUNT = {"name": SOURCE, "namespace": "default", "key": "nccl.conf", "mountPath": "/etc/nccl.conf"}
FABRIC = manifests.fabric([{"name": "rail0", "device": "mlx5_0"}], transport="roce", mounts={"configMaps": [MOUNT]})
POLICY = manifests.policy({"oci": FABRIC})
ROLES = sites.BASE / "webhook-rbac.yaml"


@pytest.fixture(autouse=True)
def other_roles(plane):
    """Tell the test of the rights in use that the roles of these tests are not those of `manifests/base`."""
    began = audit_log.format_now()
    yield
    plane.without_roles.append((began, audit_log.format_now()))


@pytest_asyncio.fixture(loop_scope="session")
async def allowed(plane, tmp_path):
    """An installation whose webhook has the rights of the chart for the source."""
    template = "--show-only=templates/webhook-rbac.yaml"
    value = f"--set=webhook.copiedConfigMaps={{default/{SOURCE}}}"
    text = await releases.Helm(tmp_path)("template", releases.RELEASE, str(releases.CHART), template, value)
    roles = [tree for tree in yaml.safe_load_all(text) if tree]
    async with sites.running(plane) as running:
        for tree in roles:
            await plane.api.put(tree)
        yield running
    for tree in roles:
        if tree["metadata"].get("namespace") == "default":
            await plane.api.delete(tree["kind"], tree["metadata"]["name"], "default")
    for tree in yaml.safe_load_all(ROLES.read_text()):
        await plane.api.put(tree)


@pytest_asyncio.fixture(loop_scope="session")
async def source(plane):
    yield await put_source(plane, "NCCL_IB_TC=41")
    await plane.api.delete("ConfigMap", SOURCE, "default")


async def put_source(plane, text):
    await plane.api.put(manifests.build("ConfigMap", SOURCE, {"namespace": "default"}, data={"nccl.conf": text}))


async def create(plane, namespace, name, **more):
    container = {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
    tree = manifests.pod(name, "oci", container=container, schedulerName="nobody")
    return await plane.api.create(tree, namespace=namespace, **more)


async def test_a_pod_gets_a_copy_that_follows_its_source_and_goes_with_it(plane, namespace, allowed, source):
    await allowed.install(POLICY, namespace, options=("--unused-template-seconds=1",))
    pod = await create(plane, namespace, "dry", dry_run=True)
    assert COPY in [volume.get("configMap", {}).get("name") for volume in pod["spec"]["volumes"]]
    assert await plane.api.list("ConfigMap", fields=f"metadata.name={COPY}") == []

    await create(plane, namespace, "rank")
    marks = {
        "labels": {"app.kubernetes.io/managed-by": "railwright"},
        "annotations": {"railwright.io/copied-from": f"default/{SOURCE}"},
    }
    await conditions.has(plane.api, "ConfigMap", COPY, namespace, data={"nccl.conf": "NCCL_IB_TC=41"}, metadata=marks)
    await put_source(plane, "NCCL_IB_TC=105")
    await conditions.has(plane.api, "ConfigMap", COPY, namespace, data={"nccl.conf": "NCCL_IB_TC=105"})
    await plane.api.delete("Pod", "rank", namespace, grace=0)
    await conditions.gone(plane.api, "ConfigMap", COPY, namespace)

    theirs = manifests.build("ConfigMap", COPY, {"namespace": namespace}, data={"nccl.conf": "theirs"})
    await plane.api.create(theirs)

    async def is_warned():
        await create(plane, namespace, "late", dry_run=True)
        return any("ConfigMapOfOthers" in warning for warning in plane.api.warnings)

    await waiting.wait(is_warned, seconds=60, describe="a warning about the ConfigMap of somebody else")
    assert (await plane.api.get("ConfigMap", COPY, namespace))["data"] == {"nccl.conf": "theirs"}


async def test_without_the_rights_the_pod_and_its_author_read_why(plane, namespace, source):
    async with sites.running(plane) as installed:
        await installed.install(POLICY, namespace)
        await create(plane, namespace, "rank")
        await conditions.event(plane.api, namespace, "ConfigMapNotCopied", "webhook.copiedConfigMaps of the chart")
