"""Reads YAML (and so JSON) as plain trees, and finds the line of every part of a document.

PyYAML composes nodes with line numbers. This module builds the trees: it limits their size, merges keys, and reports
every repeated key and forbidden tag, not only the first.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import yaml

Path = tuple[str | int, ...]
Node = yaml.Node  # a ScalarNode, SequenceNode or MappingNode; aliases share nodes, and no node contains itself

MAX_VALUES = 100_000  # after expanding aliases: far above any object, far below a billion laughs
MAX_DEPTH = 64  # as written: a policy needs 7, a Kubernetes object under 30
_MAX_EXPANDED_DEPTH = 2 * MAX_DEPTH  # aliases can nest structures that are written flat
_MAX_NUMBER = 64  # characters of the longest scalar that is read as a number: int() of a long text is quadratic
_CORE = "tag:yaml.org,2002:"
_TYPED = ("null", "bool", "int", "float")
_TEXTS = ("str", "timestamp", "value", "merge")  # dates, `=` and `<<` are texts in Kubernetes
_MERGE = f"{_CORE}merge"
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
        _check_nesting(text)
        yield from yaml.compose_all(text, Loader=LOADER)
    except yaml.reader.ReaderError as error:
        code = f"U+{error.character:04X}" if isinstance(error.character, int) else str(error.reason)
        line = text.count("\n", 0, error.position) + 1
        raise DocumentError(f"contains a character that YAML forbids: {code}", line) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        last = len(text.splitlines()) or 1  # the end of the text counts as its last line
        problem = ", ".join(part for part in (error.problem, error.context) if part)
        raise DocumentError(f"is not YAML: {problem}", None if mark is None else min(mark.line + 1, last)) from None
    except (yaml.YAMLError, UnicodeError):
        raise DocumentError("is not valid UTF-8 YAML") from None


def _check_nesting(text: str) -> None:
    """Raise DocumentError for deep nesting, which would exhaust libyaml's stack, and for a value inside itself."""
    open_anchors: list[str | None] = []
    for event in yaml.parse(text, Loader=LOADER):
        match event:
            case yaml.CollectionStartEvent():
                open_anchors.append(event.anchor)
                if len(open_anchors) > MAX_DEPTH:
                    raise DocumentError(f"is nested deeper than {MAX_DEPTH} levels", get_line(event))
            case yaml.CollectionEndEvent():
                open_anchors.pop()
            case yaml.AliasEvent() if event.anchor in open_anchors:
                raise DocumentError(f"*{event.anchor} is inside the value that it repeats", get_line(event))


def get_line(part: yaml.Node | yaml.Event) -> int:
    """Return the 1-based line where a node or an event begins."""
    return int(part.start_mark.line) + 1  # type: ignore[union-attr]  # a parser always sets marks


@dataclasses.dataclass(frozen=True)
class Problem:
    """A problem of one part of a document. The rest is readable."""

    path: Path
    line: int
    message: str
    first_line: int | None = None  # of a key that is repeated at `line`


@dataclasses.dataclass(frozen=True)
class Document:
    """One document: its plain tree, its problems, and the position of every part. The last of repeated keys counts."""

    tree: Any
    problems: tuple[Problem, ...]
    root: Node

    def find_line(self, path: Path) -> int:
        """Return the 1-based line of a path: of its key or item, or of the nearest existing parent."""
        return self._find(path)[0]

    def find_node(self, path: Path) -> Node | None:
        """Return the node of a path, None if there is none."""
        return self._find(path)[1]

    def get_source_text(self, path: Path) -> str | None:
        """Return the source text of a scalar, or None for anything else."""
        node = self.find_node(path)
        return node.value if isinstance(node, yaml.ScalarNode) else None

    def _find(self, path: Path) -> tuple[int, Node | None]:
        node, line = self.root, get_line(self.root)
        for step in path:
            below = find_child(node, step)
            if below is None:
                return line, None
            line, node = below
        return line, node


