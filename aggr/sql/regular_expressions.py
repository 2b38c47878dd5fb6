r"""Regular expressions of RE2: recognise lists of plain texts such as ``a|b``, and reject very large expressions.

RE2 compiles an expression to a program of many small steps. The time of a match is at most proportional to the length
of the text times the number of steps. A repetition such as ``{1000}`` copies the steps that it repeats. Because of the
number of its steps, an expression of a few kilobytes can occupy a thread for seconds. Expressions of more than
`MAX_STEPS` steps are therefore rejected.
"""

from __future__ import annotations

import re

from aggr.arguments import shown

# The maximum number of steps of a compiled expression. With this number of steps, matching a thousand short texts takes
# some milliseconds.
MAX_STEPS = 3_000
# a count of repetitions, such as {3} or {2,5}; RE2 allows numbers up to 1,000
_REPEATED = re.compile(r"\{([0-9]{1,9})(?:,([0-9]{0,9}))?\}")
_GROUP_FLAGS = re.compile(r"\?(?:P?<\w+>|[a-zA-Z-]*:?)")
_ESCAPED = re.compile(r"\\(?:[pPx]\{[^}]*\}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_CLASS = re.compile(r"\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]", re.DOTALL)
_UNICODE_STEPS = 20  # the assumed number of steps of a Unicode class, such as \pL, or of a negated class
_PLAIN_TEXT = re.compile(r"(?:[^\\.+*?()|\[\]{}^$]|\\[!-/:-@\[-`{-~])*", re.DOTALL)
_BACKSLASHED = re.compile(r"\\(.)", re.DOTALL)


def plain_texts(regex: str) -> list[str] | None:
    r"""Return the texts that an expression such as ``a|b`` lists. Return None if it is not a list of plain texts.

    A plain text has no operators such as ``.`` or ``*``, so it matches only itself. Backslashes before punctuation are
    removed from the result.

    Parameters
    ----------
    regex : str
        An expression of RE2, which is compared with complete texts.

    Returns
    -------
    list of str, or None

    Examples
    --------
    >>> plain_texts(r"(a\.example|b)"), plain_texts("a.*|b")
    (['a.example', 'b'], None)
    """
    choice = regex[1:-1] if regex.startswith("(") and regex.endswith(")") and not regex.startswith("(?") else regex
    texts = choice.split("|")
    if not all(_PLAIN_TEXT.fullmatch(text) for text in texts):
        return None
    return [_BACKSLASHED.sub(r"\1", text) for text in texts]


def check_regex_size(regex: str) -> None:
    """Raise ``ValueError`` for an expression whose compiled program would be too large.

    The number of steps of the program is estimated by `count_regex_steps`.

    Parameters
    ----------
    regex : str
        An expression of RE2.

    Raises
    ------
    ValueError
        The program would have more than 3,000 steps.

    Examples
    --------
    >>> check_regex_size("(ab){0,2000}")
    Traceback (most recent call last):
    ValueError: the regular expression '(ab){0,2000}' has about 4,000 steps; at most 3,000 are allowed: ...
    """
    steps = count_regex_steps(regex)
    if steps > MAX_STEPS:
        raise ValueError(
            f"the regular expression {shown(regex)} has about {steps:,} steps; at most {MAX_STEPS:,} are allowed: "
            "shorten it, repeat less, or list plain texts, a|b|c"
        )


def count_regex_steps(regex: str) -> int:
    """Return the estimated number of steps of an expression.

    A character, an escape or a class counts as one step, but a Unicode class such as ``\\pL`` or a negated class such
    as ``[^a]`` counts as 20. If a count such as ``{3}`` follows, the steps of the repeated part are multiplied by this
    count.

    Parameters
    ----------
    regex : str
        An expression of RE2.

    Returns
    -------
    int

    Examples
    --------
    >>> count_regex_steps("a(bc){3}")
    7
    """
    open_groups = [0]
    last = 0  # the steps of the last character, class or group, which a following count repeats
    position = 0
    while position < len(regex):
        character = regex[position]
        end = position + 1
        if character == "(":
            flags = _GROUP_FLAGS.match(regex, end)
            end = end if flags is None else flags.end()
            open_groups.append(0)
            last = 0
        elif character == ")" and len(open_groups) > 1:
            last = open_groups.pop()
            open_groups[-1] += last
        elif character == "{" and (repeated := _REPEATED.match(regex, position)):
            end = repeated.end()
            times = max(int(repeated[1]), int(repeated[2] or 0))
            open_groups[-1] += last * max(times - 1, 0)
            last *= max(times, 1)
        else:
            end, last = _read_atom(regex, position)
            open_groups[-1] += last
        position = end
    return sum(open_groups)


def _read_atom(regex: str, position: int) -> tuple[int, int]:
    """Return the position after the character, escape or class that begins at ``position``, and the estimated number
    of steps that the compiled regular expression has for it.
    """
    if regex[position] == "\\" and (escaped := _ESCAPED.match(regex, position)):
        return escaped.end(), _UNICODE_STEPS if escaped[0][1] in "pP" else 1
    if regex[position] == "[":
        characters = _CLASS.match(regex, position)
        if characters is None:
            # A class that is not closed extends to the end of the expression. If only its opening bracket were skipped,
            # each further bracket would start another search for the end of a class, and the time would grow
            # quadratically.
            return len(regex), len(regex) - position
        return characters.end(), _UNICODE_STEPS if re.search(r"\\[pP]|\[\^", characters[0]) else 1
    return position + 1, 1
