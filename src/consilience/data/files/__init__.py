"""Readers of file formats: arrays, tables, MATLAB files and MNIST's idx."""
