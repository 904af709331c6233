import pytest
import torch

from runnerkit.compat.vega import SearchPipeStep
from runnerkit.compat.vega.callbacks import CALLBACKS, Callback
from runnerkit.compat.vega.class_factory import ClassFactory, ClassType
from runnerkit.compat.vega.metrics import Accuracy, FunctionMetric
from runnerkit.compat.vega.networks import NetworkDesc
from runnerkit.nn import LOSSES, METRICS

pytestmark = pytest.mark.usefixtures('registries_as_before')


def test_a_class_is_registered_under_its_name_or_its_alias():
    @ClassFactory.register(ClassType.LOSS)
    class Own(torch.nn.Module):
        pass

    @ClassFactory.register(ClassType.CALLBACK, alias='other')
    class Mine(Callback):
        pass

    assert (LOSSES.get('Own'), CALLBACKS.get('other'), CALLBACKS.get('Mine')) == (Own, Mine, None)
    assert ClassFactory.get_cls(ClassType.CALLBACK, 'other') is Mine
    assert ClassFactory.get_cls(ClassType.OPTIMIZER, 'SGD') is torch.optim.SGD
    assert ClassFactory.get_cls(ClassType.LR_SCHEDULER, 'StepLR') is torch.optim.lr_scheduler.StepLR
    assert ClassFactory.get_cls(ClassType.PIPE_STEP, 'SearchPipeStep') is SearchPipeStep


def test_a_network_gets_its_whole_description_as_from_the_network_factory():
    @ClassFactory.register(ClassType.NETWORK)
    class Described(torch.nn.Linear):
        def __init__(self, desc):
            super().__init__(desc.inputs, 1)

    section = {'modules': ['backbone'], 'backbone': {'type': 'Described', 'inputs': 3}}
    assert NetworkDesc(section).to_model().in_features == 3
    assert ClassFactory.get_cls(ClassType.NETWORK, 'Described') is Described


def test_a_function_is_a_metric():
    @ClassFactory.register(ClassType.METRIC)
    def error(output, target, power=1):
        return (output - target).abs().pow(power).mean()

    assert ClassFactory.get_cls(ClassType.METRIC, 'error') is error
    metric = METRICS.build({'type': 'error', 'power': 2})
    assert isinstance(metric, FunctionMetric)
    metric.update(torch.tensor([1.0]), torch.tensor([3.0]))
    assert metric.compute() == 4.0


def test_a_built_in_name_is_replaced_and_a_users_is_not():
    @ClassFactory.register(ClassType.METRIC, alias='accuracy')
    class Own(Accuracy):
        pass

    assert METRICS.get('accuracy') is Own
    with pytest.raises(KeyError, match='accuracy is already registered'):

        @ClassFactory.register(ClassType.METRIC, alias='accuracy')
        class Another(Accuracy):
            pass


def test_what_is_not_there():
    with pytest.raises(KeyError, match="no kind of classes 'metrics'; did you mean 'metric'"):
        ClassFactory.register('metrics')
    with pytest.raises(
        KeyError, match="no metric 'acuracy': import the module that registers it; did you mean .*'accuracy'"
    ):
        ClassFactory.get_cls(ClassType.METRIC, 'acuracy')
    with pytest.raises(AttributeError, match='there is no ClassType.TRAINER: there are NETWORK, LOSS, METRIC'):
        ClassFactory.get_cls(ClassType.TRAINER, 'Trainer')
    with pytest.raises(KeyError, match="no learning-rate scheduler 'StepL'"):
        ClassFactory.get_cls(ClassType.LR_SCHEDULER, 'StepL')
    with pytest.raises(TypeError, match='needs the name of the class'):  # a config can name several
        ClassFactory.get_cls(ClassType.CALLBACK)
    with pytest.raises(RuntimeError, match='no pipeline is running here'):
        ClassFactory.get_cls(ClassType.METRIC)
