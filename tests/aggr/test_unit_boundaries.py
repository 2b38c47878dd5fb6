"""date_diff and epoch_ms in zones whose clock repeats or skips hours, or is not whole hours ahead of UTC."""

import datetime as dt
import random
import zoneinfo

import pyarrow as pa
import pytest

from aggr.sql import evaluate

UTC = dt.UTC
# zone → the instants around which the clock is changed, and the minutes that it was ahead of UTC modulo an hour
ZONES = {
    "UTC": (["2024-01-01T00:00"], 0),
    "Europe/Berlin": (["2024-03-31T01:00", "2024-10-27T01:00"], 0),
    "America/Sao_Paulo": (["2018-11-04T03:00", "2018-02-18T02:00"], 0),
    "Asia/Kolkata": (["1970-01-01T00:00", "2024-01-01T00:00"], 30),
    "Asia/Kathmandu": (["1990-01-01T00:00", "2024-01-01T00:00"], 45),
    "Australia/Adelaide": (["2024-04-06T16:30", "1973-01-01T00:00"], 30),
}
EXACT = {"microsecond": 1, "ms": 1000, "s": 1_000_000, "second": 1_000_000}
MINUTES = {"minute": 60_000_000, "hour": 3_600_000_000}


def instants(zone: str, rng: random.Random) -> list[int]:
    """Return instants in microseconds since 1970, in UTC, within two hours of a change of the clock, or anywhere."""
    changes = [int(dt.datetime.fromisoformat(f"{at}+00:00").timestamp()) for at in ZONES[zone][0]]
    near = [(at + rng.randrange(-7200, 7200)) * 1_000_000 + rng.choice([0, 1, 999_999]) for at in changes * 30]
    return near + [rng.randrange(0, 2_000_000_000) * 1_000_000 + rng.randrange(1_000_000) for _ in range(20)]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("unit", [*EXACT, *MINUTES])
def test_boundaries_between_instants(zone, unit):
    rng = random.Random(f"{zone} {unit}")
    first = instants(zone, rng)
    last = rng.sample(first, len(first))
    table = pa.table({name: pa.array(at, pa.timestamp("us", "UTC")) for name, at in (("a", first), ("b", last))})
    if unit in EXACT:
        expected = [b // EXACT[unit] - a // EXACT[unit] for a, b in zip(first, last, strict=True)]
    else:
        ahead = ZONES[zone][1] * 60_000_000  # the minutes are the same before and after each change
        expected = [
            (b + ahead) // MINUTES[unit] - (a + ahead) // MINUTES[unit] for a, b in zip(first, last, strict=True)
        ]
    assert evaluate(f"date_diff('{unit}', a, b)", table, zone).to_pylist() == expected


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "Asia/Kathmandu", "Europe/Berlin", "UTC"])
@pytest.mark.parametrize("unit", ["minute", "hour", "day", "week"])
def test_boundaries_on_both_sides_of_1970(zone, unit):
    """The expected numbers are computed from local times. The clocks of the zones do not change in these days."""
    rng = random.Random(zone + unit)
    local = [dt.datetime(1969, 12, 20) + dt.timedelta(seconds=rng.randrange(20 * 86_400)) for _ in range(60)]
    times = [at.replace(tzinfo=zoneinfo.ZoneInfo(zone)).astimezone(UTC) for at in local]
    table = pa.table(
        {"a": pa.array(times[:30], pa.timestamp("us", "UTC")), "b": pa.array(times[30:], pa.timestamp("us", "UTC"))}
    )
    monday = dt.datetime(1969, 12, 15)
    seconds = {"minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}[unit]
    numbers = [int((at - monday).total_seconds()) // seconds for at in local]
    expected = [b - a for a, b in zip(numbers[:30], numbers[30:], strict=True)]
    assert evaluate(f"date_diff('{unit}', a, b)", table, zone).to_pylist() == expected


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_epoch_milliseconds(zone, unit):
    steps = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}[unit]
    times = [at * steps // 1_000_000 for at in instants(zone, random.Random(zone + unit))]
    table = pa.table({"a": pa.array(times, pa.timestamp(unit, "UTC"))})
    expected = [at * 1000 // steps for at in times]
    for name in ("epoch_ms", "unix_millis"):
        assert evaluate(f"{name}(a)", table, zone).to_pylist() == expected
