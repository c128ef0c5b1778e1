"""The roles of manifests/base/user-rbac.yaml on the real API server: each gives the rights in docs/security.md."""

import asyncio
import json

import pytest_asyncio
import yaml
from plane import manifests
from plane import site as sites

ROLES = list(yaml.safe_load_all((sites.BASE / "user-rbac.yaml").read_text()))


@pytest_asyncio.fixture(loop_scope="session")
async def person(plane, site, person):
    """Yield an account without rights; create the shipped roles and a policy."""
    await site.policy(manifests.policy({"ib": manifests.fabric(gpusPerNode=8)}, defaultFabric="ib"))
    for role in ROLES:
        await plane.api.ensure(role)
    yield person
    await plane.api.delete("ClusterRoleBinding", person.user)
    await plane.api.delete("RoleBinding", person.user, sites.NAMESPACE)


async def test_the_roles_view_and_edit_allow_listing_pod_groups(plane, namespace, person):
    for role in ("view", "edit"):
        await person.allow(role, namespace, "list", "podgroups.scheduling.volcano.sh")
        assert not await person.may("list", "podgroups.scheduling.volcano.sh", "default")
        assert not await person.may("create", "podgroups.scheduling.volcano.sh", namespace)
        await plane.api.delete("RoleBinding", person.user, namespace)


async def test_the_role_view_suffices_for_the_commands_gangs_and_fabric(plane, namespace, nodes, person):
    await nodes.make("gpu-0", rails={"nvidia.com/mlx5_0": 1})
    code, _, err = await person("gangs", "-n", namespace)
    assert code == 2, err
    binding = ("create", "clusterrolebinding", person.user, "--clusterrole=railwright-cluster-view")
    await plane.kubectl(*binding, f"--user={person.user}")
    await person.wait_permitted("list", "nodes")
    gangs, fabric = await asyncio.gather(person("gangs", "-n", namespace), person("fabric"))
    assert (gangs[0], gangs[2]) == (0, ""), gangs
    assert (fabric[0], fabric[2]) == (0, ""), fabric
    assert "gpu-0" in fabric[1]
    for verb, resource in (("create", "pods"), ("get", "secrets"), ("list", "configmaps"), ("patch", "nodes")):
        assert not await person.may(verb, resource), (verb, resource)


async def test_the_role_for_users_allows_reading_the_policy_and_explanations(plane, person):
    async def find_source() -> str:
        code, _, err = await person("lint", "-", stdin=json.dumps(manifests.pod()))
        assert code == 0
        return err

    assert "rules that need the fabric were not checked: " in await find_source()
    place = sites.NAMESPACE
    await person.allow("railwright-user", place, "get", "configmaps/railwright-policy", kind="Role")
    assert "rules that need the fabric are checked with the policy in ConfigMap" in await find_source()
    proxied = "services/https:railwright-extender:8713"
    assert await person.may("get", proxied, place, subresource="proxy")
    for verb in ("create", "update", "patch", "delete"):
        assert not await person.may(verb, proxied, place, subresource="proxy"), verb
    for resource in ("services/https:railwright-webhook:443", "services/railwright-extender"):
        assert not await person.may("get", resource, place, subresource="proxy"), resource
    for resource in ("secrets", "pods", "configmaps"):
        assert not await person.may("get", resource, place), resource
