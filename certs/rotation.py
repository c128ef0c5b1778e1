"""Rotation: from what Secrets and webhook configurations hold, the schedules and the time, to the one next thing to do.

Owns the order in which an authority and its leaves are replaced: a new authority is trusted everywhere before anything
it signed is presented, and an old one is trusted until nothing it signed is presented any more. Everything is judged
from what is stored, so a crash between two steps costs nothing. Knows no API, no key and no clock.
"""

import dataclasses
import datetime as dt
import enum
from collections.abc import Callable, Mapping, Sequence

from certs import bundle, issue, trust

URGENT = 1 / 6  # of an authority's life: with less left than this, the next one is not kept waiting for `overlap`


class Action(enum.StrEnum):
    """What a step changes. Each is harmless to repeat and to interrupt."""

    FOUND = "found"  # an authority to move to: there is none, or leaves in use hang on one that is not trusted
    PREPARE = "prepare"  # the next authority, beside the one that signs
    PUBLISH = "publish"  # the bundle to every caBundle and every ca.crt
    MARK = "mark"  # remember since when the bundle has been everywhere, or the leaves have been the new authority's
    MOVE = "move"  # let the next authority sign
    RENEW = "renew"  # leaves that are missing, ending, or of another authority
    RETIRE = "retire"  # authorities that nothing hangs on


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How long things live and how long is waited between steps. Raises ValueError where that cannot work out."""

    authority: dt.timedelta = dt.timedelta(days=1825)
    leaf: dt.timedelta = dt.timedelta(days=30)
    caller: dt.timedelta = dt.timedelta(days=365)
    overlap: dt.timedelta = dt.timedelta(days=30)  # for copies of the bundle that are read once, or kept by hand
    settle: dt.timedelta = dt.timedelta(seconds=10)  # every API server watches the configurations
    propagation: dt.timedelta = dt.timedelta(seconds=180)  # kubelets look at Secrets each 60 to 120 s, servers each 5 s

    def __post_init__(self) -> None:
        if self.authority * URGENT < self.overlap:
            overlap, life = _words(self.overlap), _words(self.authority)
            raise ValueError(
                f"an overlap of {overlap} does not fit a sixth of the authority's {life}; "
                "make the overlap shorter or the authority's life longer"
            )


@dataclasses.dataclass(frozen=True)
class Keyring:
    """What the authority's Secret holds. `trusted` are PEM certificates, the newest authority first."""

    signer: issue.Pair | None = None
    following: issue.Pair | None = None  # published, and not signing yet
    trusted: tuple[bytes, ...] = ()
    published: dt.datetime | None = None  # since when `following` has been in every bundle
    moved: dt.datetime | None = None  # since when every leaf has been the signer's


@dataclasses.dataclass(frozen=True)
class Stored:
    """What a leaf's Secret holds; `pair` is None where there is none or its halves are missing."""

    pair: issue.Pair | None = None
    trusted: bytes = b""


@dataclasses.dataclass(frozen=True)
class Seen:
    """One look at the cluster. `bundles` are the caBundles of the webhooks that call us, by any name."""

    keyring: Keyring
    leaves: Mapping[str, Stored]
    bundles: Mapping[str, bytes]

    def trusted(self) -> tuple[bytes, ...]:
        """Every certificate that anything stored calls trusted."""
        pairs = [each.certificate_pem for each in (self.keyring.following, self.keyring.signer) if each is not None]
        written = [*pairs, *(held.trusted for held in self.leaves.values()), *self.bundles.values()]
        return tuple(dict.fromkeys([*self.keyring.trusted, *(each for pem in written for each in trust.split(pem))]))


@dataclasses.dataclass(frozen=True)
class Step:
    """One thing to do now, and why. `names` are the leaves that RENEW is about."""

    action: Action
    reason: str
    names: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Wait:
    """Nothing to do before `until`. `soon` where that is a matter of seconds that a single run sits out."""

    until: dt.datetime
    reason: str
    soon: bool = False


@dataclasses.dataclass(frozen=True)
class _Situation:
    seen: Seen
    wanted: Sequence[bundle.Wanted]
    now: dt.datetime
    schedule: Schedule
    steady: dt.timedelta
    renewing: bool

    @property
    def keyring(self) -> Keyring:
        return self.seen.keyring

    @property
    def signs(self) -> bool:
        """True where the signer can sign now."""
        return _usable(self.keyring.signer, self.keyring, self.now)

    def live(self) -> list[bytes]:
        """Leaves that a server or caller may present now."""
        pairs = [self.seen.leaves[leaf.name].pair for leaf in self.wanted if leaf.name in self.seen.leaves]
        return [pair.certificate_pem for pair in pairs if pair is not None and trust.presentable(pair, self.now)]


def plan(  # noqa: PLR0913 - what a decision depends on, all but two by name
    seen: Seen,
    wanted: Sequence[bundle.Wanted],
    *,
    now: dt.datetime,
    schedule: Schedule,
    steady: dt.timedelta,
    renew_authority: bool = False,
) -> Step | Wait:
    """Return the next step, or until when there is none.

    `steady` is how long the caller has seen leaves and bundles unchanged, by a clock that does not jump: a wall clock
    set forward ends no wait that protects a handshake. `renew_authority` begins a rotation that is not due.
    """
    situation = _Situation(seen, wanted, now, schedule, steady, renew_authority)
    waits: list[Wait] = []
    for rule in _RULES:
        found = rule(situation)
        if isinstance(found, Step):
            return found
        waits += [found] if found is not None else []
    return min(waits, key=lambda wait: wait.until)


