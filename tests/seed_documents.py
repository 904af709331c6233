"""Code of the seed documents, and the changes that it needs here: the table of one page names them, and nothing else
is changed."""

import re
from pathlib import Path

DOCS = Path(__file__).parent.parent / 'docs'
HEADING = '## Changes that code of the document needs'


def pattern(code):
    """Finds ``code``, however it is broken into lines."""
    return re.compile(r'\s*'.join(re.escape(sign) for sign in code if not sign.isspace()))


def codes(cell):
    """The lines of code in a cell."""
    return re.findall('`([^`]+)`', cell)


class Changes:
    """The table of a page: what the document has, and what is written in its place.

    Attributes:
        rows: by the document's code; "leave out" is an empty list.
        differs: what is declined, with the reason.
    """

    def __init__(self, page):
        section = (DOCS / page).read_text(encoding='utf-8').split(f'\n{HEADING}\n')[1].split('\n## ')[0]
        cells = [line.strip('|').split(' | ') for line in section.splitlines() if line.startswith('| `')]
        self.rows, self.differs = {}, {}
        for there, here, why in cells:
            (code,) = codes(there)
            if here.strip() == '**differs**':
                self.differs[code] = why.strip()
            else:
                assert codes(here) or here.strip() == 'leave out', here
                self.rows[code] = codes(here)

    def needed_by(self, snippet):
        """The rows whose code the snippet has."""
        return [code for code in self.rows if pattern(code).search(snippet)]

    def applied(self, snippet, without=None):
        """The snippet with its changes, except one."""
        for code in self.needed_by(snippet):
            if code != without:
                snippet = _replaced(snippet, code, self.rows[code])
        return snippet


def _replaced(snippet, old, new):
    new = new or ['if True:' if old.endswith(':') else 'pass']
    while (found := pattern(old).search(snippet)) is not None:
        before, after = snippet[: found.start()], snippet[found.end() :]
        line = before[before.rfind('\n') + 1 :]
        indent = line[: len(line) - len(line.lstrip())]
        if new[-1].endswith(':') and not old.endswith(':'):  # what follows goes into the new block
            after = re.sub(rf'\n(?={indent}\S|{indent}\s+\S)', '\n    ', after)
        # The new text may hold the old one.
        snippet = before + f'\n{indent}'.join(new).replace(old, '\0') + after
    return snippet.replace('\0', old)
