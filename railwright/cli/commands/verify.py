"""`railwright verify`: prints a small job for a fabric, and reports from its log whether RDMA ran on every rail."""

import argparse

from railwright.cli import options, parsers

HELP = "Print a job that tests a fabric, and read from its log whether RDMA ran on every rail."
_KINDS = ("mpijob", "pytorchjob", "volcano", "job")
_DEFAULT_NODES = 2  # one node never uses its rails


def configure(parser: parsers.Parser) -> None:
    """Define the subcommands and their options."""
    parser.add_choice("form", "FORM")
    _configure_manifest(
        parser.add_command(
            "manifest",
            "Print the job; create nothing.",
            run="railwright.cli.verification:print_manifest",
            examples=(
                "railwright verify manifest --fabric roce | kubectl create -f -",
                "railwright verify manifest --fabric roce --policy policy.yaml --kind job -n prod",
            ),
        )
    )
    _configure_log(
        parser.add_command(
            "log",
            "Report in one line what a log of NCCL shows.",
            run="railwright.cli.verification:report_log",
            finding="the log shows TCP, too few rails or a failure",
            examples=(
                "kubectl logs -l volcano.sh/job-name=train --prefix --tail=-1 | railwright verify log -",
                "railwright verify log nccl.log -o wide",
            ),
        )
    )


def _configure_manifest(parser: parsers.Parser) -> None:
    _add_policy_options(parser)
    parser.add_argument(
        "--nodes", type=int, default=_DEFAULT_NODES, metavar="N", help="Pods, one on each node (default: 2)."
    )
    parser.add_argument("--kind", choices=_KINDS, default=_KINDS[0], help="Kind of the job (default: %(default)s).")
    parser.add_argument("--image", default="", help="Image with NCCL and the test (default: a published one).")
    options.add_namespace(parser, "Namespace of the job (default: %(default)s).", "default")
    parser.add_argument("--name", default="railwright-verify", help="Name of the job (default: %(default)s).")
    options.add_output(parser)
    options.add_cluster(parser.add_group("options for the cluster"))


def _configure_log(parser: parsers.Parser) -> None:
    parser.add_argument(
        "words", metavar="FILE", nargs="*", help="Logs of all pods, in one or many files; - for standard input."
    )
    parser.add_argument(
        "-f", "--filename", metavar="FILE", action="append", default=[], help="The same as FILE; repeatable."
    )
    parser.requirements.append(_find_problem)
    _add_policy_options(parser)
    parser.add_argument(
        "--rails",
        type=int,
        metavar="N",
        help="Rails that each pod should use (default: those of the policy, otherwise the most that a pod opened).",
    )
    options.add_output(parser, options.WIDE)
    options.add_no_headers(parser)
    options.add_cluster(parser.add_group("options for the cluster"))


def _find_problem(arguments: argparse.Namespace) -> str:
    return (
        ""
        if arguments.words or arguments.filename
        else "the following arguments are required: FILE, or - for standard input"
    )


def _add_policy_options(parser: parsers.Options) -> None:
    parser.add_argument("--fabric", metavar="NAME", default="", help="Fabric (default: the policy's defaultFabric).")
    options.add_policy(parser)
