"""Draws what each RDMA device carried while one rail after another was written on: a recorded run of tests/e2e/rdma.

Owns the data file: packets that each device of a node sent and received, for each rail in turn. 800 of them carry 4,096
bytes each; the others are acknowledgements.
"""

import json
import pathlib
from collections.abc import Mapping

_DATA = pathlib.Path(__file__).with_suffix(".json")
_LEFT, _BAR, _ROW, _WIDTH = 190, 9, 62, 640
_COLOURS = ("#2563eb", "#059669", "#d97706", "#7c3aed")
_TEXT = 'font-family="sans-serif" fill="#111827"'


def draw() -> str:
    """Return the picture: a row for each rail that was written on, with a bar for each device."""
    writes: list[Mapping[str, int]] = json.loads(_DATA.read_text())["writes"]
    largest = max(max(packets.values()) for packets in writes)
    parts = []
    for rail, packets in enumerate(writes):
        top = 40 + rail * _ROW
        parts.append(f'<text x="12" y="{top + 20}" font-size="13" {_TEXT}>written on rail{rail}</text>')
        for index, (device, count) in enumerate(packets.items()):
            y, width = top + index * (_BAR + 3), max(1, (_WIDTH - _LEFT - 90) * count // largest)
            parts += [
                f'<text x="{_LEFT - 8}" y="{y + _BAR}" font-size="10" text-anchor="end" {_TEXT}>{device}</text>',
                f'<rect x="{_LEFT}" y="{y}" width="{width}" height="{_BAR}" fill="{_COLOURS[index]}"/>',
                f'<text x="{_LEFT + width + 6}" y="{y + _BAR}" font-size="10" {_TEXT}>{count}</text>',
            ]
    height = 40 + len(writes) * _ROW
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img"'
    head += ' aria-label="Each write is carried by the device of its rail, and by no other">'
    title = (
        f'<text x="12" y="22" font-size="15" font-weight="bold" {_TEXT}>Packets of each RDMA device of a node</text>'
    )
    ground = f'<rect width="{_WIDTH}" height="{height}" rx="6" fill="#f9fafb"/>'
    return "\n".join([head, ground, title, *parts, "</svg>", ""])
