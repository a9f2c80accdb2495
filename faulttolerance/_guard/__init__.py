"""The policies of each function and class, their order, and the path of calls through them."""
