"""Plans the rotation of certificates: returns the next step, given the state of the cluster, a schedule and the time.

A new CA is trusted everywhere before a certificate issued by it is presented, and an old CA is trusted until no
certificate issued by it is presented. Steps depend on the stored state only, so a crash between two steps is
harmless.
"""

import dataclasses
import datetime as dt
import enum
from collections.abc import Callable, Mapping, Sequence

from certs import bundle, issue, schedules, trust


class Action(enum.StrEnum):
    """The change that a step makes. Each can be repeated and interrupted without harm."""

    FOUND = "found"  # create a CA: none is usable, or a certificate in use was issued by an untrusted CA
    PREPARE = "prepare"  # create the next CA, while the active one still signs
    PUBLISH = "publish"  # write the CA bundle to every caBundle and every ca.crt
    MARK = "mark"  # record since when the bundle is everywhere, or since when the new CA has issued every certificate
    MOVE = "move"  # make the next CA the active one
    RENEW = "renew"  # issue certificates that are missing, about to expire, or issued by another CA
    RETIRE = "retire"  # remove CAs that no certificate in use was issued by


@dataclasses.dataclass(frozen=True)
class Keyring:
    """Content of the CA's Secret. `trusted` are PEM certificates, the newest CA first."""

    signer: issue.Pair | None = None
    following: issue.Pair | None = None  # the next CA: published, but not signing yet
    trusted: tuple[bytes, ...] = ()
    published: dt.datetime | None = None  # since when `following` has been in every bundle
    moved: dt.datetime | None = None  # since when `signer` has issued every certificate


@dataclasses.dataclass(frozen=True)
class Stored:
    """Content of a certificate's Secret. `pair` is None if the Secret, the certificate or the key is missing."""

    pair: issue.Pair | None = None
    trusted: bytes = b""


@dataclasses.dataclass(frozen=True)
class Seen:
    """The state of the cluster. `bundles` are the caBundles of the webhooks that call railwright, by any name."""

    keyring: Keyring
    leaves: Mapping[str, Stored]
    bundles: Mapping[str, bytes]

    def trusted(self) -> tuple[bytes, ...]:
        """Return every certificate that anything in the state trusts."""
        pairs = [each.certificate_pem for each in (self.keyring.following, self.keyring.signer) if each is not None]
        written = [*pairs, *(stored.trusted for stored in self.leaves.values()), *self.bundles.values()]
        return tuple(dict.fromkeys([*self.keyring.trusted, *(each for pem in written for each in trust.split(pem))]))


@dataclasses.dataclass(frozen=True)
class Step:
    """A change to make now, and its reason. `names` are the certificates to RENEW."""

    action: Action
    reason: str
    names: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Wait:
    """No change until `until`. `soon` is True if that is a matter of seconds, which a single run waits for."""

    until: dt.datetime
    reason: str
    soon: bool = False


@dataclasses.dataclass(frozen=True)
class _Situation:
    seen: Seen
    wanted: Sequence[bundle.Wanted]
    now: dt.datetime
    schedule: schedules.Schedule
    steady: dt.timedelta
    renewing: bool

    @property
    def keyring(self) -> Keyring:
        return self.seen.keyring

    @property
    def signs(self) -> bool:
        """True if the active CA can sign now."""
        return _is_usable(self.keyring.signer, self.keyring, self.now)

    def live(self) -> list[bytes]:
        """Return the certificates that a server or client may present now."""
        pairs = [self.seen.leaves[leaf.name].pair for leaf in self.wanted if leaf.name in self.seen.leaves]
        return [pair.certificate_pem for pair in pairs if pair is not None and trust.presentable(pair, self.now)]


def plan(  # noqa: PLR0913 - the inputs of a decision, all but two by name
    seen: Seen,
    wanted: Sequence[bundle.Wanted],
    *,
    now: dt.datetime,
    schedule: schedules.Schedule,
    steady: dt.timedelta,
    renew_authority: bool = False,
) -> Step | Wait:
    """Return the next step, or a wait until the next one is due.

    `steady` is how long the certificates and bundles have been unchanged, measured by a monotonic clock: moving the
    wall clock forward must not end a wait that protects handshakes. `renew_authority` starts a rotation before it is
    due.
    """
    situation = _Situation(seen, wanted, now, schedule, steady, renew_authority)
    waits: list[Wait] = []
    for rule in _RULES:
        found = rule(situation)
        if isinstance(found, Step):
            return found
        waits += [found] if found is not None else []
    return min(waits, key=lambda wait: wait.until)


def _plan_new_ca(situation: _Situation) -> Step | None:
    """Create a CA if none can sign, or if the bundle lacks the issuer of a certificate in use."""
    keyring = situation.keyring
    trusted_certificates = situation.seen.trusted()
    issuers = {issuer for leaf in situation.live() if (issuer := trust.anchor(leaf, trusted_certificates)) is not None}
    if issuers - set(keyring.trusted):
        return Step(Action.FOUND, "a certificate in use was issued by a CA that is not in the bundle")
    if keyring.following is not None and not _is_usable(keyring.following, keyring, situation.now):
        return Step(Action.FOUND, "the next CA is not usable")
    if keyring.following is None and not situation.signs:
        return Step(Action.FOUND, "no CA can sign")
    return None


