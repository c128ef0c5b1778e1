"""Features of claims on the real API server: a pod that the allocator can serve is placed with railwright too."""

import asyncio
import copy
import pathlib

import devices
import pytest
import pytest_asyncio
import yaml
from plane import kube as kubes

FIELDS = yaml.safe_load(pathlib.Path("tests/data/claim-fields.yaml").read_text())
ROOTS = ("ResourceSliceSpec", "DeviceClaim", "AllocationResult", "DeviceClassSpec", "DeviceTaintRuleSpec")
SLICE = "resource.k8s.io/v1/ResourceSlice"
NIC = "pci-0000-10-1b-0"
TAINT = {"key": "example.com/broken", "value": "yes", "effect": "NoSchedule"}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def claims(plane):
    """Yield the installation beside kube-scheduler, and the device classes."""
    for tree in devices.CLASSES:
        await plane.api.create(tree)
    async with kubes.running(plane, ignored=True) as running:
        yield running
    for tree in devices.CLASSES:
        await plane.api.delete("resource.k8s.io/v1/DeviceClass", tree["metadata"]["name"])


def list_schemas(document):
    """Yield the schemas of resource.k8s.io/v1 by name without its group."""
    for name, schema in document["components"]["schemas"].items():
        _, group, short = name.partition("api.resource.v1.")
        if group:
            yield short, schema


def find_reference(schema):
    """Return the name of the schema that a field's value has, "" if it has none of resource.k8s.io/v1."""
    for inner in (schema, schema.get("items", {}), schema.get("additionalProperties", {})):
        for part in (inner, *inner.get("allOf", ())):
            if "$ref" in part:
                return part["$ref"].partition("api.resource.v1.")[2]
    return ""


async def test_every_field_that_an_allocation_may_depend_on_is_decided_on(plane):
    """A field that a new Kubernetes adds fails this test, until it is read or `claim-fields.yaml` says why not."""
    schemas = dict(list_schemas(await plane.api.request("GET", "/openapi/v3/apis/resource.k8s.io/v1")))
    waiting, undecided = [*ROOTS], []
    seen = set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in schemas:
            continue
        seen.add(name)
        for field, schema in schemas[name]["properties"].items():
            decision = FIELDS.get(name, {}).get(field)
            if decision is None:
                undecided.append(f"{name}.{field}")
            elif decision == "read" and (reference := find_reference(schema)):
                waiting.append(reference)
    assert not undecided
    assert len(seen) > 15, seen


def change_nothing(slices):
    return slices


def share_nic(slices):
    nic = find_nic(slices)
    nic["allowMultipleAllocations"] = True
    nic["capacity"] = {"bandwidth": {"value": "400G", "requestPolicy": {"default": "100G"}}}
    return slices


def taint_nic(slices):
    find_nic(slices)["taints"] = [TAINT]
    return slices


def offer_to_all_nodes(slices):
    nic, own = find_nic(slices), slices[0]["spec"]
    own["devices"].remove(nic)
    shared = copy.deepcopy(slices[0])
    shared["metadata"]["name"] = "network"
    pool = {"name": "network", "generation": 1, "resourceSliceCount": 1}
    shared["spec"] = {"driver": "dra.net", "pool": pool, "allNodes": True, "devices": [nic]}
    return [*slices, shared]


def find_nic(slices):
    return next(device for device in slices[0]["spec"]["devices"] if device["name"] == NIC)


RAIL0 = {"deviceClassName": "rail0"}
ALTERNATIVES = [{"name": f"choice{number}", "deviceClassName": f"rail{number}"} for number in range(2)]
CASES = {
    "a part of a device": (share_nic, {"exactly": RAIL0}, 2),
    "the second choice": (change_nothing, {"firstAvailable": ALTERNATIVES}, 2),
    "a tolerated taint": (taint_nic, {"exactly": RAIL0 | {"tolerations": [{"operator": "Exists"}]}}, 1),
    "a device of all nodes": (offer_to_all_nodes, {"exactly": RAIL0}, 1),
}


@pytest.mark.parametrize("name", CASES)
async def test_a_pod_that_the_allocator_can_serve_is_placed(plane, claims, namespace, nodes, name):
    change, request, pods = CASES[name]
    client = plane.api
    await nodes.make("slices-0", gpus=0, rails={})
    slices = change(devices.build_slices("slices-0"))
    await asyncio.gather(*map(client.create, slices))
    try:
        template = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "rail"},
            "spec": {"spec": {"devices": {"requests": [{"name": "nic", **request}]}}},
        }
        await client.create(template, namespace=namespace)
        for number in range(pods):
            pod = kubes.pod(f"p{number}", gpus=0, rails={}, labels={"name": f"p{number}"})
            pod["spec"]["resourceClaims"] = [{"name": "rail", "resourceClaimTemplateName": "rail"}]
            # a managed resource, so that kube-scheduler calls the extender for a pod without extended resources
            pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "rail"}], "limits": {kubes.RAILS[0]: "0"}}
            await client.create(pod, namespace=namespace)
            assert await kubes.where(client, namespace, f"p{number}") == "slices-0"
    finally:
        await asyncio.gather(*(client.delete(SLICE, tree["metadata"]["name"]) for tree in slices))
