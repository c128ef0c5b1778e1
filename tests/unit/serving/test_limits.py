"""The token bucket that limits rates."""

import time

from railwright.serving import limits


def test_a_burst_is_allowed_once():
    bucket = limits.TokenBucket(rate=0.001, burst=3)
    assert [bucket.take() for _ in range(5)] == [True, True, True, False, False]


def test_tokens_are_refilled_at_the_rate_up_to_the_burst():
    bucket = limits.TokenBucket(rate=1000, burst=2)
    assert bucket.take()
    assert bucket.take()
    time.sleep(0.02)  # time for twenty tokens, of which two fit
    assert [bucket.take() for _ in range(2)] == [True, True]
    slow = limits.TokenBucket(rate=0.001, burst=1)
    assert slow.take()
    assert not slow.take()
