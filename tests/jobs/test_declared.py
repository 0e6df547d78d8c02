"""Declarations of jobs agree with the signatures of their functions."""

from __future__ import annotations

import inspect
from pkgutil import resolve_name

from daskcluster.cli.options import ROWS
from daskcluster.jobs.catalogue import declared_jobs
from daskcluster.methods.streaming.parameters import STREAMING

RUN = {"name", "engine", "callbacks"}


def test_a_job_takes_what_it_declares_with_the_same_defaults() -> None:
    for command, spec in declared_jobs().items():
        signature = dict(inspect.signature(resolve_name(spec.function)).parameters)
        if spec.extends:
            further = inspect.signature(resolve_name(spec.extends)).parameters
            signature = {**further, **signature}
        declared = [each for each in spec.parameters if not getattr(each, "is_local", False)]
        own = {each.name: each.default for each in declared}
        names = {*spec.arguments, *(each.name for each in spec.outputs), *own}
        names |= {name for name in ROWS if name not in spec.without}
        names |= {"overwrite"} if spec.outputs and spec.replaces else set()
        names |= {"checkpoint", "resume"} if spec.keeps else {"resume"} if spec.resumes else set()
        if spec.algorithms is not None:
            names |= {"algorithm", "n_clusters", "random_state", "parameters"}
        if spec.extends:  # they have more than the command
            names -= {each.name for each in STREAMING[1:]}  # which are passed on
            assert names | RUN <= set(signature), command
        else:
            assert names | RUN == set(signature), command
        for name, default in own.items():
            if name not in signature:
                assert "parameters" in signature
                continue
            taken = signature[name].default
            assert default is None or taken in (default, inspect.Parameter.empty), (command, name)
        for output in spec.outputs:
            is_needed = signature[output.name].default is inspect.Parameter.empty
            assert is_needed == bool(output.what), (command, output.name)
