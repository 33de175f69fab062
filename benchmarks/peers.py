"""Our environment beside scheduling environments from the package registry, in one run.

    python benchmarks/peers.py --python ../peers/bin/python

The peers (jumanji, rl4co, JSSEnv, job_shop_lib) bring along JAX, Lightning, OR-Tools and much else
that this project does not need, and are free to want other versions of what it does need. So they
live in an environment of their own, which `--python` names:

    python3 -m venv ../peers
    ../peers/bin/pip install -c constraints.txt jumanji rl4co JSSEnv job_shop_lib

Every row is measured in a fresh process with one thread on one core, with random valid actions
and restarts included. Drawing the actions is timed for none. The seconds are CPU seconds of all
threads of the process. A peer plays one episode to warm up (and compile), then whole episodes.

A unit differs in kind from row to row, and the ratio (ours / theirs, at the same batch size) is
one of speeds as met in use, not of two programs that do the same:

- Ours is one decision of an event-driven cluster with shared links, prices and a cost model: some
  60 candidate placements worked out, 3,824 numbers and 449 mask entries observed.
- The peers solve the job shop: 8 jobs x 6 machines here, durations and routes known, no network,
  no cost. They observe 210 (jumanji), 65 (JSSEnv), 1,158 (job_shop_lib) and, with its state, 8,659
  (rl4co JSSP) or 6,387 (FJSP) numbers.
- jumanji's unit is no decision but one time unit, in which each machine starts a job or does
  nothing: 0.75 operations started per unit here. Three in five random episodes end early, because
  all machines do nothing at once. Its compiled loop hands no observation to Python: its best case,
  which holds for a policy written in JAX.
- rl4co restarts a batch as a whole. JSSEnv and one row of job_shop_lib replay one instance for
  ever; all others draw a new one for each episode.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from env import in_fresh_process

JOBS, MACHINES = 8, 6
BATCHES = (1, 256, 1024)
ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "JAX_PLATFORMS": "cpu",
}
OURS = "GeoPipeline-v0 (ours)"
DECISION = "start one job on a path, or wait"
DISPATCH = "start one operation"


class Contestant(Protocol):
    """An environment under way."""

    def draw(self) -> Any:
        """Random valid actions for the next step; not timed."""

    def step(self, actions: Any) -> tuple[int, int]:
        """Act and restart what has ended: units done, episodes ended. Timed."""


def noise(rng: np.random.Generator, *shape: int) -> Any:
    """Random numbers in (0, 1]: never 0, so that the largest valid one is valid."""
    return np.float32(1.0) - rng.random(shape, dtype=np.float32)


def any_valid(mask: Any, rng: np.random.Generator) -> Any:
    """One valid action for each row of `mask`, all alike likely."""
    if not mask.any(axis=-1).all():
        raise RuntimeError("the environment goes on but allows no action")
    return (noise(rng, *mask.shape) * mask).argmax(axis=-1)


def job_shop_instance(rng: np.random.Generator) -> tuple[Any, Any]:
    """Machines in random order and durations 1..99 for each job, as in Taillard's instances."""
    machines = rng.permuted(np.tile(np.arange(MACHINES), (JOBS, 1)), axis=1)
    return machines, rng.integers(1, 100, (JOBS, MACHINES))


class JumanjiGym:
    """JobShop-v0 behind the Gymnasium wrapper that jumanji ships, stepped from Python."""

    def __init__(self, batch: int, rng: np.random.Generator) -> None:
        from jumanji.wrappers import JumanjiToGymWrapper

        self.rng = rng
        self.env = JumanjiToGymWrapper(jumanji_job_shop(), seed=0)
        self.observation, _ = self.env.reset()

    def draw(self) -> Any:
        return any_valid(np.asarray(self.observation["action_mask"]), self.rng)

    def step(self, actions: Any) -> tuple[int, int]:
        self.observation, _, terminated, truncated, _ = self.env.step(actions)
        ended = bool(terminated or truncated)
        if ended:
            self.observation, _ = self.env.reset()
        return 1, int(ended)


