"""The controller of claim templates, over HTTP: outages, missing rights, other replicas, gangs that start together."""

import asyncio
import contextlib
import json

import api_stub
import devices
import msgspec
import pytest
import pytest_asyncio
import working
from admitting import admitted, cpu, fabric, gpus, pod
from aiohttp import web

from railwright.cluster import client as clients
from railwright.fabric import kueue, node_views, views
from railwright.fabric.claims import objects
from railwright.serving import metrics
from webhook import claim_templates, controllers
from webhook import state as states

CLAIMS = (
    "    gpusPerNode: 8\n    railsPerPod: {}\n    claims: {{deviceClass: dranet, accelerators: {{deviceClass: gpu}}}}\n"
)


def build_policy(rails: int, per_pod: str = "proportional"):
    names = "".join(f"\n    - {{name: rail{rail}, device: mlx5_{rail}}}" for rail in range(rails)) + "\n"
    return fabric(CLAIMS.format(per_pod), rails=names)


class Server:
    """An API server that stores objects of one kind, by name. `answers` are statuses of the next writes, 0: success."""

    def __init__(self) -> None:
        self.templates: dict[str, dict] = {}
        self.deleted: list[dict] = []
        self.answers: list[int] = []

    async def create(self, request: web.Request) -> web.Response:
        status = self.answers.pop(0) if self.answers else 0
        tree = await request.json()
        name = tree["metadata"]["name"]
        if not status and name in self.templates:
            status = 409
        if status:
            return web.json_response(api_stub.status(status, "told so"), status=status)
        tree["metadata"]["uid"] = f"uid-{name}"
        self.templates[name] = tree
        return web.json_response(tree, status=201)

    async def read(self, request: web.Request) -> web.Response:
        return web.json_response(self.templates[request.match_info["name"]])

    async def remove(self, request: web.Request) -> web.Response:
        self.deleted.append(await request.json())
        return web.json_response(self.templates.pop(request.match_info["name"]))


