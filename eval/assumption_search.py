"""The search over the grid of assumptions: seeded, resumable, over processes.

Random settings first, then the best of them improved one assumption at a time, then the best of all
judged again on other workloads, and the very best improved once more on these. What is evaluated
depends on the plan alone: neither on the number of processes nor on interruptions.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bace_env.errors import ConfigError
from bace_env.files import write_atomically
from eval.assumptions import (
    ASSUMPTIONS,
    BASE,
    PAPER_SETTING,
    Result,
    Setting,
    evaluate,
    neighbours,
    random_setting,
)
from eval.claims import CLAIMS
from eval.processes import worker_pool

_CHUNK = 8  # settings handed to a process at once
_SAVE_EVERY_S = 20.0


@dataclass(frozen=True)
class Plan:
    """What a search does.

    Attributes:
        seed: Draws the settings; their workloads are those of runs with seed + 1 and, at the end,
            seed + 2.
        settings: Random settings.
        draws: Workloads per setting.
        starts: Best random settings from which to improve.
        finalists: Best settings of all that are judged again.
        final_draws: Workloads per finalist.
    """

    seed: int
    settings: int
    draws: int
    starts: int
    finalists: int = 20
    final_draws: int = 100


@dataclass(frozen=True)
class Outcome:
    """A finished search.

    Attributes:
        random: The random settings in the order in which they were drawn.
        improved: Settings met while improving the best of them.
        finalists: The best of all, and what was met while improving the best of these once more,
            on the final workloads, best first.
        paper: The preset `paper` on the final workloads.
    """

    plan: Plan
    random: tuple[Result, ...]
    improved: tuple[Result, ...]
    finalists: tuple[Result, ...]
    paper: Result

    @property
    def best(self) -> Result:
        """The setting that becomes the preset `paper-fitted`."""
        return self.finalists[0]

    @property
    def met(self) -> int:
        """How many settings were evaluated."""
        return len({r.setting for r in (*self.random, *self.improved, *self.finalists)})


def _identity() -> str:
    """Names grid and claims: what was evaluated under others is of no use."""
    parts = [BASE, repr(ASSUMPTIONS), repr(CLAIMS)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


class _Evaluator:
    """Evaluates settings once each, remembers them on disk, and reports progress."""

    def __init__(
        self,
        state: Path,
        pool: ProcessPoolExecutor | None,
        on_progress: Callable[[str, int, int], None],
    ) -> None:
        self._state, self._pool, self._on_progress = state, pool, on_progress
        self._known: dict[tuple[int, int, Setting], Result] = {}
        self._saved_at = time.monotonic()
        self._load()

    def results(
        self, stage: str, settings: Iterable[Setting], seed: int, draws: int
    ) -> list[Result]:
        """The results of the settings, in their order; those not known yet are run."""
        wanted = list(settings)
        missing = [s for s in dict.fromkeys(wanted) if (seed, draws, s) not in self._known]
        done = len(wanted) - len(missing)
        self._on_progress(stage, done, len(wanted))
        chunks = [missing[i : i + _CHUNK] for i in range(0, len(missing), _CHUNK)]
        arguments = [(chunk, seed, draws) for chunk in chunks]
        run = map if self._pool is None else self._pool.map
        for found in run(_evaluate_all, arguments):
            for result in found:
                self._known[seed, draws, result.setting] = result
            done += len(found)
            self._on_progress(stage, done, len(wanted))
            if time.monotonic() - self._saved_at > _SAVE_EVERY_S:
                self.save()
        return [self._known[seed, draws, setting] for setting in wanted]

    def save(self) -> None:
        """Write all that is known; whole or not at all."""
        rows = [
            [
                seed,
                draws,
                list(r.setting),
                [r.values[c.name] for c in CLAIMS if r.values],
                r.problem,
            ]
            for (seed, draws, _), r in self._known.items()
        ]
        data = {"identity": _identity(), "results": rows}
        write_atomically(self._state, (json.dumps(data) + "\n").encode())
        self._saved_at = time.monotonic()

    def _load(self) -> None:
        if not self._state.exists():
            return
        try:
            data = json.loads(self._state.read_text("utf-8"))
            identity, rows = data["identity"], data["results"]
        except (OSError, ValueError, KeyError, TypeError):
            raise ConfigError(f"--out: {self._state} is not the state of a search") from None
        if identity != _identity():
            raise ConfigError(
                f"--out: {self._state} is of a search over another grid, or for other claims; "
                "choose another folder"
            )
        for seed, draws, setting, values, problem in rows:
            names = [claim.name for claim in CLAIMS] if values else []
            key = tuple(setting)
            named = dict(zip(names, values, strict=True))
            self._known[seed, draws, key] = Result(key, named, problem)


def _evaluate_all(arguments: tuple[Sequence[Setting], int, int]) -> list[Result]:
    settings, seed, draws = arguments
    return [evaluate(setting, seed, draws) for setting in settings]


def run_search(
    plan: Plan,
    state: Path,
    *,
    workers: int = 1,
    on_progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> Outcome:
    """Run a search; what the state knows already, of this plan or another, is not run again.

    Args:
        plan: What to do.
        state: File that keeps what is known; written every 20 s, at an interrupt and at the end.
        workers: Processes; the outcome does not depend on them.
        on_progress: Called with the stage, and how much of it is done.

    Raises:
        ConfigError: The state is of another grid, or for other claims.
    """
    # Before any process starts: errors, and compiled kernels in the cache.
    evaluate(PAPER_SETTING, plan.seed, 1)
    with worker_pool(workers) as pool:
        evaluator = _Evaluator(state, pool, on_progress)
        try:
            return _search(plan, evaluator)
        finally:
            evaluator.save()


def _search(plan: Plan, evaluator: _Evaluator) -> Outcome:
    seed, draws = plan.seed + 1, plan.draws
    drawn = [random_setting(plan.seed, i) for i in range(plan.settings)]
    random = evaluator.results("random settings", drawn, seed, draws)
    everything = {result.setting: result for result in random}
    for start in _ranked(everything)[: plan.starts]:
        met = _improve(start, "improving", evaluator, seed, draws)
        everything |= {result.setting: result for result in met}
    # Few workloads flatter the settings that happen to suit them: the last word is with others.
    seed, draws = plan.seed + 2, plan.final_draws
    chosen = [result.setting for result in _ranked(everything)[: plan.finalists]]
    paper, *judged = evaluator.results("finalists", [PAPER_SETTING, *chosen], seed, draws)
    met = _improve(min(judged, key=_rank), "improving the best", evaluator, seed, draws)
    drawn_before = {result.setting for result in random}
    return Outcome(
        plan=plan,
        random=tuple(random),
        improved=tuple(r for s, r in everything.items() if s not in drawn_before),
        finalists=tuple(_ranked({result.setting: result for result in (*judged, *met)})),
        paper=paper,
    )


def _improve(
    start: Result, stage: str, evaluator: _Evaluator, seed: int, draws: int
) -> list[Result]:
    """Change one assumption at a time for the better until none helps: all settings met."""
    current, met = start, []
    while True:
        near = evaluator.results(
            f"{stage} ({current.score:.4f})", neighbours(current.setting), seed, draws
        )
        met += near
        best = min(near, key=_rank)
        if best.score >= current.score:
            return met
        current = best


def _rank(result: Result) -> tuple[float, Setting]:
    return result.score, result.setting


def _ranked(results: dict[Setting, Result]) -> list[Result]:
    return sorted(results.values(), key=_rank)
