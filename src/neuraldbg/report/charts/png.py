"""Cells of colour as a tiny PNG: 10,000 of them are 10 KiB, as rectangles they were 500."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]


def address(pixels: Pixels) -> str:
    """A `data:` address of a picture, for an `<image>`.

    Args:
        pixels: Red, green, blue and opacity, shape (rows, columns, 4).
    """
    return "data:image/png;base64," + base64.b64encode(encode(pixels)).decode("ascii")


def encode(pixels: Pixels) -> bytes:
    """The picture as a PNG file: 8 bits a channel, every row unfiltered."""
    rows, columns, _ = pixels.shape
    unfiltered = np.zeros((rows, 1), np.uint8)
    body = np.concatenate([unfiltered, pixels.reshape(rows, columns * 4)], axis=1).tobytes()
    head = struct.pack(">IIBBBBB", columns, rows, 8, 6, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(body, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)
