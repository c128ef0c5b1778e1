"""Reads a policy: returns the accepted policy, or every error with path and line. Also stores the policy in force.

An invalid text leaves the last valid policy in force. `railwright.fabric.policy` defines what is valid. In a manifest,
the policy is the bare document, or a ConfigMap or FabricPolicy contains it; lines of errors are those of the file, and
paths those in the resource.
"""

import dataclasses
import decimal
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from railwright.cluster import documents, installed_names
from railwright.fabric import names, text, views
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

    `read_manifest` reads manifests in files. Here they are in the place of the policy itself.
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


# --- manifests of a policy ----------------------------------------------------------------------------------


_SPEC = "spec"


def read_manifest(text: str) -> model.Policy | Rejected:
    """Return the policy of a file, or all its errors with lines of the file. Never raises."""
    try:
        if (resource := _find_resource(text)) is not None:
            return _read_resource(resource)
        holder = _find_policy_text(text)
    except documents.DocumentError as error:
        return Rejected((PolicyError("", error.line, error.problem),))
    if holder is None:
        return read(text)
    result = read(holder.text)
    if isinstance(result, Rejected):
        moved = tuple(dataclasses.replace(error, line=_translate_line(holder, error.line)) for error in result.errors)
        return Rejected(moved)
    return result


def find_document_text(text: str) -> str | None:
    """Return the text of the policy document in a file, None if a FabricPolicy contains it. Raises DocumentError."""
    if _find_resource(text) is not None:
        return None
    holder = _find_policy_text(text)
    return text if holder is None else holder.text


def read_tree(text: str) -> dict[str, Any]:
    """Return the tree of the policy document in a file, whose policy is valid."""
    resource = _find_resource(text)
    if resource is not None and (spec := documents.find_child(resource, _SPEC)):
        return build_tree(documents.build_tree(spec[1]))
    tree: dict[str, Any] = documents.read(find_document_text(text) or "").tree
    return tree


def _find_resource(text: str) -> documents.Node | None:
    """Return the first FabricPolicy with a spec, which tells it from a bare document; None without one."""
    if "spec" not in text or names.POLICY_KIND not in text:
        return None
    for root in documents.parse(text):
        kind = documents.find_child(root, "kind")
        if kind is not None and kind[1].text == names.POLICY_KIND and documents.find_child(root, _SPEC):
            return root
    return None


def _read_resource(root: documents.Node) -> model.Policy | Rejected:
    """Return the policy of a FabricPolicy, or all its errors. Raises DocumentError."""
    version, spec = documents.find_child(root, "apiVersion"), documents.find_child(root, _SPEC)
    if version is None or version[1].text != names.POLICY_API_VERSION:
        line = root.line if version is None else version[0]
        return Rejected((PolicyError("apiVersion", line, f"must be {names.POLICY_API_VERSION}"),))
    if spec is None or spec[1].kind != "mapping":
        message = "must be a mapping (key: value) with the policy"
        return Rejected((PolicyError(_SPEC, root.line if spec is None else spec[0], message),))
    document = documents.build_document(spec[1])
    tree = build_tree(document.tree)
    result = check(dataclasses.replace(document, tree=tree), write_spec(document.tree))
    if not isinstance(result, Rejected):
        return result
    located = (dataclasses.replace(error, path=format_resource_path(error.path)) for error in result.errors)
    return Rejected(tuple(located))


def _find_policy_text(text: str) -> documents.Node | None:
    """Return the value of data."policy.yaml" in the first ConfigMap that has it; None for a text without ConfigMaps."""
    if "ConfigMap" not in text:
        return None
    without: documents.Node | None = None
    for root in documents.parse(text):
        kind = documents.find_child(root, "kind")
        if kind is None or kind[1].text != "ConfigMap":
            continue
        data = documents.find_child(root, "data")
        value = data and documents.find_child(data[1], names.POLICY_KEY)
        if value and value[1].kind == "scalar":
            return value[1]
        without = root
    if without is not None:
        raise documents.DocumentError(f'is a ConfigMap without the text data."{names.POLICY_KEY}"', without.line)
    return None


def _translate_line(holder: documents.Node, line: int | None) -> int:
    # only a literal block keeps its lines, starting after its "|"; other styles fold or escape them
    return holder.line + line if line is not None and holder.style == "|" else holder.line


# --- the policy in the spec of a FabricPolicy --------------------------------------------------------------


def write_document(resource: views.FabricPolicy) -> str:
    """Return the policy document of a resource as JSON with sorted keys. Its digest is the digest of the policy."""
    return write_spec(resource.spec or {})


def write_spec(spec: Mapping[str, Any]) -> str:
    """Return the policy document of a resource with this spec."""
    return msgspec.json.encode(_write_numbers(build_tree(spec)), order="deterministic").decode()


def build_tree(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tree of the policy document of a resource with this spec."""
    return {"apiVersion": names.POLICY_API_VERSION, "kind": names.POLICY_KIND, **spec}


def _write_numbers(tree: Any) -> Any:
    """Return the tree with floats as an API server returns whole ones, and without exponents.

    YAML 1.1, as which the text is read, takes 1e-7 for a string. msgspec encodes no integer of more than 64 bits.
    """
    if isinstance(tree, float) and not tree.is_integer():
        return msgspec.Raw(format(decimal.Decimal(repr(tree)), "f").encode())
    if isinstance(tree, int | float) and not isinstance(tree, bool):
        return msgspec.Raw(str(int(tree)).encode())
    if isinstance(tree, Mapping):
        return {key: _write_numbers(value) for key, value in tree.items()}
    return [_write_numbers(item) for item in tree] if isinstance(tree, list) else tree


def locate_in_spec(result: model.Policy | Rejected) -> model.Policy | Rejected:
    """Return a result of the text of `write_document` with the errors' paths in the resource, and without lines."""
    if not isinstance(result, Rejected):
        return result
    located = [dataclasses.replace(error, path=format_resource_path(error.path), line=None) for error in result.errors]
    return Rejected(tuple(located))


def format_resource_path(path: str) -> str:
    """Return the path in a resource for a path in its policy document."""
    return f"{_SPEC}{'' if path.startswith('[') or not path else '.'}{path}"
