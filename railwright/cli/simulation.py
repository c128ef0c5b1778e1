"""Runs `railwright simulate`: formats the results of an experiment as a table, JSON and plots.

Every bandwidth is labelled as modelled.
"""

import argparse
import functools
import importlib.resources
import math
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from rich import console, progress

from railwright.cli import commands, formats, object_files, output, policies
from railwright.fabric import node_views, text
from railwright.fabric.placement import bandwidth
from railwright.simulator import cluster, cluster_specs, experiments, job_stream
from railwright.simulator import policies as placement_policies

_JOBS_PER_UPDATE = 50  # of the progress bar


def run(arguments: argparse.Namespace) -> int:
    """Return 0. Raise UnreadableError for a wrong option or an unusable file."""
    if arguments.parameters:
        return _print_list("parameter", list_parameters(), arguments.output)
    if arguments.shapes:
        published = [
            {"name": name, "nodes": sum(part.size for part in entry.parts), "source": entry.source}
            for name, entry in cluster_specs.CATALOGUE.items()
        ]
        return _print_list("shape", published, arguments.output)
    experiment = _build_experiment(arguments)
    policy_names = _parse_policies(arguments.policies)
    build_figure = _prepare_plots(arguments.plot) if arguments.plot is not None else None
    jobs = experiments.draw_jobs(experiment)
    if not any(not job.is_initial for job in jobs):
        raise output.UnreadableError("simulate: no job arrives within --days; raise --days or --load")
    results = _run(experiment, policy_names, jobs, is_quiet=formats.is_document(arguments.output))
    if formats.is_document(arguments.output):
        formats.print_document(build_document(experiment, results), arguments.output)
    else:
        print_comparison(experiment, results)
    if build_figure is not None:
        for path in _write_plots(build_figure, arguments.plot, experiment, results):
            print(f"wrote {path}", file=sys.stderr)
    return output.OK


