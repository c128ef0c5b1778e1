"""Lists the commands: the function, options and examples of each, and its group in the help.

`dispatch` imports the function of a command when the command is called. Only the options of `certs` import the names of
the installation, because other commands select an installation first.
"""

import argparse
import datetime as dt
import pathlib
from collections.abc import Mapping

from certs import schedules
from railwright.cli import options, output
from railwright.cli.options import Command, Parser

# --- before a job is submitted ----------------------------------------------------------------------------

_USAGE = """%(prog)s FILE... [options]
       %(prog)s pod/NAME [-n NAMESPACE] [options]
       %(prog)s KIND/NAME [-n NAMESPACE] [options]"""


def _configure_explain(parser: Parser) -> None:
    parser.usage = _USAGE
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="*",
        help="Pods and workloads in YAML or JSON: a file, a folder, or - for standard input. Or an object of the"
        " cluster: pod/NAME, gang/NAME, or KIND/NAME of a workload such as a deployment. Of a gang or workload, the"
        " first waiting pod is explained, or the first pod if none waits. job/NAME finds a job of any kind. KIND NAME"
        " is the same as KIND/NAME.",
    )
    options.add_filenames(parser)
    options.add_namespace(parser, "Namespace of the pod, and of objects without one (default: that of the context).")
    options.add_output(parser)
    manifest = parser.add_argument_group("options for a manifest")
    manifest.add_argument(
        "--policy",
        metavar="FILE",
        help="Policy, or the ConfigMap that contains it (default: ask the cluster by a dry run, which stores nothing).",
    )
    manifest.add_argument(
        "--snapshot", metavar="FILE", help="Read Namespaces, networks and Nodes from a file; with --policy."
    )
    pod = parser.add_argument_group("options for a pod")
    pod.add_argument(
        "--token-file",
        metavar="FILE",
        default="",
        help="File with the token of an account that may get pods in the namespace, or - for standard input (default: "
        "that of the kubeconfig).",
    )
    options.add_cluster(parser)


def _configure_lint(parser: Parser) -> None:
    options.add_files(parser, "Manifest of any workload.")
    parser.add_value(
        "--policy FILE",
        "Policy or its ConfigMap, for the rules that need the fabric (default: the policy of the cluster). With a "
        "file, labels of namespaces are unknown, so only pods with a label of their own are opted in.",
        default=None,
    )
    parser.add_flag("--local", "Read no cluster, and check only rules that need no fabric.")
    options.add_output(parser)
    options.add_cluster(parser)


def _configure_verify(parser: Parser) -> None:
    parser.usage = """%(prog)s KIND/NAME [-n NAMESPACE] [options]
       %(prog)s FILE... [--rails N]"""
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="*",
        help="An object of the cluster: pod/NAME, gang/NAME, KIND/NAME of a workload, or job/NAME for a job of any"
        " kind; KIND NAME is the same. Or logs of all pods, in one or many files; - for standard input.",
    )
    parser.add_value(
        "--rails N",
        "Number of rails that each pod should use (default: those that its preflight found, or its injection record"
        " lists; unknown for log files, whose result then never confirms that every rail was used).",
        default=None,
        type=int,
    )
    options.add_output(parser)
    parser.add_flag("--counters", "Read the counters of the RDMA devices in each rank twice, instead of the logs.")
    parser.add_value("--seconds N", "Time between the two readings of --counters (default: 10).", default=10, type=int)
    options.add_namespace(parser, "Namespace (default: that of the context).")
    options.add_cluster(parser)


_MANIFEST_COMMANDS = {
    "explain": Command(
        "Show how admission would change a manifest or has changed a pod, with reasons, and why it is on its node.",
        _configure_explain,
        run="explanation.command:explain",
        examples=("railwright explain job.yaml -n prod", "railwright explain pod/llama-0 -n prod"),
        finding=(
            "a pod would be rejected, or not injected although it opted in; its preflight failed; its gang never fits, "
            "or is spread"
        ),
    ),
    "lint": Command(
        "Check NCCL settings in manifests.",
        _configure_lint,
        run="linting:lint",
        examples=("railwright lint job.yaml --policy policy.yaml", "railwright lint -R -f manifests -o json"),
        finding="there is an error or a warning",
    ),
    "verify": Command(
        "Report from the logs of a job whether RDMA runs on every rail.",
        _configure_verify,
        run="verification:verify",
        examples=(
            "railwright verify job/llm -n prod",
            "kubectl logs -l volcano.sh/job-name=train --prefix --tail=-1 | railwright verify - --rails 4",
        ),
        finding="the logs show TCP, too few rails or a failure",
    ),
}

# --- jobs and fabrics of a cluster ------------------------------------------------------------------------


