"""Runs of all kinds, trained once for all tests of the room."""

import planted
import pytest
from moments import train_kind


@pytest.fixture(scope='package')
def trained(tmp_path_factory):
    """Work dir and what was seen, by kind; trained at first use. Do not write there."""
    found = {}

    def of(kind):
        if kind not in found:
            found[kind] = train_kind(kind, tmp_path_factory.mktemp(kind))
        return found[kind]

    return of


@pytest.fixture(scope='module')
def config(tmp_path_factory):
    """The config of a project in which differences are planted."""
    return planted.project(tmp_path_factory.mktemp('project'))


@pytest.fixture(scope='module')
def run(config):
    """Its run without one."""
    return planted.train(config, config.parent / 'run')
