r"""Evaluates templates of `-o jsonpath=`, a subset of kubectl's with the same results.

A template is text with expressions in braces. An expression is a path, quoted text, `range PATH` or `end`. Steps of a
path: `.field`, `['field']`, `[0]`, `[-1]`, `[0:2]`, `[*]`, `.*` and filters `[?(@.field=="text")]` with == != < <= >
>=, or only a path. A dot in a field name is written `\.`. Spaces separate values; what does not exist prints nothing.
"""

import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

Step = Callable[[Any], Iterable[Any]]
"""Yields the values that one step of a path leads to."""
Path = Sequence[Step]
Node = Callable[[Any, Any], str]
"""Returns the text of a part of a template for the current value and the root."""

_PIECE = re.compile(r"""\{((?:[^{}"']|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')*)\}|([^{}]+)""", re.DOTALL)
_STEP = re.compile(
    r"""
      \.\* | \[\*\]
    | \.(?P<field>(?:\\.|[^.\[\]{}\s()=!<>'"\\*])+)
    | \[\s*(?:'(?P<single>(?:\\.|[^'\\])*)'|"(?P<double>(?:\\.|[^"\\])*)")\s*\]
    | \[\s*(?P<index>-?\d+)\s*\]
    | \[\s*(?P<begin>-?\d*)\s*:\s*(?P<end>-?\d*)\s*\]
    | \[\?\(\s*(?P<filter>(?:[^()"']|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')*?)\s*\)\]
    """,
    re.VERBOSE,
)
_QUOTED = re.compile(r"""(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)')\s*""", re.DOTALL)
_COMPARISON = re.compile(r"""(?P<left>.*?)\s*(?P<operator>==|!=|<=|>=|<|>)\s*(?P<right>.*)""", re.DOTALL)
_OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def compile_template(template: str) -> Callable[[Any], str]:
    """Return a function from a JSON value to the text of the template. Raise ValueError for an invalid template."""
    pieces = _split(template)
    if not any(is_expression for is_expression, _ in pieces):
        raise ValueError(f"jsonpath template {template!r} has no expression in braces, such as {{[*].name}}")
    nodes, rest = _compile_nodes(pieces, in_range=False)
    if rest:
        raise ValueError("jsonpath template: {end} without {range}; remove it, or write {range PATH} before it")
    return lambda root: _render(nodes, root, root)


def _split(template: str) -> list[tuple[bool, str]]:
    """Return the parts of a template as (is expression, text)."""
    pieces, at = [], 0
    while at < len(template):
        if (match := _PIECE.match(template, at)) is None:
            raise ValueError(
                f"jsonpath template: brace without its counterpart at {template[at : at + 20]!r}; close each {{ with }}"
                ', and quote a brace that is text: {"{"}'
            )
        pieces.append((match[1] is not None, (match[1] if match[1] is not None else match[2])))
        at = match.end()
    return pieces


def _compile_nodes(pieces: Sequence[tuple[bool, str]], *, in_range: bool) -> tuple[list[Node], Sequence[Any]]:
    """Return the nodes up to the {end} of this range, and the pieces from there."""
    nodes: list[Node] = []
    while pieces:
        (is_expression, text), pieces = pieces[0], pieces[1:]
        words = text.strip()
        if not is_expression:
            nodes.append(_write(text))
        elif words == "end":
            return nodes, [(True, words), *pieces] if not in_range else pieces
        elif words.startswith("range ") or words == "range":
            path = _compile_path(words.removeprefix("range").strip())
            inner, pieces = _compile_nodes(pieces, in_range=True)
            nodes.append(_repeat(path, inner))
        elif _QUOTED.match(words):
            nodes.append(_write(_read_quoted(words)))
        else:
            nodes.append(_show(_compile_path(words)))
    if in_range:
        raise ValueError("jsonpath template: {range} without {end}; add {end} after what is to be repeated")
    return nodes, ()


def _write(text: str) -> Node:
    return lambda _value, _root: text


def _show(path: tuple[bool, Path]) -> Node:
    return lambda value, root: " ".join(map(_format, _follow(path, value, root)))


