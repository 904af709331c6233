"""Spaces."""


class Forbidden(Exception):
    """A combination of values that must not occur."""
