"""Computes the writes of a rotation step. Keys are created here and not stored."""

import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence

from certs import bundle, issue, rotation, schedules, trust

COMMON_NAME = "railwright"  # of every CA; the key identifier distinguishes them


@dataclasses.dataclass(frozen=True)
class Writes:
    """The objects to write, in this order. None and absent names leave an object as it is."""

    keyring: rotation.Keyring | None = None
    bundle: bytes | None = None  # for every caBundle that calls railwright
    leaves: Mapping[str, rotation.Stored] = dataclasses.field(default_factory=dict)


def perform(
    step: rotation.Step,
    seen: rotation.Seen,
    wanted: Sequence[bundle.Wanted],
    *,
    now: dt.datetime,
    schedule: schedules.Schedule,
) -> Writes:
    """Return the writes of `step`. Raises ValueError for hosts that are not allowed in a certificate."""
    keyring = seen.keyring
    match step.action:
        case rotation.Action.FOUND:
            return Writes(_build_keyring(seen, now, schedule))
        case rotation.Action.PREPARE:
            new = _issue_ca(now, schedule)
            trusted = (*trust.split(new.certificate_pem), *keyring.trusted)
            return Writes(dataclasses.replace(keyring, following=new, trusted=trusted, published=None, moved=None))
        case rotation.Action.PUBLISH:
            pem = trust.joined(keyring.trusted)
            outdated = {
                name: item for name, item in seen.leaves.items() if item.pair is not None and item.trusted != pem
            }
            return Writes(None, pem, {name: dataclasses.replace(item, trusted=pem) for name, item in outdated.items()})
        case rotation.Action.MARK if keyring.following is not None:
            return Writes(dataclasses.replace(keyring, published=now))
        case rotation.Action.MARK:
            return Writes(dataclasses.replace(keyring, moved=now))
        case rotation.Action.MOVE:
            return Writes(
                dataclasses.replace(keyring, signer=keyring.following, following=None, published=None, moved=None)
            )
        case rotation.Action.RENEW:
            return Writes(leaves=_issue_certificates(step, keyring, wanted, now, schedule))
        case rotation.Action.RETIRE:
            if keyring.signer is None:
                raise ValueError("there is no authority to keep")
            return Writes(dataclasses.replace(keyring, trusted=trust.split(keyring.signer.certificate_pem), moved=None))


def _build_keyring(seen: rotation.Seen, now: dt.datetime, schedule: schedules.Schedule) -> rotation.Keyring:
    """Return a keyring that trusts every CA that may be in use and switches to the newest CA that can sign.

    If the keyring was lost, its CAs are recovered from the bundles in force.
    """
    existing = [pair for pair in (seen.keyring.following, seen.keyring.signer) if pair is not None]
    usable = [pair for pair in existing if bundle.is_authority(pair, now=now)]
    target = usable[0] if usable else _issue_ca(now, schedule)
    is_lost = not usable
    bundles = [stored.trusted for stored in seen.leaves.values()] + (list(seen.bundles.values()) if is_lost else [])
    recovered = [certificate for pem in bundles for certificate in trust.split(pem)]
    issuers = [
        issuer
        for stored in seen.leaves.values()
        if stored.pair is not None
        and trust.presentable(stored.pair, now)
        and (issuer := trust.anchor(stored.pair.certificate_pem, seen.trusted())) is not None
    ]
    first = trust.split(target.certificate_pem)
    pairs = [certificate for pair in usable for certificate in trust.split(pair.certificate_pem)]
    other_cas = trust.authorities([*pairs, *seen.keyring.trusted, *recovered, *issuers])
    return rotation.Keyring(following=target, trusted=tuple(dict.fromkeys([*first, *other_cas])))


def _issue_certificates(
    step: rotation.Step,
    keyring: rotation.Keyring,
    wanted: Sequence[bundle.Wanted],
    now: dt.datetime,
    schedule: schedules.Schedule,
) -> Mapping[str, rotation.Stored]:
    if keyring.signer is None:
        raise ValueError("there is no authority to sign with")
    pem = trust.joined(keyring.trusted)
    leaves: dict[str, rotation.Stored] = {}
    for leaf in wanted:
        if leaf.name in step.names:
            lifetime = schedule.caller if leaf.usage is issue.Usage.CLIENT else schedule.leaf
            pair = issue.issue_leaf(
                keyring.signer,
                common_name=leaf.common_name,
                hosts=leaf.hosts,
                usages={leaf.usage},
                now=now,
                lifetime=lifetime,
            )
            leaves[leaf.name] = rotation.Stored(pair, pem)
    return leaves


def _issue_ca(now: dt.datetime, schedule: schedules.Schedule) -> issue.Pair:
    return issue.issue_authority(COMMON_NAME, now=now, lifetime=schedule.authority)
