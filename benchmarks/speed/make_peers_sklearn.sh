#!/usr/bin/env bash
# Makes the virtual environment of scikit-learn, whose randomized_svd ours is compared with, from PyPI packages only.
#
#   bash benchmarks/speed/make_peers_sklearn.sh
#
# PEERS_DIR  where to put it (default: .venvs beside this script)
# PYTHON     the Python to make it with (default: python3.11)
#
# Running it again changes nothing when all is in place.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
peers=${PEERS_DIR:-$here/.venvs}
python=${PYTHON:-python3.11}
wanted=$(printf "%s\n" "scikit-learn==1.7.2" "scipy==1.16.3" "numpy==2.3.5") # pinned: their speed is part of what is measured

venv=$peers/sklearn
if [[ -x $venv/bin/python && -f $venv/wanted.txt && $(<"$venv/wanted.txt") == "$wanted" ]]; then
    echo "sklearn: in place in $venv"
    exit 0
fi
if [[ -e $venv && ! -f $venv/pyvenv.cfg ]]; then
    echo "sklearn: $venv exists and is no virtual environment" >&2
    exit 1
fi
mkdir -p "$peers"
"$python" -m venv --clear "$venv"
"$venv/bin/python" -m pip install --quiet -r <(printf "%s\n" "$wanted")
printf '%s\n' "$wanted" >"$venv/wanted.txt" # written last: an interrupted run starts anew
echo "sklearn: made in $venv"
