"""`railwright policy validate|schema`: validates a policy, or prints its JSON Schema for editors."""

from railwright.cli import parsers

HELP = "validate a policy, or print its JSON Schema"
EXAMPLE = "railwright policy validate policy.yaml"


def configure(parser: parsers.Parser) -> None:
    """Define the subcommands and their options."""
    parser.add_choice("action", "ACTION")
    validate = parser.add_command(
        "validate",
        "print all errors of a policy or its ConfigMap, with line numbers",
        run="railwright.cli.policies:validate",
    )
    validate.add_argument(
        "file", metavar="FILE", help="policy, or the ConfigMap that contains it; - for standard input"
    )
    parser.add_command(
        "schema",
        "print the JSON Schema of the policy, for editors",
        run="railwright.cli.policies:print_schema",
    )
