"""The words of the derivation: a case, a row of a transport's table, a variable with its reason.

Owns no values: those are rows in `transports/`, and the common block is in `common`.
"""

from collections.abc import Callable

import msgspec

from railwright.fabric.policy import model


class Variable(msgspec.Struct, frozen=True):
    """A variable with its value, why it has it, and where the rule comes from."""

    name: str
    value: str
    reason: str
    source: str


class Case(msgspec.Struct, frozen=True):
    """All that the environment of a rank follows from.

    `devices` are the RDMA devices of the rails; None = not named, or for the node to decide.
    """

    fabric: model.Fabric
    rails: tuple[model.Rail, ...]
    devices: tuple[str, ...] | None
    primary_interface: str
    host_network: bool

    @property
    def nccl(self) -> model.Nccl:
        """The fabric's facts for NCCL."""
        return self.fabric.nccl


class Row(msgspec.Struct, frozen=True):
    """A variable of a table: `value` gives None where the case does not call for it."""

    name: str
    value: Callable[[Case], str | None]
    reason: str
    source: str
