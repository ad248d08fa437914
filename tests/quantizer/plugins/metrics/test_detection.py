import json
from dataclasses import replace

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import parser
from qprof_onnx.profiles.base.errors import ConfigError, DataError, ModelError
from qprof_onnx.profiles.samples.objects import ChosenSamples, PreprocessedData
from qprof_onnx.quantizer.evaluation.metrics.score import score_of
from qprof_onnx.quantizer.evaluation.metrics.table import metric_of_truth
from qprof_onnx.quantizer.evaluation.metrics.truth import Place
from qprof_onnx.quantizer.plugins.metrics.boxes import (
    boxes_of,
    counted_matches,
    non_max_suppression,
    overlaps,
)
from qprof_onnx.quantizer.plugins.metrics.true_boxes import boxes_in_input

from ...evaluation.running import model_of, opened, scored

Image = pytest.importorskip("PIL.Image", reason="of the extra test-all")
COCO = pytest.importorskip("pycocotools.coco", reason="of the extra test-all").COCO
COCOeval = pytest.importorskip("pycocotools.cocoeval", reason="of the extra test-all").COCOeval

RNG = np.random.default_rng(3)
SIDE = 64


def random_boxes(count: int) -> np.ndarray:
    """Return boxes as corners, float64 [count, 4]."""
    corner, size = RNG.uniform(0, 40, (count, 2)), RNG.uniform(6, 24, (count, 2))
    return np.concatenate([corner, corner + size], axis=1)


def centred(corners: np.ndarray) -> np.ndarray:
    """Return boxes as centre and size."""
    return np.concatenate([(corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2]], axis=1)