class JumanjiCompiled:
    """JobShop-v0 stepped 64 times inside one compiled program, restarting by itself."""

    STEPS = 64

    def __init__(self, batch: int, rng: np.random.Generator) -> None:
        import jax
        from jumanji.wrappers import AutoResetWrapper, VmapWrapper

        env = VmapWrapper(AutoResetWrapper(jumanji_job_shop()))

        def one_step(state: Any, numbers: Any) -> tuple[Any, Any]:
            # What is observed is part of the state, so none of it is optimised away.
            actions = (numbers * state.action_mask).argmax(axis=-1)
            state, timestep = env.step(state, actions)
            return state, (timestep.reward.sum(), timestep.last().sum())

        self.rng, self.batch, self.jax = rng, batch, jax
        self.many_steps = jax.jit(lambda state, numbers: jax.lax.scan(one_step, state, numbers))
        self.state, _ = jax.jit(env.reset)(jax.random.split(jax.random.PRNGKey(0), batch))

    def draw(self) -> Any:
        numbers = noise(self.rng, self.STEPS, self.batch, MACHINES, JOBS + 1)
        return self.jax.block_until_ready(self.jax.numpy.asarray(numbers))

    def step(self, actions: Any) -> tuple[int, int]:
        self.state, (_, ended) = self.jax.block_until_ready(self.many_steps(self.state, actions))
        return self.STEPS * self.batch, int(ended.sum())


def jumanji_job_shop() -> Any:
    import jumanji
    from jumanji.environments.packing.job_shop.generator import RandomGenerator

    # Durations 1..6 are those of JobShop-v0 as registered.
    size = {"num_jobs": JOBS, "num_machines": MACHINES, "max_num_ops": MACHINES}
    return jumanji.make("JobShop-v0", generator=RandomGenerator(**size, max_op_duration=6))


class Rl4co:
    """JSSP or FJSP: a batch starts together and is restarted when the last instance is done."""

    def __init__(self, batch: int, rng: np.random.Generator, name: str = "jssp") -> None:
        import torch
        from rl4co.envs import get_env

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.rng, self.batch, self.torch = rng, batch, torch
        size = {"num_jobs": JOBS, "num_machines": MACHINES}
        operations = {"min_ops_per_job": MACHINES, "max_ops_per_job": MACHINES}
        self.env = get_env(name, generator_params={**size, **operations})
        self.state = self.env.reset(batch_size=[batch])

    def draw(self) -> Any:
        mask = self.state["action_mask"].flatten(1).numpy()
        return self.torch.from_numpy(any_valid(mask, self.rng))

    def step(self, actions: Any) -> tuple[int, int]:
        units = self.batch - int(self.state["done"].sum())  # those done wait for the others
        self.state.set("action", actions)
        self.state = self.env.step(self.state)["next"]
        if not self.state["done"].all():
            return units, 0
        self.env.get_reward(self.state, None)
        self.state = self.env.reset(batch_size=[self.batch])
        return units, self.batch


class Rl4coFlexible(Rl4co):
    def __init__(self, batch: int, rng: np.random.Generator) -> None:
        super().__init__(batch, rng, "fjsp")


