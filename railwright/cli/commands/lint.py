"""`railwright lint FILE...`: checks NCCL settings in manifests and nccl.conf files; prints documents or SARIF."""

from railwright.cli import options, parsers

HELP = "Check NCCL settings in manifests and nccl.conf files."
EXAMPLES = ("railwright lint job.yaml --policy policy.yaml", "railwright lint -R -f manifests -o sarif")
FINDING = "there is an error or a warning"
RUN = "railwright.cli.linting:run"
SARIF = "sarif"


def configure(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    options.add_files(parser, "Manifest of any workload, or nccl.conf file.", instead="--rules")
    parser.add_argument(
        "--policy",
        metavar="FILE",
        help="Policy, its ConfigMap or its FabricPolicy, for the rules that need the fabric (default: ask the cluster"
        " by a dry run).",
    )
    parser.add_argument("--local", action="store_true", help="Ask no cluster; check the other rules only.")
    options.add_namespace(parser, "Namespace of objects without one (default: that of the context).")
    parser.add_argument("--nccl-version", metavar="VERSION", help="NCCL version in the images, such as 2.21.5.")
    parser.add_argument("--rules", action="store_true", help="List the rules.")
    options.add_output(parser, SARIF)
    options.add_cluster(parser.add_group("options for the cluster"))
