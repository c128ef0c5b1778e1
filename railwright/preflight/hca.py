"""NCCL_IB_HCA: selects ports by NCCL's own rules.

The grammar is that of NVIDIA/nccl src/misc/utils.cc and src/transport/net_ib/init.cc: `^` excludes, `=` is exact,
otherwise each entry is a prefix; name[:port]; a port that is not a number matches nothing.
"""


def parse_exact_list(value: str) -> tuple[str, ...]:
    """Return the devices of an exact list in its order; () for any other value."""
    if not value.startswith("=") or value.startswith("=^"):
        return ()
    return tuple(dict.fromkeys(entry.partition(":")[0] for entry in value[1:].split(",") if entry))


def selects(value: str, device: str, port: int) -> bool:
    """True if NCCL would use this port."""
    exclude, pattern = value.startswith("^"), value.removeprefix("^")
    exact_names, names = pattern.startswith("="), pattern.removeprefix("=")
    entries = [entry for entry in names.split(",") if entry]
    if not entries:
        return not exclude
    return exclude != any(_matches(entry, device, port, exact_names=exact_names) for entry in entries)


def _matches(entry: str, device: str, port: int, *, exact_names: bool) -> bool:
    name, mark, number = entry.partition(":")
    number = number.partition(":")[0]
    if mark and number != "-1" and number != str(port):
        return False
    return device == name if exact_names else device.startswith(name)
