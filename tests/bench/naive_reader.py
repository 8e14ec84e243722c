"""The program that people write first: read a frame from stdin, resize, infer, print a line of JSON.

`python -m tests.bench.naive_reader MODEL.tflite WIDTH HEIGHT < frames`; `pipe_reader` compares with it.
"""

from __future__ import annotations

import json
import sys

import cv2
import numpy as np
from ai_edge_litert.interpreter import Interpreter


def main() -> None:
    """Answer frames until the input ends."""
    model, width, height = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    interpreter = Interpreter(model_path=model, num_threads=1)
    interpreter.allocate_tensors()
    source = interpreter.get_input_details()[0]
    target = interpreter.get_output_details()[0]["index"]
    side = int(source["shape"][1])
    frame_bytes = width * height * 3
    square = min(width, height)
    top, left = (height - square) // 2, (width - square) // 2
    while len(data := sys.stdin.buffer.read(frame_bytes)) == frame_bytes:
        frame = np.frombuffer(data, np.uint8).reshape(height, width, 3)
        small = cv2.resize(frame[top : top + square, left : left + square], (side, side))
        rgb = cv2.cvtColor(small, cv2.COLOR_BGR2RGB)
        interpreter.set_tensor(source["index"], rgb.astype(source["dtype"])[None])
        interpreter.invoke()
        scores = interpreter.get_tensor(target)[0]
        best = int(np.argmax(scores))
        print(json.dumps({"index": best, "score": float(scores[best])}), flush=True)


if __name__ == "__main__":
    main()
