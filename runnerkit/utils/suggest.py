"""Suggestions for misspelled names in error messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, candidates: Iterable[str], n: int = 3) -> list[str]:
    """The ``candidates`` most similar to ``name``, the nearest first; case is ignored."""
    by_key: dict[str, list[str]] = {}
    for candidate in dict.fromkeys(candidates):
        by_key.setdefault(candidate.lower(), []).append(candidate)
    wanted = name.lower()
    found = get_close_matches(wanted, by_key, n=n, cutoff=0.65)
    # Abbreviations ('Text' for 'TextLoggerHook') are common, but have a low similarity.
    longer = sorted((key for key in by_key if len(wanted) > 3 and wanted in key and key not in found), key=len)
    return [candidate for key in found + longer for candidate in by_key[key]][:n]


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """A question for an error message, ``did you mean 'a' or 'b'?``; empty if nothing is similar."""
    found = [repr(candidate) for candidate in nearest(name, candidates)]
    if not found:
        return ''
    *others, last = found
    return 'did you mean ' + (f'{", ".join(others)} or {last}?' if others else f'{last}?')


def suggestion(name: str, candidates: Iterable[str]) -> str:
    """`did_you_mean` with a semicolon before it, to append to a message; empty if nothing is similar."""
    question = did_you_mean(name, candidates)
    return question and f'; {question}'


def edit_distance(a: str, b: str) -> int:
    """The Damerau-Levenshtein distance: insertions, deletions, replacements and swaps of neighbours."""
    before, row = [0] * (len(b) + 1), list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        last, row, older = row, [i], before
        for j, right in enumerate(b, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (left != right))
            if i > 1 and j > 1 and left == b[j - 2] and right == a[i - 2]:
                cost = min(cost, older[j - 2] + 1)
            row.append(cost)
        before = last
    return row[-1]


def near_miss(name: str, known: Iterable[str], allowed: int | None = None) -> str | None:
    """The known name of which ``name`` is probably a misspelling; None if it is known itself, or similar to none.

    ``allowed`` letters may be wrong: by default one in names of up to six letters, two in longer ones. Names that
    differ only in digits (``layer1``, ``layer2``) are not misspellings.
    """
    known = list(known)
    if name in known or len(name) < 3:
        return None
    if allowed is None:
        allowed = 1 if len(name) <= 6 else 2
    letters = set(name.lower())
    for other in known:
        if len(other) < 3 or abs(len(other) - len(name)) > allowed or len(letters ^ set(other.lower())) > 2 * allowed:
            continue  # each wrong letter adds at most one to the letters of each side
        if _letters(other) == _letters(name):
            continue
        if edit_distance(name.lower(), other.lower()) <= allowed:
            return other
    return None


def _letters(name: str) -> str:
    return ''.join(char for char in name if not char.isdigit())
