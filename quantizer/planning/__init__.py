"""Planning: from graph, profile and recipe to a plan. Independent of how the plan is written.

Input: `PreparedModel`, `Profile`, `Recipe`.
Output: `QuantPlan` and its model.

In the order of the decisions, each module using those before it:

    facts, chains                 the model; functions of several nodes that are planned as one node
    known                         results of plans that were tried, passed beside the facts
    selection, hybrid             the kind of each node: quantized, dynamic, weight-only, float
    shared_scales, parameters     activations with a common scale; scale and zero point of every tensor
    planner                       all of these: one plan, decided again until no rule names a node
    noise_budget                  nodes that are float because of their noise
    plan_model                    the whole: a first plan, equalized, bias corrected, fitted to kernels

`needed_tensors` lists the tensors that a profile must record.
"""
