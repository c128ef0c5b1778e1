"""One metric as a row of a table: its kind, name, help, labels, buckets and the server that shows it.

Owns how a row becomes a collector and how several workers' gauges become one. Knows no metric.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar, cast, overload

import prometheus_client
from prometheus_client import registry

PREFIX = "railwright_"

Collector = TypeVar("Collector", prometheus_client.Counter, prometheus_client.Gauge, prometheus_client.Histogram)
ServerName = Literal["webhook", "extender"]
# How several workers' gauges become one, in prometheus_client's words; counters and histograms are always summed.
Merge = Literal["livemax", "livemin", "livesum"]
_KINDS: Mapping[type, str] = {
    prometheus_client.Counter: "counter",
    prometheus_client.Gauge: "gauge",
    prometheus_client.Histogram: "histogram",
}


class Owner(Protocol):
    """What rows are attributes of."""

    def collector(self, row: "Row[Any]") -> Any:
        """What counts for a row."""


class Row(Generic[Collector]):
    """A metric: a descriptor, so that `metrics.policy_valid` is typed and a metric is one row."""

    def __init__(
        self, kind: type[Collector], name: str, text: str, labels: Sequence[str], only: ServerName | None, **more: Any
    ) -> None:
        self.kind: type[Collector] = kind
        self.name, self.text, self.labels = name, text, labels
        self.only, self.more = only, more

    @property
    def shown(self) -> str:
        """The name as people query it: the client appends _total to a counter's."""
        return PREFIX + self.name + ("_total" if self.kind is prometheus_client.Counter else "")

    @property
    def told(self) -> str:
        """The type as the exposition says it."""
        return _KINDS[self.kind]

    def build(self, into: registry.CollectorRegistry | None) -> Collector:
        """A collector of this row, shown by a registry or by none."""
        name = PREFIX + self.name
        return self.kind(name, self.text, self.labels, registry=into, **self.more)

    @overload
    def __get__(self, owner: None, kind: type) -> "Row[Collector]": ...
    @overload
    def __get__(self, owner: Owner, kind: type) -> Collector: ...
    def __get__(self, owner: Owner | None, kind: type) -> "Row[Collector] | Collector":
        return self if owner is None else cast("Collector", owner.collector(self))


def counter(name: str, text: str, *labels: str, only: ServerName | None = None) -> Row[prometheus_client.Counter]:
    """A row that only grows."""
    return Row(prometheus_client.Counter, name, text, labels, only)


def gauge(
    name: str, text: str, *labels: str, only: ServerName | None = None, merge: Merge = "livemax"
) -> Row[prometheus_client.Gauge]:
    """A row that is set."""
    return Row(prometheus_client.Gauge, name, text, labels, only, multiprocess_mode=merge)


def histogram(
    name: str, text: str, *labels: str, buckets: Sequence[float], only: ServerName | None = None
) -> Row[prometheus_client.Histogram]:
    """A row that counts by size."""
    return Row(prometheus_client.Histogram, name, text, labels, only, buckets=buckets)
