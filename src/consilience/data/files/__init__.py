"""Readers of file formats: arrays, tables, MATLAB files, and the idx files of MNIST."""
