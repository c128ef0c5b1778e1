"""What a step of a rotation writes: from what is stored to what shall be.

Owns the contents. Keys are made here and nowhere kept. Refuses to know how anything is written.
"""

import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence

from certs import bundle, issue, rotation, trust

COMMON_NAME = "railwright"  # of every authority; a key identifier tells two apart


@dataclasses.dataclass(frozen=True)
class Writes:
    """What is to be stored: None and absent names stay as they are. Written in this order."""

    keyring: rotation.Keyring | None = None
    bundle: bytes | None = None  # to every caBundle that calls us
    leaves: Mapping[str, rotation.Stored] = dataclasses.field(default_factory=dict)


def perform(
    step: rotation.Step,
    seen: rotation.Seen,
    wanted: Sequence[bundle.Wanted],
    *,
    now: dt.datetime,
    schedule: rotation.Schedule,
) -> Writes:
    """Return what `step` writes. Raises ValueError for hosts that cannot stand in a certificate."""
    keyring = seen.keyring
    match step.action:
        case rotation.Action.FOUND:
            return Writes(_founded(seen, now, schedule))
        case rotation.Action.PREPARE:
            new = _authority(now, schedule)
            trusted = (*trust.split(new.certificate_pem), *keyring.trusted)
            return Writes(dataclasses.replace(keyring, following=new, trusted=trusted, published=None, moved=None))
        case rotation.Action.PUBLISH:
            pem = trust.joined(keyring.trusted)
            held = {name: each for name, each in seen.leaves.items() if each.pair is not None and each.trusted != pem}
            return Writes(None, pem, {name: dataclasses.replace(each, trusted=pem) for name, each in held.items()})
        case rotation.Action.MARK if keyring.following is not None:
            return Writes(dataclasses.replace(keyring, published=now))
        case rotation.Action.MARK:
            return Writes(dataclasses.replace(keyring, moved=now))
        case rotation.Action.MOVE:
            return Writes(
                dataclasses.replace(keyring, signer=keyring.following, following=None, published=None, moved=None)
            )
        case rotation.Action.RENEW:
            return Writes(leaves=_renewed(step, keyring, wanted, now, schedule))
        case rotation.Action.RETIRE:
            if keyring.signer is None:
                raise ValueError("there is no authority to keep")
            return Writes(dataclasses.replace(keyring, trusted=trust.split(keyring.signer.certificate_pem), moved=None))


def _founded(seen: rotation.Seen, now: dt.datetime, schedule: rotation.Schedule) -> rotation.Keyring:
    """A keyring that trusts all that may be in use and moves to the newest authority that can sign.

    Where the keyring was lost, the bundles in force are the only memory of it, so all of them are taken up.
    """
    held = [pair for pair in (seen.keyring.following, seen.keyring.signer) if pair is not None]
    able = [pair for pair in held if bundle.is_authority(pair, now=now)]
    target = able[0] if able else _authority(now, schedule)
    lost = not able
    written = [each.trusted for each in seen.leaves.values()] + (list(seen.bundles.values()) if lost else [])
    remembered = [each for pem in written for each in trust.split(pem)]
    anchors = [
        anchor
        for each in seen.leaves.values()
        if each.pair is not None
        and trust.presentable(each.pair, now)
        and (anchor := trust.anchor(each.pair.certificate_pem, seen.trusted())) is not None
    ]
    first = trust.split(target.certificate_pem)
    pairs = [each for pair in able for each in trust.split(pair.certificate_pem)]
    others = trust.authorities([*pairs, *seen.keyring.trusted, *remembered, *anchors])
    return rotation.Keyring(following=target, trusted=tuple(dict.fromkeys([*first, *others])))


def _renewed(
    step: rotation.Step,
    keyring: rotation.Keyring,
    wanted: Sequence[bundle.Wanted],
    now: dt.datetime,
    schedule: rotation.Schedule,
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


def _authority(now: dt.datetime, schedule: rotation.Schedule) -> issue.Pair:
    return issue.issue_authority(COMMON_NAME, now=now, lifetime=schedule.authority)
