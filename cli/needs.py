"""When a person needs each option, and each setting that has none: a sentence each, for the page of options.

An option for which nobody can write that sentence goes: a test compares this table with all commands.
"""

from __future__ import annotations

from collections.abc import Mapping

OPTIONS: Mapping[str, str] = {
    # what is done with which files
    "--data": "Always where a model is run: the samples to profile, or to judge on.",
    "--profile": "Always where nothing is run: quantizing again takes seconds.",
    "--output": "Always: the result. (`-o`)",
    "--model": "A card is measured again, or a profile, plan or other tool's file has no graph itself.",
    "--plan": "A plan was edited or kept, and is to be applied or looked at as it is.",
    "--save-plan": "Decisions are to be read, reviewed, edited or kept in a repository.",
    "--config": "A backend has settings or a runtime of its own, kept in a file.",
    "--set": "One setting or one fact of a runtime is otherwise, for which there is no option.",
    "--custom-ops": "The model has operators of a library that onnxruntime has to load.",
    "--checkpoint": "The run takes hours, and may be killed.",
    "--every": "Progress is kept on slow or metered storage, where a write each 30 seconds is too many.",
    "--format": "The file is for another tool.",
    "--json": "A script reads the result.",
    "--verbose": "The few lines that are printed do not say enough.",
    "--help-all": "The options of every day are not enough.",
    "--report": "The result is shown to others, or is the summary of a CI job.",
    # samples and truth
    "--preprocess": "Samples are files of pictures, sound, text or rows, and not arrays.",
    "--limit": "All samples take too long.",
    "--labels": "The right answers are known, so that the task is scored and not only the noise.",
    "--metric": "The task is not top-1 classification, or is judged by code of one's own.",
    "--scored-output": "The model has several outputs, and the labels belong to another than the first.",
    "--class-axis": "The classes are not along the axis that the output's operator says.",
    "--holdout-data": "There are samples to judge on that are no part of the data: a validation set.",
    "--holdout-labels": "These have labels of their own.",
    "--keep-samples": "Samples must not be stored (0), or more of them are worth the room.",
    "--allow-duplicates": "Two shards share samples, and both are to count.",
    "--allow-different": "Data are compared across a change of the model, such as a retraining.",
    # what becomes of the model
    "--as": "No samples (int8-dynamic), size alone counts (weight-only) or is given (mixed), a GPU (float8).",
    "--target": "The model is for another runtime or processor than this machine's.",
    "--form": "The backend or compiler reads other operators than QuantizeLinear and DequantizeLinear.",
    "--schema": "The backend wants zero point 0, or scales that are powers of two.",
    "--calibrator": "Another tool's choice of ranges is to be repeated, or outliers are to be clipped.",
    "--float-type": "The model is for a GPU, which computes float16 in half of float32's time (`float16`).",
    "--io": "A camera gives, or the chip takes, integers at the border of the model.",
    "--keep-16bit": "One part of the network is too noisy in 8 bits, and the backend has 16.",
    "--keep-float": "A node must not be quantized, or a look-up table is not wanted: `--keep-float Sigmoid`.",
    "--kv-cache": "The cache of a decoder takes more memory than its weights.",
    "--fix-shapes": "The runtime wants fixed shapes, or one size alone is used.",
    "--rounding": "Weights of 4 bits lose too much, and there are samples.",
    "--cost-model": "The hardware computes integers alone (off): everything is quantized, whatever it takes.",
    "--chosen-ranges": "The file of another tool has histograms and ranges, and its ranges are to be kept.",
    # how good it has to be
    "--min-output-sqnr": "Outputs have to keep so many dB, or no limit at all (0), whatever they are for.",
    "--tolerance": "Outputs are physical values, and it is known which error is harmless.",
    "--fix": "Nobody is there to type what is advised: a job.",
    "--budget": "Trying takes too long, or may take longer.",
    "--check-outputs": "One sample takes minutes, so that running a plan on some is too much.",
    "--objective": "A model is tuned for size, and not for time.",
    "--min-sqnr": "A job has to fail where outputs have more noise, and there are no labels.",
    "--max-drop": "A job has to fail where accuracy, or the metric, drops by more.",
    "--min-score": "A job has to fail below a score that was promised.",
    "--min-speedup": "A job has to fail where int8 is not faster by so much.",
    "--max-size": "A job has to fail above a size; with --as mixed: the size to fill.",
    "--slack": "Figures of two runs differ by more than usual, or must not differ by as much.",
    "--strict": "A job must not pass because something could not be checked.",
    # drift
    "--max-clipping": "A job has to fail where new data leave the calibrated range.",
    "--max-range-growth": "A job has to fail where one value leaves limits that are known.",
    "--max-js-distance": "A job has to fail where the shape of a distribution changed.",
    "--max-wasserstein": "A job has to fail where values moved, whatever their shape.",
    "--max-drifted-parts": "A job has to fail where a column, a colour, a class or a band changed (0).",
    "--max-non-finite": "A job has to fail where NaN or Inf come up (0), or all of a tensor may be (1).",
    # speed, memory, machines
    "--check-speed": "The model must not be slower than float on this machine, whose times no table has.",
    "--no-latency": "This machine is busy, or not the one that the model is for.",
    "--threads": "The model is deployed on more threads than one, or other work needs the cores.",
    "--runtime": "The model is for OpenVINO.",
    "--provider": "The model is to run on a GPU.",
    "--memory-limit": "Profiling is killed for want of memory.",
    "--scheduler": "Data are too many for one machine, and there is a Dask cluster.",
    "--by-row": "Profiles of data that are batched otherwise have to be the same bytes.",
    "--tensors": "The profile is for one's own plans alone, and is to be made sooner (needed).",
    "--channels": "Memory is short, and channels need not be equalized (off).",
    # looking closer
    "--worst": "The list is long.",
    "--only": "Something is wrong with the data, and it is not known which tensor shows it.",
    "--plot": "The ranking is shown to others.",
    "--held-out": "The samples at hand are those that the model was made with.",
    "--measure-layers": "It is not known which layer takes the time.",
    "--history": "The page is to show how newer data drift.",
    # publishing, models of several files
    "--markdown": "The model is published, on a hub or beside its card.",
    "--task": "The hub shows scores.",
    "--base-model": "The hub shows where the model comes from.",
    "--connect": "Parts name one tensor differently.",
    "--functions": "Parts call functions of another file.",
}
"""Option -> when a person needs it."""

SETTINGS: Mapping[str, str] = {
    "activation_type": "The backend has kernels of one type alone: signed, unsigned or 16 bits.",
    "weight_type": "The backend has kernels of only one type.",
    "weight_schema": "The backend wants zero point 0 in weights, or gains by having one.",
    "granularity": "The backend has one scale for a weight.",
    "output_kind": "The verdict speaks of classes where the output is a signal, or the like.",
    "mode": "Some nodes shall be static, others dynamic or weight-only, by their noise (auto).",
    "second_type": "The target has a further type, which `--as int8-float8` names.",
    "block_size": "Weights of 4 bits lose too much (16), or take too much room (64, 128).",
    "fit_size": "A size is given and no type (as --as mixed), or all weights are to have few bits (least).",
    "prompt": "A language model is served with prompts of a known length.",
    "answer": "The same, for its answers.",
    "min_tensor_sqnr": "An activation in the middle of the network is an output for somebody.",
    "equalization": "Weights must stay those of the float model, as a backend has them (off).",
    "bias_correction": "Biases must stay those of the float model (off).",
}
"""Setting without an option -> when a person needs it."""
