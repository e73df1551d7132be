"""Encode-and-accumulate kernels. The torch reference is the specification."""
