"""The interface between `verification.jobs`, which knows the test, and frameworks, which know how a job is written."""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

Tree = dict[str, Any]


class Parts(Protocol):
    """The parts of a job that runs one rank on each GPU of `nodes` whole nodes."""

    name: str
    nodes: int
    gpus: int  # of a node
    port: int  # of the rendezvous of ranks

    def build_object(self, api_version: str, kind: str, spec: Tree) -> Tree:
        """Return an object with the job's name and namespace."""

    def build_template(self, container: Tree, **pod_spec: Any) -> Tree:
        """Return a pod template that opts in, with one container."""

    def build_launcher(self) -> Tree:
        """Return the container that starts the ranks by mpirun."""

    def build_ssh_worker(self) -> Tree:
        """Return the container in which mpirun starts the ranks of a node."""

    def build_torch_rank(self, name: str, node_rank: str, master: str) -> Tree:
        """Return the container that runs the ranks of a node by torchrun. `name` is the container's."""


class VerificationJob(msgspec.Struct, frozen=True):
    """A way to run the job of `railwright verify manifest`.

    `option` is the value of --kind. `selector` selects the pods with logs that matter; `{name}` is the job's name.
    """

    option: str
    selector: str
    build: Callable[[Parts], list[Tree]]  # the objects to create, in order
