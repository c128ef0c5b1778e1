"""Reads YAML (and so JSON) as plain trees, and finds the line of every part of a document.

PyYAML composes nodes with line numbers, and builds the trees. This module limits the size of documents, and makes
PyYAML read text as Kubernetes does.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import yaml

Path = tuple[str | int, ...]
Node = yaml.Node  # a ScalarNode, SequenceNode or MappingNode; aliases share nodes, and no node contains itself

_MORE_VALUES = 100_000  # than characters, after expanding aliases: a short text must not fill the memory
MAX_DEPTH = 64  # as written: a policy needs 7, a Kubernetes object under 30
_MAX_EXPANDED_DEPTH = 2 * MAX_DEPTH  # aliases can nest structures that are written flat
_MAX_NUMBER = 64  # characters of the longest scalar that is read as a number: Python refuses to print long ones
_CORE = "tag:yaml.org,2002:"
_TYPED = ("null", "bool", "int", "float")
_TEXT = f"{_CORE}str"
_UNTYPED = ("timestamp", "value", "merge")  # dates, `=` and `<<` are texts in Kubernetes; so is 12:30, in base 60
# libyaml is several times faster; PyYAML's own parser accepts the same language
LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class DocumentError(ValueError):
    """Raised if a text is not an acceptable document. `line` is 1-based, None if the problem has no line."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem if line is None else f"line {line}: {problem}")
        self.problem = problem
        self.line = line


