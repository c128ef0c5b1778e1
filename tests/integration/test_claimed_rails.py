"""Rails requested by claims, on the real API server and its allocator: pods are placed as the extender planned."""

import claimed
import devices
import pytest_asyncio
import yaml
from plane import claim_gangs, commands, gangs, site, waiting

GANGS, SIZE = 4, 10
RAIL_BY_DEVICE = {f"pci-0000-{root}-1b-0": rail for rail, root in zip(claimed.RAILS, devices.ROOTS, strict=True)}
ROOT_BY_DEVICE = {f"pci-0000-{root}-1b-0": root for root in devices.ROOTS}
ROOT_BY_DEVICE |= {f"gpu-{number}": devices.ROOTS[number // 2] for number in range(8)}
TEMPLATES = {"low": (0, 1), "high": (2, 3)}
CLASSES = (devices.GPU_CLASS, devices.NIC_CLASS)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def claims(plane, device_classes):
    """Yield the installation, configured in kube-scheduler, with a policy with claims, and the device classes."""
    async with gangs.running(plane) as running:
        text = yaml.safe_dump(claimed.build_document())
        await running.policy(text)
        await site.wait_policy(running.extender, text)
        yield running


def build_probe(namespace, template):
    """Return a pod for `gangs.wait_until_taken`."""
    tree = build_pod("probe", template)
    return {**tree, "metadata": {**tree["metadata"], "namespace": namespace}}


async def create_templates(client, namespace):
    for name, rails in TEMPLATES.items():
        await client.create(claimed.build_template_tree(name, rails), namespace=namespace)


def build_pod(name, template, *, gang=""):
    """Return an injected pod: devices by claims, and a limit that makes schedulers call the extender."""
    labels = {"railwright.io/fabric": claimed.FABRIC, "name": name} | ({gangs.GROUP: gang} if gang else {})
    tree = gangs.pod(name, gpus=0, rails={}, labels=labels)
    tree["spec"]["resourceClaims"] = [{"name": "railwright", "resourceClaimTemplateName": template}]
    tree["spec"]["containers"][0]["resources"] = {"claims": [{"name": "railwright"}], "limits": {gangs.RAILS[0]: "0"}}
    return tree


async def test_pods_get_the_planned_rails_and_pairs(plane, claims, namespace, nodes):
    await gangs.make_leaves(nodes, None, a=SIZE, b=SIZE)
    client = plane.api
    await create_templates(client, namespace)
    for number in range(GANGS):
        gang, template = f"g{number}", sorted(TEMPLATES)[number % 2]
        pods = [build_pod(f"{gang}-{rank}", template, gang=gang) for rank in range(SIZE)]
        await gangs.release(client, namespace, pods, seen_by=claims.extender)
        bound = await gangs.wait_bound(client, namespace, SIZE, f"{gangs.GROUP}={gang}", seconds=120)
        assert len(set(gangs.list_leaves(bound))) == 1, gangs.list_leaves(bound)  # as planned: the gang fills a leaf
        assert len(set(map(gangs.get_node, bound))) == SIZE
        probe = build_probe(namespace, template)
        await gangs.wait_until_taken(claims, *map(gangs.get_node, bound), probe=probe)
    places = {pod["metadata"]["name"]: gangs.get_node(pod) for pod in await client.list("Pod", namespace)}
    allocated = await claim_gangs.list_results(client, namespace)
    assert len(allocated) == GANGS * SIZE
    for pod, results in allocated.items():
        rails = TEMPLATES[sorted(TEMPLATES)[int(pod[1:].partition("-")[0]) % 2]]
        assert {result["pool"] for result in results} == {places[pod]}
        held = {result["request"]: result["device"] for result in results}
        for number, rail in enumerate(rails):
            nic, gpu = held[claimed.RAILS[rail]], held[f"gpu{number}"]
            assert RAIL_BY_DEVICE[nic] == claimed.RAILS[rail]
            assert ROOT_BY_DEVICE[nic] == ROOT_BY_DEVICE[gpu], (pod, results)
    taken = {(result["pool"], result["device"]) for results in allocated.values() for result in results}
    assert len(taken) == 4 * GANGS * SIZE
    for rail in claimed.RAILS:
        await site.wait_metric(
            claims.extender,
            "railwright_rail_devices",
            GANGS * SIZE / 2,
            fabric=claimed.FABRIC,
            rail=rail,
            state="busy",
        )


async def test_a_gang_waits_for_its_rails_with_the_reason(plane, claims, namespace, nodes):
    await gangs.make_leaves(nodes, None, n=2)
    client = plane.api
    await create_templates(client, namespace)
    await client.create(build_pod("holder", "low"), namespace=namespace)
    place = await gangs.wait_for_node(client, namespace, "holder")
    await gangs.wait_until_taken(claims, place, probe=build_probe(namespace, "low"))
    await gangs.release(
        client, namespace, [build_pod(f"g-{rank}", "low", gang="g") for rank in range(2)], seen_by=claims.extender
    )

    async def is_explained() -> bool:
        said = await commands.explain(plane, claims.extender, namespace, "g-0")
        assert f"is used by {namespace}/holder" in said["gang"]["why"][-1]["message"], said
        return True

    await waiting.wait(is_explained, describe="the extender to name the pod that the gang waits for")
    await client.delete("Pod", "holder", namespace, grace=0)
    bound = await gangs.wait_bound(client, namespace, 2, f"{gangs.GROUP}=g")
    assert place in set(map(gangs.get_node, bound))
