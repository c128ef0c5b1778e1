"""Reads the policy in a file, and runs `railwright policy`: prints all errors, or the schema."""

import argparse
from collections.abc import Mapping

from railwright.cli import formats, options, output
from railwright.cluster import policies as policy_reader
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
        return {"file": file, "valid": False, "digest": None, "fabrics": [], "errors": errors, "warnings": []}
    return {
        "file": file,
        "valid": True,
        "digest": result.digest,
        "fabrics": list(result.document.fabrics),
        "errors": [],
        "warnings": policy_reader.list_warnings(result),
    }


def _print_result(file: str, result: model.Policy | policy_reader.Rejected) -> None:
    if not isinstance(result, policy_reader.Rejected):
        fabrics = ", ".join(result.document.fabrics)
        output.print_styled((f"{file}: valid", "bold green"), (f" (fabrics: {fabrics}; {result.digest})", ""))
        for warning in policy_reader.list_warnings(result):
            output.print_styled((file, "bold"), (": ", ""), ("warning", "yellow"), (f": {warning}", ""))
        return
    for error in result.errors:
        place = file if error.line is None else f"{file}:{error.line}"
        path = [(": ", ""), (error.path, "cyan")] if error.path else []
        output.print_styled((place, "bold"), *path, (": ", ""), (error.message, ""))
    count = policy_reader.format_count(result.errors)
    output.print_styled((f"{count}: this policy would be rejected", "bold red"))


ACTIONS = {"validate": validate, "schema": print_schema}
