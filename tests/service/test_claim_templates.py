"""The controller of claim templates, over HTTP: outages, missing rights, other replicas, gangs that start together."""

import asyncio
import functools
import json

import controller_replicas
import devices
import msgspec
import objects_stub
import pytest
import shell
import working
from admitting import admitted, cpu, fabric, gpus, pod

from railwright.fabric import kueue, node_views, views
from railwright.fabric.claims import objects
from webhook import claim_templates
from webhook import state as states

CLAIMS = (
    "    gpusPerNode: 8\n    railsPerPod: proportional\n"
    "    claims: {deviceClass: dranet, accelerators: {deviceClass: gpu}}\n"
)


def build_policy(rails: int):
    names = "".join(f"\n    - {{name: rail{rail}, device: mlx5_{rail}}}" for rail in range(rails)) + "\n"
    return fabric(CLAIMS, rails=names)


def list_templates(server: objects_stub.Objects) -> dict[str, dict]:
    return server.get_all("resourceclaimtemplates")


@pytest.fixture
def start(start_controller, monkeypatch):
    monkeypatch.setattr(claim_templates, "_SHORTEST_SWEEP_SECONDS", 0.05)
    monkeypatch.setattr(claim_templates, "_OBSERVED_SECONDS", 0.2)
    return functools.partial(start_controller, claim_templates.ClaimTemplateController)


def observe_workload(replica: controller_replicas.Replica, tree: dict) -> None:
    replica.state.claiming_workloads.upsert(msgspec.convert(tree, kueue.Workload))


def observe_written(replica: controller_replicas.Replica, server: objects_stub.Objects) -> None:
    """Show a replica what the watches of the API server would."""
    for tree in list_templates(server).values():
        replica.state.claim_templates.upsert(msgspec.convert(tree, objects.ResourceClaimTemplate))


def build_pod(policy, job: str, number: int, count: int = 4) -> dict:
    tree = pod(gpus(count), labels={"batch.kubernetes.io/job-name": job})
    tree["metadata"] |= {"name": f"{job}-{number}", "uid": f"{job}-{number}"}
    return admitted(tree, policy)


def list_rails(server: objects_stub.Objects) -> list[str]:
    return sorted(tree["metadata"]["annotations"]["railwright.io/rails"] for tree in list_templates(server).values())


async def test_gangs_that_start_together_get_different_rails(server, start):
    policy = build_policy(4)
    replica = start(policy)
    replica.observe(*[build_pod(policy, job, number) for number in range(2) for job in ("a", "b")])
    await shell.until(lambda: len(list_templates(server)) == 2)
    assert list_rails(server) == ["rail0,rail1", "rail2,rail3"]
    tree = next(iter(list_templates(server).values()))
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
    await shell.until(lambda: len(list_templates(server)) == 4)
    assert list_rails(server) == ["rail0", "rail1", "rail2", "rail3"]


@pytest.mark.parametrize("status", [403, 500, 429])
async def test_a_failed_write_is_reported_and_tried_again(server, start, status):
    server.refuse_next(status, status)
    policy = build_policy(4)
    replica = start(policy)
    replica.observe(build_pod(policy, "a", 0))
    await shell.until(lambda: list_templates(server))
    assert replica.posted == [("Pod", "ClaimTemplateNotWritten")] * 2
    (name,) = list_templates(server)
    assert name in replica.messages[0]
    assert str(status) in replica.messages[0]


