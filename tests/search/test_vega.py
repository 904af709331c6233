from runnerkit.search import vega


def test_every_class_of_the_document_has_its_name():
    names = (
        'NetworkFactory NetTypes Network NetworkDesc SearchSpace SearchAlgorithm Codec Generator Callback MetricBase '
    )
    names += 'ModelStatistics ClassFactory ClassType ReportServer ReportClient Metrics PipeStep'
    assert {*names.split()} <= {*vega.__all__}


def test_the_names_and_the_only_backend():
    assert all(hasattr(vega, name) for name in vega.__all__)
    assert (vega.is_torch_backend(), vega.is_tf_backend()) == (True, False)
