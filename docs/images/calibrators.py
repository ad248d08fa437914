"""Draws calibrators.svg: what each calibrator makes of one histogram of the digits example.

qprof dump-profile examples/digits/model.onnx --data examples/digits/calibration -o out/profile.yaml
python docs/images/calibrators.py out/profile.yaml block.relu2.out > docs/images/calibrators.svg
"""

from __future__ import annotations

import sys

import numpy as np
from qprof_onnx import load_profile
from qprof_onnx.quantizer.numerics.affine import UINT8
from qprof_onnx.quantizer.numerics.calibrators import calibrate
from qprof_onnx.quantizer.numerics.schemas import SCHEMAS

LEFT, WIDTH, BASE, HEIGHT, CELLS = 50, 660, 250, 180, 110
COLOURS = {"minmax": "#3f9e63", "mse": "#4c8bd6", "percentile": "#dd8526", "kl": "#d9534f"}


def drawing(path: str, tensor: str) -> str:
    """Return the SVG text: logarithmic heights, and a line at the upper limit of each calibrator."""
    profile = load_profile(path).tensors[tensor]
    histogram, top = profile.histogram, profile.maximum
    starts = (histogram.first + np.arange(len(histogram.counts))) * 2.0**histogram.exponent
    counts, _ = np.histogram(starts, CELLS, (0.0, top), weights=histogram.counts)
    heights = HEIGHT * np.log1p(counts) / np.log1p(counts.max())
    total = histogram.counts.sum()
    lines = [
        '<svg style="background:#fff;color:#1f2328" xmlns="http://www.w3.org/2000/svg" '
        'viewBox="0 0 740 310" role="img" font-family="sans-serif" '
        'font-size="13" fill="currentColor">',
        "<title>Four calibrators on one histogram</title>",
        f"<desc>The histogram of {tensor} in the digits example, with the upper limits chosen by kl, "
        "percentile, mse and minmax.</desc>",
        f'<text x="{LEFT}" y="22" font-weight="600">{tensor}, {total:,} values, logarithmic heights</text>',
    ]
    step = WIDTH / CELLS
    lines += [
        f'<rect x="{LEFT + i * step:.1f}" y="{BASE - h:.1f}" width="{step - 1:.1f}" height="{h:.1f}" '
        'fill="currentColor" fill-opacity="0.3"/>'
        for i, h in enumerate(heights)
        if h > 0
    ]
    for row, (name, colour) in enumerate(COLOURS.items()):
        limit = calibrate(profile, name, SCHEMAS["asymmetric"], UINT8).high
        x, y = LEFT + WIDTH * limit / top, 46 + 17 * row
        clipped = histogram.counts[starts > limit].sum() / total
        lines.append(
            f'<line x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{BASE}" stroke="{colour}" stroke-width="2"/>'
        )
        lines.append(
            f'<text x="{x - 6:.1f}" y="{y + 5}" text-anchor="end" fill="{colour}">{name}: {limit:.2f}, '
            f"clips {clipped:.2%}</text>"
        )
    lines.append(f'<line x1="{LEFT}" y1="{BASE}" x2="{LEFT + WIDTH}" y2="{BASE}" stroke="currentColor"/>')
    lines += [
        f'<text x="{LEFT + WIDTH * v / top:.1f}" y="{BASE + 18}" text-anchor="middle">{v}</text>'
        for v in range(0, int(top) + 1, 2)
    ]
    lines.append(
        f'<text x="{LEFT}" y="{BASE + 42}" fill-opacity="0.8">float value; 256 steps end at the line, '
        "what is to its right saturates</text>"
    )
    return "\n".join([*lines, "</svg>"])


if __name__ == "__main__":
    print(drawing(sys.argv[1], sys.argv[2]))
