"""Where silero-vad hears speech, in float and in int8, as sherpa-onnx runs both.

python sherpa_onnx_vad.py silero_vad_16k_op15.onnx vad.int8.onnx recordings/
"""

import sys
from pathlib import Path

import numpy as np
import sherpa_onnx
import soundfile
import soxr

RATE, WINDOW = 16000, 512


def heard(model: str, sound: np.ndarray) -> np.ndarray:
    """Return which samples of a recording belong to a segment of speech."""
    config = sherpa_onnx.VadModelConfig()
    config.silero_vad.model = model
    config.sample_rate = RATE
    detector = sherpa_onnx.VoiceActivityDetector(config, buffer_size_in_seconds=60)
    for start in range(0, len(sound) - WINDOW + 1, WINDOW):
        detector.accept_waveform(sound[start : start + WINDOW])
    detector.flush()
    speech = np.zeros(len(sound), bool)
    while not detector.empty():
        speech[detector.front.start : detector.front.start + len(detector.front.samples)] = True
        detector.pop()
    return speech


float_model, quantized_model, folder = sys.argv[1:]
both = []
for file in sorted(Path(folder).glob("*.wav")):
    sound, rate = soundfile.read(file, dtype="float32")
    sound = soxr.resample(sound, rate, RATE)
    both.append([heard(model, sound) for model in (float_model, quantized_model)])
in_float, in_int8 = (np.concatenate(side) for side in zip(*both, strict=True))
print(f"speech: {in_float.sum() / RATE:.1f} s in float, {in_int8.sum() / RATE:.1f} s in int8")
print(f"the same for {100 * np.mean(in_float == in_int8):.2f} % of {len(in_float) / RATE:.1f} s")
