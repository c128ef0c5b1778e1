"""Fills the generated parts of a page, from `<!-- generated: NAME WORD... -->` to `<!-- end of generated -->`."""

import re
from collections.abc import Callable, Mapping

Maker = Callable[..., str]  # the words after the name -> Markdown

_BLOCK = re.compile(r"<!-- generated: (?P<words>[^\n]+?) -->\n.*?<!-- end of generated -->", re.DOTALL)


class UnknownBlockError(ValueError):
    """Raised for a page that names an unknown generated part."""


def fill(text: str, makers: Mapping[str, Maker]) -> str:
    """Return the page with all generated parts updated."""

    def make_part(match: re.Match[str]) -> str:
        name, *words = match["words"].split()
        if name not in makers:
            raise UnknownBlockError(f"generated: {name}: unknown part; the parts are {', '.join(makers)}")
        return f"<!-- generated: {match['words']} -->\n\n{makers[name](*words).strip()}\n\n<!-- end of generated -->"

    return _BLOCK.sub(make_part, text)
