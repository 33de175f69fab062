from typing import Any

import numpy as np
import pytest

from bace_env.episodes import Episodes
from bace_env.observation import FEATURES

torch = pytest.importorskip("torch", reason="needs the extra train")
pytest.importorskip("stable_baselines3", reason="needs the extra train")

from train.mixture import change_capacity, pad_candidates  # noqa: E402
from train.network import MASKED, Decision, Network  # noqa: E402
from train.packed_layers import best_actions, log_probability, pool, score  # noqa: E402
from train.packing import (  # noqa: E402
    choose_rows,
    concatenate,
    join,
    pack,
    pack_candidates,
)

torch.set_num_threads(1)

Observations = dict[str, np.ndarray[Any, Any]]


@pytest.fixture(scope="module")
def network() -> Network:
    torch.manual_seed(0)
    made = Network(16)
    for parameter in made.parameters():  # fresh heads are nearly 0: nothing could be told apart
        torch.nn.init.normal_(parameter, std=0.4)
    return made


def observations(scenario: str, n: int = 3, steps: int = 1, **kwargs: Any) -> Observations:
    """After a random decision, so that some GPUs are taken and some slots empty."""
    episodes, rng = Episodes(scenario, batch=n, **kwargs), np.random.default_rng(0)
    for b in range(n):
        episodes.seed(b, 10 + b)
    episodes.begin(range(n))
    for _ in range(steps):
        masks = episodes.masks()
        episodes.step(np.array([rng.choice(np.flatnonzero(mask)) for mask in masks]))
    return episodes.observations()


def run(network: Network, found: Observations) -> tuple[np.ndarray[Any, Any], Any]:
    with torch.no_grad():
        scores, values = network.padded({k: torch.as_tensor(v) for k, v in found.items()})
    return scores.numpy(), values.numpy()


def shuffled(found: Observations, key: str, order: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    array = found[key].reshape(len(found[key]), order.size, -1)
    return array[:, order].reshape(len(array), -1)


def test_forbidden_actions_have_no_probability(network: Network) -> None:
    found = observations("tiny")
    found["action_mask"][0, -1] = 0
    scores, _ = run(network, found)
    shares = torch.as_tensor(scores).softmax(1).numpy()
    assert (shares[found["action_mask"] == 0] == 0.0).all()
    assert (shares[found["action_mask"] == 1] > 0.0).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-5)


