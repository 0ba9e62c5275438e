#!/usr/bin/env bash
# Makes the virtual environment of SARDINE, with which the environments are compared, from PyPI packages only.
#
#   bash benchmarks/speed/make_peers_sardine.sh
#
# PEERS_DIR  where to put it (default: .venvs beside this script)
# PYTHON     the Python to make it with (default: python3.11)
#
# Running it again changes nothing when all is in place.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
peers=${PEERS_DIR:-$here/.venvs}
python=${PYTHON:-python3.11}
venv=$peers/sardine

# Its replay buffers import PyTorch, which the simulator does not need: installed without declared dependencies, and what
# it does import is listed here. Gymnasium 0.29 is the last that it was made for.
itself="sardine-rec==1.0.8"
needs=("numpy==1.26.4" "gymnasium==0.29.1")
wanted=$(printf '%s\n' "$itself" "${needs[@]}")

if [[ -x $venv/bin/python && -f $venv/wanted.txt && $(<"$venv/wanted.txt") == "$wanted" ]]; then
    echo "sardine: in place in $venv"
    exit 0
fi
if [[ -e $venv && ! -f $venv/pyvenv.cfg ]]; then
    echo "sardine: $venv exists and is no virtual environment" >&2
    exit 1
fi
mkdir -p "$peers"
"$python" -m venv --clear "$venv"
"$venv/bin/python" -m pip install --quiet "${needs[@]}"
"$venv/bin/python" -m pip install --quiet --no-deps "$itself"
printf '%s\n' "$wanted" >"$venv/wanted.txt" # written last: an interrupted run starts anew
echo "sardine: made in $venv"
