"""Compiles and evaluates CEL expressions over a device, as k8s.io/dynamic-resource-allocation/cel of Kubernetes does.

Uses Google's CEL library for C++, which lacks some of Kubernetes' functions and differs from cel-go in others. An
expression is evaluated only if everything in it is known to give the same result: its operators, functions and macros
are on a list. Anything else raises NotEvaluatedError. A test compares the results with Kubernetes' own compiler.

Compilation and evaluation may take seconds of CPU time, so servers do both in another process.

Not on the list: functions that only the Go library has (sets, ip, cidr, format, url, find, lists, two-variable macros),
conversions except int() of a text, texts whose form the libraries need not share, nested loops, and what makes values
grow.
"""

import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from railwright.fabric import quantity
from railwright.fabric.claims import evaluations, objects
from railwright.fabric.claims.comparisons import Match


class NotEvaluatedError(ValueError):
    """An expression cannot be evaluated as Kubernetes would. The message has the cause."""


class FailedError(ValueError):
    """Evaluation fails for the device in Kubernetes, too: it reads an attribute that the device lacks."""


_ATTRIBUTES, _CAPACITY, _DRIVER = "device.attributes", "device.capacity", "device.driver"
_MISSING_KEY = re.compile(r"(?:NOT_FOUND: )?Key not found in map : (.*?)(?: \[NOT_FOUND\])?")
_PROBLEM = re.compile(r"INVALID_ARGUMENT: ERROR: <input>:(\d+):(\d+): (.*?)(?: expecting |\n|$)")

_MAX_LENGTH = 10240  # characters (resource.k8s.io/v1, CELSelectorExpressionMaxLength)
_MAX_COST = 20_000  # estimated here; Kubernetes fails above 1,000,000 (CELSelectorExpressionMaxCost), measured finer
_MAX_ATTRIBUTES = 32  # attributes and capacities of a device (ResourceSliceMaxAttributesAndCapacitiesPerDevice)
_LONG_TEXT = 10  # cost of a function that reads a text; attributes have at most 64 characters
_MAX_PATTERN = 256
_MAX_REPETITIONS = 32
_PATTERN = re.compile(r"(?:[^\\(\x00-\x1f\x7f-\U0010ffff]|\\[.dwsDWSbB/\-_\\^$()\[\]{}|+*?]|\((?!\?))*")
"""Regular expressions that the RE2 libraries of Go and C++ read alike."""
_SPACE = re.compile(r"\s")
_BRACES = re.compile(r"\{(\d*),?(\d*)\}")
_FUNCTIONS = frozenset(
    """
    logical_and logical_or logical_not conditional equals not_equals in_list in_map not_strictly_false
    less_int64 less_equals_int64 greater_int64 greater_equals_int64
    less_double less_equals_double greater_double greater_equals_double
    less_string less_equals_string greater_string greater_equals_string
    less_bool less_equals_bool greater_bool greater_equals_bool
    less_int64_double less_equals_int64_double greater_int64_double greater_equals_int64_double
    less_double_int64 less_equals_double_int64 greater_double_int64 greater_equals_double_int64
    add_int64 subtract_int64 multiply_int64 divide_int64 modulo_int64 negate_int64
    index_map index_list size_string string_size size_list list_size size_map map_size
    string_to_int64 starts_with_string ends_with_string contains_string matches_string matches
    string_char_at_int string_index_of_string string_index_of_string_int string_lower_ascii string_split_string
    string_substring_int string_substring_int_int
    optional_none optional_of optional_hasValue optional_orValue_value optional_or_optional optional_value
    select_optional_field map_optindex_optional_value optional_map_optindex_optional_value
    string_to_quantity is_quantity_string quantity_sign quantity_is_greater_than quantity_is_less_than
    quantity_compare_to quantity_get_float quantity_get_int quantity_is_integer quantity_add quantity_add_int
    quantity_sub quantity_sub_int
    string_to_semver string_bool_to_semver is_semver_string is_semver_string_bool semver_is_greater_than
    semver_is_less_than semver_compare_to semver_major semver_minor semver_patch
    """.split()  # noqa: SIM905 - a list of 90 words
)
"""Identifiers of the overloads that give the same results in both libraries."""
_MAY_NOT_APPLY = re.compile(
    r"(?:less|greater|add|subtract|multiply|divide|modulo|negate|size)_.*|.*_size|index_map|.*_optindex_.*"
)
"""Overloads that may be listed beside those above for a value without a static type. No attribute has their types."""
_READING_TEXT = frozenset(
    {"startsWith", "endsWith", "contains", "indexOf", "lowerAscii", "split", "substring", "charAt", "size", "int"}
)
_OF_STORED_NUMBERS = frozenset({"asInteger", "isInteger", "asApproximateFloat"})


