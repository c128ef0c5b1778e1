"""Runs `railwright explain pod`: asks a running extender why a pod is on its node."""

import argparse

import msgspec
from rich.console import Console

from railwright.cli import formats, output
from railwright.cli.explanation import decision, extender_client

_PIPED_WIDTH = 160  # columns without a terminal


def explain(arguments: argparse.Namespace) -> int:
    """Print the extender's explanation. Return 0 if the pod is or can be placed optimally, 1 if not."""
    namespace, name = _parse_pod(arguments.pod or "", arguments.namespace)
    target = extender_client.Target(
        arguments.extender, arguments.token, arguments.token_file, arguments.ca, arguments.kubeconfig
    )
    body = extender_client.fetch_explanation(namespace, name, target)
    explanation = decision.read(body)
    if arguments.output == "json":
        formats.print_json(msgspec.Raw(body))
    else:
        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = _PIPED_WIDTH
        console.print(decision.render(explanation))
    return output.FINDINGS if decision.is_finding(explanation) else output.OK


def _parse_pod(pod: str, namespace: str) -> tuple[str, str]:
    """Return (namespace, name). Raise UnreadableError."""
    first, slash, rest = pod.partition("/")
    if not pod or (slash and (not first or not rest or "/" in rest)):
        raise output.UnreadableError(
            f"explain pod {pod or '(no pod)'}: give NAMESPACE/NAME, or NAME -n NAMESPACE (for a file: ./pod)"
        )
    if slash and namespace not in ("", first):
        raise output.UnreadableError(f"explain pod {pod}: -n {namespace} is another namespace; give one of them")
    return (first, rest) if slash else (namespace or "default", pod)
