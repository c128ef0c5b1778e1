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


@pytest.mark.parametrize("name", ["Authorization", "authorization", "X-Railwright-Authorization"])
def test_heads_with_credentials_are_not_kept(name):
    head = f"GET / HTTP/1.1\r\nHost:\r\n{name}: Bearer token\r\n\r\n".encode()
    assert messages.parse(head) is not messages.parse(head)
    other = b"GET / HTTP/1.1\r\nHost:\r\n\r\n"
    assert messages.parse(other) is messages.parse(other)
