"""Which regions and paths a placement rule looked at for a job, and why it refused them.

The choice is that of `propose_for`; paths, prices and checks come from the functions that it calls.
"""

from itertools import pairwise

import numpy as np

from agents.explanation import Cell, Column, Table
from agents.heuristic import Options, least_gpus, propose_for
from bace_env.jit import kernel
from bace_env.pipeline import link_room
from bace_env.placement import (
    FILL_IN_ORDER,
    GROW_BANDWIDTH,
    GROW_PRICE,
    RULE_CR_LCF,
    RULE_CR_LDF,
    RULE_LCF,
    RULE_PATHFINDER,
    allocate,
    grow_path,
    is_cheaper,
    joined_gpus,
    mean_price,
    next_region,
)
from bace_env.simulator import View
from bace_env.types import Arrays, FloatArray, IntArray, Scratch, State, allocate_scratch

_GBPS = 1.25e8  # bytes/s


@kernel
def _proposal(
    arrays: Arrays,
    state: State,
    options: Options,
    prices: FloatArray,
    profile: int,
    scratch: Scratch,
    path: IntArray,
    alloc: IntArray,
) -> tuple[int, int, int]:
    """What the rule proposes for the profile: path length, GPUs, and GPUs that patience asks."""
    length, gpus = propose_for(
        arrays, state.free_gpus, state.link_used, options, prices, profile, scratch, path, alloc
    )
    return length, gpus, least_gpus(arrays, options, prices, profile, gpus, scratch)


@kernel
def _path_from(
    arrays: Arrays,
    state: State,
    options: Options,
    prices: FloatArray,
    profile: int,
    start: int,
    grow: int,
    fill: int,
    path: IntArray,
    alloc: IntArray,
) -> tuple[int, int, float]:
    """The path that grows from a start (Alg. 1): length, GPUs, their mean price."""
    length, gpus = grow_path(
        arrays,
        state.free_gpus,
        state.link_used,
        prices,
        profile,
        arrays.k_star[profile],
        start,
        grow,
        options.partial_fill,
        path,
    )
    if length == 0:
        return 0, 0, np.inf
    allocate(fill, path, length, gpus, state.free_gpus, prices, alloc)
    return length, gpus, mean_price(path, alloc, length, gpus, prices)


@kernel
def _step_beyond(
    arrays: Arrays,
    state: State,
    options: Options,
    prices: FloatArray,
    profile: int,
    grow: int,
    path: IntArray,
    length: int,
    gpus: int,
) -> tuple[int, int, int, float]:
    """The region that a path of `gpus` meets next (-1: none), and what comes of it.

    `path` is as `grow_path` leaves it.

    Returns also the GPUs that it would lead to and does lead to, and the least room on the hops to
    it, bytes/s.
    """
    room = np.inf
    for i in range(1, length):
        u, v = path[i - 1], path[i]
        room = min(room, link_room(state.link_used[u, v], arrays.link_bytes_per_s[u, v]))
    at = next_region(
        arrays.link_bytes_per_s, state.free_gpus, state.link_used, prices, path, length, grow
    )
    if at < 0:
        return -1, gpus, gpus, room
    tail, u = path[length - 1], path[at]
    room = min(room, link_room(state.link_used[tail, u], arrays.link_bytes_per_s[tail, u]))
    wanted = min(gpus + state.free_gpus[u], arrays.k_star[profile])
    comp_s = arrays.comp_s[profile]
    reached = joined_gpus(
        arrays.act_bytes[profile], comp_s, gpus, wanted, room, options.partial_fill
    )
    return u, wanted, reached, room


@kernel
def _is_cheaper(price: float, than: float) -> bool:
    return is_cheaper(price, than)


def in_words(n: int) -> str:
    """A number of GPUs."""
    return "1 GPU" if n == 1 else f"{n} GPUs"


