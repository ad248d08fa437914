"""Do two checkouts of qprof write the same bytes? Plans and models of many networks in every form and target.

    python tests/benchmarks/same_bytes.py BEFORE/bin/python AFTER/bin/python --work /tmp/bytes

Each interpreter has one of the two installed. It profiles each network and plans it in every form, for every
target and with further settings, from its own profile. Models are compared by their bytes, plans and profiles
by the bytes behind the line that tells their format. What one refuses the other has to refuse, with the same
code.

The networks: examples/digits, those of `NETWORKS`, with random weights, and with --models those of
tests/benchmarks/models whose packages are installed here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
SAMPLES = 4
Shape = tuple[int, ...]
Digests = dict[str, list[Any]]
"""Name of a result -> exit code and digests of what was written."""

FORMS = ("qdq", "qoperator", "integer", "primitives", "regions")
TARGETS = (
    "onnx",
    "onnxruntime-arm",
    "onnxruntime-x86",
    "openvino",
    "tensorrt",
    "qnn",
    "migraphx",
    "glow",
)
SETTINGS = (
    ("--schema", "symmetric-uint8", "--calibrator", "mse"),
    ("--set", "mode=dynamic"),
    ("--set", "mode=weight-only", "--set", "weight_type=int4"),
    ("--set", "min_output_sqnr=38"),
)
RUNS = (
    *(("--form", form) for form in FORMS),
    *(("--target", target) for target in TARGETS),
    *SETTINGS,
)
"""Options of `qprof quantize` for each network; all without --target are for the default one."""

NETWORKS: Mapping[str, tuple[str, Mapping[str, Shape]]] = {
    "residual": (
        """g (float[N,3,32,32] x) => (float[N,10] y) <float zero = {0}, float six = {6}> {
        c1 = Conv<pads=[1,1,1,1]>(x,w1,b1)  r1 = Relu(c1)  c2 = Conv<pads=[1,1,1,1]>(r1,w2,b2)  r2 = Relu(c2)
        c3 = Conv<pads=[1,1,1,1]>(r2,w3,b3)  a = Add(c3,r1)  r3 = Relu(a)
        d = Conv<pads=[1,1,1,1],group=32>(r3,wd,bd)  d6 = Clip(d,zero,six)  p = Conv(d6,wp,bp)
        m = MaxPool<kernel_shape=[2,2],strides=[2,2]>(p)  k = Concat<axis=1>(m,m)
        gp = GlobalAveragePool(k)  f = Flatten(gp)  y = Gemm<transB=1>(f,wf,bf) }""",
        {
            **{"w1": (32, 3, 3, 3), "b1": (32,), "w2": (32, 32, 3, 3), "b2": (32,), "w3": (32, 32, 3, 3)},
            **{"b3": (32,), "wd": (32, 1, 3, 3), "bd": (32,), "wp": (64, 32, 1, 1), "bp": (64,)},
            **{"wf": (10, 128), "bf": (10,)},
        },
    ),
    "mobile": (
        """g (float[N,3,32,32] x) => (float[N,16,16,16] y, float[N,5] p) {
        c1 = Conv<pads=[1,1,1,1]>(x,w1,b1)  s = Sigmoid(c1)  m = Mul(c1,s)  h = Conv<pads=[1,1,1,1]>(m,w2,b2)
        hs = HardSwish(h)  g1 = GlobalAveragePool(hs)  q = Conv(g1,w3,b3)  qr = Relu(q)  e = Conv(qr,w4,b4)
        es = HardSigmoid(e)  se = Mul(hs,es)  t = ConvTranspose<strides=[2,2]>(se,wt,bt)  l = LeakyRelu(t)
        ap = AveragePool<kernel_shape=[4,4],strides=[4,4]>(l)  y = Tanh(ap)
        gp = GlobalAveragePool(l)  fl = Flatten(gp)  fc = Gemm(fl,wf,bf)  p = Softmax<axis=-1>(fc) }""",
        {
            **{"w1": (16, 3, 3, 3), "b1": (16,), "w2": (24, 16, 3, 3), "b2": (24,), "w3": (8, 24, 1, 1)},
            **{"b3": (8,), "w4": (24, 8, 1, 1), "b4": (24,), "wt": (24, 16, 2, 2), "bt": (16,)},
            **{"wf": (16, 5), "bf": (5,)},
        },
    ),
    "transformer": (
        """g (float[N,16,64] x, float[N,1,1,16] mask) => (float[N,16,64] y)
        <int64[4] heads = {0,16,4,16}, int64[3] joined = {0,16,64}, float four = {4},
        float root = {1.4142135}, float one = {1}, float half = {0.5}> {
        q0 = MatMul(x,wq)  q1 = Add(q0,bq)  q2 = Reshape(q1,heads)  q = Transpose<perm=[0,2,1,3]>(q2)
        k0 = MatMul(x,wk)  k1 = Add(k0,bk)  k2 = Reshape(k1,heads)  k = Transpose<perm=[0,2,3,1]>(k2)
        v0 = MatMul(x,wv)  v1 = Add(v0,bv)  v2 = Reshape(v1,heads)  v = Transpose<perm=[0,2,1,3]>(v2)
        s = MatMul(q,k)  sc = Div(s,four)  sm = Add(sc,mask)  a = Softmax<axis=-1>(sm)  o = MatMul(a,v)
        ot = Transpose<perm=[0,2,1,3]>(o)  om = Reshape(ot,joined)  op = MatMul(om,wo)  ob = Add(op,bo)
        r = Add(ob,x)  n = LayerNormalization<axis=-1>(r,g1,b1)  f = MatMul(n,wf)  fb = Add(f,bf)
        d = Div(fb,root)  e = Erf(d)  e1 = Add(e,one)  e2 = Mul(fb,e1)  ge = Mul(e2,half)  f2 = MatMul(ge,wg)
        f3 = Add(f2,bg)  r2 = Add(f3,n)  y = LayerNormalization<axis=-1>(r2,g2,b2) }""",
        {
            **dict.fromkeys(("wq", "wk", "wv", "wo"), (64, 64)),
            **dict.fromkeys(("bq", "bk", "bv", "bo", "bg", "g1", "b1", "g2", "b2"), (64,)),
            **{"wf": (64, 256), "bf": (256,), "wg": (256, 64)},
        },
    ),
    "lstm": (
        """g (float[12,N,40] x) => (float[N,7] y) <int64[1] first = {0}> {
        all, h, c = LSTM<hidden_size=128>(x,w,r,b)  hh = Squeeze(h,first)  y = Gemm(hh,wf,bf) }""",
        {"w": (1, 512, 40), "r": (1, 512, 128), "b": (1, 1024), "wf": (128, 7), "bf": (7,)},
    ),
    "gru": (
        """g (float[12,N,40] x) => (float[12,N,7] y) <int64[3] joined = {0,0,192}> {
        all, h = GRU<hidden_size=96,direction="bidirectional",linear_before_reset=1>(x,w,r,b)
        t = Transpose<perm=[0,2,1,3]>(all)  rs = Reshape(t,joined)  y = MatMul(rs,wf) }""",
        {"w": (2, 288, 40), "r": (2, 288, 96), "b": (2, 576), "wf": (192, 7)},
    ),
    "sound": (
        """g (float[N,1,2000] x) => (float[N,20] y) <float low = {0.00001}, float high = {1000000000}> {
        c = Conv<strides=[10]>(x,w1)  c2 = Mul(c,c)  p = MatMul(filters,c2)  cl = Clip(p,low,high)
        l = Log(cl)  n = Conv<pads=[1,1]>(l,w2,b2)  r = Elu(n)  pr = PRelu(r,slope)  m = GlobalAveragePool(pr)
        f = Flatten(m)  y = Gemm(f,wf,bf) }""",
        {
            **{"w1": (64, 1, 100), "filters": (32, 64), "w2": (48, 32, 3), "b2": (48,), "slope": (48, 1)},
            **{"wf": (48, 20), "bf": (20,)},
        },
    ),
    "words": (
        """g (int64[N,12] ids) => (float[N,3] y) {
        e = Gather(table,ids)  m = ReduceMean<axes=[1],keepdims=0>(e)  h = Gemm(m,w1,b1)  r = Relu(h)
        z = Gemm(r,w2,b2)  y = LogSoftmax<axis=-1>(z) }""",
        {"table": (1000, 64), "w1": (64, 128), "b1": (128,), "w2": (128, 3), "b2": (3,)},
    ),
    "segments": (
        """g (float[N,3,32,32] x) => (float[N,4,32,32] y) <float[4] twice = {1,1,2,2}> {
        a = Conv<pads=[1,1,1,1]>(x,w1,b1)  ar = Relu(a)  d = MaxPool<kernel_shape=[2,2],strides=[2,2]>(ar)
        b = Conv<pads=[1,1,1,1]>(d,w2,b2)  br = Relu(b)  u = Resize<mode="nearest">(br,,twice)
        k = Concat<axis=1>(u,ar)  c = Conv<pads=[1,1,1,1]>(k,w3,b3)  cr = Relu(c)  y = Conv(cr,w4,b4) }""",
        {
            **{"w1": (16, 3, 3, 3), "b1": (16,), "w2": (32, 16, 3, 3), "b2": (32,), "w3": (16, 48, 3, 3)},
            **{"b3": (16,), "w4": (4, 16, 1, 1), "b4": (4,)},
        },
    ),
    "branches": (
        """g (float[N,3,8,8] x) => (float[N,32,8,8] y) <float top = {0.5}> {
        h = Conv<pads=[1,1,1,1]>(x,w,b)  r = Relu(h)  m = ReduceMax<keepdims=0>(r)  c = Greater(m,top)
        y = If (c) <then_branch = yes () => (float[] o) { a = Conv<pads=[1,1,1,1]>(r,v)  o = Relu(a) },
        else_branch = no () => (float[] o) {
            a = Conv<pads=[1,1,1,1]>(r,v,b)  e = Relu(a)  o = Add(e,r) }> }""",
        {"w": (32, 3, 3, 3), "b": (32,), "v": (32, 32, 3, 3)},
    ),
    "scan": (
        """g (float[T,16] x) => (float[64] y, float[T,64] all) <int64[1] size = {64}> {
        zero = ConstantOfShape<value = float[1] {0.0}>(size)
        y, all = Scan (zero, x) <num_scan_inputs = 1, body = step (float[64] s, float[16] e)
            => (float[64] o, float[64] f) {
            p = MatMul(e,w)  q = MatMul(s,v)  u = Add(p,q)  z = Add(u,b)  o = Tanh(z)  f = Relu(o) }> }""",
        {"w": (16, 64), "v": (64, 64), "b": (64,)},
    ),
    "normalized": (
        """g (float[N,3,16,16] x) => (float[N,10] y) {
        c1 = Conv<pads=[1,1,1,1]>(x,w1)  n1 = BatchNormalization(c1,s1,t1,m1,v1)  r1 = Relu(n1)
        c2 = Conv<group=4>(r1,w2)  n2 = InstanceNormalization(c2,s2,t2)  r2 = Relu(n2)
        gp = GlobalAveragePool(r2)  f = Flatten(gp)  y = Gemm<transB=1>(f,wf,bf) }""",
        {
            **{"w1": (16, 3, 3, 3), "s1": (16,), "t1": (16,), "m1": (16,), "v1": (16,), "w2": (32, 4, 3, 3)},
            **{"s2": (32,), "t2": (32,), "wf": (10, 32), "bf": (10,)},
        },
    ),
    "dense": (
        """g (float[N,30] x) => (float[N,1] y) {
        a = Gemm(x,w1,b1)  r = Relu(a)  b = Gemm(r,w2,b2)  t = Tanh(b)  d = Mul(t,scale)  s = Sub(d,t)
        c = Gemm(s,w3,b3)  y = Sigmoid(c) }""",
        {
            **{"w1": (30, 64), "b1": (64,), "w2": (64, 64), "b2": (64,), "scale": (64,), "w3": (64, 1)},
            **{"b3": (1,)},
        },
    ),
}
"""Name -> the graph as ONNX text, and the shapes of its weights."""


def build(name: str) -> onnx.ModelProto:
    """Return a network; its weights are of a normal distribution over the root of the fan-in."""
    text, weights = NETWORKS[name]
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    rng = np.random.default_rng(len(name))
    for weight, shape in weights.items():
        scale = max(1.0, float(np.prod(shape[1:]))) ** -0.5 if len(shape) > 1 else 0.1
        array = (rng.standard_normal(shape) * scale).astype(np.float32)
        # Variances are positive, and so is what a logarithm is taken of.
        array = np.abs(array) + 0.1 if weight in ("v1", "filters") else array
        model.graph.initializer.append(numpy_helper.from_array(array, weight))
    onnx.checker.check_model(model)
    return model


def subjects(work: Path, published: Sequence[str]) -> Iterator[tuple[str, Path, str]]:
    """Yield name, model and data of each network; files are made in `work`."""
    yield "digits", DIGITS / "model.onnx", str(DIGITS / "calibration")
    for name in NETWORKS:
        path = work / f"{name}.onnx"
        onnx.save(build(name), path)
        yield name, path, f"random:{SAMPLES}"
    for name in published:
        import models

        try:
            record = models.load(name)
            folder = work / name
            folder.mkdir(exist_ok=True)
            path = record.path(folder)
            for number, (feed, _) in zip(range(SAMPLES), record.pairs("calibration"), strict=False):
                np.savez(folder / f"{number}.npz", **feed)
        except ImportError as error:
            print(f"{name}: left out, {error}", file=sys.stderr)
            continue
        yield name, path, str(folder)


def behind_format(path: Path) -> bytes:
    """Return a plan or profile without the line that tells its format."""
    lines = path.read_bytes().splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith(b"format:"))


def digest(*contents: bytes) -> str:
    """Return sixteen digits that stand for the contents."""
    return hashlib.sha256(b"".join(contents)).hexdigest()[:16]


def write_all(model: Path, data: str, folder: Path) -> Digests:
    """Profile and quantize a model with the qprof of this interpreter; the work of a process of its own."""
    from click.testing import CliRunner
    from qprof_onnx.cli.main import main as qprof

    def run(*words: str | Path) -> int:
        return CliRunner().invoke(qprof, [str(word) for word in words]).exit_code

    profile = folder / "profile.yaml"
    code = run("dump-profile", model, "--data", data, "-o", profile)
    found: Digests = {"profile": [code, digest(behind_format(profile)) if profile.exists() else ""]}
    for options in RUNS:
        plan, out, weights = folder / "plan.yaml", folder / "out.onnx", folder / "out.onnx.data"
        for path in (plan, out, weights):
            path.unlink(missing_ok=True)
        code = run("quantize", model, "--profile", profile, *options, "-o", out, "--save-plan", plan)
        written = digest(*(path.read_bytes() for path in (out, weights) if path.exists()))
        found[" ".join(options)] = [code, digest(behind_format(plan)) if plan.exists() else "", written]
    return found


def of_interpreter(python: str, model: Path, data: str, folder: Path) -> Digests:
    """Return what `write_all` finds with another interpreter."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [python, __file__, "--one", str(model), data, str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{python}: {model.name}: {done.stderr[-500:]}")
    digests: Digests = json.loads(done.stdout.splitlines()[-1])
    return digests


