#!/usr/bin/env bash
# Runs the observers' tests on 64-bit Arm, under an emulator: with an Arm Python and Arm wheels, the kernels
# cross-compiled as the wheels' are. Two minutes. (onnxruntime's wheel does not load in the emulator of Debian 12, so
# this is the counters alone.)
#
#     tests/platforms/aarch64.sh WORK [pytest options]
#
# Needs Debian with the packages gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user, and a package index for
# pip. What is downloaded is unpacked in the folder WORK and nothing is installed. It says whether the numbers are
# right, nothing of speed.
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: $0 WORK [pytest options]" >&2; exit 2; }
checkout=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1"
work=$(cd "$1" && pwd)
shift
python=3.11

# An apt of its own, which knows of Arm alone.
if [ ! -x "$work/system/usr/bin/python$python" ]; then
    mkdir -p "$work"/apt/{state/lists/partial,cache/archives/partial} "$work/system"
    touch "$work/apt/status"
    cat > "$work/apt/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures "arm64";
Dir::State "$work/apt/state";
Dir::State::status "$work/apt/status";
Dir::Cache "$work/apt/cache";
END
    export APT_CONFIG="$work/apt/apt.conf"
    apt-get update -q
    apt-get install -q -y --download-only --no-install-recommends "python$python" "libpython$python-dev" libstdc++6
    for package in "$work"/apt/cache/archives/*.deb; do dpkg -x "$package" "$work/system"; done
    unset APT_CONFIG
fi

if [ ! -d "$work/site/onnx_ir" ]; then
    platforms=(--platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux_2_26_aarch64)
    platforms+=(--platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64)
    python3 -m pip install -q --target "$work/site" --only-binary=:all: "${platforms[@]}" --python-version "$python" \
        --implementation cp --abi "cp${python/./}" --abi abi3 --abi none click hypothesis jinja2 lazy-loader ml_dtypes msgspec \
        numpy onnx onnx-ir pytest pyyaml rich threadpoolctl
fi

# The packages as the wheel lays them out.
root="$work/root/qprof_onnx"
rm -rf "$work/root" "$work/tests"
mkdir -p "$root"
cp -r "$checkout"/quantizer/api/* "$root"
cp -r "$checkout"/{cli,configs,profiles,quantizer} "$root"
cp -r "$checkout/tests" "$work/tests"
rm -f "$work/tests/conftest.py" "$root"/profiles/observers/*.so "$root"/quantizer/numerics/*.so
mkdir -p "$work/root/qprof_onnx-0.dist-info"
printf 'Metadata-Version: 2.1\nName: qprof-onnx\nVersion: 0\n' > "$work/root/qprof_onnx-0.dist-info/METADATA"
include="$work/system/usr/include"
for kernel in profiles/observers/_counter profiles/observers/_channels quantizer/numerics/_blocks; do
    aarch64-linux-gnu-gcc -O3 -g0 -ffp-contract=off -DPy_LIMITED_API=0x030b0000 -fPIC -shared \
        -I"$include/python$python" -I"$include" \
        -I"$include/aarch64-linux-gnu" -o "$root/$kernel.abi3.so" "$root/$kernel.c"
done

cat > "$work/python" <<END
#!/bin/sh
exec qemu-aarch64 -L "$work/system" -E PYTHONPATH="$work/root:$work/site" -E PYTHONDONTWRITEBYTECODE=1 \\
    "$work/system/usr/bin/python$python" "\$@"
END
chmod +x "$work/python"
echo "import sys; sys.executable = '$work/python'  # for tests that start a Python" > "$work/tests/conftest.py"

"$work/python" -c '
import platform
from qprof_onnx.profiles.observers import channel_counter, histogram_counter
from qprof_onnx.quantizer.numerics import block_scales
print(platform.machine(), *histogram_counter.implementations())
assert histogram_counter.IMPLEMENTATION == channel_counter.IMPLEMENTATION == "neon"
assert block_scales.LEVELS == ("plain",)'

(cd "$work/tests/profiles" && "$work/python" -m pytest -q --import-mode=importlib -p no:cacheprovider --rootdir .. \
    --ignore observers/test_platforms.py observers records/test_channel_statistics.py records/test_histogram.py "$@")