_Attribute = tuple[str, str]  # domain, name


class _Node(NamedTuple):
    """An expression of a checked syntax tree (cel/expr/syntax.proto). `parts` are its direct subexpressions."""

    number: int
    kind: str  # constant, identifier, select, call, list, struct, loop
    parts: Sequence["_Node"]
    name: str = ""  # identifier, field or function
    value: object = None  # of a constant


class Program(NamedTuple):
    """A compiled expression."""

    compiled: Any  # cel.Expression
    tree: "_Tree"

    def evaluate(self, device: objects.Device, driver: str) -> bool:
        """Return whether a device matches. Raises NotEvaluatedError or FailedError."""
        values, versions = _describe(device, driver)
        self._check_types(values[_ATTRIBUTES], versions)
        missing = [(field, domain) for field, domain in self.tree.domains if domain not in values[field]]
        result = self._run(values)
        if not isinstance(result, bool) and missing:
            if self.tree.has_bare_map:
                raise NotEvaluatedError("reads a domain that the device lacks, and all domains")
            for field, domain in missing:  # the domain is an empty map, not an error
                values[field][domain] = {}
            result = self._run(values)
        if isinstance(result, bool):  # an error that the result does not depend on is none
            return result
        if _refusals:
            raise NotEvaluatedError(_refusals[0])
        match = _MISSING_KEY.fullmatch(str(result))
        if match is None:
            raise NotEvaluatedError(f"fails: {result}")
        raise FailedError(f"the device has no {match[1]}")

    def _check_types(self, attributes: Mapping[str, Mapping[str, Any]], versions: frozenset[_Attribute]) -> None:
        """Raise NotEvaluatedError if the libraries differ for the types or texts of these attributes."""
        compared = self.tree.compared
        if versions and (None in compared or compared & versions):
            raise NotEvaluatedError("compares a version with something else; write semver()")
        for domain, name in self.tree.compared_with_versions - versions:
            if name in attributes.get(domain, {}):
                raise NotEvaluatedError(f"{domain}/{name} is no version of the device")
        for domain, name in self.tree.converted:
            _check_spaces(str(attributes.get(domain, {}).get(name, "")))

    def _run(self, values: Mapping[str, Any]) -> object:
        _refusals.clear()
        try:
            return self.compiled.eval(data=dict(values)).value()
        except RuntimeError as error:
            return str(error)
        except TypeError:  # the library cannot return an optional value
            return "its result is neither true nor false"


def evaluate(expression: str, device: objects.Device, driver: str) -> evaluations.Result:
    """Return whether a device matches an expression."""
    try:
        is_match = compile_expression(expression).evaluate(device, driver)
    except FailedError as error:
        return evaluations.Result(Match.FAILS, str(error))
    except NotEvaluatedError as error:
        return evaluations.Result(Match.UNKNOWN, str(error))
    return evaluations.Result(Match.YES if is_match else Match.NO)


