"""Plans the rotation of certificates: the next step, given the state of the cluster, a schedule and the time, and what
the step writes.

A new CA is trusted everywhere before a certificate issued by it is presented, and an old CA is trusted until no
certificate issued by it is presented. Steps depend on the stored state only, so a crash between two steps is
harmless.
"""

import dataclasses
import datetime as dt
import enum
from collections.abc import Callable, Mapping, Sequence

from certs import inventory, pki, schedules

MUTATING = "MutatingWebhookConfiguration"  # its webhooks admit pods


class Action(enum.StrEnum):
    """The change that a step makes. Each can be repeated and interrupted without harm."""

    BOOTSTRAP = "bootstrap"  # create a CA: none is usable, or a certificate in use was issued by an untrusted CA
    PREPARE = "prepare"  # create the next CA, while the active one still signs
    PUBLISH = "publish"  # write the CA bundle to every caBundle and every ca.crt
    RECORD = "record"  # store when the bundle became complete, or when the new CA had issued every certificate
    ACTIVATE = "activate"  # make the next CA the active one
    RENEW = "renew"  # issue certificates that are missing, about to expire, or issued by another CA
    PRUNE = "prune"  # remove CAs that no certificate in use was issued by


@dataclasses.dataclass(frozen=True)
class Keyring:
    """Content of the CA's Secret. `trusted` are PEM certificates, the newest CA first."""

    active_ca: pki.Pair | None = None
    next_ca: pki.Pair | None = None  # the next CA: published, but not signing yet
    trusted: tuple[bytes, ...] = ()
    published: dt.datetime | None = None  # since when `next_ca` has been in every bundle
    activated: dt.datetime | None = None  # since when `active_ca` has issued every certificate


@dataclasses.dataclass(frozen=True)
class StoredCertificate:
    """Content of a certificate's Secret. `pair` is None if the Secret, the certificate or the key is missing."""

    pair: pki.Pair | None = None
    trusted: bytes = b""


@dataclasses.dataclass(frozen=True)
class Observed:
    """The state of the cluster. `bundles` are the caBundles of the webhooks that call railwright, by any name."""

    keyring: Keyring
    certificates: Mapping[str, StoredCertificate]
    bundles: Mapping[str, bytes]

    def list_trusted(self) -> tuple[bytes, ...]:
        """Return every certificate that anything in the state trusts."""
        cas = [pair.certificate_pem for pair in (self.keyring.next_ca, self.keyring.active_ca) if pair is not None]
        pems = [*cas, *(stored.trusted for stored in self.certificates.values()), *self.bundles.values()]
        parts = [certificate for pem in pems for certificate in pki.split_bundle(pem)]
        return tuple(dict.fromkeys([*self.keyring.trusted, *parts]))


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
class Situation:
    """Contains what a step is planned from.

    `unchanged_for` is how long the certificates and bundles have been unchanged, measured by a monotonic clock: moving
    the wall clock forward must not end a wait that protects handshakes. `renew_ca` starts a rotation before it is due.
    """

    observed: Observed
    specs: Sequence[inventory.CertificateSpec]
    now: dt.datetime
    schedule: schedules.Schedule
    unchanged_for: dt.timedelta
    renew_ca: bool = False

    @property
    def keyring(self) -> Keyring:
        """The content of the CA's Secret."""
        return self.observed.keyring

    @property
    def signs(self) -> bool:
        """True if the active CA can sign now."""
        return _is_usable(self.keyring.active_ca, self.keyring, self.now)

    def list_live(self) -> list[bytes]:
        """Return the certificates that a server or client may present now."""
        pairs = [
            self.observed.certificates[spec.name].pair for spec in self.specs if spec.name in self.observed.certificates
        ]
        return [pair.certificate_pem for pair in pairs if pair is not None and pki.is_presentable(pair, self.now)]


