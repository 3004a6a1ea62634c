from harness.faults.mutants.runner import Outcome, run

__all__ = ["Outcome", "run"]
