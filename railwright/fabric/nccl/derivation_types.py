"""Types of the derivation: its input (Case), a row of a table, and a variable with its reason.

The rows are in `common`, `libraries` and `transports/`.
"""

from collections.abc import Callable

import msgspec

from railwright.fabric.policy import model
from railwright.fabric.reasons import codes, reason


class Variable(msgspec.Struct, frozen=True):
    """A variable with its reason."""

    name: str
    value: str
    reason: reason.Reason


class Case(msgspec.Struct, frozen=True):
    """Input of the derivation for a rank.

    `devices` are the names of the rails' RDMA devices. It is None if the policy does not name them or they differ
    between nodes.
    """

    fabric: model.Fabric
    rails: tuple[model.Rail, ...]
    devices: tuple[str, ...] | None
    primary_interface: str
    host_network: bool

    @property
    def nccl(self) -> model.Nccl:
        """The `nccl` section of the fabric."""
        return self.fabric.nccl


class Row(msgspec.Struct, frozen=True):
    """A row of a table. `value` returns the variable's value, or None to leave the variable out.

    The code has the reason and the source of the rule.
    """

    name: str
    value: Callable[[Case], str | None]
    code: codes.VariableCode
