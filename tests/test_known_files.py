"""The best schedules known that the package ships: whole, valid, and no worse than what is run."""

import pytest

from agents.policy import make_policy
from bace_env.checker import check_trace
from bace_env.config import load_scenario
from bace_env.scenario import Sampler, episode_seed
from eval.best_known import searched_settings
from eval.bounds import lower_bounds
from eval.known_schedules import Known, play
from eval.rollout import run_episode

WORKLOADS = 200


@pytest.mark.jit
@pytest.mark.parametrize(("name", "overrides"), searched_settings())
def test_what_is_stored_is_played_back(name: str, overrides: tuple[str, ...]) -> None:
    scenario = load_scenario(name, overrides)
    known, sampler = Known.load(scenario), Sampler(scenario)
    assert list(known.schedules) == [episode_seed(0, k) for k in range(WORKLOADS)]
    for k in range(0, WORKLOADS, 50):
        instance = sampler.draw(episode_seed(0, k))
        trace = play(instance, known.schedules[instance.seed])
        assert trace.finished.all()
        check_trace(trace)
        value = trace.objective()
        assert lower_bounds(instance).objective <= value
        for policy in ("bace", "sjf", "bace-patient", "search"):
            plain = run_episode(instance, make_policy(policy)).objective()
            assert value <= plain * (1 + 1e-9), (policy, k)
