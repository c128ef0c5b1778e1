"""Places one gang in one cluster state by each policy of the simulator, and writes the results into docs/placement.md.

Owns the scene: which nodes are busy, and the size of the gang. The simulator places; `railwright` is the real code.
Every number is modelled, none is measured. The picture is SVG, deterministic, and needs no fonts, scripts or other
files. Its colours work on light and dark pages, and no information depends on colour alone.
"""

import functools
import pathlib
import random
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from html import escape

import msgspec
from simulator import cluster, policies, simulation

from documentation import markdown
from railwright.cli.demo import objects
from railwright.fabric import text

DOCS = markdown.ROOT / "docs"
TITLES = {
    "none": "no extender",
    "binpack": "binpack",
    "greedy": "greedy near peers",
    "railwright": "railwright",
    "optimum": "exact optimum",
}
SPINES, RATIO = objects.UNEVEN_64.spines, 7.0  # the hardest published leaves for a gang; 7:1 oversubscribed uplinks
BUSY, GANG = 30, 8  # nodes in use by other jobs, pods of the gang
DRAWS, DRAWN = range(1, 13), 3  # random choices of these nodes, and the one in the picture, not a favourable one
JOBS, LOAD, SEED = 800, 0.9, 1  # of the stream
_WIDTH, _CELL = 480, 22  # pixels: the width of a fabric, and the side of a node
_GAP = 6  # pixels between leaves
_TEXT = 'font-family="sans-serif" fill="#1f2937"'
_STYLES = {
    "free": 'fill="#ffffff" stroke="#9ca3af"',
    "busy": 'fill="#9ca3af" stroke="#6b7280"',
    "gang": 'fill="#1d4ed8" stroke="#1e3a8a"',
}


class GangPlacement(msgspec.Struct, frozen=True):
    """The placement of the gang by one policy."""

    policy: str
    bandwidth: float  # modelled, relative to an ideal placement
    leaves: int
    crossings: int  # ring edges between leaves
    hosts: tuple[int, ...]  # of each rank
    busy: tuple[int, ...]  # nodes of other jobs

    @property
    def title(self) -> str:
        """Return the scheduler that placed the gang."""
        return TITLES[self.policy]

    @property
    def result(self) -> str:
        """Return what that means for the gang."""
        return f"{text.format_count(self.leaves, 'leaf')}, modelled bandwidth {self.bandwidth:.2f}"


def list_files() -> Mapping[pathlib.Path, str]:
    """Return the text of the page and of the picture."""
    page = DOCS / "placement.md"
    filled = page.read_text()
    for name, table in (("scene", format_scene()), ("study", format_study())):
        block = re.compile(f"<!-- simulated: {name} -->\n.*?<!-- end of simulated -->", re.DOTALL)
        filled, count = block.subn(f"<!-- simulated: {name} -->\n\n{table}\n\n<!-- end of simulated -->", filled)
        assert count == 1, name
    return {page: filled, DOCS / "placement-compared.svg": draw_comparison()}


def format_scene() -> str:
    """Return the table of the gang, in Markdown."""
    rows = [
        (row.title, str(row.leaves), str(row.crossings), f"{row.bandwidth:.2f}", f"{mean(row.policy):.2f}")
        for row in place_gang()
    ]
    columns = ("placed by", "leaves", "ring edges between leaves", "modelled bandwidth", "mean of 12 examples")
    return markdown.format_table(columns, rows)


def format_study() -> str:
    """Return the table of a stream of jobs, in Markdown."""
    jobs = list(simulation.draw_jobs(len(_build_cluster().hosts) * cluster.GPUS, load=LOAD, count=JOBS, seed=SEED))
    summaries = {
        policy: simulation.summarize(simulation.Simulation(_build_cluster(), policies.POLICIES[policy]).run(jobs))
        for policy in TITLES
    }
    rows = [
        (
            TITLES[policy],
            f"{row.share:.2f}",
            f"{row.worst_gang:.2f}",
            f"{row.leaves_of_fewest:.2f}",
            str(row.avoidable_crossings),
        )
        for policy, row in summaries.items()
    ]
    columns = ("placed by", "bandwidth / optimum", "worst gang", "leaves / fewest possible", "avoidable crossings")
    return f"{markdown.format_table(columns, rows)}\n\n{summaries['none'].gangs} gangs in {JOBS} jobs."


@functools.cache
def place_gang(draw: int = DRAWN) -> tuple[GangPlacement, ...]:
    """Place the gang by each policy of the simulator, on the same free nodes."""
    return tuple(_place_by(policy, list_busy_nodes(draw)) for policy in TITLES)


def mean(policy: str) -> float:
    """Return the mean modelled bandwidth of the gang under one policy, over all draws."""
    return statistics.fmean(
        placement.bandwidth for draw in DRAWS for placement in place_gang(draw) if placement.policy == policy
    )


