"""Geo-distributed pipeline-parallel LLM training: scenarios, cost model, exact simulator."""

__version__ = "0.1.0"