@functools.lru_cache(maxsize=1024)  # a cluster has few classes and rails
def compile_expression(expression: str) -> Program:
    """Compile an expression. Raises NotEvaluatedError."""
    if len(expression) > _MAX_LENGTH:
        raise NotEvaluatedError(f"has more than {_MAX_LENGTH} characters")
    if _HIDDEN_FIELD in expression:
        raise NotEvaluatedError(f"{_HIDDEN_FIELD} is no field")
    environment = _load_library().environment
    try:
        compiled = environment.compile(expression)
    except (RuntimeError, ValueError) as error:
        raise NotEvaluatedError(_shorten(str(error))) from None
    result_type = str(compiled.return_type())
    if result_type not in ("BOOL", "DYN"):
        raise NotEvaluatedError(f"its result is {result_type}, not true or false")
    tree = _Tree(bytes(compiled.serialize()))
    tree.check()
    for pattern in tree.patterns:
        if not isinstance(environment.compile(f'"".matches({json.dumps(pattern)})').eval().value(), bool):
            raise NotEvaluatedError(f"{pattern!r} is no regular expression")
    return Program(compiled, tree)


def _check_spaces(text: str) -> None:
    """Raise NotEvaluatedError for a text with a space: int(" 4") fails in Kubernetes only."""
    if _SPACE.search(text):
        raise NotEvaluatedError(f"int() of {text[:80]!r} is not evaluated")


# --- syntax tree ------------------------------------------------------------------------------------------