def test_order_of_slots_and_candidates_moves_the_scores_with_them(network: Network) -> None:
    found, rng = observations("tiny", slots=4), np.random.default_rng(1)
    scores, values = run(network, found)
    capacity = (found["action_mask"].shape[1] - 1) // 4
    slots, inside = rng.permutation(4), rng.permutation(capacity)
    order = (slots[:, None] * capacity + inside[None, :]).ravel()
    moved = dict(found, jobs=shuffled(found, "jobs", slots))
    moved["candidates"] = shuffled(found, "candidates", order)
    moved["action_mask"] = found["action_mask"][:, np.append(order, order.size)]
    their_scores, their_values = run(network, moved)
    np.testing.assert_allclose(their_scores[:, :-1], scores[:, order], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(their_scores[:, -1], scores[:, -1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(their_values, values, rtol=1e-4, atol=1e-5)
    assert not np.allclose(their_scores, scores)


def test_order_of_regions_and_links_does_not_matter(network: Network) -> None:
    found, rng = observations("tiny"), np.random.default_rng(2)
    n = found["regions"].shape[1] // len(FEATURES["regions"])
    moved = dict(found, regions=shuffled(found, "regions", rng.permutation(n)[::-1]))
    moved["links"] = shuffled(found, "links", rng.permutation(n * n))
    for one, other in zip(run(network, found), run(network, moved), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_padding_does_not_matter(network: Network) -> None:
    found = observations("tiny", slots=3)
    n, wait = len(found["jobs"]), found["action_mask"].shape[1] - 1
    scores, values = run(network, found)
    wide = pad_candidates(found, 3, wait // 3 + 5)
    more = {
        "jobs": 2 * len(FEATURES["jobs"]),
        "candidates": 2 * (wait // 3 + 5) * len(FEATURES["candidates"]),
        "regions": len(FEATURES["regions"]),
        "links": 5 * len(FEATURES["links"]),
    }
    for key, size in more.items():
        wide[key] = np.hstack([wide[key], np.zeros((n, size), np.float32)])
    closed = np.zeros((n, 2 * (wait // 3 + 5)), np.int8)
    mask = wide["action_mask"]
    wide["action_mask"] = np.hstack([mask[:, :-1], closed, mask[:, -1:]])
    their_scores, their_values = run(network, wide)
    np.testing.assert_allclose(their_values, values, rtol=1e-4, atol=1e-5)
    at = change_capacity(np.arange(wait), wait // 3, wait // 3 + 5)
    np.testing.assert_allclose(their_scores[:, at], scores[:, :-1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(their_scores[:, -1], scores[:, -1], rtol=1e-4, atol=1e-5)
    rest = np.delete(their_scores, [*at, -1], axis=1)
    assert (rest == np.float32(MASKED)).all()


@pytest.mark.jit
def test_the_same_weights_serve_other_numbers_of_regions_and_slots(network: Network) -> None:
    for scenario, slots in (("paper", 8), ("physical", 3), ("tiny", 1), ("fig1", 12)):
        found = observations(scenario, steps=1, slots=slots)
        scores, values = run(network, found)
        assert scores.shape == found["action_mask"].shape
        assert np.isfinite(values).all()


def decision_of(found: Observations, b: int) -> tuple[Decision, np.ndarray[Any, Any]]:
    """A row without padding, and its valid actions: worked out entity by entity."""
    rows = {k: found[k][b].reshape(-1, len(FEATURES[k])) for k in FEATURES if k != "globals"}
    n_slots = len(rows["jobs"])
    capacity = len(rows["candidates"]) // n_slots
    jobs = [q for q in range(n_slots) if rows["jobs"][q, 0] == 1.0]
    valid = [a for a in range(n_slots * capacity) if found["action_mask"][b, a]]
    arrays = (
        found["globals"][b],
        rows["regions"][[r for r in range(len(rows["regions"])) if rows["regions"][r, 0] == 1.0]],
        rows["links"][[i for i in range(len(rows["links"])) if rows["links"][i, 0] > 0.0]],
        rows["jobs"][jobs],
        rows["candidates"][valid],
        np.array([jobs.index(a // capacity) for a in valid], dtype=np.int64),
    )
    return Decision(*map(torch.as_tensor, arrays)), np.array(valid, dtype=np.int64)


def test_one_decision_is_scored_as_in_a_batch(network: Network) -> None:
    found = observations("tiny")
    scores, values = run(network, found)
    for b in range(len(values)):
        decision, valid = decision_of(found, b)
        with torch.no_grad():
            one, value = network.decide(decision)
        np.testing.assert_allclose(one[:-1], scores[b, valid], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(value, values[b], rtol=1e-4, atol=1e-5)


def test_pooling_is_mean_and_maximum_with_their_gradients() -> None:
    rng = np.random.default_rng(3)
    sizes = [2, 0, 5, 1]
    first = torch.as_tensor(np.cumsum([0, *sizes]))
    data = rng.random((sum(sizes), 3)).astype(np.float32)
    ours = torch.tensor(data, requires_grad=True)
    theirs = torch.tensor(data, requires_grad=True)
    mean, most = pool(ours, first)
    zero = torch.zeros(3)
    parts = theirs.split(sizes)
    their_mean = torch.stack([part.mean(0) if len(part) else zero for part in parts])
    their_most = torch.stack([part.amax(0) if len(part) else zero for part in parts])
    torch.testing.assert_close(mean, their_mean)
    torch.testing.assert_close(most, their_most)
    weights = torch.as_tensor(rng.random((2, 4, 3)).astype(np.float32))
    (mean * weights[0] + most * weights[1]).sum().backward()
    (their_mean * weights[0] + their_most * weights[1]).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_the_cost_weight_is_an_input(network: Network) -> None:
    low, high = (observations("tiny", steps=0, cost_weight=weight) for weight in (0.0, 2.0))
    assert low["globals"][0, 0] == 0.0
    assert high["globals"][0, 0] == pytest.approx(2.0 / 3.0)
    assert not np.allclose(run(network, low)[0], run(network, high)[0])


def packed_of(found: Observations) -> Any:
    return pack({key: torch.as_tensor(array) for key, array in found.items()})


def test_scores_beside_their_job_and_context_with_their_gradients() -> None:
    found = observations("tiny", n=4, steps=2, slots=4)
    packed, rng = packed_of(found), np.random.default_rng(4)
    n, jobs, batch, width = len(packed.action), len(packed.jobs), len(packed.globals), 6
    shapes = ((n, width), (width, width), (jobs, width), (batch, width), (width,))
    data = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    ours, theirs = ([torch.tensor(x, requires_grad=True) for x in data] for _ in range(2))
    job, row, i = [], [], 0  # of each candidate, from the padded arrays
    capacity = (found["action_mask"].shape[1] - 1) // 4
    for b in range(batch):
        for slot in range(4):
            if found["jobs"][b, slot * len(FEATURES["jobs"])]:
                valid = found["action_mask"][b, slot * capacity : (slot + 1) * capacity].sum()
                job += [i] * valid
                row += [b] * valid
                i += 1
    scores = score(*ours, packed)
    hidden, weight, of_jobs, context, head = theirs
    expected = (hidden @ weight.t() + of_jobs[job] + context[row]).relu() @ head
    torch.testing.assert_close(scores, expected)
    weights = torch.as_tensor(rng.normal(size=n).astype(np.float32))
    (scores * weights).sum().backward()
    (expected * weights).sum().backward()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-5)


def test_log_probability_and_entropy_with_their_gradients() -> None:
    found, rng = observations("tiny", n=4, steps=0), np.random.default_rng(5)
    found["action_mask"][0, -1] = 0
    found["action_mask"][1, -1] = 1
    packed = packed_of(found)
    mask = torch.as_tensor(found["action_mask"]).ne(0)
    wait = mask.shape[1] - 1
    chosen = torch.tensor([int(rng.choice(np.flatnonzero(row))) for row in mask])
    chosen[1] = wait
    n = len(packed.action)
    data = [rng.normal(size=size).astype(np.float32) for size in (n, 4)]
    ours, theirs = ([torch.tensor(x, requires_grad=True) for x in data] for _ in range(2))
    log_p, entropy = log_probability(*ours, packed, chosen)
    padded = torch.full(mask.shape, -torch.inf)
    padded[mask] = 0.0
    padded = padded.clone()
    rows, actions = mask[:, :-1].nonzero(as_tuple=True)
    padded = padded.index_put((rows, actions), theirs[0])
    padded = torch.cat([padded[:, :-1], torch.where(mask[:, -1], theirs[1], -1e30)[:, None]], 1)
    shares = torch.distributions.Categorical(logits=padded.clamp(min=-1e30))
    torch.testing.assert_close(log_p, shares.log_prob(chosen))
    torch.testing.assert_close(entropy, shares.entropy())
    weights = torch.as_tensor(rng.normal(size=(2, 4)).astype(np.float32))
    (log_p * weights[0] + entropy * weights[1]).sum().backward()
    (shares.log_prob(chosen) * weights[0] + shares.entropy() * weights[1]).sum().backward()
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-6)
    best = best_actions(ours[0].detach(), ours[1].detach(), packed)
    assert best.tolist() == padded.argmax(1).tolist()


def test_observations_chosen_from_a_joined_pack_are_those_packed_alone() -> None:
    found = observations("tiny", n=5, steps=2)
    mask, candidates = found["action_mask"], found["candidates"]
    parts = [pack_candidates(mask[at], candidates[at]) for at in (slice(0, 2), slice(2, 5))]
    rows = np.array([4, 0, 0, 3])
    chosen = choose_rows(concatenate(parts), rows)
    again = packed_of({key: array[rows] for key, array in found.items()})
    rest = {key: torch.as_tensor(found[key][rows]) for key in ("regions", "links", "jobs")}
    rest["globals"] = torch.as_tensor(found["globals"][rows])
    joined = join(rest, chosen, mask.shape[1] - 1)
    for mine, theirs in zip(joined, again, strict=True):
        torch.testing.assert_close(mine, theirs)
