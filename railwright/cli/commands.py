"""Lists the commands: the options, function and examples of each, and its group in the help.

`dispatch` imports the function of a command when the command is called. Nothing here may import the names of the
installation, because commands select an installation first.
"""

import argparse
import datetime as dt
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from certs import schedules
from railwright.cli import options, output
from railwright.cli.options import CLUSTER, FILENAMES, POLICY, SOURCES, Command, Option, build_flag, build_option

if TYPE_CHECKING:
    from railwright.serving import settings

_DEFAULT_WAIT = 300.0  # seconds, for --wait without a value
_PROFILES = sorted(
    entry.name for entry in (pathlib.Path(__file__).parent / "clouds" / "profiles").iterdir() if entry.is_dir()
)
_OF_MANIFEST, _OF_POD = "options for a manifest", "options for a pod"
_INSTALLATION = options.build_namespace_option(
    "Namespace of the installation (default: found by the labels of its Deployments)."
)


def parse_address(text: str) -> "settings.Address":
    """Return the address HOST:PORT to listen on. Raises ArgumentTypeError."""
    from railwright.serving import settings  # imports libraries, for which --help must not wait

    return settings.parse_address(text)


def parse_duration(text: str) -> dt.timedelta:
    """Return the duration of a text such as 30d, 12h, 10m or 10s. Raises ArgumentTypeError, also without a unit."""
    if text[-1:].isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} has no unit; write 30d, 12h, 10m or 10s")
    return dt.timedelta(seconds=options.parse_seconds(text))


_BEFORE_A_JOB = {
    "explain": Command(
        "Show how admission would change a manifest or has changed a pod, with reasons, and why it is on its node.",
        (
            options.build_file_argument(
                "Pods and workloads in YAML or JSON: a file, a folder, or - for standard input. Or an object of the"
                " cluster: pod/NAME, gang/NAME, or KIND/NAME of a workload such as a deployment. Of a gang or workload,"
                " one pod is explained: the first whose preflight failed, otherwise the first that waits or is not"
                " running. job/NAME finds a job of any kind. KIND NAME is the same as KIND/NAME."
            ),
            *FILENAMES,
            options.build_namespace_option(
                "Namespace of the pod, and of objects without one (default: that of the context)."
            ),
            options.build_output_option(),
            build_option(
                "--policy FILE",
                "Policy, or the ConfigMap that contains it (default: ask the cluster by a dry run, which stores"
                " nothing).",
                default=None,
                group=_OF_MANIFEST,
            ),
            build_option(
                "--snapshot FILE",
                "Read Namespaces, networks and Nodes from a file; with --policy.",
                default=None,
                group=_OF_MANIFEST,
            ),
            build_option(
                "--token-file FILE",
                "File with the token of an account that may get pods in the namespace, or - for standard input"
                " (default: that of the kubeconfig).",
                group=_OF_POD,
            ),
            *CLUSTER,
        ),
        usage="""%(prog)s FILE... [options]
       %(prog)s pod/NAME [-n NAMESPACE] [options]
       %(prog)s KIND/NAME [-n NAMESPACE] [options]""",
        run="explanation.command:explain_objects",
        examples=("railwright explain job.yaml -n prod", "railwright explain pod/llama-0 -n prod"),
        finding=(
            "a pod would be rejected, or not injected although it opted in; its preflight failed; its gang never fits, "
            "or is spread"
        ),
    ),
    "lint": Command(
        "Check NCCL settings in manifests.",
        (
            options.build_file_argument("Manifest of any workload. A folder, or - for standard input."),
            *FILENAMES,
            build_option(
                "--policy FILE",
                "Policy or its ConfigMap, for the rules that need the fabric (default: the policy of the cluster). With"
                " a file, labels of namespaces are unknown, so only pods with a label of their own are opted in.",
                default=None,
            ),
            build_flag("--local", "Read no cluster, and check only rules that need no fabric."),
            options.build_output_option(),
            *CLUSTER,
        ),
        run="linting:lint_manifests",
        examples=("railwright lint job.yaml --policy policy.yaml", "railwright lint -R -f manifests -o json"),
        finding="there is an error or a warning",
    ),
    "verify": Command(
        "Report from the logs of a job whether RDMA runs on every rail.",
        (
            options.build_file_argument(
                "An object of the cluster: pod/NAME, gang/NAME, KIND/NAME of a workload, or job/NAME for a job of any"
                " kind; KIND NAME is the same. Or logs of all pods, in one or many files; - for standard input."
            ),
            build_option(
                "--rails N",
                "Number of rails that each pod should use (default: those that its preflight found, or its injection"
                " record lists; unknown for log files, whose result then never confirms that every rail was used).",
                default=None,
                type=int,
            ),
            options.build_output_option(),
            build_flag("--counters", "Read the counters of the RDMA devices in each rank twice, instead of the logs."),
            build_option(
                "--seconds N", "Time between the two readings of --counters (default: 10).", default=10, type=int
            ),
            options.build_namespace_option("Namespace (default: that of the context)."),
            *CLUSTER,
        ),
        usage="""%(prog)s KIND/NAME [-n NAMESPACE] [options]
       %(prog)s FILE... [--rails N]""",
        run="verification:verify_rdma",
        examples=(
            "railwright verify job/llm -n prod",
            "kubectl logs -l volcano.sh/job-name=train --prefix --tail=-1 | railwright verify - --rails 4",
        ),
        finding="the logs show TCP, too few rails or a failure",
    ),
}