class _Tree:
    """The checked syntax tree of an expression: what it uses and reads, and what it costs at most."""

    def __init__(self, serialized: bytes) -> None:
        checked = _get_message(serialized, 2)  # of google.protobuf.Any
        self._overloads: dict[int, Sequence[str]] = {}
        self._types: dict[int, bytes] = {}
        for number, entry in _list_fields(checked):
            if number == 2:
                reference = _get_message(entry, 2)
                self._overloads[_get_identifier(entry)] = [
                    value.decode() for field, value in _list_fields(reference) if field == 3
                ]
            elif number == 3:
                self._types[_get_identifier(entry)] = _get_message(entry, 2)
        self._root = _read_node(_get_message(checked, 4))
        self.patterns: set[str] = set()
        self._aliases: dict[str, _Node] = {}  # variables of cel.bind
        self.domains: set[tuple[str, str]] = set()  # device.attributes or device.capacity, and a domain that is read
        self.has_bare_map = False  # reads the map of all domains in another way
        self.compared: set[_Attribute | None] = set()  # with other types than versions; None: any attribute
        self.compared_with_versions: set[_Attribute] = set()
        self.converted: set[_Attribute] = set()  # their text, or a part of it, becomes an integer

    def check(self) -> None:
        """Raise NotEvaluatedError unless everything is on the list and the cost is low."""
        if self._measure(self._root, is_in_loop=False) > _MAX_COST:
            raise NotEvaluatedError("may cost too much to evaluate")

    def _measure(self, node: _Node, *, is_in_loop: bool) -> int:
        """Return the estimated cost of an expression. Raises NotEvaluatedError."""
        if node.kind == "loop":
            return self._measure_loop(node, is_in_loop=is_in_loop)
        if node.kind == "call":
            return self._measure_call(node, is_in_loop=is_in_loop)
        if node.kind == "identifier" and node.name.startswith("device."):
            self.has_bare_map |= node.name != _DRIVER
        elif node.kind == "identifier" and self._overloads.get(node.number) and "." in node.name:
            raise NotEvaluatedError(f"{node.name} is not evaluated")
        elif node.kind == "struct":
            raise NotEvaluatedError("a map or message literal is not evaluated")
        elif node.kind == "list" and len({self._get_type(part) for part in node.parts}) > 1:
            raise NotEvaluatedError("a list has values of several types")
        elif node.kind == "select" and node.parts[0].name in (_ATTRIBUTES, _CAPACITY):
            raise NotEvaluatedError(f"{node.parts[0].name}.{node.name} is not evaluated; write the domain in brackets")
        elif node.kind == "constant" and isinstance(node.value, bytes):
            raise NotEvaluatedError("bytes are not evaluated")
        return 1 + sum(self._measure(part, is_in_loop=is_in_loop) for part in node.parts)

    def _measure_loop(self, node: _Node, *, is_in_loop: bool) -> int:
        values = node.parts[0]
        if values.kind == "list" and not values.parts:  # cel.bind
            if node.name in self._aliases:
                raise NotEvaluatedError(f"{node.name} is bound twice")
            self._aliases[node.name] = node.parts[1]
            return 1 + sum(self._measure(part, is_in_loop=is_in_loop) for part in node.parts)
        if is_in_loop:
            raise NotEvaluatedError("a loop in a loop is not evaluated")
        if self._get_type(values) == _DYN:
            raise NotEvaluatedError("a loop over a value of unknown type is not evaluated")
        number = len(values.parts) if values.kind == "list" else _MAX_ATTRIBUTES * 2
        return self._measure(values, is_in_loop=False) + number * sum(
            self._measure(part, is_in_loop=True) for part in node.parts[1:]
        )

    def _measure_call(self, node: _Node, *, is_in_loop: bool) -> int:
        self._check_overloads(node)
        arguments = node.parts
        if node.name == "_[_]" and arguments[0].name in (_ATTRIBUTES, _CAPACITY):
            domain = arguments[1].value
            if not isinstance(domain, str):
                raise NotEvaluatedError("a domain that is computed is not evaluated")
            self.domains.add((arguments[0].name, domain))
            return 2
        if node.name.startswith("_[?_]") and arguments[0].name in (_ATTRIBUTES, _CAPACITY):
            raise NotEvaluatedError("an optional domain is not evaluated: every domain exists")
        if node.name in ("_==_", "_!=_") or "in_list" in self._overloads.get(node.number, ()):
            listed = node.name == "@in" and arguments[1].kind == "list"
            self._note_comparison([arguments[0], *arguments[1].parts] if listed else arguments)
        if node.name == "_!=_" and any(self._get_type(part) in (_QUANTITY_TYPE, _VERSION_TYPE) for part in arguments):
            raise NotEvaluatedError(
                "!= of quantities or versions is not evaluated: Kubernetes estimates its cost too high"
            )
        if node.name in _OF_STORED_NUMBERS and arguments[0].kind != "select":
            raise NotEvaluatedError(f"{node.name}() of a computed quantity is not evaluated")
        if "string_to_int64" in self._overloads.get(node.number, ()):
            self._note_conversion(arguments[0])
        cost = _LONG_TEXT if node.name in _READING_TEXT else 1
        if node.name == "matches":
            pattern = arguments[1].value
            cost = _measure_pattern(pattern)
            self.patterns.add(str(pattern))
        return cost + sum(self._measure(part, is_in_loop=is_in_loop) for part in arguments)

    def _check_overloads(self, node: _Node) -> None:
        overloads = set(self._overloads.get(node.number, ()))
        if node.name == "_+_" and node.parts[0].name == "@result":  # map() and filter() append
            return
        if node.name == "_+_" and not all(self._get_type(part) in (_INTEGER, _DYN) for part in node.parts):
            raise NotEvaluatedError("+ is evaluated for integers only")
        if not overloads & _FUNCTIONS or not all(map(_MAY_NOT_APPLY.fullmatch, overloads - _FUNCTIONS)):
            raise NotEvaluatedError(f"{node.name.strip('_@') or node.name} is not evaluated")

    def _note_comparison(self, values: Sequence[_Node]) -> None:
        """Note which attributes are compared: equality of versions and other types differs in the libraries."""
        for value in values:
            is_stored = value.kind == "select" or value.name in {"_[_]", "quantity"}
            if self._get_type(value) == _QUANTITY_TYPE and not is_stored:
                raise NotEvaluatedError("a computed quantity equals nothing in Kubernetes; write compareTo()")
        attributes = frozenset(attribute for value in values for attribute in self._list_attributes(value))
        if not any(self._get_type(value) == _VERSION_TYPE for value in values):
            self.compared |= attributes
        elif None in attributes:
            raise NotEvaluatedError("a version that is compared with a computed value is not evaluated")
        else:
            self.compared_with_versions.update(attribute for attribute in attributes if attribute is not None)

    def _note_conversion(self, node: _Node) -> None:
        """Note which attributes become an integer. Raises NotEvaluatedError if that is unknown."""
        if isinstance(node.value, str):
            _check_spaces(node.value)
        elif _DYN in self._get_type(node):
            for attribute in self._list_attributes(node):
                if attribute is None:
                    raise NotEvaluatedError("int() of a computed value is not evaluated")
                self.converted.add(attribute)
        elif node.kind == "call":
            for part in node.parts:
                self._note_conversion(part)
        elif node.kind != "constant" and node.name != _DRIVER:
            raise NotEvaluatedError(f"int() of {node.name or node.kind} is not evaluated")

    def _list_attributes(self, node: _Node) -> Sequence[_Attribute | None]:
        """Return the attributes of which one may be the value of a node; None for a value that may be any."""
        if _DYN not in self._get_type(node):
            return ()
        if node.name == "orValue" or node.kind == "list":
            return [attribute for part in node.parts for attribute in self._list_attributes(part)]
        if node.kind != "select" and not node.name.startswith(("_[_]", "_?._", "_[?_]")):
            return (None,)
        name = node.name if node.kind == "select" else node.parts[1].value
        values = self._aliases.get(node.parts[0].name, node.parts[0])
        if not values.name.startswith("_[_]") or values.parts[0].name != _ATTRIBUTES or not isinstance(name, str):
            return (None,)
        return ((str(values.parts[1].value), name),)

    def _get_type(self, node: _Node) -> bytes:
        return self._types.get(node.number, _DYN)


