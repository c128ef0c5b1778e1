"""Plans the rotation of certificates: the next step and its writes, from the stored objects, the overlap and the time.

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


class Action(enum.StrEnum):
    """The change that a step makes. Each can be repeated and interrupted without harm."""

    TRUST = "trust"  # add the CA of a certificate in use to the bundle
    PREPARE = "prepare"  # create the next CA
    PUBLISH = "publish"  # write the CA bundle to every caBundle and every ca.crt
    ACTIVATE = "activate"  # make the next CA the active one
    RENEW = "renew"  # issue certificates that are missing, about to expire, or issued by another CA
    PRUNE = "prune"  # remove CAs that no certificate in use was issued by


@dataclasses.dataclass(frozen=True)
class Keyring:
    """Content of the CA's Secret. `trusted` are PEM certificates, the newest CA first."""

    active_ca: pki.KeyPair | None = None
    next_ca: pki.KeyPair | None = None  # the next CA: published, but not signing yet
    trusted: tuple[bytes, ...] = ()

    @property
    def bundle(self) -> bytes:
        """Return the CA bundle in force: the value of every caBundle and ca.crt."""
        return b"".join(self.trusted)


@dataclasses.dataclass(frozen=True)
class StoredCertificate:
    """Content of a certificate's Secret. `pair` is None if the Secret, the certificate or the key is missing."""

    pair: pki.KeyPair | None = None
    trusted: bytes = b""


@dataclasses.dataclass(frozen=True)
class Step:
    """A change to make now, and its reason. `names` are the certificates to RENEW.

    The other fields have the new content of objects, in the order of writing; None, or no entry, leaves an object
    unchanged. They are not compared, so that a repeated step equals the earlier one.
    """

    action: Action
    reason: str
    names: tuple[str, ...] = ()
    keyring: Keyring | None = dataclasses.field(default=None, compare=False)
    certificates: Mapping[str, StoredCertificate] = dataclasses.field(default_factory=dict, compare=False)
    bundle: bytes | None = dataclasses.field(default=None, compare=False)  # for each caBundle


@dataclasses.dataclass(frozen=True)
class Wait:
    """The time of the next change, and its reason.

    `soon`: within minutes during a change of the CA, so a run without --watch waits for it.
    """

    until: dt.datetime
    reason: str
    soon: bool = False


@dataclasses.dataclass(frozen=True)
class Situation:
    """The input from which a step is planned: the stored certificates of an installation, and the time.

    `certificates` has an entry for each of `specs`. `bundles` has the caBundle of each webhook by KIND/NAME.
    `renew_ca` starts a new CA before it is due.
    """

    keyring: Keyring
    certificates: Mapping[str, StoredCertificate]
    bundles: Mapping[str, bytes]
    specs: Sequence[inventory.CertificateSpec]
    now: dt.datetime
    overlap: dt.timedelta = schedules.OVERLAP
    renew_ca: bool = False

    @property
    def signer(self) -> pki.KeyPair | None:
        """The active CA; None if it cannot issue certificates now."""
        return self._find_usable(self.keyring.active_ca)

    @property
    def next_ca(self) -> pki.KeyPair | None:
        """The next CA; None if it could not issue certificates now."""
        return self._find_usable(self.keyring.next_ca)

    @property
    def propagation(self) -> dt.timedelta:
        """The time that stored objects need to reach all clients and servers."""
        return min(schedules.PROPAGATION, self.overlap)

    def _find_usable(self, pair: pki.KeyPair | None) -> pki.KeyPair | None:
        """Return the CA if it can issue certificates and is in the trusted bundle, otherwise None."""
        if pair is None or not inventory.is_usable_ca(pair, now=self.now):
            return None
        return pair if pki.split_bundle(pair.certificate_pem)[0] in self.keyring.trusted else None

    def list_outdated_bundles(self) -> list[str]:
        """Return the names of the Secrets and webhooks whose CA bundle differs from the keyring's."""
        stored = {name: item.trusted for name, item in self.certificates.items() if item.pair is not None}
        return [name for name, pem in {**self.bundles, **stored}.items() if pem != self.keyring.bundle]

    def list_presentable(self) -> list[StoredCertificate]:
        """Return the certificates that a server or client may present now."""
        stored = self.certificates.values()
        return [item for item in stored if item.pair is not None and pki.is_presentable(item.pair, self.now)]


def plan_step(situation: Situation) -> Step | Wait:
    """Return the next step, or a wait until the next one is due.

    Raises ValueError for hosts that a certificate cannot have.
    """
    waits: list[Wait] = []
    for rule in _RULES:
        due = rule(situation)
        if isinstance(due, Step):
            return due
        waits += [due] if due is not None else []
    wait = min(waits, key=lambda wait: wait.until)
    is_changing_ca = len(situation.keyring.trusted) > 1
    return dataclasses.replace(wait, soon=is_changing_ca and wait.until - situation.now <= schedules.PROPAGATION)


def _plan_trust(situation: Situation) -> Step | None:
    """Add the CA of each certificate in use to the bundle: the keyring may be new, or restored from a backup."""
    keyring = situation.keyring
    issuers = [
        pki.find_issuer(stored.pair.certificate_pem, pki.split_bundle(stored.trusted))
        for stored in situation.list_presentable()
        if stored.pair is not None
    ]
    trusted = tuple(dict.fromkeys([*keyring.trusted, *filter(None, issuers)]))
    if trusted == keyring.trusted:
        return None
    reason = "a certificate in use was issued by a CA that is not in the bundle"
    return Step(Action.TRUST, reason, keyring=dataclasses.replace(keyring, trusted=trusted))


