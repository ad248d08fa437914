// Runs one model in a package of onnxruntime for JavaScript: node node.mjs PACKAGE FOLDER.
// FOLDER has model.onnx and feed.json with a raw file for each input; a raw file for each output is written.
import fs from "node:fs";
import path from "node:path";
import { createRequire } from "node:module";

const [, , name, folder] = process.argv;
const require = createRequire(path.join(process.env.NODE_MODULES, "x.js"));
const ort = require(name);
if (name === "onnxruntime-web") ort.env.wasm.numThreads = 1;
ort.env.logLevel = "fatal";
const TYPES = { float32: Float32Array, int64: BigInt64Array, int32: Int32Array, uint8: Uint8Array, int8: Int8Array, bool: Uint8Array };
const answer = {};
try {
  const session = await ort.InferenceSession.create(path.join(folder, "model.onnx"), { executionProviders: [name === "onnxruntime-web" ? "wasm" : "cpu"] });
  answer.loaded = true;
  const feeds = {};
  for (const { input, type, dims, file } of JSON.parse(fs.readFileSync(path.join(folder, "feed.json"))).inputs) {
    const bytes = fs.readFileSync(path.join(folder, file));
    const buffer = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
    feeds[input] = new ort.Tensor(type, new TYPES[type](buffer), dims);
  }
  const found = await session.run(feeds);
  answer.outputs = session.outputNames.map((output, place) => {
    const tensor = found[output];
    fs.writeFileSync(path.join(folder, `out${place}.raw`), Buffer.from(tensor.data.buffer, tensor.data.byteOffset, tensor.data.byteLength));
    return { type: tensor.type, dims: tensor.dims };
  });
} catch (error) {
  answer.said = String(error.message ?? error);
}
fs.writeFileSync(path.join(folder, "answer.json"), JSON.stringify(answer));
process.exit(0);