def _measure_pattern(pattern: object) -> int:
    """Return the cost of a regular expression, at least as Kubernetes counts it. Raises NotEvaluatedError."""
    if not isinstance(pattern, str):
        raise NotEvaluatedError("a regular expression that is computed is not evaluated")
    repetitions = [int(number) for match in _BRACES.findall(pattern) for number in match if number]
    if (
        len(pattern) > _MAX_PATTERN
        or not _PATTERN.fullmatch(pattern)
        or pattern.count("{") > 1
        or max(repetitions, default=0) > _MAX_REPETITIONS
    ):
        raise NotEvaluatedError(f"the regular expression {pattern[:80]!r} is not evaluated")
    return _LONG_TEXT + 8 * len(pattern)


_DYN = b"\n\x00"  # Type{dyn: {}}
_INTEGER = b"\x18\x02"  # Type{primitive: INT64}
_PARTS: Mapping[int, tuple[str, Sequence[int]]] = {
    # field of Expr -> kind, and fields with subexpressions
    3: ("constant", ()),
    4: ("identifier", ()),
    5: ("select", (1,)),
    6: ("call", (1, 3)),
    7: ("list", (1,)),
    8: ("struct", ()),
    9: ("loop", (2, 4, 5, 6, 7)),
}
_NAMES: Mapping[str, int] = {"identifier": 1, "select": 2, "call": 2, "loop": 3}


def _read_node(message: bytes) -> _Node:
    """Read a cel.expr.Expr."""
    identifier = 0
    for number, content in _list_fields(message):
        if number == 2:
            identifier = content
        elif number in _PARTS:
            kind, fields = _PARTS[number]
            by_field = [(field, value) for field, value in _list_fields(content) if field in fields]
            by_field.sort(key=lambda part: part[0])  # the target of a call precedes its arguments
            parts = [_read_node(value) for _, value in by_field]
            name = _get_message(content, _NAMES[kind]).decode() if kind in _NAMES else ""
            value = _read_constant(content) if kind == "constant" else None
            return _Node(identifier, kind, parts, name, value)
    raise NotEvaluatedError("an empty expression is not evaluated")


