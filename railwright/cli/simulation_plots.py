"""Plots the results of an experiment: modelled bandwidth by policy, and its distribution over gangs. PNG and SVG."""

import pathlib
from collections.abc import Iterator, Sequence

import matplotlib as mpl

mpl.use("Agg")  # writes files without a display

from matplotlib import figure

from railwright.cli import simulation
from railwright.simulator import experiments, metrics

_SIZE = (8.0, 4.5)  # inches
_DPI = 150  # of PNG files
_OURS, _OTHERS = "#d1495b", ("#8d99ae", "#b8a9c9", "#7fb069", "#2b2d42")


def draw(
    folder: pathlib.Path, experiment: experiments.Experiment, results: Sequence[experiments.Result]
) -> Iterator[pathlib.Path]:
    """Write all plots into the folder. Yield each path written."""
    title = f"{experiment.spec.name}, {experiment.stream}, oversubscription {simulation.format_ratios(experiment)}"
    for name, plot in (("busbw", _plot_bars(title, results)), ("busbw-cdf", _plot_distribution(title, results))):
        for suffix in ("png", "svg"):
            path = folder / f"{experiment.spec.name}-{name}.{suffix}"
            plot.savefig(path, dpi=_DPI, metadata={"Date": None} if suffix == "svg" else None)
            yield path


def _plot_bars(title: str, results: Sequence[experiments.Result]) -> figure.Figure:
    plot = figure.Figure(figsize=_SIZE, layout="constrained")
    axes = plot.subplots()
    values = [result.summary.modelled_busbw_of_optimum for result in results]
    bars = axes.bar([simulation.NAMES[result.policy] for result in results], values, color=_choose_colours(results))
    axes.bar_label(bars, fmt="%.2f")
    axes.set_ylim(0, 1.1)
    axes.set_ylabel("modelled busbw of the optimum,\nGPU-time weighted")
    axes.set_title(title)
    return plot


def _plot_distribution(title: str, results: Sequence[experiments.Result]) -> figure.Figure:
    plot = figure.Figure(figsize=_SIZE, layout="constrained")
    axes = plot.subplots()
    for result, colour in zip(results, _choose_colours(results), strict=True):
        gangs = [job for job in result.outcome.placed if job.pods > 1 and not job.is_initial]
        shares, times = _accumulate(gangs)
        axes.step(shares, times, where="post", label=simulation.NAMES[result.policy], color=colour)
    axes.set_xlabel("modelled busbw of the gang's optimum")
    axes.set_ylabel("cumulative share of gangs' GPU time")
    axes.set_title(title)
    axes.legend()
    return plot


def _accumulate(gangs: Sequence[metrics.PlacedJob]) -> tuple[list[float], list[float]]:
    """Return shares of the optimum, ascending, and the share of GPU time up to each."""
    total, running_total = sum(job.gpus * job.duration for job in gangs), 0.0
    shares, times = [0.0], [0.0]
    for job in sorted(gangs, key=lambda job: job.share):
        running_total += job.gpus * job.duration
        shares.append(job.share)
        times.append(running_total / total)
    return shares, times


def _choose_colours(results: Sequence[experiments.Result]) -> list[str]:
    others = iter(_OTHERS * len(results))
    return [_OURS if result.policy == "railwright" else next(others) for result in results]
