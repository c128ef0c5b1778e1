"""YAML (and so JSON) text -> plain trees, with the line of every path.

Owns reading: bounds, YAML 1.1's scalar rules, aliases, merge keys, duplicate keys. Executes nothing (no tag
but the core ones is known) and refuses to know what a document means. Works on the event stream without
recursion over the text's own nesting, so that no text can exhaust the stack.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, Literal

import yaml

Path = tuple[str | int, ...]

MAX_BYTES = 1024 * 1024  # a ConfigMap holds no more (etcd's request limit, Kubernetes' ConfigMap limit)
MAX_DEPTH = 64  # the policy needs 7, a Kubernetes object under 30
MAX_VALUES = 100_000  # after expanding aliases: far above any policy, far below a billion laughs
_MAX_NUMBER = 64  # characters of the longest scalar tried as a number: int() of a long text is quadratic
_CORE = "tag:yaml.org,2002:"
_MERGE = f"{_CORE}merge"
_TYPED = ("null", "bool", "int", "float")
# libyaml is several times faster; PyYAML's own parser reads the same language
_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER = yaml.resolver.Resolver()
_CONSTRUCTOR = yaml.constructor.SafeConstructor()


class DocumentError(ValueError):
    """The text is not one acceptable document; `line` is 1-based, None where no line is to blame."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem if line is None else f"line {line}: {problem}")
        self.problem = problem
        self.line = line


@dataclasses.dataclass(frozen=True)
class Problem:
    """A fault beside which the rest of the document could still be read."""

    path: Path
    line: int
    message: str


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


@dataclasses.dataclass(frozen=True)
class Document:
    """One document: its plain tree, what was wrong beside it, and where everything stands."""

    tree: Any
    problems: tuple[Problem, ...]
    root: Node

    def line(self, path: Path) -> int:
        """The 1-based line of a path: of its key or item, or of the nearest part that exists."""
        return self._find(path)[0]

    def written(self, path: Path) -> str | None:
        """The text of a scalar as it stands in the document, None for anything else."""
        node = self._find(path)[1]
        return node.text if node is not None and node.kind == "scalar" else None

    def _find(self, path: Path) -> tuple[int, Node | None]:
        node, line = self.root, self.root.line
        for step in path:
            child = _child(node, step)
            if child is None:
                return line, None
            line, node = child
        return line, node


def read(text: str) -> Document:
    """The one document of a text; raises DocumentError when there is none, several, or bad syntax."""
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise DocumentError(f"is larger than {MAX_BYTES} bytes, which no ConfigMap could hold")
    roots = list(nodes(text))
    if not roots or (len(roots) == 1 and roots[0].tag == "null"):
        raise DocumentError("is empty; a document is wanted", 1)
    if len(roots) > 1:
        raise DocumentError(f"holds {len(roots)} documents separated by '---'; keep one", roots[1].line)
    return document(roots[0])


def document(root: Node) -> Document:
    """The plain tree of a node, bounded in depth and size."""
    walk = _Walk(MAX_VALUES)
    tree = walk.value(root, ())
    return Document(tree, tuple(walk.problems), root)


def tree(root: Node) -> Any:
    """The plain tree of a node of any size; raises DocumentError for any fault."""
    walk = _Walk(None)
    plain = walk.value(root, ())
    if walk.problems:
        raise DocumentError(walk.problems[0].message, walk.problems[0].line)
    return plain


