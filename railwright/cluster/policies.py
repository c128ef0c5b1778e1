"""Reads a policy: returns the accepted policy, or every error with path and line. Also stores the policy in force.

An invalid text leaves the last valid policy in force. `railwright.fabric.policy` defines what is valid.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from railwright.cluster import documents, installed_names
from railwright.fabric import names, text
from railwright.fabric.policy import checks, model

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_NONE = (
    f"not found; create ConfigMap {installed_names.POLICY} in namespace {installed_names.NAMESPACE} with the key"
    f" {names.POLICY_KEY}, or a {names.POLICY_KIND} of this name"
)
_APPLY_MANIFEST = "apply it with kubectl, or what `railwright policy convert --to configmap FILE` prints"


@dataclasses.dataclass(frozen=True)
class PolicyError:
    """One error: path as `fabrics.roce.rails[2].device` ("" = the document), 1-based line, message."""

    path: str
    line: int | None
    message: str

    def __str__(self) -> str:
        """Return `line 3: fabrics.roce: message`, without line and path where there are none."""
        return self._locate("" if self.line is None else f"line {self.line}")

    def format_in(self, file: str) -> str:
        """Return the error with the file and the line in front of it, as compilers do."""
        return self._locate(file if self.line is None else f"{file}:{self.line}")

    def _locate(self, place: str) -> str:
        """Return the error with a place in front of it."""
        return ": ".join(filter(None, (place, self.path, self.message)))


MAX_ERRORS = 200  # listed of one policy: nobody reads more; a further entry says that there are more
_MORE = PolicyError("", None, f"has more than {MAX_ERRORS} errors; fix these first")


@dataclasses.dataclass(frozen=True)
class Rejected:
    """A rejected text, with every error in the order of its lines."""

    errors: tuple[PolicyError, ...]


def read(text: str) -> model.Policy | Rejected:
    """Return the policy in a text, or all its errors. Never raises."""
    try:
        document = documents.read(text)
    except documents.DocumentError as error:
        return Rejected((PolicyError("", error.line, error.problem),))
    if other := _describe_other_kind(document.tree):
        return Rejected((PolicyError("", document.find_line(()), other),))
    return check(document, text)


def format_count(errors: Sequence[PolicyError]) -> str:
    """Return the number of errors, such as "2 errors". Of a policy with very many, not all are listed."""
    if errors and errors[-1].message == _MORE.message:
        return f"more than {MAX_ERRORS} errors"
    return text.format_count(len(errors), "error")


def check(document: documents.Document, text: str) -> model.Policy | Rejected:
    """Return the policy of a parsed document, or all its errors. The digest is that of `text`."""
    accepted = _convert(document.tree)
    if accepted is None or document.problems or any(True for _ in checks.check(accepted)):
        errors = _find_errors(document)
        if errors:
            return Rejected(errors)
        accepted = msgspec.convert(documents.remove_nulls(document.tree), model.FabricPolicy)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return model.Policy(accepted, f"sha256:{digest}")


def _convert(tree: Any) -> model.FabricPolicy | None:
    """Return the typed document, None if a value is invalid or null."""
    try:
        msgspec.convert(tree, model.FabricPolicy)  # null in a map is an error, and removed below
        return msgspec.convert(documents.remove_nulls(tree), model.FabricPolicy)
    except msgspec.ValidationError:
        return None


def _find_errors(document: documents.Document) -> tuple[PolicyError, ...]:
    # jsonschema takes 0.1 s to import, and is not needed for a valid policy; servers import it at their start
    from railwright.cluster import policy_errors  # noqa: PLC0415

    located = policy_errors.list_errors(document, MAX_ERRORS + 1)
    errors = [PolicyError(format_path(path), line, message) for line, path, message in located]
    return tuple(errors if len(errors) <= MAX_ERRORS else [*errors[:MAX_ERRORS], _MORE])


def _describe_other_kind(tree: Any) -> str:
    """Return what an object other than a policy is, because an error for each of its keys would hide it; "" otherwise.

    `railwright.cluster.manifests` reads manifests in files. Here they are in the place of the policy itself.
    """
    kind, version = (tree.get("kind"), tree.get("apiVersion")) if isinstance(tree, dict) else (None, None)
    if not isinstance(kind, str) or not isinstance(version, str):
        return ""
    if kind == "ConfigMap" or (kind == names.POLICY_KIND and {"metadata", "spec"} <= tree.keys()):
        return f"this is the manifest of a {kind}, not the policy in it; {_APPLY_MANIFEST}"
    if kind == names.POLICY_KIND:
        return ""
    if version.partition("/")[0] == names.DOMAIN:
        return ""  # a misspelt kind of ours
    article = "an" if kind[:1] in "AEIO" else "a"
    fix = "give the file of the policy, its ConfigMap or its FabricPolicy"
    return f"this is {article} {kind} ({version}), not a {names.POLICY_KIND}; {fix}"


def format_path(path: documents.Path) -> str:
    """Return a path as people write it: dots between keys, brackets around indexes and unusual keys."""
    parts: list[str] = []
    for step in path:
        if isinstance(step, int):
            parts.append(f"[{step}]")
        elif _PLAIN_KEY.fullmatch(step):
            parts.append(f".{step}" if parts else step)
        else:
            parts.append(f"[{json.dumps(step)}]")
    return "".join(parts)


class PolicyStore:
    """The policy in force and the state of its source. Not thread-safe: owned by one event loop."""

    def __init__(self) -> None:
        self.current: model.Policy | None = None
        self.valid = False
        self.errors: tuple[PolicyError, ...] = ()
        self.generation = 0  # number of valid reads, as in the metric railwright_policy_generation
        self._callbacks: list[Callable[[PolicyStore], None]] = []

    def subscribe(self, callback: Callable[["PolicyStore"], None]) -> None:
        """Call `callback` after every result and withdrawal."""
        self._callbacks.append(callback)

    def take(self, result: model.Policy | Rejected) -> None:
        """Put a valid policy in force. For a rejected one the last valid policy stays, and `valid` is False."""
        if isinstance(result, Rejected):
            self.valid, self.errors = False, result.errors
        else:
            self.current, self.valid, self.errors = result, True, ()
            self.generation += 1
        self._notify()

    def withdraw(self) -> None:
        """Record that there is no policy object: the last valid policy stays, `valid` is False."""
        message = "the policy was deleted; create it again" if self.generation else _NONE
        self.take(Rejected((PolicyError("", None, message),)))

    def _notify(self) -> None:
        for callback in self._callbacks:
            callback(self)
