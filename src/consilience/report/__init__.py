"""Report: the results of a comparison as tables, figures and one self-contained page."""

from consilience.comparison.results import SCHEMAS, Findings, empty_table
from consilience.report.loop_figures import draw_depth, draw_joining, draw_probes
from consilience.report.page import render_page, write_report
from consilience.report.result_tables import main_table
from consilience.report.sentences import headline

__all__ = [
    "SCHEMAS",
    "Findings",
    "draw_depth",
    "draw_joining",
    "draw_probes",
    "empty_table",
    "headline",
    "main_table",
    "render_page",
    "write_report",
]
