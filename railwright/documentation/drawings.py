"""Draws pictures as SVG: a fabric with its busy nodes and the ranks of a gang, and bars.

The output is deterministic and needs no fonts, scripts or other files. The colours work on light and dark pages, and
no information depends on colour alone.
"""

from collections.abc import Mapping, Sequence
from html import escape

_CELL, _GAP = 26, 6  # pixels of a node, and between leaves
_TEXT = 'font-family="sans-serif" fill="#1f2937"'
_STYLES = {
    "free": 'fill="#ffffff" stroke="#9ca3af"',
    "busy": 'fill="#9ca3af" stroke="#6b7280"',
    "gang": 'fill="#1d4ed8" stroke="#1e3a8a"',
}
_WIDTH = 720


def fabric(  # noqa: PLR0913 - the parts of one picture
    title: str,
    subtitle: str,
    leaves: Mapping[str, Sequence[int]],
    spines: Mapping[str, str],
    *,
    busy: frozenset[int],
    ranks: Mapping[int, int],
) -> str:
    """Draw leaves as boxes of nodes, grouped by spine. Grey nodes run other jobs; blue nodes show a rank's number."""
    parts: list[str] = []
    top = 56
    for spine in dict.fromkeys(spines.values()):
        parts.append(_text(12, top + 14, spine, 13, "bold"))
        left, top, height = 12, top + 24, 0
        for leaf, nodes in leaves.items():
            if spines[leaf] != spine:
                continue
            width = len(nodes) * _CELL + 2 * _GAP
            if left + width > _WIDTH - 12:
                left, top = 12, top + _CELL + 34
            parts.extend(_leaf((left, top), leaf, nodes, busy, ranks))
            left, height = left + width + _GAP, _CELL + 34
        top += height + 4
    return _picture(
        f"{title}: {subtitle}", top + 8, [_text(12, 24, title, 17, "bold"), _text(12, 44, subtitle, 13), *parts]
    )


def bars(title: str, values: Sequence[tuple[str, float]]) -> str:
    """Draw a labelled bar for each value from 0 to 1."""
    parts = [_text(12, 24, title, 15, "bold")]
    for row, (name, value) in enumerate(values):
        top = 40 + row * 34
        colour = "#1d4ed8" if name == "railwright" else "#9ca3af"
        parts.append(_text(12, top + 17, name, 13))
        parts.append(f'<rect x="170" y="{top}" width="{round(value * 460)}" height="24" fill="{colour}"/>')
        parts.append(_text(178 + round(value * 460), top + 17, f"{value:.2f}", 13, "bold"))
    return _picture(
        f"{title}: {', '.join(f'{name} {value:.2f}' for name, value in values)}", 48 + 34 * len(values), parts
    )


def _leaf(
    at: tuple[int, int], name: str, nodes: Sequence[int], busy: frozenset[int], ranks: Mapping[int, int]
) -> Sequence[str]:
    left, top = at
    width = len(nodes) * _CELL + 2 * _GAP
    parts = [
        f'<rect x="{left}" y="{top}" width="{width}" height="{_CELL + 24}" rx="4" fill="none" stroke="#9ca3af"/>',
        _text(left + _GAP, top + 13, name if len(nodes) > 1 else name.removeprefix("leaf-"), 10),
    ]
    for index, node in enumerate(nodes):
        kind = "gang" if node in ranks else "busy" if node in busy else "free"
        x = left + _GAP + index * _CELL
        parts.append(f'<rect x="{x + 1}" y="{top + 18}" width="{_CELL - 2}" height="{_CELL - 2}" {_STYLES[kind]}/>')
        if node in ranks:
            parts.append(
                f'<text x="{x + _CELL // 2}" y="{top + 35}" font-size="13" font-family="sans-serif" '
                f'fill="#ffffff" text-anchor="middle">{ranks[node]}</text>'
            )
    return parts


def _text(left: int, base: int, text: str, size: int, weight: str = "normal") -> str:
    return f'<text x="{left}" y="{base}" font-size="{size}" font-weight="{weight}" {_TEXT}>{escape(text)}</text>'


def _picture(label: str, height: int, parts: Sequence[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{escape(label)}">'
    )
    ground = f'<rect width="{_WIDTH}" height="{height}" rx="6" fill="#f9fafb"/>'
    return "\n".join([head, ground, *parts, "</svg>", ""])
