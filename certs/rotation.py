"""Plans the rotation of certificates: the next step and its writes, from the state of the cluster, a schedule and the
time.

A new CA is trusted everywhere before a certificate issued by it is presented, and an old CA is trusted until no
certificate issued by it is presented. Steps depend on the stored state only, so a crash between two steps is
harmless.
"""

import dataclasses
import datetime as dt
import enum
from collections.abc import Callable, Mapping, Sequence

from cryptography import x509

from certs import inventory, pki, schedules

_NAME_OF_CA = "railwright"  # of all CAs; the key identifier distinguishes them
MUTATING = "MutatingWebhookConfiguration"  # its webhooks admit pods


class Action(enum.StrEnum):
    """The change that a step makes. Each can be repeated and interrupted without harm."""

    BOOTSTRAP = "bootstrap"  # create a CA: none is usable, or a certificate in use was issued by an untrusted CA
    PREPARE = "prepare"  # create the next CA, while the active one still signs
    PUBLISH = "publish"  # write the CA bundle to every caBundle and every ca.crt
    ACTIVATE = "activate"  # make the next CA the active one
    RENEW = "renew"  # issue certificates that are missing, about to expire, or issued by another CA
    PRUNE = "prune"  # remove CAs that no certificate in use was issued by


@dataclasses.dataclass(frozen=True)
class Keyring:
    """Content of the CA's Secret. `trusted` are PEM certificates, the newest CA first."""

    active_ca: pki.Pair | None = None
    next_ca: pki.Pair | None = None  # the next CA: published, but not signing yet
    trusted: tuple[bytes, ...] = ()

    @property
    def bundle(self) -> bytes:
        """Return the CA bundle in force: the value of every caBundle and ca.crt."""
        return b"".join(self.trusted)


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
        """Return every CA certificate in the state: those of the keyring and of all bundles."""
        cas = [pair.certificate_pem for pair in (self.keyring.next_ca, self.keyring.active_ca) if pair is not None]
        pems = [*cas, *(stored.trusted for stored in self.certificates.values()), *self.bundles.values()]
        parts = [certificate for pem in pems for certificate in pki.split_bundle(pem)]
        return tuple(dict.fromkeys([*self.keyring.trusted, *parts]))


@dataclasses.dataclass(frozen=True)
class Step:
    """A change to make now, and its reason. `names` are the certificates to RENEW.

    The other fields are the objects to write, in this order. None and absent names mean no change. They are not
    compared, so that a repeated step equals the earlier one.
    """

    action: Action
    reason: str
    names: tuple[str, ...] = ()
    keyring: Keyring | None = dataclasses.field(default=None, compare=False)
    bundle: bytes | None = dataclasses.field(default=None, compare=False)  # for each caBundle that calls railwright
    certificates: Mapping[str, StoredCertificate] = dataclasses.field(default_factory=dict, compare=False)


@dataclasses.dataclass(frozen=True)
class Wait:
    """No change is due before `until`. `soon`: that is a few minutes away, so a run without --watch waits for it."""

    until: dt.datetime
    reason: str
    soon: bool = False


