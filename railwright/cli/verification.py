"""Runs `railwright verify`: prints the job, and reports what the log of a job shows.

The job and the report come from `railwright.fabric.verification`. Creates nothing in a cluster.
"""

import argparse
import pathlib
import re
import sys
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from railwright.cli import formats, options, output, policies
from railwright.fabric import text
from railwright.fabric.verification import jobs, log_types, rails, report

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)  # a DNS label, RFC 1123
_MAX_NAME = 63  # characters of a DNS label


# --- the job ----------------------------------------------------------------------------------------------


def print_manifest(arguments: argparse.Namespace) -> int:
    """Print the job and return 0. Raise UnreadableError for wrong options or an unreadable policy, or ClusterError."""
    if arguments.nodes < 1:
        raise output.UnreadableError(f"--nodes {arguments.nodes}: must be 1 or more")
    for option, name in (("--name", arguments.name), ("--namespace", arguments.namespace)):
        if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
            raise output.UnreadableError(
                f"{option} {name!r}: must be at most {_MAX_NAME} lowercase letters, digits and -, "
                "beginning and ending with a letter or digit"
            )
    policy = policies.read(arguments.policy, options.get_cluster(arguments))
    fabric = policies.find_fabric(policy, arguments.fabric)
    job_options = jobs.JobOptions(
        fabric=fabric,
        nodes=arguments.nodes,
        kind=arguments.kind,
        image=arguments.image,
        namespace=arguments.namespace,
        name=arguments.name,
    )
    trees = jobs.build(policy.document, job_options)
    if formats.is_document(arguments.output):
        formats.print_document({"apiVersion": "v1", "kind": "List", "items": trees}, arguments.output)
        return output.OK
    if policy.document.fabrics[fabric].gpus_per_node is None:
        print(f"railwright: fabric {fabric} has no gpusPerNode: the job requests 8 GPUs of each node", file=sys.stderr)
    sys.stdout.write(_format_jobs(trees, job_options))
    return output.OK


def _format_jobs(trees: list[jobs.Tree], job_options: jobs.JobOptions) -> str:
    fabric = job_options.fabric
    return (
        f"# An all-reduce over fabric {fabric}, {job_options.nodes} whole nodes. When it has run:\n"
        f"#   {jobs.build_logs_command(job_options)} \\\n#     | railwright verify log - --fabric {fabric}\n"
        f"{formats.format_documents(trees)}"
    )


# --- the log ----------------------------------------------------------------------------------------------


def report_log(arguments: argparse.Namespace) -> int:
    """Return 0 for RDMA on every rail; 1 for TCP, missing rails or failures; 2 if the log does not tell.

    Raises UnreadableError and ClusterError.
    """
    paths = [*arguments.words, *arguments.filename]
    if paths.count("-") > 1:
        raise output.UnreadableError("verify log: - (standard input) can be read once")
    expected = build_expectation(
        arguments,
        has_source=bool(
            arguments.policy
            or options.get_cluster(arguments).is_given
            or (arguments.fabric and arguments.rails is None)
        ),
    )
    files = [("standard input" if path == "-" else pathlib.PurePath(path).stem, path) for path in paths]
    with output.show_progress("reading the log"):
        assessment = report.assess_logs([(name, _read_log(path)) for name, path in files], expected)
    return print_report(assessment, arguments)


def print_report(assessment: log_types.Report, arguments: argparse.Namespace) -> int:
    """Print the report in the format of the options, and return the exit code."""
    if formats.is_document(arguments.output):
        formats.print_document(assessment, arguments.output)
    else:
        _print_line(assessment)
        if arguments.output == options.WIDE:
            _print_pods(assessment, headers=not arguments.no_headers)
        if arguments.output == options.WIDE or arguments.form != "log":
            _print_rails(assessment)
    codes = {log_types.RDMA: output.OK, log_types.UNKNOWN: output.UNUSABLE}
    return codes.get(assessment.state, output.FINDINGS)


def _read_log(path: str) -> Iterator[str]:
    """Yield the complete lines of a log, `-` for standard input; bytes that are not UTF-8 are replaced.

    The text of a last line without a line break is dropped: it was truncated, and the rest could be misread.
    """
    if path == "-":
        yield from _read_lines(sys.stdin.buffer)
        return
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib would change the path in messages
            yield from _read_lines(file)
    except OSError as error:
        raise output.UnreadableError(f"{path}: {error.strerror or error}") from None


