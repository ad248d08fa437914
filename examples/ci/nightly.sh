#!/usr/bin/env bash
# A nightly job: profiles the model on the newest data, and compares the profile with the committed one, from which
# the deployed int8 model was made.
#
#     examples/ci/nightly.sh MODEL.onnx DATA PROFILE.yaml OUT
#
# Exit code 0: nothing drifted. 1: the drift exceeds a limit below; check the data first: faulty data must not become
# the new normal. 2: an input is unusable, such as a missing file or a profile of another model.
# PREPROCESS in the environment: the recipe for pictures, texts or sound, as for --preprocess.
# OUT/tonight.yaml can be merged with the profiles of other nights ('qprof merge') into the next committed one.
# OUT/tonight.samples.npz beside it contains raw samples of that night, for quantizing from it: do not publish it.
set -euo pipefail
[ $# -eq 4 ] || { echo "usage: $0 MODEL.onnx DATA PROFILE.yaml OUT" >&2; exit 2; }
model=$1 data=$2 committed=$3 out=$4
[ -f "$committed" ] || {
  echo "$committed: no such file; make it once: qprof dump-profile $model --data $data -o $committed" >&2
  exit 2
}

# These limits suit tensors of thousands of elements and more. To find your own, compare the profiles of two
# ordinary nights, and stay well above their differences. There is no limit on the range (--max-range-growth), because
# a single value can widen it in an ordinary night.
limits=(--max-clipping 0.01 --max-js-distance 0.3 --max-non-finite 0)
options=("${limits[@]}" --model "$model")  # with the model, tensors that no plan needs are skipped

mkdir -p "$out"
qprof dump-profile "$model" --data "$data" ${PREPROCESS:+--preprocess "$PREPROCESS"} \
  -o "$out/tonight.yaml" > "$out/dump-profile.txt" 2>&1 || {
  code=$?
  cat "$out/dump-profile.txt" >&2
  exit "$code"
}  # its advice is for data that did not drift
code=0
qprof diff "$committed" "$out/tonight.yaml" "${options[@]}" --json > "$out/drift.json" || code=$?
[ "$code" -le 1 ] || exit "$code"  # not drift but an error, which was already reported
qprof diff "$committed" "$out/tonight.yaml" "${options[@]}"