class RuleTables:
    """The rule of placement, applied to one job: which regions and paths it looked at."""

    def __init__(self, view: View, options: Options, prices: FloatArray, job: int) -> None:
        self._view, self._options, self._prices = view, options, prices
        self._a, self._state = view.arrays, view.state
        self._profile = int(view.arrays.job_profile[job])
        self._job, self._name = job, view.instance.job_names[job]
        self._regions = view.instance.region_names
        self._k_star, self._k_min = view.k_star(job), view.k_min(job)
        r = view.instance.n_regions
        self._path, self._alloc = np.empty(r, dtype=np.int64), np.empty(r, dtype=np.int64)
        scratch = allocate_scratch(r, view.instance.n_jobs, view.arrays.k_star.size)
        length, gpus, least = _proposal(
            self._a, self._state, options, prices, self._profile, scratch, self._path, self._alloc
        )
        self._gpus, self._least = int(gpus), int(least)  # without compiling they are NumPy's
        self._chosen = tuple(self._path[:length].tolist())

    def tables(self) -> list[Table]:
        """In the order in which the rule proceeds."""
        rule = self._options.rule
        if rule != RULE_PATHFINDER:
            found = [self._starts()]
            if rule in (RULE_CR_LCF, RULE_CR_LDF) and (start := self._cr_start()) is not None:
                found.append(self._paths([start]))
            return found
        found = [self._single_regions()]
        if self._view.free_gpus.max() < self._k_star:
            found.append(self._paths(list(range(len(self._regions)))))
        return found

    def _single_regions(self) -> Table:
        """Alg. 1, lines 3-5: the cheapest region that holds all K* GPUs."""
        free = self._view.free_gpus
        rows = []
        for r, name in enumerate(self._regions):
            if free[r] < max(self._k_star, 1):
                verdict = f"refused: {free[r]} of K* = {self._k_star} GPUs free"
            elif self._chosen == (r,):
                verdict = self._kept()
            else:
                verdict = self._dearer(r, self._chosen[0])
            rows.append((name, int(free[r]), float(self._prices[r]), verdict))
        title = f"{self._name}: one region with K* = {self._k_star} GPUs (Alg. 1, phase 1)"
        columns = (Column("region"), Column("free", "GPUs"), Column("price", "$/GPU-h"))
        return Table(title, (*columns, Column("verdict")), tuple(rows))

    def _dearer(self, r: int, chosen: int) -> str:
        same = self._prices[r] == self._prices[chosen]
        return "refused: " + ("as cheap, later in the list" if same else "dearer")

    def _kept(self) -> str:
        """The verdict on the rule's own choice."""
        if self._gpus < self._least:
            return f"best, but patience asks for {in_words(self._least)}"
        return "chosen"

    def _starts(self) -> Table:
        """LCF, LDF and where CR-LCF and CR-LDF begin."""
        rule, free = self._options.rule, self._view.free_gpus
        cheapest = rule in (RULE_LCF, RULE_CR_LCF)
        needed = 1 if rule in (RULE_CR_LCF, RULE_CR_LDF) else max(self._k_min, 1)
        chosen = self._chosen[0] if self._chosen else self._cr_start()
        rows = []
        for r, name in enumerate(self._regions):
            if free[r] < needed:
                verdict = f"refused: {free[r]} of the {needed} GPUs that it must have free"
            elif r == chosen:
                verdict = self._kept() if self._chosen else "path starts here"
            elif chosen is None:
                verdict = "refused: fewer GPUs free than k_min"
            elif cheapest:
                verdict = self._dearer(r, chosen)
            else:
                same = free[r] == free[chosen]
                verdict = "refused: " + ("as many, later in the list" if same else "fewer GPUs")
            rows.append((name, int(free[r]), float(self._prices[r]), verdict))
        what = "the cheapest region" if cheapest else "the region with most free GPUs"
        columns = (Column("region"), Column("free", "GPUs"), Column("price", "$/GPU-h"))
        return Table(f"{self._name}: {what}", (*columns, Column("verdict")), tuple(rows))

    def _cr_start(self) -> int | None:
        """Where the one path of CR-LCF or CR-LDF begins, also if it comes to nothing."""
        if self._options.rule not in (RULE_CR_LCF, RULE_CR_LDF):
            return None
        # Even a path below k_min is grown, and left in `path`, before it is refused.
        return int(self._path[0]) if self._view.free_gpus.max() > 0 else None

    def _paths(self, starts: list[int]) -> Table:
        """Every path that was grown, why it grew no further and why it was refused."""
        rule = self._options.rule
        grow = GROW_PRICE if rule == RULE_CR_LCF else GROW_BANDWIDTH
        fill = self._options.fill if rule == RULE_PATHFINDER else FILL_IN_ORDER
        r = len(self._regions)
        path, alloc = np.empty(r, dtype=np.int64), np.empty(r, dtype=np.int64)
        shared = (self._a, self._state, self._options, self._prices, self._profile)
        best_price = np.inf
        if self._chosen:
            grown = _path_from(*shared, self._chosen[0], grow, fill, path, alloc)
            best_price = grown[2]
        rows: list[tuple[Cell, ...]] = []
        for start in starts:
            length, gpus, price = _path_from(*shared, start, grow, fill, path, alloc)
            if length == 0:
                rows.append((self._regions[start], None, 0, None, None, "refused: no free GPU"))
                continue
            placed = (tuple(path[:length].tolist()), tuple(alloc[:length].tolist()))
            end = self._end(grow, path, length, gpus)
            verdict = self._verdict(placed[0], gpus, price, best_price)
            where = self._view.instance.where(*placed)
            rows.append((self._regions[start], where, int(gpus), float(price), end, verdict))
        how = "lowest price" if grow == GROW_PRICE else "highest free bandwidth"
        title = f"{self._name}: paths along the {how}, up to K* = {self._k_star} GPUs"
        columns = (
            Column("from"),
            Column("path"),
            Column("offers", "GPUs"),
            Column("mean price", "$/GPU-h"),
            Column("ends because"),
            Column("verdict"),
        )
        return Table(title, columns, tuple(rows))

    def _verdict(self, path: tuple[int, ...], gpus: int, price: float, best_price: float) -> str:
        if path == self._chosen:
            return self._kept()
        if gpus < self._k_min:
            return f"refused: {in_words(gpus)}, k_min is {self._k_min}"
        if gpus < self._gpus:
            return f"refused: offers {gpus}, another {self._gpus}"
        if _is_cheaper(best_price, price):
            return "refused: as many GPUs, but dearer"
        return "refused: no better than an earlier start"

    def _end(self, grow: int, path: IntArray, length: int, gpus: int) -> str:
        """Why a grown path does not go on."""
        if gpus >= self._k_star:
            return "has all K* GPUs"
        on_path = path[:length].tolist()
        offered = int(self._view.free_gpus[on_path].sum())
        if gpus < offered:  # partial_fill: the last region gives fewer than it has
            last = self._regions[on_path[-1]]
            return f"the links to {last} carry no more than {in_words(gpus)}"
        shared = (self._a, self._state, self._options, self._prices, self._profile)
        u, wanted, _, room = _step_beyond(*shared, grow, path, length, gpus)
        if u < 0:
            return "no other region has a free GPU"
        hops = list(pairwise([*on_path, u]))
        if self._a.link_bytes_per_s[hops[-1]] <= 0:
            return f"no link {self._regions[hops[-1][0]]} -> {self._regions[u]}"
        free = self._view.free_bytes_per_s
        weakest = min(hops, key=lambda hop: free[hop])
        need = self._view.bandwidth_need(self._job, wanted)
        return (
            f"{self._regions[u]} would make {in_words(wanted)}, b = {need / _GBPS:.3g} Gbit/s; "
            f"{self._regions[weakest[0]]} -> {self._regions[weakest[1]]} has {room / _GBPS:.3g}"
        )
