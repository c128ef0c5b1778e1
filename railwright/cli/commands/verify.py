"""`railwright verify`: prints a small job for a fabric, and reports from its log whether RDMA ran on every rail."""

from railwright.cli import parsers

HELP = "print a job that tests a fabric, and read from its log whether RDMA ran on every rail"
EXAMPLE = "kubectl logs -l volcano.sh/job-name=train --prefix --tail=-1 | railwright verify log -"
_KINDS = ("mpijob", "pytorchjob", "volcano", "job")
_DEFAULT_NODES = 2  # one node never uses its rails


def configure(parser: parsers.Parser) -> None:
    """Define the subcommands and their options."""
    parser.add_choice("form", "FORM")
    _configure_manifest(
        parser.add_command(
            "manifest",
            "print the job; nothing is created",
            run="railwright.cli.verification:print_manifest",
            example="railwright verify manifest --fabric roce --policy policy.yaml | kubectl create -f -",
        )
    )
    _configure_log(
        parser.add_command(
            "log",
            "report in one line what a log of NCCL shows",
            run="railwright.cli.verification:report_log",
            example=EXAMPLE,
        )
    )


def _configure_manifest(parser: parsers.Parser) -> None:
    _add_policy_options(parser)
    parser.add_argument(
        "--nodes", type=int, default=_DEFAULT_NODES, metavar="N", help="pods, one on each node (default: 2)"
    )
    parser.add_argument("--kind", choices=_KINDS, default=_KINDS[0], help="kind of the job (default: %(default)s)")
    parser.add_argument("--image", default="", help="image with NCCL and the test (default: a published one)")
    parser.add_argument("-n", "--namespace", default="default", help="namespace of the job (default: %(default)s)")
    parser.add_argument("--name", default="railwright-verify", help="name of the job (default: %(default)s)")


def _configure_log(parser: parsers.Parser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", help="logs of all pods, in one or many; - = standard input")
    _add_policy_options(parser)
    parser.add_argument(
        "--rails",
        type=int,
        metavar="N",
        help="rails that each pod should use (default: those of the policy, otherwise the most that a pod opened)",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=["text", "wide", "json"],
        default="text",
        help="output format; wide has a row for each pod",
    )


def _add_policy_options(parser: parsers.Parser) -> None:
    parser.add_argument("--fabric", metavar="NAME", default="", help="fabric (default: the policy's defaultFabric)")
    parser.add_argument("--policy", metavar="FILE", help="file with the policy or its ConfigMap")
    parser.add_argument(
        "--kubeconfig", metavar="FILE", default="", help="cluster to read the policy from, without --policy"
    )
    parsers.add_context(parser)
