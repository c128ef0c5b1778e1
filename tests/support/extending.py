"""The extender's decider with the adapters of both schedulers, as tests call them without a server."""

from extender import decider, kube_scheduler, volcano
from extender import state as states


class Extender:
    """A decider, and the handlers of kube-scheduler and Volcano on it."""

    def __init__(self, known: states.State, policy, *, observe=lambda *_: None, **options) -> None:
        self.decider = decider.Decider(known, policy, observe=observe, **options)
        self.kube = kube_scheduler.KubeScheduler(self.decider)
        self.volcano = volcano.Volcano(self.decider)

    def find(self, verb: str):
        """Return the handler of a verb; those of Volcano begin with volcano_."""
        is_volcano = verb.startswith("volcano_")
        return getattr(self.volcano if is_volcano else self.kube, verb.removeprefix("volcano_"))
