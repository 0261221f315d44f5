"""Bayesian fusion of opinions: the rule, calibration, dependence, reliability and priors, as functions."""
