"""Reads policies: returns the valid policy, or every error with path and line. Also holds the policy in force.

An invalid text leaves the last valid policy in force. `railwright.fabric.policy` defines what is valid. A file has the
policy itself, or the manifest of a ConfigMap with the policy; lines in errors are those of the file.
"""

import dataclasses
import hashlib
import json
import logging
import re
from collections.abc import Callable, Sequence

import msgspec
import yaml

from railwright.cluster import documents, installed_names, policy_errors
from railwright.fabric import names, views
from railwright.fabric.policy import model

_LOG = logging.getLogger(__name__)
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")
_NONE = (
    f"not found; create ConfigMap {installed_names.POLICY} in namespace {installed_names.NAMESPACE} with the key"
    f" {names.POLICY_KEY}"
)


@dataclasses.dataclass(frozen=True)
class PolicyError:
    """One error: path as `fabrics.roce.rails[2].device` ("" = the document), 1-based line, message."""

    path: str
    line: int | None
    message: str

    def __str__(self) -> str:
        """Return `line 3: fabrics.roce: message`, without line and path where there are none."""
        return self._format_at("" if self.line is None else f"line {self.line}")

    def format_with_file(self, file: str) -> str:
        """Return the error with the file and the line in front of it, as compilers do."""
        return self._format_at(file if self.line is None else f"{file}:{self.line}")

    def _format_at(self, place: str) -> str:
        """Return the error with a place in front of it."""
        return ": ".join(filter(None, (place, self.path, self.message)))


MAX_CHARACTERS = 128 * 1024  # 100 fabrics of 8 rails have fewer; servers read a policy while reviews wait
MAX_VALUES = 10_000
MAX_ERRORS = 200  # listed of one policy: nobody reads more; a further entry says that there are more
_TOO_MANY_ERRORS = PolicyError("", None, f"has more than {MAX_ERRORS} errors; fix these first")


@dataclasses.dataclass(frozen=True)
class RejectedPolicy:
    """A rejected policy: its errors, in the order of their lines."""

    errors: tuple[PolicyError, ...]


def read(text: str) -> model.Policy | RejectedPolicy:
    """Return the policy in a text, or its errors. Never raises."""
    try:
        document = _read_document(text)
    except documents.DocumentError as error:
        return RejectedPolicy((PolicyError("", error.line, error.problem),))
    located = policy_errors.list_errors(document, MAX_ERRORS + 1)
    errors = [PolicyError(format_path(path), line, message) for line, path, message in located[:MAX_ERRORS]]
    if errors:
        return RejectedPolicy((*errors, *([_TOO_MANY_ERRORS] if len(located) > MAX_ERRORS else [])))
    accepted = msgspec.convert(documents.remove_nulls(document.tree), model.PolicyDocument)
    return model.Policy(accepted, f"sha256:{hashlib.sha256(text.encode()).hexdigest()}")


