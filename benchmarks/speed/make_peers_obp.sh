#!/usr/bin/env bash
# Makes the virtual environment of obp, with which our estimators are compared, from PyPI packages only.
#
#   bash benchmarks/speed/make_peers_obp.sh
#
# PEERS_DIR  where to put it (default: .venvs beside this script)
# PYTHON     the Python to make it with (default: python3.11)
#
# Running it again changes nothing when all is in place.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
peers=${PEERS_DIR:-$here/.venvs}
python=${PYTHON:-python3.11}
venv=$peers/obp

# obp pins nothing that a current Python can install together, and imports PyTorch and seaborn for what is not timed here:
# so it is installed without its declared dependencies (peer_obp.py puts empty modules in place of those two).
wanted=$(printf '%s\n' "obp==0.4.1" "numpy==1.26.4" "pandas==2.2.3" "scikit-learn==1.5.2" "scipy==1.13.1" "matplotlib" "mypy-extensions" "pyyaml" "tqdm")

if [[ -x $venv/bin/python && -f $venv/wanted.txt && $(<"$venv/wanted.txt") == "$wanted" ]]; then
    echo "obp: in place in $venv"
    exit 0
fi
if [[ -e $venv && ! -f $venv/pyvenv.cfg ]]; then
    echo "obp: $venv exists and is no virtual environment" >&2
    exit 1
fi
mkdir -p "$peers"
"$python" -m venv --clear "$venv"
printf '%s\n' "$wanted" | tail -n +2 >"$venv/needs.txt"
"$venv/bin/python" -m pip install --quiet -r "$venv/needs.txt"
"$venv/bin/python" -m pip install --quiet --no-deps "obp==0.4.1"
printf '%s\n' "$wanted" >"$venv/wanted.txt" # written last: an interrupted run starts anew
echo "obp: made in $venv"
