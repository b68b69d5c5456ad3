"""The report of a study: plots and tables in one file that needs nothing else."""

from simulation.report.page import write_report

__all__ = ["write_report"]
