#!/usr/bin/env bash
# Makes the virtual environments of the libraries that ours is compared with, from PyPI packages only.
#
#   bash benchmarks/speed/make_peers.sh [recogym] [sardine] [implicit] [sklearn] [envpool] [gymnax]     all where none is named
#
# PEERS_DIR  where to put them (default: .venvs beside this script)
# PYTHON     the Python to make them with (default: python3.11)
#
# Running it again changes nothing when all is in place. Versions are pinned: their speed is part of what is measured.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
peers=${PEERS_DIR:-$here/.venvs}
python=${PYTHON:-python3.11}

# What is installed as pip resolves it, and what is installed alone, without the dependencies that it declares.
declare -A needs alone
# RecoGym declares unbounded PyTorch, TensorFlow and Jupyter, which its simulator does not need and its agents need only in
# part: what it does import is listed here. gym 0.26.2 is the last; scipy 1.11.4 the last with scipy.rand, which its agents
# import, numpy 1.26.4 the last that this scipy accepts; tqdm 4.66 the first that TQDM_DISABLE silences. scikit-learn and
# matplotlib are imported, not called. 0.1.3.0 is the last release (2019), the one that is compared.
needs[recogym]="gym==0.26.2 scipy==1.11.4 numpy==1.26.4 pandas==3.0.6 numba==0.68.1 scikit-learn matplotlib tqdm>=4.66"
alone[recogym]="recogym==0.1.3.0"
# SARDINE's replay buffers import PyTorch, which the simulator does not need. Gymnasium 0.29 is the last it was made for.
needs[sardine]="numpy==1.26.4 gymnasium==0.29.1"
alone[sardine]="sardine-rec==1.0.8"
needs[implicit]="implicit==0.7.3"
needs[sklearn]="scikit-learn==1.7.2 scipy==1.16.3 numpy==2.3.5"
needs[envpool]="envpool==1.2.5 gymnasium==1.4.0 numpy==2.4.6"
# six is imported and not declared.
needs[gymnax]="gymnax==1.0.1 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6 six"

make() {
    local name=$1 venv=$peers/$1 wanted="${needs[$1]} ${alone[$1]:-}"
    if [[ -x $venv/bin/python && -f $venv/wanted.txt && $(<"$venv/wanted.txt") == "$wanted" ]]; then
        echo "$name: in place in $venv"
        return
    fi
    if [[ -e $venv && ! -f $venv/pyvenv.cfg ]]; then
        echo "$name: $venv exists and is no virtual environment" >&2
        return 1
    fi
    "$python" -m venv --clear "$venv"
    # shellcheck disable=SC2086  # a list of packages
    "$venv/bin/python" -m pip install --quiet ${needs[$name]}
    for package in ${alone[$name]:-}; do
        "$venv/bin/python" -m pip install --quiet --no-deps "$package"
    done
    printf '%s\n' "$wanted" >"$venv/wanted.txt" # written last: an interrupted run starts anew
    echo "$name: made in $venv"
}

[[ $# -gt 0 ]] || set -- recogym sardine implicit sklearn envpool gymnax
for name in "$@"; do
    if [[ -z ${needs[$name]:-} ]]; then
        echo "make_peers.sh: no peer $name. Choose of recogym, sardine, implicit, sklearn, envpool, gymnax." >&2
        exit 2
    fi
    mkdir -p "$peers"
    make "$name"
done
