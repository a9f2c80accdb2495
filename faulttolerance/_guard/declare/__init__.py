"""What is declared on functions and classes, and what is wrong with it."""