@dataclasses.dataclass(frozen=True)
class Situation:
    """The input from which a step is planned.

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
    def signer(self) -> x509.Certificate | None:
        """The certificate of the active CA, None if it cannot sign now."""
        active = self.keyring.active_ca
        return pki.load_certificate(active) if active and _is_usable(active, self.keyring, self.now) else None

    def list_live(self) -> list[bytes]:
        """Return the certificates that a server or client may present now."""
        pairs = [
            self.observed.certificates[spec.name].pair for spec in self.specs if spec.name in self.observed.certificates
        ]
        return [pair.certificate_pem for pair in pairs if pair is not None and pki.is_presentable(pair, self.now)]

    def list_issuers(self) -> list[bytes]:
        """Return the known CAs that issued the certificates that may be presented now."""
        known = self.observed.list_trusted()
        return [issuer for chain in self.list_live() if (issuer := pki.find_issuer(chain, known)) is not None]


def plan(situation: Situation) -> Step | Wait:
    """Return the next step, or a wait until the next one is due.

    Raises ValueError for hosts that are not allowed in a certificate.
    """
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
    if not set(situation.list_issuers()) <= set(keyring.trusted):
        reason = "a certificate in use was issued by a CA that is not in the bundle"
    elif keyring.next_ca is not None and not _is_usable(keyring.next_ca, keyring, situation.now):
        reason = "the next CA is not usable"
    elif keyring.next_ca is None and situation.signer is None:
        reason = "no CA can sign"
    else:
        return None
    return Step(Action.BOOTSTRAP, reason, keyring=_build_keyring(situation))


def _plan_next_ca(situation: Situation) -> Step | Wait | None:
    keyring, now, ca = situation.keyring, situation.now, situation.signer
    if keyring.next_ca is not None or ca is None:
        return None
    if not situation.renew_ca and not inventory.is_due(ca, now):
        return Wait(inventory.get_renewal_time(ca), "the CA is due for replacement")
    expiry = f"the CA expires at {ca.not_valid_after_utc:%Y-%m-%d %H:%M}"
    new = pki.issue_ca(_NAME_OF_CA, now=now, lifetime=schedules.CA_VALIDITY)
    trusted = (*pki.split_bundle(new.certificate_pem), *keyring.trusted)
    return Step(
        Action.PREPARE,
        "requested by the operator" if situation.renew_ca else expiry,
        keyring=dataclasses.replace(keyring, next_ca=new, trusted=trusted),
    )


def _list_outdated(situation: Situation) -> list[str]:
    """Return the names of the Secrets and webhook configurations whose bundle differs from the keyring's."""
    expected, observed = situation.keyring.bundle, situation.observed
    stored = {name: item.trusted for name, item in observed.certificates.items() if item.pair is not None}
    return [name for name, pem in {**observed.bundles, **stored}.items() if pem != expected]


def _plan_renewal(situation: Situation) -> Step | Wait | None:
    """Renew certificates that are missing, about to expire, or issued by another CA.

    If the issuer stays the same, no client needs a new bundle, so renewal precedes the bundles, whose writing may fail
    for weeks. An unverifiable certificate only waits for the caBundle of the webhooks that admit pods. A certificate of
    another CA that is still presented stays until every bundle has been in force for a while.
    """
    ca, observed, now = situation.keyring.active_ca, situation.observed, situation.now
    if ca is None or situation.signer is None:
        return None
    needed = [pem for name, pem in observed.bundles.items() if name.startswith(MUTATING)]
    is_trusted = all(pki.split_bundle(ca.certificate_pem)[0] in pki.split_bundle(pem) for pem in needed)
    wait = _wait_until_steady(situation)
    due: dict[str, StoredCertificate] = {}
    waits: list[Wait] = []
    for spec in situation.specs:
        pair = observed.certificates.get(spec.name, StoredCertificate()).pair
        certificate = None if pair is None else pki.load_certificate(pair)
        if pair is not None and certificate and inventory.satisfies(pair, spec, ca=ca, now=now):
            waits.append(Wait(inventory.get_renewal_time(certificate), "the next certificate is due for renewal"))
            continue
        if pair is None or not pki.is_presentable(pair, now):
            may_replace = is_trusted
        elif pki.find_issuer(pair.certificate_pem, [ca.certificate_pem]) is not None:
            may_replace = True
        elif _list_outdated(situation):
            may_replace = False
        else:
            may_replace = wait is None
            waits += [wait] if wait else []
        if may_replace:
            due[spec.name] = StoredCertificate(spec.issue(ca, now=now), situation.keyring.bundle)
    if due:
        reason = "missing, about to expire, or issued by another CA"
        return Step(Action.RENEW, reason, tuple(due), certificates=due)
    return min(waits, key=lambda wait: wait.until, default=None)


def _plan_bundle(situation: Situation) -> Step | None:
    outdated, pem, stored = _list_outdated(situation), situation.keyring.bundle, situation.observed.certificates
    if not outdated:
        return None
    certificates = {name: dataclasses.replace(stored[name], trusted=pem) for name in outdated if name in stored}
    reason = f"outdated CA bundle in {', '.join(outdated)}"
    return Step(Action.PUBLISH, reason, bundle=pem, certificates=certificates)


