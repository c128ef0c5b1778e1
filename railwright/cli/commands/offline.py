"""The commands without a cluster: `demo`, `simulate` and `completion`."""

import argparse
import pathlib

from railwright.cli import options, parsers

DEFAULT_JOBS = 5000
OVERSUBSCRIPTION = 7.0  # of published clusters: at 1:1 all placements have equal bandwidth


def _configure_demo(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument("--full", action="store_true", help="Also print the changes of a pod and each rank's node.")
    parser.add_argument(
        "--serve",
        action="store_true",
        help="Serve the dashboard on the demo's cluster with a stream of jobs, with and without railwright.",
    )
    parser.add_argument("--svg", metavar="FILE", type=pathlib.Path, help="Also write the summary as SVG.")
    options.add_output(parser)


def _load_demo(_arguments: argparse.Namespace) -> parsers.Run:
    from railwright.cli.demo import command

    return command.run


DEMO = parsers.Command(
    "Admit and place a gang with the real servers on this machine, without a cluster.",
    _configure_demo,
    _load_demo,
    examples=("railwright demo", "railwright demo --serve"),
    finding="the gang was not placed as well as was possible",
    is_slow=True,
)


def _configure_simulate(parser: parsers.Parser) -> None:
    """Add the options."""
    parser.add_argument("--shape", default="coreweave", help="Published cluster, see --shapes (default: %(default)s).")
    parser.add_argument("--shapes", action="store_true", help="List the published clusters with their sources.")
    parser.add_argument(
        "--parameters", action="store_true", help="List the parameters of the model with their sources."
    )
    parser.add_argument(
        "--nodes", metavar="FILE", help="Nodes of a real cluster, from `kubectl get nodes -o yaml`; needs --policy."
    )
    parser.add_argument("--policy", metavar="FILE", help="Policy for --nodes, or its ConfigMap or FabricPolicy.")
    parser.add_argument(
        "--stream", default="seren", help="Job trace: seren, kalos, helios or philly (default: %(default)s)."
    )
    parser.add_argument(
        "--load",
        default="0.9",
        help="Requested GPU time as a fraction of the cluster's, or `published` for the published arrival rate.",
    )
    parser.add_argument("--jobs", type=int, metavar="N", help=f"Stop after N jobs (default: {DEFAULT_JOBS}).")
    parser.add_argument("--days", type=float, metavar="DAYS", help="Stop after this many simulated days.")
    parser.add_argument(
        "--oversubscription",
        metavar="RATIO[,RATIO]",
        help="Oversubscription of the uplinks of each domain level, leaf first; at 1 all placements are equal "
        f"(default: {OVERSUBSCRIPTION:g}; with --nodes: the policy's).",
    )
    parser.add_argument(
        "--scheduler",
        choices=["volcano", "kube"],
        default="volcano",
        help="Scheduler to simulate (default: %(default)s).",
    )
    parser.add_argument(
        "--sample",
        choices=["all", "default"],
        default="all",
        help="Nodes the scheduler scores: all, or its default sample.",
    )
    parser.add_argument(
        "--policies", metavar="NAME[,NAME]", default="", help="Placement policies to compare (default: all)."
    )
    parser.add_argument(
        "--pod-gpus", type=int, choices=[1, 2, 4, 8], default=8, help="GPUs per pod of a gang (default: %(default)s)."
    )
    parser.add_argument(
        "--no-reports",
        action="store_true",
        help="Simulate without NodeResourceTopology objects: NUMA nodes come from node shapes.",
    )
    parser.add_argument("--seed", type=int, default=1, help="Random seed of the jobs (default: %(default)s).")
    parser.add_argument("--plot", metavar="DIR", type=pathlib.Path, help="Also write plots as PNG and SVG to DIR.")
    options.add_output(parser)


def _load_simulate(_arguments: argparse.Namespace) -> parsers.Run:
    from railwright.cli import simulation

    return simulation.run


SIMULATE = parsers.Command(
    "Place a job stream on a cluster with and without railwright, and compare the modelled bandwidth.",
    _configure_simulate,
    _load_simulate,
    examples=(
        "railwright simulate --shapes",
        "railwright simulate --shape lingjun --jobs 60 --policies none,railwright",
    ),
)


def _configure_completion(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="Shell to print the script for.")


def _load_completion(_arguments: argparse.Namespace) -> parsers.Run:
    from railwright.cli import completion

    return completion.print_script


COMPLETION = parsers.Command(
    "Print the script for TAB completion in bash, zsh or fish.",
    _configure_completion,
    _load_completion,
    examples=(
        "source <(railwright completion bash)",
        "railwright completion fish > ~/.config/fish/completions/railwright.fish",
    ),
)
