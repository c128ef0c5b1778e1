"""`railwright check` on a real installation: whole, then broken where only a real API server shows it.

The manifests are applied as they are. No container runs here: a webhook of the test's own answers under the Secret's
certificate, by URL, and the test stands in for the extender's pod (its Lease and EndpointSlice).
"""

import asyncio
import base64
import contextlib
import datetime as dt
import io
import json
import pathlib

import devices
import pytest
import pytest_asyncio
import yaml
from plane import binaries, ports, site, waiting
from plane import nodes as plane_nodes

from certs import pki
from railwright.cli.__main__ import main
from railwright.fabric import names

ROOT = pathlib.Path(__file__).parents[2]
NAMESPACE, NETWORKS, LEAF = names.NAMESPACE, "check-networks", "fabric.topograph.run/tier-0"
MUTATING, VALIDATING = "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"
BINDING = "ValidatingAdmissionPolicyBinding"
NAD = "NetworkAttachmentDefinition"
UNTOUCHED_BY_US = {"certs-rotation"}  # warned about where nothing renews certificates
POLICY = f"""
apiVersion: railwright.io/v1alpha1
kind: FabricPolicy
defaultFabric: roce
fabrics:
  roce:
    transport: roce
    rails:
    - {{name: rail0, network: {NETWORKS}/rail0, resource: nvidia.com/mlx5_0, device: mlx5_0}}
    - {{name: rail1, network: {NETWORKS}/rail1, resource: nvidia.com/mlx5_1, device: mlx5_1}}
    placement: {{preset: topograph}}
"""


