"""The commands, one per file: parse options, build the pipeline, choose a sink, nothing else."""

from __future__ import annotations
