"""What a study found, as a table and as JSON. Every bandwidth is called modelled wherever it is shown."""

from collections.abc import Sequence
from typing import Any

import msgspec
from rich import box, console, table

from simulator import studies, world

_NAMES = {
    "none": "no extender",
    "binpack": "binpack",
    "greedy": "greedy with mates",
    "railwright": "railwright",
    "optimum": "exact optimum",
}
_FILE_WIDTH = 140  # characters
_COLUMNS = (
    "policy",
    "modelled busbw of optimum",
    "per gang",
    "worst",
    "leaves x fewest",
    "avoidable crossings",
    "by rank order",
    "avoidable NUMA splits",
    "mean wait",
    "utilisation",
)


def show(question: studies.Question, results: Sequence[studies.Result]) -> None:
    """The study on stdout."""
    screen = _screen()
    first = results[0].summary
    screen.print(f"[bold]{_title(question)}[/bold]", soft_wrap=True)
    screen.print(f"{question.site.source}", soft_wrap=True, style="dim", markup=False)
    screen.print(f"{first.jobs} jobs, {first.gangs} of them gangs of more than one pod.", soft_wrap=True)
    shown = table.Table(*_COLUMNS, box=box.SIMPLE)
    for column in shown.columns[1:]:
        column.justify = "right"
    for result in results:
        shown.add_row(*_row(result), style="bold" if result.policy == "railwright" else "")
    screen.print(shown)
    for result in results:
        if result.decisions:
            each = 1000 * result.decision_seconds / result.decisions
            screen.print(
                f"railwright: {result.decisions} decisions, {each:.2f} ms each on this machine.", soft_wrap=True
            )
        if result.outcome.refused:
            screen.print(f"{result.policy}: {result.outcome.refused} jobs no empty cluster could hold.", soft_wrap=True)
    screen.print(
        "Modelled, not measured: `railwright simulate --parameters` lists every number and its source. Bandwidths and "
        "leaves are of gangs, weighted by GPU time; the optimum is each gang's own, on what was free as it was placed.",
        soft_wrap=True,
    )


def as_json(question: studies.Question, results: Sequence[studies.Result]) -> Any:
    """The study as one JSON value."""
    site, settings = question.site, question.settings
    return {
        "modelled": True,
        "site": {
            "name": site.name,
            "source": site.source,
            "nodes": len(site.nodes),
            "oversubscription": list(site.fabric.placement.oversubscription),
        },
        "stream": question.stream,
        "load": question.load,
        "podGpus": question.pod_gpus,
        "scheduler": settings.kind,
        "sample": "all" if settings.sample_all else "default",
        "seed": settings.seed,
        "nodeResourceTopologies": settings.reports,
        "policies": {
            result.policy: msgspec.to_builtins(result.summary)
            | {
                "refused": result.outcome.refused,
                "decisions": result.decisions,
                "decision_seconds": round(result.decision_seconds, 3),
            }
            for result in results
        },
    }


def show_rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A plain table on stdout."""
    shown = table.Table(*columns, box=box.SIMPLE)
    for row in rows:
        shown.add_row(*row)
    _screen().print(shown, markup=False)


def _screen() -> console.Console:
    """Stdout; a file is as wide as the tables want."""
    screen = console.Console(highlight=False)
    return screen if screen.is_terminal else console.Console(highlight=False, width=_FILE_WIDTH)


def name_of(policy: str) -> str:
    """A policy as people call it."""
    return _NAMES.get(policy, policy)


def ratios(question: studies.Question) -> str:
    """The oversubscription of each level, leaf first."""
    return ", ".join(f"{ratio:g}:1" for ratio in world.ratios(question.site))


def _title(question: studies.Question) -> str:
    load = "as many jobs a day as published" if question.load is None else f"load {question.load:g}"
    sample = "all nodes" if question.settings.sample_all else "the default sample of nodes"
    return (
        f"{question.site.name}: {len(question.site.nodes)} nodes, oversubscription {ratios(question)}; "
        f"{question.stream}, {load}; {question.settings.kind}, {sample}"
    )


def _row(result: studies.Result) -> Sequence[str]:
    it = result.summary
    return (
        name_of(result.policy),
        f"{it.modelled_busbw_of_optimum:.3f}",
        f"{it.modelled_busbw_of_optimum_per_gang:.3f}",
        f"{it.worst_gang:.2f}",
        f"{it.leaves_of_fewest:.2f}",
        f"{it.avoidable_crossings}",
        f"{it.disordered}",
        f"{it.avoidable_splits}",
        f"{it.mean_wait:.0f} s",
        f"{it.utilisation:.1%}",
    )
