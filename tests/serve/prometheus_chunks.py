"""A bit by bit reader of Prometheus' streamed chunks, written after ``chunkenc/xor.go`` and
``storage/remote/chunked.go``.
"""

from __future__ import annotations

import struct

from aggr.interchange.protobuf_messages import message_classes

TABLE = {
    "Label": {"name": (1, "string"), "value": (2, "string")},
    "Chunk": {"first": (1, "int64"), "last": (2, "int64"), "type": (3, "int32"), "data": (4, "bytes")},
    "Series": {"labels": (1, "repeated Label"), "chunks": (2, "repeated Chunk")},
    "Response": {"series": (1, "repeated Series"), "query": (2, "int64")},
}
MESSAGES = message_classes("prompb_chunks", TABLE, "serve")


def crc32c(data: bytes) -> int:
    """Compute the checksum by its definition, bit by bit (RFC 3720, B.4)."""
    remainder = 0xFFFFFFFF
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = (remainder >> 1) ^ (0x82F63B78 if remainder & 1 else 0)
    return remainder ^ 0xFFFFFFFF


def read_frames(body: bytes):
    """List the labels and the chunks (first time, last time, bytes) of each frame."""
    frames = []
    place = 0
    while place < len(body):
        size = shift = 0
        while True:
            byte = body[place]
            place += 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        checksum, message = body[place : place + 4], body[place + 4 : place + 4 + size]
        place += 4 + size
        assert len(message) == size
        assert int.from_bytes(checksum, "big") == crc32c(message)
        (series,) = MESSAGES["Response"].FromString(message).series
        assert {chunk.type for chunk in series.chunks} == {1}, "XOR"
        chunks = [(chunk.first, chunk.last, chunk.data) for chunk in series.chunks]
        frames.append(({label.name: label.value for label in series.labels}, chunks))
    return frames


def read_chunk(data: bytes) -> list[tuple[int, float]]:
    """List the times and values of a chunk."""
    bits = _Bits(data)
    count = bits.take(16)
    zigzag = bits.take_varint()
    time, value = (zigzag >> 1) ^ -(zigzag & 1), bits.take(64)
    samples, difference, leading, trailing = [(time, value)], 0, 0, 0
    for i in range(1, count):
        if i == 1:
            difference = bits.take_varint()
        else:
            prefix = 0
            while prefix < 4 and bits.take(1):
                prefix += 1
            size = (0, 14, 17, 20, 64)[prefix]
            change = bits.take(size)
            limit = (1 << size) // 2
            difference += change - (1 << size) if change > limit or (size == 64 and change == limit) else change
        time += difference
        if bits.take(1):
            if bits.take(1):
                leading, significant = bits.take(5), bits.take(6) or 64
                trailing = 64 - leading - significant
            value ^= bits.take(64 - leading - trailing) << trailing
        samples.append((time, value))
    assert 0 <= 8 * len(data) - bits.place <= 8
    return [(at, struct.unpack(">d", struct.pack(">Q", bits_of_value))[0]) for at, bits_of_value in samples]


class _Bits:
    def __init__(self, data: bytes) -> None:
        self._text = "".join(f"{byte:08b}" for byte in data)
        self.place = 0

    def take(self, count: int) -> int:
        """Return the next bits as a number."""
        text = self._text[self.place : self.place + count]
        self.place += count
        return int(text, 2) if text else 0

    def take_varint(self) -> int:
        """Return the next bytes as a number."""
        number = shift = 0
        while True:
            byte = self.take(8)
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number