async def test_a_write_that_becomes_due_after_a_pass_is_tried_again(server, start, monkeypatch):
    monkeypatch.setattr(claim_templates, "_FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(claim_templates, "_REST", 200)
    server.refuse_next(500)
    policy = build_policy(4)
    start(policy).observe(build_pod(policy, "a", 0))
    await shell.until(lambda: list_templates(server))


async def test_a_template_written_by_another_replica_is_used(server, start):
    policy = build_policy(4)
    first, second = start(policy), start(policy)
    for replica in (first, second):
        replica.observe(build_pod(policy, "a", 0))
    await shell.until(lambda: list_templates(server))
    await asyncio.sleep(0.2)
    assert len(list_templates(server)) == 1
    assert not first.messages + second.messages


async def test_both_templates_of_a_pod_have_the_same_rails(server, start):
    policy = build_policy(64)
    tree = build_pod(policy, "a", 0)
    replica, other = start(policy), start(policy)
    replica.observe(tree)
    await shell.until(lambda: len(list_templates(server)) == 2)
    first, second = list_templates(server)
    assert second == f"{first}-2"
    chosen = list_templates(server)[first]["metadata"]["annotations"]
    server.remove("resourceclaimtemplates", second)
    other.observe(*[build_pod(policy, "b", number) for number in range(2)])  # makes its own choice differ
    await shell.until(lambda: len(list_templates(server).keys() - {first, second}) == 2)
    other.observe(tree)
    await shell.until(lambda: second in list_templates(server))
    assert list_templates(server)[second]["metadata"]["annotations"] == chosen


DEEP = b'{"a":[' * 20_000 + b"1" + b"]}" * 20_000  # too deep for msgspec


@pytest.mark.parametrize(
    ("body", "is_read"),
    [
        (b"<html>", False),
        (b'{"metadata": {"annotations": {"railwright.io/rails": 1}}}', False),
        (b'{"metadata": {"annotations": {"railwright.io/rails": "rail9"}}, "spec": ' + DEEP + b"}", True),
    ],
    ids=["no JSON", "other types", "deep"],
)
async def test_a_stored_template_of_any_content_leaves_the_controller_running(
    server, start, monkeypatch, body, is_read
):
    policy = build_policy(64)
    replica, other = start(policy), start(policy)
    tree, of_others = build_pod(policy, "a", 0), build_pod(policy, "b", 0)
    replica.observe(tree)
    await shell.until(lambda: len(list_templates(server)) == 2)
    first, second = list_templates(server)
    server.remove("resourceclaimtemplates", second)

    async def get(_path: str) -> bytes:
        return body

    monkeypatch.setattr(other.parts.client, "get", get)
    other.observe(tree)
    await shell.until(lambda: second in list_templates(server) if is_read else other.messages)
    if not is_read:
        assert f"{first} exists and cannot be read" in other.messages[0]
        assert "delete it" in other.messages[0]
    count = len(list_templates(server))
    other.observe(of_others)
    await shell.until(lambda: len(list_templates(server)) >= count + 2)


async def test_an_unused_template_is_removed_by_its_uid(server, start):
    policy = build_policy(4)
    replica = start(policy, unused_seconds=0.2)
    gone, stays = build_pod(policy, "a", 0), build_pod(policy, "b", 0)
    replica.observe(gone, stays)
    await shell.until(lambda: len(list_templates(server)) == 2)
    observe_written(replica, server)
    replica.observe(gone | {"status": {"phase": "Succeeded"}})
    names = [tree["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] for tree in (gone, stays)]
    uid = list_templates(server)[names[0]]["metadata"]["uid"]
    await shell.until(lambda: server.deleted)
    assert list(list_templates(server)) == names[1:]
    assert server.deleted[0][1]["preconditions"] == {"uid": uid}


async def test_a_template_that_vanished_comes_back_with_the_same_rails(server, start):
    policy = build_policy(4)
    replica = start(policy)
    for job in ("a", "b"):
        replica.observe(build_pod(policy, job, 0))
    await shell.until(lambda: len(list_templates(server)) == 2)
    observe_written(replica, server)
    name = build_pod(policy, "b", 0)["spec"]["resourceClaims"][0]["resourceClaimTemplateName"]
    before = server.remove("resourceclaimtemplates", name)
    replica.state.claiming_pods.remove(msgspec.convert(build_pod(policy, "a", 0), views.Pod))
    replica.state.claim_templates.remove(msgspec.convert(before, objects.ResourceClaimTemplate))
    await shell.until(lambda: name in list_templates(server))
    assert list_templates(server)[name]["metadata"]["annotations"] == before["metadata"]["annotations"]


NODES = ("gpu-0", "gpu-1", "gpu-2")


def build_rdma_policy():
    """Return a policy for the nodes of `devices`: four rails by RDMA device."""
    rails = "".join(f"\n    - {{name: rail{rail}, device: {name}}}" for rail, name in enumerate(devices.RDMA_DEVICES))
    claims = "{deviceClass: dranet, accelerators: {deviceClass: gpu.nvidia.com}}"
    return fabric(f"    gpusPerNode: 8\n    railsPerPod: proportional\n    claims: {claims}\n", rails=f"{rails}\n")


def offer(replica: controller_replicas.Replica, *, cordoned=()) -> None:
    """Give the state three nodes of four NICs."""
    for name in NODES:
        tree = {"metadata": {"name": name}, "spec": {"unschedulable": name in cordoned}}
        replica.state.nodes.upsert(msgspec.convert(tree, node_views.Node))
        for offered in devices.read_slices(*devices.build_slices(name)):
            replica.state.devices.slices.upsert(offered)
    classes = devices.read_classes(devices.GPU_CLASS, devices.NIC_CLASS)
    replica.state.devices.classes.replace(classes)


def hold(replica: controller_replicas.Replica, node: str, *rails: int) -> None:
    """Give the state a claim of somebody else that holds these NICs of a node."""
    requests = {f"nic{rail}": "dranet" for rail in rails}
    add_claim_of_others(replica, f"other-{node}", requests, [("dra.net", node, nic(rail)) for rail in rails])


def hold_gpus(replica: controller_replicas.Replica, node: str, *gpus: int) -> None:
    """Give the state a claim of somebody else that holds these GPUs of a node, without the NICs beside them."""
    requests = {f"gpu{gpu}": "gpu.nvidia.com" for gpu in gpus}
    add_claim_of_others(replica, f"gpus-{node}", requests, [("gpu.nvidia.com", node, f"gpu-{gpu}") for gpu in gpus])


def add_claim_of_others(
    replica: controller_replicas.Replica, name: str, requests: dict[str, str], held: list[tuple[str, str, str]]
) -> None:
    tree = devices.build_claim(name, requests, pod_uid="other", allocated=held)
    replica.state.devices.claims.upsert(msgspec.convert(tree, objects.ConfiguredClaim))


def add_taint_rule(replica: controller_replicas.Replica, node: str, rail: int) -> None:
    selector = {"driver": "dra.net", "pool": node, "device": nic(rail)}
    taint = {"key": "example.com/broken", "effect": "NoSchedule"}
    tree = {"metadata": {"name": node}, "spec": {"deviceSelector": selector, "taint": taint}}
    replica.state.devices.taint_rules.upsert(msgspec.convert(tree, objects.DeviceTaintRule))


def nic(rail: int) -> str:
    return f"pci-0000-{devices.ROOTS[rail]}-1b-0"


@pytest.mark.parametrize(
    "take",
    [
        lambda replica: hold(replica, "gpu-1", 0),
        # a pod of four GPUs and two rails needs both GPUs beside each of its rails
        lambda replica: hold_gpus(replica, "gpu-1", 0),
        lambda replica: add_taint_rule(replica, "gpu-1", 0),
    ],
    ids=["held by a claim of others", "GPU beside it is held", "tainted by a rule"],
)
async def test_a_gang_gets_rails_that_are_free_on_every_node(server, start, take):
    policy = build_rdma_policy()
    replica = start(policy)
    offer(replica)
    take(replica)
    replica.observe(build_pod(policy, "a", 0))
    await shell.until(lambda: list_templates(server))
    assert list_rails(server) == ["rail1,rail2"]


async def test_nodes_that_the_gang_cannot_have_do_not_count(server, start):
    policy = build_rdma_policy()
    replica = start(policy)
    offer(replica, cordoned=("gpu-1",))
    hold(replica, "gpu-1", 0, 1)
    replica.observe(build_pod(policy, "a", 0))
    await shell.until(lambda: list_templates(server))
    assert list_rails(server) == ["rail0,rail1"]


async def test_a_gang_that_waits_counts_until_its_pods_hold_devices(server, start):
    policy = build_rdma_policy()
    replica = start(policy)
    offer(replica)
    replica.observe(*[build_pod(policy, "a", number) for number in range(2)])
    await shell.until(lambda: list_templates(server))
    hold(replica, "gpu-0", 2)
    replica.observe(build_pod(policy, "b", 0))
    await shell.until(lambda: len(list_templates(server)) == 2)
    assert list_rails(server) == ["rail0,rail1", "rail2,rail3"]
    observe_written(replica, server)
    for number, node in enumerate(NODES[1:]):
        tree = build_pod(policy, "a", number)
        replica.observe(tree | {"spec": tree["spec"] | {"nodeName": node}})
        hold(replica, node, 0, 1)
    replica.observe(build_pod(policy, "c", 0, count=2))
    await shell.until(lambda: len(list_templates(server)) == 3)
    assert list_rails(server)[-1] == "rail3"


async def test_a_pod_without_claims_in_the_policy_is_an_event(server, start):
    replica = start(build_policy(4))
    replica.policy = fabric()
    tree = build_pod(build_policy(4), "a", 0)
    replica.observe(json.loads(json.dumps(tree)))
    await shell.until(lambda: replica.messages)
    assert "recreate the pod" in replica.messages[0]
    assert not list_templates(server)


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
    observe_workload(replica, workload)
    await shell.until(lambda: list_templates(server))
    ((name, tree),) = list_templates(server).items()
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
    replica = start(policy, unused_seconds=0.2)
    workload = queue("Job.batch/v1", policy)
    observe_workload(replica, workload)
    replica.observe(build_pod(policy, "a", 0))
    await shell.until(lambda: len(list_templates(server)) == 2)
    observe_written(replica, server)
    replica.observe(build_pod(policy, "a", 0) | {"status": {"phase": "Succeeded"}})
    await shell.until(lambda: server.deleted)
    assert list(list_templates(server)) == [read_template_name(workload)]
    observe_workload(replica, workload | {"status": FINISHED})
    await shell.until(lambda: not list_templates(server))


async def test_a_failed_write_is_reported_on_the_workload(server, start):
    server.refuse_next(403)
    policy = build_policy(4)
    replica = start(policy)
    observe_workload(replica, queue("Job.batch/v1", policy))
    await shell.until(lambda: list_templates(server))
    assert replica.posted == [("Workload", "ClaimTemplateNotWritten")]
    assert "which the Workload waits for" in replica.messages[0]
