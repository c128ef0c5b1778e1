"""`railwright lint FILE...`: checks NCCL settings in manifests and nccl.conf files; prints text, JSON or SARIF."""

from railwright.cli import parsers

HELP = "check NCCL settings in manifests and nccl.conf files"
EXAMPLE = "railwright lint job.yaml --policy policy.yaml"
RUN = "railwright.cli.linting:run"


def configure(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument(
        "files", metavar="FILE", nargs="*", help="manifest of any workload, or nccl.conf file; - for standard input"
    )
    parser.add_argument(
        "--policy", metavar="FILE", help="policy or its ConfigMap; enables the rules that need the fabric"
    )
    parser.add_argument("--nccl-version", metavar="VERSION", help="NCCL version in the images, such as 2.21.5")
    parser.add_argument("--rules", action="store_true", help="list the rules and exit")
    parser.add_argument("-o", "--output", choices=["text", "json", "sarif"], default="text", help="output format")
