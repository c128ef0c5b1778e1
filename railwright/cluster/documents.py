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
    """Raised if a text is not YAML, is too large, or has content that is not allowed. `line` is 1-based or None."""

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
                raise DocumentError(f"is nested deeper than {MAX_DEPTH} levels; nest it less", get_line(event))
        yield from yaml.compose_all(text, Loader=LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        last = len(text.splitlines()) or 1  # the end of the text counts as its last line
        problem = ", ".join(part for part in (error.problem, error.context) if part)
        raise DocumentError(f"is not YAML: {problem}", None if mark is None else min(mark.line + 1, last)) from None
    except yaml.reader.ReaderError as error:  # its position is in bytes
        line = text.encode().count(b"\n", 0, error.position) + 1
        problem = f"contains a character that YAML forbids: U+{error.character:04X}; remove it"
        raise DocumentError(problem, line) from None
    except UnicodeError:
        raise DocumentError("is not UTF-8 text") from None


def get_line(part: yaml.Node | yaml.Event) -> int:
    """Return the 1-based line where a node or an event begins."""
    return int(part.start_mark.line) + 1  # type: ignore[union-attr]  # a parser always sets marks


@dataclasses.dataclass(frozen=True)
class RepeatedKey:
    """A key that a mapping has in `first_line` and again in `line`. Its last value counts."""

    path: Path
    line: int
    first_line: int


@dataclasses.dataclass(frozen=True)
class Document:
    """One document: its tree of dicts, lists and scalars, and the line of every part. Aliases share parts."""

    tree: Any
    repeated: tuple[RepeatedKey, ...]
    root: Node

    def find_line(self, path: Path) -> int:
        """Return the 1-based line of a path: of its key or item, or of the nearest existing parent."""
        return self._find_line_and_node(path)[0]

    def find_node(self, path: Path) -> Node | None:
        """Return the node of a path, None if the document has no such path."""
        return self._find_line_and_node(path)[1]

    def _find_line_and_node(self, path: Path) -> tuple[int, Node | None]:
        node, line = self.root, get_line(self.root)
        for step in path:
            below = find_child(node, step)
            if below is None:
                return line, None
            line, node = below
        return line, node


def find_child(node: Node, step: str | int) -> tuple[int, Node] | None:
    """Return line and node of a key or list item, None if it is missing; a key merged by `<<` is missing until
    `build_document` has run.
    """
    if isinstance(node, yaml.SequenceNode):
        is_inside = isinstance(step, int) and 0 <= step < len(node.value)
        return (get_line(node.value[step]), node.value[step]) if is_inside else None
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    # the last of repeated keys counts, and PyYAML puts merged ones before the others
    return next(((get_line(key), value) for key, value in reversed(pairs) if key.value == step), None)


def build_document(root: Node, max_values: int | None = None) -> Document:
    """Return the document of a root node. Raises DocumentError if it is too deep, or has more than `max_values` values.

    The default allows 100,000 values more than its text has characters.
    """
    reader = _Reader(max_values or root.end_mark.index - root.start_mark.index + _MORE_VALUES)
    reader.prepare_node(root, ())
    try:
        return Document(reader.loader.construct_document(root), tuple(reader.repeated), root)
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise DocumentError("'<<' takes a mapping or a list of mappings, such as *anchor", line) from None


def remove_nulls(plain: Any, label: str = "") -> Any:
    """Return the tree without keys whose value is null: the API server treats null as absent.

    The key `label` stays, with "" in place of null: the API server reads a null label as an empty text.
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
        self.repeated: list[RepeatedKey] = []
        self._max_values = max_values
        self._sizes: dict[int, tuple[int, int] | None] = {}  # of nodes, which aliases share; None inside of a node

    def prepare_node(self, node: Node, path: Path) -> tuple[int, int]:
        """Check a node and all below it. Return its number of values and of levels, with its aliases expanded.

        Marks as texts what Kubernetes, unlike YAML 1.1, reads as texts. Raises DocumentError.
        """
        if id(node) in self._sizes:
            if (found := self._sizes[id(node)]) is None:
                raise DocumentError("an alias is inside the value that it repeats; remove the alias", get_line(node))
            return found
        self._sizes[id(node)] = None
        if isinstance(node, yaml.ScalarNode):
            self._prepare_scalar(node)
            below = []
        elif node.tag not in (f"{_CORE}map", f"{_CORE}seq"):
            raise DocumentError(f"the tag {node.tag!r} is not allowed; remove it", get_line(node))
        elif isinstance(node, yaml.MappingNode):
            self._prepare_keys(node, path)
            below = [self.prepare_node(value, (*path, key.value)) for key, value in node.value]
        else:
            below = [self.prepare_node(item, (*path, index)) for index, item in enumerate(node.value)]
        size, levels = 1 + sum(size for size, _ in below), 1 + max((levels for _, levels in below), default=0)
        if size > self._max_values:
            problem = f"has more than {self._max_values} values; shorten it, or use fewer aliases"
            raise DocumentError(problem, get_line(node))
        if levels > _MAX_EXPANDED_DEPTH:
            problem = f"is nested deeper than {_MAX_EXPANDED_DEPTH} levels; nest its aliases less"
            raise DocumentError(problem, get_line(node))
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
                self.repeated.append(RepeatedKey((*path, key.value), get_line(key), first))
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
