"""Message about a request that an API server rejects: the exact right, and how to check it."""

import pytest

from railwright.cluster import errors, failures


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        ("GET", "/api/v1/pods", "list pods -A"),
        ("GET", "/api/v1/nodes?limit=5", "list nodes -A"),
        ("GET", "/api/v1/namespaces/own/configmaps/policy", "get configmaps/policy -n own"),
        ("POST", "/api/v1/namespaces/pods/pods?dryRun=All", "create pods -n pods"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/x/leases/l", "update leases.coordination.k8s.io/l -n x"),
        ("PATCH", "/apis/apps/v1/deployments/railwright", "patch deployments.apps/railwright -A"),
        ("GET", "/api/v1/namespaces/own/services/x/proxy", "get services/x --subresource=proxy -n own"),
        ("GET", "/api/v1/namespaces/prod", "get namespaces/prod -A"),
    ],
)
def test_a_forbidden_request_names_the_right_and_how_to_check_it(method, path, right):
    response = errors.ErrorResponse(403, "Forbidden", 'User "dev" cannot', path, method=method)
    assert failures.build_api_error(response).sentence == (
        f'you may not {right} (403 Forbidden: User "dev" cannot); ask an administrator of the cluster for this right '
        f"(kubectl auth can-i {right}), or use an account that has it"
    )


def test_a_forbidden_path_that_is_no_resource_has_no_name():
    sentence = failures.build_api_error(errors.ErrorResponse(403, "Forbidden", "no", "/version")).sentence
    assert sentence.startswith(
        "you may not read this (403 Forbidden: no); ask an administrator of the cluster for this"
    )


def test_the_error_page_of_a_proxy_is_not_quoted():
    response = errors.ErrorResponse(403, "Forbidden", "<html>x</html>", "/api/v1/nodes", foreign=True)
    sentence = failures.build_api_error(response).sentence
    assert sentence.startswith("you may not list nodes -A (403 Forbidden); ask")