def plan(situation: Situation) -> Step | Wait:
    """Return the next step, or a wait until the next one is due."""
    waits: list[Wait] = []
    for rule in _RULES:
        due = rule(situation)
        if isinstance(due, Step):
            return due
        waits += [due] if due is not None else []
    return min(waits, key=lambda wait: wait.until)


def _plan_new_ca(situation: Situation) -> Step | None:
    """Create a CA if none can sign, or if the bundle lacks the issuer of a certificate in use."""
    keyring = situation.keyring
    trusted_certificates = situation.observed.list_trusted()
    issuers = {
        issuer
        for chain in situation.list_live()
        if (issuer := pki.find_issuer(chain, trusted_certificates)) is not None
    }
    if issuers - set(keyring.trusted):
        return Step(Action.BOOTSTRAP, "a certificate in use was issued by a CA that is not in the bundle")
    if keyring.next_ca is not None and not _is_usable(keyring.next_ca, keyring, situation.now):
        return Step(Action.BOOTSTRAP, "the next CA is not usable")
    if keyring.next_ca is None and not situation.signs:
        return Step(Action.BOOTSTRAP, "no CA can sign")
    return None


def _plan_next_ca(situation: Situation) -> Step | Wait | None:
    if situation.keyring.next_ca is not None or situation.keyring.active_ca is None:
        return None
    ca = pki.load_certificate(situation.keyring.active_ca)
    if ca is None:
        return None  # handled by the first rule
    if situation.renew_ca:
        return Step(Action.PREPARE, "requested by the operator")
    if inventory.is_due(ca, situation.now):
        return Step(Action.PREPARE, f"the CA expires at {ca.not_valid_after_utc:%Y-%m-%d %H:%M}")
    return Wait(inventory.get_renewal_time(ca), "the CA is due for replacement")


def _plan_bundle(situation: Situation) -> Step | None:
    expected_bundle = pki.join_bundle(situation.keyring.trusted)
    outdated = [name for name, stored in situation.observed.bundles.items() if stored != expected_bundle]
    outdated += [
        name
        for name, stored in situation.observed.certificates.items()
        if stored.pair is not None and stored.trusted != expected_bundle
    ]
    return Step(Action.PUBLISH, f"outdated CA bundle in {', '.join(outdated)}") if outdated else None


def _plan_safe_renewal(situation: Situation) -> Step | None:
    """Renew before a bundle is written, which may fail for weeks, where nobody has to trust another CA for it.

    So for a certificate whose successor has the same issuer. One that nobody can verify any more needs only the
    caBundle of the webhooks that admit pods.
    """
    ca, observed = situation.keyring.active_ca, situation.observed
    if ca is None or not situation.signs:
        return None
    bundles = [pem for name, pem in observed.bundles.items() if name.startswith(MUTATING)]
    is_trusted = bool(bundles) and all(pki.split_bundle(ca.certificate_pem)[0] in pki.split_bundle(b) for b in bundles)
    due_names = []
    for spec in situation.specs:
        pair = observed.certificates.get(spec.name, StoredCertificate()).pair
        if pair is None or inventory.satisfies(pair, spec, ca=ca, now=situation.now):
            continue
        has_same_issuer = pki.find_issuer(pair.certificate_pem, [ca.certificate_pem]) is not None
        if has_same_issuer if pki.is_presentable(pair, situation.now) else is_trusted:
            due_names.append(spec.name)
    return Step(Action.RENEW, "about to expire, or no longer valid", tuple(due_names)) if due_names else None


