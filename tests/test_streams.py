"""Seeds and draws of many episodes at once: numpy's own, to the bit."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bace_env.config import load_scenario
from bace_env.episodes import Episodes
from bace_env.scenario import Sampler, episode_seed
from bace_env.streams import choices, episode_seeds
from bace_env.types import IntArray

#: Where words of 32 bits begin and end; 53 bits are the most that a seed has.
EDGES = [0, 1, 2, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**53 - 2, 2**53 - 1]
ARRIVALS = {
    "poisson": ["workload.mean_interarrival_h=0.5"],
    "bursty": ["workload.mean_interarrival_h=0.5"],
    "diurnal": ["workload.load=0.9"],
}


def numpys_seed(seed: int, episode: int) -> int:
    if episode == 0:
        return seed
    sequence = np.random.SeedSequence(seed, spawn_key=(episode,))
    return int(sequence.generate_state(1, np.uint64)[0]) % 2**53


def numpys_choices(seed: int, source: int, n: int, size: int) -> IntArray:
    generator = np.random.Generator(np.random.Philox(key=[seed, source]))
    return generator.integers(n, size=size)


def random_numbers(rng: np.random.Generator, bits: int, size: int) -> IntArray:
    """Of all lengths up to that many bits, and the edges among them."""
    drawn = rng.integers(2**bits, size=size) >> rng.integers(bits, size=size)
    edges = [edge for edge in EDGES if edge < 2**bits]
    return np.concatenate([drawn, edges, rng.permutation(edges)])


def test_many_seeds_are_those_of_numpy() -> None:
    rng = np.random.default_rng(0)
    seeds = random_numbers(rng, 53, 4000)
    episodes = rng.permutation(random_numbers(rng, 53, 4000))
    episodes[:1000] &= 2**32 - 1
    found = episode_seeds(seeds, episodes).tolist()
    pairs = list(zip(seeds.tolist(), episodes.tolist(), strict=True))
    assert found == [numpys_seed(*pair) for pair in pairs]
    assert found == [episode_seed(*pair) for pair in pairs]


def test_seeds_at_the_edges_are_those_of_numpy() -> None:
    seeds, episodes = (each.ravel() for each in np.meshgrid(EDGES, EDGES))
    found = episode_seeds(seeds, episodes).tolist()
    assert found == list(map(numpys_seed, seeds.tolist(), episodes.tolist()))
    assert episode_seeds(seeds[:0], episodes[:0]).shape == (0,)


#: From 2**31 + 3 on nearly half of the numbers are rejected; 2**32 takes them as they are.
@pytest.mark.parametrize("n", [1, 2, 3, 7, 2**16, 2**31, 2**31 + 3, 3 * 2**30, 2**32 - 1, 2**32])
def test_many_draws_are_those_of_numpy(n: int) -> None:
    seeds = random_numbers(np.random.default_rng(n), 53, 150)
    for source, size in ((0, 1), (0, 8), (1, 3), (4, 24), (2**40, 17)):
        found = choices(seeds, source, n, size)
        expected = [numpys_choices(seed, source, n, size) for seed in seeds.tolist()]
        assert np.array_equal(found, expected)
    found = choices(seeds[:5], 0, n, 1000)
    assert np.array_equal(found, [numpys_choices(seed, 0, n, 1000) for seed in seeds[:5].tolist()])
    assert choices(seeds[:0], 0, n, 8).shape == (0, 8)


@given(
    st.lists(st.integers(0, 2**53 - 1), min_size=1, max_size=4),
    st.integers(0, 2**62),
    st.integers(1, 2**32),
    st.integers(0, 40),
)
def test_draws_of_any_size_are_those_of_numpy(
    seeds: list[int], source: int, n: int, size: int
) -> None:
    expected = [numpys_choices(seed, source, n, size) for seed in seeds]
    assert np.array_equal(choices(np.array(seeds), source, n, size), np.array(expected))


# --- Episodes ------------------------------------------------------------------------------------


def scenarios() -> list[Any]:
    found = [
        pytest.param("tiny", [], id="tiny"),
        pytest.param("tiny", ["workload.n_jobs=5", "jobs.0.iterations=7"], id="tiny, mixed"),
        pytest.param("paper", [], id="paper", marks=pytest.mark.jit),
        pytest.param("paper", ["workload.n_jobs=25"], id="25 jobs", marks=pytest.mark.jit),
        pytest.param(
            "paper",
            [f"jobs.{i}.dataset=Alpaca-52k" for i in range(8)],
            id="nothing to draw",
            marks=pytest.mark.jit,
        ),
    ]
    for arrivals, settings in ARRIVALS.items():
        overrides = [f"workload.arrivals={arrivals}", "workload.n_jobs=9", *settings]
        found.append(pytest.param("paper", overrides, id=arrivals, marks=pytest.mark.jit))
    return found


@pytest.mark.parametrize(("preset", "overrides"), scenarios())
def test_episodes_have_the_workloads_that_one_sampler_draws(
    preset: str, overrides: list[str]
) -> None:
    scenario = load_scenario(preset, overrides)
    sampler, rng = Sampler(scenario), np.random.default_rng(1)
    seeds = [*EDGES, *rng.integers(2**53, size=7).tolist()]
    episodes = Episodes(scenario, batch=len(seeds), cost_weight=(0.25, 4.0), horizon_s=1e5)
    for b, seed in enumerate(seeds):
        episodes.seed(b, seed)
    played = np.zeros(len(seeds), np.int64)
    for _ in range(6):
        rows = rng.permutation(len(seeds))[: rng.integers(1, len(seeds) + 1)].tolist()
        episodes.begin(rows)
        for b in rows:
            seed = numpys_seed(seeds[b], int(played[b]))
            played[b] += 1
            expected, found = sampler.draw(seed), episodes.instance(b)
            assert (found.seed, found.window_s) == (seed, expected.window_s)
            assert found.cost_weight == sampler.draw_cost_weight(seed, 0.25, 4.0)
            assert np.array_equal(found.arrays.iterations, expected.arrays.iterations)
            assert np.array_equal(found.arrays.arrival_s, expected.arrays.arrival_s)
            iterations, arrival_s = sampler.draw_jobs(seed)
            assert np.array_equal(found.arrays.iterations, iterations)
            assert np.array_equal(found.arrays.arrival_s, arrival_s)
            assert episodes.now_s[b] == arrival_s[0]


def test_excluded_seeds_are_skipped_by_each_row_for_itself() -> None:
    seeds = [3, 3, 4, 2**53 - 1]
    chains = [[numpys_seed(seed, k) for k in range(12)] for seed in seeds]
    # Of seed 3 the episodes 0, 1 and 4; of the last its first 8.
    excluded = {chains[0][0], chains[0][1], chains[0][4], *chains[3][:8]}
    episodes = Episodes("tiny", batch=4, excluded=excluded)
    for b, seed in enumerate(seeds):
        episodes.seed(b, seed)
    played: list[list[int]] = [[] for _ in seeds]
    for rows in ([0, 1, 2, 3], [3, 0], [1], [0, 2, 1], []):
        episodes.begin(rows)
        for b in rows:
            played[b].append(episodes.instance(b).seed)
    chain = chains[0]
    assert played[0] == played[1] == [chain[2], chain[3], chain[5]]
    assert played[2] == chains[2][:2]
    assert played[3] == chains[3][8:10]


def test_a_workload_given_out_is_not_changed_by_the_next_one() -> None:
    episodes = Episodes("tiny", batch=2)
    episodes.seed(0, 1)
    episodes.begin([0, 1])
    first = episodes.instance(0)
    before = first.to_json()
    episodes.begin([0, 1])
    assert episodes.instance(0).seed != first.seed
    assert first.to_json() == before