def main() -> None:
    """Print a row for each network, and each combination that differs."""
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("before", help="the interpreter with one qprof")
    arguments.add_argument("after", help="the interpreter with the other")
    arguments.add_argument("--work", type=Path, required=True, help="a folder for models, profiles and plans")
    arguments.add_argument("--only", nargs="*", help="networks to take; all without it")
    arguments.add_argument("--models", nargs="*", default=[], help="models of tests/benchmarks/models")
    given = arguments.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    different = list[str]()
    print(
        "| network | combinations | written | refused by both | models, plans, codes that differ | profile |"
    )
    print("|---|---|---|---|---|---|")
    for name, model, data in subjects(given.work, given.models):
        if given.only and name not in given.only:
            continue
        before, after = (
            of_interpreter(python, model, data, given.work / name / side)
            for python, side in ((given.before, "before"), (given.after, "after"))
        )
        profiles = before.pop("profile"), after.pop("profile")
        wrong = [key for key in before if before[key] != after[key]]
        different += [f"{name} {key}: {before[key]} and {after[key]}" for key in wrong]
        refused = sum(bool(before[key][0] and after[key][0]) for key in before)
        same = "the same" if profiles[0] == profiles[1] else "differs"
        print(
            f"| {name} | {len(before)} | {len(before) - refused} | {refused} | {len(wrong)} | {same} |",
            flush=True,
        )
    print(*different, sep="\n")
    sys.exit(bool(different))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(write_all(Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))))
    else:
        main()
