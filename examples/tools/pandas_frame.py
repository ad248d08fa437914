"""A frame of pandas as samples: `python examples/tools/pandas_frame.py`. Needs pandas and scikit-learn."""

import numpy as np
import onnx
import pandas as pd
import qprof_onnx as qprof
from sklearn.datasets import load_wine
from sklearn.neural_network import MLPClassifier

frame: pd.DataFrame = load_wine(as_frame=True).frame
features = frame.columns[:-1]
scaled = (frame[features] - frame[features].mean()) / frame[features].std()

# A perceptron of scikit-learn, written as ONNX.
net = MLPClassifier((256, 64), max_iter=300, random_state=0).fit(scaled, frame["target"])
layers = [
    f"h{at + 1} = {'Relu' if at + 1 < len(net.coefs_) else 'Identity'}(s{at})"
    for at in range(len(net.coefs_))
]
nodes = " ".join(
    f"m{at} = MatMul(h{at}, w{at}) s{at} = Add(m{at}, b{at}) {layer}" for at, layer in enumerate(layers)
)
text = f"mlp (float[N, {len(features)}] h0) => (float[N, 3] h{len(layers)}) {{ {nodes} }}"
model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
for at, (weight, bias) in enumerate(zip(net.coefs_, net.intercepts_, strict=True)):
    for name, array in ((f"w{at}", weight), (f"b{at}", bias)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))

# Each row of the frame is a sample, so that some can be held out.
rows = list(scaled.to_numpy(np.float32))
result = qprof.quantize(model, rows, output="frame.int8.onnx", labels=frame["target"])
print(result.verdict)