class JssEnv:
    """One fixed instance, read from a file as JSSEnv wants it."""

    def __init__(self, batch: int, rng: np.random.Generator) -> None:
        # Not by gymnasium.make: its wrappers call reset(seed=...), which JSSEnv does not take.
        from JSSEnv.envs import JssEnv as Env

        pairs = np.stack(job_shop_instance(rng), axis=2).reshape(JOBS, -1)
        lines = [f"{JOBS} {MACHINES}", *(" ".join(map(str, row)) for row in pairs)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "instance"
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            self.env = Env({"instance_path": path})
        self.rng = rng
        self.observation = self.env.reset()

    def draw(self) -> Any:
        return int(any_valid(self.observation["action_mask"], self.rng))

    def step(self, actions: Any) -> tuple[int, int]:
        self.observation, _, ended, _, _ = self.env.step(actions)
        if ended:
            self.observation = self.env.reset()
        return 1, int(ended)


class JobShopLib:
    """The graph environment of one instance, with all built-in features."""

    def __init__(self, batch: int, rng: np.random.Generator) -> None:
        self.rng = rng
        self.env = self.build(rng)
        _, self.info = self.env.reset()

    def build(self, rng: np.random.Generator) -> Any:
        from job_shop_lib import JobShopInstance
        from job_shop_lib.dispatching.feature_observers import FeatureObserverType
        from job_shop_lib.graphs import build_resource_task_graph
        from job_shop_lib.reinforcement_learning import SingleJobShopGraphEnv

        machines, durations = job_shop_instance(rng)
        instance = JobShopInstance.from_matrices(durations.tolist(), machines.tolist())
        graph = build_resource_task_graph(instance)
        return SingleJobShopGraphEnv(graph, list(FeatureObserverType))

    def draw(self) -> Any:
        possible = self.info["available_operations_with_ids"]
        _, machine, job = possible[self.rng.integers(len(possible))]
        return job, machine

    def step(self, actions: Any) -> tuple[int, int]:
        _, _, terminated, truncated, self.info = self.env.step(actions)
        ended = bool(terminated or truncated)
        if ended:
            _, self.info = self.env.reset()
        return 1, int(ended)


class JobShopLibNew(JobShopLib):
    """The same with a new instance, and so a new graph, for each episode."""

    def build(self, rng: np.random.Generator) -> Any:
        from job_shop_lib.dispatching.feature_observers import FeatureObserverType
        from job_shop_lib.generation import GeneralInstanceGenerator
        from job_shop_lib.reinforcement_learning import MultiJobShopGraphEnv

        generator = GeneralInstanceGenerator(num_jobs=JOBS, num_machines=MACHINES, seed=0)
        return MultiJobShopGraphEnv(generator, list(FeatureObserverType))


@dataclass(frozen=True)
class Row:
    """What to measure of a peer: the class that plays it and the batch sizes it can play."""

    distribution: str
    variant: str
    unit: str
    contestant: Callable[[int, np.random.Generator], Contestant]
    batches: tuple[int, ...] = (1,)


TIME_UNIT = f"one time unit of all {MACHINES} machines"
ROWS = (
    Row("jumanji", "JobShop, Gymnasium", TIME_UNIT, JumanjiGym),
    Row("jumanji", "JobShop, compiled loop", TIME_UNIT, JumanjiCompiled, BATCHES),
    Row("rl4co", "JSSP", DISPATCH, Rl4co, BATCHES),
    Row("rl4co", "FJSP", f"{DISPATCH}, choose machine", Rl4coFlexible, BATCHES),
    Row("JSSEnv", "one instance", f"{DISPATCH}, or wait", JssEnv),
    Row("job_shop_lib", "one instance", DISPATCH, JobShopLib),
    Row("job_shop_lib", "new instances", DISPATCH, JobShopLibNew),
)
DISTRIBUTIONS = tuple(dict.fromkeys(row.distribution for row in ROWS))


def clock(contestant: Contestant, seconds: float) -> dict[str, float]:
    """Units per CPU second over whole episodes, after a first one that warms up."""
    units, episodes, spent = 0, 0, 0.0
    warm, ended = False, 0
    while spent < seconds or not ended:
        actions = contestant.draw()
        start = time.process_time()
        done, ended = contestant.step(actions)
        taken = time.process_time() - start
        if warm:
            units, episodes, spent = units + done, episodes + ended, spent + taken
        elif ended:
            warm, ended = True, 0
    return {"steps_per_s": units / spent, "steps_per_episode": units / episodes}


def measure_peer(row: int, batch: int, seconds: float) -> dict[str, float]:
    contestant = ROWS[row].contestant(batch, np.random.default_rng(0))
    return clock(contestant, seconds)


def peer_in_fresh_process(python: str, **arguments: Any) -> dict[str, float] | str:
    """What `measure_peer` finds under another interpreter, or the error that stopped it."""
    command = [python, __file__, "--measure", json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])  # peers print, too
    return found


