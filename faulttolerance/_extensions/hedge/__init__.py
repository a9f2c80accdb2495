"""``@hedge``: a second attempt beside a slow attempt."""