def _repeat(path: tuple[bool, Path], nodes: Sequence[Node]) -> Node:
    return lambda value, root: "".join(_render(nodes, item, root) for item in _follow(path, value, root))


def _render(nodes: Sequence[Node], value: Any, root: Any) -> str:
    return "".join(node(value, root) for node in nodes)


def _format(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# --- paths ------------------------------------------------------------------------------------------------


def _compile_path(text: str) -> tuple[bool, Path]:
    """Return (starts at the root, steps)."""
    begin = text[:1]
    rest = text[1:] if begin in ("$", "@") else text
    if rest and rest[0] not in ".[":
        raise ValueError(
            f"jsonpath template: {text!r} is not a path; a path begins with a dot or a bracket: "
            f"write {'.' + rest!r}, or quote it if it is text"
        )
    if rest == ".":  # the current value
        return begin == "$", ()
    steps, at = [], 0
    while at < len(rest):
        if (match := _STEP.match(rest, at)) is None:
            raise ValueError(
                f"jsonpath template: cannot read {rest[at:]!r} in {text!r}; steps are .field, "
                "['field'], [0], [0:2], [*] and "
                '[?(@.field=="text")]'
            )
        steps.append(_build_step(match))
        at = match.end()
    return begin == "$", steps


def _build_step(match: re.Match[str]) -> Step:
    parts = match.groupdict()
    name = next((parts[key] for key in ("field", "single", "double") if parts[key] is not None), None)
    if name is not None:
        return _select_field(re.sub(r"\\(.)", r"\1", name))
    if parts["index"] is not None:
        return _select_slice(_slice_one(int(parts["index"])))
    if parts["begin"] is not None:
        return _select_slice(slice(*(int(parts[key]) if parts[key] else None for key in ("begin", "end"))))
    if parts["filter"] is not None:
        return _select_matches(_compile_filter(parts["filter"]))
    return _select_all


def _slice_one(index: int) -> slice:
    return slice(index, index + 1 or None)


def _select_field(name: str) -> Step:
    return lambda value: [value[name]] if isinstance(value, dict) and name in value else []


def _select_slice(part: slice) -> Step:
    return lambda value: value[part] if isinstance(value, list) else []


def _select_matches(is_match: Callable[[Any], bool]) -> Step:
    return lambda value: [item for item in _select_all(value) if is_match(item)]


def _select_all(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else []


def _follow(path: tuple[bool, Path], value: Any, root: Any) -> Iterator[Any]:
    from_root, steps = path
    values: Iterable[Any] = [root if from_root else value]
    for step in steps:
        values = [result for item in values for result in step(item)]
    yield from values


# --- filters ----------------------------------------------------------------------------------------------


def _compile_filter(text: str) -> Callable[[Any], bool]:
    if (match := _COMPARISON.fullmatch(text)) is None:
        path = _compile_path(text)
        return lambda item: next(_follow(path, item, item), None) is not None
    left, right = _compile_operand(match["left"]), _compile_operand(match["right"])
    compare = _OPERATORS[match["operator"]]
    return lambda item: _compare(compare, list(left(item)), list(right(item)))


def _compile_operand(text: str) -> Callable[[Any], Iterable[Any]]:
    if _QUOTED.fullmatch(text):
        value: Any = _read_quoted(text)
    elif text[:1] in ("@", "."):
        path = _compile_path(text)
        return lambda item: _follow(path, item, item)
    else:
        try:
            value = json.loads(text)
        except ValueError:
            raise ValueError(
                f"jsonpath template: {text!r} is neither a path, a number nor quoted text; write @.{text} "
                f'for a field, or "{text}" for text'
            ) from None
    return lambda _item: [value]


def _compare(compare: Callable[[Any, Any], bool], left: Sequence[Any], right: Sequence[Any]) -> bool:
    """True if both sides exist and compare so; values of different types never do."""
    try:
        return bool(left and right) and compare(left[0], right[0])
    except TypeError:
        return False


def _read_quoted(text: str) -> str:
    if (match := _QUOTED.fullmatch(text)) is None:
        raise ValueError(f"jsonpath template: cannot read {text!r}; give one quoted text or one path in braces")
    inner = match[1] if match[1] is not None else match[2]
    return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), inner, flags=re.DOTALL)
