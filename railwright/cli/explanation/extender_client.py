"""Fetches the extender's explanation of a pod, from a given URL or through the API server's proxy, and renders it.

A token is sent only to the host that the user named, and never unencrypted over a network. Fields that this version
does not know are ignored, so that it can read the answer of a newer extender.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib import parse

import aiohttp
import msgspec
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from railwright.cli import cluster_access, formats, options, output
from railwright.cluster import credentials, errors, failures, installed_names, kubeconfigs
from railwright.fabric import names, text
from railwright.fabric.reasons.codes import Code
from railwright.serving import settings

SECONDS = 30.0  # for one answer
_SERVICES = f"/api/v1/namespaces/{installed_names.NAMESPACE}/services"
_SERVICE = f"{_SERVICES}/{installed_names.EXTENDER}"
_FORWARD = (
    f"kubectl -n {installed_names.NAMESPACE} port-forward pod/LEADER {names.EXTENDER_PORT} (the holder of "
    f"kubectl -n {installed_names.NAMESPACE} get lease {installed_names.EXTENDER}, without the part after _), then add "
    f"--extender https://localhost:{names.EXTENDER_PORT} --ca ca.crt --token-file FILE"
)
_IDENTIFY = (
    'give one: --token "$(kubectl create token SERVICEACCOUNT)", of an account that may get pods in that namespace'
)
_BAD_GATEWAY = frozenset({500, 502, 503})  # of the API server's proxy, if the backend does not respond by that scheme
_UNREVIEWED = 503  # of the extender, if the API server does not review a token


class Target(NamedTuple):
    """Options of the command line; "" if not given."""

    extender: str
    token: str
    token_file: str
    ca: str
    cluster: options.ClusterOptions


class NoDecisionError(output.UnreadableError):
    """The extender has stored no decision on the pod."""


class NoExtenderError(output.UnreadableError):
    """The extender explained nothing through the API server. `cause` is the message without other ways to ask it.

    `has_answered` is true if it was asked and has no decision on the pod.
    """

    def __init__(self, cause: str, message: str, *, has_answered: bool = False) -> None:
        super().__init__(message)
        self.cause, self.has_answered = cause, has_answered


class _ErrorDetail(msgspec.Struct):
    reason: str = ""


class _Answer(msgspec.Struct):
    """An error of the extender or of the API server, or an explanation."""

    error: _ErrorDetail | None = None
    message: str = ""
    outcome: str = ""  # of an explanation


def fetch_explanation(namespace: str, name: str, target: Target) -> bytes:
    """Return the JSON of an explanation. Raises UnreadableError with the fix."""
    path = f"/explain/{parse.quote(namespace, safe='')}/{parse.quote(name, safe='')}"
    return asyncio.run(_fetch_directly(path, target) if target.extender else _fetch_through_proxy(path, target))


async def _fetch_directly(path: str, target: Target) -> bytes:
    address = parse.urlsplit(target.extender)
    if address.scheme not in ("http", "https") or not address.hostname:
        raise output.UnreadableError(f"--extender {target.extender}: give a URL such as https://localhost:8713")
    token = _read_token(target)
    if not token and target.cluster.is_given:
        token = _parse_bearer(await (await cluster_access.read_account(target.cluster)).headers())
    if token and address.scheme == "http" and not settings.Address(address.hostname, 0).is_loopback:
        raise output.UnreadableError(f"--extender {target.extender}: the token would go there unencrypted; use https")
    headers = [("Authorization", f"Bearer {token}")] if token else []
    url = target.extender.rstrip("/") + path
    status, body = await _get(url, headers, target.cluster.timeout, ssl=_build_trust(target.ca))
    return _read_answer(status, body, target.extender)


async def _fetch_through_proxy(path: str, target: Target) -> bytes:
    cluster = await _read_account(target.cluster)
    own_headers = await cluster.headers()
    token = _read_token(target) or _parse_bearer(own_headers)
    if not token:
        cause = "this kubeconfig has no token, and the extender requires one"
        raise NoExtenderError(cause, f"{cause}; {_IDENTIFY}")
    headers = [
        *own_headers.items(),
        *cluster.impersonation.list_headers(),
        (names.PROXIED_AUTHORIZATION, f"Bearer {token}"),
    ]
    connection = {"ssl": cluster.tls, "server_hostname": cluster.server_name, "proxy": cluster.proxy}
    status, body = 0, b""
    for scheme in ("https", "http"):  # the default of the manifests, and plain HTTP for Volcano
        url = f"{cluster.host}{_SERVICES}/{scheme}:{installed_names.EXTENDER}:{names.EXTENDER_PORT}/proxy{path}"
        status, body = await _get(url, headers, target.cluster.timeout, **connection)
        if status not in _BAD_GATEWAY or _is_own_error(body):
            break
    try:
        return _read_answer(status, body, "the API server's proxy", f". Or: {_FORWARD}")
    except output.UnreadableError as error:
        cause = str(error).partition(". Or: kubectl")[0]
        raise NoExtenderError(cause, str(error), has_answered=isinstance(error, NoDecisionError)) from None


def _is_own_error(body: bytes) -> bool:
    """True for an error of the extender, not of the proxy."""
    try:
        return msgspec.json.decode(body, type=_Answer).error is not None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def _read_answer(status: int, body: bytes, where: str, instead: str = "") -> bytes:
    reason, ours = "", False
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        answer_body = msgspec.json.decode(body, type=_Answer)
        if status == 200 and answer_body.outcome:
            return body
        ours = answer_body.error is not None
        reason = failures.quote_message(answer_body.error.reason if answer_body.error else answer_body.message)
    if status == 200:
        fix = "check the URL, or `server:` in the kubeconfig"
        raise output.UnreadableError(f"{where} responds, but not as railwright's extender does; {fix}{instead}")
    if status == 404 and reason.startswith("no decision on"):
        raise NoDecisionError(reason)
    if status == _UNREVIEWED and ours:
        instead = "; if the extender lacks a permission, `railwright check` names it"
    elif status == 401 and ours:
        instead = f"; {_IDENTIFY}"
    elif not ours and not instead:
        raise output.UnreadableError(
            f"{where} responds, but not as railwright's extender does (status {status}); check the URL of --extender"
        )
    elif not ours:
        response = errors.ErrorResponse(status, "", reason, f"{_SERVICE}/proxy", where=where, foreign=not reason)
        raise output.UnreadableError(f"{failures.describe_response(response)}{instead}")
    raise output.UnreadableError(f"{where}: {reason or 'no explanation'} (status {status}){instead}")


async def _get(
    url: str, headers: Sequence[tuple[str, str]], seconds: float | None, **connection: Any
) -> tuple[int, bytes]:
    """Return status and body. `connection` are aiohttp's arguments for TLS and a proxy."""
    timeout = aiohttp.ClientTimeout(total=SECONDS if seconds is None else seconds)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
            session.get(url, headers=headers, allow_redirects=False, **connection) as answer,
        ):
            return answer.status, await answer.read()
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        reason, fix = failures.describe_connection(url, error)
        raise output.UnreadableError(f"{reason}; {fix}. To reach the extender: {_FORWARD}") from None


