"""IPUs are not supported, and that is said."""

import pytest

from runnerkit.compat.mmcv.device import ipu


def test_what_is_there_and_what_is_not():
    assert ipu.IS_IPU_AVAILABLE is False
    with pytest.raises(AttributeError, match="no attribute 'IPUDataLoader': training on IPUs needs poptorch"):
        ipu.IPUDataLoader  # noqa: B018
