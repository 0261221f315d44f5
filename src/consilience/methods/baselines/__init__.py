"""Baselines that do not know of modalities: all columns side by side, or nothing but the targets."""
