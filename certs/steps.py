"""Computes the writes of a rotation step. Keys are created here and not stored."""

import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence

from certs import bundle, issue, rotation, schedules, trust

COMMON_NAME = "railwright"  # of every CA; the key identifier distinguishes them


@dataclasses.dataclass(frozen=True)
class Changes:
    """The objects to write, in this order. None and absent names leave an object as it is."""

    keyring: rotation.Keyring | None = None
    bundle: bytes | None = None  # for every caBundle that calls railwright
    certificates: Mapping[str, rotation.StoredCertificate] = dataclasses.field(default_factory=dict)


def build_changes(
    step: rotation.Step,
    observed: rotation.Observed,
    specs: Sequence[bundle.CertificateSpec],
    *,
    now: dt.datetime,
    schedule: schedules.Schedule,
) -> Changes:
    """Return the writes of `step`. Raises ValueError for hosts that are not allowed in a certificate."""
    keyring = observed.keyring
    match step.action:
        case rotation.Action.BOOTSTRAP:
            return Changes(_build_keyring(observed, now, schedule))
        case rotation.Action.PREPARE:
            new = _issue_ca(now, schedule)
            trusted = (*trust.split_bundle(new.certificate_pem), *keyring.trusted)
            return Changes(dataclasses.replace(keyring, next_ca=new, trusted=trusted, published=None, activated=None))
        case rotation.Action.PUBLISH:
            pem = trust.join_bundle(keyring.trusted)
            outdated = {
                name: item
                for name, item in observed.certificates.items()
                if item.pair is not None and item.trusted != pem
            }
            return Changes(None, pem, {name: dataclasses.replace(item, trusted=pem) for name, item in outdated.items()})
        case rotation.Action.RECORD if keyring.next_ca is not None:
            return Changes(dataclasses.replace(keyring, published=now))
        case rotation.Action.RECORD:
            return Changes(dataclasses.replace(keyring, activated=now))
        case rotation.Action.ACTIVATE:
            return Changes(
                dataclasses.replace(keyring, active_ca=keyring.next_ca, next_ca=None, published=None, activated=None)
            )
        case rotation.Action.RENEW:
            return Changes(certificates=_issue_certificates(step, keyring, specs, now, schedule))
        case rotation.Action.PRUNE:
            if keyring.active_ca is None:
                raise ValueError("there is no CA to keep")
            return Changes(
                dataclasses.replace(
                    keyring, trusted=trust.split_bundle(keyring.active_ca.certificate_pem), activated=None
                )
            )


def _build_keyring(observed: rotation.Observed, now: dt.datetime, schedule: schedules.Schedule) -> rotation.Keyring:
    """Return a keyring that trusts every CA that may be in use and switches to the newest CA that can sign.

    If the keyring was lost, its CAs are recovered from the bundles in force.
    """
    existing = [pair for pair in (observed.keyring.next_ca, observed.keyring.active_ca) if pair is not None]
    usable = [pair for pair in existing if bundle.is_usable_ca(pair, now=now)]
    target = usable[0] if usable else _issue_ca(now, schedule)
    is_lost = not usable
    bundles = [stored.trusted for stored in observed.certificates.values()] + (
        list(observed.bundles.values()) if is_lost else []
    )
    recovered = [certificate for pem in bundles for certificate in trust.split_bundle(pem)]
    issuers = [
        issuer
        for stored in observed.certificates.values()
        if stored.pair is not None
        and trust.is_presentable(stored.pair, now)
        and (issuer := trust.find_issuer(stored.pair.certificate_pem, observed.list_trusted())) is not None
    ]
    first = trust.split_bundle(target.certificate_pem)
    pairs = [certificate for pair in usable for certificate in trust.split_bundle(pair.certificate_pem)]
    other_cas = trust.filter_cas([*pairs, *observed.keyring.trusted, *recovered, *issuers])
    return rotation.Keyring(next_ca=target, trusted=tuple(dict.fromkeys([*first, *other_cas])))


def _issue_certificates(
    step: rotation.Step,
    keyring: rotation.Keyring,
    specs: Sequence[bundle.CertificateSpec],
    now: dt.datetime,
    schedule: schedules.Schedule,
) -> Mapping[str, rotation.StoredCertificate]:
    if keyring.active_ca is None:
        raise ValueError("there is no CA to sign with")
    pem = trust.join_bundle(keyring.trusted)
    certificates: dict[str, rotation.StoredCertificate] = {}
    for spec in specs:
        if spec.name in step.names:
            pair = issue.issue_certificate(
                keyring.active_ca,
                common_name=spec.common_name,
                hosts=spec.hosts,
                usages={spec.usage},
                now=now,
                lifetime=schedule.client if spec.usage is issue.Usage.CLIENT else schedule.serving,
            )
            certificates[spec.name] = rotation.StoredCertificate(pair, pem)
    return certificates


def _issue_ca(now: dt.datetime, schedule: schedules.Schedule) -> issue.Pair:
    return issue.issue_ca(COMMON_NAME, now=now, lifetime=schedule.ca)
