"""Array types of the kernels: every array is C-contiguous float64, int64 or int8."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
ByteArray = NDArray[np.int8]
BoolArray = NDArray[np.bool_]


class Arrays(NamedTuple):
    """One workload on one cluster, constant during an episode.

    R regions, N jobs by (arrival, id), P job profiles (jobs of equal model and batch share one),
    K = largest k of any profile, T = longest price series.
    """

    gpus: IntArray  # (R,) GPUs of each region
    kw_per_gpu: FloatArray  # (R,) power * PUE of one GPU, kW
    link_bytes_per_s: FloatArray  # (R, R) directed capacity, row = source; 0 = no link
    link_latency_s: FloatArray  # (R, R) one way
    egress_usd_per_byte: FloatArray  # (R,) for what leaves for another region
    price_count: IntArray  # (R,) steps in use of each region's price series
    price_time_s: FloatArray  # (R, T) start of each step, first 0; inf where padded
    price_usd_per_kwh: FloatArray  # (R, T); 0 where padded
    price_cumulative: FloatArray  # (R, T) integral of the price from 0 to the start, USD/kWh * s
    price_period_s: FloatArray  # (R,) the series repeats after this; inf: the last price holds
    price_cycle_s: float  # an idle cluster has seen all prices after this, see pipeline
    ref_usd_per_gpu_s: float  # lowest time-mean cost of a GPU-second, for Instance.cost_ref_usd
    t_comm_form: int  # index into pipeline.T_COMM_FORMS
    comp_s: FloatArray  # (P, K+1) t_comp(k); inf at k = 0 and beyond k_max
    iteration_s: FloatArray  # (P, K+1) Eq. 1 with all hops inside a region; inf likewise
    least_gpu_s: FloatArray  # (P,) least GPU-seconds of an iteration: min over k of k * Eq. 1
    intra_s: FloatArray  # (P,) t_comm of a hop inside a region
    act_bytes: FloatArray  # (P,) A, bytes of one activation message
    micro_batches: IntArray  # (P,) M
    k_min: IntArray  # (P,) fewest GPUs
    k_max: IntArray  # (P,) most GPUs
    k_star: IntArray  # (P,) Eq. 13
    job_profile: IntArray  # (N,) index of the job's profile
    iterations: FloatArray  # (N,) I, a whole number
    arrival_s: FloatArray  # (N,) ascending


class StepSeries(NamedTuple):
    """One stepwise series from time 0 on, as `pipeline.price_integral` takes it."""

    times_s: FloatArray  # (T,) start of each step, first 0
    values: FloatArray  # (T,)
    cumulative: FloatArray  # (T,) integral from 0 to each start
    period_s: float  # inf: the last value holds


class State(NamedTuple):
    """What changes during an episode. Written by `bace_env.kernels` alone."""

    now_s: FloatArray  # (1,)
    idle_since_s: FloatArray  # (1,) since when nothing runs and nothing is to arrive; inf: not so
    counts: IntArray  # (3,) jobs arrived, pending, running
    totals: FloatArray  # (2,) job-seconds spent in the system so far, USD charged so far
    free_gpus: IntArray  # (R,)
    link_used: FloatArray  # (R, R) reserved bytes/s
    link_jobs: IntArray  # (R, R) jobs that reserve on the link
    status: ByteArray  # (N,) one of kernels.FUTURE, PENDING, RUNNING, FINISHED
    pending: IntArray  # (N,) pending job ids ascending, the first counts[1] count
    running: IntArray  # (N,) running job ids in no order, the first counts[2] count
    start_s: FloatArray  # (N,) nan before the start
    finish_s: FloatArray  # (N,) start + execution time; nan before the start
    path_length: IntArray  # (N,) regions on the path; 0 before the start
    path: IntArray  # (N, R) region ids in pipeline order
    alloc: IntArray  # (N, R) GPUs in path order
    job_iteration_s: FloatArray  # (N,) Eq. 1 on the path
    job_bytes_per_s: FloatArray  # (N,) b_j reserved on each hop between regions
    energy_kwh: FloatArray  # (N,)
    cost_usd: FloatArray  # (N,) Eq. 4


class Scratch(NamedTuple):
    """Room for what kernels work out on the way: they allocate nothing."""

    path: IntArray  # (3, R) placements: tried by Alg. 1, by a heuristic, by who plays schedules
    alloc: IntArray  # (3, R)
    star: IntArray  # (2, R) length and GPUs of each start's path
    rate: FloatArray  # (R,) a number of each region
    idle: FloatArray  # (R, R) zeros: nothing is reserved
    score: FloatArray  # (3, N) numbers of the pending jobs
    mark: IntArray  # (2, N) marks of the pending jobs
    profile: IntArray  # (P,) a mark of each profile


def allocate_scratch(n_regions: int, n_jobs: int, n_profiles: int) -> Scratch:
    """Room for a cluster and workload of that size."""
    return Scratch(
        path=np.zeros((3, n_regions), np.int64),
        alloc=np.zeros((3, n_regions), np.int64),
        star=np.zeros((2, n_regions), np.int64),
        rate=np.zeros(n_regions),
        idle=np.zeros((n_regions, n_regions)),
        score=np.zeros((3, n_jobs)),
        mark=np.zeros((2, n_jobs), np.int64),
        profile=np.zeros(n_profiles, np.int64),
    )


ARRIVED, N_PENDING, N_RUNNING = 0, 1, 2  # indices into State.counts
JOB_SECONDS, CHARGED_USD = 0, 1  # indices into State.totals
