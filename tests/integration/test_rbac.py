"""Compares used with granted permissions by the API server's audit log: none is missing and none is unused.

Threat T14. The log also has the requests of the other tests that run our servers as their accounts.
"""

import asyncio
import pathlib
from collections.abc import Iterator

import pytest
import yaml
from plane import api, audit_log, commands, conditions, gangs, manifests, rotation
from test_explain import Gang

from railwright.cluster import installed_names
from railwright.fabric import names

MANIFESTS = pathlib.Path(__file__).parents[2] / "manifests"
BASE, CLAIMS = MANIFESTS / "base", MANIFESTS / "components" / "claims" / "rbac.yaml"
PREFIX = f"system:serviceaccount:{names.NAMESPACE}:"
WEBHOOK, EXTENDER = "railwright-webhook", "railwright-extender"
PLACEMENT = {"domains": [gangs.LEAF]}
POLICY = manifests.policy(
    {"ib": manifests.fabric(placement=PLACEMENT), "efa": manifests.fabric_of_claims(transport="efa")}
)
# (account, verb, group, resource) -> why a run may be without it
RARE = {
    (EXTENDER, "get", "", "configmaps"): "it starts while the policy is invalid",
    (WEBHOOK, "create", "resource.k8s.io", "resourceclaimtemplates"): "a pod names a template of railwright",
}
Right = tuple[str, str, str]  # verb, group, resource with its subresource


def read_objects() -> list[dict]:
    return [
        document
        for path in (*sorted(BASE.glob("*.yaml")), CLAIMS)
        for document in yaml.safe_load_all(path.read_text())
        if document
    ]


ROLES = {(item["kind"], item["metadata"]["name"]): item for item in read_objects() if item["kind"].endswith("Role")}
BINDINGS = [item for item in read_objects() if item["kind"].endswith("RoleBinding")]
ACCOUNTS = [item["metadata"]["name"] for item in read_objects() if item["kind"] == "ServiceAccount"]


class Grant:
    """One verb on one resource, optionally limited to names or to a namespace."""

    def __init__(self, right: Right, names_: list[str], namespace: str | None):
        self.right, self.names, self.namespace = right, names_, namespace

    def covers(self, call: dict) -> bool:
        there = call["objectRef"]
        return (
            read_right(call) == self.right
            and (not self.names or there.get("name") in self.names)
            and self.namespace in {None, there.get("namespace")}
        )

    def __str__(self) -> str:
        verb, group, resource = self.right
        only = f" named {self.names}" if self.names else ""
        return f"{verb} {resource}.{group}{only} in {self.namespace or 'any namespace'}"


