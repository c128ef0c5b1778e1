"""Kinds that the webhook watches only while a policy in force needs them, against an API server over real sockets."""

import asyncio

import admitting
import pytest_asyncio
import shell
from api_stub import listing, node, status

from railwright.cluster import policies, resources, sources
from railwright.fabric.policy import shortcomings
from webhook import __main__ as webhook
from webhook import state as states

ALWAYS = {"namespaces", "nodes", "network-attachment-definitions"}
TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
PLAIN = admitting.fabric()
CLAIMED = admitting.fabric(
    "    gpusPerNode: 8\n    claims: {deviceClass: dranet}\n", rails="[{name: r, device: mlx5_0}]"
)
NVLINK = admitting.fabric("    nvlinkSegment: 1\n    placement: {domains: [a/clique]}\n")


class Running:
    """The sources of a webhook whose policy the test sets, and its caches."""

    def __init__(self, client) -> None:
        self.state = states.State()
        self.origin = sources.Sources(policies.PolicyStore(), client)
        self.failures: list[tuple[str, str]] = []  # kind and reason, of each
        for spec in webhook._list_watches(self.state):
            self.origin.add_watch(spec, count_failure=lambda kind, reason: self.failures.append((kind, reason)))
        self.tasks = [asyncio.create_task(task()) for task in self.origin.tasks]

    @property
    def watched(self) -> set[str]:
        """Return the kinds that are watched now."""
        return {name for name, _, _ in self.origin.read_metrics()["caches"]}

    async def use(self, policy, *expected: str) -> None:
        """Put a policy in force, and wait until exactly these kinds are watched and read."""
        self.origin.store.update_policy(policy)
        await shell.until(lambda: self.watched == ALWAYS | {*expected} and not self.origin.find_cache_problem())


@pytest_asyncio.fixture(loop_scope="session")
async def running(stub, client):
    stub.lists.append(listing(node("a"), version=5))
    stub.watches.append([None])
    made = Running(client)
    yield made
    stub.hold.set()
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)


async def test_resource_claims_are_watched_while_a_fabric_of_the_policy_has_claims(running, stub):
    await running.use(PLAIN)
    assert not [request for request in stub.asked if "resource.k8s.io" in request.path]
    await running.use(CLAIMED, "pods", TEMPLATES)
    assert running.state.claim_templates.by_key
    selectors = {request.query["fieldSelector"] for request in stub.asked if request.path == "/api/v1/pods"}
    assert selectors == {"spec.nodeName="}, "pods that have a node are not watched"
    await running.use(PLAIN)
    assert not running.state.claim_templates.by_key, "what is not watched is forgotten"


async def test_claim_templates_are_watched_if_the_policy_uses_nvlink(running):
    await running.use(NVLINK, TEMPLATES)


async def test_a_webhook_without_rights_for_claims_is_ready_and_reports_the_missing_rights(running, stub, caplog):
    """The policy may come before the upgrade that sets webhook.claims."""
    stub.forbidden = {"/api/v1/pods", "/apis/resource.k8s.io/v1/resourceclaimtemplates"}
    await running.use(PLAIN)
    running.origin.store.update_policy(CLAIMED)
    await shell.until(lambda: {"pods", TEMPLATES} <= running.watched and not running.origin.find_cache_problem())
    assert not running.state.claim_templates.by_key
    assert running.origin.is_denied(resources.CLAIM_TEMPLATES)
    logged = [record for record in caplog.records if "watch failed" in record.message]
    assert {record.fields["kind"] for record in logged} == {"pods", TEMPLATES}
    assert {record.fields["fix"] for record in logged} == {shortcomings.GRANT_CLAIMS}
    stub.forbidden = set()
    await shell.until(lambda: bool(running.state.claim_templates.by_key))
    assert not running.origin.is_denied(resources.CLAIM_TEMPLATES)


async def test_a_webhook_without_rights_for_claims_stays_ready_while_the_api_server_fails(running, stub):
    """A denial holds until a request succeeds: an API server that restarts gives other errors for a while."""
    denied = {"/apis/resource.k8s.io/v1/resourceclaimtemplates"}
    await running.use(PLAIN)
    served = stub.lists.popleft()
    stub.lists.append(status(429))
    stub.forbidden = denied
    running.origin.store.update_policy(NVLINK)
    for forbidden, reason in ((denied, "403"), (set(), "429"), (denied, "403")):
        stub.forbidden = forbidden
        running.failures.clear()
        await shell.until(lambda reason=reason: (TEMPLATES, reason) in running.failures)
        assert running.origin.is_denied(resources.CLAIM_TEMPLATES), reason
        assert not running.origin.find_cache_problem(), reason
    stub.lists[0], stub.forbidden = served, set()
    await shell.until(lambda: not running.origin.is_denied(resources.CLAIM_TEMPLATES))


async def test_the_caches_are_incomplete_until_the_objects_for_a_new_policy_are_read(running):
    await running.use(PLAIN)
    running.origin.store.update_policy(CLAIMED)
    assert TEMPLATES in running.origin.find_cache_problem()
    await shell.until(lambda: not running.origin.find_cache_problem())
