"""POST /validate/policy: a ConfigMap that would not be a valid policy is refused with all that is wrong with it.

Owns the wording of that refusal; what is wrong is `cluster.policies`' to say.
"""

from collections.abc import Collection, Sequence

from cluster import policies
from fabric import names, views
from fabric.policy import shortcomings
from webhook import answer, wire

_READER = wire.Reader(views.ConfigMap, "ConfigMap")
_BAD_REQUEST = 400
_MAX_MESSAGE = 16 * 1024  # characters of errors that are told one by one; nobody reads more in a terminal


def handle(
    body: bytes, networks: shortcomings.Networks | None = None, offered: Collection[str] | None = None
) -> answer.Answer:
    """Answer a review. Raises wire.MalformedError for what is no review of a ConfigMap.

    A valid policy is allowed with warnings about what it lacks in this cluster, by the networks and the resources of
    nodes that are known.
    """
    request = _READER.read(body)
    config_map = request.object
    if config_map is None or not _is_policy(request):
        return _answer(request, None)
    text = (config_map.data or {}).get(names.POLICY_KEY)
    if text is None:
        return _answer(request, f"key {names.POLICY_KEY} is missing in data; put the policy there")
    result = policies.read(text)
    if not isinstance(result, policies.Rejected):
        return _answer(request, None, shortcomings.find(result.document, networks, offered))
    return _answer(request, _told(result.errors))


def _is_policy(request: wire.Request[views.ConfigMap]) -> bool:
    """Our one ConfigMap, written: a selector may be wider than the contract."""
    name = request.name or (request.object.metadata.name if request.object else "")
    return (
        request.namespace == names.NAMESPACE
        and name == names.POLICY_CONFIGMAP
        and request.operation in {"CREATE", "UPDATE"}
    )


def _told(errors: Sequence[policies.PolicyError]) -> str:
    """All errors, a line each; what does not fit is counted."""
    count = len(errors)
    lines = [f"{count} error{'s' * (count != 1)} in {names.POLICY_KEY}:"]
    room = _MAX_MESSAGE - len(lines[0])
    for number, error in enumerate(errors):
        shown = line(error)
        room -= len(shown) + 1
        if room < 0:
            return "\n".join([*lines, f"and {count - number} more; correct these first"])
        lines.append(shown)
    return "\n".join(lines)


def line(error: policies.PolicyError) -> str:
    """One error as people read it: line, path, sentence."""
    where = "" if error.line is None else f"line {error.line}: "
    path = f"{error.path}: " if error.path else ""
    return f"{where}{path}{error.message}"


def _answer(request: wire.Request[views.ConfigMap], problem: str | None, warnings: Sequence[str] = ()) -> answer.Answer:
    if problem is None:
        body = wire.write(request.uid, wire.Verdict(warnings=warnings))
        return answer.Answer(body=body, outcome=answer.ALLOWED, warnings=len(warnings))
    message = f"ConfigMap {names.NAMESPACE}/{names.POLICY_CONFIGMAP}: {problem}"
    verdict = wire.Verdict(allowed=False, code=_BAD_REQUEST, message=message)
    body = wire.write(request.uid, verdict)
    return answer.Answer(body=body, outcome=answer.REFUSED, reason="policy", dry_run=bool(request.dry_run))
