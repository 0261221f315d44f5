"""The tables and figures of Zhang et al. 2023 on quality-aware fusion, on what can be had of their data.

`qmf-table1`, `qmf-table5`, `qmf-table6` in `robustness`, `qmf-table2` in `ablation`, `qmf-table3` and `qmf-figure3` in
`estimators`, `qmf-figure1` in `gap`: importing them makes them known.
"""

from consilience.comparison.experiments.qmf_tables import ablation, estimators, gap, robustness

__all__ = ["ablation", "estimators", "gap", "robustness"]
