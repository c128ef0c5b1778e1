"""`railwright simulate`: places a job stream on a cluster under several placement policies and compares bandwidth."""

import argparse
import math
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from railwright.cli import output

if TYPE_CHECKING:  # slow to import, and `railwright --help` does not need them
    from railwright.simulator import cluster_specs, experiments

NAME = "simulate"
HELP = "place a job stream on a cluster with and without railwright, and compare the modelled bandwidth"
_POLICIES = ("none", "binpack", "greedy", "railwright", "optimum")
_DEFAULT_JOBS = 5000
_OVERSUBSCRIPTION = 7.0  # of published clusters: at 1:1 all placements have equal bandwidth


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--shape", default="coreweave", help="published cluster, see --shapes (default: %(default)s)")
    parser.add_argument("--shapes", action="store_true", help="list the published clusters with their sources and exit")
    parser.add_argument(
        "--parameters", action="store_true", help="list the parameters of the model with their sources and exit"
    )
    parser.add_argument(
        "--nodes", metavar="FILE", help="nodes of a real cluster, from `kubectl get nodes -o yaml`; needs --policy"
    )
    parser.add_argument("--policy", metavar="FILE", help="policy for --nodes, or its ConfigMap")
    parser.add_argument(
        "--stream", default="seren", help="job trace: seren, kalos, helios or philly (default: %(default)s)"
    )
    parser.add_argument(
        "--load",
        default="0.9",
        help="requested GPU time as a fraction of the cluster's, or `published` for the published arrival rate",
    )
    parser.add_argument("--jobs", type=int, metavar="N", help=f"stop after N jobs (default:  {_DEFAULT_JOBS})")
    parser.add_argument("--days", type=float, metavar="DAYS", help="stop after this many simulated days")
    parser.add_argument(
        "--oversubscription",
        metavar="RATIO[,RATIO]",
        help="oversubscription of the uplinks of each domain level, leaf first; at 1 all placements are equal "
        f"(default: {_OVERSUBSCRIPTION:g}; with --nodes: the policy's)",
    )
    parser.add_argument(
        "--scheduler",
        choices=["volcano", "kube"],
        default="volcano",
        help="scheduler to simulate (default: %(default)s)",
    )
    parser.add_argument(
        "--sample",
        choices=["all", "default"],
        default="all",
        help="nodes the scheduler scores: all, or its default sample",
    )
    parser.add_argument("--policies", default=",".join(_POLICIES), help="placement policies to compare (default: all)")
    parser.add_argument(
        "--pod-gpus", type=int, choices=[1, 2, 4, 8], default=8, help="GPUs per pod of a gang (default: %(default)s)"
    )
    parser.add_argument(
        "--no-reports",
        action="store_true",
        help="simulate without NodeResourceTopology objects: NUMA nodes come from node shapes",
    )
    parser.add_argument("--seed", type=int, default=1, help="random seed of the jobs (default: %(default)s)")
    parser.add_argument("--plot", metavar="DIR", type=pathlib.Path, help="also write plots as PNG and SVG files to DIR")


def run(arguments: argparse.Namespace) -> int:
    """Return 0, or 2 for a wrong option or an unusable file."""
    if arguments.parameters:
        return _parameters(arguments.output)
    if arguments.shapes:
        return _shapes(arguments.output)
    question = _question(arguments)
    policies = _policies(arguments.policies)
    drawer = _drawer(arguments.plot)
    from railwright.cli.simulation import progress, report  # noqa: PLC0415 - see above
    from railwright.simulator import experiments  # noqa: PLC0415

    jobs = experiments.draw_jobs(question)
    if not any(not job.is_initial for job in jobs):
        raise output.UnreadableError("simulate: no job arrives within --days; raise --days or --load")
    with progress.shown(len(jobs), len(policies), quiet=arguments.output == "json") as telling:
        results = [
            experiments.run(question, policy, jobs, telling(number, policy)) for number, policy in enumerate(policies)
        ]
    if arguments.output == "json":
        output.print_json(report.as_json(question, results))
    else:
        report.show(question, results)
    if drawer is not None:
        drawer(question, results)
    return output.OK