async def _read_account(cluster: options.ClusterOptions) -> credentials.Account:
    if not (cluster.kubeconfig or kubeconfigs.find()):
        raise output.UnreadableError(f"no kubeconfig, so give the extender's URL: {_FORWARD}")
    return await cluster_access.read_account(cluster)


def _read_token(target: Target) -> str:
    if target.token or not target.token_file:
        return target.token
    try:
        return output.read_text(target.token_file).strip()
    except output.UnreadableError as error:
        raise output.UnreadableError(f"--token-file {error}") from error


def _parse_bearer(headers: Mapping[str, str]) -> str:
    value = {name.lower(): value for name, value in headers.items()}.get("authorization", "")
    scheme, _, token = value.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _build_trust(ca: str) -> ssl.SSLContext:
    try:
        return credentials.build_client_context(ca or None)
    except (OSError, ssl.SSLError) as error:
        raise output.UnreadableError(f"--ca {ca}: {error}") from None


# --- the explanation ----------------------------------------------------------------------------------------

WORSE = frozenset({"unplaceable", "spread", "degraded"})
_COLOURS = {"placeable": "cyan", "compact": "green"}
_MAX_NODES = 20  # of each kind; -o json has all that the extender stored


class Message(msgspec.Struct, frozen=True):
    """A reason as the extender renders it: the code is stable, the message is printed."""

    code: str = ""
    message: str = ""


