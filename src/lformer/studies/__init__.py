"""Runs to tables, figures and reports; the studies themselves as named functions."""

from lformer.studies.facts import RunFacts, collect
from lformer.studies.prediction import classify
from lformer.studies.quickstart import quickstart
from lformer.studies.report import write_report
from lformer.studies.study_report import docs_tables, is_study, write_markdown, write_study_report

__all__ = [
    "RunFacts",
    "classify",
    "collect",
    "docs_tables",
    "is_study",
    "quickstart",
    "write_markdown",
    "write_report",
    "write_study_report",
]