def _build_experiment(arguments: argparse.Namespace) -> experiments.Experiment:
    if arguments.stream not in job_stream.TRACES:
        raise output.UnreadableError(f"--stream {arguments.stream}: not one of {', '.join(job_stream.TRACES)}")
    if arguments.jobs is not None and arguments.jobs < 1:
        raise output.UnreadableError(f"--jobs {arguments.jobs}: must be 1 or more")
    if arguments.days is not None and not 0 < arguments.days < math.inf:
        raise output.UnreadableError(f"--days {arguments.days}: must be above 0")
    return experiments.Experiment(
        spec=_build_spec(arguments),
        stream=arguments.stream,
        load=None if arguments.load == "published" else _parse_number("--load", arguments.load),
        jobs=commands.DEFAULT_JOBS if arguments.jobs is None and arguments.days is None else arguments.jobs,
        days=arguments.days,
        pod_gpus=arguments.pod_gpus,
        settings=experiments.Settings(
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
        return cluster_specs.build_from_catalogue(arguments.shape, ratios or (commands.OVERSUBSCRIPTION,))
    if arguments.policy is None:
        raise output.UnreadableError("--nodes: needs --policy FILE, which defines the rails, domains and node shapes")
    policy = policies.read_file(arguments.policy)
    nodes: list[node_views.Node] = object_files.read_snapshot(arguments.nodes, "--nodes", needs="Node")["Node"]
    try:
        spec = cluster_specs.build_from_nodes(
            nodes, policy.document, f"nodes of {output.escape_controls(arguments.nodes)}"
        )
        return cluster_specs.set_oversubscription(spec, ratios)
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


def _prepare_plots(folder: pathlib.Path) -> Callable[..., Any]:
    """Create the folder, and return matplotlib's Figure. Raise UnreadableError now, not after the simulation."""
    try:
        from matplotlib import figure
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
    return figure.Figure


def _run(
    experiment: experiments.Experiment, names: Sequence[str], jobs: Sequence[job_stream.Job], *, is_quiet: bool
) -> list[experiments.Result]:
    """Run each policy on the jobs, with a bar over all simulations on stderr."""
    columns = (
        progress.TextColumn("{task.description:>10}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeRemainingColumn(),
    )
    screen = console.Console(stderr=True)
    is_shown = screen.is_terminal and not is_quiet
    with progress.Progress(*columns, console=screen, transient=True, disable=not is_shown) as bar:
        task = bar.add_task("", total=len(jobs) * len(names))

        def report(done: int, name: str, placed: int) -> None:
            if placed % _JOBS_PER_UPDATE == 0:
                bar.update(task, completed=done + placed, description=name)

        return [
            experiments.run(experiment, name, jobs, functools.partial(report, number * len(jobs), name))
            for number, name in enumerate(names)
        ]


def _print_list(title: str, rows: Sequence[Mapping[str, object]], form: str) -> int:
    """Print rows with equal keys. These are the titles of the columns, except for the first."""
    if formats.is_document(form):
        formats.print_document(rows, form)
    else:
        columns = [formats.Column(name) for name in (title, *list(rows[0])[1:])]
        formats.print_table(columns, [[str(value) for value in row.values()] for row in rows], wide=True)
    return output.OK


def list_parameters() -> list[dict[str, str]]:
    """Return `name`, `value` and `source` of each number or rule of the model, with the values that the modules use."""
    table = importlib.resources.files("railwright.simulator").joinpath("parameters.md").read_text(encoding="utf-8")
    filled = table.format(
        bandwidth=bandwidth, experiments=experiments, job_stream=job_stream, policies=placement_policies
    )
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in filled.splitlines()]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]


NAMES = {
    "none": "no extender",
    "binpack": "binpack",
    "greedy": "greedy near peers",
    "railwright": "railwright",
    "optimum": "exact optimum",
}
_COLUMNS = (
    formats.Column("policy"),
    formats.Column("modelled busbw of optimum", right=True),
    formats.Column("per gang", drop=2, right=True),
    formats.Column("worst", drop=1, right=True),
    formats.Column("leaves x fewest", drop=3, right=True),
    formats.Column("avoidable crossings", drop=4, right=True),
    formats.Column("by rank order", drop=7, right=True),
    formats.Column("avoidable NUMA splits", drop=5, right=True),
    formats.Column("mean wait", drop=8, right=True),
    formats.Column("utilization", drop=6, right=True),
)


def print_comparison(experiment: experiments.Experiment, results: Sequence[experiments.Result]) -> None:
    """Print the comparison of policies."""
    first = results[0].summary
    output.print_styled((_format_title(experiment), "bold"))
    output.print_styled((experiment.spec.source, "dim"))
    print(f"{text.format_count(first.jobs, 'job')}, {first.gangs} of them with more than one pod.")
    formats.print_table(
        _COLUMNS,
        [_format_row(result) for result in results],
        styles=["bold" if result.policy == "railwright" else "" for result in results],
    )
    print()
    for result in results:
        if result.decisions:
            milliseconds = 1000 * result.decision_seconds / result.decisions
            print(f"railwright: {result.decisions} decisions, {milliseconds:.2f} ms each on this machine.")
        if result.outcome.rejected:
            rejected = text.format_count(result.outcome.rejected, "job")
            print(f"{result.policy}: {rejected} rejected: too large for the empty cluster.")
    print(
        "Modelled, not measured: `railwright simulate --parameters` lists every number and its source. Bandwidths and "
        "leaves are averages over gangs, weighted by GPU time. A gang's optimum is the best placement on the resources "
        "that were free when it was placed."
    )


def build_document(experiment: experiments.Experiment, results: Sequence[experiments.Result]) -> Any:
    """Return the results as one JSON value."""
    spec, settings = experiment.spec, experiment.settings
    return {
        "modelled": True,
        "site": {
            "name": spec.name,
            "source": spec.source,
            "nodes": len(spec.nodes),
            "oversubscription": list(spec.fabric.placement.oversubscription),
        },
        "stream": experiment.stream,
        "load": experiment.load,
        "podGpus": experiment.pod_gpus,
        "scheduler": settings.kind,
        "sample": "all" if settings.sample_all else "default",
        "seed": settings.seed,
        "nodeResourceTopologies": settings.reports,
        "policies": {
            result.policy: msgspec.to_builtins(result.summary)
            | {
                "rejected": result.outcome.rejected,
                "decisions": result.decisions,
                "decision_seconds": round(result.decision_seconds, 3),
            }
            for result in results
        },
    }


def _format_ratios(experiment: experiments.Experiment) -> str:
    """Return the oversubscription of each level, leaf first."""
    return ", ".join(f"{ratio:g}:1" for ratio in cluster.list_oversubscription(experiment.spec))


def _format_title(experiment: experiments.Experiment) -> str:
    load = "as many jobs a day as published" if experiment.load is None else f"load {experiment.load:g}"
    sample = "all nodes" if experiment.settings.sample_all else "the default sample of nodes"
    return (
        f"{experiment.spec.name}: {text.format_count(len(experiment.spec.nodes), 'node')}, oversubscription "
        f"{_format_ratios(experiment)}; "
        f"{experiment.stream}, {load}; {experiment.settings.kind}, {sample}"
    )


def _format_row(result: experiments.Result) -> Sequence[str]:
    summary = result.summary
    return (
        NAMES[result.policy],
        f"{summary.modelled_busbw_of_optimum:.3f}",
        f"{summary.modelled_busbw_of_optimum_per_gang:.3f}",
        f"{summary.worst_gang:.2f}",
        f"{summary.leaves_of_fewest:.2f}",
        f"{summary.avoidable_crossings}",
        f"{summary.rank_order_crossings}",
        f"{summary.avoidable_splits}",
        f"{summary.mean_wait:.0f} s",
        f"{summary.utilization:.1%}",
    )


# --- plots: modelled bandwidth by policy, and its distribution over gangs ---------------------------------

_SIZE = (8.0, 4.5)  # inches
_DPI = 150  # of PNG files
_OURS, _OTHERS = "#d1495b", ("#8d99ae", "#b8a9c9", "#7fb069", "#2b2d42")


def _write_plots(
    build_figure: Callable[..., Any],
    folder: pathlib.Path,
    experiment: experiments.Experiment,
    results: Sequence[experiments.Result],
) -> Iterator[pathlib.Path]:
    """Write all plots into the folder, as PNG and SVG. Yield each path written."""
    title = f"{experiment.spec.name}, {experiment.stream}, oversubscription {_format_ratios(experiment)}"
    for name, draw in (("busbw", _draw_bars), ("busbw-cdf", _draw_distribution)):
        plot = build_figure(figsize=_SIZE, layout="constrained")
        axes = plot.subplots()
        axes.set_title(title)
        draw(axes, results)
        for suffix in ("png", "svg"):
            path = folder / f"{experiment.spec.name}-{name}.{suffix}"
            plot.savefig(path, dpi=_DPI, metadata={"Date": None} if suffix == "svg" else None)
            yield path


def _draw_bars(axes: Any, results: Sequence[experiments.Result]) -> None:
    values = [result.summary.modelled_busbw_of_optimum for result in results]
    bars = axes.bar([NAMES[result.policy] for result in results], values, color=_choose_colours(results))
    axes.bar_label(bars, fmt="%.2f")
    axes.set_ylim(0, 1.1)
    axes.set_ylabel("modelled busbw of the optimum,\nGPU-time weighted")


def _draw_distribution(axes: Any, results: Sequence[experiments.Result]) -> None:
    for result, colour in zip(results, _choose_colours(results), strict=True):
        gangs = [item for item in result.outcome.placed if item.job.pods > 1 and not item.job.is_initial]
        shares, times = _accumulate(gangs)
        axes.step(shares, times, where="post", label=NAMES[result.policy], color=colour)
    axes.set_xlabel("modelled busbw of the gang's optimum")
    axes.set_ylabel("cumulative share of gangs' GPU time")
    axes.legend()


def _accumulate(gangs: Sequence[experiments.PlacedJob]) -> tuple[list[float], list[float]]:
    """Return shares of the optimum, ascending, and the share of GPU time up to each."""
    total, running_total = sum(gang.job.gpu_seconds for gang in gangs), 0.0
    shares, times = [0.0], [0.0]
    for gang in sorted(gangs, key=lambda gang: gang.share):
        running_total += gang.job.gpu_seconds
        shares.append(gang.share)
        times.append(running_total / total)
    return shares, times


def _choose_colours(results: Sequence[experiments.Result]) -> list[str]:
    others = iter(_OTHERS * len(results))
    return [_OURS if result.policy == "railwright" else next(others) for result in results]
