"""OpenCV's module dnn."""

from collections.abc import Callable, Mapping
from typing import Any

import cv2


def load(model: str, feed: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], list[Any]]:
    net = cv2.dnn.readNetFromONNX(model)
    names = net.getUnconnectedOutLayersNames()

    def run(feed: Mapping[str, Any]) -> list[Any]:
        for name, array in feed.items():
            net.setInput(array, name)
        return list(net.forward(names))

    return run
