"""Limits a rate with a token bucket."""

import time


class TokenBucket:
    """At most `burst` tokens, refilled by `rate` per second. It starts full."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst, self._tokens, self._updated = rate, burst, burst, time.monotonic()

    def take(self) -> bool:
        """Take one token. Return True if there was one."""
        now = time.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._updated) * self._rate)
        self._updated = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
