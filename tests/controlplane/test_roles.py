"""The roles of manifests/base/user-rbac.yaml on the real API server: what docs/security.md says each gives."""

import asyncio

import pytest_asyncio
import yaml
from plane import manifests
from plane import site as sites

ROLES = list(yaml.safe_load_all((sites.BASE / "user-rbac.yaml").read_text()))


@pytest_asyncio.fixture(loop_scope="session")
async def person(plane, site, person):
    """Somebody without any right, the shipped roles, and the policy."""
    await site.policy(manifests.policy({"ib": manifests.fabric(gpusPerNode=8)}, defaultFabric="ib"))
    for role in ROLES:
        await plane.api.ensure(role)
    yield person
    await plane.kubectl("delete", "clusterrolebinding", person.user, "--ignore-not-found")
    await plane.kubectl("delete", "rolebinding", person.user, "-n", sites.NAMESPACE, "--ignore-not-found")


async def test_view_and_edit_include_pod_groups(plane, namespace, person):
    for role in ("view", "edit"):
        binding = ("create", "rolebinding", role, f"--clusterrole={role}", f"--user={person.user}", "-n", namespace)
        await plane.kubectl(*binding)
        await person.permitted("list", "podgroups.scheduling.volcano.sh", "-n", namespace)
        assert not await person.may("list", "podgroups.scheduling.volcano.sh", "-n", "default")
        assert not await person.may("create", "podgroups.scheduling.volcano.sh", "-n", namespace)
        await plane.kubectl("delete", "rolebinding", role, "-n", namespace)


async def test_the_role_view_suffices_for_gangs_and_fabric(plane, namespace, nodes, person):
    await nodes.make("gpu-0", rails={"nvidia.com/mlx5_0": 1})
    code, _, err = await person("gangs", "-n", namespace)
    assert code == 2, err
    binding = ("create", "clusterrolebinding", person.user, "--clusterrole=railwright-cluster-view")
    await plane.kubectl(*binding, f"--user={person.user}")
    await person.permitted("list", "nodes")
    gangs, fabric = await asyncio.gather(person("gangs", "-n", namespace), person("fabric", "ib"))
    assert (gangs[0], gangs[2]) == (0, ""), gangs
    assert (fabric[0], fabric[2]) == (0, ""), fabric
    assert "gpu-0" in fabric[1]
    for verb, resource in (("create", "pods"), ("get", "secrets"), ("list", "configmaps"), ("patch", "nodes")):
        assert not await person.may(verb, resource), (verb, resource)


async def test_the_role_for_users_gets_policy_and_explanations(plane, person):
    code, _, err = await person("verify", "manifest", "--fabric", "ib")
    assert code == 2, err
    place = ("-n", sites.NAMESPACE)
    await plane.kubectl("create", "rolebinding", person.user, "--role=railwright-user", f"--user={person.user}", *place)
    await person.permitted("get", "configmaps/railwright-policy", *place)
    code, out, _ = await person("verify", "manifest", "--fabric", "ib")
    assert code == 0
    assert "railwright.io/fabric: ib" in out
    proxied = "services/https:railwright-extender:8713"
    assert await person.may("get", proxied, "--subresource=proxy", *place)
    for verb in ("create", "update", "patch", "delete"):
        assert not await person.may(verb, proxied, "--subresource=proxy", *place), verb
    for resource in ("services/https:railwright-webhook:443", "services/railwright-extender"):
        assert not await person.may("get", resource, "--subresource=proxy", *place), resource
    for resource in ("secrets", "pods", "configmaps"):
        assert not await person.may("get", resource, *place), resource
