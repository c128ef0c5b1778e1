"""The options of a rotation: lives and waits, written as 30d, 12h, 10m or 10s.

Owns their spelling. The defaults and what fits together are `certs.rotation`'s.
"""

import argparse
import dataclasses
import datetime as dt

from certs import rotation

_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_LONGEST, _DIGITS = 36500 * 86400, 10  # seconds of a hundred years, and the digits of any number up to it
_OPTIONS = {
    "authority": ("--authority-life", "life of an authority; the next one is made when a third is left"),
    "leaf": ("--leaf-life", "life of the servers' certificates; renewed when a third is left"),
    "caller": ("--caller-life", "life of callers' certificates"),
    "overlap": ("--overlap", "both authorities trusted before the new one is used, and again after"),
    "settle": ("--settle", "from a caBundle's change until every API server has seen it"),
    "propagation": ("--propagation", "from a Secret's change until every server presents it"),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add an option for each."""
    default = rotation.Schedule()
    for name, (flag, text) in _OPTIONS.items():
        value = getattr(default, name)
        parser.add_argument(
            flag, dest=name, type=span, default=value, metavar="TIME", help=f"{text} (default {written(value)})"
        )


def schedule(arguments: argparse.Namespace) -> rotation.Schedule:
    """The schedule of these arguments. Raises ValueError where it cannot work out."""
    return rotation.Schedule(
        **{each.name: getattr(arguments, each.name) for each in dataclasses.fields(rotation.Schedule)}
    )


def span(text: str) -> dt.timedelta:
    """A time from its words. Raises ArgumentTypeError."""
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdecimal()) or unit not in _UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write 30d, 12h, 10m or 10s")
    seconds = int(number[:_DIGITS]) * _UNITS[unit]
    if len(number) > _DIGITS or seconds > _LONGEST:
        raise argparse.ArgumentTypeError(f"{text} is longer than a hundred years")
    return dt.timedelta(seconds=seconds)


def written(value: dt.timedelta) -> str:
    """The shortest words for a time."""
    seconds = int(value.total_seconds())
    unit = next(unit for unit, each in _UNITS.items() if seconds % each == 0)
    return f"{seconds // _UNITS[unit]}{unit}"
