"""Read policies from text. Other packages register their policies by entry points in the group
``tiltframe.policies``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from aggr.call_text import evaluate_call
from aggr.entry_points import load
from tiltframe.streaming.policies.after_key_expire import AfterKeyExpire
from tiltframe.streaming.policies.emit import AfterClose, AfterCount, EmitPolicy, OnUpdate, Periodic
from tiltframe.streaming.policies.late import Buffer, Drop, LatePolicy, TrueWindow
from tiltframe.streaming.policies.policy import Policy

if TYPE_CHECKING:
    from tiltframe.frame import TiltFrame

GROUP = "tiltframe.policies"

_EMIT: dict[str, type[EmitPolicy]] = {k.name: k for k in (AfterClose, Periodic, OnUpdate, AfterCount, AfterKeyExpire)}
_LATE: dict[str, type[LatePolicy]] = {k.name: k for k in (TrueWindow, Drop, Buffer)}

P = TypeVar("P", bound=Policy)


def read_emit(text: str | EmitPolicy) -> EmitPolicy:
    """Return the emit policy that a text describes. A policy object is returned unchanged.

    Parameters
    ----------
    text : str
        ``after_close``, ``periodic(EVERY)``, ``on_update``, ``after_count(ROWS)`` or ``after_key_expire(TIMEOUT)``,
        with the arguments of the corresponding class, such as ``periodic(1m, repeat, having='n > 300')``. Instead of
        these names, the text may have the name of a policy that another package registers by an entry point in the
        group ``tiltframe.policies``.

    Returns
    -------
    EmitPolicy

    Raises
    ------
    ValueError
        If the text cannot be read.

    Examples
    --------
    >>> read_emit("periodic(1m, repeat, having='n > 300')")
    Periodic(every='1m', repeat=True, having='n > 300')
    """
    return _read_policy(text, EmitPolicy, _EMIT, what="emit policy", example="after_close(delay=10s)")


def emit_policy(emit: EmitPolicy | str | None, frame: TiltFrame) -> EmitPolicy:
    """Return the emit policy of a stream, or the default for the frame if no policy was passed.

    Parameters
    ----------
    emit : EmitPolicy or str, optional
    frame : TiltFrame

    Returns
    -------
    EmitPolicy
        The default is ``after_close``. If all levels are windows over all time, which never close, the default is
        ``periodic(2s)``.

    Raises
    ------
    ValueError
        If the text cannot be read.

    Examples
    --------
    >>> import aggr
    >>> from tiltframe import TiltFrame
    >>> emit_policy(None, TiltFrame(["all"], "ts", {"n": aggr.count()}))
    Periodic(every='2s')
    """
    if emit is not None:
        return read_emit(emit)
    return Periodic("2s") if frame.never_closes else AfterClose()


def read_late(text: str | LatePolicy) -> LatePolicy:
    """Return the late policy that a text describes. A policy object is returned unchanged.

    Parameters
    ----------
    text : str
        ``true_window``, ``drop(LATENESS)`` or ``buffer(WINDOWS, older=oldest)``. Instead of these names, the text may
        have the name of a policy that another package registers by an entry point in the group ``tiltframe.policies``.

    Returns
    -------
    LatePolicy

    Raises
    ------
    ValueError
        If the text cannot be read.

    Examples
    --------
    >>> read_late("drop(5m)")
    Drop(lateness='5m')
    """
    return _read_policy(text, LatePolicy, _LATE, what="late policy", example="drop(1h)")


def _read_policy(text: object, base: type[P], built_in: Mapping[str, type[P]], what: str, example: str) -> P:
    """Return the policy that a text describes. ``base`` is the class that the policy must have, ``built_in`` the
    policies of this package by name; ``what`` and ``example`` are used in error messages.
    """
    if isinstance(text, base):
        return text
    name = text.partition("(")[0].strip() if isinstance(text, str) else ""
    policies_by_name = dict(built_in)
    if name not in built_in:
        # importlib.metadata is imported only here, because it imports email and zipfile, which takes long.
        from importlib.metadata import entry_points

        policies = [load(point) for point in entry_points(group=GROUP, name=name)]
        policies_by_name |= {kind.name: kind for kind in policies if issubclass(kind, base)}
    return evaluate_call(
        policies_by_name, text, what, f"one of {', '.join(policies_by_name)}, such as {example}", allows_bare_name=True
    )
