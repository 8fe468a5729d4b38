#!/bin/sh
# Tests, steps, fits, memory and processes on a CUDA device, in at most eight minutes:
#     sh benchmarks/cuda.sh [options of cuda_device.py]
# in an environment with the package's [test] extra and torch's build for CUDA, and
# DPGENERATIVE_DATA naming the folder of the tables (benchmarks/README.rst).
cd "$(dirname "$0")/.." || exit 1
command -v nvidia-smi >/dev/null && nvidia-smi
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
exec python benchmarks/cuda_device.py "$@"
