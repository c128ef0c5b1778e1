"""`railwright policy validate|schema`: validates a policy, or prints its JSON Schema for editors."""

import argparse

from railwright.cli import output

NAME = "policy"
HELP = "validate a policy, or print its JSON Schema"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    validate = actions.add_parser("validate", help="print all errors of a policy or its ConfigMap, with line numbers")
    validate.add_argument(
        "file", metavar="FILE", help="policy, or the ConfigMap that contains it; - for standard input"
    )
    actions.add_parser("schema", help="print the JSON Schema of the policy, for editors")


def run(arguments: argparse.Namespace) -> int:
    """Return 0 for a valid policy, 1 for an invalid one, 2 for an unreadable file."""
    return _schema() if arguments.action == "schema" else _validate(arguments)


def _schema() -> int:
    from railwright.fabric.policy import schema  # noqa: PLC0415 - only this command needs it

    output.print_json(schema.build())  # always JSON, whatever -o is
    return output.OK


def _validate(arguments: argparse.Namespace) -> int:
    from railwright.cluster import manifests, policies  # noqa: PLC0415 - the validator is slow to import

    text = output.read_text(arguments.file)
    result = manifests.read(text)
    errors = result.errors if isinstance(result, policies.Rejected) else ()
    if arguments.output == "json":
        output.print_json(
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
