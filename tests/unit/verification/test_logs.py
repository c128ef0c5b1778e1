"""Recorded and published logs of NCCL: the network of each, also with prefixes before the lines."""

import random

import pytest
import yaml
from admitting import ROOT
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric.verification import logs, report

PUBLISHED = yaml.safe_load((ROOT / "tests" / "data" / "nccl-logs.yaml").read_text())


def lines(name: str) -> list[str]:
    return PUBLISHED[name]["log"].splitlines()


def assess_logs(*logs, **expected) -> report.Report:
    named = [(f"file-{at}", log.splitlines() if isinstance(log, str) else log) for at, log in enumerate(logs)]
    if "rails" not in expected:  # as many as the pods opened; what is not known is tested by itself
        first = report.assess_logs(named, report.ExpectedRails(**expected))
        expected["rails"] = max((len(pod.opened) or pod.rails or 0 for pod in first.pods), default=0) or None
    return report.assess_logs(named, report.ExpectedRails(**expected))


def rank(pod: str, number: int, *, of: int = 2, network: str = "IB", using: str = "", channels=()) -> str:
    """Return a process of one rank, in the form of NCCL 2.26."""
    head = f"{pod}:7:8 [0] NCCL INFO"
    lines = [
        f"{head} NET/IB : Using {using} [RO]; OOB eth0:10.0.0.{number}<0>"
        if using
        else f"{head} NET/IB : No device found.",
        f"{head} Using network {network}",
        f"{head} ncclCommInitRank comm 0x1 rank {number} nranks {of} cudaDev 0 busId 1000 commId 0x9 - Init START",
        *(
            f"{head} Channel 0{at}/0 : {number}[0] -> {1 - number}[0] [send] via NET/{network}/{channel}"
            for at, channel in enumerate(channels)
        ),
    ]
    return "\n".join(lines)


def hcas(*numbers: int) -> str:
    return " ".join(f"[{at}]mlx5_{number}:1/RoCE" for at, number in enumerate(numbers))


GOOD = rank("w-0", 0, using=hcas(0, 1), channels=("0/GDRDMA", "1/GDRDMA"))
GOOD += "\nw-0:7:8 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>"  # beside RDMA: no fallback
ALSO = rank("w-1", 1, using=hcas(0, 1), channels=("0/GDRDMA", "1/GDRDMA"))


# --- published forms --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLISHED)
def test_verify_reads_transport_rails_and_pods_over_tcp_from_a_published_log(name):
    expected, results = PUBLISHED[name], assess_logs(lines(name))
    assert results.state == expected["state"], results.line
    for pod in results.pods:
        assert pod.transport == expected.get("transport", pod.transport)
        assert pod.rails == expected.get("rails", pod.rails)
        if "gdr" in expected:
            assert bool(pod.channels_direct) is expected["gdr"]
    if "pods_tcp" in expected:
        assert [pod.name for pod in results.pods if pod.state == report.TCP] == expected["pods_tcp"]
        assert all(name in results.line for name in expected["pods_tcp"])
    assert "\n" not in results.line


# --- prefixes ---------------------------------------------------------------------------------------------

PREFIXES = [
    "",
    "[1,0]<stdout>:",
    "[prterun-launcher-1@1,0]<stdout>: ",
    "2026-03-02T08:15:01.100Z ",
    "2026-03-02T08:15:01.1 stdout F ",
    "[2026-03-02 08:15:01] ",
    "\x1b[36m(RayTrainWorker pid=7, ip=10.0.0.1)\x1b[0m ",
    "(EngineCore_DP0 pid=742) ",
    "w-0  | ",
    "[rank0]: ",
    "[default0]:",
    "[pod/w-0/pytorch] 2026-03-02T08:15:01.100000000Z ",
]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_log_is_read_in_the_same_way_with_any_prefix_of_its_lines(prefix):
    results = assess_logs([prefix + line for line in GOOD.splitlines()], ALSO)
    assert results.state == report.RDMA, results.line
    assert [pod.name for pod in results.pods] == ["w-0", "w-1"]


