"""`railwright lint FILE...`: checks NCCL settings in manifests and nccl.conf files; prints text, JSON or SARIF."""

import argparse
import collections
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from railwright.cli import output
from railwright.fabric import version

if TYPE_CHECKING:  # slow to import, and `railwright --help` does not need them
    from railwright.cli.linting import findings
    from railwright.fabric.policy import model as policies

NAME = "lint"
HELP = "check NCCL settings in manifests and nccl.conf files"
_STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold blue"}
_FAILING = ("error", "warning")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "files", metavar="FILE", nargs="*", help="manifest of any workload, or nccl.conf file; - for standard input"
    )
    parser.add_argument(
        "--policy", metavar="FILE", help="policy or its ConfigMap; enables the rules that need the fabric"
    )
    parser.add_argument("--nccl-version", metavar="VERSION", help="NCCL version in the images, such as 2.21.5")
    parser.add_argument("--rules", action="store_true", help="list the rules and exit")
    parser.add_argument("-o", "--output", choices=["text", "json", "sarif"], default="text", help="output format")


def run(arguments: argparse.Namespace) -> int:
    """Return 0 without errors and warnings, 1 with some, 2 for wrong usage or an unreadable file."""
    if arguments.rules:
        return _rules(arguments.output)
    if not arguments.files:
        raise output.UnreadableError("lint: give a FILE, - for standard input, or --rules")
    from railwright.cli.linting import findings  # noqa: PLC0415 - see above

    context = findings.Context(_policy(arguments.policy), _release(arguments.nccl_version))
    report = findings.joined([findings.of_file(path, output.read_text(path), context) for path in arguments.files])
    if not report.templates:
        raise output.UnreadableError(
            f"lint: no pod, pod template or nccl.conf in {', '.join(arguments.files)}; nothing was checked"
        )
    for note in report.notes:
        print(f"railwright: {output.visible(note)}", file=sys.stderr)
    _FORMS[arguments.output](report)
    return output.FINDINGS if any(item.finding.severity in _FAILING for item in report.located) else output.OK


def _policy(path: str | None) -> "policies.Policy | None":
    if path is None:
        return None
    from railwright.cluster import manifests, policies  # noqa: PLC0415 - see above

    result = manifests.read(output.read_text(path))
    if isinstance(result, policies.Rejected):
        first = result.errors[0]
        place = path if first.line is None else f"{path}:{first.line}"
        message = ": ".join(filter(None, (place, first.path, first.message)))
        raise output.UnreadableError(f"{message}; `railwright policy validate {path}` shows all errors")
    return result


def _release(text: str | None) -> tuple[int, ...] | None:
    from railwright.fabric.nccl import catalogue  # noqa: PLC0415 - see above

    release = catalogue.version(text)
    if text is not None and release is None:
        raise output.UnreadableError(f"--nccl-version {text}: not a version; give one such as 2.21.5")
    return release


def _text(report: "findings.Report") -> None:
    for item in sorted(report.located, key=lambda item: (item.file, item.line or 0)):
        finding = item.finding
        location = item.file if item.line is None else f"{item.file}:{item.line}"
        output.print_styled(
            (location, "bold"),
            (": ", ""),
            (finding.severity, _STYLES[finding.severity]),
            (f" {finding.code} ", "cyan"),
            (finding.message, ""),
            (f" [{item.title}]" if item.title else "", "dim"),
        )
    counts = collections.Counter(str(item.finding.severity) for item in report.located)
    summary = ", ".join(f"{counts[word]} {word}{'s' * (counts[word] != 1)}" for word in _STYLES if counts[word])
    style = "bold red" if any(counts[word] for word in _FAILING) else "bold green"
    noun = "container or file" if report.looked_at == 1 else "containers and files"
    output.print_styled((summary or "nothing found", style), (f" in {report.looked_at} {noun}", ""))


def _json(report: "findings.Report") -> None:
    output.print_json(
        [
            {
                "file": item.file,
                "line": item.line,
                "object": item.title,
                "code": item.finding.code,
                "severity": item.finding.severity,
                "name": item.finding.name,
                "where": item.finding.where,
                "message": item.finding.message,
            }
            for item in report.located
        ]
    )


def _sarif(report: "findings.Report") -> None:
    from railwright.cli.linting import sarif  # noqa: PLC0415 - see above

    output.print_json(sarif.log(report.located, version.VERSION))


_FORMS: Mapping[str, Callable[["findings.Report"], Any]] = {"text": _text, "json": _json, "sarif": _sarif}


def _rules(form: str) -> int:
    from railwright.cli.linting import sarif  # noqa: PLC0415 - see above
    from railwright.fabric.lint import engine  # noqa: PLC0415 - see above

    if form == "sarif":
        output.print_json(sarif.log((), version.VERSION))
        return output.OK
    rows = [
        {"code": rule.code, "name": rule.name, "severity": rule.severity, "title": rule.title,
         "explanation": rule.explanation, "source": rule.source}
        for rule in engine.every()
    ]  # fmt: skip
    if form == "json":
        output.print_json(rows)
        return output.OK
    for row in rows:
        style = _STYLES[row["severity"]]
        output.print_styled((row["code"], "cyan"), (" ", ""), (f"{row['severity']:<8}", style), (row["title"], ""))
    return output.OK
