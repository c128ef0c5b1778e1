"""The controller of claim templates, over HTTP: outages, missing rights, other replicas and policies, other content."""

import asyncio
import base64
import copy
import json
import re

import api_stub
import msgspec
import objects_stub
import pytest
import pytest_asyncio
import shell
import working
from admitting import admit_pod, cpu, decode_pod, fabric, gpus, list_messages, plan_pod, pod
from aiohttp import test_utils

from railwright.fabric.claims import objects
from railwright.fabric.policy import shortcomings
from railwright.serving import metrics
from webhook import app, claim_templates
from webhook import state as states

CLAIMS = "    gpusPerNode: 8\n    railsPerPod: proportional\n    claims: {deviceClass: dranet, acceleratorClass: gpu}\n"


def build_policy(rails: int = 4, first: int = 0):
    """Return a policy whose rails are the NICs from `first` on."""
    names = "".join(f"\n    - {{name: rail{rail}, device: mlx5_{first + rail}}}" for rail in range(rails)) + "\n"
    return fabric(CLAIMS, rails=names)


def list_templates(server: objects_stub.Objects) -> dict[str, dict]:
    return server.get_all("resourceclaimtemplates")


class Replica:
    """Caches, policy and Events of a replica: `posted` has kind and reason of each Event, `messages` its text."""

    def __init__(self, client, policy) -> None:
        self.client, self.policy = client, policy
        self.state, self.counters = states.State(), metrics.WebhookMetrics()
        self.posted: list[tuple[str, str]] = []
        self.messages: list[str] = []
        self.controller = claim_templates.ClaimTemplateController(
            client, self.state, self, get_policy=lambda: self.policy, get_problem=lambda: ""
        )

    def post(self, involved, *, warning: bool, reason: str, message: str) -> None:
        assert warning
        self.posted.append((involved.kind, reason))
        self.messages.append(message)

    def observe(self, *trees: dict) -> None:
        """Pass these pods to the controller."""
        for tree in trees:
            self.state.claiming_pods.upsert(decode_pod(tree))


@pytest_asyncio.fixture(loop_scope="session")
async def server():
    """Yield an API server that stores the objects of a controller."""
    async with objects_stub.serving() as stored:
        yield stored


@pytest_asyncio.fixture(loop_scope="session")
async def start(server, tmp_path, monkeypatch):
    """Yield `start(policy)`: start a replica with a controller of the webhook."""
    monkeypatch.setattr(claim_templates, "_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(claim_templates, "_OBSERVED_SECONDS", 0.2)
    monkeypatch.setattr(claim_templates, "_RETRY_SECONDS", 0.1)
    tasks = []
    async with api_stub.connected(tmp_path, server.port) as client:

        def run(policy) -> Replica:
            replica = Replica(client, policy)
            tasks.append(asyncio.create_task(replica.controller.run()))
            return replica

        yield run
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def observe_written(replica: Replica, server: objects_stub.Objects) -> None:
    """Pass the objects of the API server to a replica, as its watch would."""
    for tree in list_templates(server).values():
        replica.state.claim_templates.upsert(msgspec.convert(tree, objects.ResourceClaimTemplate))


def build_pod(policy, number: int, count: int = 4) -> dict:
    tree = pod(gpus(count), labels={"batch.kubernetes.io/job-name": "a"})
    tree["metadata"] |= {"name": f"a-{number}", "uid": f"a-{number}"}
    return admit_pod(tree, policy)


def name_template(tree: dict) -> str:
    (entry,) = tree["spec"]["resourceClaims"]
    return entry["resourceClaimTemplateName"]


def list_nics(server: objects_stub.Objects, name: str) -> list[str]:
    """Return the RDMA devices that the selectors of a template name."""
    return sorted(set(re.findall(r"mlx5_\d+", json.dumps(list_templates(server)[name]))))


async def test_pods_with_equal_claims_share_one_template(server, start):
    policy = build_policy()
    replica = start(policy)
    replica.observe(*[build_pod(policy, number) for number in range(3)])
    await shell.until(lambda: list_templates(server))
    observe_written(replica, server)
    ((name, tree),) = list_templates(server).items()
    assert name == name_template(build_pod(policy, 7))
    assert tree["metadata"]["labels"] == {"railwright.io/fabric": "f", "app.kubernetes.io/managed-by": "railwright"}
    assert tree["spec"]["metadata"]["labels"] == tree["metadata"]["labels"]
    assert list_nics(server, name) == [f"mlx5_{number}" for number in range(4)]


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (403, "not written: the webhook may not create it: "),
        (403, f"or to grant the missing right: {shortcomings.GRANT_CLAIMS}"),
        (500, " answers 500: "),
        (429, " answers 429: "),
    ],
)
async def test_a_template_that_cannot_be_written_is_an_event_on_the_pod_and_is_tried_again(
    server, start, status, cause
):
    server.refuse_next(status, status)
    policy = build_policy()
    replica = start(policy)
    replica.observe(build_pod(policy, 0))
    await shell.until(lambda: list_templates(server))
    assert replica.posted == [("Pod", "ClaimTemplateNotWritten")] * 2
    (name,) = list_templates(server)
    assert name in replica.messages[0]
    assert cause in replica.messages[0]