def test_interleaved_lines_of_two_processes_are_separated():
    torn = GOOD.splitlines()[1] + " " + ALSO.splitlines()[1]
    rest = [line for text in (GOOD, ALSO) for line in text.splitlines() if "Using network" not in line]
    assert assess_logs([torn, *rest]).state == report.RDMA


def test_pods_are_told_apart_by_kubectls_prefix_or_by_host_in_a_launchers_log():
    shared = [
        f"[pod/p-{at}/c] {line.replace(f'w-{at}', 'node-7')}"
        for at, text in enumerate((GOOD, ALSO))
        for line in text.splitlines()
    ]
    assert [pod.name for pod in assess_logs(shared).pods] == ["p-0", "p-1"]
    launched = [f"[pod/launcher-x/mpi] {line}" for line in [*GOOD.splitlines(), *ALSO.splitlines()]]
    assert [pod.name for pod in assess_logs(launched).pods] == ["w-0", "w-1"]


# --- reports ----------------------------------------------------------------------------------------------


def test_rdma_on_every_rail_is_reported_with_transport_rails_and_ranks():
    assert assess_logs(GOOD, ALSO).line == "RDMA on every rail: RoCE, 2 of 2 rails, 2 ranks on 2 pods, GPUDirect"


def test_a_log_proves_the_use_of_all_rails_only_if_their_number_is_known():
    results = report.assess_logs([("a", GOOD.splitlines()), ("b", ALSO.splitlines())], report.ExpectedRails())
    assert results.state == report.UNKNOWN
    assert results.rails is None
    assert results.line == (
        "cannot tell whether every rail is used: RoCE, 2 rails, 2 ranks on 2 pods, GPUDirect; the number of rails that "
        "the pods have is not known: run `railwright verify job/NAME`, or give --rails"
    )


def test_a_rail_that_one_pod_did_not_use_is_named():
    four = report.ExpectedRails(4, devices={f"mlx5_{number}": f"r{number}" for number in range(4)})
    two = report.ExpectedRails(2, devices={"mlx5_0": "r0", "mlx5_1": "r1"})
    logs = [("a", GOOD.splitlines()), ("b", ALSO.splitlines())]
    half = report.assess_logs(logs, report.ExpectedRails(), {"w-0": four, "w-1": four})
    assert half.state == report.PARTIAL
    assert "NCCL found 2 of 4 rails, missing r2 (mlx5_2), r3 (mlx5_3)" in half.line
    whole = report.assess_logs(logs, report.ExpectedRails(), {"w-0": two, "w-1": two})
    assert whole.line.startswith("RDMA on every rail: RoCE, 2 of 2 rails")
    one_unknown = report.assess_logs(logs, report.ExpectedRails(), {"w-0": two})
    assert one_unknown.state == report.UNKNOWN
    other = report.ExpectedRails(2, devices={"mlx5_0": "r0", "mlx5_4": "r1"})  # mlx5_1 is a NIC for storage
    wrong = report.assess_logs(logs, report.ExpectedRails(), {"w-0": other, "w-1": other})
    assert wrong.state == report.PARTIAL
    assert "channels went over 1 of 2 rails, missing r1 (mlx5_4)" in wrong.line


