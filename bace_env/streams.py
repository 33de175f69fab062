"""numpy's seeds and draws for many episodes at once: a call of numpy costs more than what it draws.

numpy is the specification, to the bit: `scenario` draws one episode by `numpy.random`, and tests
compare. All numbers are uint64, and no sum or product of theirs overflows: so they are the same
without compiling.
"""

import numpy as np
from numpy.typing import NDArray

from bace_env.jit import inner_kernel, kernel
from bace_env.types import IntArray

_U64 = np.uint64
_ZERO, _ONE, _HALF = _U64(0), _U64(1), _U64(32)
_LOW, _WHOLE = _U64(2**32 - 1), _U64(2**32)
_SEED_BITS = _U64(2**53 - 1)

# SeedSequence, after O'Neill's seed_seq: start and factor of the two series of hash constants, the
# factors of a mix, and by how much a hash is shifted.
_INIT_A, _MULT_A = _U64(0x43B0D7E5), _U64(0x931E8875)
_INIT_B, _MULT_B = _U64(0x8B51F9DD), _U64(0x58F38DED)
_MIX_L, _MIX_R = _U64(0xCA01F9DD), _U64(0x4973F715)
_SHIFT = _U64(16)
_POOL = 4

# Philox 4x64: the multipliers, and what raises the key from round to round.
_ROUNDS, _BLOCK = 10, 8  # a block are 8 numbers of 32 bits
_PHILOX_0, _PHILOX_1 = _U64(0xD2E7470EE14C6C93), _U64(0xCA5A826395121157)
_WEYL_0, _WEYL_1 = _U64(0x9E3779B97F4A7C15), _U64(0xBB67AE8584CAA73B)


def episode_seeds(seeds: IntArray, episodes: IntArray) -> IntArray:
    """`scenario.episode_seed` of each pair, `(B,)`.

    `SeedSequence(seed, spawn_key=(episode,)).generate_state(1, uint64)` modulo 2**53: O'Neill's
    seed_seq (2015, https://www.pcg-random.org/posts/developing-a-seed_seq-alternative.html) as in
    `numpy.random.SeedSequence`; episode 0 has the seed itself.

    Args:
        seeds: From 0 to 2**53 - 1, `(B,)`.
        episodes: Counts from 0, `(B,)`.
    """
    found = np.empty(seeds.size, np.int64)
    _fill_seeds(seeds, episodes, np.empty(_POOL, _U64), found)
    return found


def choices(seeds: IntArray, source: int, n: int, size: int) -> IntArray:
    """`Generator(Philox(key=[seed, source])).integers(n, size=size)` of each seed, `(B, size)`.

    Philox 4x64 of 10 rounds (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011),
    its numbers split into halves, and brought below n by Lemire's multiplication with rejection
    (2019), as in `numpy.random`.

    Args:
        seeds: At least 0, `(B,)`.
        source: The other half of the key.
        n: From 1 to 2**32.
        size: Draws of each seed.
    """
    found = np.empty((seeds.size, size), np.int64)
    _fill_choices(seeds, source, n, np.empty(_BLOCK, _U64), found)
    return found


@inner_kernel
def _hashed(value: _U64, constant: _U64, factor: _U64) -> tuple[_U64, _U64]:
    """A 32-bit number hashed, and the next hash constant."""
    following = (constant * factor) & _LOW
    value = ((value ^ constant) * following) & _LOW
    return value ^ (value >> _SHIFT), following


@inner_kernel
def _mixed(x: _U64, y: _U64) -> _U64:
    """Two 32-bit numbers in one."""
    value = (((_MIX_L * x) & _LOW) + (_WHOLE - ((_MIX_R * y) & _LOW))) & _LOW
    return value ^ (value >> _SHIFT)


@inner_kernel
def _fill_pool(seed: _U64, episode: _U64, pool: NDArray[np.uint64]) -> None:
    """SeedSequence's pool of the words of a seed, filled up with zeros, and those of an episode."""
    pool[0], pool[1], pool[2], pool[3] = seed & _LOW, seed >> _HALF, _ZERO, _ZERO
    constant = _INIT_A
    for i in range(_POOL):
        pool[i], constant = _hashed(pool[i], constant, _MULT_A)
    for source in range(_POOL):
        for i in range(_POOL):
            if i != source:
                value, constant = _hashed(pool[source], constant, _MULT_A)
                pool[i] = _mixed(pool[i], value)
    while episode > _ZERO:
        for i in range(_POOL):
            value, constant = _hashed(episode & _LOW, constant, _MULT_A)
            pool[i] = _mixed(pool[i], value)
        episode >>= _HALF


@kernel
def _fill_seeds(
    seeds: IntArray, episodes: IntArray, pool: NDArray[np.uint64], found: IntArray
) -> None:
    for b in range(seeds.size):
        found[b] = seeds[b]
        if episodes[b] > 0:
            _fill_pool(_U64(seeds[b]), _U64(episodes[b]), pool)
            low, constant = _hashed(pool[0], _INIT_B, _MULT_B)
            high, constant = _hashed(pool[1], constant, _MULT_B)
            found[b] = np.int64((high << _HALF | low) & _SEED_BITS)


@inner_kernel
def _product(x: _U64, y: _U64) -> tuple[_U64, _U64]:
    """High and low half of the 128 bits of x * y."""
    x_low, x_high, y_low, y_high = x & _LOW, x >> _HALF, y & _LOW, y >> _HALF
    low = x_low * y_low
    middle = x_high * y_low + (low >> _HALF)
    other = x_low * y_high + (middle & _LOW)
    high = x_high * y_high + (middle >> _HALF) + (other >> _HALF)
    return high, other << _HALF | low & _LOW


@inner_kernel
def _sum(x: _U64, y: _U64) -> _U64:
    """The sum modulo 2**64."""
    low = (x & _LOW) + (y & _LOW)
    return ((x >> _HALF) + (y >> _HALF) + (low >> _HALF)) << _HALF | low & _LOW


@inner_kernel
def _fill_block(count: _U64, key_0: _U64, key_1: _U64, block: NDArray[np.uint64]) -> None:
    """The 8 numbers of 32 bits of a key's block."""
    x_0, x_1, x_2, x_3 = count, _ZERO, _ZERO, _ZERO
    for _ in range(_ROUNDS):
        high_0, low_0 = _product(_PHILOX_0, x_0)
        high_1, low_1 = _product(_PHILOX_1, x_2)
        x_0, x_1, x_2, x_3 = high_1 ^ x_1 ^ key_0, low_1, high_0 ^ x_3 ^ key_1, low_0
        key_0, key_1 = _sum(key_0, _WEYL_0), _sum(key_1, _WEYL_1)
    block[0], block[2], block[4], block[6] = x_0 & _LOW, x_1 & _LOW, x_2 & _LOW, x_3 & _LOW
    block[1], block[3], block[5], block[7] = x_0 >> _HALF, x_1 >> _HALF, x_2 >> _HALF, x_3 >> _HALF


@kernel
def _fill_choices(
    seeds: IntArray, source: int, n: int, block: NDArray[np.uint64], found: IntArray
) -> None:
    bound = _U64(n)
    least = (_WHOLE - bound) % bound  # of the low half of a product: else some come more often
    for b in range(seeds.size):
        count, used, i = _ZERO, _BLOCK, 0
        while i < found.shape[1]:
            if used == _BLOCK:
                count, used = count + _ONE, 0
                _fill_block(count, _U64(seeds[b]), _U64(source), block)
            product = block[used] * bound
            used += 1
            if product & _LOW >= least:
                found[b, i] = np.int64(product >> _HALF)
                i += 1
