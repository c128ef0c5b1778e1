"""Reads the policy in a file, and runs `railwright policy`: prints all errors, a manifest, the schema or an export."""

import argparse
import re
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

from railwright.cli import formats, options, output
from railwright.cluster import installed_names
from railwright.cluster import policies as policy_reader
from railwright.fabric import names, version
from railwright.fabric.policy import model, schema


def read_file(path: str) -> model.Policy:
    """Return the policy in a file, `-` for standard input. Raise UnreadableError with all its errors."""
    return _parse(output.read_text(path), path)


def _parse(text: str, path: str) -> model.Policy:
    fix = f"correct it and check it with railwright policy validate {path}"
    return require_valid(policy_reader.read_manifest(text), path, fix)


def find_fabric(policy: model.Policy, name: str) -> str:
    """Return the name of a fabric of the policy, "" for its default. Raise UnreadableError if it is not defined."""
    fabrics = policy.document.fabrics
    fabric_name = name or policy.document.default_fabric or (next(iter(fabrics)) if len(fabrics) == 1 else "")
    if fabric_name not in fabrics:
        problem = f"--fabric {name}: not defined in the policy" if name else "--fabric NAME is missing"
        raise output.UnreadableError(f"{problem} (defined: {', '.join(fabrics)})")
    return fabric_name


def require_valid(result: model.Policy | policy_reader.Rejected, source: str, fix: str) -> model.Policy:
    """Return a policy that was read. Raise UnreadableError with all errors of an invalid one, and `fix`."""
    if not isinstance(result, policy_reader.Rejected):
        return result
    first, *others = [output.escape_controls(error.format_in(source)) for error in result.errors]
    if not others:
        raise output.UnreadableError(f"{first}; {fix}")
    raise output.UnreadableError("\n  ".join([f"the policy is invalid; {fix}:", first, *others]))


def print_schema(_: argparse.Namespace) -> int:
    """Print the schema and return 0."""
    formats.print_json(schema.build())
    return output.OK


def validate(arguments: argparse.Namespace) -> int:
    """Return 0 for valid policies, 1 if one is invalid. Raise UnreadableError for an unreadable file."""
    results = [(file, policy_reader.read_manifest(output.read_text(file))) for file in options.find_files(arguments)]
    if formats.is_document(arguments.output):
        formats.print_document([_build_document(*result) for result in results], arguments.output)
    else:
        for file, result in results:
            _print_result(file, result)
    is_rejected = any(isinstance(result, policy_reader.Rejected) for _, result in results)
    return output.FINDINGS if is_rejected else output.OK


def _build_document(file: str, result: model.Policy | policy_reader.Rejected) -> Mapping[str, object]:
    if isinstance(result, policy_reader.Rejected):
        errors = [{"line": error.line, "path": error.path, "message": error.message} for error in result.errors]
        return {"file": file, "valid": False, "digest": None, "fabrics": [], "errors": errors}
    fabrics = list(result.document.fabrics)
    return {"file": file, "valid": True, "digest": result.digest, "fabrics": fabrics, "errors": []}


def _print_result(file: str, result: model.Policy | policy_reader.Rejected) -> None:
    if not isinstance(result, policy_reader.Rejected):
        fabrics = ", ".join(result.document.fabrics)
        output.print_styled((f"{file}: valid", "bold green"), (f" (fabrics: {fabrics}; {result.digest})", ""))
        return
    for error in result.errors:
        place = file if error.line is None else f"{file}:{error.line}"
        path = [(": ", ""), (error.path, "cyan")] if error.path else []
        output.print_styled((place, "bold"), *path, (": ", ""), (error.message, ""))
    count = policy_reader.format_count(result.errors)
    output.print_styled((f"{count}: this policy would be rejected", "bold red"))


# --- manifests of a policy -------------------------------------------------------------------------------

