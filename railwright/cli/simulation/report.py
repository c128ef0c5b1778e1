"""Formats the results of an experiment as a table and as JSON. Every bandwidth is labelled as modelled."""

from collections.abc import Sequence
from typing import Any

import msgspec
from rich import box, console, table

from railwright.cli import output, tables
from railwright.simulator import cluster, experiments

_NAMES = {
    "none": "no extender",
    "binpack": "binpack",
    "greedy": "greedy near peers",
    "railwright": "railwright",
    "optimum": "exact optimum",
}
_COLUMNS = (
    tables.Column("policy"),
    tables.Column("modelled busbw of optimum", right=True),
    tables.Column("per gang", drop=2, right=True),
    tables.Column("worst", drop=1, right=True),
    tables.Column("leaves x fewest", drop=3, right=True),
    tables.Column("avoidable crossings", drop=4, right=True),
    tables.Column("by rank order", drop=7, right=True),
    tables.Column("avoidable NUMA splits", drop=5, right=True),
    tables.Column("mean wait", drop=8, right=True),
    tables.Column("utilisation", drop=6, right=True),
)


def print_comparison(experiment: experiments.Experiment, results: Sequence[experiments.Result]) -> None:
    """Print the comparison of policies."""
    screen = console.Console(highlight=False)
    first = results[0].summary
    screen.print(f"[bold]{_format_title(experiment)}[/bold]", soft_wrap=True)
    screen.print(f"{experiment.spec.source}", soft_wrap=True, style="dim", markup=False)
    screen.print(f"{first.jobs} jobs, {first.gangs} of them gangs of more than one pod.", soft_wrap=True)
    tables.show(
        _COLUMNS,
        [_format_row(result) for result in results],
        styles=["bold" if result.policy == "railwright" else "" for result in results],
    )
    screen.print()
    for result in results:
        if result.decisions:
            milliseconds = 1000 * result.decision_seconds / result.decisions
            screen.print(
                f"railwright: {result.decisions} decisions, {milliseconds:.2f} ms each on this machine.", soft_wrap=True
            )
        if result.outcome.rejected:
            screen.print(
                f"{result.policy}: {result.outcome.rejected} jobs rejected, because they do not fit the empty cluster.",
                soft_wrap=True,
            )
    screen.print(
        "Modelled, not measured: `railwright simulate --parameters` lists every number and its source. Bandwidths and "
        "leaves are averages over gangs, weighted by GPU time. A gang's optimum is the best placement on the resources "
        "that were free when it was placed.",
        soft_wrap=True,
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


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a plain table. On a terminal, long cells are wrapped, except in the first column."""
    screen = console.Console(highlight=False)
    if not screen.is_terminal:
        tables.show([tables.Column(column) for column in columns], rows, wide=True)
        return
    view = table.Table(box=box.SIMPLE)
    for column in columns:
        view.add_column(column, no_wrap=column == columns[0], overflow="fold")
    for row in rows:
        view.add_row(*map(output.visible, row))
    screen.print(view, markup=False)


def display_policy(policy: str) -> str:
    """Return the display name of a policy."""
    return _NAMES.get(policy, policy)


def format_ratios(experiment: experiments.Experiment) -> str:
    """Return the oversubscription of each level, leaf first."""
    return ", ".join(f"{ratio:g}:1" for ratio in cluster.list_oversubscription(experiment.spec))


def _format_title(experiment: experiments.Experiment) -> str:
    load = "as many jobs a day as published" if experiment.load is None else f"load {experiment.load:g}"
    sample = "all nodes" if experiment.settings.sample_all else "the default sample of nodes"
    return (
        f"{experiment.spec.name}: {len(experiment.spec.nodes)} nodes, oversubscription {format_ratios(experiment)}; "
        f"{experiment.stream}, {load}; {experiment.settings.kind}, {sample}"
    )


def _format_row(result: experiments.Result) -> Sequence[str]:
    summary = result.summary
    return (
        display_policy(result.policy),
        f"{summary.modelled_busbw_of_optimum:.3f}",
        f"{summary.modelled_busbw_of_optimum_per_gang:.3f}",
        f"{summary.worst_gang:.2f}",
        f"{summary.leaves_of_fewest:.2f}",
        f"{summary.avoidable_crossings}",
        f"{summary.rank_order_crossings}",
        f"{summary.avoidable_splits}",
        f"{summary.mean_wait:.0f} s",
        f"{summary.utilisation:.1%}",
    )
