"""What tests of Vega's names share."""

import pytest

from runnerkit.compat.vega.class_factory import REGISTRIES


@pytest.fixture
def registries_as_before():
    """What a test registers is forgotten after it."""
    before = {kind: dict(registry.module_dict) for kind, registry in REGISTRIES.items()}
    yield
    for kind, registry in REGISTRIES.items():
        registry.module_dict.clear()
        registry.module_dict.update(before[kind])
