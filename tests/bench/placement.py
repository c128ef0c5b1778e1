"""Compares the modelled quality of placements on every shape with targets.

All bandwidths are modelled; equal seeds give equal figures on any machine. `--schedulers` has real schedulers place
gangs instead (`scheduler_gangs`), on `--patterns` random choices of busy nodes, and `--only Volcano/hard` some of its
cells.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence

import machine
import msgspec
from simulator import cluster_specs, experiments

LEAST_SHARE = 0.98  # of the exact optimum, GPU-time weighted
RATIOS = (1.0, 7.0)
_ROW = "{:<12} {:>5} {:>8} {:<8} {:>5} {:>9.4f} {:>9.4f} {:>6.2f} {:>8.3f} {:>6} {:>6} {:>6} {:>7.2f}  {}"
_HEAD = (
    "shape        over: pod GPUs stream   gangs of optimum  per gang  worst leaves x  cross  order   NUMA "
    "ms/task  verdict"
)


class Row(msgspec.Struct, frozen=True):
    """One run of railwright."""

    shape: str
    ratio: float
    pod_gpus: int
    stream: str
    result: experiments.Result

    @property
    def missed(self) -> Sequence[str]:
        """The targets this run misses."""
        it = self.result.summary
        faults = {
            f"busbw below {LEAST_SHARE}": it.modelled_busbw_of_optimum < LEAST_SHARE,
            "avoidable crossings": it.avoidable_crossings > 0,
            "rank order": it.rank_order_crossings > 0,
            "NUMA splits": it.avoidable_splits > 0,
        }
        return [name for name, there in faults.items() if there]

    def line(self) -> str:
        """Return the run as text."""
        it, result = self.result.summary, self.result
        milliseconds = 1000 * result.decision_seconds / max(1, result.decisions)
        return _ROW.format(
            self.shape,
            f"{self.ratio:g}:1",
            self.pod_gpus,
            self.stream,
            it.gangs,
            it.modelled_busbw_of_optimum,
            it.modelled_busbw_of_optimum_per_gang,
            it.worst_gang,
            it.leaves_of_fewest,
            it.avoidable_crossings,
            it.rank_order_crossings,
            it.avoidable_splits,
            milliseconds,
            "misses " + ", ".join(self.missed) if self.missed else "ok",
        )


def main() -> int:
    """Return 0 if all targets are met, otherwise 1."""
    arguments = machine.parse_options(
        __doc__,
        shapes=",".join(cluster_specs.CATALOGUE),
        jobs=1000,
        load=0.9,
        seed=1,
        schedulers=False,
        only="",
        patterns=2,
    )
    if arguments.schedulers:
        import scheduler_gangs

        return asyncio.run(scheduler_gangs.main(arguments.only, arguments.patterns))
    print(f"modelled, not measured; {arguments.jobs} jobs a run, load {arguments.load:g}, Volcano, all nodes offered")
    print(_HEAD)
    missed = False
    for row in _rows(arguments):
        print(row.line(), flush=True)
        missed = missed or bool(row.missed)
    return int(missed)


def _rows(arguments: argparse.Namespace) -> Iterator[Row]:
    for shape in arguments.shapes.split(","):
        for ratio in RATIOS:
            for stream, pod_gpus in (("seren", 8), ("helios", 4)):
                yield _run(shape, ratio, stream, pod_gpus, arguments)


def _run(shape: str, ratio: float, stream: str, pod_gpus: int, arguments: argparse.Namespace) -> Row:
    experiment = experiments.Experiment(
        spec=cluster_specs.build_from_catalogue(shape, (ratio,)),
        stream=stream,
        load=arguments.load,
        jobs=arguments.jobs,
        pod_gpus=pod_gpus,
        seed=arguments.seed,
    )
    return Row(
        shape, ratio, pod_gpus, stream, experiments.run(experiment, "railwright", experiments.draw_jobs(experiment))
    )


if __name__ == "__main__":
    sys.exit(main())
