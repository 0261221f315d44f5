"""The live page: exported models that run in a browser, and what a visitor may do to their modalities."""
