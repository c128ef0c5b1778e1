"""`railwright policy validate|schema`: validates a policy, or prints its JSON Schema for editors."""

from railwright.cli import options, parsers

HELP = "Validate a policy, or print its JSON Schema."


def configure(parser: parsers.Parser) -> None:
    """Define the subcommands and their options."""
    parser.add_choice("action", "ACTION")
    validate = parser.add_command(
        "validate",
        "Print all errors of a policy, its ConfigMap or its FabricPolicy, with line numbers.",
        run="railwright.cli.policies:validate",
        finding="a policy is invalid",
        examples=("railwright policy validate policy.yaml", "railwright policy validate -o json -f policy.yaml"),
    )
    options.add_files(validate, "Policy, or the ConfigMap or FabricPolicy that contains it.")
    options.add_output(validate)
    parser.add_command(
        "schema",
        "Print the JSON Schema of the policy, for editors.",
        run="railwright.cli.policies:print_schema",
        examples=("railwright policy schema", "railwright policy schema > policy.schema.json"),
    )