def nodes(text: str) -> Iterator[Node]:
    """The root node of every document of a stream; raises DocumentError at the first syntax error."""
    try:
        yield from _compose(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise DocumentError(f"holds a character that YAML forbids: {_reader_reason(error)}", line) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        parts = [part for part in (error.problem, error.context) if part]
        raise DocumentError(f"is not YAML: {', '.join(parts)}", mark and mark.line + 1) from None
    except (yaml.YAMLError, UnicodeError):
        raise DocumentError("is not YAML that can be read as UTF-8 text") from None


def _reader_reason(error: yaml.reader.ReaderError) -> str:
    return f"U+{error.character:04X}" if isinstance(error.character, int) else str(error.reason)


def _compose(text: str) -> Iterator[Node]:
    anchors: dict[str, Node] = {}
    open_nodes: list[tuple[Node, str | None]] = []
    for event in yaml.parse(text, Loader=_LOADER):
        line = event.start_mark.line + 1
        anchor: str | None = None
        match event:
            case yaml.DocumentStartEvent():
                anchors = {}
                continue
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                if len(open_nodes) >= MAX_DEPTH:
                    raise DocumentError(f"is nested deeper than {MAX_DEPTH} levels", line)
                open_nodes.append((_collection(event, line), event.anchor))
                continue
            case yaml.ScalarEvent():
                node, anchor = _scalar(event, line), event.anchor
            case yaml.AliasEvent():
                if event.anchor not in anchors:
                    raise DocumentError(f"*{event.anchor} refers to nothing that is complete above it", line)
                node = anchors[event.anchor]
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                node, anchor = open_nodes.pop()
            case _:
                continue
        if anchor is not None:
            anchors[anchor] = node
        if open_nodes:
            open_nodes[-1][0].items.append(node)
        else:
            yield node


def _collection(event: yaml.MappingStartEvent | yaml.SequenceStartEvent, line: int) -> Node:
    kind: Literal["mapping", "sequence"] = "mapping" if isinstance(event, yaml.MappingStartEvent) else "sequence"
    core = {"mapping": "map", "sequence": "seq"}[kind]
    written = event.tag if event.tag not in (None, "!", f"{_CORE}{core}") else ""
    return Node(kind, line, tag=written)


def _scalar(event: yaml.ScalarEvent, line: int) -> Node:
    tag: str = event.tag or ""
    if not tag and event.implicit[0] and len(event.value) <= _MAX_NUMBER:
        tag = _RESOLVER.resolve(yaml.ScalarNode, event.value, (True, False))
        short = tag.removeprefix(_CORE)
        tag = short if short in (*_TYPED, "merge") else "str"  # dates and "=" stay text
    elif tag in ("", "!"):
        tag = "str"
    elif tag.removeprefix(_CORE) in (*_TYPED, "str"):
        tag = tag.removeprefix(_CORE)
    return Node("scalar", line, tag, event.value, event.style)


class _Walk:
    """One expansion of a node into a plain tree, with its budget and what it found wrong."""

    def __init__(self, budget: int | None) -> None:
        self.problems: list[Problem] = []
        self._budget = budget
        self._used = 0

    def value(self, node: Node, path: Path) -> Any:
        self._used += 1
        if self._budget is not None and self._used > self._budget:
            raise DocumentError(f"expands to more than {self._budget} values", node.line)
        if len(path) > 2 * MAX_DEPTH:  # aliases may nest what is written flat
            raise DocumentError(f"is nested deeper than {2 * MAX_DEPTH} levels", node.line)
        if node.kind == "scalar":
            return self._scalar(node, path)
        if node.tag:
            self._wrong(path, node, f"the tag {node.tag!r} is not allowed; remove it")
        if node.kind == "sequence":
            return [self.value(item, (*path, index)) for index, item in enumerate(node.items)]
        return self._mapping(node, path)

    def _mapping(self, node: Node, path: Path) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for key, value in node.pairs():
            if key.kind != "scalar":
                self._wrong(path, key, "a key must be text, not a list or mapping")
            elif key.tag == "merge":
                self._merge(value, path, plain)
        written: dict[str, int] = {}
        for key, value in node.pairs():
            if key.kind != "scalar" or key.tag == "merge":
                continue
            if key.text in written:
                message = f"the key is already on line {written[key.text]}; keep one of the two"
                self._wrong((*path, key.text), key, message)
                continue
            written[key.text] = key.line
            plain[key.text] = self.value(value, (*path, key.text))
        return plain

    def _merge(self, source: Node, path: Path, plain: dict[str, Any]) -> None:
        """YAML 1.1's `<<`: keys of the source where the mapping has none of its own; earlier sources win."""
        for mapping in source.items if source.kind == "sequence" else [source]:
            if mapping.kind != "mapping":
                self._wrong(path, mapping, "'<<' takes a mapping or a list of mappings, such as *anchor")
                continue
            for key, value in self._mapping(mapping, path).items():
                plain.setdefault(key, value)

    def _scalar(self, node: Node, path: Path) -> Any:
        if node.tag in ("str", "merge"):
            return node.text
        if node.tag not in _TYPED:
            self._wrong(path, node, f"the tag {node.tag!r} is not allowed; remove it")
            return node.text
        try:
            value = _construct(node)
        except (ValueError, KeyError, IndexError):
            self._wrong(path, node, f"is not a YAML {node.tag}")
            return node.text
        if isinstance(value, float) and not math.isfinite(value):
            self._wrong(path, node, f"{node.text} is not a finite number")
            return 0
        return value

    def _wrong(self, path: Path, node: Node, message: str) -> None:
        self.problems.append(Problem(path, node.line, message))


def _construct(node: Node) -> Any:
    if len(node.text) > _MAX_NUMBER:
        raise ValueError(node.tag)
    scalar = yaml.ScalarNode(f"{_CORE}{node.tag}", node.text)
    construct = getattr(_CONSTRUCTOR, f"construct_yaml_{node.tag}")
    return construct(scalar)


def _child(node: Node, step: str | int) -> tuple[int, Node] | None:
    """Line and node one step down; keys brought in by `<<` are found where they are written."""
    if node.kind == "sequence":
        inside = isinstance(step, int) and 0 <= step < len(node.items)
        return (node.items[step].line, node.items[step]) if inside and isinstance(step, int) else None
    merged: list[Node] = []
    for key, value in node.pairs() if node.kind == "mapping" else ():
        if key.kind == "scalar" and key.tag == "merge":
            merged += value.items if value.kind == "sequence" else [value]
        elif key.kind == "scalar" and key.text == step:
            return key.line, value
    return next((found for source in merged if (found := _child(source, step))), None)