def _plan_renewal(situation: Situation) -> Step | Wait | None:
    ca = situation.keyring.active_ca
    if ca is None or not situation.signs:
        return None
    due_names, next_due, needed = [], [], dt.timedelta(0)
    for spec in situation.specs:
        pair = situation.observed.certificates.get(spec.name, StoredCertificate()).pair
        if pair is None or not inventory.satisfies(pair, spec, ca=ca, now=situation.now):
            due_names.append(spec.name)
            live = pair.certificate_pem if pair is not None and pki.is_presentable(pair, situation.now) else None
            if live is not None and pki.find_issuer(live, [ca.certificate_pem]) is None:
                needed = situation.schedule.settle  # the CA of a restored Secret may be new to the clients
        elif (certificate := pki.load_certificate(pair)) is not None:
            next_due.append(inventory.get_renewal_time(certificate))
    if due_names:
        return _wait_until_steady(situation, needed) or Step(
            Action.RENEW, "missing, about to expire, or issued by another CA", tuple(due_names)
        )
    return Wait(min(next_due), "the next certificate is due for renewal") if next_due else None


def _plan_switch(situation: Situation) -> Step | Wait | None:
    keyring, schedule = situation.keyring, situation.schedule
    if keyring.next_ca is None:
        return None
    if keyring.published is None or keyring.published > situation.now:
        return Step(Action.RECORD, "the bundle with the next CA is everywhere")
    if len(keyring.trusted) == 1 and not situation.list_live():
        return Step(Action.ACTIVATE, "no certificate is in use yet")
    certificate = pki.load_certificate(keyring.active_ca) if keyring.active_ca is not None and situation.signs else None
    urgent = certificate is None or inventory.get_remaining_share(certificate, situation.now) < schedules.URGENT
    until = keyring.published + (schedule.settle if urgent else schedule.overlap)
    if situation.now < until:
        return Wait(until, "clients need time to read the next CA", soon=until - situation.now <= schedule.settle)
    # the servers verify clients by ca.crt as well, and it takes as long to reach them as a certificate does
    has_clients = any(spec.usage is pki.Usage.CLIENT for spec in situation.specs)
    needed = max(schedule.settle, schedule.propagation) if has_clients else schedule.settle
    return _wait_until_steady(situation, needed) or Step(Action.ACTIVATE, "every client trusts the next CA")


def _plan_removal(situation: Situation) -> Step | Wait | None:
    keyring, schedule = situation.keyring, situation.schedule
    if keyring.next_ca is not None or keyring.active_ca is None or len(keyring.trusted) < 2:
        return None
    if keyring.activated is None or keyring.activated > situation.now:
        return Step(Action.RECORD, "the new CA has issued every certificate")
    until = keyring.activated + max(schedule.overlap, schedule.propagation)
    if situation.now < until:
        return Wait(until, "the old CA stays trusted", soon=until - situation.now <= schedule.propagation)
    return _wait_until_steady(situation, schedule.propagation) or Step(
        Action.PRUNE, "no certificate in use was issued by the old CA"
    )


def _wait_until_steady(situation: Situation, needed: dt.timedelta) -> Wait | None:
    """Wait until the state has been unchanged for `needed`, by the monotonic clock."""
    if situation.unchanged_for >= needed:
        return None
    return Wait(
        situation.now + needed - situation.unchanged_for,
        "the stored state needs time to reach every server and client",
        soon=True,
    )


def _is_usable(pair: pki.Pair | None, keyring: Keyring, now: dt.datetime) -> bool:
    """True if `pair` can sign and is in the trusted bundle."""
    if pair is None or not inventory.is_usable_ca(pair, now=now):
        return False
    return pki.split_bundle(pair.certificate_pem)[0] in keyring.trusted


# In order of precedence: the first rule that returns a step wins. Trust is established before it is needed.
_RULES: tuple[Callable[[Situation], Step | Wait | None], ...] = (
    _plan_new_ca,
    _plan_next_ca,
    _plan_safe_renewal,
    _plan_bundle,
    _plan_renewal,
    _plan_switch,
    _plan_removal,
)


@dataclasses.dataclass(frozen=True)
class Changes:
    """The objects to write, in this order. None and absent names leave an object as it is."""

    keyring: Keyring | None = None
    bundle: bytes | None = None  # for every caBundle that calls railwright
    certificates: Mapping[str, StoredCertificate] = dataclasses.field(default_factory=dict)


