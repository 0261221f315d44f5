"""Objectives of latent models, one file each: named terms for every sample, whose sum is minimised."""
