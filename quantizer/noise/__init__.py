"""How much noise quantization makes at the outputs: measured, estimated, limited.

- Measured: `measure` runs copies of the model with rounded values on a few samples, `kept_samples` on the
  check samples of a profile, when a plan is made.
- Estimated, without data: `activation_ranges` and `mask_fillers` find the values to quantize; `propagation`
  calculates the noise gain of every node, corrected by measurements (`recurrence` for LSTM, GRU and RNN);
  `constant_errors` finds tensors without bias correction; `estimator` lists the roundings of a plan and
  calculates its SQNR at the outputs; `estimate_check` has the error of the estimate.
- Limited: `output_kinds` determines the kind of an output, `steps` finds step functions inside,
  `output_limits` has the noise limits of both. `value_paths` are walks through the graph.

Input: graph, profile, plan. Output: the sources of noise, and its power at the outputs.
"""
