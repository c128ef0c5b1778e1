"""`railwright check` on a real installation: without defects, then with one that needs a real API server.

The manifests are applied unchanged. No container runs: the test serves a webhook with the Secret's certificate, called
by URL.
"""

import asyncio
import contextlib
import io
import json
import pathlib

import pytest_asyncio
from plane import conditions, manifests, ports, releases, site, stand_ins, waiting
from plane import nodes as plane_nodes

from railwright.cli.__main__ import main
from railwright.fabric import names

ROOT = pathlib.Path(__file__).parents[2]
NAMESPACE, NETWORKS, LEAF = names.NAMESPACE, "check-networks", "fabric.topograph.run/tier-0"
MUTATING = "MutatingWebhookConfiguration"
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


class Installed:
    """An installation, and the results of `railwright check` on it."""

    def __init__(self, plane):
        self.plane, self.api, self.site = plane, plane.api, site.Site(plane)
        self.nodes = plane_nodes.Nodes(plane.api)

    async def install(self, folder):
        await asyncio.gather(*(self.nodes.make(f"check-{n}", labels={LEAF: "leaf-0"}) for n in range(2)))
        await self.plane.kubectl("apply", "-k", str(site.BASE))
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
        """Wait until the pods of a Deployment run, on nodes of kwok."""
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


async def test_check_passes_for_a_healthy_installation(installed):
    answer = await installed.until(set())
    assert answer["ok"] is True
    examined = {"dry-run", "ca-bundle", "certificates", "replicas", "volcano-configuration", "uninjected"}
    assert {row["state"] for row in answer["checks"] if row["check"] in examined} == {"ok"}
    skipped = {row["check"] for row in answer["checks"] if row["state"] == "skip"}
    # there is no shape, claim or preflight, and the tag `latest` of manifests/base names no version
    assert skipped <= {"node-shapes", "claim-devices", "preflight", "images"}, skipped


async def test_check_fails_only_the_dry_run_if_no_webhook_answers(installed):
    """Only a real API server rejects a dry run. Failures of the other rows: tests/support/broken_installations.py."""
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