def _question(arguments: argparse.Namespace) -> "experiments.Experiment":
    from railwright.simulator import distributions, experiments, schedulers  # noqa: PLC0415 - see above

    if arguments.stream not in distributions.TRACES:
        raise output.UnreadableError(f"--stream {arguments.stream}: not one of {', '.join(distributions.TRACES)}")
    if arguments.jobs is not None and arguments.jobs < 1:
        raise output.UnreadableError(f"--jobs {arguments.jobs}: must be 1 or more")
    if arguments.days is not None and not 0 < arguments.days < math.inf:
        raise output.UnreadableError(f"--days {arguments.days}: must be above 0")
    return experiments.Experiment(
        spec=_spec(arguments),
        stream=arguments.stream,
        load=None if arguments.load == "published" else _number("--load", arguments.load, above=0.0),
        jobs=_DEFAULT_JOBS if arguments.jobs is None and arguments.days is None else arguments.jobs,
        days=arguments.days,
        pod_gpus=arguments.pod_gpus,
        settings=schedulers.Settings(
            arguments.scheduler,
            sample_all=arguments.sample == "all",
            seed=arguments.seed,
            reports=not arguments.no_reports,
        ),
    )


def _spec(arguments: argparse.Namespace) -> "cluster_specs.ClusterSpec":
    from railwright.simulator import cluster_specs  # noqa: PLC0415 - see above

    ratios: tuple[float, ...] = ()
    if arguments.oversubscription is not None:
        ratios = tuple(
            _number("--oversubscription", part, above=0.0, hint=" such as 7 or 1,7")
            for part in arguments.oversubscription.split(",")
        )
    if arguments.nodes is None:
        if arguments.shape not in cluster_specs.CATALOGUE:
            raise output.UnreadableError(f"--shape {arguments.shape}: not one of {', '.join(cluster_specs.CATALOGUE)}")
        return cluster_specs.from_catalogue(arguments.shape, ratios or (_OVERSUBSCRIPTION,))
    if arguments.policy is None:
        raise output.UnreadableError("--nodes: needs --policy FILE, which defines the rails, domains and node shapes")
    from railwright.cli.simulation import real  # noqa: PLC0415 - see above

    try:
        return cluster_specs.with_oversubscription(real.read(arguments.nodes, arguments.policy), ratios)
    except cluster_specs.ClusterSpecError as error:
        raise output.UnreadableError(f"{arguments.nodes}: {error}") from None


def _policies(text: str) -> Sequence[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in _POLICIES]
    if unknown or not names:
        raise output.UnreadableError(f"--policies {text}: give some of {', '.join(_POLICIES)}")
    return list(dict.fromkeys(names))


def _number(option: str, text: str, *, above: float, hint: str = "") -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not above < number < math.inf:
        raise output.UnreadableError(f"{option} {text}: must be a number above {above:g}{hint}")
    return number


def _drawer(
    folder: pathlib.Path | None,
) -> "Callable[[experiments.Experiment, Sequence[experiments.Result]], None] | None":
    """Return a function that writes plots to the folder. Raise UnreadableError now rather than after the simulation."""
    if folder is None:
        return None
    try:
        from railwright.cli.simulation import plots  # noqa: PLC0415 - matplotlib is an extra
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("matplotlib"):
            raise
        raise output.UnreadableError(
            "--plot: needs matplotlib, which is not installed: pip install 'railwright[plots]'"
        ) from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise output.UnreadableError(f"--plot {folder}: {error.strerror or error}") from None

    def draw(question: "experiments.Experiment", results: "Sequence[experiments.Result]") -> None:
        for path in plots.draw(folder, question, results):
            print(f"wrote {path}", file=sys.stderr)

    return draw


def _parameters(form: str) -> int:
    from railwright.simulator import parameters  # noqa: PLC0415 - see above

    if form == "json":
        output.print_json(parameters.table())
        return output.OK
    from railwright.cli.simulation import report  # noqa: PLC0415 - see above

    report.show_rows(
        ("parameter", "value", "source"), [(row.name, row.value, row.source) for row in parameters.table()]
    )
    return output.OK


def _shapes(form: str) -> int:
    from railwright.simulator import cluster_specs  # noqa: PLC0415 - see above

    rows = [
        (name, sum(part.size for part in entry.parts), entry.source) for name, entry in cluster_specs.CATALOGUE.items()
    ]
    if form == "json":
        output.print_json([{"name": name, "nodes": nodes, "source": source} for name, nodes, source in rows])
        return output.OK
    from railwright.cli.simulation import report  # noqa: PLC0415 - see above

    report.show_rows(("shape", "nodes", "source"), [(name, str(nodes), source) for name, nodes, source in rows])
    return output.OK
