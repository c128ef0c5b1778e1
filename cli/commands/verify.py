"""`railwright verify`: a small job for a fabric, and what its log says: RDMA on every rail, or not.

Owns the arguments and the exit codes. The job and the verdict are `fabric.verification`'s. Creates nothing.
"""

import argparse
import io
import pathlib
import sys
import typing
from collections.abc import Mapping

from cli import examples, output

if typing.TYPE_CHECKING:  # slow to import, and `railwright --help` needs none of them
    from fabric.verification import jobs, model

NAME = "verify"
HELP = "a small job that shows whether a fabric carries RDMA on every rail, and what its log says"
_KINDS = ("mpijob", "pytorchjob", "volcano", "job")
_DEFAULT_NODES = 2  # one node never uses its rails


def configure(parser: argparse.ArgumentParser) -> None:
    """Two forms, each a sub-command."""
    forms = parser.add_subparsers(dest="form", metavar="FORM", required=True)
    made = forms.add_parser("manifest", help="print the job; nothing is created", epilog=(
        "example: railwright verify manifest --fabric roce --policy policy.yaml | kubectl create -f -"))  # fmt: skip
    _policy_options(made)
    made.add_argument("--nodes", type=int, default=_DEFAULT_NODES, metavar="N", help="pods, a node each (default: 2)")
    made.add_argument("--kind", choices=_KINDS, default=_KINDS[0], help="of job (default: %(default)s)")
    made.add_argument("--image", default="", help="with NCCL and its program (default: a published one, see the docs)")
    made.add_argument("-n", "--namespace", default="default", help="of the job (default: %(default)s)")
    made.add_argument("--name", default="railwright-verify", help="of the job (default: %(default)s)")
    read = forms.add_parser(
        "log", help="say in one line what a log of NCCL shows", epilog=f"example: {examples.EXAMPLES[NAME]}"
    )
    read.add_argument("files", metavar="FILE", nargs="+", help="logs of all pods, in one or many; - = standard input")
    _policy_options(read)
    read.add_argument(
        "--rails",
        type=int,
        metavar="N",
        help="that each pod should use (default: the policy's, else the most that a pod opened)",
    )
    read.add_argument(
        "-o",
        "--output",
        choices=["text", "wide", "json"],
        default="text",
        help="form of the answer; wide: a row for each pod",
    )


def _policy_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fabric", metavar="NAME", default="", help="of the policy (default: its default)")
    parser.add_argument("--policy", metavar="FILE", help="the policy, or its ConfigMap")
    parser.add_argument(
        "--kubeconfig", metavar="FILE", default="", help="the cluster whose policy it is, without --policy"
    )
    parser.add_argument("--context", metavar="NAME", default=None, help="a context of the kubeconfig")


def run(arguments: argparse.Namespace) -> int:
    """Of a log: 0 RDMA on every rail, 1 TCP, or RDMA on some or broken, 2 unreadable or cannot tell. Of a job: 0, 2."""
    return _manifest(arguments) if arguments.form == "manifest" else _log(arguments)


# --- the job ----------------------------------------------------------------------------------------------


def _manifest(arguments: argparse.Namespace) -> int:
    from cli.verification import policies  # noqa: PLC0415 - see above
    from fabric.verification import jobs  # noqa: PLC0415

    if arguments.nodes < 1:
        raise output.UnreadableError(f"--nodes {arguments.nodes}: must be 1 or more")
    if arguments.policy:
        policy = policies.from_file(arguments.policy)
    else:
        policy = policies.from_cluster(arguments.kubeconfig, arguments.context)
    fabric = policies.fabric(policy, arguments.fabric)
    wish = jobs.Wish(
        fabric=fabric,
        nodes=arguments.nodes,
        kind=arguments.kind,
        image=arguments.image,
        namespace=arguments.namespace,
        name=arguments.name,
    )
    trees = jobs.of(policy.document, wish)
    if arguments.output == "json":
        output.print_json({"apiVersion": "v1", "kind": "List", "items": trees})
        return output.OK
    if policy.document.fabrics[fabric].gpus_per_node is None:
        print(f"railwright: fabric {fabric} has no gpusPerNode: 8 are asked for", file=sys.stderr)
    sys.stdout.write(_yaml(trees, wish))
    return output.OK


def _yaml(trees: "list[jobs.Tree]", wish: "jobs.Wish") -> str:
    import yaml  # noqa: PLC0415 - see above

    from fabric.verification import jobs  # noqa: PLC0415

    class Dumper(yaml.SafeDumper):
        """Programs as they were written, not as one quoted line."""

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    written = io.StringIO()
    written.write(
        f"# An all-reduce over fabric {wish.fabric}, {wish.nodes} whole nodes. When it has run:\n"
        f"#   {jobs.logs(wish)} \\\n#     | railwright verify log - --fabric {wish.fabric}\n"
    )
    yaml.dump_all(trees, written, Dumper=Dumper, sort_keys=False, explicit_start=len(trees) > 1, width=110)
    return written.getvalue()


# --- the log ----------------------------------------------------------------------------------------------


def _log(arguments: argparse.Namespace) -> int:
    from cli import waiting  # noqa: PLC0415 - see above
    from cli.verification import logs  # noqa: PLC0415
    from fabric.verification import model, verdict  # noqa: PLC0415

    if arguments.files.count("-") > 1:
        raise output.UnreadableError("verify log: - (standard input) can be read once")
    expected = _expected(arguments)
    named = [("standard input" if path == "-" else pathlib.PurePath(path).stem, path) for path in arguments.files]
    with waiting.shown("reading the log"):
        found = verdict.of([(name, logs.lines(path)) for name, path in named], expected)
    _FORMS[arguments.output](found)
    codes = {model.RDMA: output.OK, model.UNKNOWN: output.UNUSABLE}
    return codes.get(found.state, output.FINDINGS)


def _expected(arguments: argparse.Namespace) -> "model.Expected":
    import msgspec  # noqa: PLC0415 - see above

    from cli.verification import policies  # noqa: PLC0415
    from fabric.verification import expecting, model  # noqa: PLC0415

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
    found = expecting.of(policy.document, fabric)
    return found if arguments.rails is None else msgspec.structs.replace(found, rails=arguments.rails)


def _text(found: "model.Verdict") -> None:
    output.print_styled((found.line, _STYLES[found.state]))


def _wide(found: "model.Verdict") -> None:
    from cli import tables  # noqa: PLC0415 - see above

    _text(found)
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
            each.name,
            each.state,
            each.transport or "-",
            f"{'?' if each.rails is None else each.rails}/{'?' if found.rails is None else found.rails}",
            f"{each.channels_direct}/{each.channels}",
            ",".join(each.used) or "-",
            "; ".join(each.why) or "-",
        )
        for each in found.pods
    ]
    tables.show(columns, rows)


_FORMS: Mapping[str, typing.Callable[["model.Verdict"], None]] = {
    "text": _text,
    "wide": _wide,
    "json": output.print_json,
}
_STYLES = {"rdma": "green", "tcp": "bold red", "partial": "bold yellow", "failed": "bold red", "unknown": "yellow"}