def _found(at: _Situation) -> Step | None:
    """Every live leaf has an anchor in the bundle, and somebody can sign or is about to."""
    keyring = at.keyring
    known = at.seen.trusted()
    anchors = {anchor for leaf in at.live() if (anchor := trust.anchor(leaf, known)) is not None}
    if anchors - set(keyring.trusted):
        return Step(Action.FOUND, "a certificate in use hangs on an authority that the bundle does not hold")
    if keyring.following is not None and not _usable(keyring.following, keyring, at.now):
        return Step(Action.FOUND, "the next authority cannot be used")
    if keyring.following is None and not at.signs:
        return Step(Action.FOUND, "there is no authority that can sign")
    return None


def _prepare(at: _Situation) -> Step | Wait | None:
    if at.keyring.following is not None or at.keyring.signer is None:
        return None
    authority = bundle.certificate_of(at.keyring.signer)
    if authority is None:
        return None  # _found has seen it
    ends = authority.not_valid_after_utc
    if at.renewing:
        return Step(Action.PREPARE, "asked for")
    if bundle.left(authority, at.now) <= bundle.RENEW_BEFORE:
        return Step(Action.PREPARE, f"the authority ends at {ends:%Y-%m-%d %H:%M}")
    life = ends - authority.not_valid_before_utc - issue.BACKDATED
    return Wait(ends - life * bundle.RENEW_BEFORE, "the authority is to be replaced then")


def _publish(at: _Situation) -> Step | None:
    wanted = trust.joined(at.keyring.trusted)
    behind = [name for name, held in at.seen.bundles.items() if held != wanted]
    behind += [name for name, held in at.seen.leaves.items() if held.pair is not None and held.trusted != wanted]
    return Step(Action.PUBLISH, f"not the bundle: {', '.join(behind)}") if behind else None


def _renew(at: _Situation) -> Step | Wait | None:
    signer = at.keyring.signer
    if signer is None or not at.signs:
        return None
    due, next_due = [], []
    for leaf in at.wanted:
        held = at.seen.leaves.get(leaf.name, Stored()).pair
        if held is None or not bundle.serves(held, leaf, authority=signer, now=at.now):
            due.append(leaf.name)
        elif (certificate := bundle.certificate_of(held)) is not None:
            life = certificate.not_valid_after_utc - certificate.not_valid_before_utc - issue.BACKDATED
            next_due.append(certificate.not_valid_after_utc - life * bundle.RENEW_BEFORE)
    if due:
        return Step(Action.RENEW, "missing, ending, or of another authority", tuple(due))
    return Wait(min(next_due), "the next leaf is to be renewed then") if next_due else None


def _move(at: _Situation) -> Step | Wait | None:
    keyring, schedule = at.keyring, at.schedule
    if keyring.following is None:
        return None
    if keyring.published is None or keyring.published > at.now:
        return Step(Action.MARK, "the bundle with the next authority is everywhere")
    if len(keyring.trusted) == 1 and not at.live():
        return Step(Action.MOVE, "nothing is served yet that could break")
    certificate = bundle.certificate_of(keyring.signer) if keyring.signer is not None and at.signs else None
    urgent = certificate is None or bundle.left(certificate, at.now) < URGENT
    until = keyring.published + (schedule.settle if urgent else schedule.overlap)
    if at.now < until:
        return Wait(until, "callers learn of the next authority", soon=until - at.now <= schedule.settle)
    # the servers' ca.crt is also what they verify callers by, and takes as long to reach them as a leaf does
    callers = any(leaf.usage is issue.Usage.CLIENT for leaf in at.wanted)
    needed = max(schedule.settle, schedule.propagation) if callers else schedule.settle
    return _steady(at, needed) or Step(Action.MOVE, "every caller knows the next authority")


def _retire(at: _Situation) -> Step | Wait | None:
    keyring, schedule = at.keyring, at.schedule
    if keyring.following is not None or keyring.signer is None or len(keyring.trusted) < 2:
        return None
    if keyring.moved is None or keyring.moved > at.now:
        return Step(Action.MARK, "every leaf is the new authority's")
    until = keyring.moved + max(schedule.overlap, schedule.propagation)
    if at.now < until:
        return Wait(until, "the old authority is trusted on", soon=until - at.now <= schedule.propagation)
    return _steady(at, schedule.propagation) or Step(Action.RETIRE, "nothing hangs on the old authority any more")


def _steady(at: _Situation, needed: dt.timedelta) -> Wait | None:
    """A wait by the caller's own clock, however the wall clock has been set."""
    if at.steady >= needed:
        return None
    return Wait(at.now + needed - at.steady, "what is stored has to have reached everyone", soon=True)


def _usable(pair: issue.Pair | None, keyring: Keyring, now: dt.datetime) -> bool:
    """True where a pair can sign and what it signs is trusted."""
    if pair is None or not bundle.is_authority(pair, now=now):
        return False
    return trust.split(pair.certificate_pem)[0] in keyring.trusted


def _words(span: dt.timedelta) -> str:
    return f"{span.days} d" if span.days else f"{span.total_seconds():g} s"


# In this order: the first step found is done. Trust comes before what needs it.
_RULES: tuple[Callable[[_Situation], Step | Wait | None], ...] = (_found, _prepare, _publish, _renew, _move, _retire)