class Installed:
    """The installation, and the ways in which a test breaks and repairs it."""

    def __init__(self, plane):
        self.plane, self.api = plane, plane.api
        self.nodes = plane_nodes.Nodes(plane.api)

    async def install(self, folder):
        await asyncio.gather(*(self.nodes.make(f"check-{n}", labels={LEAF: "leaf-0"}) for n in range(2)))
        await self.plane.kubectl("apply", "-k", str(site.BASE))
        code, said, _ = await run("certs", "issue", "--secrets", f"--kubeconfig={self.plane.kubeconfig}")
        assert code == 0, said
        await site.Site(self.plane).policy(POLICY)
        await self.plane.make_namespace(NETWORKS, {names.FABRIC: "default"})
        for rail in range(2):
            await self.api.create(network(rail))
        await self._schedulers()
        await self._serve(folder)
        await asyncio.gather(*(self.settled(deployment) for deployment in await self.api.list("Deployment", NAMESPACE)))

    async def settled(self, deployment):
        """Its pods run, as far as kwok lets them."""
        name, replicas = deployment["metadata"]["name"], deployment["spec"]["replicas"]

        async def ready():
            status = (await self.api.get("Deployment", name, NAMESPACE))["status"]
            assert status.get("readyReplicas", 0) == replicas, status
            return True

        await waiting.wait(ready, describe=f"Deployment {name} to be ready")

    async def remove(self):
        """All but the namespace, which other tests use too and which would take its time."""
        rendered = yaml.safe_load_all(await self.plane.kubectl("kustomize", str(site.BASE)))
        manifests = yaml.safe_dump_all(tree for tree in rendered if tree["kind"] != "Namespace")
        await self.plane.kubectl(
            "delete", "-f", "-", "--ignore-not-found", "--wait=false", stdin=manifests, check=False
        )
        await self.api.delete("ConfigMap", names.POLICY_CONFIGMAP, NAMESPACE)
        for kind in ("Secret", "Lease", "EndpointSlice"):
            await self.api.delete_all(kind, NAMESPACE)

        async def is_empty():
            await self.api.delete_all("Pod", NAMESPACE, grace=0)
            assert not await self.api.list("Deployment", NAMESPACE)
            assert not await self.api.list("Pod", NAMESPACE)
            return True

        await waiting.wait(is_empty, describe=f"namespace {NAMESPACE} to be empty")
        await self.api.delete("ConfigMap", "volcano-scheduler-configmap", "volcano-system")
        await self.plane.remove_namespace(NETWORKS)
        await self.nodes.remove()

    async def _schedulers(self):
        text = (ROOT / "manifests" / "examples" / "schedulers" / "volcano-scheduler.yaml").read_text()
        metadata = {"name": "volcano-scheduler-configmap", "namespace": "volcano-system"}
        await self.api.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"volcano-scheduler.conf": text}}
        )
        spec = {"holderIdentity": "the-test", "leaseDurationSeconds": 3600, "renewTime": stamp(dt.timedelta())}
        labels = {"kubernetes.io/service-name": "railwright-extender"}
        place = {"name": "railwright-extender-test", "namespace": NAMESPACE, "labels": labels}
        slice_ = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": place,
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.9.9.9"]}],
        }
        await asyncio.gather(
            self.api.patch("Lease", "railwright-extender", {"spec": spec}, NAMESPACE), self.api.create(slice_)
        )

    async def _serve(self, folder):
        data = (await self.api.get("Secret", "railwright-webhook-tls", NAMESPACE))["data"]
        for part in ("tls.crt", "tls.key"):
            (folder / part).write_bytes(base64.b64decode(data[part]))
        account = site.Site(self.plane).kubeconfig("webhook")
        pair = (f"--tls-cert={folder / 'tls.crt'}", f"--tls-key={folder / 'tls.key'}")
        server = await self.plane.serve("webhook", *pair, account, "--drain-seconds=0.2")
        await server.ready()
        for kind in (MUTATING, VALIDATING):
            hooks = (await self.api.get(kind, "railwright"))["webhooks"]
            paths = [hook["clientConfig"]["service"]["path"] for hook in hooks]
            moved = [
                operation
                for index, path in enumerate(paths)
                for operation in (
                    {"op": "remove", "path": f"/webhooks/{index}/clientConfig/service"},
                    {"op": "add", "path": f"/webhooks/{index}/clientConfig/url",
                     "value": f"https://127.0.0.1:{server.port}{path}"},
                )
            ]  # fmt: skip
            await self.api.patch(kind, "railwright", moved)

    async def check(self, *options):
        """Return the exit code and the results by row."""
        code, out, _ = await run("check", f"--kubeconfig={self.plane.kubeconfig}", "-o", "json", *options)
        return code, json.loads(out)

    async def until(self, expected):
        """Wait until exactly the expected rows report problems, because the API server sees a change with a delay."""

        async def compare_rows():
            code, answer = await self.check()
            problems = [row for row in answer["checks"] if row["state"] in ("warn", "fail")]
            rows = {problem["check"] for problem in problems} - UNTOUCHED_BY_US
            assert rows == expected, [(problem["check"], problem["detail"]) for problem in problems]
            assert code == (1 if any(problem["state"] == "fail" for problem in problems) else 0)
            return answer

        return await waiting.wait(compare_rows, seconds=20, describe=f"the rows {expected} to be told")


