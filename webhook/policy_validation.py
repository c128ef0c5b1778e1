"""POST /validate/policy: rejects a ConfigMap with an invalid policy, and lists all its errors.

`railwright.cluster.policies` finds the errors. If the webhook fails or times out, the API server admits the object
unchecked (`failurePolicy: Ignore`). An unchecked policy is harmless, because an invalid one never takes effect.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from railwright.cluster import client as clients
from railwright.cluster import installed_names, policies, watch_wire
from railwright.fabric import names, views
from railwright.fabric import text as texts
from railwright.fabric.lint import engine
from railwright.fabric.policy import model, shortcomings
from railwright.fabric.workloads import fabric_users
from webhook import reviews

_DECODER = msgspec.json.Decoder(reviews.Review[views.ConfigMap])
_KIND = reviews.GroupVersionKind("", "v1", "ConfigMap")
_BAD_REQUEST = 400
_MAX_ERRORS = 50  # in a message; more is unreadable in a terminal
_METADATA = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}  # a kilobyte for each pod
_MAX_LABELLED = 2000  # pods that are read

_Request = reviews.Request[views.ConfigMap]


class ValidatedPolicy(NamedTuple):
    """The answer to a review, and the allowed policy; None if it is rejected, or the review is about another object."""

    answer: reviews.Answer
    document: model.PolicyDocument | None = None


def answer_review(body: bytes, cluster: shortcomings.Cluster = shortcomings.NOTHING_KNOWN) -> ValidatedPolicy:
    """Answer a review. A valid policy is allowed, with warnings about `env` and about what the cluster lacks.

    Raises reviews.MalformedError for anything but a review of a ConfigMap.
    """
    request = reviews.decode_request(_DECODER, body, _KIND)
    if request.object is None or not _writes_policy(request):
        return ValidatedPolicy(reviews.Answer().address_to(request))
    text = (request.object.data or {}).get(names.POLICY_KEY)
    if text is None:
        return _build_rejection(request, f"key {names.POLICY_KEY} is missing in data; put the policy there")
    result = policies.read(text)
    if isinstance(result, policies.RejectedPolicy):
        return _build_rejection(request, _format_errors(result.errors))
    missing = shortcomings.find_shortcomings(result.document, cluster)
    warnings = (*missing, *engine.list_policy_warnings(result.document))
    return ValidatedPolicy(reviews.Answer(warnings=warnings).address_to(request), result.document)


async def list_labelled_pods(client: clients.Client, labels: Sequence[str]) -> fabric_users.LabelledPods:
    """Return the metadata of unfinished pods whose fabric label has one of these values. Raises ClusterError."""
    query = {
        "labelSelector": f"{names.FABRIC} in ({','.join(labels)})",
        "fieldSelector": "status.phase!=Succeeded,status.phase!=Failed",
    }
    pods = await watch_wire.list_objects(
        client, "/api/v1/pods", views.Pod, query, headers=_METADATA, most=_MAX_LABELLED
    )
    return fabric_users.LabelledPods(pods, is_complete=len(pods) < _MAX_LABELLED)


def _writes_policy(request: _Request) -> bool:
    """True if the request writes the policy's ConfigMap. The webhook configuration may select other objects too.

    A ConfigMap that is being deleted does not count: the update that removes its finalizers must succeed.
    """
    if request.object is None or request.object.metadata.deletion_timestamp:
        return False
    name = request.name or request.object.metadata.name
    return (
        request.namespace == installed_names.NAMESPACE
        and name == installed_names.POLICY
        and request.operation in {"CREATE", "UPDATE"}
    )


def _format_errors(errors: Sequence[policies.PolicyError]) -> str:
    """Return one line for each of the first errors, and a line with the number of the others."""
    lines = [f"{texts.format_count(len(errors), 'error')} in {names.POLICY_KEY}:", *map(str, errors[:_MAX_ERRORS])]
    if len(errors) > _MAX_ERRORS:
        lines.append(f"and {len(errors) - _MAX_ERRORS} more; correct these first")
    return "\n".join(lines)


def _build_rejection(request: _Request, problem: str) -> ValidatedPolicy:
    message = f"ConfigMap {installed_names.NAMESPACE}/{installed_names.POLICY}: {problem}"
    answer = reviews.Answer(allowed=False, code=_BAD_REQUEST, message=message, reason="policy")
    return ValidatedPolicy(answer.address_to(request))
