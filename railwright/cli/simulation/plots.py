"""The study drawn: bars of modelled bandwidth by policy, and how it is spread over gangs. PNG and SVG."""

import pathlib
from collections.abc import Iterator, Sequence

import matplotlib as mpl

mpl.use("Agg")  # files only; no screen is asked for

from matplotlib import figure

from railwright.cli.simulation import report
from railwright.simulator import experiments, metrics

_SIZE = (8.0, 4.5)  # inches
_DOTS = 150  # an inch, in PNG
_OURS, _OTHERS = "#d1495b", ("#8d99ae", "#b8a9c9", "#7fb069", "#2b2d42")


def draw(
    folder: pathlib.Path, experiment: experiments.Experiment, results: Sequence[experiments.Result]
) -> Iterator[pathlib.Path]:
    """Write all pictures into the folder; yields each path written."""
    title = f"{experiment.spec.name}, {experiment.stream}, oversubscription {report.format_ratios(experiment)}"
    for name, picture in (("busbw", _bars(title, results)), ("busbw-cdf", _spread(title, results))):
        for suffix in ("png", "svg"):
            path = folder / f"{experiment.spec.name}-{name}.{suffix}"
            picture.savefig(path, dpi=_DOTS, metadata={"Date": None} if suffix == "svg" else None)
            yield path


def _bars(title: str, results: Sequence[experiments.Result]) -> figure.Figure:
    picture = figure.Figure(figsize=_SIZE, layout="constrained")
    axes = picture.subplots()
    values = [result.summary.modelled_busbw_of_optimum for result in results]
    bars = axes.bar([report.display_policy(each.policy) for each in results], values, color=_colours(results))
    axes.bar_label(bars, fmt="%.2f")
    axes.set_ylim(0, 1.1)
    axes.set_ylabel("modelled busbw of the optimum,\nGPU-time weighted")
    axes.set_title(title)
    return picture


def _spread(title: str, results: Sequence[experiments.Result]) -> figure.Figure:
    picture = figure.Figure(figsize=_SIZE, layout="constrained")
    axes = picture.subplots()
    for result, colour in zip(results, _colours(results), strict=True):
        gangs = [each for each in result.outcome.placed if each.pods > 1 and not each.is_initial]
        shares, times = _cumulated(gangs)
        axes.step(shares, times, where="post", label=report.display_policy(result.policy), color=colour)
    axes.set_xlabel("modelled busbw of the gang's optimum")
    axes.set_ylabel("share of gangs' GPU time at most so well placed")
    axes.set_title(title)
    axes.legend()
    return picture


def _cumulated(gangs: Sequence[metrics.PlacedJob]) -> tuple[list[float], list[float]]:
    """(share of the optimum, share of GPU time up to it), ascending."""
    total, so_far = sum(each.gpus * each.duration for each in gangs), 0.0
    shares, times = [0.0], [0.0]
    for each in sorted(gangs, key=lambda each: each.share):
        so_far += each.gpus * each.duration
        shares.append(each.share)
        times.append(so_far / total)
    return shares, times


def _colours(results: Sequence[experiments.Result]) -> list[str]:
    others = iter(_OTHERS * len(results))
    return [_OURS if result.policy == "railwright" else next(others) for result in results]
