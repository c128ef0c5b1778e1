"""Runs `railwright simulate`: reads the options, runs the simulations and prints their comparison."""

import argparse
import contextlib
import math
import pathlib
import pkgutil
import sys
from collections.abc import Callable, Iterator, Sequence

from rich import console, progress

from railwright.cli import formats, output, policies, snapshot_files
from railwright.cli.commands import simulate
from railwright.cli.simulation import report
from railwright.fabric import views
from railwright.simulator import cluster_specs, distributions, experiments, parameters, schedulers

_JOBS_PER_UPDATE = 50  # of the progress bar
_DRAW = "railwright.cli.simulation.plots:draw"  # imported on demand: matplotlib is an extra

Drawer = Callable[[experiments.Experiment, Sequence[experiments.Result]], None]


def run(arguments: argparse.Namespace) -> int:
    """Return 0. Raise UnreadableError for a wrong option or an unusable file."""
    if arguments.parameters:
        return _print_parameters(arguments.output)
    if arguments.shapes:
        return _print_shapes(arguments.output)
    experiment = _build_experiment(arguments)
    policy_names = _parse_policies(arguments.policies)
    draw = _prepare_plots(arguments.plot)
    jobs = experiments.draw_jobs(experiment)
    if not any(not job.is_initial for job in jobs):
        raise output.UnreadableError("simulate: no job arrives within --days; raise --days or --load")
    with _show_progress(len(jobs), len(policy_names), quiet=arguments.output == "json") as follow:
        results = [
            experiments.run(experiment, policy, jobs, follow(number, policy))
            for number, policy in enumerate(policy_names)
        ]
    if arguments.output == "json":
        formats.print_json(report.build_document(experiment, results))
    else:
        report.print_comparison(experiment, results)
    if draw is not None:
        draw(experiment, results)
    return output.OK


def _build_experiment(arguments: argparse.Namespace) -> experiments.Experiment:
    if arguments.stream not in distributions.TRACES:
        raise output.UnreadableError(f"--stream {arguments.stream}: not one of {', '.join(distributions.TRACES)}")
    if arguments.jobs is not None and arguments.jobs < 1:
        raise output.UnreadableError(f"--jobs {arguments.jobs}: must be 1 or more")
    if arguments.days is not None and not 0 < arguments.days < math.inf:
        raise output.UnreadableError(f"--days {arguments.days}: must be above 0")
    return experiments.Experiment(
        spec=_build_spec(arguments),
        stream=arguments.stream,
        load=None if arguments.load == "published" else _parse_number("--load", arguments.load),
        jobs=simulate.DEFAULT_JOBS if arguments.jobs is None and arguments.days is None else arguments.jobs,
        days=arguments.days,
        pod_gpus=arguments.pod_gpus,
        settings=schedulers.Settings(
            arguments.scheduler,
            sample_all=arguments.sample == "all",
            seed=arguments.seed,
            reports=not arguments.no_reports,
        ),
    )


def _build_spec(arguments: argparse.Namespace) -> cluster_specs.ClusterSpec:
    """Return a published cluster, or the one in --nodes and --policy."""
    ratios: tuple[float, ...] = ()
    if arguments.oversubscription is not None:
        ratios = tuple(
            _parse_number("--oversubscription", part, " such as 7 or 1,7")
            for part in arguments.oversubscription.split(",")
        )
    if arguments.nodes is None:
        if arguments.shape not in cluster_specs.CATALOGUE:
            raise output.UnreadableError(f"--shape {arguments.shape}: not one of {', '.join(cluster_specs.CATALOGUE)}")
        return cluster_specs.from_catalogue(arguments.shape, ratios or (simulate.OVERSUBSCRIPTION,))
    if arguments.policy is None:
        raise output.UnreadableError("--nodes: needs --policy FILE, which defines the rails, domains and node shapes")
    policy = policies.read_file(arguments.policy)
    nodes: list[views.Node] = snapshot_files.read(arguments.nodes, "--nodes", needs="Node")["Node"]
    try:
        spec = cluster_specs.from_nodes(nodes, policy.document, f"nodes of {output.visible(arguments.nodes)}")
        return cluster_specs.with_oversubscription(spec, ratios)
    except cluster_specs.ClusterSpecError as error:
        raise output.UnreadableError(f"{arguments.nodes}: {error}") from None


def _parse_policies(text: str) -> Sequence[str]:
    """Return the names in a list, each once; all policies for an empty text."""
    policy_names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in policy_names if name not in experiments.POLICIES]
    if unknown or (text and not policy_names):
        raise output.UnreadableError(f"--policies {text}: give some of {', '.join(experiments.POLICIES)}")
    return list(dict.fromkeys(policy_names)) or experiments.POLICIES


def _parse_number(option: str, text: str, hint: str = "") -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0.0 < number < math.inf:
        raise output.UnreadableError(f"{option} {text}: must be a number above 0{hint}")
    return number


def _prepare_plots(folder: pathlib.Path | None) -> Drawer | None:
    """Return a function that writes plots to the folder. Raise UnreadableError now rather than after the simulation."""
    if folder is None:
        return None
    try:
        draw = pkgutil.resolve_name(_DRAW)
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

    def draw_all(experiment: experiments.Experiment, results: Sequence[experiments.Result]) -> None:
        for path in draw(folder, experiment, results):
            print(f"wrote {path}", file=sys.stderr)

    return draw_all


@contextlib.contextmanager
def _show_progress(jobs: int, runs: int, *, quiet: bool) -> Iterator[Callable[[int, str], Callable[[int], None]]]:
    """Show a bar over all simulations on stderr.

    Yields a function of a simulation's number and name, which returns the function to call with the number of its jobs
    that are placed.
    """
    columns = (
        progress.TextColumn("{task.description:>10}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeRemainingColumn(),
    )
    screen = console.Console(stderr=True)
    with progress.Progress(*columns, console=screen, transient=True, disable=quiet or not screen.is_terminal) as bar:
        task = bar.add_task("", total=jobs * runs)

        def follow(number: int, name: str) -> Callable[[int], None]:
            def report_placed(placed: int) -> None:
                if placed % _JOBS_PER_UPDATE == 0:
                    bar.update(task, completed=number * jobs + placed, description=name)

            return report_placed

        yield follow


def _print_parameters(form: str) -> int:
    rows = parameters.table()
    if form == "json":
        formats.print_json(rows)
    else:
        report.print_rows(("parameter", "value", "source"), [(row.name, row.value, row.source) for row in rows])
    return output.OK


def _print_shapes(form: str) -> int:
    rows = [
        (name, sum(part.size for part in entry.parts), entry.source) for name, entry in cluster_specs.CATALOGUE.items()
    ]
    if form == "json":
        formats.print_json([{"name": name, "nodes": nodes, "source": source} for name, nodes, source in rows])
    else:
        report.print_rows(("shape", "nodes", "source"), [(name, str(nodes), source) for name, nodes, source in rows])
    return output.OK
