"""One metric as a row of a table: its type, name, help, labels, buckets and the server that exposes it."""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar, cast, overload

import prometheus_client
from prometheus_client import registry

PREFIX = "railwright_"

Collector = TypeVar("Collector", prometheus_client.Counter, prometheus_client.Gauge, prometheus_client.Histogram)
ServerName = Literal["webhook", "extender"]
_KINDS: Mapping[type, str] = {
    prometheus_client.Counter: "counter",
    prometheus_client.Gauge: "gauge",
    prometheus_client.Histogram: "histogram",
}


class Owner(Protocol):
    """A class with rows as attributes."""

    def collector(self, row: "Row[Any]") -> Any:
        """Return the collector of a row."""


class Row(Generic[Collector]):
    """A metric, implemented as a descriptor so that `metrics.policy_valid` is typed and a metric is one row."""

    def __init__(
        self,
        kind: type[Collector],
        name: str,
        text: str,
        labels: Sequence[str],
        only: ServerName | None,
        **options: Any,
    ) -> None:
        self.kind: type[Collector] = kind
        self.name, self.text, self.labels = name, text, labels
        self.only, self.options = only, options

    @property
    def full_name(self) -> str:
        """Return the name in queries: the client appends _total to the name of a counter."""
        return PREFIX + self.name + ("_total" if self.kind is prometheus_client.Counter else "")

    @property
    def type_name(self) -> str:
        """Return the type as the exposition format names it."""
        return _KINDS[self.kind]

    def build(self, target: registry.CollectorRegistry | None) -> Collector:
        """Return a collector of this row, registered with `into` if that is not None."""
        name = PREFIX + self.name
        return self.kind(name, self.text, self.labels, registry=target, **self.options)

    @overload
    def __get__(self, owner: None, kind: type) -> "Row[Collector]": ...
    @overload
    def __get__(self, owner: Owner, kind: type) -> Collector: ...
    def __get__(self, owner: Owner | None, kind: type) -> "Row[Collector] | Collector":
        return self if owner is None else cast("Collector", owner.collector(self))


def counter(name: str, text: str, *labels: str, only: ServerName | None = None) -> Row[prometheus_client.Counter]:
    """Return the row of a counter."""
    return Row(prometheus_client.Counter, name, text, labels, only)


def gauge(name: str, text: str, *labels: str, only: ServerName | None = None) -> Row[prometheus_client.Gauge]:
    """Return the row of a gauge."""
    return Row(prometheus_client.Gauge, name, text, labels, only)


def histogram(
    name: str, text: str, *labels: str, buckets: Sequence[float], only: ServerName | None = None
) -> Row[prometheus_client.Histogram]:
    """Return the row of a histogram."""
    return Row(prometheus_client.Histogram, name, text, labels, only, buckets=buckets)
