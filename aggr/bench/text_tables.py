"""The figures of a report as tables of plain text."""

from __future__ import annotations

from collections.abc import Sequence

from aggr.bench.report import OURS, Report

STAGES = ("reduce", "merge", "finish", "answers")  # "answers" is the complete computation from rows to results


def as_text(report: Report, earlier: Report | None = None) -> str:
    """Return a report as text: tables of speed, bytes, errors, memory and jobs on Spark, and the changes since an
    earlier report.

    Parameters
    ----------
    report : Report
    earlier : Report, optional

    Returns
    -------
    str
        Tables without figures are left out.
    """
    parts = (
        [_job_table(report)]
        if report.traffic
        else [_timing_table(report), _size_table(report), _error_table(report), _memory_table(report)]
    )
    if report.traffic:
        sentence = "all jobs of this library except SQL return the same bits for {}"
    else:
        sentence = "merged states of {} are bit-identical to the states of all rows"
    parts += [f"{sentence.format(call)}: {'yes' if same else 'NO'}" for call, same in report.keeps_bits.items()]
    parts += [f"left out: {note}" for note in report.notes]
    if earlier is not None:
        parts.append(_change_table(report, earlier))
    if not report.is_complete:
        parts.append("interrupted: the figures are not complete")
    return "\n\n".join(part for part in parts if part)


def _timing_table(report: Report) -> str:
    """Return a table of the times of a report: one line per measure, package and number of groups."""
    lines = [["measure", "by", "groups", "reduce", "merge", "finish", "rows to results", "ratio"]]
    ns_by_cell = {(t.measure, t.by, t.groups, t.stage): t.ns for t in report.timings}
    for measure, by, groups in dict.fromkeys((t.measure, t.by, t.groups) for t in report.timings):
        figures = [ns_by_cell.get((measure, by, groups, stage)) for stage in STAGES]
        ours = ns_by_cell.get((measure, OURS, groups, "answers"))
        answers = figures[-1]
        ratio = f"{answers / ours:.2f} ×" if ours and answers and by != OURS else ""
        cells = ["" if ns is None else f"{ns:,.1f}" for ns in figures]
        lines.append([measure if by == OURS else "", by, f"{groups:,}", *cells, ratio])
    title = "nanoseconds per row (reduce, rows to results) or per state (merge, finish), and the ratio to tiltframe"
    return _table(title, lines)


def _job_table(report: Report) -> str:
    """Return a table of the times and the bytes of jobs on Spark. The column "ratio" contains the time of each job,
    divided by the time of the first job with the same measure, number of groups and keys.
    """
    head = ["measure", "by", "groups", "keys", "seconds", "ns per row", "ratio", "shuffled", "spilled", "worker"]
    lines = [head]
    traffic = {(t.measure, t.by, t.groups, t.keys): t for t in report.traffic}
    first_times: dict[tuple[str, int, str], float] = {}
    for timing in report.timings:
        is_first = (timing.measure, timing.groups, timing.keys) not in first_times
        first_time = first_times.setdefault((timing.measure, timing.groups, timing.keys), timing.ns)
        job_traffic = traffic[timing.measure, timing.by, timing.groups, timing.keys]
        sizes = [
            _mebibytes(size) for size in (job_traffic.shuffle_bytes, job_traffic.spill_bytes, job_traffic.worker_bytes)
        ]
        seconds = timing.ns * timing.rows / 1e9
        figures = [f"{seconds:,.2f}", f"{timing.ns:,.1f}", f"{timing.ns / first_time:.2f} ×", *sizes]
        name = timing.measure if is_first else ""
        lines.append([name, timing.by, f"{timing.groups:,}", timing.keys, *figures])
    return _table("jobs on Spark, from rows to results; shuffled, spilled and the largest Python worker in MiB", lines)


def _mebibytes(size: int | None) -> str:
    return "" if size is None else f"{size / 2**20:,.1f}"


def _size_table(report: Report) -> str:
    counts = list(dict.fromkeys(size.rows for size in report.sizes))
    lines = [["measure", "by", *(f"{count:,} rows" for count in counts)]]
    bytes_by_cell = {(s.measure, s.by, s.rows): s.bytes for s in report.sizes}
    for measure, by in dict.fromkeys((s.measure, s.by) for s in report.sizes):
        cells = [_bytes(bytes_by_cell.get((measure, by, count))) for count in counts]
        lines.append([measure if by == OURS else "", by, *cells])
    return _table("bytes of one state", lines)


def _error_table(report: Report) -> str:
    lines = [["measure", "by", "distribution", "part", "worst relative", "mean relative", "worst rank"]]
    for error in report.errors:
        rank = "" if error.worst_rank is None else f"{error.worst_rank:.2%}"
        measure_name = error.measure if error.by == OURS else ""
        figures = [_relative_error(error.worst_relative), _relative_error(error.mean_relative), rank]
        lines.append([measure_name, error.by, error.distribution, error.part, *figures])
    return _table("relative errors of the value, and errors of the rank, compared with the exact result", lines)


def _memory_table(report: Report) -> str:
    lines = [["measure", "groups", "rows", "peak memory"]]
    for memory in report.memory:
        size = "not measured" if memory.bytes is None else f"{memory.bytes / 2**20:,.1f} MiB"
        lines.append([memory.measure, f"{memory.groups:,}", f"{memory.rows:,}", size])
    return _table("peak memory in addition to the rows", lines)


def _change_table(report: Report, earlier: Report) -> str:
    lines = [["measure", "by", "stage", "groups", "keys", "ns", "new / earlier"]]
    for timing, ratio in report.changes_since(earlier):
        figures = [f"{timing.groups:,}", timing.keys, f"{timing.ns:,.1f}", f"{ratio:.2f}"]
        lines.append([timing.measure, timing.by, timing.stage, *figures])
    if len(lines) == 1:
        return "no time differs from the earlier report by 10 % or more"
    return _table("times that differ from the earlier report by 10 % or more", lines)


def _table(title: str, lines: Sequence[Sequence[str]]) -> str:
    """Return a table as text, or an empty text if the table has only a header line. Names are aligned to the left, and
    numbers to the right.
    """
    if len(lines) == 1:
        return ""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    left_aligned = {"measure", "by", "distribution", "part", "stage", "keys"}
    rows = [
        "  ".join(
            cell.ljust(width) if name in left_aligned else cell.rjust(width)
            for name, cell, width in zip(lines[0], line, widths, strict=True)
        ).rstrip()
        for line in lines
    ]
    return "\n".join([title, "", rows[0], "-" * len(rows[0]), *rows[1:]])


def _bytes(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def _relative_error(error: float) -> str:
    return "exact" if error == 0 else f"{error:.2g}"
