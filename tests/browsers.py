"""A browser for the tests of pages."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html import unescape

import pytest

#: No request leaves the browser, and its console goes to stderr.
FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--enable-logging=stderr', '--disable-quic', '--no-first-run']
FLAGS += ['--disable-background-networking', '--disable-component-update', '--disable-sync']


@pytest.fixture(scope='session')
def browser(tmp_path_factory):
    """Opens a page in Chromium and returns its DOM; fails if the console shows an error.

    ``act`` is a script that is run in the page at the end; what it assigns to ``result`` is returned with the DOM.
    ``width`` is that of the window; Chromium has none below 500 pixels.
    """
    chromium = next(filter(None, map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome'))), None)
    if chromium is None:
        pytest.skip('there is no Chromium here (Debian: apt-get install chromium): the page is not opened')
    home = tmp_path_factory.mktemp('chromium')

    def open_page(page, act='', width=1200):
        text = page.read_text()
        if act:
            code = f'let result; (() => {{ {act} }})(); document.body.dataset.result = JSON.stringify(result)'
            digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
            text = text.replace('script-src ', f"script-src 'sha256-{digest}' ", 1)  # the page forbids other scripts
            text = text.replace('</body>', f'<script>{code}</script></body>')
        copy = page.with_name(f'opened-{page.name}')
        copy.write_text(text)
        flags = [*FLAGS, f'--window-size={width},900']
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
