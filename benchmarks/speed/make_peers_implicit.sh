#!/usr/bin/env bash
# Makes the virtual environment of implicit, whose item neighbourhoods and BPR ours are compared with, from PyPI packages only.
#
#   bash benchmarks/speed/make_peers_implicit.sh
#
# PEERS_DIR  where to put it (default: .venvs beside this script)
# PYTHON     the Python to make it with (default: python3.11)
#
# Running it again changes nothing when all is in place.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
peers=${PEERS_DIR:-$here/.venvs}
python=${PYTHON:-python3.11}
wanted="implicit==0.7.3" # the release that is compared; numpy and scipy as it asks for

venv=$peers/implicit
if [[ -x $venv/bin/python && -f $venv/wanted.txt && $(<"$venv/wanted.txt") == "$wanted" ]]; then
    echo "implicit: in place in $venv"
    exit 0
fi
if [[ -e $venv && ! -f $venv/pyvenv.cfg ]]; then
    echo "implicit: $venv exists and is no virtual environment" >&2
    exit 1
fi
mkdir -p "$peers"
"$python" -m venv --clear "$venv"
"$venv/bin/python" -m pip install --quiet "$wanted"
printf '%s\n' "$wanted" >"$venv/wanted.txt" # written last: an interrupted run starts anew
echo "implicit: made in $venv"
