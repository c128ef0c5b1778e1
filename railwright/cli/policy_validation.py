"""Runs `railwright policy`: prints all errors of a policy, or its JSON Schema."""

import argparse

from railwright.cli import formats, output
from railwright.cluster import manifests, policies
from railwright.fabric.policy import schema


def print_schema(_: argparse.Namespace) -> int:
    """Print the schema and return 0."""
    formats.print_json(schema.build())  # always JSON, whatever -o is
    return output.OK


def validate(arguments: argparse.Namespace) -> int:
    """Return 0 for a valid policy, 1 for an invalid one. Raise UnreadableError for an unreadable file."""
    text = output.read_text(arguments.file)
    result = manifests.read(text)
    errors = result.errors if isinstance(result, policies.Rejected) else ()
    if arguments.output == "json":
        formats.print_json(
            [
                {"file": arguments.file, "line": error.line, "path": error.path, "message": error.message}
                for error in errors
            ]
        )
        return output.FINDINGS if errors else output.OK
    for error in errors:
        place = arguments.file if error.line is None else f"{arguments.file}:{error.line}"
        path = [(": ", ""), (error.path, "cyan")] if error.path else []
        output.print_styled((place, "bold"), *path, (": ", ""), (error.message, ""))
    if isinstance(result, policies.Rejected):
        count = len(errors)
        output.print_styled((f"{count} error{'' if count == 1 else 's'}: this policy would be rejected", "bold red"))
        return output.FINDINGS
    fabrics = ", ".join(result.document.fabrics)
    output.print_styled((f"{arguments.file}: valid", "bold green"), (f" (fabrics: {fabrics}; {result.digest})", ""))
    return output.OK