def _plan_next_ca(situation: _Situation) -> Step | Wait | None:
    if situation.keyring.following is not None or situation.keyring.signer is None:
        return None
    authority = bundle.certificate_of(situation.keyring.signer)
    if authority is None:
        return None  # handled by the first rule
    expiry = authority.not_valid_after_utc
    if situation.renewing:
        return Step(Action.PREPARE, "requested by the operator")
    if bundle.left(authority, situation.now) <= bundle.RENEW_BEFORE:
        return Step(Action.PREPARE, f"the CA expires at {expiry:%Y-%m-%d %H:%M}")
    validity = expiry - authority.not_valid_before_utc - issue.BACKDATED
    return Wait(expiry - validity * bundle.RENEW_BEFORE, "the CA is due for replacement")


def _plan_bundle(situation: _Situation) -> Step | None:
    expected_bundle = trust.joined(situation.keyring.trusted)
    outdated = [name for name, stored in situation.seen.bundles.items() if stored != expected_bundle]
    outdated += [
        name
        for name, stored in situation.seen.leaves.items()
        if stored.pair is not None and stored.trusted != expected_bundle
    ]
    return Step(Action.PUBLISH, f"outdated CA bundle in {', '.join(outdated)}") if outdated else None


def _plan_renewal(situation: _Situation) -> Step | Wait | None:
    signer = situation.keyring.signer
    if signer is None or not situation.signs:
        return None
    due_names, next_due = [], []
    for leaf in situation.wanted:
        stored = situation.seen.leaves.get(leaf.name, Stored()).pair
        if stored is None or not bundle.serves(stored, leaf, authority=signer, now=situation.now):
            due_names.append(leaf.name)
        elif (certificate := bundle.certificate_of(stored)) is not None:
            validity = certificate.not_valid_after_utc - certificate.not_valid_before_utc - issue.BACKDATED
            next_due.append(certificate.not_valid_after_utc - validity * bundle.RENEW_BEFORE)
    if due_names:
        return Step(Action.RENEW, "missing, about to expire, or issued by another CA", tuple(due_names))
    return Wait(min(next_due), "the next certificate is due for renewal") if next_due else None


def _plan_switch(situation: _Situation) -> Step | Wait | None:
    keyring, schedule = situation.keyring, situation.schedule
    if keyring.following is None:
        return None
    if keyring.published is None or keyring.published > situation.now:
        return Step(Action.MARK, "the bundle with the next CA is everywhere")
    if len(keyring.trusted) == 1 and not situation.live():
        return Step(Action.MOVE, "no certificate is in use yet")
    certificate = bundle.certificate_of(keyring.signer) if keyring.signer is not None and situation.signs else None
    urgent = certificate is None or bundle.left(certificate, situation.now) < schedules.URGENT
    until = keyring.published + (schedule.settle if urgent else schedule.overlap)
    if situation.now < until:
        return Wait(until, "clients need time to read the next CA", soon=until - situation.now <= schedule.settle)
    # the servers verify clients by ca.crt as well, and it takes as long to reach them as a certificate does
    has_clients = any(leaf.usage is issue.Usage.CLIENT for leaf in situation.wanted)
    needed = max(schedule.settle, schedule.propagation) if has_clients else schedule.settle
    return _wait_until_steady(situation, needed) or Step(Action.MOVE, "every client trusts the next CA")


def _plan_removal(situation: _Situation) -> Step | Wait | None:
    keyring, schedule = situation.keyring, situation.schedule
    if keyring.following is not None or keyring.signer is None or len(keyring.trusted) < 2:
        return None
    if keyring.moved is None or keyring.moved > situation.now:
        return Step(Action.MARK, "the new CA has issued every certificate")
    until = keyring.moved + max(schedule.overlap, schedule.propagation)
    if situation.now < until:
        return Wait(until, "the old CA stays trusted", soon=until - situation.now <= schedule.propagation)
    return _wait_until_steady(situation, schedule.propagation) or Step(
        Action.RETIRE, "no certificate in use was issued by the old CA"
    )


def _wait_until_steady(situation: _Situation, needed: dt.timedelta) -> Wait | None:
    """Wait until the state has been unchanged for `needed`, by the monotonic clock."""
    if situation.steady >= needed:
        return None
    return Wait(
        situation.now + needed - situation.steady,
        "the stored state needs time to reach every server and client",
        soon=True,
    )


def _is_usable(pair: issue.Pair | None, keyring: Keyring, now: dt.datetime) -> bool:
    """True if `pair` can sign and is in the trusted bundle."""
    if pair is None or not bundle.is_authority(pair, now=now):
        return False
    return trust.split(pair.certificate_pem)[0] in keyring.trusted


# In order of precedence: the first rule that returns a step wins. Trust is established before it is needed.
_RULES: tuple[Callable[[_Situation], Step | Wait | None], ...] = (
    _plan_new_ca,
    _plan_next_ca,
    _plan_bundle,
    _plan_renewal,
    _plan_switch,
    _plan_removal,
)
