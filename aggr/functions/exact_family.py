"""SumsState: states that are declared as exact sums of products of inputs. ExactSums: the functions that read these
states.

    SumsState("products", {"x": "x", "xy": "x·y"}, …)        Σx and Σxy without error, whatever the order of the rows

Types, units, special values, consistency checks and the treatment of nulls follow from the declaration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arguments import shown
from aggr.arrays import Floats, Whole
from aggr.arrow.damaged_state import DamagedState
from aggr.exact.expression import ExactNumbers, cross
from aggr.exact.number_columns import NAN, NEGATIVE, POSITIVE, check_unit, kept_type, scale_of, unit_of
from aggr.exact.possible_sums import are_possible, schwarz_holds
from aggr.exact.row_sums import sum_monomials, sum_powers, sum_products, sum_squares
from aggr.exact.superaccumulator import Limbs, digits_of
from aggr.fields import COUNT, OR, UNIT, Exact, Field
from aggr.function import Function, reset_is_always_readable
from aggr.groups.groups import Groups
from aggr.input_types import SUMMABLE, InputTypes
from aggr.state import State
from aggr.values import Values

_TIMES = "·"
_MAX_FACTORS = 4


@dataclass(frozen=True, eq=False)
class Sums:
    """The exact sums of states, by the names of their fields: ``sums["xy"]`` is Σxy of each state.

    Parameters
    ----------
    states : column of states
    monomials : field -> the inputs whose product the field sums
    units : input -> the field that stores one unit of the input, in the type of the input
    """

    states: pa.StructArray
    monomials: Mapping[str, tuple[str, ...]]
    units: Mapping[str, str]
    _numbers_by_field: dict[str, ExactNumbers] = field(default_factory=dict)

    @cached_property
    def counts(self) -> Whole:
        """The number of rows of each state, shape (n,)."""
        counts: Whole = self.states.field("count").to_numpy()
        return counts

    @cached_property
    def n(self) -> ExactNumbers:
        """The number of rows of each state, as exact numbers."""
        return ExactNumbers.of(self.counts)

    def __getitem__(self, name: str) -> ExactNumbers:
        """Return the exact sums in the field ``name``, one per state."""
        if name not in self._numbers_by_field:
            scale = sum(scale_of(self.states.field(self.units[x]).type) for x in self.monomials[name])
            self._numbers_by_field[name] = ExactNumbers(Limbs.of_arrow(self.states.field(name)), scale)
        return self._numbers_by_field[name]

    def cross(self, product: str, left: str, right: str) -> ExactNumbers:
        """Compute ``n·Σab − Σa·Σb`` of each state.

        The fields ``product``, ``left`` and ``right`` contain Σab, Σa and Σb.
        """
        return cross(self.counts, self[product], self[left], self[right])


class _RelatedSums(NamedTuple):
    """The fields of a state that are checked together with the field ``name``, which sums a product of inputs.

    ``special`` is the field that records the special values of the product, or None if the state has no such field.
    ``square`` is the field that sums the squares of the product, or None. ``units`` are the fields with the units of
    the inputs. ``schwarz_pairs`` are the pairs of fields for the Schwarz inequality: for a field that sums xy, the
    fields that sum x² and y².
    """

    name: str
    special: str | None
    square: str | None
    units: tuple[str, ...]
    schwarz_pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class SumsState(State):
    """A state that consists of a count, and of exact sums of inputs or of products of inputs.

    Parameters
    ----------
    name : str
        See `State`.
    sums : field -> the input, or the product of up to four inputs, whose sum the field stores
        Products are written as ``"x·y"`` or ``"x·x·x"``.
    units : input -> the field that stores one unit of the input
        The unit is 1, or for example 0.01 for decimals with two decimal places. It has the type of the input.
    special : field -> the product of inputs whose NaN and infinities the field records
    takes : InputTypes
        The rule for the types of the inputs.
    rank, counted_by
        See `State`.

    Raises
    ------
    TypeError
        If ``sums`` or ``special`` contains an input that has no unit, or a product of more than four inputs, or if two
        fields have the same name.

    Examples
    --------
    >>> from aggr.extend import Groups, SumsState, Values
    >>> squares = SumsState("squares", {"squares": "value·value"})
    >>> list(squares.fields)
    ['count', 'unit', 'special', 'squares']
    """

    name: str
    sums: Mapping[str, str]
    units: Mapping[str, str] = field(default_factory=lambda: {"value": "unit"})
    special: Mapping[str, str] = field(default_factory=lambda: {"special": "value"})
    takes: InputTypes = SUMMABLE
    rank: int = 0
    counted_by: tuple[str, ...] = ("count",)

    def __post_init__(self) -> None:
        _check_declaration(self)

    @cached_property
    def monomials(self) -> dict[str, tuple[str, ...]]:
        """The inputs whose product each field sums, by the name of the field: ``{"xy": ("x", "y")}``."""
        return {name: tuple(product.split(_TIMES)) for name, product in self.sums.items()}

    @cached_property
    def fields(self) -> Mapping[str, Field]:
        return {
            "count": COUNT,
            **dict.fromkeys(self.units.values(), UNIT),
            **dict.fromkeys(self.special, OR),
            **{name: Exact(max(2, len(inputs))) for name, inputs in self.monomials.items()},
        }

    def check_consistency(self, states: pa.StructArray) -> None:
        for unit in self.units.values():
            dtype = states.field(unit).type
            if not self.takes.allows(dtype):
                raise DamagedState(f"its field {unit!r} has type {dtype}, which {self.name} does not accept")
            check_unit(states.field(unit))
        if not self._are_possible(states):
            raise DamagedState("its count, its sums and its special values contradict each other")

    def _are_possible(self, states: pa.StructArray) -> bool:
        """Return whether the count, the sums and the flags of special values of each state can come from the same rows.

        The sums of n rows satisfy (Σa)² ≤ n·Σa² and (Σab)² ≤ Σa²·Σb². These inequalities are checked too.
        """
        counts = states.field("count").to_numpy()
        for related in self._related_sums:
            special = np.zeros(len(states), np.int8)
            if related.special is not None:
                special = states.field(related.special).to_numpy()
            square = None if related.square is None else digits_of(states.field(related.square))
            fractions = any(pa.types.is_floating(states.field(unit).type) for unit in related.units)
            sums = digits_of(states.field(related.name))
            if not are_possible(counts, special, sums, square, allows_fractions=fractions):
                return False
            for a, b in related.schwarz_pairs:
                if not schwarz_holds(*(Limbs.of_arrow(states.field(field)) for field in (related.name, a, b))):
                    return False
        return True

    @cached_property
    def _related_sums(self) -> tuple[_RelatedSums, ...]:
        """The fields with sums that `check_consistency` checks, each with the fields that it is compared with.

        If there is a field of Σx, its entry also checks the field of Σx². The field of Σx² then has no entry of its
        own, with one exception: if there is a field of Σx⁴, the field of Σx² has an entry, because Σx² and Σx⁴ must be
        compared.
        """
        by_product = {tuple(sorted(inputs)): name for name, inputs in self.monomials.items()}
        squares = {name: by_product.get(tuple(sorted(inputs * 2))) for name, inputs in self.monomials.items()}
        flags = {tuple(product.split(_TIMES)): name for name, product in self.special.items()}
        square_pairs = list(combinations(filter(_is_square, by_product), 2))
        return tuple(
            _RelatedSums(
                name,
                special=flags.get(inputs),
                square=squares[name],
                units=tuple(self.units[input_name] for input_name in inputs),
                schwarz_pairs=tuple(
                    (by_product[a], by_product[b]) for a, b in square_pairs if sorted(a + b) == sorted(inputs * 2)
                ),
            )
            for name, inputs in self.monomials.items()
            if name not in squares.values() or squares[name] is not None
        )

    def reduce_values(self, values: Values) -> Mapping[str, pa.Array]:
        is_struct = pa.types.is_struct(values.array.type)
        columns = {name: values.field(name) if is_struct else values for name in self.units}
        return {
            "count": pa.array(values.counts),
            **{unit: unit_of(kept_type(columns[x].array.type), values.groups.n) for x, unit in self.units.items()},
            **{
                name: _special_flags(product.split(_TIMES), columns, values.groups)
                for name, product in self.special.items()
            },
            **{name: _exact_sum(inputs, columns) for name, inputs in self.monomials.items()},
        }


@dataclass(frozen=True)
class ExactSums(Function):
    """A function whose state is a `SumsState`: exact sums of its inputs and of their products.

    Guarantee
    ---------
    A result that is a quotient of exact numbers, or the square root of such a quotient, is correctly rounded.

    Sources: Neal, "Fast exact summation using small and large superaccumulators" (2015); Rump, Ogita, Oishi, "Accurate
    floating-point summation" (2008).
    """

    guarantee = "correctly rounded"
    takes: ClassVar[InputTypes | Mapping[str, InputTypes]] = SUMMABLE
    own_state: ClassVar[SumsState]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Raise ``TypeError`` if ``own_state`` uses an input that the function does not have, or if the function takes
        weights and ``own_state`` has a sum of a product of several inputs.
        """
        super().__init_subclass__(**kwargs)
        reset_is_always_readable(cls, "result")
        if isinstance(cls.__dict__.get("own_state"), SumsState):
            _check_inputs(cls)

    def least_count(self) -> int:
        """The minimum number of rows from which a result is computed. For fewer rows, the result is null."""
        return 1

    def result(self, sums: Sums) -> Floats:
        """Compute one number per state, shape (n,). A NaN that this method returns becomes null.

        ``sums`` has the exact sums of the states. A subclass may implement `finish_states` instead.

        Implementations need not handle special values. If a group with at least `least_count` rows contains NaN or
        infinities, the result of `finish_states` is NaN, not null, whatever this method returns for it.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement result or finish_states")

    def finish_states(self, states: pa.StructArray) -> pa.Array:
        has_enough_rows = states.field("count").to_numpy() >= self.least_count()
        finishable = states if has_enough_rows.all() else states.filter(pa.array(has_enough_rows))
        results = np.full(len(states), np.nan)
        results[has_enough_rows] = self.result(self.sums(finishable))
        special = np.any([states.field(name).to_numpy() != 0 for name in self.own_state.special], axis=0)
        undefined = np.isnan(results) & ~special
        results[special] = np.nan
        return pa.array(results, mask=~has_enough_rows | undefined)

    def sums(self, states: pa.StructArray) -> Sums:
        """Return the exact sums of states, for implementations of `finish_states` and accessors.

        Parameters
        ----------
        states : column of states, shape (n,)
            Checked states without nulls.

        Returns
        -------
        Sums
            ``sums[name]`` are the exact numbers of a field, ``sums.n`` the numbers of rows.
        """
        return Sums(states, self.own_state.monomials, self.own_state.units)


def _check_declaration(state: SumsState) -> None:
    """Raise ``TypeError`` unless the declaration of a state is valid.

    Every input in ``sums`` and ``special`` must have a unit, and all fields must have different names.
    """
    name = state.name
    for attribute in ("sums", "units", "special"):
        if not isinstance(getattr(state, attribute), Mapping):
            raise TypeError(
                f"{name}.{attribute} must be a dict of names to inputs; got {shown(getattr(state, attribute))}"
            )
    for attribute, products in (("sums", state.sums), ("special", state.special)):
        for key, product in products.items():
            _check_product(f"{name}.{attribute}[{key!r}]", product, tuple(state.units))
    names = ["count", *state.units.values(), *state.special, *state.sums]
    for repeated in (key for key in names if names.count(key) > 1):
        raise TypeError(
            f"{name} uses the field {repeated!r} twice; give the sums, units and special values different names"
        )


def _check_inputs(function: type[ExactSums]) -> None:
    """Raise ``TypeError`` if ``own_state.units`` names something that is not an input of the function.

    The error is also raised if the function takes weights and a field sums products of several inputs.
    """
    name = function.__name__
    state = function.own_state
    inputs = ", ".join(function.inputs)
    for factor in sorted(set(state.units) - set(function.inputs)):
        raise TypeError(f"{name}.own_state.units names {factor!r}, which is not an input; inputs are {inputs}")
    if function.takes_weights and any(_TIMES in product for product in state.sums.values()):
        raise TypeError(
            f"{name} has takes_weights, and a sum of a product of several inputs; only sums of a single input can have "
            "weights; remove takes_weights"
        )


def _check_product(where: str, product: object, inputs: Sequence[str]) -> None:
    factors = product.split(_TIMES) if isinstance(product, str) else [product]
    if any(factor not in inputs for factor in factors):
        raise TypeError(
            f"{where} is {shown(product)}; it must be an input that has a unit, or a product of such inputs with '·' "
            f"between them, such as {_TIMES.join([inputs[0], inputs[0]])!r}; the inputs with units are "
            f"{', '.join(inputs)}"
        )
    if len(factors) > _MAX_FACTORS:
        raise TypeError(f"{where} is {shown(product)}; it must have at most {_MAX_FACTORS} factors")


def _is_square(inputs: tuple[str, ...]) -> bool:
    """Return whether a product is a square, so that its sum cannot be negative."""
    return all(inputs.count(name) % 2 == 0 for name in inputs)


def check_ddof(ddof: object) -> None:
    """Raise ``ValueError`` unless the degrees of freedom are a whole number of at least 0."""
    if isinstance(ddof, bool) or not isinstance(ddof, int) or ddof < 0:
        raise ValueError(
            "ddof must be a whole number of at least 0, such as 1 for a sample or 0 for a population; got "
            f"{shown(ddof)}"
        )


def _exact_sum(inputs: tuple[str, ...], columns: Mapping[str, Values]) -> pa.StructArray:
    first = columns[inputs[0]]
    if len(inputs) == 1:
        return first.exact_sum
    if len(inputs) == 2:
        is_square = inputs[0] == inputs[1]
        return sum_squares(first.parts) if is_square else sum_products(first.parts, columns[inputs[1]].parts)
    if len(set(inputs)) == 1:
        return sum_powers(first.parts, len(inputs))
    return sum_monomials([columns[name].parts for name in inputs])


def _special_flags(product: list[str], columns: Mapping[str, Values], groups: Groups) -> pa.Array:
    flags = np.zeros(groups.n, np.int8)
    if all(columns[name].special is None for name in product):
        return pa.array(flags)
    first_input = columns[product[0]]
    special = first_input.special if len(product) == 1 else _special_products([columns[name].array for name in product])
    assert special is not None
    np.bitwise_or.at(flags, groups.ids, special)
    return pa.array(flags)


def _special_products(factors: Sequence[pa.Array]) -> NDArray[np.int8]:
    floats = [column.cast(pa.float64(), safe=False).to_numpy() for column in factors]
    with np.errstate(invalid="ignore"):  # np.sign warns about a signalling NaN, which is a valid input here
        signs = np.prod([np.sign(x) for x in floats], axis=0)
        infinite = np.any([np.isinf(x) for x in floats], axis=0)
    nan = np.isnan(signs) | (infinite & (signs == 0))
    flags = nan * NAN + (infinite & (signs > 0)) * POSITIVE + (infinite & (signs < 0)) * NEGATIVE
    special: NDArray[np.int8] = flags.astype(np.int8)
    return special
