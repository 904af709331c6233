from runnerkit.compat import vega
from runnerkit.compat.vega.names import __all__ as names


def test_every_class_of_the_document_has_its_name():
    of_the_document = (
        'NetworkFactory NetTypes Network NetworkDesc SearchSpace SearchAlgorithm Codec Generator Callback MetricBase '
    )
    of_the_document += 'ModelStatistics ClassFactory ClassType ReportServer ReportClient Metrics PipeStep '
    of_the_document += (
        'Pipeline SearchPipeStep TrainPipeStep BenchmarkPipeStep General accuracy calc_model_flops_params run'
    )
    assert {*of_the_document.split()} <= {*names}


def test_the_names_and_the_only_backend():
    assert all(hasattr(vega, name) for name in names)
    assert (vega.is_torch_backend(), vega.is_tf_backend()) == (True, False)
