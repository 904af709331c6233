"""Fixtures of the reports' tests: a work dir, and a browser that opens reports."""

import json
import re
import shutil
import subprocess
from html import unescape

import pytest
from written_runs import lines_of, write_log


@pytest.fixture
def work_dir(tmp_path):
    """Of a completed run of three epochs, whose second was the best."""
    folder = write_log(tmp_path / 'run', lines_of())
    for name in ('epoch_3.pth', 'best_acc_epoch_2.pth'):
        (folder / name).write_bytes(b'never read')
    (folder / 'net.py').write_text('seed = 0\n')
    return folder


@pytest.fixture(scope='session')
def browser(tmp_path_factory):
    """Opens a page in Chromium and returns its DOM; fails if the console shows an error.

    ``act`` is a script that is run in the page at the end; what it assigns to ``result`` is returned with the DOM.
    """
    chromium = next(filter(None, map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome'))), None)
    if chromium is None:
        pytest.skip('there is no Chromium here (Debian: apt-get install chromium): the page is not opened')
    home = tmp_path_factory.mktemp('chromium')

    def open_page(page, act=''):
        text = page.read_text()
        if act:  # the page itself forbids other scripts
            text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', '', text)
            call = f'let result; (() => {{ {act} }})(); document.body.dataset.result = JSON.stringify(result)'
            text = text.replace('</body>', f'<script>{call}</script></body>')
        copy = page.with_name(f'opened-{page.name}')
        copy.write_text(text)
        flags = ['--headless', '--no-sandbox', '--disable-gpu', '--enable-logging=stderr', '--window-size=1200,900']
        done = subprocess.run(
            [chromium, *flags, f'--user-data-dir={home}', '--virtual-time-budget=2000', '--dump-dom', copy.as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
        )
        console = [line for line in done.stderr.splitlines() if 'CONSOLE' in line]
        assert console == [], console
        assert '<svg' in done.stdout, done.stderr[-2000:]
        found = re.search(r'data-result="([^"]*)"', done.stdout)
        return done.stdout, json.loads(unescape(found[1])) if found else None

    return open_page
