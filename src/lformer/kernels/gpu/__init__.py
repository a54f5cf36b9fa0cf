"""The kernels themselves. Importing one needs Triton, so that only the dispatch beside this package does it, late."""

try:
    import triton  # noqa: F401
except ImportError:
    raise ImportError("the kernels need Triton: pip install 'lformer[triton]'") from None
