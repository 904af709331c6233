"""The alias under which programs of users import the main function of experiments."""


def test_it_is_the_main_of_experiments():
    from runnerkit.flow import experiment_main
    from runnerkit.flow.experiment.main import main

    assert experiment_main.main is main
