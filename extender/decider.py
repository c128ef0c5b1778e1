"""Decides the requests of both schedulers, independent of their protocols.

The adapters (`kube_scheduler`, `volcano`) decode a scheduling request, call the decider, and encode the result. The
decider calls the placement engine, counts refusals, and stores the memory of gangs. Never awaits, and takes the clock
as an argument.
"""

from collections import Counter
from collections.abc import Callable, Mapping

from extender import scored_pods
from extender import state as states
from railwright.fabric.placement import decisions, engine, scheduling_request
from railwright.fabric.placement.gangs import gang_memory
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason

CountRejected = Callable[[str, int], None]
"""Called with (reason code, number of refused nodes)."""


class Decider:
    """Decides by this process's state and the policy in force."""

    def __init__(
        self,
        state: states.State,
        policy: Callable[[], model.Policy | None],
        *,
        clock: Callable[[], float],
        count_rejected: CountRejected,
    ) -> None:
        self.state = state
        self.policy = policy
        self.clock = clock
        self.count_rejected = count_rejected
        self.engine = engine.PlacementEngine(state.cluster)
        self.scored = scored_pods.ScoredPods(state.cluster)
        self.memory = gang_memory.EMPTY

    def warm(self) -> None:
        """Update the states of changed nodes in advance, to make the next request faster."""
        if (policy := self.policy()) is not None:
            self.engine.warm(policy)

    def find_refusals(self, request: scheduling_request.SchedulingRequest) -> Mapping[str, reason.Reason]:
        """Return the refused candidate nodes, each with the reason."""
        refusals = self.engine.find_refusals(request)
        for code, nodes in Counter(refusal.code for refusal in refusals.values()).items():
            self.count_rejected(code, nodes)
        return refusals

    def score(self, request: scheduling_request.SchedulingRequest) -> decisions.Decision:
        """Score the candidate nodes."""
        decision = self.engine.score(request, self.memory)
        self.memory = decision.memory
        return decision
