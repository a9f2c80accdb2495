"""Where the processes of a namespace meet: what a server knows, and how it answers."""