_CLUSTER_COMMANDS = {
    "gangs": Command(
        "List gangs: placed pods, leaves, bandwidth compared with the best possible, and why they wait.",
        (
            options.build_namespace_option("Show gangs of one namespace (default: all namespaces)."),
            build_flag("-A, --all-namespaces", "Show gangs of all namespaces (the default)."),
            build_flag("--waiting", "Show only gangs that are not fully placed."),
            options.build_output_option(output.WIDE),
            *SOURCES,
        ),
        run="overview_tables:show_gangs",
        examples=("railwright gangs -n prod -o wide", "railwright gangs --waiting"),
        finding="a gang never fits",
    ),
    "fabric": Command(
        "Show spines, leaves and nodes of each fabric, with their free, busy and dead rails.",
        (
            build_flag("--dead", "Show only nodes that are not ready or have a dead or degraded rail."),
            options.build_output_option(output.WIDE),
            *SOURCES,
        ),
        run="overview_tables:show_fabrics",
        examples=("railwright fabric", "railwright fabric --dead -o wide"),
        finding="a rail is dead or degraded",
    ),
    "dashboard": Command(
        "Serve a live page with the fabrics and gangs on this machine.",
        (
            build_option(
                "--listen HOST:PORT",
                "Address to listen on, loopback only (default: %(default)s).",
                default="127.0.0.1:0",
                type=parse_address,
            ),
            build_flag("--open", "Open the page in a browser."),
            *SOURCES,
        ),
        run="dashboard:serve_dashboard",
        examples=(
            "railwright dashboard --open",
            "railwright dashboard --snapshot snapshot.yaml --policy policy.yaml",
        ),
    ),
}

