"""Holds what is known about which devices match the expressions of DeviceClasses and of the policy.

Plain expressions are evaluated here. Others are questions, which a server has evaluated by CEL in another process and
answers later (`railwright.cluster.expression_process`); a command answers them at once. A result is for all devices in
which the expression reads the same values, so that in a steady state nothing is evaluated.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from railwright.fabric.claims import comparisons, objects, selectors, slices
from railwright.fabric.claims.comparisons import Match

_MAX_RESULTS = 65536  # equal devices of a cluster's nodes share results; a node type has tens of them
_MAX_PROBLEMS = 256

_Key = tuple[object, ...]


class Result(msgspec.Struct, frozen=True):
    """Whether a device matches. `cause` says why this is unknown, or why the evaluation fails."""

    match: Match
    cause: str = ""
    is_pending: bool = False  # unknown until the question is answered

    @property
    def may_match(self) -> bool:
        """False if kube-scheduler gives the device to no pod that asks for a match."""
        return self.match in {Match.YES, Match.UNKNOWN}


class Question(msgspec.Struct, frozen=True):
    """An expression that is to be evaluated for a device."""

    number: int
    expression: str
    driver: str
    device: objects.Device


class Problem(msgspec.Struct, frozen=True):
    """An expression whose result is unknown or fails, and a device for which it does."""

    expression: str
    match: Match
    cause: str
    device: str


YES = Result(Match.YES)
NOT_EVALUATED = Result(Match.UNKNOWN, "is not evaluated yet", is_pending=True)
_BY_MATCH = {match: Result(match) for match in (Match.YES, Match.NO)}
_FAILS = Result(Match.FAILS, "reads an attribute that the device lacks, or one that is not of the type that is needed")
_UNREAD = Result(Match.UNKNOWN, "compares a version with another type, or reads an attribute of an unknown type")
_TOO_MANY = Result(Match.UNKNOWN, f"more than {_MAX_RESULTS} devices differ in what expressions read")


class Evaluations:
    """The results of all expressions, and the questions without an answer. Used by one event loop."""

    def __init__(self) -> None:
        self._results: dict[_Key, Result] = {}
        self._questions: dict[int, tuple[_Key, Question]] = {}
        self._asked = 0
        self._problems: dict[str, Problem] = {}

    @property
    def problems(self) -> Collection[Problem]:
        """One problem of each expression that has any."""
        return self._problems.values()

    @property
    def count_pending(self) -> int:
        """Number of questions without an answer."""
        return len(self._questions)

    def match_all(self, expressions: Iterable[str], device: slices.OfferedDevice) -> Result:
        """Return whether a device matches all expressions, in the order in which kube-scheduler evaluates them."""
        first_unknown: Result | None = None
        for expression in expressions:
            result = self.evaluate(expression, device)
            if not result.may_match:
                return result
            if result.match is Match.UNKNOWN and (first_unknown is None or result.is_pending):
                first_unknown = result
        return first_unknown or YES

    def evaluate(self, expression: str, device: slices.OfferedDevice) -> Result:
        """Return whether a device matches an expression."""
        driver = device.id.driver
        plain = comparisons.parse(expression)
        if plain is not None:
            match = plain(device.device, driver)
            result = _BY_MATCH.get(match) or (_FAILS if match is Match.FAILS else _UNREAD)
        elif any(find(device.device, driver) is Match.NO for find in comparisons.find_conditions(expression)):
            return _BY_MATCH[Match.NO]
        else:
            result = self._look_up(expression, device)
        if result.cause and not result.is_pending and len(self._problems) < _MAX_PROBLEMS:
            problem = Problem(expression, result.match, result.cause, f"{driver}/{device.id.pool}/{device.id.device}")
            self._problems.setdefault(expression, problem)
        return result

    def _look_up(self, expression: str, device: slices.OfferedDevice) -> Result:
        key = (expression, *read_inputs(device, selectors.find_inputs(expression)))
        known = self._results.get(key)
        if known is None and len(self._results) >= _MAX_RESULTS:
            return _TOO_MANY
        if known is None:
            known = self._results[key] = NOT_EVALUATED
            self._asked += 1
            question = Question(self._asked, expression, device.id.driver, device.device)
            self._questions[self._asked] = (key, question)
        return known

    def list_questions(self) -> Sequence[Question]:
        """Return all questions without an answer."""
        return [question for _, question in self._questions.values()]

    def answer(self, results: Mapping[int, Result]) -> None:
        """Record the answers to questions by their number. Numbers of forgotten questions are ignored."""
        for number, result in results.items():
            if number in self._questions:
                key, _ = self._questions.pop(number)
                self._results[key] = result

    def retain(self, expressions: Collection[str]) -> None:
        """Forget the results of all other expressions, and all problems: they are found again as names are."""
        used = set(expressions)
        self._results = {key: result for key, result in self._results.items() if key[0] in used}
        self._questions = {
            number: (key, question) for number, (key, question) in self._questions.items() if key[0] in used
        }
        self._problems.clear()


def read_inputs(device: slices.OfferedDevice, references: Iterable[selectors.Reference] | None) -> tuple[object, ...]:
    """Return what expressions with these references read of a device, as a key. None: they may read anything."""
    driver, attributes, capacity = device.id.driver, device.device.attributes or {}, device.device.capacity or {}
    if references is None:
        return (driver, frozenset(attributes.items()), frozenset(capacity.items()))
    inputs: list[object] = [driver]
    for field, domain, name in references:
        values: Mapping[str, object] = attributes if field == "attributes" else capacity
        value = values.get(f"{domain}/{name}")
        inputs.append(values.get(name) if value is None and domain == driver else value)
    return tuple(inputs)
