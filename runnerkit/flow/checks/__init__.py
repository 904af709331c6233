"""The checks of `runnerkit.flow.preflight`, by subject."""
