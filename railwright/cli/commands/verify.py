"""`railwright verify`: prints a small job for a fabric, and reports from its log whether RDMA ran on every rail.

Owns arguments and exit codes; the job and the report come from `railwright.fabric.verification`. Creates nothing in a
cluster.
"""

import argparse
import io
import pathlib
import sys
import typing
from collections.abc import Mapping

from railwright.cli import examples, output

if typing.TYPE_CHECKING:  # slow to import, and `railwright --help` needs none of them
    from railwright.fabric.verification import jobs, model

NAME = "verify"
HELP = "print a job that tests a fabric, and read from its log whether RDMA ran on every rail"
_KINDS = ("mpijob", "pytorchjob", "volcano", "job")
_DEFAULT_NODES = 2  # one node never uses its rails


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the two subcommands."""
    forms = parser.add_subparsers(dest="form", metavar="FORM", required=True)
    manifest = forms.add_parser("manifest", help="print the job; nothing is created", epilog=(
        "example: railwright verify manifest --fabric roce --policy policy.yaml | kubectl create -f -"))  # fmt: skip
    _policy_options(manifest)
    manifest.add_argument(
        "--nodes", type=int, default=_DEFAULT_NODES, metavar="N", help="pods, one on each node (default: 2)"
    )
    manifest.add_argument("--kind", choices=_KINDS, default=_KINDS[0], help="kind of the job (default: %(default)s)")
    manifest.add_argument("--image", default="", help="image with NCCL and the test (default: a published one)")
    manifest.add_argument("-n", "--namespace", default="default", help="namespace of the job (default: %(default)s)")
    manifest.add_argument("--name", default="railwright-verify", help="name of the job (default: %(default)s)")
    read = forms.add_parser(
        "log", help="report in one line what a log of NCCL shows", epilog=f"example: {examples.EXAMPLES[NAME]}"
    )
    read.add_argument("files", metavar="FILE", nargs="+", help="logs of all pods, in one or many; - = standard input")
    _policy_options(read)
    read.add_argument(
        "--rails",
        type=int,
        metavar="N",
        help="rails that each pod should use (default: those of the policy, otherwise the most that a pod opened)",
    )
    read.add_argument(
        "-o",
        "--output",
        choices=["text", "wide", "json"],
        default="text",
        help="output format; wide has a row for each pod",
    )


def _policy_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fabric", metavar="NAME", default="", help="fabric (default: the policy's defaultFabric)")
    parser.add_argument("--policy", metavar="FILE", help="file with the policy or its ConfigMap")
    parser.add_argument(
        "--kubeconfig", metavar="FILE", default="", help="cluster to read the policy from, without --policy"
    )
    parser.add_argument("--context", metavar="NAME", default=None, help="context of the kubeconfig")


def run(arguments: argparse.Namespace) -> int:
    """Return the exit code.

    `log`: 0 for RDMA on every rail; 1 for TCP, missing rails or failures; 2 if the log does not tell or is unreadable.
    `manifest`: 0, or 2 for wrong options or an unreadable policy.
    """
    return _manifest(arguments) if arguments.form == "manifest" else _log(arguments)


# --- the job ----------------------------------------------------------------------------------------------


def _manifest(arguments: argparse.Namespace) -> int:
    from railwright.cli.verification import policies  # noqa: PLC0415 - see above
    from railwright.fabric.verification import jobs  # noqa: PLC0415

    if arguments.nodes < 1:
        raise output.UnreadableError(f"--nodes {arguments.nodes}: must be 1 or more")
    if arguments.policy:
        policy = policies.from_file(arguments.policy)
    else:
        policy = policies.from_cluster(arguments.kubeconfig, arguments.context)
    fabric = policies.fabric(policy, arguments.fabric)
    options = jobs.JobOptions(
        fabric=fabric,
        nodes=arguments.nodes,
        kind=arguments.kind,
        image=arguments.image,
        namespace=arguments.namespace,
        name=arguments.name,
    )
    trees = jobs.build(policy.document, options)
    if arguments.output == "json":
        output.print_json({"apiVersion": "v1", "kind": "List", "items": trees})
        return output.OK
    if policy.document.fabrics[fabric].gpus_per_node is None:
        print(f"railwright: fabric {fabric} has no gpusPerNode: the job requests 8 GPUs of each node", file=sys.stderr)
    sys.stdout.write(_yaml(trees, options))
    return output.OK


def _yaml(trees: "list[jobs.Tree]", options: "jobs.JobOptions") -> str:
    import yaml  # noqa: PLC0415 - see above

    from railwright.fabric.verification import jobs  # noqa: PLC0415

    class Dumper(yaml.SafeDumper):
        """Writes text of several lines as a block, not as one quoted line."""

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    written = io.StringIO()
    written.write(
        f"# An all-reduce over fabric {options.fabric}, {options.nodes} whole nodes. When it has run:\n"
        f"#   {jobs.logs_command(options)} \\\n#     | railwright verify log - --fabric {options.fabric}\n"
    )
    yaml.dump_all(trees, written, Dumper=Dumper, sort_keys=False, explicit_start=len(trees) > 1, width=110)
    return written.getvalue()


# --- the log ----------------------------------------------------------------------------------------------


def _log(arguments: argparse.Namespace) -> int:
    from railwright.cli import waiting  # noqa: PLC0415 - see above
    from railwright.cli.verification import logs  # noqa: PLC0415
    from railwright.fabric.verification import model, report  # noqa: PLC0415

    if arguments.files.count("-") > 1:
        raise output.UnreadableError("verify log: - (standard input) can be read once")
    expected = _build_expectation(arguments)
    files = [("standard input" if path == "-" else pathlib.PurePath(path).stem, path) for path in arguments.files]
    with waiting.show_progress("reading the log"):
        assessment = report.assess_logs([(name, logs.lines(path)) for name, path in files], expected)
    _FORMS[arguments.output](assessment)
    codes = {model.RDMA: output.OK, model.UNKNOWN: output.UNUSABLE}
    return codes.get(assessment.state, output.FINDINGS)


def _build_expectation(arguments: argparse.Namespace) -> "model.Expected":
    import msgspec  # noqa: PLC0415 - see above

    from railwright.cli.verification import policies  # noqa: PLC0415
    from railwright.fabric.verification import expectations, model  # noqa: PLC0415

    if arguments.rails is not None and arguments.rails < 1:
        raise output.UnreadableError(f"--rails {arguments.rails}: must be 1 or more")
    if arguments.policy:
        policy = policies.from_file(arguments.policy)
    elif arguments.kubeconfig or arguments.context:
        policy = policies.from_cluster(arguments.kubeconfig, arguments.context)
    elif arguments.fabric and arguments.rails is None:
        policy = policies.from_cluster("", None)
    else:
        return model.Expected(rails=arguments.rails)
    fabric = policies.fabric(policy, arguments.fabric)
    if not policy.document.fabrics[fabric].rails:
        raise output.UnreadableError(f"--fabric {fabric}: has no rails, so there is no RDMA to be seen")
    expected = expectations.expect(policy.document, fabric)
    return expected if arguments.rails is None else msgspec.structs.replace(expected, rails=arguments.rails)


def _text(assessment: "model.Report") -> None:
    output.print_styled((assessment.line, _STYLES[assessment.state]))


def _wide(assessment: "model.Report") -> None:
    from railwright.cli import tables  # noqa: PLC0415 - see above

    _text(assessment)
    columns = (
        tables.Column("POD"),
        tables.Column("STATE"),
        tables.Column("NETWORK", drop=2),
        tables.Column("RAILS"),
        tables.Column("GPUDIRECT", drop=1),
        tables.Column("DEVICES", drop=4),
        tables.Column("WHY", drop=3, cut=True),
    )
    rows = [
        (
            pod.name,
            pod.state,
            pod.transport or "-",
            f"{'?' if pod.rails is None else pod.rails}/{'?' if assessment.rails is None else assessment.rails}",
            f"{pod.channels_direct}/{pod.channels}",
            ",".join(pod.used) or "-",
            "; ".join(pod.why) or "-",
        )
        for pod in assessment.pods
    ]
    tables.show(columns, rows)


_FORMS: Mapping[str, typing.Callable[["model.Report"], None]] = {
    "text": _text,
    "wide": _wide,
    "json": output.print_json,
}
_STYLES = {"rdma": "green", "tcp": "bold red", "partial": "bold yellow", "failed": "bold red", "unknown": "yellow"}