def _configure_gangs(parser: Parser) -> None:
    options.add_namespace(parser, "Show gangs of one namespace (default: all namespaces).")
    parser.add_flag("-A, --all-namespaces", "Show gangs of all namespaces (the default).")
    parser.add_flag("--waiting", "Show only gangs that are not fully placed.")
    _add_table_options(parser)


def _configure_fabric(parser: Parser) -> None:
    parser.add_flag("--dead", "Show only nodes that are not ready or have a dead or degraded rail.")
    _add_table_options(parser)


def _add_table_options(parser: Parser) -> None:
    """Add the options that `gangs` and `fabric` share."""
    options.add_output(parser, output.WIDE)
    options.add_sources(parser)


def _configure_dashboard(parser: Parser) -> None:
    parser.add_value(
        "--listen HOST:PORT", "Address to listen on, loopback only (default: %(default)s).", default="127.0.0.1:0"
    )
    parser.add_flag("--open", "Open the page in a browser.")
    options.add_sources(parser)


_CLUSTER_COMMANDS = {
    "gangs": Command(
        "List gangs: placed pods, leaves, bandwidth compared with the best possible, and why they wait.",
        _configure_gangs,
        run="overview_tables:show_gangs",
        examples=("railwright gangs -n prod -o wide", "railwright gangs --waiting"),
        finding="a gang never fits",
    ),
    "fabric": Command(
        "Show spines, leaves and nodes of each fabric, with their free, busy and dead rails.",
        _configure_fabric,
        run="overview_tables:show_fabrics",
        examples=("railwright fabric", "railwright fabric --dead -o wide"),
        finding="a rail is dead or degraded",
    ),
    "dashboard": Command(
        "Serve a live page with the fabrics and gangs on this machine.",
        _configure_dashboard,
        run="dashboard:serve_dashboard",
        examples=(
            "railwright dashboard --open",
            "railwright dashboard --snapshot snapshot.yaml --policy policy.yaml",
        ),
    ),
}

# --- installation -----------------------------------------------------------------------------------------

_DEFAULT_WAIT = 300.0  # seconds, for --wait without a value
_INSTALLATION = "Namespace of the installation (default: found by the labels of its Deployments)."


def _configure_check(parser: Parser) -> None:
    options.add_namespace(parser, _INSTALLATION)
    parser.add_value(
        "--namespace-for-probe NAME",
        "Namespace of the dry-run pod (default: the first namespace that may use the fabric).",
    )
    parser.add_flag("-v, --verbose", "List every check, also those that passed or were skipped.")
    parser.add_flag("--strict", "Exit with 1 for warnings too.")
    parser.add_flag(
        "--allow-unread", "Do not exit with 2 if checks were skipped because you may not read their objects."
    )
    parser.add_value(
        "--wait SECONDS",
        f"Repeat until no check fails, for at most this long (default: {_DEFAULT_WAIT:g}). Ends earlier if all that "
        "fails needs a change by you, such as an invalid policy.",
        type=options.parse_seconds,
        nargs="?",
        const=_DEFAULT_WAIT,
        default=0.0,
    )
    parser.add_value(
        "--explain ROW",
        "Explain a row of the result: what it checks, an example and the fix; reads no cluster. Without ROW, list all.",
        default=None,
        nargs="?",
        const="",
    )
    options.add_output(parser)
    options.add_cluster(parser)


def _configure_init(parser: Parser) -> None:
    folder = pathlib.Path(__file__).parent / "clouds" / "profiles"
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    meaning = (
        "Profile to begin with; with --from-cluster, the only one that may fit nodes. Without both, list profiles."
    )
    parser.add_argument("--cloud", metavar="NAME", choices=names, help=meaning)
    parser.add_flag("--from-cluster", "Derive the fabrics from nodes, networks and DeviceClasses of the cluster.")
    options.add_cluster(parser)


def _configure_validate(parser: Parser) -> None:
    options.add_files(parser, "Policy, or the ConfigMap that contains it.")
    parser.add_flag("--from-cluster", "Compare the policy with nodes, networks, pods and the policy of the cluster.")
    options.add_output(parser)
    options.add_cluster(parser)


def _configure_scheduler(parser: Parser) -> None:
    meaning = "kube-scheduler or volcano (default: %(default)s)."
    parser.add_argument("--scheduler", choices=("kube-scheduler", "volcano"), default="kube-scheduler", help=meaning)
    options.add_policy(parser)
    options.add_cluster(parser)


def _configure_switch(parser: Parser) -> None:
    parser.add_flag("--dry-run", "Let the API server try each change, and store nothing.")
    options.add_namespace(parser, _INSTALLATION)
    options.add_cluster(parser)


# --- certificates -----------------------------------------------------------------------------------------