class Term(Message, frozen=True):
    """A term of a node's score."""

    value: float = 0.0


class HeldRail(msgspec.Struct, frozen=True):
    """A rail that a claim of the pod holds."""

    rail: str = ""
    device: str = ""


class Placement(msgspec.Struct, frozen=True):
    """Placement of the whole gang."""

    summary: Message = Message()


class Node(msgspec.Struct, frozen=True):
    """One node, as it was when the pod was scored."""

    node: str
    score: float | None = None
    leaf: str = ""
    rejection: Message | None = None
    reason: Message | None = None
    rails: Sequence[Message] = ()
    short: Sequence[Message] = ()
    degradations: Sequence[Message] = ()
    reports: Sequence[Message] = ()
    terms: dict[str, Term] = {}

    @property
    def has_room(self) -> bool:
        """True if no filter rejected the node, and it has the devices other than rails that the pod requests."""
        return self.rejection is None and not self.short


class Explanation(msgspec.Struct, frozen=True):
    """The fields of GET /explain that are printed."""

    pod: str
    scheduler: str = ""
    fabric: str = ""
    gang: str = ""
    gang_size: int = 0
    remaining: int = 0
    needs: Sequence[str] = ()
    outcome: str = ""
    why: Sequence[Message] = ()
    leaves_planned: Sequence[str] = ()
    leaves_used: int = 0
    min_leaves: int = 0
    bandwidth: float = 0.0
    bound: float = 0.0
    exact: bool = True
    placement: Placement | None = None
    scored_nodes: int = msgspec.field(default=0, name="candidate_nodes")
    nodes: Sequence[Node] = ()
    devices: Sequence[HeldRail] = ()
    node: str = ""


def read_explanation(body: bytes) -> Explanation:
    """Return the explanation in a response. Raises UnreadableError if it is not one."""
    try:
        return msgspec.json.decode(body, type=Explanation)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise output.UnreadableError(f"the response is not an explanation: {error}") from None


def is_finding(explanation: Explanation) -> bool:
    """True if the pod cannot be placed, or its gang was placed worse than was possible."""
    return explanation.outcome in WORSE


def render(explanation: Explanation) -> Group:
    """Return the output for an explanation."""
    summary = f": {explanation.placement.summary.message}" if explanation.placement else ""
    place = f" on node {explanation.node}" if explanation.node else ""
    outcome = "placed" if place and explanation.outcome == "placeable" else explanation.outcome
    parts: list[RenderableType] = [
        format_line(f"Pod {explanation.pod}{place}: {_format_gang(explanation)}", "bold underline"),
        format_line(f"{outcome}{summary}", _get_style(explanation)),
    ]
    if explanation.leaves_planned and explanation.outcome == "unplaceable":
        parts.append(format_line(f"leaves with free slots: {', '.join(explanation.leaves_planned)}"))
    elif explanation.leaves_planned and not explanation.placement:
        least = f"{explanation.leaves_used}, least possible {explanation.min_leaves}"
        parts.append(format_line(f"leaves planned ({least}): {', '.join(explanation.leaves_planned)}"))
        exactness = "exact" if explanation.exact else "bounded: not every choice was tried"
        bandwidth = f"{explanation.bandwidth:.2f} of at most {explanation.bound:.2f}"
        parts.append(format_line(f"modelled bandwidth {bandwidth}, {exactness}"))
    if explanation.devices:
        parts.append(format_line(describe_held_rails((row.rail, row.device) for row in explanation.devices)))
    when = "when it was planned" if explanation.placement else "because"
    parts += [
        format_line(f"{when}: {why.message}", "yellow" if is_finding(explanation) else "") for why in explanation.why
    ]
    return Group(*parts, *_render_nodes(explanation))


