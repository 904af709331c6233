"""A hook-driven training engine."""
