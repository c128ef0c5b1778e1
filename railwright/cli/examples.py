"""Examples of the commands, printed at the end of their help. tests/unit/cli/test_completion.py requires them."""

from collections.abc import Mapping

EXAMPLES: Mapping[str, str] = {
    "certs": "railwright certs issue --secrets",
    "check": "kubectl railwright check --wait",
    "completion": "source <(railwright completion bash)",
    "dashboard": "railwright dashboard --open",
    "demo": "railwright demo --serve",
    "explain": "railwright explain job.yaml --policy policy.yaml",
    "fabric": "kubectl railwright fabric --dead",
    "gangs": "kubectl railwright gangs -n prod -o wide",
    "lint": "railwright lint job.yaml --policy policy.yaml",
    "policy": "railwright policy validate policy.yaml",
    "simulate": "railwright simulate --shape coreweave --jobs 500",
    "verify": "kubectl logs -l volcano.sh/job-name=train --prefix --tail=-1 | railwright verify log -",
}
