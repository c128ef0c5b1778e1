"""Shares one object among equal amounts: nodes of one type, and pods of one gang, have the same."""

from railwright.fabric import resources

_MAX_AMOUNTS = 4096  # distinct amounts of nodes and pods; the memory of nodes of one type may differ by bytes


class SharedAmounts:
    """Amounts in a bounded table. On overflow the table is cleared; existing references stay valid."""

    def __init__(self) -> None:
        self._table: dict[resources.FrozenAmounts, resources.FrozenAmounts] = {}

    def share(self, amounts: resources.Amounts) -> resources.FrozenAmounts:
        """Return the first object that equals `amounts`."""
        if len(self._table) >= _MAX_AMOUNTS:
            self._table.clear()
        frozen = resources.freeze(amounts)
        return self._table.setdefault(frozen, frozen)
