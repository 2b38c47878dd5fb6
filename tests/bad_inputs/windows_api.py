"""Bad inputs of windows: creating and parsing them, and calls of their methods."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.bad_inputs.check import NOTHING, Bad, cases_of
from tests.bad_inputs.values import HUGE, bad_words, not_text, not_times, not_whole
from windows import (
    AllTime,
    Hopping,
    Session,
    Tumbling,
    as_window,
    check_timezone,
    hopping,
    read_window,
    read_windows,
    session,
    window,
)
from windows.testing import check, times_of

BAD_SIZES = {
    **bad_words(),
    "number only": "10",
    "zero": "0s",
    "negative": "-1s",
    "fraction": "1.5h",
    "wide digits": "１０s",
    "arabic digits": "٣m",
    "superscript": "²h",
    "two sizes": "1h30m",
    "unit of none": "1x",
    "upper case": "1H",
    "near miss": "1minuets",
    "huge": "999999999s",
    "longer than all times": "9500y",
    "thousands of digits": "1" * 5000 + "s",
    "sign": "+1h",
    "list": "1h,1d",
    "hopping": "hopping(1h, 1m)",
    "all": "all",
    "no-break space": "1\u00a0h",
}
BAD_ZONES = {
    **bad_words(),
    "near miss": "Europe/Pariss",
    "offset": "+25:30",
    "path": "../../etc/passwd",
    "absolute path": "/etc/passwd",
    "folder": "Europe",
    "folder with slash": "Europe/",
    "dots": "Europe/../Europe/Paris",
    "abbreviation": "XYZT",
    "lower case": "europe/paris",
}
BAD_TEXTS = {
    "one size": "hopping(1h)",
    "three sizes": "hopping(1h, 1m, 1s)",
    "no sizes": "hopping()",
    "empty sizes": "hopping(,)",
    "open": "hopping(1h, 1m",
    "without brackets": "hopping 1h, 1m",
    "closed only": "1h)",
    "more behind": "hopping(1h, 1m) of it",
    "longer hop": "hopping(1m, 1h)",
    "months and days": "hopping(1mo, 1d)",
    "wide digits": "hopping(１h, 1m)",
    "zero hop": "hopping(1h, 0m)",
    "too many panes": "hopping(100000d, 1s)",
    "nested": "hopping(hopping(1h, 1m), 1m)",
    "offset of the hop's length": "hopping(1h, 10m, offset=10m)",
    "offset first": "hopping(offset=5m, 1h, 10m)",
    "offset twice": "hopping(1h, 10m, offset=1m, offset=2m)",
    "hopping, upper case": "HOPPING(1h, 1m)",
    "tumbling of two": "tumbling(1d, 6h)",
    "tumbling of none": "tumbling()",
    "tumbling with an empty offset": "tumbling(1d, offset=)",
    "tumbling with an offset of its length": "tumbling(1d, offset=24h)",
    "tumbling with a longer offset": "tumbling(1d, offset=1w)",
    "tumbling with a negative offset": "tumbling(1d, offset=-6h)",
    "tumbling with an offset of months": "tumbling(1y, offset=1mo)",
    "tumbling with an offset of wide digits": "tumbling(1d, offset=６h)",
    "tumbling with another parameter": "tumbling(1d, shift=6h)",
    "tumbling with a hop": "tumbling(1d, hop=6h)",
    "tumbling with a colon": "tumbling(1d, offset:6h)",
    "session of none": "session()",
    "session alone": "session",
    "session of two": "session(30m, 10m)",
    "session with an offset": "session(30m, offset=5m)",
    "session of zero": "session(0s)",
    "session of a month": "session(1mo)",
    "session of a number": "session(30)",
    "session, negative": "session(-1s)",
    "session, fraction": "session(1.5h)",
    "session, too long": "session(1001000d)",
    "session of thousands of digits": "session(" + "1" * 5000 + "s)",
    "session of wide digits": "session(３０m)",
    "session, open": "session(30m",
    "session, nested": "session(session(30m))",
    "all of something": "all(1h)",
    "all in upper case": "ALL",
    "two alls": "all,all",
    "global": "global",
    "unknown kind": "sliding(1h)",
    "near miss": "tumblng(1h)",
    "braces": "session{30m}",
}
BAD_GAPS = {
    **{label: text for label, text in BAD_SIZES.items() if label not in ("longer than all times", "huge", "zero")},
    "month": "1mo",
    "quarter": "1q",
    "year": "2y",
    "longer than 1000 years": "400000d",
    "of a nanosecond": "1ns",
    "session": "session(30m)",
}
BAD_OFFSETS = {
    **{label: text for label, text in BAD_GAPS.items() if label != "zero"},
    "as long as the window": "1h",
    "longer": "1d",
}
NOT_OFFSETS = {**not_whole("huge"), "huge": HUGE, "as long as the window": 3_600_000_000}
BAD_LISTS = {
    "empty": "",
    "comma": ",",
    "ends with a comma": "1h,",
    "blank between": "1h 1d",
    "semicolon": "1h;1d",
    "open": "1h,hopping(1h",
    "a bad one": "1h,1x",
    "brackets": "[1h,1d]",
    "unmatched": "1h),1d",
}
BEYOND, FAR = np.array([2**62]), np.array([-(2**63), 2**63 - 1])
HOUR, HOURS, SESSION, ALL_TIME = window("1h"), hopping("1h", "10m"), session("30m"), AllTime()
ONE_OF_EACH_KIND = {"Tumbling": HOUR, "Hopping": HOURS, "Session": SESSION, "AllTime": ALL_TIME}
MONTHS = {
    "month": window("1mo"),
    "hopping month": hopping("1y", "1mo", "Europe/Paris"),
    "shifted": window("1d", "UTC", "6h"),
}
NO_WINDOW = {**not_text(), **BAD_SIZES}
ONE_TIME = np.array([0], np.int64)
# no window at all, whatever its kind; and what is no tumbling window
NOT_WINDOWS = {**not_text("class"), "class": Tumbling, "text of a window": "1h"}
NOT_TUMBLING = {**NOT_WINDOWS, "hopping": HOURS, "session": SESSION, "whole": ALL_TIME}
NOT_KEYS = {label: value for label, value in not_times().items() if label != "int32 array"}
HUGE_OR_NOT_WHOLE = {**not_whole("negative", "huge"), "huge": HUGE}

CASES = [
    *cases_of("window(size)", not_text(), lambda w, v: window(v), "window", "such as|whole number"),
    *cases_of("window(size)", BAD_SIZES, lambda w, v: window(v), "a window", "such as .10s.|at most"),
    *cases_of("window(size)", {"hopping window": HOURS, "session": SESSION, "whole": ALL_TIME}, lambda w, v: window(v), "such as"),
    *cases_of("window(timezone)", not_text(), lambda w, v: window("1h", v), "time zone", "IANA"),
    *cases_of("window(timezone)", BAD_ZONES, lambda w, v: window("1h", v), "time zone", "IANA|did you mean|an offset is"),
    *cases_of("window(offset)", not_text("none"), lambda w, v: window("1h", "UTC", v), "offset", "such as"),
    *cases_of("window(offset)", BAD_OFFSETS, lambda w, v: window("1h", "UTC", v), "offset"),
    Bad("window(offset) = longer than February", lambda w: window("1mo", "UTC", "28d"), ("offset", "28d", "February")),
    *cases_of("check_timezone(name)", not_text(), lambda w, v: check_timezone(v), "time zone", "IANA"),
    *cases_of("check_timezone(name)", BAD_ZONES, lambda w, v: check_timezone(v), "time zone", "IANA|did you mean|an offset is"),
    *cases_of("hopping(size)", NO_WINDOW, lambda w, v: hopping(v, "1m"), "window", "such as|at most"),
    *cases_of("hopping(hop)", NO_WINDOW, lambda w, v: hopping("1h", v), "window", "such as|at most"),
    *cases_of("hopping(timezone)", {**not_text(), **BAD_ZONES}, lambda w, v: hopping("1h", "1m", v), "time zone"),
    *cases_of("hopping(timezone), of windows", {**not_text(), **BAD_ZONES}, lambda w, v: hopping(HOUR, HOUR, v), "time zone"),
    Bad("Session(gap) = of 5000 digits", lambda w: Session(10**5000), ("gap", "an int")),
    Bad("Tumbling(offset) = of 5000 digits", lambda w: Tumbling(1, "h", "UTC", 10**5000), ("offset", "an int")),
    *cases_of("hopping(offset)", not_text("none"), lambda w, v: hopping("2h", "1h", "UTC", v), "offset", "such as"),
    *cases_of("hopping(offset)", BAD_OFFSETS, lambda w, v: hopping("2h", "1h", "UTC", v), "offset"),
    *cases_of("session(gap)", {**not_text(), **BAD_GAPS}, lambda w, v: session(v), "gap"),
    Bad("session(gap) = zero microseconds", lambda w: session("0us"), ("gap", "one microsecond")),
    *cases_of("Session(gap)", {**not_whole("huge"), "zero": 0, "huge": HUGE}, lambda w, v: Session(v), "gap", "microsecond"),
    *[
        case
        for name, read in {"read_window(text)": read_window, "as_window(window)": as_window}.items()
        for case in [
            *cases_of(name, not_text(), lambda w, v, read=read: read(v), "window", "such as"),
            *cases_of(name, {k: v for k, v in BAD_SIZES.items() if k not in ("hopping", "all")}, lambda w, v, read=read: read(v), "window", "such as|at most"),
            *(replace(bad, given=NOTHING) for bad in cases_of(name, BAD_TEXTS, lambda w, v, read=read: read(v))),
        ]
    ],
    *cases_of("read_window(timezone)", {**not_text(), **BAD_ZONES}, lambda w, v: read_window("1h", v), "time zone"),
    *cases_of("read_window(timezone), of sessions", {**not_text(), **BAD_ZONES}, lambda w, v: read_window("session(1h)", v), "time zone"),
    *cases_of("read_window(timezone), of all", {**not_text(), **BAD_ZONES}, lambda w, v: read_window("all", v), "time zone"),
    *cases_of("as_window(timezone)", {**not_text(), **BAD_ZONES}, lambda w, v: as_window("1h", v), "time zone"),
    Bad("as_window(window) = the class", lambda w: as_window(Tumbling), ("window", "Tumbling")),
    *cases_of("read_windows(text)", {**not_text(), "windows": [HOUR]}, lambda w, v: read_windows(v), "text"),
    *(replace(bad, given=NOTHING) for bad in cases_of("read_windows(text)", BAD_LISTS, lambda w, v: read_windows(v), "window")),
    *cases_of("read_windows(timezone)", {**not_text(), **BAD_ZONES}, lambda w, v: read_windows("1h,1d", v), "time zone"),
    *cases_of(
        "Tumbling(count)", {**not_whole("huge"), "zero": 0, "huge": HUGE}, lambda w, v: Tumbling(v, "h"), "count", "1 to"
    ),
    *cases_of("Tumbling(unit)", {**not_text(), **bad_words(), "minute": "minute"}, lambda w, v: Tumbling(1, v), "unit", "mo"),
    *cases_of("Tumbling(timezone)", {**not_text(), **BAD_ZONES}, lambda w, v: Tumbling(1, "h", v), "time zone"),
    *cases_of("Tumbling(offset)", {k: v for k, v in NOT_OFFSETS.items() if k not in ("negative", "as long as the window")}, lambda w, v: Tumbling(1, "h", "UTC", v), "offset"),
    Bad("Tumbling(offset) = negative", lambda w: Tumbling(1, "h", "UTC", -1), ("offset", "-1us", "at least 0")),
    Bad("Tumbling(offset) = its length", lambda w: Tumbling(1, "h", "UTC", 3_600_000_000), ("offset", "1h", "shorter")),
    Bad("Tumbling = longer than all times", lambda w: Tumbling(9001, "y"), ("at most 9,000 years", "9001y")),
    *cases_of("Hopping(size)", NOT_TUMBLING, lambda w, v: Hopping(v, HOUR), "size", "Tumbling"),
    *cases_of("Hopping(hop)", NOT_TUMBLING, lambda w, v: Hopping(HOUR, v), "hop", "Tumbling"),
    Bad("Hopping(size) = with an offset", lambda w: Hopping(window("1d", "UTC", "6h"), HOUR), ("offset", "hop")),
    Bad("Hopping = of two zones", lambda w: Hopping(window("1d", "Europe/Paris"), HOUR), ("one time zone", "Europe/Paris")),
    *[
        case
        for kind, of_kind in ONE_OF_EACH_KIND.items()
        for case in [
            *cases_of(f"{kind}.assign(times)", not_times(), lambda w, v, time_window=of_kind: time_window.assign(v), "times", "int64"),
            *cases_of(f"{kind}.made_of(finer)", NOT_WINDOWS, lambda w, v, time_window=of_kind: time_window.is_made_of(v), "TimeWindow"),
            *cases_of(f"{kind}.nesting_problem(finer)", NOT_WINDOWS, lambda w, v, time_window=of_kind: time_window.nesting_problem(v), "TimeWindow"),
            *cases_of(f"{kind}.merge(keys)", NOT_KEYS, lambda w, v, time_window=of_kind: time_window.merge(v, ONE_TIME, ONE_TIME + 1), "keys", "integers"),
            *cases_of(f"{kind}.merge(starts)", not_times(), lambda w, v, time_window=of_kind: time_window.merge(ONE_TIME, v, ONE_TIME + 1), "starts", "int64"),
            *cases_of(f"{kind}.merge(ends)", not_times(), lambda w, v, time_window=of_kind: time_window.merge(ONE_TIME, ONE_TIME, v), "ends", "int64"),
            Bad(f"{kind}.merge = more keys", lambda w, time_window=of_kind: time_window.merge(np.array([1, 2]), ONE_TIME, ONE_TIME + 1), ("the same length",)),
            Bad(f"{kind}.merge = fewer ends", lambda w, time_window=of_kind: time_window.merge(ONE_TIME, ONE_TIME, ONE_TIME[:0]), ("the same length",)),
            Bad(f"{kind}.merge = starts of two dimensions", lambda w, time_window=of_kind: time_window.merge(ONE_TIME, ONE_TIME[None], ONE_TIME), ("starts", "shape")),
            Bad(f"{kind}.assign(times) = of two dimensions", lambda w, time_window=of_kind: time_window.assign(ONE_TIME[None]), ("times", "shape")),
        ]
    ],
    *cases_of("Tumbling.starts(times)", not_times(), lambda w, v: HOUR.starts(v), "times", "int64"),
    *cases_of("Tumbling.ends(starts)", not_times(), lambda w, v: HOUR.ends(v), "starts", "int64"),
    *cases_of("Hopping.starts(times)", not_times(), lambda w, v: HOURS.starts(v), "times", "int64"),
    *cases_of("Hopping.ends(starts)", not_times(), lambda w, v: HOURS.ends(v), "starts", "int64"),
    *cases_of("AllTime.ends(starts)", not_times(), lambda w, v: ALL_TIME.ends(v), "starts", "int64"),
    *(
        Bad(f"{kind}.{name} = unknown", call, ("do not follow from a clock", "use windows of a fixed size"))
        for kind, of_kind in (("Session", SESSION), ("AllTime", ALL_TIME))
        for name, call in {
            "starts": lambda w, time_window=of_kind: time_window.starts(ONE_TIME),
            "between": lambda w, time_window=of_kind: time_window.starts_between(0, 1),
            "first_start_from": lambda w, time_window=of_kind: time_window.first_start_from(0),
        }.items()
    ),
    Bad("Session.ends = unknown", lambda w: SESSION.ends(ONE_TIME), ("do not follow from a clock",)),
    *(
        Bad(f"{name} = {label}", lambda w, call=call, times=times: call(times), ("the years 2 to 9998",))
        for label, times in {"beyond": BEYOND, "far": FAR}.items()
        for name, call in {
            "Tumbling.assign(times)": HOUR.assign,
            "Tumbling.starts(times)": HOUR.starts,
            "Tumbling.ends(starts)": HOUR.ends,
            "Hopping.assign(times)": HOURS.assign,
            "Hopping.starts(times)": HOURS.starts,
            "Hopping.ends(starts)": HOURS.ends,
            "Session.assign(times)": SESSION.assign,
            **{f"{kind}.assign(times)": time_window.assign for kind, time_window in MONTHS.items()},
            **{f"{kind}.ends(starts)": time_window.ends for kind, time_window in MONTHS.items()},
        }.items()
    ),
    *(
        Bad(f"AllTime.{name} = {label}", lambda w, call=call, times=times: call(times), ("times must be microseconds from",))
        for label, times in {"beyond": BEYOND, "far": FAR}.items()
        for name, call in {"assign(times)": ALL_TIME.assign, "ends(starts)": ALL_TIME.ends}.items()
    ),
    *[
        case
        for kind, of_kind in {"Tumbling": HOUR, "Hopping": HOURS, **MONTHS}.items()
        for case in [
            *cases_of(f"{kind}.starts_between(start)", HUGE_OR_NOT_WHOLE, lambda w, v, time_window=of_kind: time_window.starts_between(v, 10), "start"),
            *cases_of(f"{kind}.starts_between(end)", HUGE_OR_NOT_WHOLE, lambda w, v, time_window=of_kind: time_window.starts_between(0, v), "end"),
            *cases_of(f"{kind}.first_start_from(at)", HUGE_OR_NOT_WHOLE, lambda w, v, time_window=of_kind: time_window.first_start_from(v), "at"),
            Bad(f"{kind}.between = beyond", lambda w, time_window=of_kind: time_window.starts_between(-(2**63), 2**63 - 1), ("the years 2 to 9998",)),
            Bad(f"{kind}.first_start_from = beyond", lambda w, time_window=of_kind: time_window.first_start_from(2**62), ("the years 2 to 9998",)),
        ]
    ],
    Bad("Tumbling.between = too many", lambda w: window("1s").starts_between(0, 10**15), ("at most 10,000,000", "1s")),
    *cases_of("check(window)", NOT_WINDOWS, lambda w, v: check(v), "TimeWindow"),
    *cases_of("check(rounds)", not_whole("huge"), lambda w, v: check(HOUR, rounds=v), "rounds"),
    *cases_of("check(seed)", not_whole("huge"), lambda w, v: check(HOUR, seed=v), "seed"),
    *cases_of("times_of(window)", NOT_WINDOWS, lambda w, v: times_of(v, 10, 0), "TimeWindow"),
    *cases_of("times_of(size)", not_whole("huge"), lambda w, v: times_of(HOUR, v, 0), "size"),
    *cases_of("times_of(seed)", not_whole("huge"), lambda w, v: times_of(HOUR, 10, v), "seed"),
]  # fmt: skip
