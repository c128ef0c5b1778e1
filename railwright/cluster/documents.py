"""Converts YAML (and so JSON) text to plain trees, with the line of every path.

A text is parsed into nodes: values as written, each with its line. Documents and trees are built from them. Limits the
size, merges keys, and reports duplicate keys and forbidden tags. Nested text is parsed without recursion, so that no
text can exhaust the stack.
"""

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
import yaml

Path = tuple[str | int, ...]

MAX_BYTES = 1024 * 1024  # the size limit of a ConfigMap
MAX_VALUES = 100_000  # after expanding aliases: far above any object, far below a billion laughs
# Of a policy: 500 fabrics of 8 rails have fewer. A server takes a microsecond for each when it gets the parsed policy.
MAX_POLICY_VALUES = 20_000
MAX_DEPTH = 64  # the policy needs 7, a Kubernetes object under 30
_MAX_EXPANDED_DEPTH = 2 * MAX_DEPTH  # aliases can nest structures that are written flat
_MAX_NUMBER = 64  # characters of the longest scalar parsed as a number: int() of a long text is quadratic
_CORE = "tag:yaml.org,2002:"
_TYPED = ("null", "bool", "int", "float")
# libyaml is several times faster; PyYAML's own parser accepts the same language
LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER: Any = yaml.resolver.Resolver()  # Any: the stubs leave its methods untyped
_CONSTRUCTOR = yaml.constructor.SafeConstructor()