def _read_constant(message: bytes) -> object:
    """Return the text of a constant, bytes, or None for another."""
    for number, content in _list_fields(message):
        return content.decode() if number == 6 else bytes(content) if number == 7 else None
    return None


def _list_fields(message: bytes) -> list[tuple[int, Any]]:
    """Return number and content of each field of a message. The library has no other form of its syntax tree."""
    from google.protobuf import empty_pb2, unknown_fields

    fields = unknown_fields.UnknownFieldSet(empty_pb2.Empty.FromString(message))
    return [(field.field_number, field.data) for field in fields]


def _get_message(message: bytes, number: int) -> bytes:
    return next((value for field, value in _list_fields(message) if field == number), b"")


def _get_identifier(entry: bytes) -> int:
    """Return the number of the expression that an entry of a map is about."""
    return next((value for field, value in _list_fields(entry) if field == 1), 0)


# --- values -----------------------------------------------------------------------------------------------


def _describe(device: objects.Device, driver: str) -> tuple[Mapping[str, Any], frozenset[_Attribute]]:
    """Return the variables of an expression, and the attributes that are versions.

    A name without a domain belongs to the driver's (k8s.io/dynamic-resource-allocation/cel).
    """
    attributes: dict[str, dict[str, object]] = {}
    capacity: dict[str, dict[str, object]] = {}
    versions: set[_Attribute] = set()
    for name, attribute in (device.attributes or {}).items():
        if attribute.value is None:
            raise NotEvaluatedError(f"attribute {name} has a type that railwright does not read")
        domain, _, identifier = name.rpartition("/")
        value: object = attribute.value
        if attribute.version is not None:
            versions.add((domain or driver, identifier))
            value = _parse_version(attribute.version)
        attributes.setdefault(domain or driver, {})[identifier] = value
    for name, amount in (device.capacity or {}).items():
        domain, _, identifier = name.rpartition("/")
        capacity.setdefault(domain or driver, {})[identifier] = _parse_quantity(str(amount.value))
    return {_DRIVER: driver, _ATTRIBUTES: attributes, _CAPACITY: capacity}, frozenset(versions)


_MAX_NUMBER = 2**63 - 1
_VERSION = re.compile(
    r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?", re.ASCII
)
_MAX_VERSION = 256


def _parse_quantity(text: str) -> Any:
    try:
        return _write_quantity(quantity.parse(text))
    except quantity.InvalidQuantityError as error:
        raise NotEvaluatedError(str(error)) from None


def _write_quantity(value: Fraction) -> Any:
    """Return a quantity as a message that is equal for equal amounts."""
    nano = value * 10**9
    if abs(value) >= _MAX_NUMBER or nano.denominator != 1:
        raise NotEvaluatedError("a quantity is out of range")
    return _load_library().quantity_type(**{_HIDDEN_FIELD: str(nano.numerator)})


def _read_quantity(value: Any) -> Fraction:
    library = _load_library()
    if not isinstance(value, library.quantity_type):
        raise NotEvaluatedError("a version is no quantity")
    return Fraction(int(getattr(value, _HIDDEN_FIELD)), 10**9)


def _get_sign(value: Any) -> int:
    number = _read_quantity(value)
    return (number > 0) - (number < 0)


def _add(value: Any, addend: Fraction | int) -> Any:
    return _write_quantity(_read_quantity(value) + addend)


def _read_integer(value: Any) -> int:
    number = _read_quantity(value)
    if number.denominator != 1:
        raise NotEvaluatedError("a quantity is no integer")
    return number.numerator


def _read_float(value: Any) -> float:
    number = _read_integer(value)
    if abs(number) > 2**53:
        raise NotEvaluatedError("a quantity is not an exact number")
    return float(number)


