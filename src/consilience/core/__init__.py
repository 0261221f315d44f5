"""What every other package builds on: samples, modalities, batches, targets, settings, errors."""
