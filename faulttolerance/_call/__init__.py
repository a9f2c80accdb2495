"""One call: an attempt on its way through the policies, what follows a failure, what is remembered between calls."""