def installed_versions(python: str) -> dict[str, str | None]:
    """Which peers an interpreter has. It may have nothing else, not even numpy.

    Raises:
        ValueError: if `python` is no Python interpreter.
    """
    program = (
        "import importlib.metadata as m, json, sys\n"
        "def version(name):\n"
        "    try: return m.version(name)\n"
        "    except m.PackageNotFoundError: return None\n"
        "print(json.dumps({name: version(name) for name in sys.argv[1:]}))"
    )
    command = [python, "-c", program, *DISTRIBUTIONS]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        versions: dict[str, str | None] = json.loads(done.stdout)
    except (OSError, subprocess.CalledProcessError, json.JSONDecodeError) as error:
        raise ValueError(f"must be a Python interpreter, got {python}") from error
    return versions


def one_thread_one_core() -> None:
    """For the processes started from here on: libraries ask for the cores they may use."""
    os.environ.update(ONE_THREAD)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def print_row(label: str, batch: int, unit: str, found: dict[str, float], ratio: str = "") -> None:
    speed, length = found["steps_per_s"], found["steps_per_episode"]
    print(
        f"{label:37s} {batch:5d}  {unit:36s} {speed:11,.0f} {length:8.0f}  {ratio:>11s}", flush=True
    )


def compare(
    python: str, versions: dict[str, str | None], batches: Sequence[int], seconds: float
) -> bool:
    """Print the table, batch size by batch size; whether all that is installed also ran."""
    all_ran = True
    print(
        f"{JOBS} jobs x {MACHINES} regions or machines, random valid actions, one thread\n"
        f"{'environment':37s} batch  {'one unit is':36s} units/CPU-s /episode  ours/theirs"
    )
    for batch in batches:
        ours = in_fresh_process({"batch": batch, "n_jobs": JOBS, "seconds": seconds})
        print_row(OURS, batch, DECISION, ours)
        for i, row in enumerate(ROWS):
            version = versions[row.distribution]
            if version is None or batch not in row.batches:
                continue
            label = f"{row.distribution} {version} {row.variant}"
            found = peer_in_fresh_process(python, row=i, batch=batch, seconds=seconds)
            if isinstance(found, str):
                all_ran = False
                print(f"{label:37s} {batch:5d}  does not run: {found}", flush=True)
            else:
                ratio = f"{ours['steps_per_s'] / found['steps_per_s']:.2f}"
                print_row(label, batch, row.unit, found, ratio)
    missing = [name for name in DISTRIBUTIONS if versions[name] is None]
    for name in missing:
        print(f"{name}: not installed: pip install -c constraints.txt {name}")
    if missing:
        print("Install them into an environment of their own and name its Python with --python.")
    return all_ran


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Our environment's speed beside other scheduling environments'."
    )
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter that has the peers (default: this)"
    )
    parser.add_argument(
        "--seconds", type=float, default=4.0, help="CPU seconds per row (default: 4)"
    )
    parser.add_argument(
        "--batch",
        type=int,
        nargs="+",
        choices=BATCHES,
        default=BATCHES,
        help="batch sizes to measure (default: all)",
    )
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure_peer(**json.loads(options.measure))))
        return
    if not 0 < options.seconds < float("inf"):
        parser.error(f"--seconds: must be positive and finite, got {options.seconds}")
    try:
        versions = installed_versions(options.python)
    except ValueError as error:
        parser.error(f"--python: {error}")
    one_thread_one_core()
    sys.exit(0 if compare(options.python, versions, options.batch, options.seconds) else 1)


if __name__ == "__main__":
    main()
