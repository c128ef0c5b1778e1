"""Compares published ResourceClaimTemplates with railwright's on six node shapes.

100 pods of each template, six gangs of 16 and four single pods, on nodes that could hold all of them with true pairs
and equal rails. Pods of railwright's rows have only its label, and the real webhook writes their claims. The real
kube-scheduler allocates. Counts pods that are never scheduled, pods whose GPU and NIC are no pair, and gangs whose pods
got different rail sets. Keeps all rows in build/bench/claims.json, so that --only, a part of the names of shape and
template, can measure them one by one; --page rewrites the docs' table. Exit code 1 if a measured row of railwright has
any of these.
"""

import asyncio
import contextlib
import dataclasses
import json
import pathlib
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import control_plane
import machine
import shapes
import yaml
from plane import binaries, claim_gangs, manifests
from plane import plane as planes
from plane import site as sites

ROOT = pathlib.Path(__file__).resolve().parents[2]

GANG, SINGLES = 16, 4
GANGS: Mapping[str, int] = {f"gang{number}": GANG for number in range(6)} | {f"single{n}": 1 for n in range(SINGLES)}
PODS = sum(GANGS.values())
OURS = "railwright"
OUT = ROOT / "build" / "bench" / "claims.json"
PAGE = ROOT / "docs" / "dynamic-resource-allocation.md"
BEGIN, END = "<!-- begin: tests/bench/claim_templates.py -->\n", "<!-- end: tests/bench/claim_templates.py -->\n"


@dataclasses.dataclass(frozen=True)
class Row:
    """Result of 100 pods of a template. `reason` is why the scheduler never placed a pod."""

    shape: str
    template: str
    nodes: int
    waiting: int
    unpaired: int
    gangs: int
    uneven_gangs: int
    reason: str


async def main() -> int:
    """Measure, print a table, and write the results."""
    options = machine.parse_options(__doc__, only="", page=False)
    published = yaml.safe_load((shapes.CLAIMS / "published.yaml").read_text())
    trees = sorted((*published, *map(describe_ours, shapes.NAMES)), key=lambda tree: shapes.NAMES.index(tree["shape"]))
    rows, failed = read_rows(), 0
    async with control_plane.run() as plane:
        for number, template in enumerate(trees):
            if options.only in f"{template['shape']} {template['name']}":
                row = await measure(plane, f"bench-{number}", template)
                rows[row.shape, row.template] = row
                write_rows(rows.values())
                failed += row.template == OURS and (row.waiting, row.unpaired, row.uneven_gangs) != (0, 0, 0)
                print(row, file=sys.stderr, flush=True)
    text = render_table(rows, trees)
    print(text)
    if options.page:
        missing = [f"{tree['shape']} {tree['name']}" for tree in trees if (tree["shape"], tree["name"]) not in rows]
        if missing:
            print(f"{PAGE.name} is not changed; not measured yet: {', '.join(missing)}", file=sys.stderr)
            return 1
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + text + END + rest.partition(END)[2])
    return int(failed > 0)


def read_rows() -> dict[tuple[str, str], Row]:
    """Return the rows that were measured on this version of Kubernetes, by shape and template."""
    document = json.loads(OUT.read_text()) if OUT.exists() else {}
    rows = document["rows"] if document.get("kubernetes") == binaries.release().kubernetes else []
    return {(row["shape"], row["template"]): Row(**row) for row in rows}


def write_rows(rows: Iterable[Row]) -> None:
    """Replace the file of measured rows."""
    OUT.parent.mkdir(parents=True, exist_ok=True)
    trees = [dataclasses.asdict(row) for row in rows]
    OUT.write_text(json.dumps({"kubernetes": binaries.release().kubernetes, "rows": trees}, indent=1))


def describe_ours(name: str) -> dict[str, Any]:
    """Return a row like those of published.yaml for the templates that railwright writes: it has no `devices`."""
    shape = shapes.load(name)
    pod = {"gpus": shape.pod_gpus, "nics": shape.pod_nics}
    source = f"label `railwright.io/fabric`, `pairBy: {shape.policy['pairBy']}`"
    return {"name": OURS, "source": source, "shape": name, "pod": pod, "nodes": shape.nodes}


async def measure(plane: planes.Plane, namespace: str, template: Mapping[str, Any]) -> Row:
    """Create the nodes, the template and the pods of a row, and count what they get."""
    shape = shapes.load(template["shape"])
    await plane.make_namespace(namespace)
    try:
        async with claim_gangs.offer(plane, shape, template["nodes"]):
            async with contextlib.AsyncExitStack() as stack:
                if "devices" in template:
                    manifest = manifests.claim_template("devices", template["devices"])
                    await plane.api.create(manifest, namespace=namespace)
                    build, last = claim_gangs.build_claiming_pod, "devices"
                else:
                    await stack.enter_async_context(install(plane, shape, namespace))
                    build, last = claim_gangs.build_fabric_pod, shape.pod_gpus
                await claim_gangs.create_gangs(plane, namespace, GANGS, lambda name, gang: build(name, gang, last))
                allocations = await claim_gangs.settle(plane, namespace, PODS)
            await plane.remove_pods(namespace)
    finally:
        await plane.remove_namespace(namespace)
    return count(template, shape, allocations)


@contextlib.asynccontextmanager
async def install(plane: planes.Plane, shape: shapes.Shape, namespace: str) -> AsyncIterator[None]:
    """Have railwright write the claims of pods in a namespace, for the length of a block."""
    async with sites.running(plane) as site:
        await site.install(shape.build_policy(), namespace)
        yield


def count(template: Mapping[str, Any], shape: shapes.Shape, allocations: Sequence[claim_gangs.Allocation]) -> Row:
    """Return the row of what pods got."""
    placed = [allocation for allocation in allocations if allocation.node]
    rails: dict[str, set[frozenset[str]]] = {}
    for allocation in placed:
        rails.setdefault(allocation.gang, set()).add(shapes.list_nics(allocation.devices))
    of_gangs = {gang: sets for gang, sets in rails.items() if GANGS[gang] > 1}
    return Row(
        shape=shape.name,
        template=template["name"],
        nodes=template["nodes"],
        waiting=len(allocations) - len(placed),
        unpaired=sum(
            len(allocation.devices) != sum(template["pod"].values()) or not shape.is_paired(allocation.devices)
            for allocation in placed
        ),
        gangs=len(of_gangs),
        uneven_gangs=sum(len(sets) > 1 for sets in of_gangs.values()),
        reason=next((allocation.message for allocation in allocations if not allocation.node), ""),
    )


def render_table(rows: Mapping[tuple[str, str], Row], templates: Sequence[Mapping[str, Any]]) -> str:
    """Return the Markdown table of the rows, by shape and template, in the order of the templates."""
    lines = [
        "| nodes | template | a pod gets | never scheduled | GPU and NIC no pair | gangs with different rails |",
        "|---|---|---|---|---|---|",
    ]
    for tree in templates:
        row = rows.get((tree["shape"], tree["name"]))
        if row is None:
            continue
        pod = f"{tree['pod']['gpus']} GPU, {tree['pod']['nics']} NIC"
        placed = row.waiting < PODS
        cells = (
            f"{row.nodes} {shapes.load(row.shape).title}",
            f"{row.template} ({tree['source']})",
            pod,
            str(row.waiting),
            str(row.unpaired) if placed else "-",
            f"{row.uneven_gangs} of {row.gangs}" if placed else "-",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
