"""Mutants of the real thing: a library's own kernels and samplers with one node of their source changed, which the checks must find.

    from harness.faults.mutants import run, summary
    outcomes = run(count=300, seed=0, workers=2, kernels=(), done=print)
    print(summary(outcomes)["killed"])

`run` traces the cells of cells.txt on the library as it is, draws mutants of the functions they reach (evenly over functions and
operators, by the seed alone), runs each in a process of its own under Triton's interpreter until a cell gives a finding, and returns
a list of `Outcome`. `summary` counts them for JSON. `unmatched` names what equivalents.toml lists and the library no longer has.

    operators      what a mistake is: from a node to the wrong nodes
    sites          where they apply in a source file, and the changed text; the keys
    planting       a mutant in the place of the original, and out again
    cells          the tiny cells, chosen from the presets
    population     which functions the cells reach, and the draw
    server         the process that runs cells and mutants; `process` is the harness' side of it
    runner         all of it together: run, Outcome, summary
    equivalents    the reviewed list of mutants that cannot be found
"""

from harness.faults.mutants.runner import Outcome, run, summary, unmatched

__all__ = ["Outcome", "run", "summary", "unmatched"]
