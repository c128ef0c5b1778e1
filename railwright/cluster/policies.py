"""Policy text -> an accepted policy, or every error with its path and line; and the policy now in force.

Owns the order of reading (YAML, schema, relations) and the rule that the last good policy stays. What is
allowed is `railwright.fabric.policy`'s; how it is said is `sentences`'.
"""

import copy
import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from railwright.cluster import documents, nodes, repairs, sentences
from railwright.fabric import names
from railwright.fabric.policy import checks, model, schema

_SCHEMA = schema.build()
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_REPAIRS = 3  # a replaced section can lack nothing itself, so two rounds do; one is spare
_NONE = (
    f"there is none; create ConfigMap {names.POLICY_CONFIGMAP} in namespace {names.NAMESPACE} with the key"
    f" {names.POLICY_KEY}"
)


@dataclasses.dataclass(frozen=True)
class PolicyError:
    """One error: path as `fabrics.roce.rails[2].device` ("" = the document), 1-based line, sentence."""

    path: str
    line: int | None
    message: str


@dataclasses.dataclass(frozen=True)
class Rejected:
    """A text that is not in force, with every error in the order of its lines."""

    errors: tuple[PolicyError, ...]


def read(text: str) -> model.Policy | Rejected:
    """The policy a text holds, or all that is wrong with it. Never raises, whatever the text."""
    try:
        document = documents.read(text)
    except nodes.DocumentError as error:
        return Rejected((PolicyError("", error.line, error.problem),))
    errors = _errors(document)
    if errors:
        return Rejected(errors)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return model.Policy(_typed(document.tree), f"sha256:{digest}")


def written_path(path: documents.Path) -> str:
    """A path as people write it: dots between keys, brackets around indexes and around odd keys."""
    parts: list[str] = []
    for step in path:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        elif _PLAIN_KEY.fullmatch(step):
            parts.append(f".{step}" if parts else step)
        else:
            parts.append(f"[{json.dumps(step)}]")
    return "".join(parts)


def _errors(document: documents.Document) -> tuple[PolicyError, ...]:
    faulty = {problem.path for problem in document.problems}
    violations = [
        violation
        for violation in sentences.violations(_SCHEMA, document.tree, document.written)
        if violation.path not in faulty
    ]
    found = [(problem.line, problem.path, problem.message) for problem in document.problems]
    judged: list[sentences.Violation | checks.Finding] = [*violations, *_findings(document.tree, violations)]
    found += [(document.line(part.path), part.path, part.message) for part in judged]
    found.sort(key=lambda error: (error[0], [(str(type(step)), step) for step in error[1]]))
    return tuple(PolicyError(written_path(path), line, message) for line, path, message in dict.fromkeys(found))


def _findings(tree: Any, violations: Sequence[sentences.Violation]) -> list[checks.Finding]:
    """What the relations say, judged on a copy with stand-ins for unreadable parts, less what rests on those."""
    repaired = copy.deepcopy(tree)
    current: Sequence[sentences.Violation] = violations
    for _ in range(_REPAIRS):
        repaired = repairs.repair(repaired, current, _SCHEMA["$defs"])
        again = sentences.violations(_SCHEMA, repaired, lambda _path: None)
        current = [violation for violation in again if violation.repair != "keep"]
        if not current:
            break
    else:
        return []  # too broken to judge; the violations already say why
    spoiled = {violation.path for violation in violations}
    spoiled |= {violation.guess for violation in violations if violation.guess is not None}
    return [
        finding
        for finding in checks.check(_typed(repaired))
        if not any(repairs.covers(path, part) for path in spoiled for part in (finding.path, *finding.rests_on))
    ]


def _typed(tree: Any) -> model.FabricPolicy:
    return msgspec.convert(documents.without_nulls(tree), model.FabricPolicy)


class PolicyStore:
    """The policy in force and the state of its source. Not thread-safe: one event loop owns it."""

    def __init__(self) -> None:
        self.current: model.Policy | None = None
        self.valid = False
        self.errors: tuple[PolicyError, ...] = ()
        self.generation = 0  # good reads, as the metric railwright_policy_generation counts them
        self._callbacks: list[Callable[[PolicyStore], None]] = []

    def subscribe(self, callback: Callable[["PolicyStore"], None]) -> None:
        """Have the callback called after every offer, rejection and withdrawal."""
        self._callbacks.append(callback)

    def offer(self, text: str) -> model.Policy | Rejected:
        """Put a text in force if it is good; otherwise the last good policy stays and `valid` is False."""
        result = read(text)
        self.take(result)
        return result

    def take(self, result: model.Policy | Rejected) -> None:
        """The same for a text that was read elsewhere, such as in a thread."""
        if isinstance(result, Rejected):
            self.valid, self.errors = False, result.errors
        else:
            self.current, self.valid, self.errors = result, True, ()
            self.generation += 1
        self._tell()

    def withdraw(self) -> None:
        """The ConfigMap is gone, or was not created yet: the last good policy stays, `valid` is False."""
        message = "the policy was deleted; create it again" if self.generation else _NONE
        self.take(Rejected((PolicyError("", None, message),)))

    def _tell(self) -> None:
        for callback in self._callbacks:
            callback(self)
