#!/usr/bin/env bash
# Makes the virtual environment of surprise and cornac, with which factorisation is compared, from PyPI packages only.
#
#   bash benchmarks/speed/make_peers_mf.sh
#
# PEERS_DIR  where to put it (default: .venvs beside this script)
# PYTHON     the Python to make it with (default: python3.11)
#
# Running it again changes nothing when all is in place. A peer that does not install is left out, and said so.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
peers=${PEERS_DIR:-$here/.venvs}
python=${PYTHON:-python3.11}
venv=$peers/mf
wanted=$(printf '%s\n' "scikit-surprise==1.1.5" "cornac==3.0.1")

if [[ -x $venv/bin/python && -f $venv/wanted.txt && $(<"$venv/wanted.txt") == "$wanted" ]]; then
    echo "mf: in place in $venv"
    exit 0
fi
if [[ -e $venv && ! -f $venv/pyvenv.cfg ]]; then
    echo "mf: $venv exists and is no virtual environment" >&2
    exit 1
fi
mkdir -p "$peers"
"$python" -m venv --clear "$venv"
while read -r package; do
    "$venv/bin/python" -m pip install --quiet "$package" || echo "mf: $package does not install here" >&2
done <<<"$wanted"
printf '%s\n' "$wanted" >"$venv/wanted.txt" # written last: an interrupted run starts anew
echo "mf: made in $venv"