def build_changes(step: Step, situation: Situation) -> Changes:
    """Return the writes of `step`. Raises ValueError for hosts that are not allowed in a certificate."""
    observed, keyring, now, schedule = situation.observed, situation.keyring, situation.now, situation.schedule
    match step.action:
        case Action.BOOTSTRAP:
            return Changes(_build_keyring(situation))
        case Action.PREPARE:
            new = inventory.issue_ca(now, schedule.ca)
            trusted = (*pki.split_bundle(new.certificate_pem), *keyring.trusted)
            return Changes(dataclasses.replace(keyring, next_ca=new, trusted=trusted, published=None, activated=None))
        case Action.PUBLISH:
            pem = pki.join_bundle(keyring.trusted)
            outdated = {
                name: item
                for name, item in observed.certificates.items()
                if item.pair is not None and item.trusted != pem
            }
            return Changes(None, pem, {name: dataclasses.replace(item, trusted=pem) for name, item in outdated.items()})
        case Action.RECORD if keyring.next_ca is not None:
            return Changes(dataclasses.replace(keyring, published=now))
        case Action.RECORD:
            return Changes(dataclasses.replace(keyring, activated=now))
        case Action.ACTIVATE:
            return Changes(
                dataclasses.replace(keyring, active_ca=keyring.next_ca, next_ca=None, published=None, activated=None)
            )
        case Action.RENEW:
            return Changes(certificates=_issue_certificates(step, situation))
        case Action.PRUNE:
            if keyring.active_ca is None:
                raise ValueError("there is no CA to keep")
            return Changes(
                dataclasses.replace(
                    keyring, trusted=pki.split_bundle(keyring.active_ca.certificate_pem), activated=None
                )
            )


def _build_keyring(situation: Situation) -> Keyring:
    """Return a keyring that trusts every CA that may be in use and switches to the newest CA that can sign.

    If the keyring was lost, its CAs are recovered from the bundles in force.
    """
    observed, now = situation.observed, situation.now
    existing = [pair for pair in (observed.keyring.next_ca, observed.keyring.active_ca) if pair is not None]
    usable = [pair for pair in existing if inventory.is_usable_ca(pair, now=now)]
    target = usable[0] if usable else inventory.issue_ca(now, situation.schedule.ca)
    is_lost = not usable
    bundles = [stored.trusted for stored in observed.certificates.values()] + (
        list(observed.bundles.values()) if is_lost else []
    )
    recovered = [certificate for pem in bundles for certificate in pki.split_bundle(pem)]
    issuers = [
        issuer
        for stored in observed.certificates.values()
        if stored.pair is not None
        and pki.is_presentable(stored.pair, now)
        and (issuer := pki.find_issuer(stored.pair.certificate_pem, observed.list_trusted())) is not None
    ]
    first = pki.split_bundle(target.certificate_pem)
    pairs = [certificate for pair in usable for certificate in pki.split_bundle(pair.certificate_pem)]
    other_cas = pki.filter_cas([*pairs, *observed.keyring.trusted, *recovered, *issuers])
    return Keyring(next_ca=target, trusted=tuple(dict.fromkeys([*first, *other_cas])))


def _issue_certificates(step: Step, situation: Situation) -> Mapping[str, StoredCertificate]:
    keyring, schedule = situation.keyring, situation.schedule
    if keyring.active_ca is None:
        raise ValueError("there is no CA to sign with")
    pem = pki.join_bundle(keyring.trusted)
    certificates: dict[str, StoredCertificate] = {}
    for spec in situation.specs:
        if spec.name in step.names:
            lifetime = schedule.client if spec.usage is pki.Usage.CLIENT else schedule.serving
            pair = spec.issue(keyring.active_ca, now=situation.now, lifetime=lifetime)
            certificates[spec.name] = StoredCertificate(pair, pem)
    return certificates