def find_child(node: Node, step: str | int) -> tuple[int, Node] | None:
    """Return line and node of a child, or None. Keys merged by `<<` are looked up in their source mapping."""
    if isinstance(node, yaml.SequenceNode):
        is_inside = isinstance(step, int) and 0 <= step < len(node.value)
        return (get_line(node.value[step]), node.value[step]) if is_inside else None
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    for key, value in reversed(pairs):  # the last of repeated keys counts
        if key.value == step and key.tag != _MERGE:
            return get_line(key), value
    sources = (source for key, value in pairs if key.tag == _MERGE for source in _list_sources(value))
    return next((match for source in sources if (match := find_child(source, step))), None)


def _list_sources(value: Node) -> list[Node]:
    """Return the mappings of a `<<`, of which earlier ones win (YAML 1.1)."""
    return value.value if isinstance(value, yaml.SequenceNode) else [value]


def build_document(root: Node, max_values: int = MAX_VALUES) -> Document:
    """Return the document of a node, limited in depth and size. Raises DocumentError."""
    builder = _Builder(max_values)
    return Document(builder.build(root, ()), tuple(builder.problems), root)


def build_tree(root: Node) -> Any:
    """Return the plain tree of a node of any size. Raises DocumentError for any problem but a repeated key.

    With aliases it may have as many values as the text has characters, and MAX_VALUES more: a short text must not fill
    the memory.
    """
    written = root.end_mark.index - root.start_mark.index
    document = build_document(root, written + MAX_VALUES)
    for problem in document.problems:
        if problem.first_line is None:
            raise DocumentError(problem.message, problem.line)
    return document.tree


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


class _Builder:
    """Builds one plain tree, within a limit of values, and collects its problems."""

    def __init__(self, max_values: int) -> None:
        self.problems: list[Problem] = []
        self._max_values, self._count = max_values, 0
        self._scalars = yaml.SafeLoader("")

    def build(self, node: Node, path: Path) -> Any:
        self._count += 1
        if self._count > self._max_values:
            problem = f"has more than {self._max_values} values; shorten it, or use fewer aliases"
            raise DocumentError(problem, get_line(node))
        if len(path) > _MAX_EXPANDED_DEPTH:
            raise DocumentError(f"is nested deeper than {_MAX_EXPANDED_DEPTH} levels", get_line(node))
        if isinstance(node, yaml.ScalarNode):
            return self._build_scalar(node, path)
        if node.tag not in (f"{_CORE}map", f"{_CORE}seq"):
            self._add_problem(path, node, f"the tag {node.tag!r} is not allowed; remove it")
        if isinstance(node, yaml.MappingNode):
            return self._build_mapping(node, path)
        return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]

    def _build_mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self._add_problem(path, key, "a key must be text, not a list or mapping")
            elif key.tag == _MERGE:
                for source in _list_sources(value):
                    if not isinstance(source, yaml.MappingNode):
                        message = "'<<' takes a mapping or a list of mappings, such as *anchor"
                        self._add_problem(path, source, message)
                        continue
                    for name, given in self.build(source, (*path, "<<")).items():
                        merged.setdefault(name, given)
            else:
                below, line = (*path, key.value), get_line(key)
                if first := lines.get(key.value):
                    message = f"the key is already on line {first}; keep one of the two"
                    self.problems.append(Problem(below, line, message, first))
                lines[key.value] = line
                own[key.value] = self.build(value, below)
        return {**merged, **own}

    def _build_scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        kind = node.tag.removeprefix(_CORE)
        if kind not in (*_TYPED, *_TEXTS):
            self._add_problem(path, node, f"the tag {node.tag!r} is not allowed; remove it")
        if kind not in _TYPED or len(node.value) > _MAX_NUMBER:
            return node.value
        try:
            value = self._scalars.construct_object(node)
        except (ValueError, KeyError, IndexError, yaml.YAMLError):
            self._add_problem(path, node, f"{node.value!r} is not a YAML {kind}; remove the tag")
            return node.value
        if isinstance(value, float) and not math.isfinite(value):
            self._add_problem(path, node, f"{node.value} is not a finite number; write one in digits")
            return 0
        return value

    def _add_problem(self, path: Path, node: Node, message: str) -> None:
        self.problems.append(Problem(path, get_line(node), message))
