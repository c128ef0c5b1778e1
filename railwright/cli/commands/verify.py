"""`railwright verify`: prints a small job for a fabric, and reports from its log whether RDMA ran on every rail."""

import argparse

from railwright.cli import options, parsers

HELP = "Report from the logs of a job whether RDMA runs on every rail, or print a job that tests a fabric."
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
                "kubectl logs -l volcano.sh/job-name=train --prefix --tail=-1 | railwright verify log - --fabric roce",
                "railwright verify log nccl.log -o wide",
            ),
        )
    )

    for form, meaning in _FORMS.items():
        _configure_job(
            parser.add_command(
                form,
                f"Read the logs of {meaning}, and report whether it runs over RDMA on every rail.",
                run="railwright.cli.job_verification:verify",
                finding="the logs show TCP, too few rails or a failure",
                examples=(f"railwright verify {form}/llm -n prod", f"railwright verify {form}/llm -n prod --follow"),
            )
        )


_FORMS = {"job": "all pods of a job of any kind", "gang": "all pods of a gang", "pod": "a pod"}


def _configure_job(parser: parsers.Parser) -> None:
    parser.is_named = True
    parser.add_argument("name", metavar="NAME", help="Its name.")
    options.add_namespace(parser, "Namespace (default: that of the context).")
    parser.add_argument(
        "--follow", action="store_true", help="Read the logs until they end, and report each change on standard error."
    )
    _add_policy_options(parser)
    _add_rails(parser, "those in the pods' injection records")
    options.add_output(parser, options.WIDE)
    options.add_no_headers(parser)
    options.add_cluster(parser.add_group("options for the cluster"))


def _add_rails(parser: parsers.Parser, default: str) -> None:
    parser.add_argument("--rails", type=int, metavar="N", help=f"Rails that each pod should use (default: {default}).")


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
    _add_rails(parser, "those of the policy; without it, whether all were used is not known")
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