async def test_a_template_that_another_replica_has_written_is_used(server, start):
    policy = build_policy()
    first, second = start(policy), start(policy)
    for replica in (first, second):
        replica.observe(build_pod(policy, 0))
    await shell.until(lambda: list_templates(server))
    await asyncio.sleep(0.2)
    assert len(list_templates(server)) == 1
    assert not first.messages + second.messages


# --- policies that differ ---------------------------------------------------------------------------------


async def test_a_replica_with_another_policy_does_not_write_the_template_that_a_pod_names(server, start):
    """One replica has the new policy and admits a pod by it. The other receives the pod before the policy."""
    old, new = build_policy(2), build_policy(2, first=4)
    tree = build_pod(new, 0)
    lagging = start(old)
    lagging.observe(tree)
    await shell.until(lambda: lagging.messages)
    assert "recreate the pod" in lagging.messages[0]
    assert not list_templates(server)
    start(new).observe(tree)
    await shell.until(lambda: list_templates(server))
    assert list_nics(server, name_template(tree)) == ["mlx5_4", "mlx5_5"]


async def test_a_foreign_template_of_the_same_name_is_an_event_and_replaced_after_its_deletion(server, start):
    policy = build_policy()
    replica = start(policy)
    tree = build_pod(policy, 0)
    replica.observe(tree)
    await shell.until(lambda: list_templates(server))
    name = name_template(tree)
    wrong = server.remove("resourceclaimtemplates", name)
    wrong["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2
    replica.state.claim_templates.upsert(msgspec.convert(wrong, objects.ResourceClaimTemplate))
    await shell.until(lambda: replica.messages)
    assert "other content than railwright writes; delete it" in replica.messages[0]
    assert not list_templates(server)
    replica.state.claim_templates.remove(msgspec.convert(wrong, objects.ResourceClaimTemplate))
    await shell.until(lambda: list_templates(server))


async def test_a_deleted_template_is_written_again(server, start):
    policy = build_policy()
    replica = start(policy)
    tree = build_pod(policy, 0)
    replica.observe(tree)
    await shell.until(lambda: list_templates(server))
    observe_written(replica, server)
    before = server.remove("resourceclaimtemplates", name_template(tree))
    replica.state.claim_templates.remove(msgspec.convert(before, objects.ResourceClaimTemplate))
    await shell.until(lambda: list_templates(server))
    assert list_templates(server)[name_template(tree)]["spec"] == before["spec"]


# --- workloads: the templates are written while they are admitted -----------------------------------------


KINDS = ("Job.batch/v1", "JobSet.jobset.x-k8s.io/v1alpha2", "MPIJob.kubeflow.org/v2beta1", "PyTorchJob.kubeflow.org/v1")


async def admit(replica: Replica, kind: str, **request) -> dict:
    """Return the response to the creation of a workload whose pods have four GPUs each."""
    row, version = working.ALL[kind]
    tree = working.build_workload(row, working.build_template(gpus(4), cpu("log")), label="f")
    return await review(replica, working.review(row, tree, version, **request))


async def review(replica: Replica, body: bytes) -> dict:
    api = app.ApiServer(replica.client, replica, replica.controller)
    service = app.Webhook(replica.state, lambda: replica.policy, replica.counters, api).build_application()
    headers = {"Content-Type": "application/json"}
    async with test_utils.TestClient(test_utils.TestServer(service)) as client:
        answer = await client.post("/mutate/workloads", data=body, headers=headers)
        return (await answer.json())["response"]


def find_template_names(response: dict) -> set[str]:
    operations = base64.b64decode(response["patch"]).decode()
    return set(re.findall(r"railwright-f-\d+x\d+-[0-9a-f]{10}", operations))


@pytest.mark.parametrize("kind", KINDS)
async def test_the_claim_template_of_a_workload_is_written_before_its_admission(server, start, kind):
    response = await admit(start(build_policy()), kind)
    ((name, tree),) = list_templates(server).items()
    assert find_template_names(response) == {name}
    assert (tree["metadata"]["namespace"], response.get("warnings")) == ("prod", None)
    classes = [request["exactly"]["deviceClassName"] for request in tree["spec"]["spec"]["devices"]["requests"]]
    assert sorted(classes) == ["dranet"] * 2 + ["gpu"] * 4


async def test_a_dry_run_of_a_workload_writes_no_claim_template(server, start):
    response = await admit(start(build_policy()), KINDS[0], dryRun=True)
    assert find_template_names(response)
    assert not list_templates(server)


async def test_a_warning_says_why_the_claim_template_of_a_workload_is_not_written(server, start):
    server.refuse_next(403)
    replica = start(build_policy())
    response = await admit(replica, KINDS[0])
    assert response["allowed"]
    (name,) = find_template_names(response)
    (warning,) = response["warnings"]
    assert warning.startswith(f"ClaimTemplateNotWritten: ResourceClaimTemplate {name} is not written: ")
    assert "is not written: the webhook may not create it: " in warning
    assert warning.endswith("correct the cause, and create the workload again if Kueue queues it")
    counted = replica.counters.registry.get_sample_value
    assert counted("railwright_webhook_warnings_total", {"code": "ClaimTemplateNotWritten"}) == 1


async def test_events_and_warnings_report_that_the_webhook_may_not_read_templates(server, start):
    replica = start(build_policy())
    replica.state.is_without_templates = lambda: True
    response = await admit(replica, KINDS[0])
    (name,) = find_template_names(response)
    (warning,) = response["warnings"]
    assert f"the webhook may not create ResourceClaimTemplate {name}, so pods stay Pending" in warning
    assert warning.endswith(f"; the operator must {shortcomings.GRANT_CLAIMS}")
    assert not list_templates(server)
    answer = plan_pod(pod(gpus(4)), replica.policy, replica.state.build_facts("prod"))
    assert [message for message in list_messages(answer) if name in message]


async def test_a_workload_is_admitted_with_a_warning_if_the_api_server_is_slow(server, start, monkeypatch):
    monkeypatch.setattr(claim_templates, "_WRITE_SECONDS", 0.01)
    replica = start(build_policy())

    async def post(*_):
        await asyncio.sleep(60)

    monkeypatch.setattr(replica.client, "post", post)
    (warning,) = (await admit(replica, KINDS[0]))["warnings"]
    assert "the API server did not answer within 0.01 s" in warning


async def test_only_the_first_claim_templates_of_a_workload_are_written_at_its_admission(server, start, monkeypatch):
    monkeypatch.setattr(claim_templates, "_MAX_OF_WORKLOAD", 3)
    row, version = working.ALL["JobSet.jobset.x-k8s.io/v1alpha2"]
    tree = working.build_workload(row, working.build_template(gpus(1)), label="f")
    (job,) = tree["spec"]["replicatedJobs"]
    tree["spec"]["replicatedJobs"] = [copy.deepcopy(job) | {"name": f"j{count}"} for count in range(1, 7)]
    for count, entry in enumerate(tree["spec"]["replicatedJobs"], start=1):
        entry["template"]["spec"]["template"]["spec"]["containers"] = [gpus(count)]
    response = await review(start(build_policy()), working.review(row, tree, version))
    assert len(find_template_names(response)) == 6
    assert len(list_templates(server)) == 3
    assert "warnings" not in response
