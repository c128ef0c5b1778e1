"""How often the rotator looks while looks fail."""

import pytest

from cli.certificates import watching


@pytest.mark.parametrize(("failed", "seconds"), [(0, 3.0), (1, 6.0), (4, 30.0), (100, 30.0), (5000, 30.0)])
def test_pauses_grow_to_half_a_minute_and_never_overflow(failed, seconds):
    assert watching.pause(3.0, failed) == seconds