def _read_lines(file: BinaryIO) -> Iterator[str]:
    for line in file:
        yield line.decode(errors="replace") if line.endswith(b"\n") else ""


def build_expectation(arguments: argparse.Namespace, *, has_source: bool) -> log_types.Expected:
    """Return what the options say that each pod should use. `has_source`: the policy is read, from a file or a cluster.

    Raises UnreadableError and ClusterError.
    """
    if arguments.rails is not None and arguments.rails < 1:
        raise output.UnreadableError(f"--rails {arguments.rails}: must be 1 or more")
    if not has_source:
        return log_types.Expected(rails=arguments.rails)
    policy = policies.read(arguments.policy, options.get_cluster(arguments))
    fabric = policies.find_fabric(policy, arguments.fabric)
    if not policy.document.fabrics[fabric].rails:
        raise output.UnreadableError(f"--fabric {fabric}: has no rails, so there is no RDMA to be seen")
    expected = rails.expect(policy.document, fabric)
    return expected if arguments.rails is None else msgspec.structs.replace(expected, rails=arguments.rails)


def _print_line(assessment: log_types.Report) -> None:
    output.print_styled((assessment.line, _STYLES[assessment.state]))


def _print_pods(assessment: log_types.Report, *, headers: bool) -> None:
    columns = (
        formats.Column("POD"),
        formats.Column("STATE"),
        formats.Column("NETWORK", drop=2),
        formats.Column("RAILS"),
        formats.Column("GPUDIRECT", drop=1),
        formats.Column("DEVICES", drop=4),
        formats.Column("WHY", drop=3, cut=True),
    )
    rows = [
        (
            pod.name,
            pod.state,
            pod.transport or "-",
            f"{'?' if pod.rails is None else pod.rails}/{'?' if assessment.rails is None else assessment.rails}",
            f"{pod.channels_direct}/{pod.channels}",
            ",".join(pod.used) or "-",
            "; ".join(pod.why) or "-",
        )
        for pod in assessment.pods
    ]
    formats.print_table(columns, rows, headers=headers)


def _print_rails(assessment: log_types.Report) -> None:
    """Print a line for each rail: the pods that used it, and the first that did not.

    Rails without known device names get one line together, after the devices that the pods used.
    """
    unknown = [rail for rail in assessment.by_rail if rail.unknown and not (rail.devices or rail.used or rail.unused)]
    if unknown and any(pod.used for pod in assessment.pods):
        ports = sorted({port for pod in assessment.pods for port in pod.used})
        for port in ports:
            pods = [pod.name for pod in assessment.pods if port in pod.used]
            count = text.format_count(len(assessment.pods), "pod")
            output.print_styled((f"  {port}: ", ""), (f"RDMA in {len(pods)} of {count}", _STYLES[log_types.RDMA]))
        rail_names = text.join_first([rail.name for rail in unknown], _NAMED_RAILS)
        cause = "the device names are not known; --fabric NAME reads them from the policy"
        output.print_styled((f"  {rail_names}: ", ""), (f"unknown: {cause}", _STYLES[log_types.UNKNOWN]))
    for rail in assessment.by_rail:
        if rail not in unknown or not any(pod.used for pod in assessment.pods):
            _print_rail(rail)


def _print_rail(rail: log_types.Rail) -> None:
    total = len(rail.used) + len(rail.unused) + len(rail.unknown)
    name = f"{rail.name} ({', '.join(rail.devices)})" if rail.devices else rail.name
    parts = [f"RDMA in {len(rail.used)} of {text.format_count(total, 'pod')}"]
    for word, pods in (("not in", rail.unused), ("unknown in", rail.unknown)):
        if pods:
            parts.append(f"{word} {text.join_first(pods, _NAMED)}")
    output.print_styled((f"  {name}: ", ""), ("; ".join(parts), _STYLES[rail.state]))


_NAMED_RAILS = 8  # in one line
_NAMED = 3  # pods of a rail that a line names
_STYLES = {"rdma": "green", "tcp": "bold red", "partial": "bold yellow", "failed": "bold red", "unknown": "yellow"}
