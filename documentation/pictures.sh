#!/bin/sh
# Draw docs/check.svg and docs/dashboard.png from real output.
set -e
cd "$(dirname "$0")/.."
RAILWRIGHT_PICTURES=1 .venv/bin/pytest --quiet tests/service/test_dashboard_page.py -k picture_of_the_documentation
RAILWRIGHT_PICTURES=1 .venv/bin/pytest --quiet tests/service/test_check.py -k the_picture
