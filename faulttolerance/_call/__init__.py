"""One call: its attempts under the policies, the actions after a failure, and the state between calls."""
