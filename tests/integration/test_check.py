"""`railwright check` on a real installation: without defects, then with some that need a real API server.

The manifests are applied unchanged. No container runs: the test serves a webhook with the Secret's certificate, called
by URL.
"""

import asyncio
import contextlib
import io
import json
import pathlib

import comparison
import pytest
import pytest_asyncio
import simulated_clouds
from plane import binaries, conditions, manifests, ports, releases, site, stand_ins, waiting
from plane import nodes as plane_nodes

from railwright.cli.__main__ import main
from railwright.cli.clouds import first_policies
from railwright.cluster import policies
from railwright.fabric import names

ROOT = pathlib.Path(__file__).parents[2]
NAMESPACE, NETWORKS, LEAF = names.NAMESPACE, "check-networks", "fabric.topograph.run/tier-0"
MUTATING, NAD = "MutatingWebhookConfiguration", "NetworkAttachmentDefinition"
POLICY = manifests.policy(
    {
        "roce": manifests.fabric(
            [
                {"name": f"rail{k}", "network": f"{NETWORKS}/rail{k}", "resource": resource, "device": f"mlx5_{k}"}
                for k, resource in enumerate(manifests.RAILS)
            ],
            transport="roce",
            placement={"preset": "topograph"},
        )
    },
    defaultFabric="roce",
)

API_OF_KIND = {
    kind: {"apiVersion": path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0], "kind": kind.value}
    for kind, (path, _) in first_policies.VIEWS.items()
}
SLICES = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
SHAPES = {shape.profile.name: shape for shape in reversed(simulated_clouds.SHAPES)}  # the first shape of each profile
_CLAIMS = pytest.mark.skipif(not binaries.release().has_claims, reason="this release serves no ResourceSlices")
# with networks and device plugins; with slices and classes of devices
PROFILES = ("openshift-ai", pytest.param("eks-efa-claims", marks=_CLAIMS))


class Installed:
    """An installation, with functions that break and repair it."""

    def __init__(self, plane):
        self.plane, self.api, self.site = plane, plane.api, site.Site(plane)
        self.nodes = plane_nodes.Nodes(plane.api)

    async def install(self, folder):
        await asyncio.gather(*(self.nodes.make(f"check-{n}", labels={LEAF: "leaf-0"}) for n in range(2)))
        await self.plane.kubectl("apply", "-k", str(site.BASE))
        await self.plane.kubectl("apply", "-f", str(releases.CLAIMS))  # for the profile with claims
        code, said, _ = await run("certs", "rotate", f"--kubeconfig={self.plane.kubeconfig}")
        assert code == 0, said
        await self.site.policy(POLICY)
        await self.plane.make_namespace(NETWORKS, {names.FABRIC: "default"})
        for rail in range(2):
            await self.api.create(network(rail), namespace=NETWORKS)
        await self._schedulers()
        self.site.webhook = await stand_ins.StandIns(self.plane, folder).serve_webhook()
        await asyncio.gather(*(self.settled(deployment) for deployment in await self.api.list("Deployment", NAMESPACE)))

    async def settled(self, deployment):
        """Wait until its pods run, on nodes of kwok."""
        name, replicas = deployment["metadata"]["name"], deployment["spec"]["replicas"]
        await conditions.wait_object(self.api, "Deployment", name, NAMESPACE, status={"readyReplicas": replicas})

    async def remove(self):
        await self.api.delete("ConfigMap", names.POLICY_CONFIGMAP, NAMESPACE)
        await releases.clear(self.api)
        await self.api.delete("ConfigMap", "volcano-scheduler-configmap", "volcano-system")
        await self.plane.remove_namespace(NETWORKS)
        await self.nodes.remove()

    async def _schedulers(self):
        text = (ROOT / "manifests" / "examples" / "schedulers" / "volcano-scheduler.yaml").read_text()
        data = {"volcano-scheduler.conf": text}
        configuration = manifests.build("ConfigMap", "volcano-scheduler-configmap", data=data)
        await self.api.create(configuration, namespace="volcano-system")

    async def check(self, *options):
        """Return the exit code and the results by row."""
        code, out, _ = await run("check", f"--kubeconfig={self.plane.kubeconfig}", "-o", "json", *options)
        return code, json.loads(out)

    async def until(self, expected):
        """Wait until exactly the expected rows report problems, because the API server sees a change with a delay."""

        async def compare_rows():
            code, answer = await self.check()
            problems = [row for row in answer["checks"] if row["state"] in ("warn", "fail")]
            rows = {problem["check"] for problem in problems}
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


def network(rail):
    config = json.dumps({"cniVersion": "0.3.1", "type": "macvlan", "master": f"eth{rail}"})
    return manifests.network(f"rail{rail}", f"nvidia.com/mlx5_{rail}") | {"spec": {"config": config}}


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
    examined = {"dry-run", "ca-bundle", "certificates", "replicas", "volcano-configuration", "uninjected"}
    assert {row["state"] for row in answer["checks"] if row["check"] in examined} == {"ok"}
    skipped = {row["check"] for row in answer["checks"] if row["state"] == "skip"}
    # there is no shape, claim or preflight, and the tag `latest` of manifests/base names no version
    assert skipped <= {"node-shapes", "claim-devices", "preflight", "images"}, skipped


