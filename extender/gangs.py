"""What becomes of the gangs schedulers ask about: what was possible, why no more, and how it ended.

Owns the judgement "placed as well as possible, worse, or not at all", from the cluster's own state and never from a
single call: schedulers dry-run, and a HyperNode that is too small says nothing of the next. A gang cannot be placed
when its pods have waited for WAITING_SECONDS and the whole cluster, asked anew, has no room for them. Time is an
argument; what is told to whom is `gang_events`'.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec

from extender import state as states
from railwright.fabric import topology, workload
from railwright.fabric.placement import account, ask, decide, fleet, landing, planner, rails, standing, versions

KEPT = 1000  # gangs, and pods without one
WAITING_SECONDS = 10.0  # a scheduler's next session, and the one after, have had their try
REASONS_SECONDS = 1.0  # between two accounts of one gang: each looks at every leaf, and schedulers ask pod by pod
AGAIN_SECONDS = 60.0  # between two looks at a gang that could not be placed
_LOOKED_AT = 50  # gangs of one look: a thousand of them must not hold up the answers
UNPLACEABLE = "unplaceable"
MIXED = "mixed"  # its pods were admitted under different versions of the policy; says nothing of its place

Remembered = Callable[[str, str], standing.Standing | None]
"""(namespace/name of a pod, node) -> how the node stood to it when it was decided on."""


class Outcome(msgspec.Struct, frozen=True):
    """How a gang ended, or that it cannot be placed."""

    word: str  # landing.COMPACT, SPREAD, DEGRADED, UNPLACEABLE, or MIXED
    gang: workload.GangKey
    namespace: str
    pod: str  # the first of the gang that it concerns
    uid: str
    message: str
    bandwidth: float  # modelled; 0 where it is not placed
    landed: landing.Landing | None = None
    attained: float = 0.0  # of the modelled bandwidth that had been possible; 0 where it is not placed
    again: bool = False  # True: told before, and still so


class Kept(msgspec.Struct):
    """One gang, or one pod without."""

    question: ask.Ask  # of one of its pods, without nodes and offers
    since: float
    look_after: float
    plan: planner.Plan = planner.NOTHING
    remaining: int = 0
    reasons: account.Account = account.PLAIN
    reasoned: float = -math.inf  # when
    promise: landing.Promise | None = None
    session: int = 0
    outcome: Outcome | None = None
    mixed: str = ""  # what was told of the versions it was admitted under


class Gangs:
    """The gangs asked about lately. One event loop owns it."""

    def __init__(self, state: states.State, desk: decide.Desk, remembered: Remembered) -> None:
        self._state, self._desk, self._remembered = state, desk, remembered
        self._kept: OrderedDict[tuple[str, str], Kept] = OrderedDict()  # by gang, or by pod
        self._session = 0
        self._next = 0

    # --- what schedulers do ---------------------------------------------------------------------------------

    def decided(self, question: ask.Ask, decision: decide.Decision, now: float) -> None:
        """A pod was decided on."""
        kept = self._of(question, now)
        plan, remaining = decision.plan, decision.gang.remaining
        if self._needs_reasons(kept, plan, remaining, now):
            kept.reasons = decision.reasons() if decision.gang.located else account.PLAIN
            kept.reasoned = now
        kept.plan, kept.remaining = plan, remaining
        if plan.complete and self._is_better(kept, question, plan, remaining):
            mates = [leaf for leaf, count in decision.gang.mates.items() if count]
            kept.promise = landing.Promise(
                leaves=tuple(dict.fromkeys((*mates, *plan.leaves))),
                bandwidth=plan.bandwidth,
                bound=plan.bound,
                exact=plan.exact,
                members=remaining,
            )
            kept.session = self._session

    def refused(self, question: ask.Ask, now: float) -> None:
        """A pod was refused every node it was asked about."""
        self._of(question, now)

    def closed(self) -> None:
        """A scheduler's session has ended: what was possible in it may not be any more."""
        self._session += 1

    def _of(self, question: ask.Ask, now: float) -> Kept:
        key = _key(question.gang, question.key)
        kept = self._kept.get(key)
        if kept is None or _rules(kept.question) != _rules(question):
            kept = self._kept[key] = Kept(question=_slim(question), since=now, look_after=now + WAITING_SECONDS)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        elif kept.outcome is not None and kept.outcome.word != UNPLACEABLE:
            kept.outcome, kept.promise = None, None  # a member was lost, or one more came
            kept.since, kept.look_after = now, now + WAITING_SECONDS
        self._kept.move_to_end(key)
        return kept

    def _needs_reasons(self, kept: Kept, plan: planner.Plan, remaining: int, now: float) -> bool:
        """Whether what is remembered does not tell why this plan is no better."""
        if account.continues(kept.plan, kept.remaining, plan, remaining):
            return False
        return kept.plan.complete != plan.complete or now - kept.reasoned >= REASONS_SECONDS

    def _is_better(self, kept: Kept, question: ask.Ask, plan: planner.Plan, remaining: int) -> bool:
        """Whether a plan tells better what is possible for the whole gang than what is remembered."""
        old = kept.promise
        if old is None or remaining > old.members:
            return True
        if remaining < old.members:
            return False
        if not question.offers or kept.session != self._session:
            return True
        return (plan.bandwidth, -len(plan.leaves)) > (old.bandwidth, -len(old.leaves))

    # --- what explanations read -----------------------------------------------------------------------------

    def of(self, gang: workload.GangKey, pod: str) -> Kept | None:
        """What is known of a gang, or of a pod (namespace/name) without one."""
        return self._kept.get(_key(gang, pod))

    def waiting(self, now: float) -> tuple[int, float]:
        """(gangs asked about whose pods are not all bound, how many seconds the longest of them has waited)."""
        waits = [now - kept.since for kept in self._kept.values() if self._waits(kept)]
        return len(waits), max(waits, default=0.0)

    def _waits(self, kept: Kept) -> bool:
        if not kept.question.gang or (kept.outcome is not None and kept.outcome.word != UNPLACEABLE):
            return False
        return any(not pod.node for pod in self._state.fleet.gang(kept.question.gang).values())

    # --- what the cluster shows -----------------------------------------------------------------------------

    def look(self, now: float) -> Sequence[Outcome]:
        """What has become of some of the gangs since the last look; to be called about once a second."""
        keys = list(self._kept)
        start = self._next if self._next < len(keys) else 0
        some = keys[start : start + _LOOKED_AT]
        self._next = start + len(some)
        found: list[Outcome] = []
        planned = False
        for key in some:
            kept = self._kept[key]
            members = self._state.fleet.gang(kept.question.gang)
            if not kept.question.gang or not members or (kept.outcome and kept.outcome.word != UNPLACEABLE):
                continue
            found += self._mixed(kept, list(members.values()))
            size = self._state.fleet.gang_size(kept.question.gang, seen=len(members))
            if len(members) >= size and all(pod.node for pod in members.values()):
                found += self._landed(kept, list(members.values()))
            elif now >= kept.look_after and not planned:
                planned = True  # one a second: a large gang takes a few milliseconds
                kept.look_after = now + AGAIN_SECONDS
                found += self._stuck(kept, list(members.values()))
        return found

    def _mixed(self, kept: Kept, members: Sequence[fleet.FleetPod]) -> Sequence[Outcome]:
        """Whether its pods were admitted under different versions of the policy; told once for each mixture."""
        told = versions.sentence(versions.of(members), kept.question.policy)
        news, kept.mixed = told and told != kept.mixed, told
        return (_of_first(MIXED, kept.question.gang, members, told),) if news else ()

    def _landed(self, kept: Kept, members: Sequence[fleet.FleetPod]) -> Sequence[Outcome]:
        if kept.promise is None or len(members) < 2:
            return ()
        current = self._desk.towards(kept.question)
        devices = {*kept.question.accelerators, *(need.resource for need in kept.question.needs)}
        workers = [pod for pod in members if not devices.isdisjoint(pod.requests)] or members
        places = [
            landing.Place(
                pod=pod.key.partition("/")[2],
                node=pod.node,
                leaf=current.leaves.get(pod.node, topology.NOWHERE),
                stands=self._remembered(pod.key, pod.node),
            )
            for pod in sorted(workers, key=lambda pod: pod.rank)
        ]
        ratios = kept.question.fabric.placement.oversubscription
        landed = landing.of(places, kept.promise, current.sizes, ratios, current.profile.links)
        first = min(members, key=lambda pod: pod.rank)
        kept.outcome = Outcome(
            word=landing.outcome(landed, kept.promise),
            gang=kept.question.gang,
            namespace=kept.question.namespace,
            pod=first.key.partition("/")[2],
            uid=first.uid,
            message="; ".join((landing.sentence(landed, kept.promise), *kept.reasons.why[:1])),
            bandwidth=landed.bandwidth,
            landed=landed,
            attained=landed.bandwidth / kept.promise.bandwidth if kept.promise.bandwidth > 0 else 1.0,
        )
        return (kept.outcome,)

    def _stuck(self, kept: Kept, members: Sequence[fleet.FleetPod]) -> Sequence[Outcome]:
        """Whether the whole cluster has no room for the members that wait."""
        waiting = [pod for pod in members if not pod.node and self._state.ledger.entry(pod.uid) is None]
        if not waiting:
            return ()
        first = min(waiting, key=lambda pod: pod.rank)
        question = self._asking(kept.question, first)
        decision = self._desk.decide(question)
        if decision.plan.complete or not decision.gang.located:
            kept.outcome = None
            return ()
        kept.plan, kept.remaining, kept.reasons = decision.plan, decision.gang.remaining, decision.reasons()
        kept.outcome = Outcome(
            word=UNPLACEABLE,
            gang=question.gang,
            namespace=question.namespace,
            pod=question.name,
            uid=question.uid,
            message="; ".join(kept.reasons.why),
            bandwidth=0.0,
            again=kept.outcome is not None,
        )
        return (kept.outcome,)

    def _asking(self, last: ask.Ask, pod: fleet.FleetPod) -> ask.Ask:
        """The question of a waiting member, over all nodes there are."""
        namespace, _, name = pod.key.partition("/")
        needs = last.needs
        if pod.requests != last.requests:
            needs = rails.requested(pod.requests, last.fabric.rails) or needs
        return msgspec.structs.replace(
            last,
            uid=pod.uid,
            namespace=namespace,
            name=name,
            rank=pod.rank,
            requests=last.requests if pod.requests == last.requests else pod.requests,
            needs=needs,
            nodes=tuple(self._state.fleet.nodes),
        )


def _of_first(word: str, gang: workload.GangKey, members: Sequence[fleet.FleetPod], message: str) -> Outcome:
    """An outcome that concerns the first pod of a gang."""
    first = min(members, key=lambda pod: pod.rank)
    namespace, _, name = first.key.partition("/")
    return Outcome(word=word, gang=gang, namespace=namespace, pod=name, uid=first.uid, message=message, bandwidth=0.0)


def _rules(question: ask.Ask) -> tuple[object, ...]:
    """What else a question stands on: the policy, and the networks' pools, which come and go without it."""
    return question.policy, question.fabric.rails


def _key(gang: workload.GangKey, pod: str) -> tuple[str, str]:
    """A pod on its own may have the name of a PodGroup beside it."""
    return (gang, "") if gang else ("", pod)


def _slim(question: ask.Ask) -> ask.Ask:
    """The question without what may be megabytes: nodes, offers, and of the pod all that places nothing."""
    return msgspec.structs.replace(question, spec=ask.slim(question.spec), nodes=(), offers={})
