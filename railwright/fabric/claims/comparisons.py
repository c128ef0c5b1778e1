"""Evaluates the plain part of CEL by itself: comparisons of attributes with constants.

Most expressions of drivers' DeviceClasses and of railwright consist of these. They cost less than a microsecond a
device, whoever wrote them, so that they need neither CEL's library nor another process. Results are those of
Kubernetes; an expression that has anything else is not plain.
"""

import enum
import functools
import re
from collections.abc import Callable, Mapping, Sequence

from railwright.fabric.claims import objects


class Match(enum.Enum):
    """Whether a device matches an expression."""

    YES = "yes"
    NO = "no"
    FAILS = "fails"
    """Kubernetes' evaluation fails, too: kube-scheduler gives the device to no pod, and ends the pod's allocation."""
    UNKNOWN = "unknown"


MAX_LENGTH = 1024
"""Characters of a plain expression, and of all those of a request together."""
_MAX_DEPTH = 8  # of parentheses and negations

Evaluate = Callable[[objects.Device, str], Match]
_Value = str | int | bool

_TOKEN = re.compile(
    r"""[ \t\r\n\f]*(?:(?P<text>"[^"\\\r\n]*"|'[^'\\\r\n]*')|(?P<number>-?[0-9]{1,18}(?![\w.]))"""
    r"""|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>&&|\|\||==|!=|[!()\[\],.]))"""
)
_TEXT_TESTS: Mapping[str, Callable[[str, str], bool]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": str.__contains__,
}
_CONSTANTS = {"true": True, "false": False}
_NO_FIELDS = frozenset({*_CONSTANTS, "null", "in"})  # that CEL does not accept after a dot


class _NotPlainError(ValueError):
    """The expression has something that is not read here."""


@functools.lru_cache(maxsize=2048)  # the expressions of classes and policy, and of recent claims
def parse(expression: str) -> Evaluate | None:
    """Return the function that evaluates a plain expression for a device and its driver; None if it is not plain."""
    if len(expression) > MAX_LENGTH:
        return None
    try:
        return _Parser(expression).parse()
    except _NotPlainError:
        return None


def combine(matches: Sequence[Match]) -> Match:
    """Return whether a device matches all of several expressions, as kube-scheduler evaluates them one by one."""
    decisive = next((match for match in matches if match in (Match.NO, Match.FAILS)), None)
    return decisive or (Match.UNKNOWN if Match.UNKNOWN in matches else Match.YES)


