"""Planning: from graph, profile and recipe to a plan. Knows nothing of how it is written.

Enters: `PreparedModel`, `Profile`, `Recipe`.
Leaves: `QuantPlan` and the model that it is for.

In the order of the decisions, each module asking those before it:

    facts, chains                 the model; functions of several nodes that are planned as one node
    known                         what plans that were tried have shown, passed beside the facts
    selection, hybrid             what becomes of each node: quantized, dynamic, weight-only, float
    shared_scales, parameters     which activations have one scale; scale and zero point of every tensor
    planner                       these together: one plan, decided anew until no rule names a node
    noise_budget                  what is float for its noise
    plan_model                    all of it: a first plan, equalized, bias corrected, fitted to kernels

`needed_tensors` says before all of it what a profile has to record.
"""
