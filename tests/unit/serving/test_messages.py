"""Heads that are kept take little memory, whoever sends them."""

import tracemalloc

import pytest

from railwright.serving import messages

MANY_FIELDS = b"".join(b"%05x:1\r\n" % field for field in range(100))


@pytest.mark.parametrize("fields", [MANY_FIELDS, b"Long: %b\r\n" % (b"-" * 32768)], ids=["many", "long"])
def test_kept_heads_take_at_most_two_mebibytes(fields):
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(500):
        messages.parse(b"GET /%d HTTP/1.1\r\nHost:\r\n%b\r\n" % (number, fields))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 2 << 20
