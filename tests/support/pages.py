"""Reads the documentation: pages, their anchors, links and code blocks. Reads Markdown as MkDocs' site renders it."""

import dataclasses
import pathlib
import re
import unicodedata

import yaml

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
AROUND = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md", "SECURITY.md")]

_FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(r"(?<!\\)\]\((?P<target>[^)\s]+)(?: \"[^\"]*\")?\)")
_HEADING = re.compile(r"^#{1,6} +(?P<text>.+?)(?: *\{ *#(?P<id>[\w-]+) *\})? *#* *$", re.MULTILINE)
_NAMED = re.compile(r"<a (?:id|name)=\"(?P<id>[^\"]+)\"")
_ATTRIBUTE = re.compile(r"\{ *#(?P<id>[\w-]+) *\}")


class Loader(yaml.SafeLoader):
    """MkDocs' configuration, with its one tag: a variable of the environment and its default."""


Loader.add_constructor("!ENV", lambda loader, node: loader.construct_sequence(node)[-1])
SITE = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)  # noqa: S506 - a SafeLoader


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block: its language and its text, without the indentation of a list around it."""

    page: pathlib.Path
    language: str
    text: str

    @property
    def title(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {self.text.strip().splitlines()[0][:60] if self.text.strip() else ''}"


def blocks(page: pathlib.Path) -> list[Block]:
    blocks = []
    for match in _FENCE.finditer(page.read_text()):
        indent = len(match["indent"])
        lines = [line[indent:] for line in match["body"].splitlines()]
        blocks.append(Block(page, match["info"].split(" ")[0].strip(), "\n".join(lines)))
    return blocks


def prose(page: pathlib.Path) -> str:
    """Return the page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def links(page: pathlib.Path) -> list[str]:
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    return [match["target"] for match in _LINK.finditer(text)]


def anchors(page: pathlib.Path) -> set[str]:
    """Return the anchors of the page on the site; of equal headings only the first has the anchor without a number."""
    text = prose(page)
    ids = {match["id"] for pattern in (_NAMED, _ATTRIBUTE) for match in pattern.finditer(text)}
    return ids | {match["id"] or slug(match["text"]) for match in _HEADING.finditer(text)}


def slug(heading: str) -> str:
    """Return a heading's anchor as Python-Markdown builds it: letters, digits, `_` and `-`, spaces as one `-`."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    ascii_only = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower())