def _parse_version(text: str) -> Any:
    """Return a version (semver.org) as a message that is equal for equal versions: without its build."""
    match = _VERSION.fullmatch(text) if len(text) <= _MAX_VERSION else None
    numbers = match.groups()[:3] if match else ()
    parts = (match[4] or "").split(".") if match else ()
    padded = [part for part in (*numbers, *parts) if part.isdigit() and len(part) > 1 and part[0] == "0"]
    if match is None or padded or any(int(part) >= 2**63 for part in (*numbers, *parts) if part.isdigit()):
        raise NotEvaluatedError(f"{text[:80]!r} is not a semantic version")
    release = text.partition("+")[0]
    return _load_library().version_type(**{_HIDDEN_FIELD: release})


def _parse_lenient_version(text: str, normalize: bool) -> Any:  # noqa: FBT001 - as CEL calls it
    if normalize and not _VERSION.fullmatch(text):
        raise NotEvaluatedError("a version that is to be normalized is not evaluated")
    return _parse_version(text)


def _is_version(text: str) -> bool:
    try:
        _parse_version(text)
    except NotEvaluatedError:
        return False
    return True


def _is_lenient_version(text: str, normalize: bool) -> bool:  # noqa: FBT001 - as CEL calls it
    if not normalize or _is_version(text):
        return _is_version(text)
    raise NotEvaluatedError("a version that is to be normalized is not evaluated")


def _order_version(value: Any) -> tuple[object, ...]:
    """Return the key that orders versions (semver.org, item 11): a pre-release comes before its release."""
    numbers, _, pre_release = str(getattr(value, _HIDDEN_FIELD)).partition("-")
    parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in pre_release.split("."))
    return (*map(int, numbers.split(".")), not pre_release, parts)


def _is_quantity(text: str) -> bool:
    try:
        quantity.parse(text)
    except quantity.InvalidQuantityError:  # Kubernetes accepts more, such as "Gi"
        raise NotEvaluatedError(f"{text[:80]!r} may be a quantity") from None
    return True


def _compare(left: Any, right: Any) -> int:
    """Return -1, 0 or 1 for two quantities or two versions. Raises NotEvaluatedError for one of each."""
    library = _load_library()
    first: Any
    second: Any
    if isinstance(left, library.version_type) and isinstance(right, library.version_type):
        first, second = _order_version(left), _order_version(right)
    else:
        first, second = _read_quantity(left), _read_quantity(right)
    return int(first > second) - int(first < second)


def _get_number(position: int, value: Any) -> int:
    if not isinstance(value, _load_library().version_type):
        raise NotEvaluatedError("a quantity is no version")
    return int(getattr(value, _HIDDEN_FIELD).partition("-")[0].split(".")[position])


# --- the library ------------------------------------------------------------------------------------------

_refusals: list[str] = []  # of functions in the last evaluation: Kubernetes may have a value where the library fails
_HIDDEN_FIELD = "railwright_value"  # of the messages that stand for quantities and versions; no expression may read it
_QUANTITY_TYPE = b"J\x13kubernetes.Quantity"  # Type{message_type: ...}
_VERSION_TYPE = b"J\x11kubernetes.Semver"


class _Library(NamedTuple):
    environment: Any  # cel.Env
    quantity_type: Any  # classes of messages
    version_type: Any


@functools.cache
def _load_library() -> _Library:
    """Return the environment of device selectors: the fields of `device`, and Kubernetes' quantities and versions.

    Both types are messages. Of the overloads with one number of messages the library wants one function, which tells
    the types apart. The library is loaded with the first expression: it takes 20 MiB, which most processes do not need.
    """
    from cel_expr_python import cel
    from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="kubernetes.proto", package="kubernetes", syntax="proto3")
    for name in ("Quantity", "Semver"):
        file.message_type.add(name=name).field.add(name=_HIDDEN_FIELD, number=1, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    quantity_type, version_type = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"kubernetes.{name}"))
        for name in ("Quantity", "Semver")
    )
    text, dyn = cel.Type.STRING, cel.Type.DYN
    variables = {
        _DRIVER: text,
        _ATTRIBUTES: cel.Type.Map(text, cel.Type.Map(text, dyn)),
        _CAPACITY: cel.Type.Map(text, cel.Type.Map(text, cel.Type("kubernetes.Quantity"))),
    }
    environment = cel.NewEnv(
        descriptor_pool=pool,
        variables=variables,
        functions=_declare_functions(cel),
        extensions=[ext_bindings.ExtBindings(), ext_optional.ExtOptional(), ext_strings.ExtStrings()],
    )
    return _Library(environment, quantity_type, version_type)


