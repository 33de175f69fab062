"""The network as an ONNX file: what `agents.ppo` runs, with neither torch nor pickles."""

import io
import json
import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from agents.ppo import FORMAT, METADATA, Header
from bace_env.candidates import DEFAULT_BUDGETS
from bace_env.files import write_atomically
from bace_env.observation import FEATURES, features_fingerprint
from train.network import Decision, Network


class _One(nn.Module):
    """`Network.decide` with plain arguments, as the exporter wants them."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, globals: Tensor, regions: Tensor, links: Tensor, jobs: Tensor, candidates: Tensor,
        job_of: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        return self.network.decide(Decision(globals, regions, links, jobs, candidates, job_of))


def export(network: Network, path: Path, slots: int, about: Mapping[str, Any]) -> None:
    """Write a model file, whole or not at all.

    Args:
        network: With its weights.
        path: Where to.
        slots: Visible jobs that it was trained with.
        about: What is to be known of its training, as plain data.
    """
    import onnx

    counts = {"regions": 3, "links": 4, "jobs": 5, "candidates": 7}
    example = [torch.zeros(len(FEATURES["globals"]))]
    example += [torch.zeros(n, len(FEATURES[key])) for key, n in counts.items()]
    example.append(torch.zeros(counts["candidates"], dtype=torch.int64))
    dynamic: dict[str, Any] = {
        key: {0: torch.export.Dim(f"n_{key}", min=0)} for key in ("regions", "links", "jobs")
    }
    n = torch.export.Dim("n_candidates", min=0)
    dynamic |= {"globals": None, "candidates": {0: n}, "job_of": {0: n}}
    logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter about its own parts
        program = torch.onnx.export(
            _One(network).eval(),
            tuple(example),
            input_names=list(Decision._fields),
            output_names=["scores", "value"],
            dynamic_shapes=dynamic,
            dynamo=True,
            verbose=False,
            external_data=False,
        )
    assert program is not None
    buffer = io.BytesIO()
    onnx.save(program.model_proto, buffer)
    model = onnx.load_model_from_string(buffer.getvalue())
    header = Header(FORMAT, features_fingerprint(), slots, DEFAULT_BUDGETS, dict(about))
    onnx.helper.set_model_props(model, {METADATA: json.dumps(header._asdict())})
    model.doc_string = ""
    onnx.checker.check_model(model)
    write_atomically(path, model.SerializeToString())