_POLICY_ACTIONS = {
    "init": Command(
        "Print a first policy, from a cloud's profile or a cluster's objects; comments name what is not known.",
        (
            build_option(
                "--cloud NAME",
                "Profile to print; with --from-cluster, the only profile that is compared with the nodes. Without"
                " this option and --from-cluster, list the profiles.",
                default=None,
                choices=_PROFILES,
            ),
            build_flag("--from-cluster", "Derive the fabrics from nodes, networks and DeviceClasses of the cluster."),
            *CLUSTER,
        ),
        run="clouds.first_policies:print_policy",
        examples=(
            "railwright policy init --from-cluster > policy.yaml",
            "railwright policy init --cloud eks-efa > policy.yaml",
        ),
    ),
    "validate": Command(
        "Print all errors of a policy or its ConfigMap, with line numbers.",
        (
            options.build_file_argument(
                "Policy, or the ConfigMap that contains it. A folder, or - for standard input."
            ),
            *FILENAMES,
            build_flag(
                "--from-cluster", "Compare the policy with nodes, networks, pods and the policy of the cluster."
            ),
            options.build_output_option(),
            *CLUSTER,
        ),
        run="policy_validation:validate_policies",
        examples=(
            "railwright policy validate policy.yaml",
            "railwright policy validate --from-cluster policy.yaml",
        ),
        finding="a policy is invalid",
    ),
    "scheduler-config": Command(
        "Print the configuration with which kube-scheduler or Volcano calls the extender for this policy.",
        (
            build_option(
                "--scheduler NAME",
                "kube-scheduler or volcano (default: %(default)s).",
                default="kube-scheduler",
                choices=("kube-scheduler", "volcano"),
            ),
            POLICY,
            *CLUSTER,
        ),
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
}

_CERTS_ACTIONS = {
    "rotate": Command(
        "Issue, renew and replace the certificates in the cluster, and their CA.",
        (
            build_flag("--watch", "Repeat until stopped."),
            build_flag("--renew-ca", "Start replacing the CA now."),
            build_option("--host H", "Additional DNS name or IP address of the servers.", action="append", default=[]),
            build_option(
                "--overlap TIME",
                "How long old and new CA are both trusted before the new one signs, and again after (default: 30d).",
                type=parse_duration,
                default=schedules.OVERLAP,
            ),
            build_option(
                "--every TIME",
                "Time between checks (default: 3s).",
                type=parse_duration,
                default=dt.timedelta(seconds=3),
            ),
            build_option(
                "--ops-listen HOST:PORT",
                "Address of probes and metrics (default: :8080).",
                default=":8080",
                type=parse_address,
            ),
            options.build_namespace_option(
                "Namespace of Services and Secrets (default: $RAILWRIGHT_NAMESPACE, or railwright-system)."
            ),
            options.build_output_option(),
            *CLUSTER,
        ),
        run="certificates:rotate_certificates",
        examples=("railwright certs rotate", "railwright certs rotate --renew-ca"),
        finding="a webhook configuration does not exist",
    ),
}

_SWITCH_OPTIONS: tuple[Option, ...] = (
    build_flag("--dry-run", "Let the API server try each change, and store nothing."),
    _INSTALLATION,
    *CLUSTER,
)
_INSTALLATION_COMMANDS = {
    "check": Command(
        "Verify an installation, and show a fix for each failed check.",
        (
            _INSTALLATION,
            build_option(
                "--namespace-for-probe NAME",
                "Namespace of the dry-run pod (default: the first namespace that may use the fabric).",
            ),
            build_flag("-v, --verbose", "List every check, also those that passed or were skipped."),
            build_flag("--strict", "Exit with 1 for warnings too."),
            build_flag(
                "--allow-unread", "Do not exit with 2 if checks were skipped because you may not read their objects."
            ),
            build_option(
                "--wait SECONDS",
                f"Repeat until no check fails, for at most this long (default: {_DEFAULT_WAIT:g}). Stops earlier if"
                " every failed check needs a change by you, such as an invalid policy.",
                type=options.parse_seconds,
                nargs="?",
                const=_DEFAULT_WAIT,
                default=0.0,
            ),
            build_option(
                "--explain ROW",
                "Explain a row of the result: what it checks, an example and the fix; reads no cluster. Without ROW,"
                " list all.",
                default=None,
                nargs="?",
                const="",
            ),
            options.build_output_option(),
            *CLUSTER,
        ),
        run="checking.start:run_check",
        examples=("railwright check", "railwright check --explain policy"),
        finding="a check failed; with --strict, if one warned",
    ),
    "policy": Command(
        "Print a first policy, validate one, or print its schema or the configuration of schedulers.",
        metavar="ACTION",
        children=_POLICY_ACTIONS,
    ),
    "certs": Command(
        "Issue and renew the certificates of the servers.",
        metavar="ACTION",
        children=_CERTS_ACTIONS,
    ),
    "disable": Command(
        "Emergency switch: delete railwright's webhooks and policy bindings, so that it rejects no pod; keeps a copy.",
        _SWITCH_OPTIONS,
        run="switching:disable_webhooks",
        examples=("railwright disable --dry-run", "railwright disable"),
    ),
    "enable": Command(
        "Restore the webhooks and policy bindings that `railwright disable` deleted.",
        _SWITCH_OPTIONS,
        run="switching:enable_webhooks",
        examples=("railwright enable --dry-run", "railwright enable"),
    ),
}

_OFFLINE = {
    "demo": Command(
        "Admit and place a gang with the code of both servers on this machine, without a cluster.",
        (
            build_flag(
                "--serve", "Also serve the dashboard on this machine, with the simulated cluster and the placed gang."
            ),
        ),
        run="demo.command:show_demo",
        examples=("railwright demo", "railwright demo --serve"),
    ),
    "completion": Command(
        "Print the script for TAB completion in bash, zsh or fish.",
        (Option(["shell"], {"choices": ("bash", "zsh", "fish"), "help": "Shell to print the script for."}),),
        run="completion:print_script",
        examples=(
            "source <(railwright completion bash)",
            "railwright completion fish > ~/.config/fish/completions/railwright.fish",
        ),
    ),
}
GROUPS: Mapping[str, Mapping[str, Command]] = {
    "Before you submit a job": _BEFORE_A_JOB,
    "Jobs and fabrics of a cluster": _CLUSTER_COMMANDS,
    "Installation": _INSTALLATION_COMMANDS,
    "Without a cluster": _OFFLINE,
}
