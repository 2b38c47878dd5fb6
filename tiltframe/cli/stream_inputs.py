"""The inputs of a stream: folders, files and pipes. Several inputs are read in turn, so that a busy input does not
delay the others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from tiltframe.cli.stream_sources import PAUSE, ArrivedBatch, ArrivingFiles, InputLines, wait_for_input
from tiltframe.files.formats import kind_of
from tiltframe.streaming.source_watermarks import SourceWatermarks

STANDARD_INPUT = Path("-")
SINGLE_INPUT = "the input"  # the name of the input if --input is not used
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
RowSource: TypeAlias = InputLines | ArrivingFiles


def read_inputs(folder: Path | None, texts: Sequence[str]) -> dict[str, Path]:
    """Return the inputs as a dict from names to paths. They are read from the argument ``folder``, or from texts of the
    form ``NAME=PATH``. The path ``-`` is standard input.

    >>> read_inputs(None, ["a=/dev/stdin", "b=-"])
    {'a': PosixPath('/dev/stdin'), 'b': PosixPath('-')}
    """
    if not texts:
        return {SINGLE_INPUT: STANDARD_INPUT if folder is None else folder}
    if folder is not None:
        raise ValueError(
            f"{folder} and --input both name inputs; pass {folder} as --input NAME={folder}, or leave out one of them"
        )
    inputs: dict[str, Path] = {}
    for text in texts:
        name, equals, place = text.partition("=")
        if not equals or not _NAME.fullmatch(name) or not place:
            raise ValueError(f"cannot read --input {text}; write NAME=PATH, such as --input a=arriving/ or --input b=-")
        if name in inputs:
            raise ValueError(f"--input {name} is used twice; give each input a different name")
        same = [other for other, path in inputs.items() if path.resolve() == Path(place).resolve()]
        if same:
            raise ValueError(
                f"--input {same[0]} and --input {name} both name {place}, so the rows of {place} would be counted "
                "twice; leave out one of the inputs"
            )
        inputs[name] = Path(place)
    return inputs


def check_input(name: str, path: Path) -> None:
    """Raise ``ValueError`` if an input is not a folder, a pipe, a file of a known format, or standard input. ``name``
    is its name in messages.
    """
    if path == STANDARD_INPUT or path.is_dir() or path.is_fifo():
        return
    if not path.exists():
        raise ValueError(f"--input {name}: {path} does not exist; name a folder, a file, a named pipe, or - for stdin")
    if not path.is_file() or kind_of(path) is None:
        raise ValueError(
            f"--input {name}: cannot read {path}; name a folder, a named pipe, a Parquet, CSV or JSON file, or - for "
            "standard input"
        )


def open_pipe(path: Path) -> int:
    """Open a named pipe and return its descriptor. Do not wait until a writer has opened it."""
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK)


@dataclass
class Inputs:
    """The inputs of a stream by name, and their watermarks. The watermark of the stream is the earliest watermark of
    its inputs. Inputs that have ended, or had no rows for the time of --idle, are ignored.

    ``has_next_run`` says whether a later run of the stream reads further files of the same inputs. In this case, an
    input that has had rows is not ignored after its end. If it were ignored, the rows that the next run reads from
    this input could be late.
    """

    row_sources: dict[str, RowSource]
    watermarks: SourceWatermarks
    has_next_run: bool = False

    def __post_init__(self) -> None:
        """If there are several inputs, set the pause of each input to 0, so that an input without rows does not delay
        the others. Instead, `batches` waits for all inputs together.
        """
        if len(self.row_sources) > 1:
            for source in self.row_sources.values():
                source.pause = 0.0

    @property
    def resume_notes(self) -> dict[str, Any]:
        """The information about the inputs that the next run of the stream needs, such as the files that were read. It
        is saved with the state.
        """
        if SINGLE_INPUT in self.row_sources:
            return self.row_sources[SINGLE_INPUT].resume_notes
        own_notes = {name: source.resume_notes for name, source in self.row_sources.items()}
        return {"inputs": own_notes, "watermarks": dict(self.watermarks.watermarks)}

    @property
    def resend_advice(self) -> str:
        """A text for the user that says what to do if the rows of the last batch are lost."""
        return "; ".join(dict.fromkeys(source.resend_advice for source in self.row_sources.values()))

    def batches(self, received_signals: list[int]) -> Iterator[ArrivedBatch]:
        """Yield the batches of all inputs until all have ended or ``received_signals`` contains a signal. The inputs
        take turns; a turn lasts until a file or a batch of lines is complete.
        """
        active = {name: source.batches(received_signals) for name, source in self.row_sources.items()}
        while active and not received_signals:
            has_rows = False
            for name in list(active):
                for arrived in active[name]:
                    has_rows |= arrived.rows is not None
                    yield replace(arrived, source=name)
                    if arrived.may_save:
                        break
                else:
                    if received_signals:
                        return
                    del active[name]
                    if not self.has_next_run or self.watermarks.watermarks[name] is None:
                        self.watermarks.end(name)
                    yield ArrivedBatch(None, source=name)
            if len(self.row_sources) > 1 and not has_rows:
                self._wait(active)

    def _wait(self, active: dict[str, Iterator[ArrivedBatch]]) -> None:
        """Wait until one of the pipes has lines, but at most `PAUSE` seconds, because then folders are listed again."""
        pipes = [source.descriptor for name in active if isinstance(source := self.row_sources[name], InputLines)]
        wait_for_input(pipes, PAUSE)