@pytest.mark.parametrize("limit", [0.3, 0.5])
def test_suppression_is_that_of_onnxs_operator(limit) -> None:
    corners, scores = random_boxes(60).astype(np.float32), RNG.random(60).astype(np.float32)
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[1, N, 4] b, float[1, 1, N] s, int64 m, float i)
    => (int64[K, 3] y) { y = NonMaxSuppression(b, s, m, i) }"""
    session = ort.InferenceSession(parser.parse_model(text).SerializeToString())
    inputs = {"b": corners[None], "s": scores[None, None], "m": np.int64(60), "i": np.float32(limit)}
    (wanted,) = session.run(None, {name: np.asarray(value) for name, value in inputs.items()})
    found = non_max_suppression(boxes_of(corners, np.zeros(60), scores.astype(np.float64)), limit, 100)
    assert np.array_equal(found.scores, scores[wanted[:, 2]].astype(np.float64))


def test_boxes_of_other_classes_do_not_suppress_one_another() -> None:
    box = np.array([[0.0, 0.0, 10.0, 10.0]] * 2)
    assert len(non_max_suppression(boxes_of(box, np.array([0, 1]), np.array([0.9, 0.8])), 0.5, 9).scores) == 2
    assert overlaps(box[:1], np.array([[0.0, 0.0, 10.0, 5.0]]))[0, 0] == 0.5


def truth_and_found(count: int) -> tuple[list[dict], list[tuple[np.ndarray, np.ndarray, np.ndarray]]]:
    """Return annotations of COCO, some of them crowds, and corners, classes and scores for each picture."""
    annotations, found = [], []
    for picture in range(count):
        true, kinds = random_boxes(int(RNG.integers(0, 5))), RNG.integers(0, 3, 5)
        for box, kind in zip(true, kinds, strict=False):
            size = box[2:] - box[:2]
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": picture,
                    "category_id": int(kind) * 10,
                    "bbox": [*map(float, box[:2]), *map(float, size)],
                    "area": float(size.prod()),
                    "iscrowd": int(RNG.random() < 0.1),
                }
            )
        near = true + RNG.normal(0, 1.5, true.shape)
        boxes = np.concatenate([near, random_boxes(3)])
        classes = np.concatenate([kinds[: len(true)], RNG.integers(0, 3, 3)])
        found.append((boxes, classes, RNG.random(len(boxes)).astype(np.float32).astype(np.float64)))
    return annotations, found


def coco_file(folder, annotations: list[dict], count: int, side: int = SIDE):
    """Write a COCO file and return its path and its content."""
    content = {
        "images": [{"id": n, "file_name": f"{n}.jpg", "width": side, "height": side} for n in range(count)],
        "categories": [{"id": kind, "name": str(kind)} for kind in (0, 10, 20)],
        "annotations": annotations,
    }
    (folder / "coco.json").write_text(json.dumps(content))
    return folder / "coco.json", content


def library(content: dict, found, iou: float | None) -> float:
    """Return pycocotools' own mAP in percent, of boxes of all sizes."""
    evaluation = COCOeval(*both(content, found), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return 100 * evaluation.stats[0 if iou is None else 1]


def as_rows6(found) -> list[dict[str, np.ndarray]]:
    """Return the outputs of a detector with NMS in its graph."""
    return [{"y": np.concatenate([b, s[:, None], c[:, None]], axis=1)[None]} for b, c, s in found]


@pytest.mark.parametrize(("name", "iou"), [("map", None), ("map50", 0.5)])
def test_map_is_that_of_pycocotools(tmp_path, capsys, name, iou) -> None:
    annotations, found = truth_and_found(12)
    file, content = coco_file(tmp_path, annotations, 12)
    samples = as_rows6(found)
    score = scored(opened(name + ":confidence=0", samples[0], file), samples, samples)
    assert score.float_score == pytest.approx(library(content, found, iou), rel=1e-9)
    assert (score.rows, score.drop) == (12, 0.0)
    capsys.readouterr()


def test_boxes_that_are_off_lower_the_score_with_an_interval(tmp_path) -> None:
    annotations, found = truth_and_found(20)
    file, _ = coco_file(tmp_path, annotations, 20)
    off = [(boxes + RNG.normal(0, 3, boxes.shape), *rest) for boxes, *rest in found]
    score = scored(opened("map50", as_rows6(found)[0], file), as_rows6(found), as_rows6(off))
    assert score.drop_low < score.drop < score.drop_high
    assert score.drop > 5.0


def test_f1_counts_the_matches_of_coco(tmp_path) -> None:
    annotations, found = truth_and_found(15)
    file, content = coco_file(tmp_path, annotations, 15)
    sure = [tuple(part[scores >= 0.25] for part in (b, c, scores)) for b, c, scores in found]
    score = scored(opened("f1", as_rows6(found)[0], file), as_rows6(found), as_rows6(found))
    matched = COCOeval(*both(content, sure), "bbox")
    matched.params.iouThrs, matched.params.maxDets = np.array([0.5]), [100]
    matched.params.areaRng, matched.params.areaRngLbl = [[0, 1e10]], ["all"]
    matched.evaluate()
    results = [result for result in matched.evalImgs if result is not None]
    counts = [~np.asarray(result["dtIgnore"], bool) for result in results]
    right = sum(((r["dtMatches"] > 0) & of_box).sum() for r, of_box in zip(results, counts, strict=True))
    wanted = sum(not entry["iscrowd"] for entry in annotations)
    assert wanted < len(annotations)  # there are crowds
    total = sum(of_box.sum() for of_box in counts) + wanted
    assert score.float_score == pytest.approx(200 * right / total, rel=1e-12)


def both(content: dict, found) -> tuple[COCO, COCO]:
    """Return truth and boxes as pycocotools takes them."""
    true, given = COCO(), COCO()
    true.dataset = content
    boxes = []
    for picture, (corners, classes, scores) in enumerate(found):
        for box, kind, score in zip(corners, classes, scores, strict=True):
            size = box[2:] - box[:2]
            entry = {"id": len(boxes) + 1, "image_id": picture, "category_id": int(kind) * 10}
            boxes.append(
                {**entry, "bbox": [*box[:2], *size], "area": size.prod(), "score": score, "iscrowd": 0}
            )
    given.dataset = {**content, "annotations": boxes}
    for made in (true, given):
        made.createIndex()
    return true, given


CORNERS = np.array([[2.0, 4.0, 22.0, 34.0], [30.0, 30.0, 50.0, 60.0]])
SCORES = np.array([[0.9, 0.05, 0.02], [0.03, 0.01, 0.8]])


def heads() -> dict[str, dict[str, np.ndarray]]:
    """Return the outputs of detectors that find the same two boxes, of classes 0 and 2."""
    spare = 30
    centre = np.concatenate([centred(CORNERS), np.tile([5.0, 5.0, 4.0, 4.0], (spare, 1))])
    scores = np.concatenate([SCORES, np.full((spare, 3), 1e-4)])
    shares = np.concatenate([CORNERS, np.zeros((spare, 4))]) / SIDE
    none = 1 - scores.max(axis=1, keepdims=True)
    best, kinds = SCORES.max(axis=1), SCORES.argmax(axis=1)
    return {
        "yolov8": {"y": np.concatenate([centre, scores], axis=1).T[None]},
        "yolov5": {"y": np.concatenate([centre, np.ones((len(centre), 1)), scores], axis=1)[None]},
        "ssd": {"boxes": shares[None], "scores": np.concatenate([none, scores], axis=1)[None]},
        "boxes": {"boxes": CORNERS, "labels": kinds, "scores": best},
        "rows6": {"y": np.concatenate([CORNERS, best[:, None], kinds[:, None]], axis=1)[None]},
    }


@pytest.mark.parametrize("form", heads())
def test_every_form_of_head_finds_the_same_boxes(tmp_path, form) -> None:
    output = heads()[form]
    lines = [
        f"{kind} {' '.join(map(str, row))}" for kind, row in zip((0, 2), centred(CORNERS) / SIDE, strict=True)
    ]
    (tmp_path / "0.txt").write_text("\n".join(lines))
    metric = opened("f1:iou=0.99", output, tmp_path)
    assert f"read as {form}" in metric.assumed[0]
    score = scored(metric, [output], [{name: np.zeros_like(values) for name, values in output.items()}])
    assert (score.float_score, score.quantized_score) == (100.0, 0.0)


def with_more(channels: np.ndarray) -> dict[str, np.ndarray]:
    """Return a head of YOLO with channels, [channels, boxes], after the scores of its three classes."""
    head = heads()["yolov8"]["y"][0]
    return {"y": np.concatenate([head, channels])[None]}


MASKS, POINTS = np.full((16, 32), 0.6), np.full((6, 32), 40.0)
PROTOTYPES = {"p": np.zeros((1, 16, 8, 8))}


def named(**metadata: str) -> ir.Model:
    model = model_of("y")
    model.metadata_props.update(metadata)
    return model


@pytest.mark.parametrize("more", [MASKS, POINTS])
@pytest.mark.parametrize("names", ["{0: 'cat', 1: 'dog', 2: 'bird'}", "['cat', 'dog', 'bird']"])
def test_masks_and_keypoints_are_no_classes_where_the_model_names_its_own(more, names) -> None:
    good = {**with_more(more), **PROTOTYPES}
    broken = {**good, "y": good["y"].copy()}
    broken["y"][:, 4:7] = 0.0  # finds nothing
    metric = opened("f1", good, model=named(names=names))
    assert "; 3 classes" in metric.assumed[0]
    score = scored(metric, [good], [broken])
    assert (score.float_score, score.quantized_score) == (100.0, 0.0)


def test_the_number_of_classes_may_be_said() -> None:
    good = {**with_more(MASKS), **PROTOTYPES}
    assert "; 3 classes" in opened("f1:nc=3", good).assumed[0]
    assert "; 3 classes" in opened("f1:classes=0+1+2", good).assumed[0]
    with pytest.raises(ModelError, match=r"beside p .* may contain coefficients of masks.*f1:nc=80"):
        opened("f1", good)
    with pytest.raises(ModelError, match="has room for 19 classes, and nc has 20"):
        opened("f1:nc=20", good)
    with pytest.raises(ModelError, match="has room for 19 classes, and its metadata names has 30"):
        opened("f1", good, model=named(names=str(list(range(30)))))
    with pytest.raises(ConfigError, match="nc=many is not a number of classes"):
        opened("f1:nc=many", good)
    with pytest.raises(ModelError, match="turned boxes"):
        opened("f1", good, model=named(task="obb"))


@pytest.mark.parametrize("form", heads())
def test_what_is_not_from_0_to_1_is_no_score(form) -> None:
    output = {name: values.astype(np.float64) for name, values in heads()[form].items()}
    places = {"yolov8": np.s_[:, 5], "yolov5": np.s_[..., 6], "rows6": np.s_[..., 4]}
    scores = output.get("scores", output.get("y"))
    scores[places.get(form, np.s_[...])] = 3.0
    with pytest.raises(ModelError, match=f"read as {form}, its scores range from .* to 3 instead of 0 to 1"):
        opened("f1", output)


def test_keypoints_without_the_number_of_classes_are_refused() -> None:
    with pytest.raises(ModelError, match="range from 0 to 40 instead of 0 to 1; keypoints"):
        opened("f1", with_more(POINTS))


def test_the_outputs_of_tensorflows_detectors_are_known_by_their_names(tmp_path) -> None:
    best, kinds = SCORES.max(axis=1), SCORES.argmax(axis=1)
    output = {
        "detection_anchor_indices": np.array([[4.0, 9.0]]),
        "detection_boxes": (CORNERS / SIDE)[None][..., [1, 0, 3, 2]],
        "detection_classes": kinds[None] + 1.0,
        "detection_scores": best[None],
        "num_detections": np.array([2.0]),
    }
    lines = [
        f"{kind} {' '.join(map(str, row))}" for kind, row in zip(kinds, centred(CORNERS) / SIDE, strict=True)
    ]
    (tmp_path / "0.txt").write_text("\n".join(lines))
    metric = opened("f1:iou=0.99,first=1", output, tmp_path)
    assert scored(metric, [output], [output]).float_score == 100.0
    assert "detection_boxes, detection_scores, detection_classes read as boxes" in metric.assumed[0]
    assert "yxyx in shares of 64 x 64 pixels" in metric.assumed[0]


def test_numbers_of_classes_may_begin_at_one_or_be_those_of_the_file(tmp_path) -> None:
    output = heads()["boxes"]
    output["labels"] = np.array([10, 30])
    boxes = [
        dict(zip(("id", "bbox"), (n, [*b[:2], *(b[2:] - b[:2])]), strict=True))
        for n, b in enumerate(CORNERS, 1)
    ]
    entries = [
        {**box, "image_id": 0, "category_id": k, "area": 1.0} for box, k in zip(boxes, (10, 30), strict=True)
    ]
    file, _ = coco_file(tmp_path, entries, 1)
    assert scored(opened("f1:ids=yes", output, file), [output], [output]).float_score == 100.0
    output["labels"] = np.array([2, 4])  # of 0, 10, 20 and 30, counted from 1
    assert scored(opened("f1:first=1", output, file), [output], [output]).float_score == 100.0
    assert scored(opened("f1", output, file), [output], [output]).float_score == 0.0


def test_without_a_truth_the_float_models_boxes_are_it() -> None:
    output = heads()["yolov8"]
    metric = opened("map50", output)
    score = scored(metric, [output], [output])
    assert (score.float_score, score.quantized_score) == (100.0, 100.0)
    assert "the boxes of the float model with a score of 0.25 or more are the truth" in metric.assumed[1]


def test_classes_may_be_chosen(tmp_path) -> None:
    output = heads()["yolov8"]
    (tmp_path / "0.txt").write_text("1 " + " ".join(map(str, centred(CORNERS)[1] / SIDE)))
    assert scored(opened("f1:classes=2", output, tmp_path), [output], [output]).float_score == 0.0


WIDE = {"y": np.array([[[16.0, 24.0, 48.0, 40.0, 0.9, 0.0]]])}
"""The middle half of a picture of 128 x 64 in a letterbox."""


def yolo_set(folder, box: str = "0 0.5 0.5 0.5 0.5", split: str = "", size: tuple[int, int] = (128, 64)):
    """Write a picture and the file of its box, by default the middle half of it."""
    for kind in ("images", "labels"):
        (folder / kind / split).mkdir(parents=True)
    Image.new("RGB", size).save(folder / "images" / split / "0.png")
    if box:
        (folder / "labels" / split / "0.txt").write_text(box)
    return folder


def score_of_picture(metric, name: str, output) -> float:
    truth, _ = metric.truth(Place(0, name), output)
    found = metric.scored(truth, output)
    return score_of(metric.kind, 1, *[metric.figures([found])] * 2, None).float_score


def test_boxes_go_where_the_letterbox_puts_the_picture(tmp_path) -> None:
    # 128 x 64 in 64 x 64: half the size, borders of 16 above and below
    corners = np.array([[10.0, 20.0, 50.0, 60.0]])
    assert boxes_in_input(corners, (128.0, 64.0), (64, 64), "letterbox").tolist() == [[5.0, 26.0, 25.0, 46.0]]
    assert boxes_in_input(corners, (128.0, 64.0), (64, 64), "stretch").tolist() == [[5.0, 20.0, 25.0, 60.0]]
    shares = centred(corners)[0] / [128, 64, 128, 64]
    yolo_set(tmp_path, "0 " + " ".join(map(str, shares)))
    output = {"y": np.array([[[5.0, 26.0, 25.0, 46.0, 0.9, 0.0]]])}
    metric = opened("f1:iou=0.99", output, tmp_path / "labels", data=str(tmp_path / "images"))
    assert scored(metric, [output], [output]).float_score == 100.0


def test_the_recipe_of_the_pictures_says_where_they_are(tmp_path) -> None:
    yolo_set(tmp_path)
    for recipe, box in (("yolo", [16.0, 24.0, 48.0, 40.0]), ("raw", [16.0, 16.0, 48.0, 48.0])):
        output = {"y": np.array([[[*box, 0.9, 0.0]]])}
        data = PreprocessedData(str(tmp_path / "images"), recipe)
        for source in (data, ChosenSamples(data, (0,))):
            metric = opened("f1:iou=0.99", output, tmp_path / "labels", data=source)
            assert scored(metric, [output], [output]).float_score == 100.0
    # Without a recipe the model itself says how to read pictures, in a letterbox.
    metric = opened("f1:iou=0.99", WIDE, tmp_path / "labels", data=str(tmp_path / "images"))
    assert scored(metric, [WIDE], [WIDE]).float_score == 100.0
    corner = boxes_in_input(np.zeros((1, 4)), (128.0, 64.0), (64, 64), "top-left")
    assert corner.tolist() == [[0.0, 0.0, 0.0, 0.0]]


def test_a_data_yaml_has_the_boxes_and_the_sizes_of_its_pictures(tmp_path) -> None:
    for split, box in (("train", "0 0.5 0.5 0.1 0.1"), ("val", "0 0.5 0.5 0.5 0.5")):
        yolo_set(tmp_path, box, split)
    (tmp_path / "data.yaml").write_text("train: images/train\nval: images/val\n")
    metric = opened("f1:iou=0.99", WIDE, tmp_path / "data.yaml")
    assert score_of_picture(metric, "images/val/0.png", WIDE) == 100.0
    assert score_of_picture(metric, "images/train/0.png", WIDE) == 0.0


def test_samples_that_are_none_of_a_data_yaml_have_no_boxes_in_it(tmp_path) -> None:
    yolo_set(tmp_path, "")
    (tmp_path / "data.yaml").write_text("val: images\n")
    missing = r"no picture has a file of boxes; that of .*0\.png would be .*0\.txt"
    with pytest.raises(DataError, match=missing):
        opened("f1:iou=0.99", WIDE, tmp_path / "data.yaml")
    (tmp_path / "labels" / "0.txt").write_text("0 0.5 0.5 0.5 0.5")
    metric = opened("f1:iou=0.99", WIDE, tmp_path / "data.yaml")
    with pytest.raises(DataError, match=r"no file has the name of a sample; take the samples from it too"):
        scored(metric, [WIDE], [WIDE])


def test_boxes_in_a_crowd_are_neither_right_nor_wrong() -> None:
    wanted = boxes_of(np.array([[0.0, 0.0, 40.0, 40.0]]), np.array([0]))
    crowd = type(wanted)(wanted.corners, wanted.classes, wanted.scores, np.array([True]))
    found = boxes_of(np.array([[1.0, 1.0, 9.0, 9.0], [50.0, 50.0, 60.0, 60.0]]), np.array([0, 0]))
    counted, matched = counted_matches(found, crowd, 0.5)
    assert counted.corners[:, 0].tolist() == [50.0]
    assert matched.tolist() == [-1]


def test_an_object_within_a_crowd_region_is_found_first() -> None:
    corners = np.array([[0.0, 0.0, 10.0, 10.0], [20.0, 0.0, 30.0, 10.0], [0.0, 0.0, 64.0, 64.0]])
    true = replace(boxes_of(corners, np.zeros(3, np.int64)), crowd=np.array([False, False, True]))
    _, matched = counted_matches(boxes_of(corners[:2], np.zeros(2, np.int64)), true, 0.5)
    assert matched.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("head=yolo", "not one of yolov5, yolov8"),
        ("classes=a", "is not numbers of classes"),
        ("placement=left", "not one of input"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(tmp_path, option, message) -> None:
    (tmp_path / "0.txt").write_text("")
    with pytest.raises(ConfigError, match=message):
        opened(f"f1:{option}", heads()["yolov8"], tmp_path)


def test_what_is_no_truth_of_boxes_is_refused(tmp_path) -> None:
    output = heads()["yolov8"]
    (tmp_path / "a.json").write_text('{"images": 3}')
    with pytest.raises(DataError, match="is not a COCO file of boxes"):
        opened("f1", output, tmp_path / "a.json")
    (tmp_path / "yolo").mkdir()
    (tmp_path / "yolo" / "0.txt").write_text("0 a b\n")
    with pytest.raises(DataError, match="is not a list of boxes"):
        scored(opened("f1", output, tmp_path / "yolo"), [output], [output])
    with pytest.raises(ModelError, match="are not boxes of a known form"):
        opened("f1", {"y": np.zeros((2, 3))}, None, model_of("y"))


def listed(*names: str) -> str:
    """Return a COCO file of pictures of twice the width of the input, each with a box at its left."""
    images = [{"id": at, "width": 2 * SIDE, "height": SIDE, "file_name": n} for at, n in enumerate(names)]
    boxes = [{"image_id": at, "category_id": 1, "bbox": [0, 0, SIDE, SIDE]} for at in range(len(names))]
    return json.dumps({"images": images, "annotations": boxes})


def opened_coco(folder, content: str, output, model: ir.Model | None = None, data=None):
    """Return a metric opened with a COCO file of this content."""
    (folder / "t.json").write_text(content)
    return opened("f1", output, folder / "t.json", model, data=data)


ONE = {"y": np.array([[[0, 0, 32, 64, 0.9, 0]]], np.float32)}


def test_samples_are_found_by_name(tmp_path) -> None:
    metric = opened_coco(tmp_path, listed("train/a.png", "c.png", "x/d.png", "y/d.png"), ONE)
    metric.truth(Place(0, "a.png", 0), ONE)
    for name, count in (("b.png", 0), ("d.png", 2), ("data[1]", 0)):
        with pytest.raises(DataError, match=rf"lists {count} pictures .* such as 'a', one picture a sample"):
            metric.truth(Place(1, name, 1), ONE)


def test_a_file_or_folder_of_boxes_is_told_by_what_it_holds(tmp_path) -> None:
    file, boxes = tmp_path / "t.json", tmp_path / "boxes"
    boxes.mkdir()
    (boxes / "0.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    assert (metric_of_truth(str(boxes)), metric_of_truth(str(tmp_path))) == ("map", None)
    for content, metric in (
        ({"images": [], "annotations": [{"bbox": [0, 0, 1, 1]}]}, "map"),
        ({"a": 1}, None),
        ([1, 2], None),
    ):
        file.write_text(json.dumps(content))
        assert metric_of_truth(str(file)) == metric
    file.write_text(json.dumps({"images": [], "annotations": [{"segmentation": [[0, 0, 1, 1]]}]}))
    with pytest.raises(ConfigError, match=r"without boxes \(bbox\); name the metric"):
        metric_of_truth(str(file))


def test_two_samples_with_the_name_of_one_picture_are_refused(tmp_path) -> None:
    metric = opened_coco(tmp_path, listed("1.png", "2.png"), ONE)
    metric.truth(Place(0, "a/1.png", 0), ONE)
    with pytest.raises(DataError, match=r"samples a/1.png and b/1.png would both"):
        metric.truth(Place(1, "b/1.png", 1), ONE)


def test_chosen_samples_have_the_placement_of_their_recipe(tmp_path) -> None:
    (tmp_path / "t.json").write_text(listed("a.png"))
    (tmp_path / "r.yaml").write_text("reader: image\nresize: exact\n")
    data = PreprocessedData(str(tmp_path), str(tmp_path / "r.yaml"))
    for chosen in (data, ChosenSamples(data, (0,))):
        found = opened("f1", ONE, tmp_path / "t.json", data=chosen)
        assert "in placement stretch;" in found.assumed[1]


def boxes_of_kinds(*kinds: tuple[int, str]) -> str:
    """Return a COCO file of a picture with a box of the last of these categories, by id and name."""
    content = json.loads(listed("0.png"))
    content["annotations"][0]["category_id"] = kinds[-1][0]
    content["categories"] = [{"id": number, "name": name} for number, name in kinds]
    return json.dumps(content)


FOUND = {"y": np.array([[[0, 0, 32, 64, 0.9, 1]]], np.float32)}  # of class 1
ANIMALS = named(names="{0: 'cat', 1: 'guide dog'}")


@pytest.mark.parametrize("name", ["guide dog", "Guide_Dog"])
def test_categories_are_classes_by_the_names_that_the_model_has(tmp_path, name) -> None:
    metric = opened_coco(tmp_path, boxes_of_kinds((7, name)), FOUND, model=ANIMALS)
    assert scored(metric, [FOUND], [FOUND]).float_score == 100.0
    assert metric.assumed[1].endswith(f"classes by their names, {name} is 1")
    assert scored(opened("f1", FOUND, tmp_path / "t.json"), [FOUND], [FOUND]).float_score == 0.0


def test_objects_have_the_names_of_the_categories_where_the_model_has_none(tmp_path) -> None:
    metric = opened_coco(tmp_path, boxes_of_kinds((3, "cow"), (7, "guide dog")), FOUND)
    assert metric.found is not None
    assert [one.name for of_picture in metric.found(FOUND, FOUND, {}) for one in of_picture] == ["guide dog"]


def test_a_category_that_the_model_has_not_is_left_out(tmp_path) -> None:
    content = json.loads(boxes_of_kinds((3, "cow"), (7, "guide dog")))
    content["annotations"].append({**content["annotations"][0], "category_id": 3})
    metric = opened_coco(tmp_path, json.dumps(content), FOUND, model=ANIMALS)
    assert scored(metric, [FOUND], [FOUND]).float_score == 100.0
    assert "boxes of 'cow' are skipped" in metric.assumed[1]


def test_categories_of_which_none_is_a_class_of_the_model_are_refused(tmp_path) -> None:
    (tmp_path / "t.json").write_text(boxes_of_kinds((1, "cow")))
    with pytest.raises(
        DataError, match=r"'cow' are not among the model's, 'cat', 'guide dog'; .* f1:ids=yes"
    ):
        opened("f1", FOUND, tmp_path / "t.json", ANIMALS)
    by_id = opened("f1:ids=yes", FOUND, tmp_path / "t.json", ANIMALS)
    assert scored(by_id, [FOUND], [FOUND]).float_score == 100.0


def test_a_category_above_all_others_is_no_class(tmp_path) -> None:
    content = json.loads(boxes_of_kinds((0, "animals"), (1, "cat"), (2, "dog")))
    for category in content["categories"][1:]:
        category["supercategory"] = "animals"
    (tmp_path / "t.json").write_text(json.dumps(content))
    assert scored(opened("f1", FOUND, tmp_path / "t.json"), [FOUND], [FOUND]).float_score == 100.0


def test_the_classes_of_a_data_yaml_are_those_of_the_model_by_their_names(tmp_path) -> None:
    yolo_set(tmp_path, "0 0.25 0.5 0.5 1.0", size=(SIDE, SIDE))
    for names, score in (("[guide dog]", 100.0), ("[cat]", 0.0), ("{0: guide_dog, 1: cow}", 100.0)):
        (tmp_path / "data.yaml").write_text(f"val: images\nnames: {names}\n")
        metric = opened("f1", FOUND, tmp_path / "data.yaml", ANIMALS)
        assert score_of_picture(metric, "images/0.png", FOUND) == score


def test_a_first_sample_without_boxes_does_not_tell_their_units() -> None:
    empty = {"y": np.zeros((1, 0, 6), np.float32)}
    with pytest.raises(ConfigError, match="f1:units=pixels"):
        opened("f1", empty)
    assert "in pixels" in opened("f1:units=pixels", empty).assumed[0]


def test_objects_are_told_with_both_scores_or_that_only_one_model_has_them() -> None:
    metric = opened("map50", heads()["yolov8"])
    assert metric.found is not None
    floats, quantized = heads()["yolov8"], heads()["yolov8"]
    quantized["y"] = quantized["y"].copy()
    best = int(floats["y"][0, 4:].max(axis=0).argmax())
    quantized["y"][0, 4:, best] = 0.0
    (same,) = metric.found(floats, floats, {0: "cat"})
    assert same
    assert not any(one.changed for one in same)
    assert all(one.float_box == one.quantized_box for one in same)
    (changed,) = metric.found(floats, quantized, {0: "cat"})
    assert [one.quantized_score for one in changed if one.changed] == [None]
    quantized["y"][0, 4:, best] = floats["y"][0, 4:, best] * 0.2
    (less,) = metric.found(floats, quantized, {})
    assert [0.0 < (one.quantized_score or 0.0) < 0.25 for one in less if one.changed] == [True]
    assert {one.name for one in changed} <= {"cat", "class 1", "class 2"}