def describe_held_rails(held: Iterable[tuple[str, str]]) -> str:
    """Return the line about rails and devices that claims hold."""
    return f"rails and devices of its claims: {', '.join(f'{rail} {device}'.strip() for rail, device in held)}"


def _format_gang(explanation: Explanation) -> str:
    gang = f", gang {explanation.gang}" if explanation.gang else ""
    if gang and explanation.gang_size:  # not known before the scheduler has requested scores
        gang += f" of {explanation.gang_size}, {explanation.remaining} to place then"
    by = "not requested by" if any(why.code == Code.NOT_ASKED for why in explanation.why) else "requested by"
    needs = f", needs {', '.join(explanation.needs)}" if explanation.needs else ""
    return f"fabric {explanation.fabric}, {by} {explanation.scheduler}{gang}{needs}"


def _get_style(explanation: Explanation) -> str:
    return "bold red" if is_finding(explanation) else _COLOURS.get(explanation.outcome, "")


def _render_nodes(explanation: Explanation) -> list[RenderableType]:
    fitting = [node for node in explanation.nodes if node.has_room]
    refused = [node for node in explanation.nodes if not node.has_room]
    listed = [*fitting[:_MAX_NODES], *refused[:_MAX_NODES]]
    if not listed:
        return []
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title, layout in (("NODE", {}), ("SCORE", {"justify": "right"}), ("LEAF", {}), ("WHY", {"ratio": 1})):
        table.add_column(title, header_style="dim", **layout)
    for node in listed:
        score = f"{node.score:.1f}" if node.has_room and node.score is not None else ""
        table.add_row(
            format_line(f"{node.node} *" if node.node == explanation.node else node.node),
            format_line(score),
            format_line(node.leaf),
            format_line(_explain_node(node), "" if node.has_room else "red"),
        )
    # filters may have rejected nodes for which no score was requested
    total = text.format_count(max(explanation.scored_nodes, len(explanation.nodes)), "node", part=len(listed))
    here = f"; * {explanation.node} runs the pod" if any(node.node == explanation.node for node in listed) else ""
    return [Text(), table, format_line(f"{total}: {len(fitting)} fit, {len(refused)} rejected{here}", "dim")]


def _explain_node(node: Node) -> str:
    """Return what is short and who uses it, then, for a node that fits, the reason of each score term."""
    shortages = [*node.rails, *node.short]
    if not node.has_room:
        return _join([*(shortages or filter(None, [node.rejection])), *node.reports])
    reasons = [*shortages, *node.degradations, *node.reports, *node.terms.values()]
    return _join(reasons) or (node.reason.message if node.reason else "")


def _join(reasons: Sequence[Message]) -> str:
    return "; ".join(reason.message for reason in reasons)


def format_line(text: str, style: str = "") -> Text:
    """Return a line of text from a cluster."""
    return Text(output.escape_controls(text), style=style)


_PIPED_WIDTH = 160  # columns without a terminal


def print_explanation(document: object, text: Group, form: str) -> None:
    """Print an explanation as a document, or as text for people."""
    if formats.is_document(form):
        formats.print_document(document, form)
        return
    console = Console(highlight=False)
    is_piped = not console.is_terminal
    if is_piped:
        console.width = _PIPED_WIDTH
    console.print(text, soft_wrap=is_piped)  # a program reads whole lines, so only the table is folded
