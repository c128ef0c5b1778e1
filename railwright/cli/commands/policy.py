"""`railwright policy validate|convert|schema`: validates a policy, writes its manifest, or prints its JSON Schema."""

from railwright.cli import options, parsers

HELP = "Validate a policy, write it as a FabricPolicy or ConfigMap, or print its JSON Schema."


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
    convert = parser.add_command(
        "convert",
        "Print a policy as the manifest of a FabricPolicy or ConfigMap.",
        run="railwright.cli.policy_manifests:convert",
        examples=(
            "railwright policy convert policy.yaml | kubectl apply -f -",
            "railwright policy convert --to configmap fabricpolicy.yaml",
        ),
    )
    options.add_files(convert, "Policy, or the ConfigMap or FabricPolicy that contains it.")
    convert.add_argument(
        "--to",
        type=str.lower,
        choices=("fabricpolicy", "configmap"),
        default="fabricpolicy",
        help="Kind of the manifest (default: fabricpolicy). Comments of a FabricPolicy are not kept.",
    )
    parser.add_command(
        "schema",
        "Print the JSON Schema of the policy, for editors.",
        run="railwright.cli.policies:print_schema",
        examples=("railwright policy schema", "railwright policy schema > policy.schema.json"),
    )
