"""Gangs of 16 on claims that railwright writes, beside a competing gang, over many seeds.

A seed holds NICs of some nodes by other pods, and creates the pods of two gangs in random order. On each published
shape all pods must get true pairs, and all pods of a gang equal rails. Real API server, controllers and kube-scheduler.
Exit code 1 if a seed fails.
"""

import asyncio
import random
import sys
import time
from collections.abc import Sequence

import claim_templates
import control_plane
import machine
import shapes
from plane import claim_gangs, conditions, manifests
from plane import plane as planes

GANG = 16
HELD = 3  # NICs that other pods hold
NAMESPACE = "prove"


async def main() -> int:
    """Run the seeds of each shape; 0 if all hold."""
    options = machine.parse_options(__doc__, only=shapes.NAMES, seeds=20)
    failed = 0
    async with control_plane.run() as plane:
        await plane.make_namespace(NAMESPACE)
        for name in options.only or shapes.NAMES:
            failed += await prove(plane, shapes.load(name), options.seeds)
    return int(failed > 0)


async def prove(plane: planes.Plane, shape: shapes.Shape, seeds: int) -> int:
    """Run the seeds of a shape and print the result; return how many failed."""
    failed, began = 0, time.monotonic()
    async with (
        claim_gangs.offer(plane, shape, shape.nodes) as nodes,
        claim_templates.install(plane, shape, NAMESPACE),
    ):
        for nic in shape.nics:
            await plane.api.create(build_holding_template(shape, nic), namespace=NAMESPACE)
        for seed in range(seeds):
            problems = await try_seed(plane, shape, nodes, seed)
            failed += bool(problems)
            for problem in problems:
                print(f"{shape.name}, seed {seed}: {problem}", flush=True)
            await clear(plane)
        for nic in shape.nics:
            await plane.api.delete("resource.k8s.io/v1/ResourceClaimTemplate", nic.name, NAMESPACE)
    seconds = time.monotonic() - began
    print(f"{shape.title}: {seeds - failed} of {seeds} seeds: true pairs and equal rails ({seconds:.0f} s)", flush=True)
    return failed


async def try_seed(plane: planes.Plane, shape: shapes.Shape, nodes: Sequence[str], seed: int) -> list[str]:
    """Return what is wrong with the pods of a seed."""
    chance = random.Random(f"{shape.name} {seed}")  # noqa: S311 - the same pods every time
    for number, node in enumerate(chance.sample(list(nodes), HELD)):
        pod = claim_gangs.build_claiming_pod(f"holder-{number}", "", chance.choice(shape.nics).name)
        pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
        await plane.api.create(pod, namespace=NAMESPACE)
    await claim_gangs.settle(plane, NAMESPACE, HELD)
    gangs = (f"g{seed}", f"rival{seed}")
    pods = [
        claim_gangs.build_fabric_pod(f"{gang}-{rank}", gang, shape.pod_gpus) for gang in gangs for rank in range(GANG)
    ]
    chance.shuffle(pods)
    await asyncio.gather(*(plane.api.create(pod, namespace=NAMESPACE) for pod in pods))
    allocations = await claim_gangs.settle(plane, NAMESPACE, HELD + len(pods))
    return [problem for gang in gangs for problem in check_gang(shape, allocations, gang)]


def check_gang(shape: shapes.Shape, allocations: Sequence[claim_gangs.Allocation], gang: str) -> list[str]:
    """Return what is wrong with a gang."""
    members = [allocation for allocation in allocations if allocation.gang == gang]
    placed = [allocation for allocation in members if allocation.node]
    rails = {shapes.list_nics(allocation.devices) for allocation in placed}
    problems = [
        f"{allocation.pod}: {allocation.devices} are no pairs"
        for allocation in placed
        if not shape.is_paired(allocation.devices)
    ]
    if len(placed) < GANG:
        reason = next(allocation.message for allocation in members if not allocation.node)
        problems.append(f"{GANG - len(placed)} of {GANG} pods of {gang} wait: {reason}")
    if len(rails) > 1:
        problems.append(f"{len(rails)} sets of rails in {gang}")
    return problems


def build_holding_template(shape: shapes.Shape, nic: shapes.Device) -> dict[str, object]:
    """Return a template that takes one NIC by its RDMA device."""
    rdma = nic.attributes["dra.net/rdmaDevice"]["string"]
    attribute = 'device.attributes["dra.net"].rdmaDevice'
    selector = {"cel": {"expression": f'has({attribute}) && {attribute} == "{rdma}"'}}
    request = {"name": "nic", "exactly": {"deviceClassName": shape.policy["deviceClass"], "selectors": [selector]}}
    return manifests.claim_template(nic.name, {"requests": [request]})


async def clear(plane: planes.Plane) -> None:
    """Remove all pods; returns when no claim holds a device."""
    await plane.remove_pods(NAMESPACE)

    for claim in await plane.api.list("ResourceClaim", NAMESPACE):
        await conditions.gone(plane.api, "ResourceClaim", claim["metadata"]["name"], NAMESPACE)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
