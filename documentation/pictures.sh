#!/bin/sh
# Draw docs/demo.svg, docs/explain.svg, docs/check.svg and docs/dashboard.png from real output.
set -e
cd "$(dirname "$0")/.."
example=manifests/examples/360-infiniband
mkdir -p build
.venv/bin/railwright demo --svg docs/demo.svg > build/demo.txt
.venv/bin/railwright explain $example/job.yaml --policy $example/policy.yaml --svg docs/explain.svg > build/explain.txt
RAILWRIGHT_PICTURES=1 .venv/bin/pytest --quiet tests/service/test_dashboard_page.py -k picture_of_the_documentation
RAILWRIGHT_PICTURES=1 .venv/bin/pytest --quiet tests/service/test_check.py -k the_picture
