"""Runs `railwright demo --cloud`: what one label makes of a cloud's published job, beside the vendor's own pods."""

import argparse
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from railwright.cli import formats, object_files, output
from railwright.cli.clouds import comparison, profiles
from railwright.cli.output import Line
from railwright.fabric import names

_PICTURE_WIDTH = 140  # columns of the SVG
_UNLISTED = "the profile does not name it"


def show(arguments: argparse.Namespace) -> int:
    """Return 0 if the pods differ from the vendor's only as the profile says, 1 if otherwise.

    Raises UnreadableError for options of the other demo.
    """
    other = [f"--{name}" for name in ("full", "serve") if getattr(arguments, name)]
    if other:
        raise output.UnreadableError(f"{', '.join(other)}: not with --cloud, which starts no server")
    shape = profiles.list_shapes(profiles.find(arguments.cloud))[0]
    differences = comparison.compare(shape)
    reasons = {row.at: row.reason for row in (*comparison.read_common_differences(), *shape.differences)}
    if formats.is_document(arguments.output):
        formats.print_document(_build_document(shape, differences, reasons), arguments.output)
    else:
        output.print_lines(_format(shape, differences, reasons))
    if arguments.svg:
        lines = _format(shape, differences, reasons)
        title = f"railwright demo --cloud {shape.profile.name}"
        output.write_picture(arguments.svg, output.draw(lines, title=title, width=_PICTURE_WIDTH))
    return output.OK if differences.keys() <= reasons.keys() else output.FINDINGS


def _build_document(
    shape: profiles.Shape, differences: Mapping[str, tuple[Any, Any]], reasons: Mapping[str, str]
) -> Mapping[str, Any]:
    return {
        "profile": shape.profile.name,
        "shape": shape.title,
        "source": shape.profile.source,
        "lines": {name: comparison.count_lines(shape, f"{name}.yaml") for name in ("vendor", "job")},
        "pods": {role: preview.after for role, preview in comparison.preview_job(shape).items()},
        "differences": [
            {"at": at, "vendor": vendor, "railwright": ours, "reason": reasons.get(at, _UNLISTED)}
            for at, (vendor, ours) in differences.items()
        ],
    }


def _format(
    shape: profiles.Shape, differences: Mapping[str, tuple[Any, Any]], reasons: Mapping[str, str]
) -> Iterator[Line]:
    before, after = (comparison.count_lines(shape, name) for name in ("vendor.yaml", "job.yaml"))
    yield ((f"{shape.profile.cloud}: {shape.title}", "bold"),)
    yield ((f"from {shape.profile.source}", "dim"),)
    yield ()
    yield ((f"1. The vendor's job with one label in place of its network settings: {after} lines of {before}", "bold"),)
    for line in shape.read_text("job.yaml").splitlines():
        yield ((f"   {line}", "green" if names.FABRIC in line else ""),)
    yield ()
    yield (("2. What admission changes in its pods", "bold"),)
    for role, preview in comparison.preview_job(shape).items():
        yield ((f"   {role}", "bold"),)
        changes = object_files.format_difference(preview.before, preview.after)
        yield from (
            ((f"   {line}", style),) for line, style in itertools.islice(changes, 1, None)
        )  # the first has numbers
    yield ()
    yield (("3. Differences from the vendor's published pods", "bold"),)
    for at, (vendor, ours) in differences.items():
        yield ((f"   {at}: ", "bold"), (f"{_format_value(vendor)} -> {_format_value(ours)}", ""))
        yield ((f"     {reasons.get(at, _UNLISTED)}", "dim" if at in reasons else "red"),)
    if not differences:
        yield (("   none", "green"),)
    yield ()
    yield ((f"Not verified: {shape.profile.unverified}.", "dim"),)
    yield (("Its policy: ", ""), (f"railwright policy init --cloud {shape.profile.name}", "bold"))


def _format_value(value: Any) -> str:
    return str(value) if isinstance(value, str) else json.dumps(value, default=str)