def delete(kind, name, namespace=None):
    """Return a function that breaks the installation by a deletion."""

    @contextlib.asynccontextmanager
    async def break_it(it):
        before = await it.api.get(kind, name, namespace)
        await it.api.delete(kind, name, namespace)
        try:
            yield
        finally:
            for field in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
                before["metadata"].pop(field, None)
            await it.api.create(before)

    return break_it


async def test_a_webhook_that_nobody_serves_fails_the_dry_run_alone(installed):
    """Each row is broken in tests/support/broken_installations.py. A rejection comes from a real API server only."""
    before = await installed.api.get(MUTATING, "railwright")
    index = next(n for n, hook in enumerate(before["webhooks"]) if hook["name"] == "pods.railwright.io")
    path = before["webhooks"][index]["clientConfig"]["url"].rpartition(":")[2].partition("/")[2]
    url = f"https://127.0.0.1:{ports.free()}/{path}"
    patch = [{"op": "replace", "path": f"/webhooks/{index}/clientConfig/url", "value": url}]
    await installed.api.patch(MUTATING, "railwright", patch)
    try:
        answer = await installed.until({"dry-run"})
    finally:
        await installed.api.patch(MUTATING, "railwright", {"webhooks": before["webhooks"]})
    (problem,) = [result for result in answer["checks"] if result["hint"]]
    assert "connection refused" in problem["detail"]


@contextlib.asynccontextmanager
async def simulate(it, shape):
    """Create a node of a profile's shape, with its slices, networks and device classes."""
    objects = {}
    clouds = simulated_clouds.build(shape, nodes=1)
    slices = simulated_clouds.build_slices(shape, clouds[first_policies.Kind.NODE])
    for api, trees in [*((API_OF_KIND[kind], trees) for kind, trees in clouds.items()), (SLICES, slices)]:
        for tree in trees:
            key = ("/".join(api.values()), tree["metadata"]["name"], tree["metadata"].get("namespace"))
            objects[key] = {**api, **tree}
    namespaces = {namespace for *_, namespace in objects} - {None, "default"}
    for name in namespaces:
        await it.plane.make_namespace(name)
    try:
        await asyncio.gather(*map(it.api.create, objects.values()))
        yield
    finally:
        await asyncio.gather(*(it.api.delete(*key) for key in objects))
        for name in namespaces:
            await it.plane.remove_namespace(name)


async def assert_job_is_admitted(it, shape):
    """Assert that the API server admits the pods of the profile's job with the expected values."""
    expected = comparison.read_job(shape, {role: item.after for role, item in comparison.preview_job(shape).items()})
    pods = {role: item.pod for role, item in comparison.list_pods(shape, "job.yaml").items()}
    await it.site.install(shape.profile.text)
    admitted = {role: await it.api.create(pod, dry_run=True) for role, pod in pods.items()}
    for pod in admitted.values():  # DefaultTolerationSeconds adds two to every pod
        pod["spec"]["tolerations"] = [row for row in pod["spec"]["tolerations"] if "tolerationSeconds" not in row]
    actual = comparison.read_job(shape, admitted)
    differing = {  # the API server omits what is false
        path: (value, actual.get(path))
        for path, value in expected.items()
        if (value or None) != (actual.get(path) or None)
    }
    assert differing == {}


@pytest.mark.parametrize("name", PROFILES)
async def test_check_passes_with_the_first_policy_of_a_profile(installed, name):
    """For every profile: tests/unit/cli/test_policy_init.py and tests/unit/manifests/test_cloud_profiles.py."""

    async def has_passed():
        code, answer = await installed.check()
        failed = [(row["check"], row["detail"]) for row in answer["checks"] if row["state"] == "fail"]
        assert (code, failed) == (0, [])
        return True

    shape, cluster = SHAPES[name], f"--kubeconfig={installed.plane.kubeconfig}"
    # The nodes of the installation are a second shape, which no profile fits. Volcano's resources are its own.
    volcano = delete("ConfigMap", "volcano-scheduler-configmap", "volcano-system")
    async with volcano(installed), simulate(installed, shape):
        code, text, err = await run("policy", "init", "--from-cluster", cluster)
        assert code == 0, err
        document = policies.read(text).document
        assert shape.fabric in document.fabrics.values()
        assert len(document.fabrics) == 2
        assert "MISSING" not in text
        try:
            await installed.site.install(text)
            await waiting.wait(has_passed, seconds=30, describe="check to pass")
            await assert_job_is_admitted(installed, shape)
        finally:
            await installed.site.install(POLICY)
    await installed.until(set())
