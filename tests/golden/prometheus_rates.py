"""Write the rates that Prometheus computes for random counters: ``python -m tests.golden.prometheus_rates``.

It uses ``promtool test rules``, which evaluates expressions over listed series. ``apt-get install prometheus`` installs
promtool.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import tempfile
from pathlib import Path

GOLDEN = Path(__file__).parent / "v1" / "prometheus_rates.json"
FUNCTIONS = ("rate", "increase", "delta", "resets")
COUNT = 200  # series in the file
START, END = 3000, 3600  # seconds: a window of 10 minutes, on whose edges no point is
INTERVAL = 7


def series(seed: int) -> list[tuple[int, float]]:
    """Draw the points of a series in the window: (seconds, value), with gaps and resets."""
    draws = random.Random(seed)
    times = range(-(-START // INTERVAL) * INTERVAL, END, INTERVAL)
    first, last = draws.randrange(40), len(times) - 1 - draws.randrange(40)
    density, is_integer, falls = draws.choice([0.1, 0.5, 0.9, 1.0]), draws.random() < 0.5, draws.choice([0, 0.05, 0.3])
    value, points = draws.choice([0.0, 3.0, 1000.0]) * draws.random(), []
    for time in times[first : last + 1]:
        value = 0.0 if draws.random() < falls else value + draws.choice([0, 1, 10, 300]) * draws.random()
        if draws.random() < density:
            points.append((time, float(round(value)) if is_integer else round(value, 3)))
    return points


def told_by_promtool(seeds: range) -> dict[int, dict[str, float]]:
    """Ask promtool: it expects nothing, and so says what it got instead."""
    lines = []
    for seed in seeds:
        values = dict(series(seed))
        samples = " ".join(f"{values[at]:.3f}" if at in values else "_" for at in range(0, END + 1, INTERVAL))
        lines.append({"series": f's{{id="{seed}"}}', "values": samples})
    expression_tests = [
        {"expr": f"{name}(s[{END - START}s])", "eval_time": f"{END}s", "exp_samples": []} for name in FUNCTIONS
    ]
    tests = {"tests": [{"interval": f"{INTERVAL}s", "input_series": lines, "promql_expr_test": expression_tests}]}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tests.yml"
        file.write_text(json.dumps(tests))  # which is YAML
        output = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)
    answers: dict[int, dict[str, float]] = {seed: {} for seed in seeds}
    for name, got in re.findall(
        r"expr: \"(\w+)\(.*?got:\[?(.*?)(?=\n\s*expr:|\Z)", output.stdout + output.stderr, re.S
    ):
        for seed, value in re.findall(r'\{id=\\?"(\d+)\\?"\}[^\d+-]*([-+.\dE]+|NaN)', got):
            answers[int(seed)][name] = float(value)
    return answers


if __name__ == "__main__":
    golden = told_by_promtool(range(COUNT))
    GOLDEN.write_text(
        "{\n" + ",\n".join(f'"{seed}": {json.dumps(answers)}' for seed, answers in golden.items()) + "\n}\n"
    )
