"""NCCL_IB_HCA: which ports NCCL would take, by its own rules.

Owns the grammar (NVIDIA/nccl src/misc/utils.cc, src/transport/net_ib/init.cc): `^` excludes, `=` is exact, else each
entry is a prefix; name[:port]; a port that is not a number matches nothing.
"""


def exact(value: str) -> tuple[str, ...]:
    """The devices of an exact list, in its order; () for any other value."""
    if not value.startswith("=") or value.startswith("=^"):
        return ()
    return tuple(dict.fromkeys(each.partition(":")[0] for each in value[1:].split(",") if each))


def selects(value: str, device: str, port: int) -> bool:
    """True where NCCL would take this port."""
    exclude, rest = value.startswith("^"), value.removeprefix("^")
    whole, listed = rest.startswith("="), rest.removeprefix("=")
    entries = [each for each in listed.split(",") if each]
    if not entries:
        return not exclude
    return exclude != any(_matches(each, device, port, whole=whole) for each in entries)


def _matches(entry: str, device: str, port: int, *, whole: bool) -> bool:
    name, mark, number = entry.partition(":")
    number = number.partition(":")[0]
    if mark and number != "-1" and number != str(port):
        return False
    return device == name if whole else device.startswith(name)