def _record_refusal(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except NotEvaluatedError as error:
            _refusals.append(str(error))
            raise

    return call


def _declare_functions(cel: Any) -> Sequence[Any]:
    """Return Kubernetes' functions of quantities and versions (k8s.io/apiserver/pkg/cel/library)."""
    text, integer, double, boolean = cel.Type.STRING, cel.Type.INT, cel.Type.DOUBLE, cel.Type.BOOL
    amount, version = cel.Type("kubernetes.Quantity"), cel.Type("kubernetes.Semver")
    amounts, versions = [amount, amount], [version, version]
    # name, identifier of the overload, result, parameters, whether it is a method, and what it does
    rows: Sequence[tuple[str, str, Any, list[Any], bool, Callable[..., Any] | None]] = (
        ("quantity", "string_to_quantity", amount, [text], False, _parse_quantity),
        ("isQuantity", "is_quantity_string", boolean, [text], False, _is_quantity),
        ("semver", "string_to_semver", version, [text], False, _parse_version),
        ("semver", "string_bool_to_semver", version, [text, boolean], False, _parse_lenient_version),
        ("isSemver", "is_semver_string", boolean, [text], False, _is_version),
        ("isSemver", "is_semver_string_bool", boolean, [text, boolean], False, _is_lenient_version),
        ("compareTo", "quantity_compare_to", integer, amounts, True, _compare),
        ("compareTo", "semver_compare_to", integer, versions, True, None),
        ("isGreaterThan", "quantity_is_greater_than", boolean, amounts, True, lambda *both: _compare(*both) > 0),
        ("isGreaterThan", "semver_is_greater_than", boolean, versions, True, None),
        ("isLessThan", "quantity_is_less_than", boolean, amounts, True, lambda *both: _compare(*both) < 0),
        ("isLessThan", "semver_is_less_than", boolean, versions, True, None),
        ("add", "quantity_add", amount, amounts, True, lambda left, right: _add(left, _read_quantity(right))),
        ("add", "quantity_add_int", amount, [amount, integer], True, _add),
        ("sub", "quantity_sub", amount, amounts, True, lambda left, right: _add(left, -_read_quantity(right))),
        ("sub", "quantity_sub_int", amount, [amount, integer], True, lambda left, right: _add(left, -right)),
        ("sign", "quantity_sign", integer, [amount], False, _get_sign),  # no method, as in Kubernetes
        ("asInteger", "quantity_get_int", integer, [amount], True, _read_integer),
        ("isInteger", "quantity_is_integer", boolean, [amount], True, lambda one: _read_quantity(one).denominator == 1),
        ("asApproximateFloat", "quantity_get_float", double, [amount], True, _read_float),
        ("major", "semver_major", integer, [version], True, functools.partial(_get_number, 0)),
        ("minor", "semver_minor", integer, [version], True, functools.partial(_get_number, 1)),
        ("patch", "semver_patch", integer, [version], True, functools.partial(_get_number, 2)),
    )
    overloads: dict[str, list[Any]] = {}
    for name, identifier, result, parameters, is_member, function in rows:
        functions = () if function is None else (_record_refusal(function),)
        overload = cel.Overload(identifier, result, parameters, is_member, *functions)
        overloads.setdefault(name, []).append(overload)
    return [cel.FunctionDecl(name, own) for name, own in overloads.items()]


def _shorten(message: str) -> str:
    """Return the first line of CEL's message about an expression, with the position in words."""
    match = _PROBLEM.match(message)
    if match is None:
        return message
    line, column, problem = match.groups()
    return f"line {line}, character {column}: {problem}"
