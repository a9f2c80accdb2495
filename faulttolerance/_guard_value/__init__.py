"""Guards as values, with the path of calls of any function through their policies."""
