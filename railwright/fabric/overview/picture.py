"""The overview of one cluster, kept current: what changed is looked at again, the rest stays as it is.

Owns the order of that work and its pace: it is done in slices, so that a server that does it beside its real work is
never held up for long. Fed by the fleet, the ledger and the members; asks no clock.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from railwright.fabric import topology, workload
from railwright.fabric.overview import maps, members, model, order, reasons, rosters, scores
from railwright.fabric.placement import ask, decide, fleet, ledger, rails
from railwright.fabric.policy import model as policies

RANKS = 4096  # of one gang that are shown
_AT_ONCE = 16  # gangs judged in one refresh whose own pods changed
_IN_TURN = 2  # gangs judged besides, since others came and went

Policy = Callable[[], policies.Policy | None]


class Picture:
    """One cluster's overview. One event loop owns it."""

    def __init__(
        self,
        state: fleet.Fleet,
        book: ledger.Ledger,
        known: members.Members,
        policy: Policy,
        pools: ask.Pools,
    ) -> None:
        """`pools`: the resources that networks draw on, by (namespace, name)."""
        self._state, self._book, self._known, self._policy, self._pools = state, book, known, policy, pools
        self._desk = decide.Desk(state, book)
        self._rosters = rosters.Rosters(state, book, known)
        self._rules: tuple[object, ...] = ()
        self._maps: dict[str, maps.Map] = {}
        self._seen: tuple[int, int] = (-1, -1)
        self._judged: dict[workload.GangKey, tuple[int, scores.Judgement]] = {}  # with the generation it was found at
        self._due: dict[workload.GangKey, None] = {}
        self._gangs: dict[workload.GangKey, model.Gang] = {}
        self._admissions: tuple[int, Sequence[model.Admission]] = (-1, ())

    # --- what is read -----------------------------------------------------------------------------------------

    def overview(self, *, source: str = "", problems: Sequence[str] = (), away: str = "") -> model.Overview:
        """All of it, as of the last refresh."""
        return model.Overview(
            site=self.site(source=source, problems=problems, away=away),
            fabrics=[each.shown for each in self._maps.values()],
            leaves={key: each.leaves[key] for each in self._maps.values() for key in each.shown.leaves},
            gangs=[self._gangs[key] for key in sorted(self._gangs, key=order.natural)],
            admissions=self._admissions[1],
        )

    def site(self, *, source: str, problems: Sequence[str], away: str = "") -> model.Site:
        """What it was read from."""
        policy = self._policy()
        return model.Site(
            source=source,
            policy=policy.digest if policy else "",
            problems=tuple(problems),
            fabrics=tuple(self._maps),
            gangs=self._rosters.total,
            away=away,
        )

    def why(self, subject: str, node: str) -> dict[str, Any] | None:
        """A node in words, as it stands now to a gang (by key) or a pod (namespace/name); None where either is unknown.

        Of a gang the member on that node is asked about, else the first that waits, else the first.
        """
        pod = self._subject(workload.GangKey(subject), node)
        question = self._question(pod) if pod is not None else None
        if pod is None or question is None or node not in self._state.nodes:
            return None
        decision = self._desk.decide(question)
        row = decision.row(node)
        return {"pod": pod.key, "here": pod.node == node, **reasons.of_node(decision.wording.verdict(row), row)}

    def _subject(self, subject: workload.GangKey, node: str) -> fleet.FleetPod | None:
        roster = self._rosters.of.get(subject)
        if roster is None:
            return next((pod for pod in self._state.pods.values() if pod.key == subject), None)
        chosen = sorted(roster.members, key=lambda each: (each.node != node, bool(each.node), each.number))
        return self._state.pods.get(chosen[0].uid)

    # --- keeping current --------------------------------------------------------------------------------------

    def refresh(self) -> Iterator[None]:
        """Bring everything up to date; yields where the caller may let others work. Not to be run twice at once."""
        everything = self._governed()
        changed = self._rosters.refresh()
        yield
        touched = self._touched(changed, everything=everything)
        for each in self._maps.values():
            yield from each.refresh(touched, self._rosters.numbers)
        judged: dict[workload.GangKey, None] = {}
        for key in self._to_judge(changed, everything=everything):
            judged[key] = None
            yield
        moved = touched is None or bool(touched)  # a node's leaf may be another
        yield
        self._show(self._rosters.of if moved else (*changed, *judged))
        if self._admissions[0] != self._known.admissions.generation:
            self._admissions = (self._known.admissions.generation, self._known.admissions.newest())

    def _governed(self) -> bool:
        """Take over the policy; True where it or the networks' pools are others than before."""
        policy = self._policy()
        fabrics = {} if policy is None else policy.document.fabrics
        counted = {name: rails.counted(fabric, self._pools) for name, fabric in fabrics.items() if fabric.rails}
        rules = (policy.digest if policy else "", counted)
        if rules == self._rules:
            return False
        self._rules = rules
        own = {name: {rail.resource for rail in each.rails if rail.resource} for name, each in counted.items()}
        self._maps = {
            name: maps.Map(
                name,
                fabric,
                state=self._state,
                book=self._book,
                accelerators=policy.document.accelerators if policy else (),
                others=set().union(*own.values()) - own[name],
            )
            for name, fabric in counted.items()
        }
        return True

    def _touched(self, changed: Collection[workload.GangKey], *, everything: bool) -> Collection[str] | None:
        journals = (self._state.journal, self._book.journal)
        since = [journal.since(position) for journal, position in zip(journals, self._seen, strict=True)]
        self._seen = (journals[0].position, journals[1].position)
        if everything or None in since:
            return None
        found = {name: None for names in since if names is not None for name in names}
        for key in changed:  # a rank may have another number now
            for each in self._rosters.of[key].members if key in self._rosters.of else ():
                if each.node:
                    found[each.node] = None
        return found

    # --- gangs ------------------------------------------------------------------------------------------------

    def _to_judge(self, changed: Collection[workload.GangKey], *, everything: bool) -> Iterator[workload.GangKey]:
        """Judge the gangs that changed, then some others in turn, and tell each; the rest keep what was said."""
        alive = self._rosters.of
        for key in [key for key in self._judged if key not in alive]:
            del self._judged[key]
        self._due = {key: None for key in (*self._due, *(alive if everything else changed)) if key in alive}
        now = self._state.generation + self._book.journal.position
        stale = sorted((at, key) for key, (at, _) in self._judged.items() if at != now and key not in self._due)
        for key in (*[*self._due][:_AT_ONCE], *(key for _, key in stale[:_IN_TURN])):
            self._due.pop(key, None)
            self._judged[key] = (now, self._judgement(alive[key]))
            yield key

    def _show(self, keys: Collection[workload.GangKey]) -> None:
        alive = self._rosters.of
        for key in [key for key in self._gangs if key not in alive]:
            del self._gangs[key]
        for key in keys:
            if key in alive and (shown := self._shown(alive[key])) != self._gangs.get(key):
                self._gangs[key] = shown  # an equal one stays: what is sent goes by identity

    @property
    def settled(self) -> bool:
        """True when every gang was judged on the cluster as it is now."""
        now = self._state.generation + self._book.journal.position
        return not self._due and all(at == now for at, _ in self._judged.values())

    def _judgement(self, roster: rosters.Roster) -> scores.Judgement:
        waiting = [each for each in roster.members if not each.node]
        candidates = [self._state.pods[each.uid] for each in waiting or roster.members if each.uid in self._state.pods]
        pod = max(candidates, key=lambda each: sum(each.requests.get(name, 0) for name in self._devices), default=None)
        question = self._question(pod) if pod is not None else None
        return scores.judge(roster, question, self._desk, self._state)

    @property
    def _devices(self) -> Sequence[str]:
        policy = self._policy()
        return policy.document.accelerators if policy else ()

    def _question(self, pod: fleet.FleetPod) -> ask.Ask | None:
        view = self._known.pod(pod.uid)
        if view is None:
            return None
        return ask.of_pod(view, self._policy(), self._pools, tuple(self._state.nodes), requests=pod.requests)

    def _shown(self, roster: rosters.Roster) -> model.Gang:
        namespace, _, name = roster.key.partition("/")
        fabric = self._fabric(roster)
        where = self._maps.get(fabric)
        told = self._judged.get(roster.key)
        said = told[1] if told else scores.Judgement(state=roster.state)
        return model.Gang(
            key=roster.key,
            name=name,
            namespace=namespace,
            fabric=fabric,
            colour=self._rosters.colours[roster.key],
            state=said.state if said.state == model.UNPLACEABLE and roster.state != model.PLACED else roster.state,
            size=roster.size,
            placed=roster.placed,
            ranks=tuple(_rank(each, where) for each in roster.members[:RANKS]),
            bandwidth=said.bandwidth,
            best=said.best,
            leaves=said.leaves,
            leaves_least=said.least,
            why=said.why,
        )

    def _fabric(self, roster: rosters.Roster) -> str:
        policy = self._policy()
        view = next((pod for each in roster.members if (pod := self._known.pod(each.uid))), None)
        return rails.fabric_of(view, policy.document)[0] if view is not None and policy is not None else ""


def _rank(member: rosters.Member, where: maps.Map | None) -> model.Rank:
    leaf = where.leaf_of(member.node) if where is not None and member.node else topology.NOWHERE
    return model.Rank(
        rank=member.number,
        pod=member.key.partition("/")[2],
        node=member.node,
        leaf=topology.name_of(leaf) if leaf else "",
        announced=member.announced,
    )


def drawn(picture: Picture) -> Picture:
    """The picture brought up to date at once, every gang judged: for a caller with nothing else to do."""
    while True:
        for _ in picture.refresh():
            pass
        if picture.settled:
            return picture
