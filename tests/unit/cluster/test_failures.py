"""Message about a request that an API server rejects: the exact right, who grants it, and how to check it."""

import pytest

from railwright.cluster import errors, failures


@pytest.mark.parametrize(
    ("method", "path", "right", "fix"),
    [
        (
            "GET",
            "/api/v1/pods",
            "list pods in all namespaces",
            "a ClusterRole with list on pods (kubectl auth can-i list pods -A), or",
        ),
        ("GET", "/api/v1/nodes?limit=5", "list nodes", "with list on nodes (kubectl auth can-i list nodes)"),
        (
            "GET",
            "/api/v1/namespaces/railwright-system/configmaps/railwright-policy",
            "get configmaps railwright-policy in namespace railwright-system",
            "get on configmaps (kubectl auth can-i get configmaps/railwright-policy -n railwright-system)",
        ),
        (
            "POST",
            "/api/v1/namespaces/pods/pods?dryRun=All",
            "create pods in namespace pods",
            "a Role in namespace pods with create on pods (kubectl auth can-i create pods -n pods)",
        ),
        (
            "PUT",
            "/apis/coordination.k8s.io/v1/namespaces/x/leases/l",
            "update leases.coordination.k8s.io l in namespace x",
            "(kubectl auth can-i update leases.coordination.k8s.io/l -n x)",
        ),
        (
            "PATCH",
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/railwright",
            "patch mutatingwebhookconfigurations.admissionregistration.k8s.io railwright",
            "a ClusterRole with patch on mutatingwebhookconfigurations.admissionregistration.k8s.io",
        ),
        (
            "GET",
            "/api/v1/namespaces/railwright-system/services/railwright-extender/proxy",
            "get services/proxy railwright-extender in namespace railwright-system",
            "kubectl auth can-i get services/railwright-extender --subresource=proxy -n railwright-system",
        ),
        ("GET", "/api/v1/namespaces/prod", "get namespaces prod", "a ClusterRole with get on namespaces"),
        ("GET", "/version", "read this", "a ClusterRole with this right"),
    ],
)  # fmt: skip
def test_a_forbidden_request_names_verb_resource_namespace_and_who_grants_it(method, path, right, fix):
    response = errors.ErrorResponse(403, "Forbidden", 'User "dev" cannot', path, method=method)
    sentence = failures.build_api_error(response).sentence
    assert sentence.startswith(
        f'you may not {right} (403 Forbidden: User "dev" cannot); ask an administrator of the cluster'
    )
    assert fix in sentence
    assert sentence.endswith(", or use an account that has it")
    assert "/api/" not in sentence
    assert "/apis/" not in sentence


def test_the_error_page_of_a_proxy_is_not_quoted():
    response = errors.ErrorResponse(403, "Forbidden", "<html>x</html>", "/api/v1/nodes", foreign=True)
    sentence = failures.build_api_error(response).sentence
    assert sentence.startswith("you may not list nodes (403 Forbidden); ask")
