"""Seeds of trials."""

from runnerkit.search.seeds import derived_seed


def test_they_differ_and_stay():
    seeds = [derived_seed(seed, number) for seed in range(3) for number in range(300)]
    assert len(set(seeds)) == 900
    assert all(0 <= each < 2**31 for each in seeds)
    assert derived_seed(0, 0) == seeds[0]