class Posted:
    """Collects Events in place of an API server."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def post(self, involved, *, warning: bool, reason: str, message: str) -> None:
        assert (reason, warning) == ("ClaimTemplateNotWritten", True)
        assert f"which the {involved.kind} waits for" in message
        self.messages.append(message)


class Replica:
    """A controller with caches of its own."""

    def __init__(self, client, policy, *, unused_seconds: float = 60.0) -> None:
        self.state, self.posted, self.policy = states.State(), Posted(), policy
        self.counters = metrics.Metrics("webhook")
        parts = controllers.Parts(
            client=client,
            state=self.state,
            get_policy=lambda: self.policy,
            get_problem=lambda: "",
            poster=self.posted,
            counters=self.counters,
            unused_seconds=unused_seconds,
        )
        self.controller = claim_templates.ClaimTemplateController(parts)

    def observe(self, *trees: dict) -> None:
        for tree in trees:
            self.state.claiming_pods.upsert(msgspec.convert(tree, views.Pod))

    def observe_workload(self, tree: dict) -> None:
        self.state.claiming_workloads.upsert(msgspec.convert(tree, kueue.Workload))

    def observe_templates(self, server: Server) -> None:
        for tree in server.templates.values():
            self.state.claim_templates.upsert(msgspec.convert(tree, objects.ResourceClaimTemplate))


def list_routes(path: str, stored: Server) -> list[web.RouteDef]:
    return [
        web.post(path, stored.create),
        web.get(f"{path}/{{name}}", stored.read),
        web.delete(f"{path}/{{name}}", stored.remove),
    ]


@pytest.fixture
def domains():
    """The ComputeDomains."""
    return Server()


@pytest_asyncio.fixture(loop_scope="session")
async def server(domains):
    stored = Server()
    routes = [
        *list_routes("/apis/resource.k8s.io/v1/namespaces/prod/resourceclaimtemplates", stored),
        *list_routes("/apis/resource.nvidia.com/v1beta1/namespaces/prod/computedomains", domains),
    ]
    async with api_stub.serve_routes(*routes) as stored.port:
        yield stored


@pytest_asyncio.fixture(loop_scope="session")
async def start(server, tmp_path):
    """`await start(policy)`: a running replica."""
    client = await clients.connect(api_stub.kubeconfig(tmp_path, server.port))
    tasks = []

    def run(policy, **more):
        replica = Replica(client, policy, **more)
        tasks.append(asyncio.create_task(replica.controller.run()))
        return replica

    yield run
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await client.close()


def build_pod(policy, job: str, number: int, count: int = 4) -> dict:
    tree = pod(gpus(count))
    tree["metadata"] |= {"name": f"{job}-{number}", "uid": f"{job}-{number}"}
    tree["metadata"]["labels"] |= {"batch.kubernetes.io/job-name": job}
    return admitted(tree, policy)


async def wait(condition) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is looked at has no event
            await asyncio.sleep(0.01)


def list_rails(server: Server) -> list[str]:
    return sorted(tree["metadata"]["annotations"]["railwright.io/rails"] for tree in server.templates.values())


async def test_gangs_that_start_together_get_different_rails(server, start):
    policy = build_policy(4)
    replica = start(policy)
    replica.observe(*[build_pod(policy, job, number) for number in range(2) for job in ("a", "b")])
    await wait(lambda: len(server.templates) == 2)
    assert list_rails(server) == ["rail0,rail1", "rail2,rail3"]
    tree = next(iter(server.templates.values()))
    assert tree["metadata"]["labels"] == {"railwright.io/fabric": "f", "app.kubernetes.io/managed-by": "railwright"}
    assert tree["spec"]["metadata"]["labels"] == tree["metadata"]["labels"]


async def test_gangs_leave_the_first_rails_to_single_pods(server, start):
    beside = ", ".join(f'rail{rail}: ["0000:0{rail}:00.0"]' for rail in range(4))
    rails = "".join(f"\n    - {{name: rail{rail}, device: mlx5_{rail}}}" for rail in range(4)) + "\n"
    claims = "claims: {deviceClass: dranet, accelerators: {deviceClass: gpu}, pairBy: nodeShape}"
    policy = fabric(
        f"    gpusPerNode: 4\n    railsPerPod: proportional\n    {claims}\n",
        rails=rails,
        top=f"nodeShapes:\n- {{name: a, match: {{type: a}}, acceleratorsOfRail: {{{beside}}}}}\n",
    )
    replica = start(policy)
    replica.observe(*[build_pod(policy, job, number, 1) for number in range(2) for job in ("a", "b", "c")])
    single = pod(gpus(1))
    single["metadata"]["uid"] = "single"
    replica.observe(admitted(single, policy))
    await wait(lambda: len(server.templates) == 4)
    assert list_rails(server) == ["rail0", "rail1", "rail2", "rail3"]


@pytest.mark.parametrize("status", [403, 500, 429])
async def test_a_failed_write_is_reported_and_tried_again(server, start, status):
    server.answers = [status, status]
    policy = build_policy(4)
    replica = start(policy)
    replica.observe(build_pod(policy, "a", 0))
    await wait(lambda: server.templates)
    assert len(replica.posted.messages) == 2
    (name,) = server.templates
    assert name in replica.posted.messages[0]
    assert "told so" in replica.posted.messages[0]


async def test_a_write_that_becomes_due_after_a_pass_is_tried_again(server, start, monkeypatch):
    monkeypatch.setattr(claim_templates, "_FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(claim_templates, "_REST", 200)
    server.answers = [500]
    policy = build_policy(4)
    start(policy).observe(build_pod(policy, "a", 0))
    await wait(lambda: server.templates)


async def test_a_template_written_by_another_replica_is_used(server, start):
    policy = build_policy(4)
    first, second = start(policy), start(policy)
    for replica in (first, second):
        replica.observe(build_pod(policy, "a", 0))
    await wait(lambda: server.templates)
    await asyncio.sleep(0.2)
    assert len(server.templates) == 1
    assert not first.posted.messages + second.posted.messages


async def test_both_templates_of_a_pod_have_the_same_rails(server, start):
    policy = build_policy(64)
    tree = build_pod(policy, "a", 0)
    replica, other = start(policy), start(policy)
    replica.observe(tree)
    await wait(lambda: len(server.templates) == 2)
    first, second = server.templates
    assert second == f"{first}-2"
    chosen = server.templates[first]["metadata"]["annotations"]
    del server.templates[second]
    other.observe(*[build_pod(policy, "b", number) for number in range(2)])  # makes its own choice differ
    await wait(lambda: len(server.templates) == 3)
    other.observe(tree)
    await wait(lambda: second in server.templates)
    assert server.templates[second]["metadata"]["annotations"] == chosen


async def test_an_unused_template_is_removed_by_its_uid(server, start):
    policy = build_policy(4)
    replica = start(policy, unused_seconds=0.6)
    gone, stays = build_pod(policy, "a", 0), build_pod(policy, "b", 0)
    replica.observe(gone, stays)
    await wait(lambda: len(server.templates) == 2)
    replica.observe_templates(server)
    replica.observe(gone | {"status": {"phase": "Succeeded"}})
    await wait(lambda: server.deleted)
    assert list(server.templates) == [stays["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]]
    name = gone["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
    assert server.deleted[0]["preconditions"] == {"uid": f"uid-{name}"}


async def test_a_template_that_vanished_comes_back_with_the_same_rails(server, start):
    policy = build_policy(4)
    replica = start(policy)
    for job in ("a", "b"):
        replica.observe(build_pod(policy, job, 0))
    await wait(lambda: len(server.templates) == 2)
    replica.observe_templates(server)
    name = build_pod(policy, "b", 0)["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
    before = server.templates.pop(name)
    replica.state.claiming_pods.remove(msgspec.convert(build_pod(policy, "a", 0), views.Pod))
    replica.state.claim_templates.remove(msgspec.convert(before, objects.ResourceClaimTemplate))
    await wait(lambda: name in server.templates)
    assert server.templates[name]["metadata"]["annotations"] == before["metadata"]["annotations"]


# --- ComputeDomains -------------------------------------------------------------------------------------------

NVLINK = fabric("    gpusPerNode: 4\n    nvlink: {}\n    placement: {domains: [nvidia.com/gpu.clique]}\n")


def name_domain(tree: dict) -> str:
    (entry,) = tree["spec"]["resourceClaims"]
    return entry["resourceClaimTemplateName"]


def observe_domains(replica: Replica, domains: Server) -> None:
    for tree in domains.templates.values():
        replica.state.compute_domains.upsert(msgspec.convert(tree, views.ComputeDomain))


async def test_the_pods_of_a_gang_get_one_compute_domain(start, domains):
    replica = start(NVLINK)
    ranks = [build_pod(NVLINK, "a", number) for number in range(3)]
    replica.observe(*ranks)
    await wait(lambda: domains.templates)
    observe_domains(replica, domains)
    await asyncio.sleep(0.2)
    assert domains.templates == {
        name_domain(ranks[0]): {
            "apiVersion": "resource.nvidia.com/v1beta1",
            "kind": "ComputeDomain",
            "metadata": {
                "name": name_domain(ranks[0]),
                "namespace": "prod",
                "labels": {"app.kubernetes.io/managed-by": "railwright"},
                "uid": f"uid-{name_domain(ranks[0])}",
            },
            "spec": {
                "numNodes": 0,
                "channel": {
                    "resourceClaimTemplate": {"name": name_domain(ranks[0])},
                    "allocationMode": "Single",
                },
            },
        }
    }
    assert not replica.posted.messages


async def test_a_pod_group_that_is_named_after_admission_keeps_the_compute_domain(start, domains):
    replica = start(NVLINK)
    tree = build_pod(NVLINK, "a", 0)
    tree["metadata"].setdefault("annotations", {})["scheduling.k8s.io/group-name"] = "podgroup-1"
    replica.observe(tree)
    await wait(lambda: name_domain(tree) in domains.templates)


async def test_a_compute_domain_is_removed_by_its_uid_when_its_gang_is_gone(start, domains):
    replica = start(NVLINK, unused_seconds=0.6)
    tree = build_pod(NVLINK, "a", 0)
    replica.observe(tree)
    await wait(lambda: domains.templates)
    observe_domains(replica, domains)
    replica.observe(tree | {"status": {"phase": "Succeeded"}})
    await wait(lambda: domains.deleted)
    assert domains.deleted[0]["preconditions"] == {"uid": f"uid-{name_domain(tree)}"}


async def test_a_name_that_the_policy_would_not_give_creates_nothing_and_is_reported(start, domains):
    replica = start(NVLINK)
    tree = build_pod(NVLINK, "a", 0)
    tree["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = f"railwright-nvlink-{'0' * 20}"
    replica.observe(tree)
    await wait(lambda: replica.posted.messages)
    assert not domains.templates
    assert "recreate the pod" in replica.posted.messages[0]


async def test_a_cluster_without_the_driver_is_reported_with_the_fix(start, domains):
    domains.answers = [404] * 3
    replica = start(NVLINK)
    tree = build_pod(NVLINK, "a", 0)
    replica.observe(tree)
    await wait(lambda: replica.posted.messages)
    assert replica.posted.messages[0].startswith(f"ComputeDomain {name_domain(tree)}, which the Pod waits for, is not")
    assert "install NVIDIA's DRA driver" in replica.posted.messages[0]


NODES = ("gpu-0", "gpu-1", "gpu-2")


def build_rdma_policy():
    """Return a policy for the nodes of `devices`: four rails by RDMA device."""
    rails = "".join(f"\n    - {{name: rail{rail}, device: {name}}}" for rail, name in enumerate(devices.RDMA_DEVICES))
    claims = "{deviceClass: dranet, accelerators: {deviceClass: gpu.nvidia.com}}"
    return fabric(f"    gpusPerNode: 8\n    railsPerPod: proportional\n    claims: {claims}\n", rails=f"{rails}\n")


def offer(replica: Replica, *, cordoned=(), **slices) -> None:
    """Give the state three nodes of four NICs. `slices` has the differences of nodes."""
    for name in NODES:
        tree = {"metadata": {"name": name}, "spec": {"unschedulable": name in cordoned}}
        replica.state.nodes.upsert(msgspec.convert(tree, node_views.Node))
        for offered in devices.read_slices(*devices.build_slices(name, **slices.get(name.replace("-", "_"), {}))):
            replica.state.devices.slices.upsert(offered)
    classes = devices.read_classes(devices.GPU_CLASS, devices.NIC_CLASS)
    replica.state.devices.classes.replace(classes)


def hold(replica: Replica, node: str, *rails: int) -> None:
    """Give the state a claim of somebody else that holds these NICs of a node."""
    requests = {f"nic{rail}": "dranet" for rail in rails}
    add_claim_of_others(replica, f"other-{node}", requests, [("dra.net", node, nic(rail)) for rail in rails])


def hold_gpus(replica: Replica, node: str, *gpus: int) -> None:
    """Give the state a claim of somebody else that holds these GPUs of a node, without the NICs beside them."""
    requests = {f"gpu{gpu}": "gpu.nvidia.com" for gpu in gpus}
    add_claim_of_others(replica, f"gpus-{node}", requests, [("gpu.nvidia.com", node, f"gpu-{gpu}") for gpu in gpus])


def add_claim_of_others(
    replica: Replica, name: str, requests: dict[str, str], held: list[tuple[str, str, str]]
) -> None:
    tree = devices.build_claim(name, requests, pod_uid="other", allocated=held)
    replica.state.devices.claims.upsert(msgspec.convert(tree, objects.ConfiguredClaim))


def add_taint_rule(replica: Replica, node: str, rail: int) -> None:
    selector = {"driver": "dra.net", "pool": node, "device": nic(rail)}
    taint = {"key": "example.com/broken", "effect": "NoSchedule"}
    tree = {"metadata": {"name": node}, "spec": {"deviceSelector": selector, "taint": taint}}
    replica.state.devices.taint_rules.upsert(msgspec.convert(tree, objects.DeviceTaintRule))


def nic(rail: int) -> str:
    return f"pci-0000-{devices.ROOTS[rail]}-1b-0"


@pytest.mark.parametrize(
    "prepare",
    [
        lambda replica: (offer(replica), hold(replica, "gpu-1", 0)),
        lambda replica: offer(replica, gpu_1={"taints": {nic(0): "NoSchedule"}}),
        lambda replica: offer(replica, gpu_1={"without": (nic(0),)}),
        lambda replica: (offer(replica), add_taint_rule(replica, "gpu-1", 0)),
        # a pod of four GPUs and two rails needs both GPUs beside each of its rails
        lambda replica: (offer(replica), hold_gpus(replica, "gpu-1", 0)),
    ],
    ids=["held by a claim of others", "tainted in its slice", "missing", "tainted by a rule", "GPU beside it is held"],
)
async def test_a_gang_gets_rails_that_are_free_on_every_node(server, start, prepare):
    policy = build_rdma_policy()
    replica = start(policy)
    prepare(replica)
    replica.observe(build_pod(policy, "a", 0))
    await wait(lambda: server.templates)
    assert list_rails(server) == ["rail1,rail2"]


async def test_a_pod_with_one_gpu_needs_one_beside_its_rail(server, start):
    policy = build_rdma_policy()
    replica = start(policy)
    offer(replica)
    hold_gpus(replica, "gpu-1", 0, 2, 3)
    replica.observe(build_pod(policy, "a", 0, count=1))
    await wait(lambda: server.templates)
    assert list_rails(server) == ["rail0"]


async def test_rails_of_a_gang_are_free_together(server, start):
    policy = build_rdma_policy()
    replica = start(policy)
    offer(replica)
    hold(replica, "gpu-0", 1, 3)
    hold(replica, "gpu-1", 0, 2)
    replica.observe(build_pod(policy, "a", 0))
    await wait(lambda: server.templates)
    assert list_rails(server) == ["rail0,rail2"]


async def test_nodes_that_the_gang_cannot_have_do_not_count(server, start):
    policy = build_rdma_policy()
    replica = start(policy)
    offer(replica, cordoned=("gpu-1",))
    hold(replica, "gpu-1", 0, 1)
    replica.observe(build_pod(policy, "a", 0))
    await wait(lambda: server.templates)
    assert list_rails(server) == ["rail0,rail1"]


async def test_a_gang_that_waits_counts_until_its_pods_hold_devices(server, start):
    policy = build_rdma_policy()
    replica = start(policy)
    offer(replica)
    replica.observe(*[build_pod(policy, "a", number) for number in range(2)])
    await wait(lambda: server.templates)
    hold(replica, "gpu-0", 2)
    replica.observe(build_pod(policy, "b", 0))
    await wait(lambda: len(server.templates) == 2)
    assert list_rails(server) == ["rail0,rail1", "rail2,rail3"]
    replica.observe_templates(server)
    for number, node in enumerate(NODES[1:]):
        tree = build_pod(policy, "a", number)
        replica.observe(tree | {"spec": tree["spec"] | {"nodeName": node}})
        hold(replica, node, 0, 1)
    replica.observe(build_pod(policy, "c", 0, count=2))
    await wait(lambda: len(server.templates) == 3)
    assert list_rails(server)[-1] == "rail3"


async def test_a_pod_without_claims_in_the_policy_is_an_event(server, start):
    replica = start(build_policy(4))
    replica.policy = fabric()
    tree = build_pod(build_policy(4), "a", 0)
    replica.observe(json.loads(json.dumps(tree)))
    await wait(lambda: replica.posted.messages)
    assert "recreate the pod" in replica.posted.messages[0]
    assert not server.templates


# --- Workloads of Kueue --------------------------------------------------------------------------------


def queue(kind: str, policy, **status) -> dict:
    """Return the Workload of an admitted job of a kind, whose pods have four GPUs each."""
    row, _ = working.ALL[kind]
    tree = working.patched(row, working.workload(row, working.template(gpus(4), cpu("log")), label="f"), policy)
    owner = {"apiVersion": f"{row.group}/{row.version}", "kind": row.name, "name": "w", "controller": True}
    pod_sets = [
        {"name": template.context.name.lower() or "main", "template": working.at(tree, template.pointer)}
        for template in working.read(row, tree).templates
    ]
    metadata = {"name": "w-1", "namespace": "prod", "uid": "1", "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {"podSets": pod_sets}, "status": status}


def read_template_name(workload: dict) -> str:
    (pod_set,) = workload["spec"]["podSets"]
    (claim,) = pod_set["template"]["spec"]["resourceClaims"]
    return claim["resourceClaimTemplateName"]


FINISHED = {"conditions": [{"type": "Finished", "status": "True"}]}
QUEUED_KINDS = {  # the rails of the template: of a Job's, whose pods get names of their own, the scheduler chooses them
    "Job.batch/v1": None,
    "JobSet.jobset.x-k8s.io/v1alpha2": "rail0,rail1",
    "MPIJob.kubeflow.org/v2beta1": "rail0,rail1",
    "PyTorchJob.kubeflow.org/v1": "rail0,rail1",
}


@pytest.mark.parametrize("kind", QUEUED_KINDS)
async def test_a_template_is_written_for_a_queued_job_without_pods(server, start, kind):
    policy = build_policy(4)
    replica = start(policy)
    workload = queue(kind, policy)
    replica.observe_workload(workload)
    await wait(lambda: server.templates)
    ((name, tree),) = server.templates.items()
    assert name == read_template_name(workload)
    assert tree["metadata"]["annotations"].get("railwright.io/rails") == QUEUED_KINDS[kind]
    classes = [request["exactly"]["deviceClassName"] for request in tree["spec"]["spec"]["devices"]["requests"]]
    assert sorted(classes) == ["dranet"] * 2 + ["gpu"] * 4


@pytest.mark.parametrize("kind", QUEUED_KINDS)
def test_the_template_of_a_queued_job_is_planned_as_at_admission(kind):
    policy = build_policy(4)
    workload = queue(kind, policy)
    (read_pod,) = kueue.list_pods(msgspec.convert(workload, kueue.Workload))
    writing = claim_templates.prepare(read_pod, policy, states.State().build_facts("prod"))
    assert writing.plan.names == (read_template_name(workload),)


async def test_a_template_stays_while_an_unfinished_workload_names_it(server, start):
    policy = build_policy(4)
    replica = start(policy, unused_seconds=0.6)
    workload = queue("Job.batch/v1", policy)
    replica.observe_workload(workload)
    replica.observe(build_pod(policy, "a", 0))
    await wait(lambda: len(server.templates) == 2)
    replica.observe_templates(server)
    replica.observe(build_pod(policy, "a", 0) | {"status": {"phase": "Succeeded"}})
    await wait(lambda: server.deleted)
    assert list(server.templates) == [read_template_name(workload)]
    replica.observe_workload(workload | {"status": FINISHED})
    await wait(lambda: not server.templates)


async def test_a_failed_write_is_reported_on_the_workload(server, start):
    server.answers = [403]
    policy = build_policy(4)
    replica = start(policy)
    replica.observe_workload(queue("Job.batch/v1", policy))
    await wait(lambda: server.templates)
    (message,) = replica.posted.messages
    assert "which the Workload waits for" in message
