"""Lists published data of real job streams: sizes, GPU time, durations, with their sources.

Sizes and GPU time: read from the figures and `data/cluster_summary.csv` of InternLM/AcmeTrace ("Characterization of
Large Language Model Development in the Datacenter", NSDI 2024), accurate to 0.1-0.5 points; durations likewise.
"""

from collections.abc import Mapping

import msgspec

SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1023)  # GPUs: the columns of the two tables
SECONDS = (64, 256, 1024, 4096, 16384, 65536, 262144)  # the columns of the duration table


class Trace(msgspec.Struct, frozen=True):
    """One published stream. Shares are cumulative, in per cent."""

    jobs: tuple[float, ...]  # jobs with at most SIZES[i] GPUs
    gpu_time: tuple[float, ...]  # GPU time of those
    ended: tuple[float, ...]  # jobs that ended within SECONDS[i]
    largest: int  # GPUs
    mean_seconds: float
    jobs_a_day: float


TRACES: Mapping[str, Trace] = {
    "seren": Trace(
        jobs=(54.0, 65.4, 68.0, 96.8, 97.9, 98.8, 99.3, 99.6, 99.7, 99.8, 99.96),
        gpu_time=(1.4, 1.8, 2.4, 11.9, 13.2, 19.1, 27.6, 41.7, 56.3, 66.9, 87.4),
        ended=(37, 66, 88, 96, 98.4, 99.6, 99.9),
        largest=1024,
        mean_seconds=1414,
        jobs_a_day=3600,
    ),
    "kalos": Trace(
        jobs=(86.3, 88.4, 88.4, 93.9, 94.3, 94.7, 95.3, 95.7, 96.9, 98.1, 98.96),
        gpu_time=(0.2, 0.2, 0.2, 0.6, 0.6, 2.0, 3.3, 3.8, 24.9, 50.5, 64.3),
        ended=(38, 69, 86, 97, 99.1, 99.7, 99.9),
        largest=1024,
        mean_seconds=1260,
        jobs_a_day=108,
    ),
    "helios": Trace(
        jobs=(72.2, 74.8, 80.5, 94.7, 97.7, 99.4, 99.7, 99.9, 99.96, 99.98, 100),
        gpu_time=(5.4, 7.2, 12.1, 41.3, 61.5, 86.6, 94.4, 97.5, 99.9, 99.9, 99.95),
        ended=(25, 57, 75, 88, 94, 98, 99.5),
        largest=2048,
        mean_seconds=6652,
        jobs_a_day=8600,
    ),
    "philly": Trace(
        jobs=(82.4, 84.5, 92.1, 98.9, 99.8, 99.98, 100, 100, 100, 100, 100),
        gpu_time=(16.4, 19.4, 38.2, 88.0, 97.2, 100, 100, 100, 100, 100, 100),
        ended=(19, 32, 55, 79, 90, 95, 98.4),
        largest=128,
        mean_seconds=18006,
        jobs_a_day=820,
    ),
}

LONGEST = 30 * 86400.0  # seconds; no maximum is published, so jobs are assumed to run no longer
FAILED = 0.40
"""Share of jobs that fail early: Kalos, 40 % of jobs with 8 % of GPU time. Used for every trace."""
FAILED_GPU_TIME = 0.08
