"""The entries of docs/help/troubleshooting.md, by words of the messages that they explain."""

from __future__ import annotations

import re

PAGE = 'docs/help/troubleshooting.md'

#: The heading of each entry, and the pattern of its messages; the first one that occurs counts.
ENTRIES: dict[str, str] = {
    'unknown-key': 'unknown key',
    'unknown-name': 'is not in the .* registry',
    'missing-package': 'pip install|No module named',
    'out-of-memory': '(?i)out of memory',
    'unequal-samples': 'stack expects each tensor to be equal size',
    'a-worker-ended': r'DataLoader worker .*(?:killed by signal|exited unexpectedly)|a worker of this loader ended',
    'class-out-of-range': 'Target .* is out of bounds',
    'one-sample': 'Expected more than 1 value per channel',
    'wrong-shape': 'while running|in the loss |in the metric ',
    'no-train_step': r'has no train_step\(data, optimizer\)',
    'no-gradient': 'has no gradient',
    'work-dir-in-use': 'another run is using this work dir',
    'damaged-checkpoint': 'the checkpoint .* is damaged',
    'old-checkpoint-with-code': 'could run code when loaded',
    'work-dir-from-elsewhere': 'none of your runs on this machine|in none of the work dirs that your runs',
    'weights-do-not-fit': 'does not fit the model of',
    'no-device': 'no .* device found',
    'port-in-use': 'is in use, perhaps by another run',
    'a-rank-failed': 'rank .*has (?:failed|died)',
    'the-run-does-not-start': 'the run does not start, because of',
    'disk-full': 'No space left on device|could not be saved',
}


def section_about(message: str) -> str | None:
    """The place of the entry that explains ``message``, or None."""
    found = (heading for heading, words in ENTRIES.items() if re.search(words, message))
    heading = next(found, None)
    return heading and f'{PAGE}#{heading}'
