"""The commands before a job is submitted: `explain`, `lint` and `verify`."""

import argparse
import pathlib
from collections.abc import Sequence

from railwright.cli import options, output, parsers

SARIF = "sarif"  # format of `lint`
KINDS = ("mpijob", "pytorchjob", "volcano", "job")  # of the job of `verify`
_VERIFY_FINDING = "the logs show TCP, too few rails or a failure"
_DEFAULT_NODES = 2  # one node never uses its rails
_POD = ("pod", "pods", "po")  # as for kubectl; write ./pod for a file of this name
_GROUPS = ("job", "gang")  # of which one pod is explained
_USAGE = """%(prog)s FILE... [options]
       %(prog)s pod/NAME [-n NAMESPACE] [options]
       %(prog)s job/NAME [-n NAMESPACE] [options]"""


def _configure_explain(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.set_usage(_USAGE)
    parser.add_argument(
        "words",
        metavar="FILE",
        nargs="*",
        help="Pods and workloads, YAML or JSON. A folder, or - for standard input. Or pod/NAME, or pod NAME. Or"
        " job/NAME or gang/NAME, for its first pod that waits, or its first one.",
    )
    options.add_filenames(parser)
    parser.requirements.append(_find_missing_pod)
    options.add_namespace(parser, "Namespace of the pod, and of objects without one (default: that of the context).")
    options.add_output(parser)
    manifest = parser.add_group("options for a manifest")
    manifest.add_argument(
        "--policy",
        metavar="FILE",
        help="Policy, or the ConfigMap or FabricPolicy that contains it (default: ask the cluster by a dry run, which"
        " stores nothing).",
    )
    manifest.add_argument(
        "--snapshot", metavar="FILE", help="File with Namespaces, networks and Nodes, as for the servers."
    )
    manifest.add_argument("--full", action="store_true", help="Show the whole pod, not only the changes.")
    manifest.add_argument("--svg", metavar="FILE", type=pathlib.Path, help="Also write the output as SVG.")
    pod = parser.add_group("options for a pod")
    pod.add_argument(
        "--extender", metavar="URL", default="", help="URL of the extender (default: through the API server)."
    )
    pod.add_argument("--token", default="", help="Bearer token of an account that may get pods in the namespace.")
    pod.add_argument(
        "--token-file", metavar="FILE", default="", help="File with the bearer token, or - for standard input."
    )
    pod.add_argument("--ca", metavar="FILE", default="", help="CA file for the extender.")
    options.add_cluster(parser.add_group("options for the cluster"))


def _find_missing_pod(arguments: argparse.Namespace) -> str:
    is_enough = arguments.words or arguments.filename
    return "" if is_enough else "the following arguments are required: FILE, - for standard input, or pod/NAME"


def _load_explain(arguments: argparse.Namespace) -> parsers.Run:
    """Return the function for the form that was given: files, or a pod. Raises UnreadableError for a mixture."""
    kind, slash, name = arguments.words[0].partition("/") if arguments.words else ("", "", "")
    arguments.form = kind if kind in _GROUPS and name and not pathlib.Path(arguments.words[0]).exists() else ""
    if kind not in _POD and not arguments.form:
        arguments.files = arguments.words
        _reject(arguments, ("extender", "token", "token_file", "ca"), "explain pod/NAME")
        from railwright.cli.explanation import manifest

        return manifest.explain
    names = [name, *arguments.words[1:]] if slash else arguments.words[1:]
    if len(names) > 1:
        raise output.UnreadableError(f"explain {' '.join(arguments.words)}: give one pod, as pod/NAME -n NAMESPACE")
    _reject(arguments, ("policy", "snapshot", "full", "svg", "filename", "recursive"), "explain FILE")
    arguments.pod = names[0] if names else ""
    from railwright.cli.explanation import pod

    return pod.explain


def _reject(arguments: argparse.Namespace, given: Sequence[str], form: str) -> None:
    """Raise UnreadableError for options of the other form."""
    present = [f"--{option.replace('_', '-')}" for option in given if getattr(arguments, option)]
    if present:
        raise output.UnreadableError(f"{', '.join(present)}: only for `{form}`")


EXPLAIN = parsers.Command(
    "Show how admission would change a manifest, with a reason for each change, or why a pod is on its node.",
    _configure_explain,
    _load_explain,
    examples=("railwright explain job.yaml -n prod", "railwright explain pod/llama-0 -n prod"),
    finding=(
        "a pod would be rejected, or not injected although it opted in; cannot be placed, or was placed worse than was "
        "possible"
    ),
)


def _configure_lint(parser: parsers.Parser) -> None:
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


def _load_lint(_arguments: argparse.Namespace) -> parsers.Run:
    from railwright.cli import linting

    return linting.run


LINT = parsers.Command(
    "Check NCCL settings in manifests and nccl.conf files.",
    _configure_lint,
    _load_lint,
    examples=("railwright lint job.yaml --policy policy.yaml", "railwright lint -R -f manifests -o sarif"),
    finding="there is an error or a warning",
)


def _load_manifest(_arguments: argparse.Namespace) -> parsers.Run:
    from railwright.cli import verification

    return verification.print_manifest


def _load_log(_arguments: argparse.Namespace) -> parsers.Run:
    from railwright.cli import verification

    return verification.report_log


def _load_job(_arguments: argparse.Namespace) -> parsers.Run:
    from railwright.cli import job_verification

    return job_verification.verify


def _configure_verify(parser: parsers.Parser) -> None:
    """Define the subcommands and their options."""
    parser.add_choice("form", "FORM")
    _configure_manifest(
        parser.add_command(
            "manifest",
            "Print the job; create nothing.",
            load=_load_manifest,
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
            load=_load_log,
            finding=_VERIFY_FINDING,
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
                load=_load_job,
                finding=_VERIFY_FINDING,
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
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0], help="Kind of the job (default: %(default)s).")
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
    parser.requirements.append(_find_missing_log)
    _add_policy_options(parser)
    _add_rails(parser, "those of the policy; without it, whether all were used is not known")
    options.add_output(parser, options.WIDE)
    options.add_no_headers(parser)
    options.add_cluster(parser.add_group("options for the cluster"))


def _find_missing_log(arguments: argparse.Namespace) -> str:
    return (
        ""
        if arguments.words or arguments.filename
        else "the following arguments are required: FILE, or - for standard input"
    )


def _add_policy_options(parser: parsers.Options) -> None:
    parser.add_argument("--fabric", metavar="NAME", default="", help="Fabric (default: the policy's defaultFabric).")
    options.add_policy(parser)


VERIFY = parsers.Command(
    "Report from the logs of a job whether RDMA runs on every rail, or print a job that tests a fabric.",
    _configure_verify,
)
