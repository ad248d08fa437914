"""How much noise quantization makes at the outputs: measured, estimated, limited.

- Measured: `measure` runs copies of the model with rounded values on a few samples, `kept_samples` on those
  that a profile keeps, when a plan is made of it.
- Estimated, without data: `activation_ranges` and `mask_fillers` say which values are quantized;
  `propagation` says how much noise every node lets through, corrected by what was measured (`recurrence` for
  LSTM, GRU and RNN), `constant_errors` which tensors bear no correction of a bias; `estimator` says where a
  plan rounds, and its SQNR at the outputs; `estimate_check` says how far the estimate may be off.
- Limited: `output_kinds` tells what an output is, `steps` which values inside become steps, `output_limits`
  how much noise both can bear. `value_paths` are walks through the graph.

Enters: graph, profile, plan.
Leaves: where noise enters, and what it comes to at the outputs.
"""