def _plan_switch(situation: Situation) -> Step | Wait | None:
    """Make the next CA the active one, `overlap` after it was issued."""
    keyring, schedule = situation.keyring, situation.schedule
    if keyring.next_ca is None:
        return None
    switched = dataclasses.replace(keyring, active_ca=keyring.next_ca, next_ca=None)
    if not situation.list_live():
        return Step(Action.ACTIVATE, "no certificate is in use yet", keyring=switched)
    if (ca := situation.signer) is not None:
        overlapped = pki.get_issue_time(keyring.next_ca) + schedule.overlap
        until = min(overlapped, inventory.get_renewal_time(ca, schedules.URGENT))
        if situation.now < until:
            is_soon = until - situation.now <= schedule.propagation
            return Wait(until, "clients need time to read the next CA", soon=is_soon)
    return _wait_until_steady(situation) or Step(Action.ACTIVATE, "every client trusts the next CA", keyring=switched)


def _plan_removal(situation: Situation) -> Step | Wait | None:
    """Remove the other CAs, twice `overlap` after the active one was issued; it became active halfway.

    Copies of client certificates are replaced by hand, so other CAs stay trusted for `overlap` after the last issue.
    """
    keyring, schedule = situation.keyring, situation.schedule
    if keyring.next_ca is not None or keyring.active_ca is None or len(keyring.trusted) < 2:
        return None
    clients = [spec.name for spec in situation.specs if spec.usage is pki.Usage.CLIENT]
    pairs = [item.pair for name, item in situation.observed.certificates.items() if name in clients and item.pair]
    issued = [pki.get_issue_time(keyring.active_ca) + schedule.overlap, *map(pki.get_issue_time, pairs)]
    until = max(issued) + schedule.overlap
    if situation.now < until:
        return Wait(until, "the old CA stays trusted", soon=until - situation.now <= schedule.propagation)
    alone = dataclasses.replace(keyring, trusted=pki.split_bundle(keyring.active_ca.certificate_pem))
    return _wait_until_steady(situation) or Step(
        Action.PRUNE, "no certificate in use was issued by the old CA", keyring=alone
    )


def _wait_until_steady(situation: Situation) -> Wait | None:
    """Wait until the state has been unchanged for `propagation`, by the monotonic clock."""
    left = situation.schedule.propagation - situation.unchanged_for
    if left <= dt.timedelta():
        return None
    until = situation.now + left
    return Wait(until, "the stored state needs time to reach every server and client", soon=True)


def _is_usable(pair: pki.Pair, keyring: Keyring, now: dt.datetime) -> bool:
    """True if `pair` can sign and is in the trusted bundle."""
    return inventory.is_usable_ca(pair, now=now) and pki.split_bundle(pair.certificate_pem)[0] in keyring.trusted


def _build_keyring(situation: Situation) -> Keyring:
    """Return a keyring that trusts every CA that may be in use and switches to the newest CA that can sign.

    If the keyring was lost, its CAs are recovered from the bundles in force.
    """
    observed, now = situation.observed, situation.now
    existing = [pair for pair in (observed.keyring.next_ca, observed.keyring.active_ca) if pair is not None]
    usable = [pair for pair in existing if inventory.is_usable_ca(pair, now=now)]
    target = usable[0] if usable else pki.issue_ca(_NAME_OF_CA, now=now, lifetime=schedules.CA_VALIDITY)
    bundles = [stored.trusted for stored in observed.certificates.values()]
    bundles += [] if usable else observed.bundles.values()
    pems = [*(pair.certificate_pem for pair in usable), *observed.keyring.trusted, *bundles, *situation.list_issuers()]
    # expired ones too: another host's clock may be behind
    others = [part for pem in pems for part in pki.split_bundle(pem) if pki.is_ca(x509.load_pem_x509_certificate(part))]
    return Keyring(None, target, tuple(dict.fromkeys([*pki.split_bundle(target.certificate_pem), *others])))


# In order of precedence: the first rule that returns a step wins. Trust is established before it is needed.
_RULES: tuple[Callable[[Situation], Step | Wait | None], ...] = (
    _plan_new_ca,
    _plan_next_ca,
    _plan_renewal,
    _plan_bundle,
    _plan_switch,
    _plan_removal,
)
