"""Runs to tables, figures and reports; the studies themselves as named functions."""

from lformer.studies.facts import RunFacts, collect
from lformer.studies.prediction import classify
from lformer.studies.quickstart import quickstart
from lformer.studies.report import write_report

__all__ = ["RunFacts", "classify", "collect", "quickstart", "write_report"]
