"""Whether what a page shows is what has been printed.

The lines of a text block occur in what was printed, in this order. ``…`` stands for anything, ``0.99…`` for a number
that begins so, and the time of day before a line for what a pipe has there. Whole numbers are equal, others as shown or
within two percent: the last bits of a sum depend on the processor, and a training amplifies them (1.6 percent between
two processors of one maker). For the same reason, another epoch may be the best one. What a clock has measured may be
anything.
"""

import re

TIME = re.compile(r'\d\d:\d\d:\d\d ')
NUMBER = r'\d+(?:\.\d+)?(?:e[+-]?\d+)?'
BEST = re.compile(r'(best_[\w-]+_(?:epoch|iter)_)\d+')
MEASURED = re.compile(rf'((?:time|eta|ms|memory)(?:: ?|=)){NUMBER}(?::\d+)*|{NUMBER}( ?(?:ms|µs|s|MiB)\b)')


def same(number, printed):
    """Whether two numbers, as texts, say the same."""
    if number.isdigit() and printed.isdigit():
        return int(number) == int(printed)
    mantissa, _, exponent = number.partition('e')
    rounding = 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition('.')[2]))
    return abs(float(number) - float(printed)) <= max(0.02 * abs(float(number)), 1.01 * rounding)


def occurs(line, printed):
    """Whether a line of a text block is in a printed line."""
    line = BEST.sub(r'\1…', MEASURED.sub(r'\1…\2', re.sub(r'\s+', ' ', TIME.sub('', line)).strip()))
    parts = [part for part in re.split(rf'({NUMBER}(?!…|[\d.])|…)', line) if part]  # 0.99… is cut, not rounded
    numbers = [part for part in parts if re.fullmatch(NUMBER, part) and f'{part}…' not in line]
    meant = ['.*' if part == '…' else f'({NUMBER})' if part in numbers else re.escape(part) for part in parts]
    found = re.search(''.join(meant), printed)
    return found is not None and all(map(same, numbers, found.groups()))


def check_printed(text, said, page):
    """Raise an AssertionError unless the lines of ``text`` occur in ``said``, in their order."""
    lines = iter([re.sub(r'\s+', ' ', line) for line in said.splitlines()])
    for line in text.splitlines():
        if line.strip() not in ('', '…'):
            assert any(occurs(line, printed) for printed in lines), f'{page}: {line!r} is not in\n{said}'
