"""A trained model as a file that runs without this library: an ONNX model, or an exported program of torch."""
