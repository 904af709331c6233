"""Fixtures of the search's tests."""

from browsers import browser as browser