class _Parser:
    """Parses by recursive descent: alternatives of conjunctions of terms."""

    def __init__(self, expression: str) -> None:
        self._tokens = _split(expression)
        self._position = 0
        self._depth = 0

    def parse(self) -> Evaluate:
        evaluate = self._parse_alternatives()
        if self._position < len(self._tokens):
            raise _NotPlainError
        return evaluate

    def _parse_alternatives(self) -> Evaluate:
        return _join(self._parse_sequence("||", self._parse_conjunction), Match.YES)

    def _parse_conjunction(self) -> Evaluate:
        return _join(self._parse_sequence("&&", self._parse_term), Match.NO)

    def _parse_sequence(self, sign: str, parse: Callable[[], Evaluate]) -> Sequence[Evaluate]:
        parts = [parse()]
        while self._accept(sign):
            parts.append(parse())
        return parts

    def _parse_term(self) -> Evaluate:
        if self._accept("!"):
            return _negate(self._parse_nested(self._parse_operand))
        if self._peek("text"):
            return self._parse_membership()
        if self._accepts_all("device", ".", "driver"):
            return self._parse_driver()
        if self._accepts_all("device", ".", "attributes"):
            return self._parse_attribute()
        return self._parse_operand()

    def _parse_operand(self) -> Evaluate:
        """Parse what may follow a negation."""
        if self._accept("("):
            evaluate = self._parse_nested(self._parse_alternatives)
            self._expect(")")
            return evaluate
        if self._accepts_all("has", "(", "device", ".", "attributes"):
            domain = self._parse_domain()
            self._expect(".")
            evaluate = _test_presence(domain, self._parse_field())
            self._expect(")")
            return evaluate
        if self._accepts_all("device", ".", "attributes"):
            return _read_boolean(*self._parse_path())
        value = self._parse_value()
        if not isinstance(value, bool):
            raise _NotPlainError
        return lambda _device, _driver: _decide(is_match=value)

    def _parse_nested(self, parse: Callable[[], Evaluate]) -> Evaluate:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _NotPlainError
        evaluate = parse()
        self._depth -= 1
        return evaluate

    def _parse_membership(self) -> Evaluate:
        """Parse `"NAME" in device.attributes["DOMAIN"]` or `"DOMAIN" in device.attributes`."""
        name = self._parse_value()
        if not isinstance(name, str) or not self._accepts_all("in", "device", ".", "attributes"):
            raise _NotPlainError
        if self._position < len(self._tokens) and self._tokens[self._position] == ("sign", "["):
            return _test_presence(self._parse_domain(), name)
        return lambda device, driver: _decide(is_match=name in _list_domains(device, driver))

    def _parse_driver(self) -> Evaluate:
        is_equal, values = self._parse_comparison()
        if not all(isinstance(value, str) for value in values):
            raise _NotPlainError  # cannot be compiled
        return lambda _device, driver: _decide(is_match=(driver in values) == is_equal)

    def _parse_attribute(self) -> Evaluate:
        domain, name = self._parse_path()
        for method, test in _TEXT_TESTS.items():
            if self._accepts_all(".", method, "("):
                value = self._parse_value()
                self._expect(")")
                return _test_text(domain, name, test, value)
        if self._position == len(self._tokens) or self._tokens[self._position][1] in ("&&", "||", ")"):
            return _read_boolean(domain, name)
        is_equal, values = self._parse_comparison()
        return _compare(domain, name, values, is_equal=is_equal)

    def _parse_comparison(self) -> tuple[bool, Sequence[_Value]]:
        """Parse `== VALUE`, `!= VALUE` or `in [VALUE, ...]`; return whether equality matches, and the values."""
        if self._accept("=="):
            return True, (self._parse_value(),)
        if self._accept("!="):
            return False, (self._parse_value(),)
        if not self._accepts_all("in", "["):
            raise _NotPlainError
        values = [self._parse_value()]
        while self._accept(","):
            values.append(self._parse_value())
        self._expect("]")
        if len({type(value) for value in values}) > 1:
            raise _NotPlainError  # cannot be compiled
        return True, values

    def _parse_path(self) -> tuple[str, str]:
        domain = self._parse_domain()
        if self._accept("."):
            return domain, self._parse_field()
        return domain, self._parse_domain()

    def _parse_domain(self) -> str:
        """Parse a text in brackets."""
        self._expect("[")
        value = self._parse_value()
        self._expect("]")
        if not isinstance(value, str):
            raise _NotPlainError
        return value

    def _parse_field(self) -> str:
        name = self._take("word")
        if name in _NO_FIELDS:
            raise _NotPlainError
        return name

    def _parse_value(self) -> _Value:
        if self._peek("text"):
            return self._take("text")[1:-1]
        if self._peek("number"):
            return int(self._take("number"))
        value = _CONSTANTS.get(self._take("word"))
        if value is None:
            raise _NotPlainError
        return value

    def _peek(self, kind: str) -> bool:
        return self._position < len(self._tokens) and self._tokens[self._position][0] == kind

    def _take(self, kind: str) -> str:
        if not self._peek(kind):
            raise _NotPlainError
        self._position += 1
        return self._tokens[self._position - 1][1]

    def _accept(self, text: str) -> bool:
        return self._accepts_all(text)

    def _accepts_all(self, *texts: str) -> bool:
        following = self._tokens[self._position : self._position + len(texts)]
        if tuple(text for kind, text in following if kind in ("word", "sign")) != texts:
            return False
        self._position += len(texts)
        return True

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            raise _NotPlainError


def _split(expression: str) -> Sequence[tuple[str, str]]:
    """Return kind and text of each token. Raises _NotPlainError."""
    tokens, position, end = [], 0, len(expression.rstrip(" \t\r\n\f"))
    while position < end:
        match = _TOKEN.match(expression, position)
        if match is None or match.lastgroup is None:
            raise _NotPlainError
        tokens.append((match.lastgroup, match[match.lastgroup]))
        position = match.end()
    return tokens


