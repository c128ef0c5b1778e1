"""Counts the claims that a device has room for: one, or several if it allows multiple allocations (KEP-5075).

The number is an upper bound, so that no node is refused where the allocator finds room: what the next request asks of
the device's capacity is not read, only the least that an allocation takes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction

from railwright.fabric import quantity, views
from railwright.fabric.claims import objects

MAX_SHARES = 64  # a larger number counts as this

Consumed = Mapping[str, views.RawQuantity]
"""The capacity that one allocation of a device takes, by name."""


def count_shares(device: objects.Device, consumed: Sequence[Consumed] = ()) -> int:
    """Return how many further claims a device has room for, beside the allocations that consume these capacities."""
    if not device.allow_multiple_allocations:
        return int(not consumed)
    total: Counter[str] = Counter()
    for amounts in consumed:
        total.update({name: _read(amount) for name, amount in amounts.items()})
    shares = MAX_SHARES
    for name, capacity in (device.capacity or {}).items():
        value = _read(capacity.value)
        smallest = _read(capacity.request_policy.smallest) if capacity.request_policy is not None else Fraction(0)
        if smallest > 0:
            shares = min(shares, int((value - total[name]) // smallest))
        elif 0 < value <= total[name] and capacity.request_policy is None:
            shares = 0  # a request that does not say otherwise takes all of it
    return max(0, shares)


def _read(amount: views.RawQuantity) -> Fraction:
    """Return an amount; 0 if it is no quantity, which the API server does not accept."""
    try:
        return quantity.parse(amount)
    except quantity.InvalidQuantityError:
        return Fraction(0)
