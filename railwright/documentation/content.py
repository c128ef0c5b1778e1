"""What is generated in the documentation: the parts of pages by name, and the pictures.

Owns the table of makers and the list of files that change. Writes nothing.
"""

import functools
import pathlib
from collections.abc import Iterator, Mapping

from railwright.documentation import blocks, examples, placement, policy, refusals, rules

DOCS = examples.ROOT / "docs"

MAKERS: Mapping[str, blocks.Maker] = {
    "policy-reference": policy.reference,
    "lint-overview": rules.overview,
    "lint-rules": rules.all_rules,
    "file": examples.included,
    "admission": examples.admitted,
    "common-refusals": refusals.common,
    "placement-scene": placement.scene,
    "placement-study": placement.study,
}


def files() -> Iterator[tuple[pathlib.Path, str]]:
    """Each file that is generated, whole or in parts, and the text it has to have."""
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if (filled := blocks.fill(text, MAKERS)) != text or "<!-- generated: " in text:
            yield path, filled
    for name, svg in placement.pictures().items():
        yield DOCS / name, svg


@functools.cache
def stale() -> tuple[pathlib.Path, ...]:
    """The files that are not what they have to be; `python -m railwright.documentation` mends them."""
    return tuple(path for path, text in files() if not path.exists() or path.read_text(encoding="utf-8") != text)