def parse(text: str) -> Iterator[Node]:
    """Yield the root node of every document. Raises DocumentError for a syntax error."""
    try:
        depth = 0
        for event in yaml.parse(text, Loader=LOADER):  # deep nesting would exhaust libyaml's stack
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise DocumentError(f"is nested deeper than {MAX_DEPTH} levels", get_line(event))
        yield from yaml.compose_all(text, Loader=LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        last = len(text.splitlines()) or 1  # the end of the text counts as its last line
        problem = ", ".join(part for part in (error.problem, error.context) if part)
        raise DocumentError(f"is not YAML: {problem}", None if mark is None else min(mark.line + 1, last)) from None
    except yaml.reader.ReaderError as error:  # its position is in bytes
        line = text.encode().count(b"\n", 0, error.position) + 1
        raise DocumentError(f"contains a character that YAML forbids: U+{error.character:04X}", line) from None
    except UnicodeError:
        raise DocumentError("is not UTF-8 text") from None


def get_line(part: yaml.Node | yaml.Event) -> int:
    """Return the 1-based line where a node or an event begins."""
    return int(part.start_mark.line) + 1  # type: ignore[union-attr]  # a parser always sets marks


@dataclasses.dataclass(frozen=True)
class Repeated:
    """A key that is repeated at `line`. Its last value counts."""

    path: Path
    line: int
    first_line: int


@dataclasses.dataclass(frozen=True)
class Document:
    """One document: its plain tree, of which aliases share parts, and the position of every part."""

    tree: Any
    repeated: tuple[Repeated, ...]
    root: Node

    def find_line(self, path: Path) -> int:
        """Return the 1-based line of a path: of its key or item, or of the nearest existing parent."""
        return self._find(path)[0]

    def find_node(self, path: Path) -> Node | None:
        """Return the node of a path, None if there is none."""
        return self._find(path)[1]

    def _find(self, path: Path) -> tuple[int, Node | None]:
        node, line = self.root, get_line(self.root)
        for step in path:
            below = find_child(node, step)
            if below is None:
                return line, None
            line, node = below
        return line, node


def find_child(node: Node, step: str | int) -> tuple[int, Node] | None:
    """Return line and node of a child, or None. Keys merged by `<<` are found once the tree is built."""
    if isinstance(node, yaml.SequenceNode):
        is_inside = isinstance(step, int) and 0 <= step < len(node.value)
        return (get_line(node.value[step]), node.value[step]) if is_inside else None
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    # the last of repeated keys counts, and PyYAML puts merged ones before the others
    return next(((get_line(key), value) for key, value in reversed(pairs) if key.value == step), None)


def build_document(root: Node, max_values: int | None = None) -> Document:
    """Return the document of a node, limited in depth and in size, by default to that of its text.

    Raises DocumentError.
    """
    reader = _Reader(max_values or root.end_mark.index - root.start_mark.index + _MORE_VALUES)
    reader.prepare(root, ())
    try:
        return Document(reader.loader.construct_document(root), tuple(reader.repeated), root)
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise DocumentError("'<<' takes a mapping or a list of mappings, such as *anchor", line) from None


def remove_nulls(plain: Any, label: str = "") -> Any:
    """Return the tree without keys whose value is null: the API server treats null as absent.

    A `label` with null stays, with an empty text: the API server reads null so in labels.
    """
    if isinstance(plain, dict):
        present = {key: value for key, value in plain.items() if value is not None or key == label}
        return {key: "" if value is None else remove_nulls(value, label) for key, value in present.items()}
    if isinstance(plain, list):
        return [remove_nulls(item, label) for item in plain]
    return plain


class _Reader:
    """Checks nodes before PyYAML builds their tree, and makes PyYAML read text as Kubernetes does."""

    def __init__(self, max_values: int) -> None:
        self.loader = yaml.SafeLoader("")
        self.repeated: list[Repeated] = []
        self._max_values = max_values
        self._sizes: dict[int, tuple[int, int] | None] = {}  # of nodes, which aliases share; None inside of a node

    def prepare(self, node: Node, path: Path) -> tuple[int, int]:
        """Return the number of values, and of levels, that a node has with its aliases expanded."""
        if id(node) in self._sizes:
            if (found := self._sizes[id(node)]) is None:
                raise DocumentError("an alias is inside the value that it repeats", get_line(node))
            return found
        self._sizes[id(node)] = None
        if isinstance(node, yaml.ScalarNode):
            self._prepare_scalar(node)
            below = []
        elif node.tag not in (f"{_CORE}map", f"{_CORE}seq"):
            raise DocumentError(f"the tag {node.tag!r} is not allowed; remove it", get_line(node))
        elif isinstance(node, yaml.MappingNode):
            self._prepare_keys(node, path)
            below = [self.prepare(value, (*path, key.value)) for key, value in node.value]
        else:
            below = [self.prepare(item, (*path, index)) for index, item in enumerate(node.value)]
        size, levels = 1 + sum(size for size, _ in below), 1 + max((levels for _, levels in below), default=0)
        if size > self._max_values:
            problem = f"has more than {self._max_values} values; shorten it, or use fewer aliases"
            raise DocumentError(problem, get_line(node))
        if levels > _MAX_EXPANDED_DEPTH:
            raise DocumentError(f"is nested deeper than {_MAX_EXPANDED_DEPTH} levels", get_line(node))
        self._sizes[id(node)] = size, levels
        return size, levels

    def _prepare_keys(self, node: yaml.MappingNode, path: Path) -> None:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise DocumentError("a key must be text, not a list or mapping", get_line(key))
            if key.tag == f"{_CORE}merge":
                continue
            key.tag = _TEXT
            if first := lines.get(key.value):
                self.repeated.append(Repeated((*path, key.value), get_line(key), first))
            lines[key.value] = get_line(key)

    def _prepare_scalar(self, node: yaml.ScalarNode) -> None:
        kind = node.tag.removeprefix(_CORE)
        if kind in _UNTYPED or (kind in _TYPED and (":" in node.value or len(node.value) > _MAX_NUMBER)):
            node.tag = _TEXT
        elif kind in _TYPED:
            try:
                value = self.loader.construct_object(node)
            except (ValueError, KeyError, IndexError):
                problem = f"{node.value!r} is not a YAML {kind}; remove the tag"
                raise DocumentError(problem, get_line(node)) from None
            if isinstance(value, float) and not math.isfinite(value):
                raise DocumentError(f"{node.value} is not a finite number; write one in digits", get_line(node))
        elif node.tag != _TEXT:
            raise DocumentError(f"the tag {node.tag!r} is not allowed; remove it", get_line(node))
