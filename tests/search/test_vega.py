from runnerkit.search import vega


def test_the_names_and_the_only_backend():
    assert all(hasattr(vega, name) for name in vega.__all__)
    assert (vega.is_torch_backend(), vega.is_tf_backend()) == (True, False)
