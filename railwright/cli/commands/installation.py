"""The commands for an installation: `check`, `version`, `policy`, `disable` and `enable`; for `certs` see beside it."""

import argparse
import pathlib

from railwright.cli import options, parsers

_DEFAULT_WAIT = 300.0  # seconds, for --wait without a value
_MAX_WAIT = 86400.0  # seconds: a day


def _configure_check(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    options.add_namespace(parser, "Namespace of the installation (default: found by the labels of its Deployments).")
    parser.add_argument(
        "--namespace-for-probe",
        metavar="NAME",
        default="",
        help="Namespace of the dry-run pod (default: the first namespace that may use the fabric).",
    )
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="List every check, also those that passed or were skipped.",
    )
    parser.add_argument("--pre", action="store_true", help="Check the prerequisites, before installing.")
    parser.add_argument("--strict", action="store_true", help="Exit with 1 for warnings too.")
    parser.add_argument(
        "--allow-unread",
        action="store_true",
        help="Do not exit with 2 if checks were skipped because you may not read their objects.",
    )
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        type=_parse_seconds,
        nargs="?",
        const=_DEFAULT_WAIT,
        default=0.0,
        help=f"Repeat until no check fails, for at most this long (default: {_DEFAULT_WAIT:g}).",
    )
    parser.add_argument(
        "--explain",
        metavar="ROW",
        nargs="?",
        const="",
        help="Print what a row looks at, an example and how to fix it, without a cluster; without ROW, list all rows.",
    )
    parser.add_argument("--svg", metavar="FILE", type=pathlib.Path, help="Also write the output as SVG.")
    options.add_output(parser)
    options.add_cluster(parser.add_group("options for the cluster"))


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _MAX_WAIT:
        raise argparse.ArgumentTypeError(f"{text}: give seconds from 0 to {_MAX_WAIT:g}")
    return seconds


def _load_check(_arguments: argparse.Namespace) -> parsers.Run:
    from railwright.cli.checking import start

    return start.run


CHECK = parsers.Command(
    "Verify an installation, and show a fix for each failed check.",
    _configure_check,
    _load_check,
    examples=("railwright check", "railwright check --pre"),
    finding="a check failed; with --strict, if one warned",
)


def _configure_version(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument("--client", action="store_true", help="Show only the version of this command; read no cluster.")
    options.add_output(parser)
    options.add_cluster(parser.add_group("options for the cluster"))


def _load_version(_arguments: argparse.Namespace) -> parsers.Run:
    from railwright.cli import versions

    return versions.run


VERSION = parsers.Command(
    "Show the version of this command, the servers' images in the cluster, and the digest of its policy.",
    _configure_version,
    _load_version,
    examples=("railwright version", "railwright version --client -o json"),
)


def _load_validate(_arguments: argparse.Namespace) -> parsers.Run:
    from railwright.cli import policies

    return policies.validate


def _load_convert(_arguments: argparse.Namespace) -> parsers.Run:
    from railwright.cli import policies

    return policies.convert


def _load_schema(_arguments: argparse.Namespace) -> parsers.Run:
    from railwright.cli import policies

    return policies.print_schema


def _configure_policy(parser: parsers.Parser) -> None:
    """Define the subcommands and their options."""
    parser.add_choice("action", "ACTION")
    validate = parser.add_command(
        "validate",
        "Print all errors of a policy, its ConfigMap or its FabricPolicy, with line numbers.",
        load=_load_validate,
        finding="a policy is invalid",
        examples=("railwright policy validate policy.yaml", "railwright policy validate -o json -f policy.yaml"),
    )
    options.add_files(validate, "Policy, or the ConfigMap or FabricPolicy that contains it.")
    options.add_output(validate)
    convert = parser.add_command(
        "convert",
        "Print a policy as the manifest of a FabricPolicy or ConfigMap.",
        load=_load_convert,
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
        load=_load_schema,
        examples=("railwright policy schema", "railwright policy schema > policy.schema.json"),
    )


POLICY = parsers.Command(
    "Validate a policy, write it as a FabricPolicy or ConfigMap, or print its JSON Schema.",
    _configure_policy,
)


def _configure_switch(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument("--dry-run", action="store_true", help="Let the API server try each change, and store nothing.")
    options.add_namespace(parser, "Namespace of the installation (default: found by the labels of its Deployments).")
    options.add_cluster(parser.add_group("options for the cluster"))


def _load_disable(_arguments: argparse.Namespace) -> parsers.Run:
    from railwright.cli import switching

    return switching.disable


DISABLE = parsers.Command(
    "Emergency switch: delete railwright's webhooks and policy bindings, so that it rejects no pod; keeps a copy.",
    _configure_switch,
    _load_disable,
    examples=("railwright disable --dry-run", "railwright disable"),
)


def _load_enable(_arguments: argparse.Namespace) -> parsers.Run:
    from railwright.cli import switching

    return switching.enable


ENABLE = parsers.Command(
    "Restore the webhooks and policy bindings that `railwright disable` deleted.",
    _configure_switch,
    _load_enable,
    examples=("railwright enable --dry-run", "railwright enable"),
)
