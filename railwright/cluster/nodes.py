"""Parses YAML text into nodes: values as written, each with its line.

Handles the event stream, anchors, nesting, and the types of scalars in YAML 1.1. `documents` builds the values.
Nested text is parsed without recursion, so that no text can exhaust the stack.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import yaml

MAX_DEPTH = 64  # the policy needs 7, a Kubernetes object under 30
MAX_NUMBER = 64  # characters of the longest scalar parsed as a number: int() of a long text is quadratic
CORE = "tag:yaml.org,2002:"
TYPED = ("null", "bool", "int", "float")
# libyaml is several times faster; PyYAML's own parser accepts the same language
_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER: Any = yaml.resolver.Resolver()  # Any: the stubs leave its methods untyped


class DocumentError(ValueError):
    """The text is not one acceptable document. `line` is 1-based, None if the problem has no line."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem if line is None else f"line {line}: {problem}")
        self.problem = problem
        self.line = line


@dataclasses.dataclass(slots=True)
class Node:
    """A value as written: scalars keep their text, mappings the order of their keys, both their lines."""

    kind: Literal["scalar", "mapping", "sequence"]
    line: int
    tag: str = ""  # of scalars: the type in YAML 1.1, such as str or int, or an explicit tag
    text: str = ""
    style: str | None = None
    # items of a sequence; of a mapping: key, value, key, ...
    items: list["Node"] = dataclasses.field(default_factory=list)

    def pairs(self) -> Iterator[tuple["Node", "Node"]]:
        """Return the pairs of keys and values of a mapping, as written."""
        return zip(self.items[::2], self.items[1::2], strict=True)


def parse(text: str) -> Iterator[Node]:
    """Yield the root node of every document. Raises DocumentError at the first syntax error."""
    try:
        yield from _parse_events(text)
    except yaml.reader.ReaderError as error:
        above = text.count("\n", 0, error.position)
        raise DocumentError(
            f"contains a character that YAML forbids: {_format_reader_reason(error)}", above + 1
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        parts = [part for part in (error.problem, error.context) if part]
        last = len(text.splitlines()) or 1  # the end of the text counts as its last line
        line = None if mark is None else min(mark.line + 1, last)
        raise DocumentError(f"is not YAML: {', '.join(parts)}", line) from None
    except (yaml.YAMLError, UnicodeError):
        raise DocumentError("is not valid UTF-8 YAML") from None


def _format_reader_reason(error: yaml.reader.ReaderError) -> str:
    return f"U+{error.character:04X}" if isinstance(error.character, int) else str(error.reason)


def _parse_events(text: str) -> Iterator[Node]:
    anchors: dict[str, Node] = {}
    open_nodes: list[tuple[Node, str | None]] = []
    event: Any  # the stubs declare marks optional, but a parser always sets them
    for event in yaml.parse(text, Loader=_LOADER):
        line = event.start_mark.line + 1
        match event:
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                if len(open_nodes) >= MAX_DEPTH:
                    raise DocumentError(f"is nested deeper than {MAX_DEPTH} levels", line)
                open_nodes.append((_build_collection(event, line), event.anchor))
                continue
            case yaml.ScalarEvent():
                node, anchor = _build_scalar(event, line), event.anchor
            case yaml.AliasEvent():
                node, anchor = _resolve_alias(anchors, event.anchor or "", line), None
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                node, anchor = open_nodes.pop()
            case _:  # starts and ends of the stream and of documents
                continue
        if anchor is not None:
            anchors[anchor] = node
        if open_nodes:
            open_nodes[-1][0].items.append(node)
        else:
            anchors = {}  # anchors are local to a document
            yield node


def _resolve_alias(anchors: dict[str, Node], anchor: str, line: int) -> Node:
    if anchor not in anchors:
        raise DocumentError(f"*{anchor} refers to no complete anchor above it", line)
    return anchors[anchor]


def _build_collection(event: yaml.MappingStartEvent | yaml.SequenceStartEvent, line: int) -> Node:
    kind: Literal["mapping", "sequence"] = "mapping" if isinstance(event, yaml.MappingStartEvent) else "sequence"
    core = {"mapping": "map", "sequence": "seq"}[kind]
    written = event.tag if event.tag not in (None, "!", f"{CORE}{core}") else ""
    return Node(kind, line, tag=written)


def _build_scalar(event: yaml.ScalarEvent, line: int) -> Node:
    tag: str = event.tag or ""
    if not tag and event.implicit[0] and len(event.value) <= MAX_NUMBER:
        tag = _RESOLVER.resolve(yaml.ScalarNode, event.value, (True, False))
        short = tag.removeprefix(CORE)
        tag = short if short in (*TYPED, "merge") else "str"  # dates and "=" stay text
    elif tag in ("", "!"):
        tag = "str"
    elif tag.removeprefix(CORE) in (*TYPED, "str"):
        tag = tag.removeprefix(CORE)
    return Node("scalar", line, tag, event.value, event.style)