def _plan_next_ca(situation: Situation) -> Step | Wait | None:
    keyring, now, ca = situation.keyring, situation.now, situation.signer
    if situation.next_ca is not None:
        return None
    reason = "no CA can sign"
    if ca is not None:
        certificate = x509.load_pem_x509_certificate(ca.certificate_pem)
        renewal_time = inventory.get_renewal_time(certificate)
        if not situation.renew_ca and now < renewal_time:
            return Wait(renewal_time, "the CA is due for replacement")
        expiry = f"the CA expires at {certificate.not_valid_after_utc:%Y-%m-%d %H:%M}"
        reason = "requested by the operator" if situation.renew_ca else expiry
    new = pki.issue_ca(_NAME_OF_CA, now=now, lifetime=schedules.CA_VALIDITY)
    trusted = (*pki.split_bundle(new.certificate_pem), *keyring.trusted)
    return Step(Action.PREPARE, reason, keyring=Keyring(keyring.active_ca, new, trusted))


def _plan_renewal(situation: Situation) -> Step | Wait | None:
    """Renew certificates that are missing, about to expire, or issued by another CA.

    A renewal by the same CA needs no new bundle at the clients, so it precedes the bundles, whose writing may fail for
    weeks. A valid certificate of another CA is replaced after every bundle is written.
    """
    ca, now = situation.signer, situation.now
    if ca is None:
        return None
    is_published = not situation.list_outdated_bundles()
    due: dict[str, StoredCertificate] = {}
    waits: list[Wait] = []
    for spec in situation.specs:
        pair = situation.certificates[spec.name].pair
        certificate = None if pair is None else pki.load_certificate(pair)
        if pair is not None and certificate and inventory.matches_spec(pair, spec, ca=ca, now=now):
            waits.append(Wait(inventory.get_renewal_time(certificate), "the next certificate is due for renewal"))
        elif (
            is_published
            or pair is None
            or not pki.is_presentable(pair, now)
            or pki.find_issuer(pair.certificate_pem, [ca.certificate_pem])
        ):
            due[spec.name] = StoredCertificate(spec.issue(ca, now=now), situation.keyring.bundle)
    if due:
        reason = "a certificate is missing, about to expire, or issued by another CA"
        return Step(Action.RENEW, reason, tuple(due), certificates=due)
    return min(waits, key=lambda wait: wait.until, default=None)


def _plan_bundle_writes(situation: Situation) -> Step | None:
    outdated, pem, stored = situation.list_outdated_bundles(), situation.keyring.bundle, situation.certificates
    if not outdated:
        return None
    certificates = {name: dataclasses.replace(stored[name], trusted=pem) for name in outdated if name in stored}
    reason = f"outdated CA bundle in {', '.join(outdated)}"
    return Step(Action.PUBLISH, reason, bundle=pem, certificates=certificates)


def _plan_ca_activation(situation: Situation) -> Step | Wait | None:
    """Make the next CA active `overlap` after it was issued, but no later than halfway to the end of the active CA."""
    ca = situation.next_ca
    if ca is None:
        return None
    if situation.list_presentable():
        issued, delay = pki.get_issue_time(ca), situation.propagation
        if situation.signer is not None:
            end = x509.load_pem_x509_certificate(situation.signer.certificate_pem).not_valid_after_utc
            delay = min(situation.overlap, (end - issued) / 2)
        until = issued + delay
        if situation.now < until:
            return Wait(until, "clients need time to read the next CA")
    keyring = dataclasses.replace(situation.keyring, active_ca=ca, next_ca=None)
    return Step(Action.ACTIVATE, "every client trusts the next CA", keyring=keyring)


def _plan_ca_removal(situation: Situation) -> Step | Wait | None:
    """Remove all CAs but the active one from the bundle, once no certificate of another CA can be in use.

    That is the latest of these times: twice `overlap` after the active CA was issued; for a server, `propagation` after
    its certificate was issued; for kube-scheduler, which may use a copy of its old certificate, `overlap` instead.
    """
    keyring, ca, overlap = situation.keyring, situation.signer, situation.overlap
    if situation.next_ca is not None or ca is None or len(keyring.trusted) < 2:
        return None
    untils = [pki.get_issue_time(ca) + 2 * overlap]
    for spec in situation.specs:
        pair = situation.certificates[spec.name].pair
        delay = overlap if spec.usage is pki.Usage.CLIENT else situation.propagation
        untils += [pki.get_issue_time(pair) + delay] if pair is not None else []
    until = max(untils)
    if situation.now < until:
        return Wait(until, "the old CA stays trusted")
    alone = dataclasses.replace(keyring, trusted=pki.split_bundle(ca.certificate_pem))
    return Step(Action.PRUNE, "no certificate in use was issued by the old CA", keyring=alone)


# In order of precedence: the first rule that returns a step wins. Trust is established before it is needed.
_RULES: tuple[Callable[[Situation], Step | Wait | None], ...] = (
    _plan_trust,
    _plan_next_ca,
    _plan_renewal,
    _plan_bundle_writes,
    _plan_ca_activation,
    _plan_ca_removal,
)
