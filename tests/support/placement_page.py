"""Places one gang in one cluster state in several ways, and writes the results into docs/placement.md.

Defines which nodes are busy, and the size of the gang. `railwright` is the real code. Every number is modelled
by `small_clusters`, none is measured. The picture is SVG, deterministic, and needs no fonts, scripts or other
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
import scheduling_loop
import small_clusters as small

from documentation import markdown
from railwright.cli.demo import scenario
from railwright.fabric import text

DOCS = markdown.ROOT / "docs"
RATIO = 7.0  # oversubscription of the uplinks of leaves, as in Meta's RoCE clusters (SIGCOMM'24)
BUSY, GANG = 30, small.Job(8)  # nodes in use by other jobs, and pods of the gang
DRAWS, DRAWN = range(1, 13), 3  # random choices of these nodes, and the one in the picture, not a favourable one
_WIDTH, _CELL = 480, 22  # pixels: the width of a fabric, and the side of a node
_GAP = 6  # pixels between leaves
_TEXT = 'font-family="sans-serif" fill="#1f2937"'
_STYLES = {
    "free": 'fill="#ffffff" stroke="#9ca3af"',
    "busy": 'fill="#9ca3af" stroke="#6b7280"',
    "gang": 'fill="#1d4ed8" stroke="#1e3a8a"',
}


class GangPlacement(msgspec.Struct, frozen=True):
    """The placement of the gang by one scheduler."""

    title: str
    bandwidth: float  # modelled, relative to an ideal placement
    leaves: int
    crossings: int  # ring edges between leaves
    hosts: tuple[int, ...]  # of each rank
    busy: tuple[int, ...]  # nodes of other jobs

    @property
    def result(self) -> str:
        """The number of leaves and the modelled bandwidth, in words."""
        return f"{text.format_count(self.leaves, 'leaf')}, modelled bandwidth {self.bandwidth:.2f}"


def list_files() -> Mapping[pathlib.Path, str]:
    """Return the text of the page and of the picture."""
    page = DOCS / "placement.md"
    block = re.compile("<!-- computed: scene -->\n.*?<!-- end of computed -->", re.DOTALL)
    scene = f"<!-- computed: scene -->\n\n{format_scene()}\n\n<!-- end of computed -->"
    filled, count = block.subn(scene, page.read_text())
    assert count == 1
    return {page: filled, DOCS / "placement-compared.svg": draw_comparison()}


def format_scene() -> str:
    """Return the table of the gang, in Markdown."""
    rows = [
        (row.title, str(row.leaves), str(row.crossings), f"{row.bandwidth:.2f}", f"{mean(row.title):.2f}")
        for row in place_gang()
    ]
    rows.append(
        ("exact optimum", "-", "-", f"{find_optimum(DRAWN):.2f}", f"{statistics.fmean(map(find_optimum, DRAWS)):.2f}")
    )
    columns = ("placed by", "leaves", "ring edges between leaves", "modelled bandwidth", "mean of 12 examples")
    return markdown.format_table(columns, rows)


@functools.cache
def place_gang(draw: int = DRAWN) -> tuple[GangPlacement, ...]:
    """Place the gang on the same free nodes: on any of them, near its peers, and by railwright."""
    cluster, busy = build_scene(draw)
    order = random.Random(draw).sample(range(len(cluster.hosts)), len(cluster.hosts))  # noqa: S311 - to be repeatable
    free = [host for host in order if small.count_room(cluster, host, GANG)]
    shuffled = small.Cluster(
        tuple(cluster.hosts[host] for host in order), cluster.ratios, tuple(cluster.taken[host] for host in order)
    )
    others = [(host, small.Job(1)) for host in busy]
    placements = {
        "no extender": free[: GANG.pods],
        "greedy near peers": [order[host] for host in small.place_greedily(shuffled, GANG)],
        "railwright": scheduling_loop.place_gang(scheduling_loop.build_loop(cluster, others), cluster, GANG, "g"),
    }
    return tuple(
        GangPlacement(
            title,
            small.compute_bandwidth(cluster, GANG, hosts),
            len({cluster.hosts[host].chain[0] for host in hosts}),
            small.count_leaving_edges(cluster, hosts, 0).total(),
            tuple(hosts),
            busy,
        )
        for title, hosts in placements.items()
    )


def mean(title: str) -> float:
    """Return the mean modelled bandwidth of the gang under one scheduler, over all draws."""
    return statistics.fmean(
        placement.bandwidth for draw in DRAWS for placement in place_gang(draw) if placement.title == title
    )


@functools.cache
def find_optimum(draw: int) -> float:
    """Return the highest modelled bandwidth that the gang can have."""
    return small.find_best_bandwidth(build_scene(draw)[0], GANG) or 0.0


def build_scene(draw: int) -> tuple[small.Cluster, tuple[int, ...]]:
    """Return the cluster, and its nodes that other jobs use."""
    hosts: list[small.Host] = []
    leaves = 0
    for spine, sizes in scenario.SPINES.items():  # the hardest published leaves for a gang
        for size in sizes:
            leaf = f"leaf-{leaves:02}"
            hosts += [small.Host(f"{leaf}-{index:02}", (leaf, spine)) for index in range(size)]
            leaves += 1
    busy = tuple(random.Random(draw).sample(range(len(hosts)), BUSY))  # noqa: S311 - to be repeatable
    idle = small.Cluster(tuple(hosts), (RATIO, 1.0), ((0, {}),) * len(hosts))
    return small.take_hosts(idle, small.Job(1), busy), busy


# --- the picture ------------------------------------------------------------------------------------------


def draw_comparison() -> str:
    """Draw the fabric without an extender and with railwright, side by side.

    Leaves are boxes of nodes, below their spine. Grey nodes run other jobs; blue nodes show a rank's number.
    """
    gangs = [gang for gang in place_gang() if gang.title in {"no extender", "railwright"}]
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
    leaves: dict[str, list[int]] = {}
    spines: dict[str, str] = {}
    for index, host in enumerate(build_scene(DRAWN)[0].hosts):
        leaf, spine = host.chain
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