async def run(*arguments):
    """Return (exit code, stdout, stderr). The command runs in a thread, because it has an event loop of its own."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = await asyncio.to_thread(main, arguments)
    return code, out.getvalue(), err.getvalue()


def stamp(ago):
    return f"{dt.datetime.now(dt.UTC) - ago:%Y-%m-%dT%H:%M:%S.%fZ}"


def network(rail):
    annotations = {names.NAD_RESOURCE_NAME: f"nvidia.com/mlx5_{rail}"}
    config = json.dumps({"cniVersion": "0.3.1", "type": "macvlan", "master": f"eth{rail}"})
    metadata = {"name": f"rail{rail}", "namespace": NETWORKS, "annotations": annotations}
    return {"apiVersion": "k8s.cni.cncf.io/v1", "kind": NAD, "metadata": metadata, "spec": {"config": config}}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def installed(plane, tmp_path_factory):
    installation = Installed(plane)
    try:
        await installation.install(tmp_path_factory.mktemp("check"))
        await installation.until(set())
        yield installation
    finally:
        for server in plane.servers:
            await server.stop()
        plane.servers.clear()
        await installation.remove()


async def test_a_healthy_installation_passes(installed):
    answer = await installed.until(set())
    assert answer["ok"] is True
    states = {row["check"]: row["state"] for row in answer["checks"]}
    examined = {"dry-run", "policy-in-force", "ca-bundle", "webhook-endpoints", "volcano-configuration", "uninjected"}
    assert {states[check] for check in examined} == {"ok"}
    skipped = {check for check, state in states.items() if state == "skip"}
    not_here = {"kube-scheduler-configuration", "node-shapes", "hypernodes", "numa-topologies", "extender-callers"}
    claims = {
        "claim-expressions",
        "claim-classes",
        "claim-devices",
        "claim-pairs",
        "claim-schedulers",
        "claim-injector",
        "claim-drivers",
    }
    no_fabric_of_claims = {*claims, "extended-resources"}
    # the tag `latest` of manifests/base names no version
    assert skipped <= {*not_here, *no_fabric_of_claims, "images"}, skipped


def change(kind, name, patch, namespace=None, *, subresource=""):
    """Break an object by a patch; the repair writes the previous object."""

    @contextlib.asynccontextmanager
    async def broken(it):
        before = await it.api.get(kind, name, namespace)
        patched = patch(before) if callable(patch) else patch
        await it.api.patch(kind, name, patched, namespace, subresource=subresource)
        try:
            yield
        finally:
            if subresource:
                await it.api.patch(kind, name, {subresource: before[subresource]}, namespace, subresource=subresource)
            else:
                now = await it.api.get(kind, name, namespace)
                before["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"]
                await it.api.replace(before)

    return broken


def delete(kind, name, namespace=None):
    """Return a break by deletion."""

    @contextlib.asynccontextmanager
    async def broken(it):
        before = await it.api.get(kind, name, namespace)
        await it.api.delete(kind, name, namespace)
        try:
            yield
        finally:
            for field in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
                before["metadata"].pop(field, None)
            await it.api.create(before)

    return broken


def entry(name, path, value, kind=MUTATING):
    """Return a break of one field of a webhook entry."""

    def patch(configuration):
        index = next(n for n, hook in enumerate(configuration["webhooks"]) if hook["name"] == name)
        old = configuration["webhooks"][index]
        new = value(old) if callable(value) else value
        return [{"op": "replace", "path": f"/webhooks/{index}/{path}", "value": new}]

    return change(kind, "railwright", patch)


@contextlib.asynccontextmanager
async def rail_dead(it):
    await it.nodes.offer("check-0", {"nvidia.com/mlx5_0": 0})
    try:
        yield
    finally:
        await it.nodes.offer("check-0", {"nvidia.com/mlx5_0": 100})


@contextlib.asynccontextmanager
async def bare_pod(it):
    container = {"name": "c", "image": "i"}
    metadata = {"name": "bare", "labels": {names.FABRIC: "roce"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    await it.api.create(pod, namespace=NETWORKS)
    await it.api.patch("Pod", "bare", {"metadata": {"annotations": {names.INJECTION: None}}}, NETWORKS)
    try:
        yield
    finally:
        await it.api.delete("Pod", "bare", NETWORKS, grace=0)


def close_port(hook):
    url = hook["clientConfig"]["url"]
    return f"https://127.0.0.1:{ports.free()}/{url.rpartition(':')[2].partition('/')[2]}"


NOBODY = base64.b64encode(
    pki.issue_ca("nobody", now=dt.datetime.now(dt.UTC), lifetime=dt.timedelta(days=9)).certificate_pem
).decode()
# Each row is broken in tests/support/broken_installations.py. These are what only a real API server can show: a dry run
# that it rejects, an authority that it does not trust, and what kubelet and other writers change beside us.
BREAKS = {  # what is broken: how, the one row that says so, and words of it
    "nobody answers": (entry("pods.railwright.io", "clientConfig/url", close_port), "dry-run", "connection refused"),
    "another authority": (
        entry("bindings.railwright.io", "clientConfig/caBundle", NOBODY),
        "ca-bundle",
        "bindings.railwright.io",
    ),
    "no binding": (delete("ClusterRoleBinding", "railwright-extender"), "server-permissions", "list nodes -A"),
    "a rail dead": (rail_dead, "rail-dead", "check-0: nvidia.com/mlx5_0 0 of 100"),
    "a pod without": (bare_pod, "uninjected", f"{NETWORKS}/bare"),
}


@pytest.mark.parametrize("name", BREAKS)
async def test_a_break_fails_its_row_with_a_hint(installed, name):
    broken, row, words = BREAKS[name]
    async with broken(installed):
        answer = await installed.until({row})
    (problem,) = [
        result for result in answer["checks"] if result["check"] == row and result["state"] in ("warn", "fail")
    ]
    assert words in problem["detail"]
    assert problem["hint"]


@contextlib.asynccontextmanager
async def rail_by_slices(it, resource):
    """Have slices and a DeviceClass offer what device plugins reported on both nodes."""
    slices = [tree for name in it.nodes.names for tree in devices.build_slices(name)]
    trees = [devices.build_class("mlx", 'device.driver == "dra.net"', resource), *slices]
    removed = {"status": {part: {resource: None} for part in ("capacity", "allocatable")}}
    await asyncio.gather(*(it.api.patch("Node", name, removed, subresource="status") for name in it.nodes.names))
    await asyncio.gather(*(it.api.create(tree) for tree in trees))
    try:
        yield
    finally:
        await asyncio.gather(
            *(it.api.delete(f"{tree['apiVersion']}/{tree['kind']}", tree["metadata"]["name"]) for tree in trees),
            *(it.nodes.resize(name, {resource: plane_nodes.RAILS[resource]}) for name in it.nodes.names),
        )


@pytest.mark.skipif(
    binaries.release().kubernetes.startswith("1.34."), reason="DRAExtendedResource is alpha in 1.34, and off"
)
async def test_a_rail_of_a_device_class_is_a_warning_beside_volcano(installed):
    async with rail_by_slices(installed, "nvidia.com/mlx5_0"):
        answer = await installed.until({"extended-resources"})
    (row,) = [row for row in answer["checks"] if row["check"] == "extended-resources"]
    assert (row["state"], "DeviceClass mlx maps nvidia.com/mlx5_0" in row["detail"]) == ("warn", True), row
    await installed.until(set())


async def test_wait_ends_in_time_with_the_failure(installed, tmp_path):
    picture = tmp_path / "check.svg"
    async with delete(NAD, "rail1", NETWORKS)(installed):
        code, answer = await installed.check("--wait", "0.2", "--svg", str(picture))
    assert code == 1
    assert "check-networks/rail1" in picture.read_text()
    assert "rail-networks" in {result["check"] for result in answer["checks"] if result["state"] == "fail"}


async def test_checks_of_unreadable_objects_are_skipped(installed):
    plane = installed.plane
    kubeconfig = plane.certificates.kubeconfig("reader", plane.parts.server, "reader", ("system:authenticated",))
    code, out, _ = await run("check", f"--kubeconfig={kubeconfig}", "-o", "json")
    results = {result["check"]: result for result in json.loads(out)["checks"]}
    assert code == 2, "what cannot be seen is neither a failure nor fine"
    assert results["caller-permissions"]["state"] == "warn"
    assert "list deployments.apps -n railwright-system" in results["webhook-replicas"]["detail"]
    assert results["dry-run"]["state"] == "skip"


async def test_pre_checks_the_cluster_and_the_rights_to_install(installed):
    plane = installed.plane
    code, answer = await installed.check("--pre")
    assert code == 0
    states = {result["check"]: result["state"] for result in answer["checks"]}
    assert states["install-permissions"] == states["device-pools"] == states["volcano"] == "ok"
    assert "webhook-deployment" not in states
    kubeconfig = plane.certificates.kubeconfig("reader", plane.parts.server, "reader", ("system:authenticated",))
    code, out, _ = await run("check", "--pre", f"--kubeconfig={kubeconfig}", "-o", "json")
    results = {result["check"]: result for result in json.loads(out)["checks"]}
    assert code == 1
    assert "create namespaces" in results["install-permissions"]["detail"]
