"""Vega: its configs, names, callbacks and search algorithms."""
