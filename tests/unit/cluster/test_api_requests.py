"""Requests to the API server: pages of lists, and the message about a missing right."""

import msgspec
import pytest

from railwright.cluster import errors, resources, watch_wire
from webhook import policy_validation


class Client:
    """Answers every request with one body."""

    host = "http://127.0.0.1"

    def __init__(self, body: bytes) -> None:
        self.body = body

    async def get(self, *_: object) -> bytes:
        return self.body


@pytest.mark.parametrize("page", [b"<html>", b"[]", b'{"items": 7}', b'{"items": []} more', b"\xff"])
async def test_a_page_without_a_list_is_reported_as_the_response_of_another_program(page):
    with pytest.raises(errors.ForeignError, match="not as a Kubernetes API server does"):
        await watch_wire.list_objects(Client(page), "/nodes", msgspec.Raw)


async def test_an_object_that_cannot_be_decoded_is_named_by_its_kind():
    client, kind = Client(b'{"metadata": {}, "items": [{"metadata": {"name": 7}}]}'), resources.NODES
    with pytest.raises(errors.ForeignError) as raised:
        await watch_wire.list_objects(client, kind.path, kind.view)
    assert raised.value.sentence == (
        "one of the nodes cannot be decoded: Expected `str`, got `int` - at `$.metadata.name`; correct the "
        "object; `kubectl get nodes -A -o json` shows all"
    )


@pytest.mark.parametrize(("limit", "is_complete"), [(1, False), (2, True)])
async def test_a_limited_number_of_labelled_pods_is_read(limit, is_complete, monkeypatch):
    monkeypatch.setattr(policy_validation, "_MAX_LABELLED", limit)
    page = b'{"metadata": {"continue": "%b"}, "items": [{"metadata": {"name": "a"}}]}'
    labelled = await policy_validation.list_labelled_pods(Client(page % (b"" if is_complete else b"x")), ["roce"])
    assert ([pod.metadata.name for pod in labelled.pods], labelled.is_complete) == (["a"], is_complete)


def test_the_first_and_later_list_requests_decode_the_same_uid_and_version():
    """Views decode the first list, decode_identified decodes later ones, and the identities of both are compared."""
    raw = b'{"metadata":{"namespace":"n","name":"a","uid":"u","resourceVersion":"7"}}'
    identity = watch_wire.decode_identified(raw).metadata
    for kind in (kind for kind in vars(resources).values() if isinstance(kind, resources.Kind)):
        meta = msgspec.json.decode(raw, type=kind.view).metadata
        found = meta.namespace, meta.name, meta.uid, meta.resource_version
        assert found == msgspec.structs.astuple(identity), kind.name


# --- a request that is rejected: the exact right, who grants it, and how to check it --------------------------


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        ("GET", "/api/v1/pods", "list pods -A"),
        ("GET", "/api/v1/nodes?limit=5", "list nodes -A"),
        ("GET", "/api/v1/namespaces/own/configmaps/policy", "get configmaps/policy -n own"),
        ("POST", "/api/v1/namespaces/pods/pods?dryRun=All", "create pods -n pods"),
        ("PUT", "/apis/apps/v1/namespaces/x/deployments/d", "update deployments.apps/d -n x"),
        ("PATCH", "/apis/apps/v1/deployments/railwright", "patch deployments.apps/railwright -A"),
        ("GET", "/api/v1/namespaces/own/services/x/proxy", "get services/x --subresource=proxy -n own"),
        ("GET", "/api/v1/namespaces/prod", "get namespaces/prod -A"),
    ],
)
def test_a_forbidden_request_names_the_right_and_how_to_check_it(method, path, right):
    role = "Role" if " -n " in right else "ClusterRole"
    error = errors.ApiError(403, "Forbidden", 'User "dev" cannot', path, method=method)
    assert error.sentence == (
        f'you may not {right} (403 Forbidden: User "dev" cannot); ask an administrator of the cluster for a {role} '
        f"with this right (kubectl auth can-i {right}), or use an account that has it"
    )


@pytest.mark.parametrize(
    ("message", "quoted"),
    [
        ('nodes is forbidden: User "system:anonymous" cannot list resource "nodes"',) * 2,
        ('forbidden: User "system:anonymous" cannot get path "/api/v1"', ""),
    ],
)
def test_a_request_without_credentials_asks_for_a_login_and_not_for_a_right(message, quoted):
    """Of a kubeconfig without the user of its context, or whose credential plugin gives nothing."""
    assert errors.ApiError(403, "Forbidden", message, "/api/v1/nodes").sentence == (
        f"the API server answers 403{quoted and f': {quoted}'}; the credentials are missing, expired, or those of "
        "another cluster: log in again, or correct the kubeconfig"
    )


def test_a_forbidden_non_resource_path_names_no_permission():
    sentence = errors.ApiError(403, "Forbidden", "no", "/version").sentence
    assert sentence.startswith(
        "you may not read this (403 Forbidden: no); ask an administrator of the cluster for a ClusterRole with this"
    )
