"""Importers: job traces, prices, bandwidth and topologies become scenario files.

`python -m bace_env.io FORMAT FILE... --out scenario.toml`; `docs/imports.md` is the reference. From
Python, each family has a reader that returns data and a `Report`, and a step that puts the data
into a scenario:

    from bace_env.io import jobs, scenario_files, series, network

They need the extra `io` (pandas, networkx, tomli-w), which nothing else of the project imports.
"""
