#!/bin/sh
# Find the interpreters of this machine that railwright runs on: 3.11 to 3.14, the image's first. One line each: version
# and path. With a version as argument: the path of that one, or nothing and exit 1. With "shipped": the image's version.
# One counts when it runs and can make an environment: a shim of pyenv may refuse, Debian's may lack ensurepip.
cd "$(dirname "$0")/../.." || exit 1
shipped=$(sed -n 's/^FROM .*python:\([0-9]*\.[0-9]*\).*/\1/p' Containerfile | head -n 1)
# Prints the path of the interpreter itself: the candidate may be a script that looks for one.
PROBE='import ctypes, ensurepip, ssl, sys, venv
sys.exit("%d.%d" % sys.version_info[:2] != sys.argv[1] or print(sys.executable))'

find_one() {
	for candidate in "$(command -v "python$1")" "$(command -v python3)" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python \
		"${RUNNER_TOOL_CACHE:-/opt/hostedtoolcache}"/Python/"$1".*/*/bin/python \
		"$HOME"/.local/share/uv/python/cpython-"$1".*/bin/python /usr/local/bin/python"$1" /usr/bin/python"$1"; do
		case "$candidate" in */shims/*) continue ;; esac # pyenv's: slow, and what they lead to is looked at too
		[ -x "$candidate" ] || continue
		"$candidate" -c "$PROBE" "$1" 2>/dev/null && return 0
	done
	return 1
}

if [ "$1" = shipped ]; then
	echo "$shipped"
	exit
elif [ -n "$1" ]; then
	find_one "$1"
	exit
fi
for version in "$shipped" 3.14 3.13 3.12 3.11; do
	case " $done " in *" $version "*) continue ;; esac
	done="$done $version"
	path=$(find_one "$version") && echo "$version $path"
done
exit 0
