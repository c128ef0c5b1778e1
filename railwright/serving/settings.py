"""The settings of both servers."""

import pathlib
from typing import Any, Literal

import msgspec

from railwright.serving import addresses

ServerName = Literal["webhook", "extender"]

_MIB = 1 << 20
WEBHOOK_BODY = 7 * _MIB  # two objects of the API server's 3 MiB limit, and 1 MiB for the review around them
EXTENDER_BODY = 256 * _MIB  # Volcano sends every node with every task; 5,000 nodes make tens of MiB


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The effective options of one server. None means not set."""

    server: ServerName
    listen: addresses.Address
    ops_listen: addresses.Address
    dashboard_listen: addresses.Address | None = None
    volcano_listen: addresses.Address | None = None
    tls_cert: pathlib.Path | None = None
    tls_key: pathlib.Path | None = None
    client_ca: pathlib.Path | None = None
    client_names: frozenset[str] = frozenset()  # empty: any name that the CA has certified
    plain_http: bool = False
    allow_plain_http: bool = False
    kubeconfig: str | None = None
    policy: pathlib.Path | None = None
    snapshot: pathlib.Path | None = None
    max_body: int = WEBHOOK_BODY  # bytes
    assume_seconds: float = 30.0
    drain_seconds: float = 10.0
    leader_elect: bool = False
    lease_seconds: float = 15.0
    stale_seconds: float = 300.0
    unused_template_seconds: float = 300.0
    excluded_namespaces: frozenset[str] = frozenset()  # in addition to those that are always excluded
    otlp_endpoint: str | None = None
    extender_ops: str | None = None  # URL without a path


def describe(settings: Settings) -> dict[str, Any]:
    """Return the settings as the start log shows them. Keys are given by path, so no setting holds a secret."""
    values = {name: getattr(settings, name) for name in settings.__struct_fields__}
    return {name: _format_value(value) for name, value in values.items()}


def _format_value(value: Any) -> Any:
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    return str(value) if isinstance(value, addresses.Address | pathlib.Path) else value
