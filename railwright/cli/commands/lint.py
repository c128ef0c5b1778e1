"""`railwright lint FILE...`: NCCL settings in manifests and nccl.conf files against the rules; SARIF for code hosts."""

import argparse
import collections
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from railwright.cli import output
from railwright.fabric import version

if TYPE_CHECKING:  # rules, policy and YAML are slow to import, and `railwright --help` needs none of them
    from railwright.cli.linting import findings
    from railwright.fabric.policy import model as policies

NAME = "lint"
HELP = "check NCCL settings in manifests and nccl.conf files"
_STYLES = {"error": "bold red", "warning": "bold yellow", "info": "bold blue"}
_FAILING = ("error", "warning")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "files", metavar="FILE", nargs="*", help="manifests of any workload, or nccl.conf files; - = standard input"
    )
    parser.add_argument("--policy", metavar="FILE", help="the policy, or its ConfigMap: what fabrics and nodes have")
    parser.add_argument("--nccl-version", metavar="VERSION", help="NCCL's release in the images, such as 2.21.5")
    parser.add_argument("--rules", action="store_true", help="list the rules instead")
    parser.add_argument("-o", "--output", choices=["text", "json", "sarif"], default="text", help="form of the answer")


def run(arguments: argparse.Namespace) -> int:
    """0 nothing or infos only, 1 errors or warnings, 2 usage or a file that cannot be read."""
    if arguments.rules:
        return _rules(arguments.output)
    if not arguments.files:
        raise output.UnreadableError("lint: name a FILE, - for standard input, or ask for --rules")
    from railwright.cli.linting import findings  # noqa: PLC0415 - see above

    context = findings.Context(_policy(arguments.policy), _release(arguments.nccl_version))
    report = findings.joined([findings.of_file(path, output.read_text(path), context) for path in arguments.files])
    if not report.templates:
        raise output.UnreadableError(
            f"lint: there is no pod, pod template or nccl.conf in {', '.join(arguments.files)}, so nothing was checked"
        )
    for note in report.notes:
        print(f"railwright: {output.visible(note)}", file=sys.stderr)
    _FORMS[arguments.output](report)
    return output.FINDINGS if any(each.finding.severity in _FAILING for each in report.located) else output.OK


def _policy(path: str | None) -> "policies.Policy | None":
    if path is None:
        return None
    from railwright.cluster import manifests, policies  # noqa: PLC0415 - see above

    result = manifests.read(output.read_text(path))
    if isinstance(result, policies.Rejected):
        first = result.errors[0]
        place = path if first.line is None else f"{path}:{first.line}"
        told = ": ".join(filter(None, (place, first.path, first.message)))
        raise output.UnreadableError(f"{told}; `railwright policy validate {path}` shows all errors")
    return result


def _release(text: str | None) -> tuple[int, ...] | None:
    from railwright.fabric.nccl import catalogue  # noqa: PLC0415 - see above

    found = catalogue.version(text)
    if text is not None and found is None:
        raise output.UnreadableError(f"--nccl-version {text}: is no release; write one such as 2.21.5")
    return found


def _text(report: "findings.Report") -> None:
    for each in sorted(report.located, key=lambda each: (each.file, each.line or 0)):
        finding = each.finding
        place = each.file if each.line is None else f"{each.file}:{each.line}"
        output.print_styled(
            (place, "bold"),
            (": ", ""),
            (finding.severity, _STYLES[finding.severity]),
            (f" {finding.code} ", "cyan"),
            (finding.message, ""),
            (f" [{each.title}]" if each.title else "", "dim"),
        )
    counts = collections.Counter(str(each.finding.severity) for each in report.located)
    told = ", ".join(f"{counts[word]} {word}{'s' * (counts[word] != 1)}" for word in _STYLES if counts[word])
    style = "bold red" if any(counts[word] for word in _FAILING) else "bold green"
    what = "container or file" if report.looked_at == 1 else "containers and files"
    output.print_styled((told or "nothing found", style), (f" in {report.looked_at} {what}", ""))


def _json(report: "findings.Report") -> None:
    output.print_json(
        [
            {
                "file": each.file,
                "line": each.line,
                "object": each.title,
                "code": each.finding.code,
                "severity": each.finding.severity,
                "name": each.finding.name,
                "where": each.finding.where,
                "message": each.finding.message,
            }
            for each in report.located
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
