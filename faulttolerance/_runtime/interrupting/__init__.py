"""Interrupting a call at its deadline: what deadlines a thread has, where it stands, how an exception comes there."""