TCP = rank("w-1", 1, network="Socket")
ONE_RAIL = rank("w-1", 1, using=hcas(1), channels=("0",))
UNNAMED = rank("w-1", 1, using=hcas(0, 1), channels=("0", "4"))
FEW_RANKS = rank("w-0", 0, of=16, using=hcas(0), channels=("0",))
ALONE = rank("w-0", 0, of=1, using=hcas(0, 1))
REPORTS = {  # the logs, what is expected, the state, and words of the line
    "one pod on TCP": (
        (GOOD, TCP),
        {},
        report.TCP,
        "TCP, not RDMA: w-1 (rank 1): fell back to sockets (NET/IB found no device)",
    ),
    "a pod that lacks a rail": (
        (GOOD, ONE_RAIL),
        {},
        report.PARTIAL,
        "RDMA, but not on every rail: w-1 (rank 1): NCCL found 1 of 2 rails (mlx5_1:1)",
    ),
    "fewer rails than expected": ((GOOD, ALSO), {"rails": 4}, report.PARTIAL, "2 of 4 rails"),
    "ranks without logs": ((FEW_RANKS,), {}, report.UNKNOWN, "ranks 1-15 of 16 do not show their network in the logs"),
    "one pod alone": ((ALONE,), {}, report.UNKNOWN, "no channel to another node"),
    "a device without a name": ((GOOD, UNNAMED), {}, report.UNKNOWN, "add NET to NCCL_DEBUG_SUBSYS"),
}


@pytest.mark.parametrize("case", REPORTS)
def test_a_report_has_the_worst_state_of_the_pods_and_its_cause(case):
    of_pods, expected, state, words = REPORTS[case]
    results = assess_logs(*of_pods, **expected)
    assert (results.state, words in results.line) == (state, True), results.line


@pytest.mark.parametrize(("network", "state"), [("Socket", report.TCP), ("IB", report.UNKNOWN)])
def test_the_network_is_read_from_channel_lines_if_no_other_line_names_it(network, state):
    """As in an excerpt, in which the line that NCCL writes at its start is missing."""
    log = rank("w-0", 0, network=network, channels=("0",)).splitlines()[-1:]
    results = report.assess_logs([("a", log)], report.ExpectedRails())
    assert (results.state, results.pods[0].transport) == (state, "TCP" if state == report.TCP else network)


def test_the_line_of_a_report_says_how_many_causes_it_leaves_out():
    logs = [rank(f"w-{at}", at, of=5, using=hcas(at), channels=("0",)) for at in range(5)]
    assert assess_logs(*logs, rails=2).line.endswith("w-2 (rank 2): NCCL found 1 of 2 rails (mlx5_2:1); and 2 more")


@pytest.mark.parametrize("network", ["Socket", "socket", "FastSocket", "GPUDirectTCPX_v7", "FasTrak"])
def test_networks_over_tcp_do_not_count_as_rdma(network):
    assert assess_logs(rank("w-0", 0, network=network), rank("w-1", 1, network=network)).state == report.TCP


def test_an_unknown_network_plugin_counts_as_rdma_only_if_its_log_lists_devices():
    unknown = [rank(f"w-{at}", at, network="Warp", channels=("0",)) for at in (0, 1)]
    assert assess_logs(*unknown).state == report.UNKNOWN
    known = [rank(f"w-{at}", at, network="Warp", using=hcas(0), channels=("0",)) for at in (0, 1)]
    assert assess_logs(*known).pods[0].transport == "RoCE by plugin Warp"


# --- order ------------------------------------------------------------------------------------------------

LOGS = st.lists(st.sampled_from(sorted(PUBLISHED)), min_size=1, max_size=3, unique=True)


@given(LOGS, st.integers())
def test_a_report_is_the_same_for_any_order_of_log_lines(names, seed):
    every = [line for name in names for line in lines(name)]
    shuffled = every[:]
    random.Random(seed).shuffle(shuffled)  # noqa: S311 - it has to repeat
    assert report.assess_logs([("log", shuffled)], report.ExpectedRails()) == report.assess_logs(
        [("log", every)], report.ExpectedRails()
    )


@given(st.lists(st.text(max_size=80), max_size=20))
def test_any_text_of_a_log_is_read_without_an_exception(texts):
    mixed = [
        *texts,
        *(f"h:1:2 [0] NCCL INFO {text}" for text in texts),
        *(f"h:1:2 [0] NCCL INFO NET/IB : Using {text}" for text in texts),
    ]
    assert logs.collect_messages([("log", mixed)]) is not None
    assert "\n" not in assess_logs(mixed).line