class DocumentError(ValueError):
    """The text is not one acceptable document. `line` is 1-based, None if the problem has no line."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem if line is None else f"line {line}: {problem}")
        self.problem = problem
        self.line = line


class Node(msgspec.Struct, gc=False):  # no node contains itself: an alias refers to a complete one
    """A value as written: scalars keep their text, mappings the order of their keys, both their lines."""

    kind: Literal["scalar", "mapping", "sequence"]
    line: int
    tag: str = ""  # of scalars: the type in YAML 1.1, such as str or int, or an explicit tag
    text: str = ""
    style: str | None = None
    items: Sequence["Node"] = ()  # of a sequence; of a mapping: key, value, key, ...

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
    open_nodes: list[tuple[Node, list[Node], str | None]] = []  # each with its items so far
    event: Any  # the stubs declare marks optional, but a parser always sets them
    for event in yaml.parse(text, Loader=LOADER):
        line = event.start_mark.line + 1
        match event:
            case yaml.ScalarEvent():  # most of them
                node, anchor = _build_scalar(event, line), event.anchor
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                if len(open_nodes) >= MAX_DEPTH:
                    raise DocumentError(f"is nested deeper than {MAX_DEPTH} levels", line)
                items: list[Node] = []
                open_nodes.append((_build_collection(event, line, items), items, event.anchor))
                continue
            case yaml.AliasEvent():
                node, anchor = _resolve_alias(anchors, event.anchor or "", line), None
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                node, _, anchor = open_nodes.pop()
            case _:  # starts and ends of the stream and of documents
                continue
        if anchor is not None:
            anchors[anchor] = node
        if open_nodes:
            open_nodes[-1][1].append(node)
        else:
            anchors = {}  # anchors are local to a document
            yield node


def _resolve_alias(anchors: dict[str, Node], anchor: str, line: int) -> Node:
    if anchor not in anchors:
        raise DocumentError(f"*{anchor} refers to no complete anchor above it", line)
    return anchors[anchor]


def _build_collection(
    event: yaml.MappingStartEvent | yaml.SequenceStartEvent, line: int, items: Sequence[Node]
) -> Node:
    kind: Literal["mapping", "sequence"] = "mapping" if isinstance(event, yaml.MappingStartEvent) else "sequence"
    core = {"mapping": "map", "sequence": "seq"}[kind]
    written = event.tag if event.tag not in (None, "!", f"{_CORE}{core}") else ""
    return Node(kind, line, tag=written, items=items)


def _build_scalar(event: yaml.ScalarEvent, line: int) -> Node:
    tag: str = event.tag or ""
    if not tag and event.implicit[0] and len(event.value) <= _MAX_NUMBER:
        tag = _find_plain_type(event.value)
    elif tag in ("", "!"):
        tag = "str"
    elif tag.removeprefix(_CORE) in (*_TYPED, "str"):
        tag = tag.removeprefix(_CORE)
    return Node("scalar", line, tag, event.value, event.style)


@functools.lru_cache(maxsize=4096)
def _find_plain_type(text: str) -> str:
    """Return the type that a short text without quotes has in YAML 1.1; dates and `=` stay text."""
    tag = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False)).removeprefix(_CORE)
    return tag if tag in (*_TYPED, "merge") else "str"


@dataclasses.dataclass(frozen=True)
class Problem:
    """A problem that leaves the rest of the document readable."""

    path: Path
    line: int
    message: str


@dataclasses.dataclass(frozen=True)
class Document:
    """One document: its plain tree, its problems, and the position of every part."""

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
        return node.text if node is not None and node.kind == "scalar" else None

    def _find(self, path: Path) -> tuple[int, Node | None]:
        node, line = self.root, self.root.line
        for step in path:
            below = find_child(node, step)
            if below is None:
                return line, None
            line, node = below
        return line, node


def read(text: str) -> Document:
    """Parse the single document of a policy's text.

    Raises DocumentError if there is none, several, or a syntax error.
    """
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise DocumentError(f"is larger than {MAX_BYTES} bytes, the limit of a ConfigMap")
    roots = list(parse(text))
    if not roots or (len(roots) == 1 and roots[0].tag == "null"):
        raise DocumentError("is empty; expected one YAML document", 1)
    if len(roots) > 1:
        raise DocumentError(f"contains {len(roots)} documents separated by '---'; keep one", roots[1].line)
    return build_document(roots[0], MAX_POLICY_VALUES)


def build_document(root: Node, max_values: int = MAX_VALUES) -> Document:
    """Return the document of a node, limited in depth and size."""
    walk = _Walk(root, max_values)
    tree = walk.expand(root, ())
    return Document(tree, tuple(walk.problems), root)


def build_tree(root: Node) -> Any:
    """Return the plain tree of a node of any size. Raises DocumentError for any problem.

    Aliases may add MAX_VALUES values to those that are written: a short text must not fill the memory.
    """
    walk = _Walk(root, _count_written(root) + MAX_VALUES)
    plain = walk.expand(root, ())
    if walk.problems:
        raise DocumentError(walk.problems[0].message, walk.problems[0].line)
    return plain


def _count_written(root: Node) -> int:
    """Return the number of values in the text of a node, without what aliases repeat."""
    counted: set[int] = set()
    collections, count = [root], 1
    while collections:
        node = collections.pop()
        if id(node) not in counted:
            counted.add(id(node))
            count += len(node.items)
            collections += [item for item in node.items if item.items]
    return count


@dataclasses.dataclass(frozen=True)
class RepeatedKey:
    """A key that a mapping has twice, with the lines of both."""

    key: str
    first: int
    line: int


def keep_last_keys(root: Node) -> list[RepeatedKey]:
    """Remove all but the last of equal keys of each mapping from a node, as kubectl reads them. Return those repeated.

    For manifests only: in a policy, a repeated key is an error.
    """
    repeated: list[RepeatedKey] = []
    visited: set[int] = set()
    collections = [root]
    while collections:
        node = collections.pop()
        if id(node) in visited:
            continue
        visited.add(id(node))
        if node.kind == "mapping":
            repeated += _remove_overridden(node)
        collections += [item for item in node.items if item.items]
    return repeated


def _remove_overridden(mapping: Node) -> list[RepeatedKey]:
    pairs: dict[object, tuple[Node, Node]] = {}
    repeated: list[RepeatedKey] = []
    for key, value in mapping.pairs():
        is_name = key.kind == "scalar" and key.tag != "merge"
        identity: object = key.text if is_name else id(key)
        if identity in pairs:
            repeated.append(RepeatedKey(key.text, pairs[identity][0].line, key.line))
        pairs[identity] = key, value
    if repeated:
        mapping.items = [node for pair in pairs.values() for node in pair]
    return repeated


def remove_nulls(plain: Any) -> Any:
    """Return the tree without keys whose value is null: the API server treats null as absent."""
    if isinstance(plain, dict):
        return {key: remove_nulls(value) for key, value in plain.items() if value is not None}
    if isinstance(plain, list):
        return [remove_nulls(item) for item in plain]
    return plain


class _Walk:
    """One expansion of a node into a plain tree, with its budget and its problems."""

    def __init__(self, root: Node, budget: int) -> None:
        self.problems: list[Problem] = []
        self._root = root
        self._budget = budget
        self._used = 0

    def expand(self, node: Node, path: Path) -> Any:
        self._used += 1
        if self._used > self._budget:
            raise DocumentError(self._describe_excess(), node.line)
        if len(path) > _MAX_EXPANDED_DEPTH:
            raise DocumentError(f"is nested deeper than {_MAX_EXPANDED_DEPTH} levels", node.line)
        if node.kind == "scalar":
            return self._expand_scalar(node, path)
        if node.tag:
            self._add_problem(path, node, f"the tag {node.tag!r} is not allowed; remove it")
        if node.kind == "sequence":
            return [self.expand(item, (*path, index)) for index, item in enumerate(node.items)]
        return self._expand_mapping(node, path)

    def _describe_excess(self) -> str:
        if _count_written(self._root) > self._budget:
            return f"has more than {self._budget} values; shorten the document"
        return f"expands to more than {self._budget} values; use fewer aliases"

    def _expand_mapping(self, node: Node, path: Path) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for key, value in node.pairs():
            if key.kind != "scalar":
                self._add_problem(path, key, "a key must be text, not a list or mapping")
            elif key.tag == "merge":
                self._merge(value, path, plain)
        written: dict[str, int] = {}
        for key, value in node.pairs():
            if key.kind != "scalar" or key.tag == "merge":
                continue
            if key.text in written:
                message = f"the key is already on line {written[key.text]}; keep one of the two"
                self._add_problem((*path, key.text), key, message)
                continue
            written[key.text] = key.line
            plain[key.text] = self.expand(value, (*path, key.text))
        return plain

    def _merge(self, source: Node, path: Path, plain: dict[str, Any]) -> None:
        """Apply YAML 1.1's `<<`: add keys that the mapping does not have itself; earlier sources win."""
        for mapping in source.items if source.kind == "sequence" else [source]:
            if mapping.kind != "mapping":
                self._add_problem(path, mapping, "'<<' takes a mapping or a list of mappings, such as *anchor")
                continue
            for key, value in self.expand(mapping, (*path, "<<")).items():
                plain.setdefault(key, value)

    def _expand_scalar(self, node: Node, path: Path) -> Any:
        if node.tag in ("str", "merge"):
            return node.text
        if node.tag not in _TYPED:
            self._add_problem(path, node, f"the tag {node.tag!r} is not allowed; remove it")
            return node.text
        try:
            value = _construct_scalar(node)
        except (ValueError, KeyError, IndexError):
            self._add_problem(path, node, f"{node.text[:_MAX_NUMBER]!r} is not a YAML {node.tag}; remove the tag")
            return node.text
        if isinstance(value, float) and not math.isfinite(value):
            self._add_problem(path, node, f"{node.text} is not a finite number; write one in digits")
            return 0
        return value

    def _add_problem(self, path: Path, node: Node, message: str) -> None:
        self.problems.append(Problem(path, node.line, message))


def _construct_scalar(node: Node) -> Any:
    if len(node.text) > _MAX_NUMBER:
        raise ValueError(node.tag)
    scalar = yaml.ScalarNode(f"{_CORE}{node.tag}", node.text)
    construct = getattr(_CONSTRUCTOR, f"construct_yaml_{node.tag}")
    return construct(scalar)


def find_child(node: Node, step: str | int) -> tuple[int, Node] | None:
    """Return line and node of a child, or None. Keys merged by `<<` are looked up in their source mapping."""
    if node.kind == "sequence":
        inside = isinstance(step, int) and 0 <= step < len(node.items)
        return (node.items[step].line, node.items[step]) if inside and isinstance(step, int) else None
    merged: list[Node] = []
    for key, value in node.pairs() if node.kind == "mapping" else ():
        if key.kind == "scalar" and key.tag == "merge":
            merged += value.items if value.kind == "sequence" else [value]
        elif key.kind == "scalar" and key.text == step:
            return key.line, value
    return next((match for source in merged if (match := find_child(source, step))), None)
