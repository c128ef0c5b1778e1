"""A line of a log may have any length: the time to read it grows linearly, and no number overflows."""

import time

import pytest

from railwright.fabric.verification import logs, report

HEAD = "h:1:1 [0] NCCL INFO "
# what the forms of messages consist of, so that repeating a few of them keeps a pattern busy
PIECES = (
    *" \t[]{}()/:;,.-+=#<>\x1b\x07",
    *("a", "1", "a1", "[0", "[0]", "[0]{", "[pod/", "[pod/a", "[1,1]<stdout", ",1", "NCCL INFO", "NCCL ", "h:1:1 [0] "),
    *("via NET/", "via COLLNET/", "NET/IB", "NET/IB/x", "/0", "NET/OFI ", "NET/Socket : Using ", "NET/IB : Using [0]"),
    *("mlx5_0:1/RoCE", "1 -> 1", "1[a", "[send]", "libibverbs", "Unable to open ", "rank 1 nranks ", "(found 1"),
    *("# Rank 1 Pid 1 on ", "Call to ibv_x ", "\x1b[0", "\x1b]"),
    *("NCCL version 1", "Using network ", "Got completion ", "Made virtual device [1] name=", "\u0663", "\u00b2"),
)
LENGTH = 50_000  # characters; quadratic patterns need many seconds for it, linear ones a few hundredths
SECONDS = 3.0


def measure(line: str) -> float:
    begin = time.process_time()
    logs.collect_messages([("p", [line])])
    logs.is_relevant(line)
    return time.process_time() - begin


@pytest.mark.parametrize("head", ["", HEAD, HEAD.replace("INFO", "WARN")])
@pytest.mark.parametrize("piece", PIECES, ids=repr)
def test_a_long_log_line_of_repeated_pieces_is_read_in_linear_time(head, piece):
    assert measure(head + piece * (LENGTH // len(piece))) < SECONDS
    assert measure(piece * (LENGTH // len(piece)) + " NCCL INFO x") < SECONDS


NUMBERS = (
    "h:{0}:{0} [{0}] NCCL INFO comm rank {0} nranks {0}",
    "[1,{0}]<stdout>: h:1:1 [0] NCCL INFO x",
    HEAD + "Channel 00/0 : {0}[0] -> {0}[0] [send] via NET/IB/{0}",
    HEAD + "NET/IB : Using [{0}]mlx5_0:{0}/RoCE [RO]; OOB eth0",
    HEAD + "NET/IB : Made virtual device [{0}] name=a+b",
    HEAD + "NET/OFI Selected provider is efa (found {0} nics)",
    "#  Rank {0} Group {0} Pid {0} on h device {0}",
    " {0} {0} float sum -1 {0} {0} {0} 0 {0} {0} {0} ",
)


@pytest.mark.parametrize("form", NUMBERS)
def test_a_log_with_a_number_of_any_length_is_read_without_an_exception(form):
    for digits in ("1", "9" * 9, "9" * 5000, "\u0663" * 5000):
        begin = time.process_time()
        report.assess_logs([("p", [form.format(digits)])], report.ExpectedRails())
        assert time.process_time() - begin < SECONDS
