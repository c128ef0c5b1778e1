"""kube-scheduler with the configurations that railwright writes: for kubeadm, and of the chart's own scheduler.

The shipped example has the form for kubeadm.
"""

import base64
import contextlib

import pytest_asyncio
import yaml
from plane import components, gangs, processes, releases, site

from railwright.cli import scheduler_configuration

NAME = "railwright-scheduler"


@pytest_asyncio.fixture(loop_scope="session")
async def served(plane, namespace):
    """Yield an installation whose extender serves TLS with the names of its Service."""
    async with site.running(plane) as installation:
        await installation.policy(gangs.policy())
        await installation.start_extender(has_tls=True)
        yield installation


async def test_a_scheduler_without_the_clusters_dns_calls_the_extender(plane, served, nodes, namespace):
    """As in kubeadm's static pod: with the IP address of the Service, and the CA in the file itself."""
    authority = base64.b64encode(plane.certificates.authority.certificate_pem).decode()
    extender = scheduler_configuration.ExtenderAddress("127.0.0.1", authority)
    written = yaml.safe_load(scheduler_configuration.format_kube_scheduler(gangs.RAILS, extender))
    (entry,) = written["extenders"]
    entry["urlPrefix"] = entry["urlPrefix"].replace(":8713", f":{served.extender.port}")
    entry["ignorable"] = False  # so that an extender that cannot be reached is seen
    await plane.schedulers.kube(entry)
    await gangs.make_leaves(nodes, few=4, right=8, many=11)
    placed = await gangs.run_gang(served, namespace, "train", 8)
    assert set(gangs.list_leaves(placed)) == {"right"}


@contextlib.asynccontextmanager
async def second_scheduler(plane, served, tmp_path):
    """Run kube-scheduler with the configuration, the account and the rights of the chart."""
    helm = releases.Helm(tmp_path / "helm")
    options = (releases.WHOLE, "--set=scheduler.enabled=true", "--show-only=templates/scheduler.yaml")
    text = await helm("template", releases.RELEASE, str(releases.CHART), *options)
    trees = [tree for tree in yaml.safe_load_all(text) if tree]
    for tree in trees:
        if tree["apiVersion"].startswith("rbac.authorization"):
            await plane.api.ensure(tree)
    (configuration,) = [tree["data"]["scheduler.yaml"] for tree in trees if tree["kind"] == "ConfigMap"]
    written = yaml.safe_load(configuration)
    (extender,) = written["extenders"]
    extender["urlPrefix"] = f"https://127.0.0.1:{served.extender.port}/scheduler"
    extender["tlsConfig"]["caFile"] = str(plane.certificates.ca)
    extender["ignorable"] = False  # so that an extender that cannot be reached is seen
    kubeconfig = site.act_as(plane, "scheduler").removeprefix("--kubeconfig=")
    written["clientConnection"] = {"kubeconfig": kubeconfig}
    path = tmp_path / "scheduler.yaml"
    path.write_text(yaml.safe_dump(written))
    command = plane.parts.command("kube-scheduler")
    own = [word for word in command if not word.startswith(("--config=", "--secure-port=", "--authentication"))]
    process = processes.Process(NAME, [*own, f"--config={path}", "--secure-port=0"], logs=plane.logs)
    process.start(components.ENVIRONMENT)
    try:
        yield process
    finally:
        await process.stop()


async def test_the_charts_scheduler_places_a_gang_whose_scheduler_name_admission_sets(
    plane, served, nodes, namespace, tmp_path
):
    await served.install(gangs.policy(schedulerName=NAME), namespace)
    await gangs.make_leaves(nodes, few=4, right=8, many=11)
    async with second_scheduler(plane, served, tmp_path):
        placed = await gangs.run_gang(served, namespace, "train", 8)
    assert {pod["spec"]["schedulerName"] for pod in placed} == {NAME}
    assert set(gangs.list_leaves(placed)) == {"right"}
