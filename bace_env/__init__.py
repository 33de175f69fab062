"""Geo-distributed pipeline-parallel LLM training: scenarios, cost model, simulator, environment."""

from gymnasium.envs.registration import register, registry

__version__ = "0.1.0"

ENV_ID = "bace_env/GeoPipeline-v0"

if ENV_ID not in registry:  # a reloaded module registers once
    register(
        id=ENV_ID,
        entry_point="bace_env.env:GeoPipelineEnv",
        vector_entry_point="bace_env.env:GeoPipelineVectorEnv",
    )
