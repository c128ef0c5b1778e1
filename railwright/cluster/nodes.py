"""YAML text -> nodes: values as written, each with its line.

Owns syntax: the event stream, anchors, nesting, and which type YAML 1.1 takes a scalar for. Executes nothing
and builds no values (`documents` does). Works without recursion over the text's own nesting, so that no text
can exhaust the stack.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import yaml

MAX_DEPTH = 64  # the policy needs 7, a Kubernetes object under 30
MAX_NUMBER = 64  # characters of the longest scalar tried as a number: int() of a long text is quadratic
CORE = "tag:yaml.org,2002:"
TYPED = ("null", "bool", "int", "float")
# libyaml is several times faster; PyYAML's own parser reads the same language
_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER: Any = yaml.resolver.Resolver()  # Any: the stubs leave its methods untyped


class DocumentError(ValueError):
    """The text is not one acceptable document; `line` is 1-based, None where no line is to blame."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem if line is None else f"line {line}: {problem}")
        self.problem = problem
        self.line = line


@dataclasses.dataclass(slots=True)
class Node:
    """A value as written: scalars keep their text, mappings their keys in order, both their lines."""

    kind: Literal["scalar", "mapping", "sequence"]
    line: int
    tag: str = ""  # scalars: what YAML 1.1 takes the text for: str, int, ..., or an explicit tag
    text: str = ""
    style: str | None = None
    items: list["Node"] = dataclasses.field(default_factory=list)  # sequences; mappings: key, value, key, ...

    def pairs(self) -> Iterator[tuple["Node", "Node"]]:
        """Keys and values of a mapping, as written."""
        return zip(self.items[::2], self.items[1::2], strict=True)


def compose(text: str) -> Iterator[Node]:
    """The root node of every document of a stream; raises DocumentError at the first syntax error."""
    try:
        yield from _compose(text)
    except yaml.reader.ReaderError as error:
        above = text.count("\n", 0, error.position)
        raise DocumentError(f"holds a character that YAML forbids: {_reader_reason(error)}", above + 1) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        parts = [part for part in (error.problem, error.context) if part]
        last = len(text.splitlines()) or 1  # the end of the text is on its last line, not below it
        line = None if mark is None else min(mark.line + 1, last)
        raise DocumentError(f"is not YAML: {', '.join(parts)}", line) from None
    except (yaml.YAMLError, UnicodeError):
        raise DocumentError("is not YAML that can be read as UTF-8 text") from None


def _reader_reason(error: yaml.reader.ReaderError) -> str:
    return f"U+{error.character:04X}" if isinstance(error.character, int) else str(error.reason)


def _compose(text: str) -> Iterator[Node]:
    anchors: dict[str, Node] = {}
    open_nodes: list[tuple[Node, str | None]] = []
    event: Any  # the stubs make marks optional, which a parser never does
    for event in yaml.parse(text, Loader=_LOADER):
        line = event.start_mark.line + 1
        match event:
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                if len(open_nodes) >= MAX_DEPTH:
                    raise DocumentError(f"is nested deeper than {MAX_DEPTH} levels", line)
                open_nodes.append((_collection(event, line), event.anchor))
                continue
            case yaml.ScalarEvent():
                node, anchor = _scalar(event, line), event.anchor
            case yaml.AliasEvent():
                node, anchor = _anchored(anchors, event.anchor or "", line), None
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                node, anchor = open_nodes.pop()
            case _:  # starts and ends of the stream and of documents
                continue
        if anchor is not None:
            anchors[anchor] = node
        if open_nodes:
            open_nodes[-1][0].items.append(node)
        else:
            anchors = {}  # an anchor ends with its document
            yield node


def _anchored(anchors: dict[str, Node], anchor: str, line: int) -> Node:
    if anchor not in anchors:
        raise DocumentError(f"*{anchor} refers to nothing that is complete above it", line)
    return anchors[anchor]


def _collection(event: yaml.MappingStartEvent | yaml.SequenceStartEvent, line: int) -> Node:
    kind: Literal["mapping", "sequence"] = "mapping" if isinstance(event, yaml.MappingStartEvent) else "sequence"
    core = {"mapping": "map", "sequence": "seq"}[kind]
    written = event.tag if event.tag not in (None, "!", f"{CORE}{core}") else ""
    return Node(kind, line, tag=written)


def _scalar(event: yaml.ScalarEvent, line: int) -> Node:
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
