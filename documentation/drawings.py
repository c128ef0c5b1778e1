"""Draws pictures as SVG: a fabric with its busy nodes and the ranks of a gang, and bars.

The output is deterministic and needs no fonts, scripts or other files. The colours work on light and dark pages, and
no information depends on colour alone.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from html import escape

_GAP = 6  # pixels between leaves
_TEXT = 'font-family="sans-serif" fill="#1f2937"'
_STYLES = {
    "free": 'fill="#ffffff" stroke="#9ca3af"',
    "busy": 'fill="#9ca3af" stroke="#6b7280"',
    "gang": 'fill="#1d4ed8" stroke="#1e3a8a"',
}
_WIDTH = 720


@dataclasses.dataclass(frozen=True)
class Layout:
    """Pixels: the width of a fabric, and the side of a node."""

    width: int = _WIDTH
    cell: int = 26


@dataclasses.dataclass(frozen=True)
class Placement:
    """A gang in a fabric: the nodes of other jobs are busy; `ranks` gives the rank on a node."""

    title: str
    subtitle: str
    busy: frozenset[int]
    ranks: Mapping[int, int]

    @property
    def label(self) -> str:
        """Return what the picture says, in words."""
        return f"{self.title}: {self.subtitle}"


_HALF = Layout(width=480, cell=22)


def draw_fabric(placement: Placement, leaves: Mapping[str, Sequence[int]], spines: Mapping[str, str]) -> str:
    """Draw leaves as boxes of nodes, grouped by spine. Grey nodes run other jobs; blue nodes show a rank's number."""
    height, parts = _draw_fabric(placement, leaves, spines, Layout())
    return _draw_picture(placement.label, height, parts)


def compare(
    placements: tuple[Placement, Placement], leaves: Mapping[str, Sequence[int]], spines: Mapping[str, str]
) -> str:
    """Draw the same fabric twice, side by side."""
    drawn = [_draw_fabric(placement, leaves, spines, _HALF) for placement in placements]
    parts = [
        part
        for left, (_, half) in zip((0, _HALF.width), drawn, strict=True)
        for part in (f'<g transform="translate({left})">', *half, "</g>")
    ]
    label = "; ".join(placement.label for placement in placements)
    return _draw_picture(label, max(height for height, _ in drawn), parts, 2 * _HALF.width)


def _draw_fabric(
    placement: Placement, leaves: Mapping[str, Sequence[int]], spines: Mapping[str, str], layout: Layout
) -> tuple[int, list[str]]:
    """Return the height in pixels and the elements."""
    parts = [_draw_text(12, 24, placement.title, 17, "bold"), _draw_text(12, 44, placement.subtitle, 13)]
    top, row = 56, layout.cell + 34
    for spine in dict.fromkeys(spines.values()):
        parts.append(_draw_text(12, top + 14, spine, 13, "bold"))
        left, top = 12, top + 24
        for leaf, nodes in leaves.items():
            if spines[leaf] != spine:
                continue
            width = len(nodes) * layout.cell + 2 * _GAP
            if left + width > layout.width - 12:
                left, top = 12, top + row
            parts.extend(_draw_leaf((left, top), leaf, nodes, placement, layout.cell))
            left += width + _GAP
        top += row + 4
    return top + 8, parts


def draw_bars(title: str, values: Sequence[tuple[str, float]]) -> str:
    """Draw a labelled bar for each value from 0 to 1."""
    parts = [_draw_text(12, 24, title, 15, "bold")]
    for row, (name, value) in enumerate(values):
        top = 40 + row * 34
        colour = "#1d4ed8" if name == "railwright" else "#9ca3af"
        parts.append(_draw_text(12, top + 17, name, 13))
        parts.append(f'<rect x="170" y="{top}" width="{round(value * 460)}" height="24" fill="{colour}"/>')
        parts.append(_draw_text(178 + round(value * 460), top + 17, f"{value:.2f}", 13, "bold"))
    return _draw_picture(
        f"{title}: {', '.join(f'{name} {value:.2f}' for name, value in values)}", 48 + 34 * len(values), parts
    )


def _draw_leaf(at: tuple[int, int], name: str, nodes: Sequence[int], placement: Placement, cell: int) -> Sequence[str]:
    left, top = at
    width = len(nodes) * cell + 2 * _GAP
    parts = [
        f'<rect x="{left}" y="{top}" width="{width}" height="{cell + 24}" rx="4" fill="none" stroke="#9ca3af"/>',
        _draw_text(left + _GAP, top + 13, name if len(nodes) > 1 else name.removeprefix("leaf-"), 10),
    ]
    for index, node in enumerate(nodes):
        kind = "gang" if node in placement.ranks else "busy" if node in placement.busy else "free"
        x = left + _GAP + index * cell
        parts.append(f'<rect x="{x + 1}" y="{top + 18}" width="{cell - 2}" height="{cell - 2}" {_STYLES[kind]}/>')
        if node in placement.ranks:
            parts.append(
                f'<text x="{x + cell // 2}" y="{top + 22 + cell // 2}" font-size="13" font-family="sans-serif" '
                f'fill="#ffffff" text-anchor="middle">{placement.ranks[node]}</text>'
            )
    return parts


def _draw_text(left: int, base: int, text: str, size: int, weight: str = "normal") -> str:
    return f'<text x="{left}" y="{base}" font-size="{size}" font-weight="{weight}" {_TEXT}>{escape(text)}</text>'


def _draw_picture(label: str, height: int, parts: Sequence[str], width: int = _WIDTH) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(label)}">'
    )
    ground = f'<rect width="{width}" height="{height}" rx="6" fill="#f9fafb"/>'
    return "\n".join([head, ground, *parts, "</svg>", ""])
