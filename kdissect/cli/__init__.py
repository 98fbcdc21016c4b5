"""The commands, one a file: parse options, build the pipeline, pick a sink, nothing else."""

from __future__ import annotations