def _join(parts: Sequence[Evaluate], decisive: Match) -> Evaluate:
    """Return the function for `||` (decided by YES) or `&&` (decided by NO). Another part's failure is then ignored."""
    if len(parts) == 1:
        return parts[0]
    neutral = Match.NO if decisive is Match.YES else Match.YES

    def evaluate(device: objects.Device, driver: str) -> Match:
        result = neutral
        for part in parts:
            match = part(device, driver)
            if match is decisive:
                return match
            if match is Match.UNKNOWN or (match is Match.FAILS and result is neutral):
                result = match
        return result

    return evaluate


def _negate(evaluate: Evaluate) -> Evaluate:
    opposites = {Match.YES: Match.NO, Match.NO: Match.YES}

    def negate(device: objects.Device, driver: str) -> Match:
        match = evaluate(device, driver)
        return opposites.get(match, match)

    return negate


def _test_presence(domain: str, name: str) -> Evaluate:
    return lambda device, driver: _decide(is_match=objects.find_attribute(device, driver, domain, name) is not None)


def _read_boolean(domain: str, name: str) -> Evaluate:
    def evaluate(device: objects.Device, driver: str) -> Match:
        attribute = objects.find_attribute(device, driver, domain, name)
        if attribute is None:
            return Match.FAILS
        if attribute.value is None:
            return Match.UNKNOWN
        return Match.FAILS if attribute.boolean is None else _decide(is_match=attribute.boolean)

    return evaluate


def _compare(domain: str, name: str, values: Sequence[_Value], *, is_equal: bool) -> Evaluate:
    typed = frozenset((type(value), value) for value in values)

    def evaluate(device: objects.Device, driver: str) -> Match:
        attribute = objects.find_attribute(device, driver, domain, name)
        if attribute is None:
            return Match.FAILS
        value = attribute.value
        if value is None or attribute.version is not None:  # Kubernetes compares a version with a text in several ways
            return Match.UNKNOWN
        return _decide(is_match=((type(value), value) in typed) == is_equal)

    return evaluate


def _test_text(domain: str, name: str, test: Callable[[str, str], bool], value: _Value) -> Evaluate:
    if not isinstance(value, str):
        raise _NotPlainError  # cannot be compiled

    def evaluate(device: objects.Device, driver: str) -> Match:
        attribute = objects.find_attribute(device, driver, domain, name)
        if attribute is None or attribute.value is None:
            return Match.FAILS if attribute is None else Match.UNKNOWN
        return Match.FAILS if attribute.string is None else _decide(is_match=test(attribute.string, value))

    return evaluate


def _decide(*, is_match: bool) -> Match:
    return Match.YES if is_match else Match.NO


def _list_domains(device: objects.Device, driver: str) -> frozenset[str]:
    return frozenset(name.rpartition("/")[0] or driver for name in device.attributes or {})


_PIECE = re.compile(
    r"""//[^\r\n]*|[rR]?[bB]?(?:"{3}(?:\\.|[^\\])*?"{3}|'{3}(?:\\.|[^\\])*?'{3}|"(?:\\.|[^"\\\r\n])*"|'(?:\\.|[^'\\\r\n])*')"""
    r"""|&&|\|\||[?()\[\]{}]|[^"'&|?()\[\]{}/]+|.""",
    re.DOTALL,
)


@functools.lru_cache(maxsize=256)
def find_conditions(expression: str) -> Sequence[Evaluate]:
    """Return the plain ones of the terms that all must be true, for an expression that is not plain itself.

    A device for which one of them is false does not match, whatever the others are.
    """
    terms, depth = [""], 0
    for match in _PIECE.finditer(expression):
        piece = match[0]
        depth += (piece in "([{") - (piece in ")]}")
        if depth == 0 and piece in {"||", "?"}:
            return ()
        if depth == 0 and piece == "&&":
            terms.append("")
        elif not piece.startswith("//"):
            terms[-1] += piece
        if "\\" in piece:  # a raw text may end where an escaped one goes on
            return ()
    return tuple(evaluate for evaluate in map(parse, terms) if evaluate is not None) if len(terms) > 1 else ()
