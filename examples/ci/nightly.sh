#!/usr/bin/env bash
# A nightly calibration job: profiles the model on the newest data, and compares with the committed profile
# that the deployed int8 model was made from.
#
#     examples/ci/nightly.sh MODEL.onnx DATA PROFILE.yaml OUT
#
# Exit code 0: nothing drifted. 1: the drift exceeds a limit below; look at the data first: what is wrong with
# them must not become the new normal. 2: an input is unusable, such as a missing file or a profile of another model.
# PREPROCESS in the environment: how samples are made of pictures, texts and the like, as for --preprocess.
# OUT/tonight.yaml can be merged with the profiles of other nights ('qprof merge') into the next committed one.
# OUT/tonight.samples.npz beside it holds samples of that night as they are, for quantizing from it: do not publish it.
set -euo pipefail
[ $# -eq 4 ] || { echo "usage: $0 MODEL.onnx DATA PROFILE.yaml OUT" >&2; exit 2; }
model=$1 data=$2 committed=$3 out=$4
[ -f "$committed" ] || {
  echo "$committed: there is no such file; make it once: qprof dump-profile $model --data $data -o $committed" >&2
  exit 2
}

# These limits suit tensors of thousands of elements and more. To find your own, compare the profiles of two
# ordinary nights, and stay well above their differences. None is on the range alone (--max-range-growth): one
# value of one sample widens it in an ordinary night. --max-drifted-parts 0 fails where a column of a table, a colour, a
# class or a band of a sound changed, though the tensors are near enough: of 30 samples a night or more, not by chance.
limits=(--max-clipping 0.01 --max-js-distance 0.3 --max-non-finite 0 --max-drifted-parts 0)
options=("${limits[@]}" --model "$model")  # the model: tensors that no plan needs are left out

mkdir -p "$out"
qprof dump-profile "$model" --data "$data" ${PREPROCESS:+--preprocess "$PREPROCESS"} \
  -o "$out/tonight.yaml" > "$out/dump-profile.txt" 2>&1 || {
  code=$?
  cat "$out/dump-profile.txt" >&2
  exit "$code"
}  # what it advises is for data that did not drift
code=0
qprof diff "$committed" "$out/tonight.yaml" "${options[@]}" --json > "$out/drift.json" || code=$?
[ "$code" -le 1 ] || exit "$code"  # not drift but an error, which was reported already
qprof diff "$committed" "$out/tonight.yaml" "${options[@]}"
