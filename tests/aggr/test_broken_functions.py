"""Functions broken on purpose (`broken_functions`): ``check(f)`` detects each by the expected law."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from aggr.extend import GREATEST, Function
from aggr.testing.harness import check_laws
from aggr.testing.kept_states import keep_states
from aggr.testing.laws import LawBroken, check
from tests.aggr import broken_accessors, broken_functions, broken_parameters
from tests.aggr import broken_functions as broken

LAW_BY_FUNCTION: dict[str, str] = {
    "LosesInfinity": "exact",
    "LosesNaN": "exact",
    "ThroughDoubles": "exact",
    "FloatSum": "tower",
    "SinglePrecision": "exact",
    "WrapsUnsigned": "exact",
    "LosesScale": "exact",
    "OverflowWraps": "exact",
    "ZeroSignInStruct": "exact",
    "NaNInMap": "exact",
    "CoarseQuantile": "exact",
    "FirstHundred": "any_order",
    "RandomSample": "repeats",
    "OffByOneBound": "identity",
    "NeighboursGroup": "isolated_results",
    "ShareOfAll": "isolated_results",
    "SortedGroups": "identity",
    "NarrowGroups": "single_rows",
    "MergeLosesState": "tower",
    "MeanOfMeans": "tower",
    "BatchDistinct": "tower",
    "NotAnIdentity": "single_rows",
    "SeesNulls": "null_is_identity",
    "ZeroIfEmpty": "exact",
    "TypeByValue": "exact_type",
    "LosesZone": "exact",
    "TruncatesBefore1970": "exact",
    "EmptyTextIsNull": "exact",
    "ByUtf16": "exact",
    "IgnoresCase": "exact",
    "Normalizes": "exact",
    "IgnoresOffset": "slices",
    "WritesIntoValues": "neighbours",
    "SortsGroupNumbers": "neighbours",
    "FinishMutates": "purity",
    "NumbersByFirstSight": "other_process",
    "SaltedHashes": "other_process",
    "ReadsClock": "purity",
    "CountsCalls": "slices",
    "ReadsProcess": "other_process",
    "UnseededRandom": "purity",
    "UndeclaredText": "reading_parameters",
    "UndeclaredTuple": "reading_parameters",
    "DefaultState": "state_parameters",
    "PickleLosesParameter": "copies",
    "SubtractsNothing": "subtraction",
    "IgnoresWeights": "weights",
    "ChangedMeaning": "kept_states",
    "WritesIntoWeights": "neighbours",
    "FirstOfTies": "tower",
    "ListThroughDoubles": "exact",
    "SixteenBits": "any_order",
    "SampleOfLargeBatches": "any_order",
    "SmallBuffer": "single_rows",
    "LocalHour": "other_process",
    "SharedScratch": "threads",
    "FailsWithoutGroups": "no_groups",
    "SubtractsDoubles": "subtraction",
    "ZeroSignInList": "exact",
    "MergeDropsNaN": "any_order",
    "MergesThroughDoubles": "tower",
    "DecimalContext": "exact",
    "FlushesSubnormals": "exact",
    "RemembersByLength": "isolated_results",
    "UndeclaredWords": "reading_parameters",
    "UndeclaredFlag": "reading_parameters",
    "PairwiseSum": "tower",
    "SetOrder": "other_process",
    "ReadsUnitWrong": "exact",
    "ReplacesInfinities": "neighbours",
    "LongTexts": "exact",
    "IgnoresFactor": "other_parameters",
    "UnknownEdge": "other_parameters",
    "IgnoresThreshold": "other_parameters",
    "WholeSeconds": "exact",
    "TimeOfDayInSeconds": "exact",
    "AssumesMicroseconds": "exact",
    "ClaimsToBeReadable": "is_always_readable",
    "UndeclaredLimit": "reading_parameters",
    "ShareOfStates": "accessors",
    "WritingAccessor": "accessors",
    "AccessorOfOtherType": "accessors",
    "EdgesOfOtherKeys": "edges",
    "EdgesInOrder": "edges",
}
# the function raises an error itself, or `check` raises ValueError, because it cannot test something
WITHOUT_LAW = ["DropsEmpty", "RejectsDecimals", "ExactOfNothing"]
MODULES = [broken_functions, broken_parameters, broken_accessors]
FUNCTIONS = {
    name: kind
    for module in MODULES
    for name, kind in vars(module).items()
    if inspect.isclass(kind) and issubclass(kind, Function) and kind.__module__ == module.__name__
}
SOUND = ["Largest", "Total"]
SLOW = {
    *("NumbersByFirstSight", "SaltedHashes", "ReadsProcess", "NarrowGroups", "ZeroSignInStruct", "RandomSample"),
    *("LocalHour", "SharedScratch", "SixteenBits", "SampleOfLargeBatches", "FlushesSubnormals", "SetOrder"),
}
PARAMETERS: dict[str, dict[str, Any]] = {
    "UndeclaredText": {"conversion": ["upper"]},
    "UndeclaredTuple": {"edges": [(5.0, 20.0)]},
    "UndeclaredWords": {"words": [("x", "00")]},
    "UnknownEdge": {"edge": ["upper"]},
    "EdgesOfOtherKeys": {"method": ["linear"]},
    "EdgesInOrder": {"extrapolate": ["1m"]},
}
CASES = [
    pytest.param(name, law, marks=[pytest.mark.long] if name in SLOW else [])
    for name, law in LAW_BY_FUNCTION.items()
    if law != "kept_states"
]


def test_each_function_of_the_list_is_tried():
    assert set(FUNCTIONS) == {"Documented", *SOUND, *WITHOUT_LAW, *LAW_BY_FUNCTION}


@pytest.mark.parametrize(("name", "law"), CASES)
def test_each_is_caught_by_default(name, law):
    with pytest.raises(LawBroken) as caught:
        check(FUNCTIONS[name](), parameters=PARAMETERS.get(name, {}))
    assert f"breaks the law {law!r}" in str(caught.value)


@pytest.mark.long
@pytest.mark.parametrize("name", SOUND)
def test_the_sound_functions_that_they_spoil_pass(name):
    check(getattr(broken, name)())


def test_a_declared_type_whose_values_are_all_rejected_is_named():
    with pytest.raises(ValueError, match=r"takes values of the types decimal128\(10, 2\), decimal128\(38, 10\), but"):
        check(broken_parameters.RejectsDecimals())


def test_an_exact_result_of_no_rows_only_is_not_enough():
    with pytest.raises(ValueError, match="raises an error for all tested rows"):
        check(broken_parameters.ExactOfNothing())


def test_an_error_within_a_law_names_the_law_and_the_case():
    with pytest.raises(KeyError) as caught:
        check_laws("sum", [_law_with_error], lambda: {}, " (seed 3)")
    assert caught.value.__notes__ == ["raised by sum in the law '_law_with_error' (seed 3)"]


def _law_with_error(case):
    return case["missing"]


@pytest.mark.parametrize("name", ["UndeclaredText", "UndeclaredTuple"])
def test_a_parameter_that_cannot_be_guessed_must_come_from_the_author(name):
    with pytest.raises(ValueError, match="cannot guess one; pass some: check"):
        check(getattr(broken, name)())


def test_a_parameter_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="undeclared_text has no parameter 'convert'; it has conversion"):
        check(broken.UndeclaredText(), parameters={"convert": ["upper"]})


@dataclass(frozen=True)
class Before(broken.ChangedMeaning):
    """The function as it was in an earlier release: it kept the greatest value, without abs."""

    def reduce_values(self, values):
        return {"largest": GREATEST.merge(values.array, values.groups)}


@dataclass(frozen=True)
class NextVersion(broken.ChangedMeaning):
    versions = (2,)


@dataclass(frozen=True)
class ReadsBoth(NextVersion):
    versions = (1, 2)


def test_a_changed_meaning_is_caught_by_kept_states(tmp_path):
    keep_states(Before(), tmp_path / "states.arrow")
    check(Before(), pa.float64(), rounds=4, kept_states=tmp_path / "states.arrow")
    message = r"changed_meaning breaks the law 'kept_states': .*; increase the version of its state"
    with pytest.raises(LawBroken, match=message):
        check(broken.ChangedMeaning(), pa.float64(), rounds=4, kept_states=tmp_path / "states.arrow")
    for sound in (NextVersion(), ReadsBoth()):
        check(sound, pa.float64(), rounds=4, kept_states=tmp_path / "states.arrow")


def test_kept_states_are_never_replaced(tmp_path):
    keep_states(Before(), tmp_path / "states.arrow")
    with pytest.raises(FileExistsError):
        keep_states(Before(), tmp_path / "states.arrow")
    with pytest.raises(FileNotFoundError, match="keep_states"):
        check(Before(), kept_states=tmp_path / "none.arrow")


@dataclass(frozen=True)
class FailsToTell(broken.Largest):
    def exact(self, rows):
        raise ValueError("not computed")


def test_an_exact_result_that_is_never_computed_is_refused():
    with pytest.raises(ValueError, match=r"largest\.exact\(rows\) raises an error for all tested rows"):
        check(FailsToTell(), pa.float64(), rounds=4)


@dataclass(frozen=True)
class RefusesAll(broken.Largest):
    def reduce_values(self, values):
        raise ValueError("refused")


def test_a_function_that_refuses_all_values_is_refused():
    with pytest.raises(ValueError, match=r"largest rejects all tested values.*type double raise ValueError: refused$"):
        check(RefusesAll())


def test_results_for_fewer_states_are_refused():
    with pytest.raises(TypeError, match=r"drops_empty: finish_states returned an array of 0 rows; .* of the 1 states$"):
        check(broken.DropsEmpty())


def test_types_that_differ_after_a_merge_name_the_field():
    with pytest.raises(LawBroken, match="the field 'n' of states is double after reduce without rows, and int64 after"):
        check(FloatCount(), pa.float64(), rounds=4)


@dataclass(frozen=True)
class FloatCount(Function):
    name, keeps, returns, guarantee = "float_count", "the count, as a double", "int64", "exact"
    own_state = broken.FloatCountState()

    def finish_states(self, states):
        return states.field("n").cast(pa.int64())
