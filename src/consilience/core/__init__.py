"""What every other room builds on: samples, modalities, batches, targets, settings, errors."""