FABRIC_POLICY, CONFIG_MAP = "fabricpolicy", "configmap"  # values of --to
_METADATA = {"name": installed_names.POLICY, "namespace": installed_names.NAMESPACE}
# what a document has beside the keys of a spec: the marks of a document, and two keys of the resource itself
_HEAD = re.compile(r"^(---|\.\.\.|apiVersion:|kind:).*\n?", re.MULTILINE)


def convert(arguments: argparse.Namespace) -> int:
    """Print the manifest and return 0. Raise UnreadableError for an unreadable file or an invalid policy."""
    file = _find_file(arguments)
    text = output.read_text(file)
    policy = _parse(text, file)
    write = _write_config_map if arguments.to == CONFIG_MAP else _write_fabric_policy
    sys.stdout.write(write(text, policy))
    return output.OK


def _find_file(arguments: argparse.Namespace) -> str:
    files = options.find_files(arguments)
    if len(files) > 1:
        raise output.UnreadableError(f"{len(files)} files: a cluster has one policy; give its file")
    return files[0]


def _write_config_map(text: str, _: model.Policy) -> str:
    """Return the manifest of a ConfigMap with the policy in the text of a file."""
    document = policy_reader.find_document_text(text)
    if document is None:
        document = formats.format_yaml(policy_reader.read_tree(text))
    return formats.format_yaml(_build_manifest("v1", "ConfigMap", "data", {names.POLICY_KEY: document}))


def _write_fabric_policy(text: str, policy: model.Policy) -> str:
    """Return the manifest of a FabricPolicy with the policy in the text of a file."""
    document = policy_reader.find_document_text(text)
    if document is not None and not document.lstrip().startswith("{"):
        head = _build_manifest(names.POLICY_API_VERSION, names.POLICY_KIND)
        spec = textwrap.indent(_HEAD.sub("", document).strip("\n") + "\n", "  ")
        manifest = f"{formats.format_yaml(head)}spec:\n{spec}"
        converted = policy_reader.read_manifest(manifest)
        if isinstance(converted, model.Policy) and converted.document == policy.document:
            return manifest
    # in a FabricPolicy already, or JSON, or not a block of keys at the left margin
    tree = policy_reader.read_tree(text)
    spec_tree = {key: value for key, value in tree.items() if key not in ("apiVersion", "kind")}
    return formats.format_yaml(_build_manifest(names.POLICY_API_VERSION, names.POLICY_KIND, "spec", spec_tree))


def _build_manifest(version: str, kind: str, key: str = "", content: Any = None) -> dict[str, Any]:
    """Return an object with the name of the policy, and with `content` under `key` if there is one."""
    return {"apiVersion": version, "kind": kind, "metadata": _METADATA, **({key: content} if key else {})}


def export(arguments: argparse.Namespace) -> int:
    """Print the objects with which the API server changes pods itself, after comments on what they cannot do.

    Return 1 if that is something of this policy. Raises UnreadableError for an unreadable file or an invalid policy.
    """
    from railwright.fabric.policy_export import admission_policies  # imports what plans a pod

    file = _find_file(arguments)
    policy = read_file(file)
    exported = admission_policies.export(policy)
    gaps = [output.escape_controls(gap.format()) for gap in exported.gaps]
    lines = [
        f"Written by railwright {version.VERSION} from the policy {policy.digest}: export it again when it changes.",
        "The API server changes pods as the webhook would, with these differences:",
        *(f"- {note}" for note in admission_policies.NOTES),
        *(["Of this policy, these keys cannot be exported:", *(f"- {gap}" for gap in gaps)] if gaps else []),
    ]
    sys.stdout.write("".join(f"# {line}\n" for line in lines))
    if exported.objects:
        sys.stdout.write(formats.format_documents(exported.objects))
    for gap in gaps:
        print(f"{file}: {gap}", file=sys.stderr)
    return output.FINDINGS if gaps else output.OK


ACTIONS = {"validate": validate, "convert": convert, "export": export, "schema": print_schema}