def list_grants(account: str) -> Iterator[Grant]:
    for binding in BINDINGS:
        if not any(
            subject["kind"] == "ServiceAccount" and subject["name"] == account for subject in binding["subjects"]
        ):
            continue
        role = ROLES[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
        for rule in role["rules"]:
            for verb in rule["verbs"]:
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        yield Grant(
                            (verb, group, resource), rule.get("resourceNames", []), binding["metadata"].get("namespace")
                        )


def read_right(call: dict) -> Right:
    there = call["objectRef"]
    resource = "/".join(filter(None, (there.get("resource", ""), there.get("subresource"))))
    return call["verb"], there.get("apiGroup", ""), resource


def list_requests(plane, account: str) -> list[dict]:
    """Return the account's requests so far, from the API server's audit log."""
    return [
        line
        for line in audit_log.read(plane.parts.audit_log)
        if line["user"]["username"] == PREFIX + account
        and "objectRef" in line
        and not any(begin <= line["requestReceivedTimestamp"] <= end for begin, end in plane.without_roles)
    ]


async def exercise_webhook(plane, namespace: str, site) -> None:
    """Create an owned pod that is rejected, which writes an Event."""
    await site.register(namespace)
    owner = await plane.api.create(manifests.build("ConfigMap", "owner"), namespace=namespace)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    pod = manifests.pod(fabric="wrong", limits={})
    pod["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    with pytest.raises(api.ApiError, match="is not a fabric of the policy"):
        await plane.api.create(pod, namespace=namespace)
    await conditions.wait_event(plane.api, namespace, "FabricRefused")


async def exercise_extender(plane, namespace: str, extender, nodes) -> None:
    """Place a gang that does not fit, which writes an Event on its PodGroup, and request an explanation."""
    await nodes.make("gpu-0", rails={gangs.RAILS[0]: 1}, labels={gangs.LEAF: "leaf"})
    gang = await Gang(plane, namespace, extender, "large", 2).make()
    await gang.ask(0, ["gpu-0"])
    token = await commands.make_token(plane, namespace)
    status, _ = await commands.request_explanation(plane, extender, namespace, "large-0", token)
    assert status == 403
    await gang.wait_for_event("GangNeverFits")


async def exercise_certs(plane, namespace: str, site) -> None:
    """Issue the first certificates into the Secrets and configurations of the manifests; then lose some of them."""
    installed = rotation.Rotation(plane, site)
    try:
        await installed.prepare()
        await installed.configure(9, namespace)
        await installed.start()
        await installed.wait_issued("railwright-extender-tls")
        await installed.recreate_secret("railwright-extender-tls")
        written = await installed.wait_for_bundle()
        for _ in range(3):  # another writer overwrites it again and again
            await installed.remove_bundles()
            assert await installed.wait_for_bundle() == written
        await conditions.wait_event(plane.api, "default", installed_names.OVERWRITTEN, "caBundle", of=rotation.NAME)
    finally:
        await installed.remove()
        await plane.api.delete_all("Event", "default")  # `check` of another test would report it for an hour


@pytest.fixture
async def exercised(plane, namespace, nodes, site):
    """Make both servers send each kind of request under their accounts, at the same time."""
    await site.policy(POLICY)
    _, extender = await asyncio.gather(site.start_webhook(), site.start_extender())
    async with asyncio.TaskGroup() as both:
        both.create_task(exercise_webhook(plane, namespace, site))
        both.create_task(exercise_extender(plane, namespace, extender, nodes))
    await exercise_certs(plane, namespace, site)  # after them: for a moment it refuses every opted-in pod


async def test_t14_servers_use_exactly_the_rights_that_their_roles_grant(plane, exercised):
    for account in ACCOUNTS:
        made = list_requests(plane, account)
        assert made, f"no test has run anything as {account}: add what it does to `exercised`"
        # What is also allowed was denied while another test had the roles away, or before they were in effect again.
        rights: dict[bool, set] = {True: set(), False: set()}
        for request in made:
            is_allowed = request["annotations"]["authorization.k8s.io/decision"] == "allow"
            rights[is_allowed].add((read_right(request), request["objectRef"].get("namespace")))
        denied = {right for right, _ in rights[False] - rights[True]}
        assert not denied, f"{account} was denied {denied}: its role lacks them, or it should not ask"
        granted = list(list_grants(account))
        beyond = {read_right(request) for request in made if not any(grant.covers(request) for grant in granted)}
        assert not beyond, f"{account} did {beyond}, which no role of the manifests grants"
        idle = [str(grant) for grant in granted if not is_used(grant, account, made)]
        assert not idle, f"{account} never used {idle}: take them from its role, or give the reason in RARE"


def is_used(grant: Grant, account: str, made: list[dict]) -> bool:
    """Return True for a right that was used, is rarely needed, or is for a kind that the cluster lacks."""
    verb, *resource = grant.right
    if verb == "create" and grant.names:  # an object that was created under a name in the path, by PUT or apply
        writes = [Grant((verb, *resource), grant.names, grant.namespace) for verb in ("update", "patch")]
        return any(
            request["responseStatus"]["code"] == 201 for request in made for write in writes if write.covers(request)
        )
    if any(map(grant.covers, made)) or (account, *grant.right) in RARE:
        return True
    listed = Grant(("list", *resource), grant.names, grant.namespace)
    absent = [request for request in made if listed.covers(request) and request["responseStatus"]["code"] == 404]
    return verb == "watch" and bool(absent)