def _place_by(policy: str, busy: Sequence[int]) -> GangPlacement:
    sim_cluster = _build_cluster()
    run = simulation.Simulation(sim_cluster, policies.POLICIES[policy])
    for number, host in enumerate(busy, 1):
        run.start(policies.Job(-number, 0.0, 9e9, 1, cluster.GPUS), [host])
    placed = run.run([policies.Job(0, 1.0, 60.0, GANG, cluster.GPUS)])[0]
    actual = placed.actual
    return GangPlacement(policy, actual.value, actual.leaves, actual.crossings, tuple(placed.hosts), tuple(busy))


def _build_cluster() -> cluster.Cluster:
    return cluster.Cluster(SPINES, (RATIO,))


def list_busy_nodes(draw: int) -> tuple[int, ...]:
    """Return the nodes that other jobs use."""
    nodes = range(len(_build_cluster().hosts))
    return tuple(random.Random(draw).sample(nodes, BUSY))  # noqa: S311 - a scene has to be repeatable, not secret


# --- the picture ------------------------------------------------------------------------------------------


def draw_comparison() -> str:
    """Draw the fabric without an extender and with railwright, side by side.

    Leaves are boxes of nodes, below their spine. Grey nodes run other jobs; blue nodes show a rank's number.
    """
    gangs = [gang for gang in place_gang() if gang.policy in {"none", "railwright"}]
    drawn = [_draw_fabric(gang) for gang in gangs]
    parts = [
        part
        for left, (_, half) in zip((0, _WIDTH), drawn, strict=True)
        for part in (f'<g transform="translate({left})">', *half, "</g>")
    ]
    label = escape("; ".join(f"{gang.title}: {gang.result}" for gang in gangs))
    height, width = max(height for height, _ in drawn), 2 * _WIDTH
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">'
    ground = f'<rect width="{width}" height="{height}" rx="6" fill="#f9fafb"/>'
    return "\n".join([head, ground, *parts, "</svg>", ""])


def _draw_fabric(gang: GangPlacement) -> tuple[int, list[str]]:
    """Return the height in pixels and the elements."""
    leaves, spines = _group_leaves()
    parts = [_draw_text(12, 24, gang.title, 17, "bold"), _draw_text(12, 44, gang.result, 13)]
    top, row = 56, _CELL + 34
    for spine in dict.fromkeys(spines.values()):
        parts.append(_draw_text(12, top + 14, spine, 13, "bold"))
        left, top = 12, top + 24
        for leaf, nodes in leaves.items():
            if spines[leaf] != spine:
                continue
            width = len(nodes) * _CELL + 2 * _GAP
            if left + width > _WIDTH - 12:
                left, top = 12, top + row
            parts.extend(_draw_leaf((left, top), leaf, nodes, gang))
            left += width + _GAP
        top += row + 4
    return top + 8, parts


def _group_leaves() -> tuple[dict[str, list[int]], dict[str, str]]:
    """Return (leaf -> nodes, leaf -> spine)."""
    sim_cluster = _build_cluster()
    leaves: dict[str, list[int]] = {}
    spines: dict[str, str] = {}
    for index, host in enumerate(sim_cluster.hosts):
        leaf, spine = (sim_cluster.domains[number].name for number in host.chain)
        leaves.setdefault(leaf, []).append(index)
        spines[leaf] = spine
    return leaves, spines


def _draw_leaf(at: tuple[int, int], name: str, nodes: Sequence[int], gang: GangPlacement) -> Sequence[str]:
    left, top = at
    width = len(nodes) * _CELL + 2 * _GAP
    parts = [
        f'<rect x="{left}" y="{top}" width="{width}" height="{_CELL + 24}" rx="4" fill="none" stroke="#9ca3af"/>',
        _draw_text(left + _GAP, top + 13, name if len(nodes) > 1 else name.removeprefix("leaf-"), 10),
    ]
    for index, node in enumerate(nodes):
        kind = "gang" if node in gang.hosts else "busy" if node in gang.busy else "free"
        x = left + _GAP + index * _CELL
        parts.append(f'<rect x="{x + 1}" y="{top + 18}" width="{_CELL - 2}" height="{_CELL - 2}" {_STYLES[kind]}/>')
        if node in gang.hosts:
            parts.append(
                f'<text x="{x + _CELL // 2}" y="{top + 22 + _CELL // 2}" font-size="13" font-family="sans-serif" '
                f'fill="#ffffff" text-anchor="middle">{gang.hosts.index(node)}</text>'
            )
    return parts


def _draw_text(left: int, base: int, text: str, size: int, weight: str = "normal") -> str:
    return f'<text x="{left}" y="{base}" font-size="{size}" font-weight="{weight}" {_TEXT}>{escape(text)}</text>'


def main() -> int:
    """Write the page and the picture."""
    for path, content in list_files().items():
        path.write_text(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