def _configure_rotate(parser: Parser) -> None:
    from railwright.cluster import installed_names

    parser.add_flag("--watch", "Repeat until stopped.")
    parser.add_flag("--renew-ca", "Start replacing the CA now.")
    parser.add_value("--host H", "Additional DNS name or IP address of the servers.", action="append", default=[])
    parser.add_value(
        "--overlap TIME",
        "How long both CAs are trusted before the new one signs certificates, and again after (default: 30d).",
        type=parse_duration,
        default=schedules.OVERLAP,
    )
    parser.add_value(
        "--every TIME", "Time between checks (default: 3s).", type=parse_duration, default=dt.timedelta(seconds=3)
    )
    parser.add_value("--ops-listen HOST:PORT", "Address of probes and metrics (default: :8080).", default=":8080")
    options.add_namespace(
        parser, "Namespace of Services and Secrets (default: %(default)s).", installed_names.NAMESPACE
    )
    options.add_output(parser)
    options.add_cluster(parser)


def parse_duration(text: str) -> dt.timedelta:
    """Return the duration of a text such as 30d, 12h, 10m or 10s. Raises ArgumentTypeError, also without a unit."""
    if text[-1:].isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} has no unit; write 30d, 12h, 10m or 10s")
    return dt.timedelta(seconds=options.parse_seconds(text))


_INSTALLATION_COMMANDS = {
    "check": Command(
        "Verify an installation, and show a fix for each failed check.",
        _configure_check,
        run="checking.start:run",
        examples=("railwright check", "railwright check --explain policy"),
        finding="a check failed; with --strict, if one warned",
    ),
    "policy": Command(
        "Print a first policy, validate one, or print its schema or the configuration of schedulers.",
        metavar="ACTION",
        children={
            "init": Command(
                "Print a first policy, from a cloud's profile or a cluster's objects; comments name what is not known.",
                _configure_init,
                run="clouds.first_policies:print_policy",
                examples=(
                    "railwright policy init --from-cluster > policy.yaml",
                    "railwright policy init --cloud eks-efa > policy.yaml",
                ),
            ),
            "validate": Command(
                "Print all errors of a policy or its ConfigMap, with line numbers.",
                _configure_validate,
                run="policy_validation:validate",
                examples=(
                    "railwright policy validate policy.yaml",
                    "railwright policy validate --from-cluster policy.yaml",
                ),
                finding="a policy is invalid",
            ),
            "scheduler-config": Command(
                "Print the configuration with which kube-scheduler or Volcano calls the extender for this policy.",
                _configure_scheduler,
                run="scheduler_configuration:print_scheduler_configuration",
                examples=(
                    "railwright policy scheduler-config > railwright-scheduler.yaml",
                    "railwright policy scheduler-config --scheduler volcano --policy policy.yaml",
                ),
            ),
            "schema": Command(
                "Print the JSON Schema of the policy, for editors.",
                run="policy_validation:print_schema",
                examples=("railwright policy schema", "railwright policy schema > policy.schema.json"),
            ),
        },
    ),
    "certs": Command(
        "Issue and renew the certificates of the servers.",
        metavar="ACTION",
        children={
            "rotate": Command(
                "Issue, renew and replace the certificates in the cluster, and their CA.",
                _configure_rotate,
                run="certificates:rotate",
                examples=("railwright certs rotate", "railwright certs rotate --renew-ca"),
                finding="a webhook configuration does not exist",
            ),
        },
    ),
    "disable": Command(
        "Emergency switch: delete railwright's webhooks and policy bindings, so that it rejects no pod; keeps a copy.",
        _configure_switch,
        run="switching:disable",
        examples=("railwright disable --dry-run", "railwright disable"),
    ),
    "enable": Command(
        "Restore the webhooks and policy bindings that `railwright disable` deleted.",
        _configure_switch,
        run="switching:enable",
        examples=("railwright enable --dry-run", "railwright enable"),
    ),
}

# --- without a cluster ------------------------------------------------------------------------------------


def _configure_demo(parser: Parser) -> None:
    parser.add_flag("--serve", "Serve the dashboard on the demo's cluster, with the placed gang.")


def _configure_completion(parser: Parser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="Shell to print the script for.")


_OFFLINE = {
    "demo": Command(
        "Admit and place a gang with the code of both servers on this machine, without a cluster.",
        _configure_demo,
        run="demo.command:show_demo",
        examples=("railwright demo", "railwright demo --serve"),
        is_slow=True,
    ),
    "completion": Command(
        "Print the script for TAB completion in bash, zsh or fish.",
        _configure_completion,
        run="completion:print_script",
        examples=(
            "source <(railwright completion bash)",
            "railwright completion fish > ~/.config/fish/completions/railwright.fish",
        ),
    ),
}
GROUPS: Mapping[str, Mapping[str, Command]] = {
    "Before you submit a job": _MANIFEST_COMMANDS,
    "Jobs and fabrics of a cluster": _CLUSTER_COMMANDS,
    "Installation": _INSTALLATION_COMMANDS,
    "Without a cluster": _OFFLINE,
}
