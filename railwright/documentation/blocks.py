"""Parts of a page that are generated: `<!-- generated: NAME WORD... -->` down to `<!-- end of generated -->`.

Owns the marks and nothing else. What stands between them is `content`'s.
"""

import re
from collections.abc import Callable, Mapping

Maker = Callable[..., str]  # the words after the name -> Markdown

_BLOCK = re.compile(r"<!-- generated: (?P<words>[^\n]+?) -->\n.*?<!-- end of generated -->", re.DOTALL)


class UnknownBlockError(ValueError):
    """A page asks for something nobody makes."""


def fill(text: str, makers: Mapping[str, Maker]) -> str:
    """The page with every generated part made anew; a page without marks as it is."""

    def made(found: re.Match[str]) -> str:
        name, *words = found["words"].split()
        if name not in makers:
            raise UnknownBlockError(f"generated: {name}: is none of {', '.join(makers)}")
        return f"<!-- generated: {found['words']} -->\n\n{makers[name](*words).strip()}\n\n<!-- end of generated -->"

    return _BLOCK.sub(made, text)