def _read_document(text: str) -> documents.Document:
    """Return the only document of a text. Raises DocumentError."""
    if len(text) > MAX_CHARACTERS:
        raise documents.DocumentError(f"has more than {MAX_CHARACTERS} characters; shorten it")
    roots = list(documents.parse(text))
    if not roots or (len(roots) == 1 and roots[0].value == ""):
        raise documents.DocumentError("is empty; expected one YAML document", 1)
    if len(roots) > 1:
        line = documents.get_line(roots[1])
        raise documents.DocumentError(f"contains {len(roots)} documents separated by '---'; keep one", line)
    document = documents.build_document(roots[0], MAX_VALUES)
    tree = document.tree if isinstance(document.tree, dict) else {}
    kind, version = tree.get("kind"), tree.get("apiVersion")
    if isinstance(kind, str) and isinstance(version, str) and version.partition("/")[0] != names.DOMAIN:
        # an error for each of its keys would hide it
        problem = f"this is an object of kind {kind} ({version}), not a policy; give the policy itself"
        raise documents.DocumentError(problem, document.find_line(()))
    return document


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
    """The policy in force, and the errors of a newer one that was rejected. Used by one event loop only.

    It is the sink of the watch of the policy's ConfigMap.
    """

    def __init__(self) -> None:
        self.current: model.Policy | None = None
        self.config_map: views.ConfigMap | None = None
        self.valid = False
        self.errors: tuple[PolicyError, ...] = ()
        self.last_valid: model.Policy | None = None  # of an earlier process
        self._callbacks: list[Callable[[PolicyStore], None]] = []

    def subscribe(self, callback: Callable[["PolicyStore"], None]) -> None:
        """Call `callback` after each change of the policy, valid or not."""
        self._callbacks.append(callback)

    def update_policy(self, result: model.Policy | RejectedPolicy) -> None:
        """Put a valid policy in force. For a rejected one the last valid policy stays, and `valid` is False.

        Until this process has had a valid policy, that of an earlier process is used, if the policy's ConfigMap exists.
        """
        if isinstance(result, RejectedPolicy):
            self.valid, self.errors = False, result.errors
            if self.current is None and self.config_map is not None and self.last_valid is not None:
                self.current = self.last_valid
                fields = {"copy": installed_names.LAST_POLICY, "errors": list(map(str, result.errors))}
                _LOG.warning("the policy is invalid; the last valid one is in force", extra={"fields": fields})
        else:
            self.current, self.valid, self.errors = result, True, ()
        for callback in self._callbacks:
            callback(self)

    def replace(self, objects: Sequence[views.ConfigMap]) -> None:
        """Read the policy of the ConfigMap. Without one the last valid policy stays, and `valid` is False."""
        if objects:
            self.upsert(objects[0])
            return
        self.config_map = None
        message = "the policy was deleted; create it again" if self.current else _NONE
        self.update_policy(RejectedPolicy((PolicyError("", None, message),)))

    def upsert(self, obj: views.ConfigMap) -> None:
        """Read the policy of the ConfigMap. Without the key it counts as an empty policy, which is rejected."""
        self.config_map = obj
        self.update_policy(read((obj.data or {}).get(names.POLICY_KEY, "")))

    def remove(self, _: views.ConfigMap) -> None:
        """Record that the ConfigMap was deleted."""
        self.replace([])


# --- manifests of a policy ----------------------------------------------------------------------------------


def read_manifest(text: str) -> model.Policy | RejectedPolicy:
    """Return the policy in the text of a file, or its errors with lines of the file. Never raises."""
    try:
        holder = _find_policy_text(text)
    except documents.DocumentError as error:
        return RejectedPolicy((PolicyError("", error.line, error.problem),))
    if holder is None:
        return read(text)
    result = read(holder.value)
    if isinstance(result, RejectedPolicy):
        moved = tuple(dataclasses.replace(error, line=_translate_line(holder, error.line)) for error in result.errors)
        return RejectedPolicy(moved)
    return result


def _find_policy_text(text: str) -> yaml.ScalarNode | None:
    """Return the value of data."policy.yaml" in the first ConfigMap that has it; None for a text without ConfigMaps.

    Raises DocumentError if no ConfigMap has it.
    """
    if "ConfigMap" not in text:
        return None
    without: documents.Node | None = None
    for root in documents.parse(text):
        kind = documents.find_child(root, "kind")
        if kind is None or kind[1].value != "ConfigMap":
            continue
        data = documents.find_child(root, "data")
        value = data and documents.find_child(data[1], names.POLICY_KEY)
        if value and isinstance(value[1], yaml.ScalarNode):
            return value[1]
        without = root
    if without is not None:
        problem = f'is a ConfigMap without data."{names.POLICY_KEY}"; put the policy there as text'
        raise documents.DocumentError(problem, documents.get_line(without))
    return None


def _translate_line(holder: yaml.ScalarNode, line: int | None) -> int:
    # only a literal block keeps its lines, starting after its "|"; other styles fold or escape them
    first = documents.get_line(holder)
    return first + line if line is not None and holder.style == "|" else first
